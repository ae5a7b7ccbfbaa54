//! Writes that lead from the cpusets in force to the planned ones, each of them safe.
//!
//! **Problem.** A tree of cgroups has one list of CPUs each, and only one file can be written at a time. In
//! the legacy hierarchy a child outside of its parent is refused (EBUSY on the parent that shrinks, EINVAL
//! or EACCES on the child that grows); an empty list is refused where there are processes (ENOSPC); the
//! unified hierarchy accepts and clips, so that a wrong order shows as a tenant on too few CPUs. And every
//! write takes a global lock of the kernel.
//!
//! **Rule.** First widen, parents before children: each inner group gets the union of the present and
//! planned sets of itself and the groups below it. Then narrow, children before parents. A group without
//! children needs no union, since nothing has to fit into it: it is written once, when its ancestors are
//! wide and before they narrow. A correct value is not written again. CPUs that are not online are never
//! written.
//!
//! The same order serves `cpuset.mems`, with nodes for CPUs.
//!
//! **Properties** (`tests/dop/transition.rs`, over random trees): after every single write each child lies
//! within its parent and no list is empty; in the end everything is as planned; at most two writes for an
//! inner group and one for a leaf; correct values are not written.

use std::time::Duration;

use super::band::DWELL;
use super::cpuset::CpuSet;

/// One cgroup with a cpuset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The index of its parent among the groups, which comes before it; `None` below a root that does not
    /// belong to the agent and is wide enough.
    pub parent: Option<usize>,
    /// The content of the file. Empty if it inherits (unified) or was just made (legacy).
    pub current: CpuSet,
    /// The new content; not empty. An inner group is widened to its children's sets anyway.
    pub target: CpuSet,
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The index of the group.
    pub group: usize,
    /// The list to write. Never empty.
    pub cpus: CpuSet,
}

/// The writes that lead from `current` to `target` in every group, in order.
///
/// `online` are the CPUs that the kernel would accept. If no CPU of a target is online, the group is left
/// alone, because it is about to be placed again.
pub fn plan(groups: &[Group], online: &CpuSet) -> Vec<Write> {
    let targets = nested(
        groups,
        |group| group.target.intersection(online),
        |group| {
            // A group that is left alone keeps its CPUs within those of its parent.
            group.current.intersection(online)
        },
    );
    let widened = nested(groups, |group| group.current.intersection(online), |_| CpuSet::new());
    let mut is_leaf = vec![true; groups.len()];
    for parent in groups.iter().filter_map(|group| group.parent) {
        is_leaf[parent] = false;
    }
    let mut holds: Vec<CpuSet> = groups.iter().map(|group| group.current.clone()).collect();
    let mut writes = Vec::new();
    let mut write = |index: usize, cpus: CpuSet| {
        if !cpus.is_empty() && cpus != holds[index] {
            holds[index] = cpus.clone();
            writes.push(Write { group: index, cpus });
        }
    };
    for (index, group) in groups.iter().enumerate() {
        if !is_leaf[index] {
            let wide = widened[index].union(&targets[index]);
            if !wide.is_subset(&group.current) {
                write(index, wide);
            }
        } else if group.current.is_subset(&targets[index]) {
            write(index, targets[index].clone());
        }
    }
    for (index, target) in targets.into_iter().enumerate().rev() {
        write(index, target);
    }
    writes
}

/// A set for each group that contains those of the groups below it. A group with an empty set counts for
/// its parent with the substitute.
fn nested(
    groups: &[Group],
    own: impl Fn(&Group) -> CpuSet,
    substitute: impl Fn(&Group) -> CpuSet,
) -> Vec<CpuSet> {
    let mut sets: Vec<CpuSet> = groups.iter().map(own).collect();
    for index in (0..groups.len()).rev() {
        if let Some(parent) = groups[index].parent {
            debug_assert!(parent < index, "parents come first");
            let needs = if sets[index].is_empty() {
                substitute(&groups[index])
            } else {
                sets[index].clone()
            };
            sets[parent] = sets[parent].union(&needs);
        }
    }
    sets
}

/// True if a tenant whose set changed at `changed` must keep it now: at most one change in [`DWELL`]. A CPU
/// that goes away overrides that in [`super::placement::place`].
pub fn is_held(changed: Option<Duration>, now: Duration) -> bool {
    changed.is_some_and(|changed| now.saturating_sub(changed) < DWELL)
}
