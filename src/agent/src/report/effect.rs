//! Obstacles that keep written values from taking effect: in the kernel, in ancestors and beside.
//!
//! The kernel accepts a weight below a scheduler that ignores weights, and protection below a parent without
//! any. The files then hold the right values without effect. The agent looks for such obstacles, and reports
//! each with its remedy.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::backend::access::HostAccess;
use tenantd_control::words::finding::{Code, Finding};
use tenantd_core::kernel_text::text_of_path;
use tenantd_core::units::Limit;
use tenantd_host::cgroup::{Facet, Tree, parse};
use tenantd_host::enforce::IDLE;
use tenantd_host::kernfs::{KernError, KernFs};

/// Obstacles that affect every tenant alike, found once at the start.
pub(super) fn standing<K: KernFs>(host: &mut HostAccess<K>, has_root: bool) -> Vec<Finding> {
    let lacks = |message: &str, remedy: &str| {
        Finding::of_host(Code::KernelLacks, message).with_remedy(remedy)
    };
    let mut findings = Vec::new();
    if !host.machine.has_pressure(&mut host.kernel) {
        findings.push(lacks(
            "the kernel accounts no pressure: demand is estimated from threads",
            "boot with psi=1",
        ));
    } else if host.layout.tree(Facet::Pressure).is_none() {
        findings
            .push(lacks("tenants have no pressure files", "mount cgroup2 beside the legacy trees"));
    }
    if host.layout.tree(Facet::Memory).is_none() {
        let what = "no memory controller is mounted: only CPU is divided";
        findings.push(Finding::of_host(Code::KernelLacks, what));
    }
    if has_root {
        findings.extend(missing_controllers(host));
    }
    if host.limits_pids {
        findings.extend(void_pids(host, has_root));
    }
    findings.extend(void_inside(host));
    findings
}

/// Finding if limits of disks do not hold inside cgroups: the kernel applies one to the processes of a single cgroup of v1
/// (`throtl_pd_init`, block/blk-throttle.c).
fn void_inside<K>(host: &HostAccess<K>) -> Option<Finding> {
    let is_void = host.limits_disks_inside && !host.layout.is_unified();
    is_void.then(|| {
        let what = "limit.disk is ineffective for jobs and for groups: in cgroup v1 it bounds only processes directly in the \
                    cgroup of a tenant";
        let remedy = "boot with cgroup v2, or give each tenant of a group a limit of its own";
        Finding::of_host(Code::Ineffective, what).with_remedy(remedy)
    })
}

/// Finding if processes cannot be limited: of units nowhere on the host, or of cgroups that the agent makes
/// below its root.
fn void_pids<K: KernFs>(host: &mut HostAccess<K>, has_root: bool) -> Option<Finding> {
    let void = |why: String, remedy: &str| {
        let what = format!("limit.pids is ineffective: {why}");
        Some(Finding::of_host(Code::Ineffective, what).with_remedy(remedy))
    };
    let Some(index) = host.layout.tree(Facet::Pids) else {
        let why = "no hierarchy with the pids controller is in use".to_string();
        return void(why, "mount it where it is not mounted, and restart tenantd");
    };
    if !host.layout.is_unified() {
        return None;
    }
    let tree = &host.layout.trees[index];
    let top = if has_root { tree.root.clone() } else { tree.mount.clone() };
    if available(&mut host.kernel, &top)?.iter().any(|controller| controller == "pids") {
        return None;
    }
    let why = format!("the pids controller is not available in {}", top.display());
    if has_root {
        void(why, "enable it in the cgroups above (on a systemd host: Delegate=yes)")
    } else {
        void(why, "boot without cgroup_disable=pids, with a kernel that has it")
    }
}

/// Controllers available to the children of the cgroup at `path`; `None` if unreadable.
fn available(kernel: &mut impl KernFs, path: &Path) -> Option<Vec<String>> {
    let dir = kernel.open_dir(path).ok()?;
    let text = kernel.read_once(dir, "cgroup.controllers");
    let text = text.map(|text| String::from_utf8_lossy(text).into_owned());
    kernel.close_dir(dir);
    Some(text.ok()?.split_ascii_whitespace().map(str::to_string).collect())
}

fn missing_controllers<K: KernFs>(host: &mut HostAccess<K>) -> Vec<Finding> {
    if !host.layout.is_unified() {
        return Vec::new();
    }
    let root = &host.layout.trees[0].root;
    let Some(available) = available(&mut host.kernel, root) else { return Vec::new() };
    let is_missing = |name: &&&str| !available.iter().any(|word| word == **name);
    let finding = |name: &&str| {
        let root = root.display();
        let what =
            format!("the {name} controller is not available in {root}: nothing of it is enforced");
        Finding::of_host(Code::KernelLacks, what)
            .with_remedy("enable it in the cgroups above (on a systemd host: Delegate=yes)")
    };
    ["cpu", "memory"].iter().filter(is_missing).map(finding).collect()
}

/// Topmost cgroups at or above `dirs` without protection, which makes `memory.low` below them void. Each has a
/// finding that also names the cgroups below it without any.
///
/// The `governed` ones are left out: a failure to write them is reported separately.
///
/// Protection is limited by that of every ancestor up to the top of the hierarchy, whose own root needs none
/// (kernel document `cgroup-v2.rst`, "memory.low").
pub(super) fn void_protection<K: KernFs>(
    host: &mut HostAccess<K>,
    dirs: &BTreeSet<PathBuf>,
    governed: &BTreeSet<PathBuf>,
) -> Vec<(PathBuf, Finding)> {
    let Some(tree) = host.layout.tree(Facet::Memory).map(|index| &host.layout.trees[index]) else {
        return Vec::new();
    };
    if !host.layout.is_unified() {
        return Vec::new();
    }
    let above = up_to_mount(dirs, tree);
    let mut void: Vec<(PathBuf, Vec<PathBuf>)> = Vec::new();
    for up in above.difference(governed) {
        let Ok(dir) = host.kernel.open_dir(up) else { continue };
        let low = host.kernel.read_once(dir, "memory.low").ok().map(parse::limit);
        host.kernel.close_dir(dir);
        if let Some(Ok(Limit::Finite(0))) = low {
            // In path order a cgroup comes before those below it.
            match void.iter_mut().find(|(top, _)| up.starts_with(top)) {
                Some((_, below)) => below.push(up.clone()),
                None => void.push((up.clone(), Vec::new())),
            }
        }
    }
    void.into_iter().map(|(top, below)| (top.clone(), unprotected(&top, &below))).collect()
}

/// `dirs` and the cgroups above them, without the root of the tree.
fn up_to_mount(dirs: &BTreeSet<PathBuf>, tree: &Tree) -> BTreeSet<PathBuf> {
    let is_below = |up: &&Path| *up != tree.mount && up.starts_with(&tree.mount);
    let ups = dirs.iter().flat_map(|dir| dir.ancestors().take_while(is_below));
    ups.map(Path::to_path_buf).collect()
}

/// Findings on the topmost cgroups at or above `dirs` that run only while a CPU would idle (`CPUWeight=idle` of a unit): the weights
/// of tenants in them divide leftovers.
pub(super) fn idle_above<K: KernFs>(
    host: &mut HostAccess<K>,
    dirs: &BTreeSet<PathBuf>,
) -> Vec<Finding> {
    let Some(tree) = host.layout.tree(Facet::Cpu).map(|index| &host.layout.trees[index]) else {
        return Vec::new();
    };
    let above = up_to_mount(dirs, tree);
    let mut idle: Vec<PathBuf> = Vec::new();
    for up in &above {
        if idle.iter().any(|top| up.starts_with(top)) {
            continue;
        }
        let Ok(dir) = host.kernel.open_dir(up) else { continue };
        if host.kernel.read_once(dir, IDLE).is_ok_and(|text| text.trim_ascii() == b"1") {
            idle.push(up.clone());
        }
        host.kernel.close_dir(dir);
    }
    let finding = |top: PathBuf| {
        let what = format!(
            "cpu weights are ineffective in {}: its {IDLE} is 1, so the tenants in it get only CPU time that all other work leaves",
            text_of_path(&top)
        );
        let remedy = "write 0 there (on a systemd host: CPUWeight=100 instead of CPUWeight=idle of that unit or slice)";
        Finding::of_host(Code::Ineffective, what).with_remedy(remedy)
    };
    idle.into_iter().map(finding).collect()
}

const NAMED_MAX: usize = 4;

fn unprotected(top: &Path, below: &[PathBuf]) -> Finding {
    let mut what = format!("memory.low is ineffective: {} is not protected itself", top.display());
    if !below.is_empty() {
        let named: Vec<String> =
            below.iter().take(NAMED_MAX).map(|path| path.display().to_string()).collect();
        what += &format!(", nor below it {}", named.join(", "));
        if below.len() > NAMED_MAX {
            what += &format!(" and {} more", below.len() - NAMED_MAX);
        }
    }
    let each = if below.is_empty() { "it" } else { "each of them" };
    Finding::of_host(Code::Ineffective, what).with_remedy(format!(
        "give {each} memory.low (on a systemd host: MemoryLow= of that unit or slice)"
    ))
}

/// Finding on two tenants with different parents: the policy weighs them against each other, the kernel does
/// not. Each comes with the parent directory of its cgroup.
pub(super) fn apart((one, dir): (&str, &Path), (other, elsewhere): (&str, &Path)) -> Finding {
    let what = format!(
        "cpu weights are ineffective between {one} and {other}: one is in {}, the other in {}, and the \
         kernel weighs siblings only",
        dir.display(),
        elsewhere.display()
    );
    Finding::of_host(Code::Ineffective, what)
        .with_remedy("what those two get of each other is for their own CPUWeight= to say")
}

/// Finding on cgroups outside the policy that are `busy` beside the `waiting` tenants in `place`; `place`
/// itself represents the processes directly in it.
pub(super) fn beside(waiting: &[String], busy: &[&Path], place: &Path) -> Option<Finding> {
    let (tenant, first) = (waiting.first()?, busy.first()?);
    let more = match busy.len() {
        1 => String::new(),
        n => format!(" and {} more", n - 1),
    };
    let first = if *first == place {
        format!("the processes directly in {}", first.display())
    } else {
        first.display().to_string()
    };
    let what = format!(
        "cpu weights are ineffective against {first}{more}: busy beside {tenant}, which waits; no tenant \
         of the policy contains it"
    );
    let remedy = "name it in the policy, or give it a smaller weight (on a systemd host: CPUWeight= of \
                  that unit)";
    Some(Finding::of_host(Code::Ineffective, what).with_remedy(remedy))
}

pub(super) fn missing_files(tenant: &str, missing: &[KernError]) -> Option<Finding> {
    let first = missing.first()?;
    let more = match missing.len() {
        1 => String::new(),
        n => format!(" (and {} more files)", n - 1),
    };
    Some(Finding::of(tenant, Code::KernelLacks, format!("{first}{more}")))
}

pub(super) fn missing_trees(tenant: &str, missing: &[Facet]) -> Option<Finding> {
    if missing.is_empty() {
        return None;
    }
    let names: Vec<&str> = missing.iter().map(|facet| facet.controller()).collect();
    let names = names.join(" and ");
    let what =
        format!("its cgroup is not in the hierarchy of {names}: nothing of that is enforced");
    Some(Finding::of(tenant, Code::Ineffective, what).with_remedy("make it there as well"))
}
