//! The machine's topology, read from sysfs.
//!
//! The given root has `devices/system/cpu` and `devices/system/node`, like `/sys`. Only the CPU directory and
//! the list of online CPUs are indispensable. Virtual machines and unusual boards may lack all others; a
//! missing fact comes from the next best source:
//!
//! | fact | from | else from | else |
//! |---|---|---|---|
//! | online | `cpu/online` | `cpu/present`, `cpu/possible` | an error |
//! | isolated | `cpu/isolated` | | none |
//! | package | `topology/physical_package_id` | (−1 where the firmware is silent) | 0 |
//! | core | `topology/core_cpus_list` (5.3) | `thread_siblings_list`, package, die, `core_id` | the CPU |
//! | LLC | the highest of `cache/index*/shared_cpu_list` | the cluster, if wider than the core | the die |
//! | node | `node/node*/cpulist` | | node 0 |
//!
//! A cache private to a core is not a last-level cache in the sense of [`tenantd_dop::topology`]. Arm servers
//! often list only such caches; there the cores share the cluster (`topology/cluster_cpus_list`, 5.16) or the
//! die.
//!
//! A CPU may go offline between two reads: its files vanish, and the fallbacks apply as if they never existed.
//! The next reading of `online` corrects that.
//!
//! Sources: `Documentation/ABI/stable/sysfs-devices-system-cpu`, `…/testing/sysfs-devices-system-cpu`,
//! `Documentation/admin-guide/cputopology.rst`. Tests: `tests/dop/sysfs.rs`, with trees of real machines.

use std::collections::HashMap;
use std::path::Path;
use std::str::FromStr;

use super::kernfs::{DirId, ErrorKind, KernError, KernFs};
use tenantd_core::kernel_text::text_of_name;
use tenantd_dop::CpuSet;
use tenantd_dop::cpuset::ParseCpuSetError;
use tenantd_dop::topology::{CpuPlace, Topology, TopologyError};

/// Caches beyond this index are ignored; machines have four or five.
const CACHE_INDEX_MAX: u32 = 15;

/// Reads the topology of the machine whose sysfs is mounted at `root` (`/sys` in production). Fails without a
/// CPU directory, a valid list of the CPUs online, or a CPU to use.
pub fn read(fs: &mut dyn KernFs, root: &Path) -> Result<Topology, ReadTopologyError> {
    let cpu_dir = fs.open_dir(&root.join("devices/system/cpu"))?;
    let places = Reader { fs, cpu_dir }.places(root);
    fs.close_dir(cpu_dir);
    let Places { places, isolated, possible } = places?;
    Ok(Topology::try_new(places, &isolated, possible)?)
}

/// CPUs that are online now: cheap enough for every tick, to notice hotplug.
pub fn online(fs: &mut dyn KernFs, root: &Path) -> Result<CpuSet, ReadTopologyError> {
    let cpu_dir = fs.open_dir(&root.join("devices/system/cpu"))?;
    let online = Reader { fs, cpu_dir }.online();
    fs.close_dir(cpu_dir);
    online
}

/// Reason for a failed reading.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadTopologyError {
    /// A required file is unreadable.
    #[error(transparent)]
    Kernel(#[from] KernError),
    /// A file without a valid CPU list.
    #[error("{path} does not hold a CPU list")]
    Malformed {
        /// The file, below `devices/system/cpu`.
        path: String,
        /// The parse error.
        source: ParseCpuSetError,
    },
    /// The facts are inconsistent.
    #[error(transparent)]
    Impossible(#[from] TopologyError),
}

struct Places {
    places: Vec<CpuPlace>,
    isolated: CpuSet,
    possible: CpuSet,
}

struct Reader<'a> {
    fs: &'a mut dyn KernFs,
    cpu_dir: DirId,
}

impl Reader<'_> {
    fn places(&mut self, root: &Path) -> Result<Places, ReadTopologyError> {
        let online = self.online()?;
        let isolated = self.list(self.cpu_dir, "isolated")?.unwrap_or_default();
        let possible = self.list(self.cpu_dir, "possible")?.unwrap_or_default();
        let nodes = self.nodes(&root.join("devices/system/node"))?;
        let mut caches = Numbering::default();
        let mut cores = HashMap::new();
        let mut places = Vec::with_capacity(online.len());
        for cpu in &online {
            let package = self.id(cpu, "physical_package_id").unwrap_or(0);
            let die = self.id(cpu, "die_id").unwrap_or(0);
            let core = self.core(cpu, (package, die), &mut cores)?;
            let llc = match self.last_level_cache(cpu, &core)? {
                Some(cache) => Shared::With(cache.first().unwrap_or(cpu)),
                None => match self.cluster(cpu, &core)? {
                    Some(cluster) => Shared::With(cluster.first().unwrap_or(cpu)),
                    None => Shared::Die(die),
                },
            };
            let node =
                nodes.iter().find(|(_, cpus)| cpus.contains(cpu)).map_or(0, |(node, _)| *node);
            places.push(CpuPlace {
                package,
                node,
                llc: caches.number(llc),
                core: core.first().unwrap_or(cpu),
                cpu,
            });
        }
        Ok(Places { places, isolated, possible })
    }

    fn online(&mut self) -> Result<CpuSet, ReadTopologyError> {
        for name in ["online", "present"] {
            if let Some(cpus) = self.list(self.cpu_dir, name)? {
                return Ok(cpus);
            }
        }
        let text = self.fs.read_once(self.cpu_dir, "possible")?;
        parse_list(text, "possible")
    }

    /// Siblings of `cpu`, itself included; the first of `cores` if only numbers identify them.
    fn core(
        &mut self,
        cpu: u32,
        (package, die): (u32, u32),
        cores: &mut HashMap<(u32, u32, u32), u32>,
    ) -> Result<CpuSet, ReadTopologyError> {
        for name in ["core_cpus_list", "thread_siblings_list"] {
            let siblings = self.list(self.cpu_dir, &format!("cpu{cpu}/topology/{name}"))?;
            if let Some(siblings) = siblings.filter(|set| set.contains(cpu)) {
                return Ok(siblings);
            }
        }
        let first = match self.id(cpu, "core_id") {
            Some(core_id) => *cores.entry((package, die, core_id)).or_insert(cpu),
            None => cpu,
        };
        Ok(CpuSet::from_iter([first, cpu]))
    }

    /// CPUs that share the highest data cache of `cpu`, if these are more than its core.
    fn last_level_cache(
        &mut self,
        cpu: u32,
        core: &CpuSet,
    ) -> Result<Option<CpuSet>, ReadTopologyError> {
        let mut last: Option<(u32, CpuSet)> = None;
        for index in 0..=CACHE_INDEX_MAX {
            let cache = format!("cpu{cpu}/cache/index{index}");
            let Some(level) = self.number::<u32>(&format!("{cache}/level")) else { break };
            let shared = self.list(self.cpu_dir, &format!("{cache}/shared_cpu_list"))?;
            let Some(shared) = shared.filter(|set| set.contains(cpu)) else { continue };
            if last.as_ref().is_none_or(|(highest, _)| *highest < level) {
                last = Some((level, shared));
            }
        }
        Ok(last.map(|(_, shared)| shared).filter(|shared| shared.len() > core.len()))
    }

    fn cluster(&mut self, cpu: u32, core: &CpuSet) -> Result<Option<CpuSet>, ReadTopologyError> {
        let cluster = self.list(self.cpu_dir, &format!("cpu{cpu}/topology/cluster_cpus_list"))?;
        Ok(cluster.filter(|cpus| cpus.contains(cpu) && cpus.len() > core.len()))
    }

    /// NUMA nodes with their CPUs. Empty if the kernel was built without NUMA.
    fn nodes(&mut self, path: &Path) -> Result<Vec<(u32, CpuSet)>, ReadTopologyError> {
        let Ok(dir) = self.fs.open_dir(path) else { return Ok(Vec::new()) };
        let names = self.fs.list_dirs(dir).unwrap_or_default();
        let mut nodes = Vec::new();
        let mut failed = None;
        for name in names {
            let name = text_of_name(&name);
            let Some(Ok(node)) = name.strip_prefix("node").map(u32::from_str) else { continue };
            match self.list(dir, &format!("{name}/cpulist")) {
                Ok(cpus) => nodes.push((node, cpus.unwrap_or_default())),
                Err(error) => failed = Some(error),
            }
        }
        self.fs.close_dir(dir);
        nodes.sort_unstable_by_key(|(node, _)| *node);
        failed.map_or(Ok(nodes), Err)
    }

    fn id(&mut self, cpu: u32, name: &str) -> Option<u32> {
        self.number(&format!("cpu{cpu}/topology/{name}"))
    }

    fn number<T: FromStr>(&mut self, name: &str) -> Option<T> {
        self.text(name)?.parse().ok()
    }

    fn text(&mut self, name: &str) -> Option<String> {
        let text = self.fs.read_once(self.cpu_dir, name).ok()?;
        Some(String::from_utf8_lossy(text).trim().to_string())
    }

    /// Reads the list in an optional file. A file that exists without a valid list is an error.
    fn list(&mut self, dir: DirId, name: &str) -> Result<Option<CpuSet>, ReadTopologyError> {
        match self.fs.read_once(dir, name) {
            Ok(text) => parse_list(text, name).map(Some),
            Err(error) if matches!(error.kind(), ErrorKind::Gone | ErrorKind::Unsupported) => {
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn parse_list(text: &[u8], path: &str) -> Result<CpuSet, ReadTopologyError> {
    let text = String::from_utf8_lossy(text);
    text.parse().map_err(|source| ReadTopologyError::Malformed { path: path.to_string(), source })
}

/// Identity of a last-level cache within a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Shared {
    /// Lowest CPU that shares it.
    With(u32),
    Die(u32),
}

#[derive(Debug, Default)]
struct Numbering(HashMap<Shared, u32>);

impl Numbering {
    fn number(&mut self, shared: Shared) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(shared).or_insert(next)
    }
}
