//! The hierarchy of a machine, its mounts, and the agent's place in it.
//!
//! Linux has three arrangements:
//!
//! - *unified*: one cgroup2 mount with all controllers
//! - *legacy*: each controller, or a few together, on a separate mount
//! - *hybrid*: legacy, with a cgroup2 mount beside it that has no controllers but accounts pressure
//!
//! Hybrid counts as legacy here, with one gain: tenants get a cgroup in the cgroup2 mount too, which gives PSI
//! for each.
//!
//! All paths come from `/proc/self/mountinfo` and `/proc/self/cgroup`; none is fixed. The agent takes its own
//! cgroup, in each mount, as its root and never goes above it.

use std::path::{Component, Path, PathBuf};

use tenantd_core::kernel_text::mountinfo::{self, CgroupMount};
use tenantd_core::kernel_text::proc_files::{CgroupLine, cgroup_lines};
use tenantd_core::kernel_text::{path_of, text_of_path};
use tenantd_policy::model::{HierarchyChoice, RootChoice};

/// Kind of files that enforce a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// cgroup v2: `cpu.weight`, `memory.low`.
    Unified,
    /// cgroup v1: `cpu.shares`, `memory.soft_limit_in_bytes`.
    Legacy,
}

/// A purpose of a tree of cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Facet {
    /// Dividing CPU time.
    Cpu,
    /// Counting CPU time.
    Cpuacct,
    /// Choosing CPUs and memory nodes.
    Cpuset,
    /// Counting and limiting memory.
    Memory,
    /// Counting and limiting processes.
    Pids,
    /// Counting and dividing requests to disks.
    Io,
    /// Accounting pressure (PSI) and population.
    Pressure,
}

impl Facet {
    /// Name of the controller in a mount of cgroup v1.
    pub(crate) fn of_legacy(self) -> &'static str {
        if self == Facet::Io { "blkio" } else { self.controller() }
    }

    /// The kernel's name of the controller behind this facet.
    pub fn controller(self) -> &'static str {
        match self {
            Facet::Cpu => "cpu",
            Facet::Cpuacct => "cpuacct",
            Facet::Cpuset => "cpuset",
            Facet::Memory => "memory",
            Facet::Pids => "pids",
            Facet::Io => "io",
            Facet::Pressure => "pressure",
        }
    }
}

/// One mounted hierarchy and the agent's root in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// Its purposes.
    pub facets: Vec<Facet>,
    /// Mount point.
    pub mount: PathBuf,
    /// The mounted cgroup, from the root of the hierarchy: in a container it may be a part of it.
    pub part: PathBuf,
    /// The agent's own cgroup, as a path of the file system.
    pub own: PathBuf,
    /// The cgroup that contains the tenants, as a path of the file system.
    pub root: PathBuf,
}

impl Tree {
    /// True if every tenant gets a cgroup here. Only pinned tenants join a v1 cpuset tree: a new cpuset has no
    /// CPU and accepts no process.
    pub fn is_for_all(&self) -> bool {
        self.facets != [Facet::Cpuset]
    }

    /// Directory of `cgroup`, which is the text of a path below the mount.
    pub fn dir_of(&self, cgroup: &str) -> PathBuf {
        below(&self.mount, &path_of(cgroup.trim_start_matches('/')))
    }

    /// Converts a path from the root of the hierarchy to one below the mount; see [`mountinfo::from_mount`].
    pub fn from_mount(&self, cgroup: &str) -> Option<String> {
        mountinfo::from_mount(&self.part, cgroup)
    }

    /// Text of the path below the mount of the cgroup at `dir`.
    pub fn path_to(&self, dir: &Path) -> String {
        format!("/{}", text_of_path(dir.strip_prefix(&self.mount).unwrap_or(dir)))
    }
}

/// The hierarchies of a machine that the agent needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Kind of the files to write.
    pub(super) dialect: Dialect,
    /// The trees; a single one in cgroup v2.
    pub trees: Vec<Tree>,
    /// True if the kernel keeps pages in generations (`CONFIG_LRU_GEN`) and so does not report which cache is
    /// in use.
    pub has_generations: bool,
}

/// Reason for having no usable hierarchy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// Neither kind is mounted, or not the one that the policy asks for.
    #[error("{wanted} is not mounted here: {help}")]
    NotMounted {
        /// The hierarchy looked for.
        wanted: &'static str,
        /// The remedy.
        help: &'static str,
    },
    /// A malformed file of `/proc/self`.
    #[error("cannot understand {path}: {message}")]
    Malformed {
        /// The file.
        path: &'static str,
        /// The error.
        message: String,
    },
    /// A root that leads out of its hierarchy.
    #[error("root `{}` leads outside the cgroup hierarchy: name a cgroup without `..`", .0.display())]
    Escape(PathBuf),
}

impl Layout {
    /// Detects the layout of a machine from the texts of `/proc/self/mountinfo` and `/proc/self/cgroup`.
    pub fn detect(
        mountinfo: &[u8],
        own_cgroups: &[u8],
        hierarchy: HierarchyChoice,
        root: &RootChoice,
    ) -> Result<Layout, LayoutError> {
        let mounts = mountinfo::cgroup_mounts(mountinfo);
        let own = cgroup_lines(own_cgroups).ok_or_else(|| LayoutError::Malformed {
            path: "/proc/self/cgroup",
            message: "a line is not `NUMBER:CONTROLLERS:/PATH`".to_string(),
        })?;
        let has_legacy = mounts.iter().any(|mount| !mount.is_unified && mount.has("cpu"));
        let has_unified = mounts.iter().any(|mount| mount.is_unified);
        let dialect = match hierarchy {
            HierarchyChoice::Unified | HierarchyChoice::Simulated => Dialect::Unified,
            HierarchyChoice::Legacy => Dialect::Legacy,
            HierarchyChoice::Auto if has_legacy => Dialect::Legacy,
            HierarchyChoice::Auto => Dialect::Unified,
        };
        match dialect {
            Dialect::Unified if !has_unified => {
                return Err(LayoutError::NotMounted {
                    wanted: "the unified cgroup hierarchy",
                    help: "set `host.hierarchy: auto`, or mount cgroup2",
                });
            }
            Dialect::Legacy if !has_legacy => {
                return Err(LayoutError::NotMounted {
                    wanted: "a legacy cpu controller",
                    help: "set `host.hierarchy: auto`",
                });
            }
            _ => {}
        }
        let mut trees = Vec::new();
        for mount in &mounts {
            let facets = facets(mount, dialect);
            if facets.is_empty() || trees.iter().any(|t: &Tree| t.facets[0] == facets[0]) {
                continue;
            }
            let own = own_path(mount, &own);
            let root = rooted(&mount.mount_point, &own, root)?;
            let (mount, part) = (mount.mount_point.clone(), mount.root.clone());
            trees.push(Tree { facets, mount, part, own, root });
        }
        Ok(Layout { dialect, trees, has_generations: false })
    }

    /// Index of the tree that serves `facet`, if any.
    pub fn tree(&self, facet: Facet) -> Option<usize> {
        self.trees.iter().position(|tree| tree.facets.contains(&facet))
    }

    /// Sets `has_generations` from `text`, the contents of `/sys/kernel/mm/lru_gen/enabled`: a set of bits, the
    /// first of which is the main switch.
    pub fn with_generations(self, text: &[u8]) -> Layout {
        let digits = std::str::from_utf8(text).ok().and_then(|text| text.trim().strip_prefix("0x"));
        let bits = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        Layout { has_generations: bits.is_some_and(|bits| bits & 1 == 1), ..self }
    }

    /// Leaves out a tree that serves only `facet`.
    pub fn without(mut self, facet: Facet) -> Layout {
        self.trees.retain(|tree| tree.facets != [facet]);
        self
    }

    /// Name of this arrangement, for messages.
    pub fn describe(&self) -> &'static str {
        match (self.dialect, self.tree(Facet::Pressure)) {
            (Dialect::Unified, _) => "unified (cgroup v2)",
            (Dialect::Legacy, Some(_)) => "hybrid (cgroup v1, pressure from the unified mount)",
            (Dialect::Legacy, None) => "legacy (cgroup v1)",
        }
    }
}

/// Path of the agent's own cgroup in this mount.
///
/// The kernel prints cgroup paths from the hierarchy's root, and a bind mount may contain only a part of it:
/// the path outside that part is cut off, and a process outside of it counts as being at its top.
fn own_path(mount: &CgroupMount, own: &[CgroupLine]) -> PathBuf {
    let line = own.iter().find(|line| {
        if mount.is_unified {
            line.hierarchy == 0
        } else {
            line.controllers.split(',').any(|name| mount.has(name))
        }
    });
    let path = path_of(line.map_or("/", |line| line.path.as_str()));
    match path.strip_prefix(&mount.root) {
        Ok(inside) => below(&mount.mount_point, inside),
        Err(_) => mount.mount_point.clone(),
    }
}

fn facets(mount: &CgroupMount, dialect: Dialect) -> Vec<Facet> {
    use Facet::{Cpu, Cpuacct, Cpuset, Io, Memory, Pids, Pressure};
    match (dialect, mount.is_unified) {
        (Dialect::Unified, true) => vec![Cpu, Cpuacct, Cpuset, Memory, Pids, Io, Pressure],
        (Dialect::Unified, false) => Vec::new(),
        (Dialect::Legacy, true) => vec![Pressure],
        (Dialect::Legacy, false) => [Cpu, Cpuacct, Cpuset, Memory, Pids, Io]
            .into_iter()
            .filter(|facet| mount.has(facet.of_legacy()))
            .collect(),
    }
}

fn rooted(mount: &Path, own: &Path, choice: &RootChoice) -> Result<PathBuf, LayoutError> {
    let RootChoice::Path(path) = choice else { return Ok(own.to_path_buf()) };
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(LayoutError::Escape(path.clone()));
    }
    Ok(match path.strip_prefix("/") {
        // Users paste the path that they see in the file system; both forms mean the same cgroup.
        Ok(rest) => below(mount, path.strip_prefix(mount).unwrap_or(rest)),
        Err(_) => below(own, path),
    })
}

/// Joins `path` to `dir`, without the slash that joining an empty path would add.
fn below(dir: &Path, path: &Path) -> PathBuf {
    if path.as_os_str().is_empty() { dir.to_path_buf() } else { dir.join(path) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID_MOUNTS: &[u8] = b"\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
    const HYBRID_OWN: &[u8] =
        b"4:memory:/box/a\n3:cpuset:/\n2:cpu,cpuacct:/agent\n1:name=systemd:/\n0::/agent\n";
    const UNIFIED_MOUNTS: &[u8] =
        b"30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";

    fn detect(mounts: &[u8], own: &[u8], root: &RootChoice) -> Result<Layout, LayoutError> {
        Layout::detect(mounts, own, HierarchyChoice::Auto, root)
    }

    #[test]
    fn hybrid_gets_a_root_for_each_controller() {
        let layout = detect(HYBRID_MOUNTS, HYBRID_OWN, &RootChoice::Auto).unwrap();
        assert_eq!(layout.dialect, Dialect::Legacy);
        let root = |facet| layout.trees[layout.tree(facet).unwrap()].root.to_str().unwrap();
        assert_eq!(root(Facet::Cpu), "/sys/fs/cgroup/cpu,cpuacct/agent");
        assert_eq!(layout.tree(Facet::Cpu), layout.tree(Facet::Cpuacct));
        assert_eq!(root(Facet::Memory), "/sys/fs/cgroup/memory/box/a");
        assert_eq!(root(Facet::Cpuset), "/sys/fs/cgroup/cpuset");
        assert_eq!(root(Facet::Pressure), "/sys/fs/cgroup/unified/agent");
    }

    #[test]
    fn unified_has_one_tree() {
        let own = b"0::/system.slice/tenantd.service\n";
        let layout = detect(UNIFIED_MOUNTS, own, &RootChoice::Auto).unwrap();
        assert_eq!((layout.dialect, layout.trees.len()), (Dialect::Unified, 1));
        assert_eq!(
            layout.trees[0].root.to_str(),
            Some("/sys/fs/cgroup/system.slice/tenantd.service")
        );
    }

    #[test]
    fn a_kernel_keeps_generations_where_the_main_switch_is_on() {
        let layout = || detect(UNIFIED_MOUNTS, b"0::/\n", &RootChoice::Auto).unwrap();
        let has = |text: &[u8]| layout().with_generations(text).has_generations;
        assert!(has(b"0x0007\n") && has(b"0x0001\n"));
        assert!(!has(b"0x0000\n") && !has(b"0x0006\n") && !has(b"") && !has(b"yes\n"));
    }

    #[test]
    fn a_root_is_taken_from_the_mount_or_below_the_own_cgroup() {
        for (given, expected) in [
            ("/tenants", "/sys/fs/cgroup/tenants"),
            ("/sys/fs/cgroup/tenants", "/sys/fs/cgroup/tenants"),
            ("tenants", "/sys/fs/cgroup/me/tenants"),
            ("/", "/sys/fs/cgroup"),
        ] {
            let root = RootChoice::Path(given.into());
            let layout = detect(UNIFIED_MOUNTS, b"0::/me\n", &root).unwrap();
            assert_eq!(layout.trees[0].root.to_str(), Some(expected), "{given}");
        }
        let escape = RootChoice::Path("../x".into());
        assert!(matches!(
            detect(UNIFIED_MOUNTS, b"0::/me\n", &escape),
            Err(LayoutError::Escape(_))
        ));
    }

    #[test]
    fn a_bind_mounted_part_of_a_hierarchy_keeps_its_own_paths() {
        let mounts = b"30 23 0:26 /box /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let layout = detect(mounts, b"0::/box/me\n", &RootChoice::Auto).unwrap();
        assert_eq!(layout.trees[0].root.to_str(), Some("/sys/fs/cgroup/me"));
    }

    #[test]
    fn paths_of_processes_are_taken_from_the_part_that_is_mounted() {
        let mounts = b"30 23 0:26 /docker/ID /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let layout = detect(mounts, b"0::/docker/ID\n", &RootChoice::Auto).unwrap();
        let from_mount = |path| layout.trees[0].from_mount(path);
        assert_eq!(from_mount("/docker/ID/x").as_deref(), Some("/x"));
        assert_eq!(from_mount("/docker/ID").as_deref(), Some("/"));
        assert_eq!(from_mount("/docker/IDx"), None);
        assert_eq!(from_mount("/docker/ID/../other"), None);
        assert_eq!(from_mount("/"), None);
    }

    #[test]
    fn mounts_that_are_not_text_keep_nothing_from_being_read() {
        let mounts =
            [&b"29 23 0:31 / /media/ana/caf\xe9 rw - fuse.x \xff rw\n"[..], UNIFIED_MOUNTS];
        let layout = detect(&mounts.concat(), b"0::/caf\xe9/me\n", &RootChoice::Auto).unwrap();
        assert_eq!(layout.trees[0].path_to(&layout.trees[0].root), "/caf\\xe9/me");
        assert_eq!(layout.trees[0].dir_of("/caf\\xe9/me"), layout.trees[0].root);
    }

    #[test]
    fn what_is_not_mounted_is_an_error_with_a_remedy() {
        let none = b"31 23 0:28 / /tmp rw,relatime - tmpfs tmpfs rw\n";
        let error = detect(none, b"0::/\n", &RootChoice::Auto).unwrap_err();
        assert!(error.to_string().contains("not mounted"), "{error}");
        let forced =
            Layout::detect(UNIFIED_MOUNTS, b"0::/\n", HierarchyChoice::Legacy, &RootChoice::Auto);
        assert!(matches!(forced, Err(LayoutError::NotMounted { .. })));
    }
}
