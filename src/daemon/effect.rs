//! Whether what is written can take effect.
//!
//! The kernel accepts a weight below a scheduler that ignores weights, and a protection below a parent that
//! has none, without a word. Whoever reads the files back sees the right values and the wrong behaviour. So
//! the agent looks at what stands in the way, and says it with the remedy.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::host::cgroup::{Cgroup, Dialect, Facet, Layout, parse};
use crate::host::kernfs::{DirId, KernFs};
use crate::host::machine::Machine;
use crate::units::Limit;

/// Whether the CPU or the memory files of tenants can be there at all below `root`.
pub(super) fn has_controllers(kernel: &mut impl KernFs, layout: &Layout, root: DirId) -> bool {
    match layout.dialect {
        Dialect::Legacy => true,
        Dialect::Unified => kernel.read_once(root, "cgroup.controllers").is_ok_and(|text| {
            let text = String::from_utf8_lossy(text);
            text.split_ascii_whitespace().any(|name| name == "cpu" || name == "memory")
        }),
    }
}

/// What stands in the way of every tenant alike, found once at the start.
pub(super) fn standing(
    kernel: &mut impl KernFs,
    machine: &Machine,
    layout: &Layout,
    has_root: bool,
) -> Vec<String> {
    let mut findings = Vec::new();
    if !machine.has_pressure(kernel) {
        findings.push(
            "the kernel accounts no pressure: demand is estimated from threads; boot with psi=1"
                .into(),
        );
    } else if layout.tree(Facet::Pressure).is_none() {
        findings
            .push("tenants have no pressure files: mount cgroup2 beside the legacy trees".into());
    }
    if layout.tree(Facet::Memory).is_none() {
        findings.push("no memory controller is mounted: only CPU is divided".into());
    }
    if has_root {
        findings.extend(missing_controllers(kernel, layout));
    }
    findings
}

/// A sched_ext scheduler decides itself what a weight means, and most ignore it.
pub(super) fn foreign_scheduler(kernel: &mut impl KernFs) -> Option<String> {
    let dir = kernel.open_dir(Path::new("/sys/kernel/sched_ext")).ok()?;
    let enabled = kernel.read_once(dir, "state").is_ok_and(|text| text.starts_with(b"enabled"));
    kernel.close_dir(dir);
    enabled.then(|| {
        "cpu weights are ineffective if the loaded sched_ext scheduler ignores them: \
         unload it, or use one that honours cpu.weight"
            .to_string()
    })
}

fn missing_controllers(kernel: &mut impl KernFs, layout: &Layout) -> Vec<String> {
    if layout.dialect == Dialect::Legacy {
        return Vec::new();
    }
    let root = &layout.trees[0].root;
    let Ok(dir) = kernel.open_dir(root) else { return Vec::new() };
    let available = kernel
        .read_once(dir, "cgroup.controllers")
        .map(|text| String::from_utf8_lossy(text).into_owned());
    kernel.close_dir(dir);
    let Ok(available) = available else { return Vec::new() };
    ["cpu", "memory"]
        .iter()
        .filter(|name| !available.split_ascii_whitespace().any(|word| word == **name))
        .map(|name| {
            format!(
                "the {name} controller is not available in {}: nothing of it is enforced; \
                 enable it in the cgroups above (on a systemd host: Delegate=yes)",
                root.display()
            )
        })
        .collect()
}

/// The cgroups at or above `dirs` whose missing protection makes `memory.low` below them void, each with what
/// to say about it.
///
/// Protection is limited by that of every ancestor up to the top of the hierarchy, whose own root has none
/// and needs none (kernel document `cgroup-v2.rst`, "memory.low").
pub(super) fn void_protection(
    kernel: &mut impl KernFs,
    layout: &Layout,
    dirs: &BTreeSet<PathBuf>,
) -> Vec<(PathBuf, String)> {
    let Some(tree) = layout.tree(Facet::Memory).map(|index| &layout.trees[index]) else {
        return Vec::new();
    };
    if layout.dialect == Dialect::Legacy {
        return Vec::new();
    }
    let up_to_mount = |dir: &'_ PathBuf| -> Vec<PathBuf> {
        let ups = dir.ancestors().take_while(|up| *up != tree.mount && up.starts_with(&tree.mount));
        ups.map(Path::to_path_buf).collect()
    };
    let above: BTreeSet<PathBuf> = dirs.iter().flat_map(up_to_mount).collect();
    let mut void = Vec::new();
    for up in above {
        let Ok(dir) = kernel.open_dir(&up) else { continue };
        let low = kernel.read_once(dir, "memory.low").ok().map(parse::limit);
        kernel.close_dir(dir);
        if let Some(Ok(Limit::Finite(0))) = low {
            let what = format!(
                "memory.low is ineffective: {} is not protected itself; give it memory.low \
                 (on a systemd host: MemoryLow= of that unit or slice)",
                up.display()
            );
            void.push((up, what));
        }
    }
    void
}

/// That the policy weighs two tenants against one another and the kernel does not, because they have different
/// parents; each with the directory that its cgroup is in.
pub(super) fn apart((one, dir): (&str, &Path), (other, elsewhere): (&str, &Path)) -> String {
    format!(
        "cpu weights are ineffective between {one} and {other}: one is in {}, the other in {}, and the \
         kernel weighs siblings only; what those two get of each other is for their own CPUWeight= to say",
        dir.display(),
        elsewhere.display()
    )
}

/// Cgroups that are no tenants and are `busy` beside the `waiting` tenants.
pub(super) fn beside(waiting: &[String], busy: &[&PathBuf]) -> Option<String> {
    let (tenant, first) = (waiting.first()?, busy.first()?);
    let more = match busy.len() {
        1 => String::new(),
        n => format!(" and {} more", n - 1),
    };
    Some(format!(
        "cpu weights are ineffective against {}{more}: busy beside {tenant}, which waits, and no tenant; name \
         it in the policy, or give it a smaller weight (on a systemd host: CPUWeight= of that unit)",
        first.display()
    ))
}

/// The files that `cgroup` should have and has not, for a person.
pub(super) fn missing_files(cgroup: &Cgroup) -> Option<String> {
    let first = cgroup.missing().first()?;
    let more = match cgroup.missing().len() {
        1 => String::new(),
        n => format!(" (and {} more files)", n - 1),
    };
    Some(format!("{first}{more}"))
}
