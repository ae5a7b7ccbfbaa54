//! Writing cpusets: what would be refused is never tried.

use std::time::Duration;

use proptest::prelude::*;
use tenantd_dop::CpuSet;
use tenantd_dop::transition::{Group, Write, is_held, plan};

fn cpus(text: &str) -> CpuSet {
    text.parse().unwrap()
}

fn group(parent: Option<usize>, current: &str, target: &str) -> Group {
    Group { parent, current: cpus(current), target: cpus(target) }
}

fn shown(writes: &[Write]) -> Vec<(usize, String)> {
    writes.iter().map(|write| (write.group, write.cpus.to_string())).collect()
}

#[test]
fn parents_widen_first_and_narrow_last() {
    let groups =
        [group(None, "0-3", "4-7"), group(Some(0), "0-1", "4-5"), group(Some(0), "2", "6")];
    let writes = plan(&groups, &CpuSet::below(8));
    let expected = [(0, "0-7"), (2, "6"), (1, "4-5"), (0, "4-7")];
    assert_eq!(shown(&writes), expected.map(|(group, cpus)| (group, cpus.to_string())));
}

#[test]
fn a_growing_leaf_is_written_once_and_what_is_right_is_left_alone() {
    let groups =
        [group(None, "0-7", "0-7"), group(Some(0), "0-1", "0-3"), group(Some(0), "4-5", "4-5")];
    assert_eq!(shown(&plan(&groups, &CpuSet::below(8))), [(1, "0-3".to_string())]);
}

#[test]
fn a_tree_that_was_just_made_is_filled_from_the_top() {
    let groups = [group(None, "", "0-3"), group(Some(0), "", "0-3"), group(Some(1), "", "2")];
    let writes = plan(&groups, &CpuSet::below(4));
    let expected = [(0, "0-3"), (1, "0-3"), (2, "2")];
    assert_eq!(shown(&writes), expected.map(|(group, cpus)| (group, cpus.to_string())));
}

#[test]
fn an_inheriting_parent_is_not_clipped_before_its_children_have_moved() {
    let groups = [group(None, "", "0-3"), group(Some(0), "4-7", "0-3")];
    let writes = plan(&groups, &CpuSet::below(8));
    let expected = [(0, "0-7"), (1, "0-3"), (0, "0-3")];
    assert_eq!(shown(&writes), expected.map(|(group, cpus)| (group, cpus.to_string())));
}

#[test]
fn offline_cpus_are_not_written_and_a_set_without_any_online_is_left_alone() {
    let groups =
        [group(None, "0-7", "0-7"), group(Some(0), "0-3", "2-5"), group(Some(0), "6", "7")];
    let writes = plan(&groups, &cpus("0-4"));
    let expected = [(1, "2-4"), (0, "0-4")];
    assert_eq!(shown(&writes), expected.map(|(group, cpus)| (group, cpus.to_string())));
}

#[test]
fn a_set_that_just_changed_is_held_for_ten_seconds() {
    let second = Duration::from_secs;
    assert!(!is_held(None, second(0)));
    assert!(is_held(Some(second(5)), second(14)));
    assert!(!is_held(Some(second(5)), second(15)));
    assert!(is_held(Some(second(5)), second(3)));
}

fn any_set() -> impl Strategy<Value = CpuSet> {
    (1..0xFFFF_u32).prop_map(|bits| (0..16).filter(|cpu| bits >> cpu & 1 == 1).collect())
}

/// A tree whose present sets nest, as they must in the legacy hierarchy, and any targets.
fn any_tree() -> impl Strategy<Value = Vec<Group>> {
    proptest::collection::vec((any::<prop::sample::Index>(), any_set(), any_set()), 1..12).prop_map(
        |nodes| {
            let mut groups: Vec<Group> = Vec::new();
            for (parent, current, target) in nodes {
                let parent = (!groups.is_empty()).then(|| parent.index(groups.len()));
                let around = parent.map(|index| groups[index].current.clone());
                let inside = around.as_ref().map_or(current.clone(), |a| a.intersection(&current));
                let current = if inside.is_empty() { around.unwrap_or(current) } else { inside };
                groups.push(Group { parent, current, target });
            }
            groups
        },
    )
}

proptest! {
    #[test]
    fn every_step_nests_and_the_end_is_as_planned(groups in any_tree()) {
        let online = CpuSet::below(16);
        let writes = plan(&groups, &online);
        let mut holds: Vec<CpuSet> = groups.iter().map(|group| group.current.clone()).collect();
        let mut count = vec![0; groups.len()];
        for write in &writes {
            prop_assert!(!write.cpus.is_empty());
            prop_assert!(holds[write.group] != write.cpus, "a write that changes nothing");
            holds[write.group] = write.cpus.clone();
            count[write.group] += 1;
            for (index, group) in groups.iter().enumerate() {
                if let Some(parent) = group.parent {
                    prop_assert!(holds[index].is_subset(&holds[parent]), "{} sticks out", index);
                }
            }
        }
        for (index, group) in groups.iter().enumerate() {
            let is_leaf = groups.iter().all(|other| other.parent != Some(index));
            let most = if is_leaf { 1 } else { 2 };
            prop_assert!(count[index] <= most);
            if is_leaf {
                prop_assert_eq!(&holds[index], &group.target);
            }
            prop_assert!(group.target.is_subset(&holds[index]));
        }
        // What is in place needs no write.
        let settled: Vec<Group> = groups
            .iter()
            .zip(holds)
            .map(|(group, current)| Group { current, ..group.clone() })
            .collect();
        prop_assert_eq!(plan(&settled, &online), vec![]);
    }

    #[test]
    fn a_transition_never_narrows_below_both_sets(groups in any_tree()) {
        // What a process may run on at any moment is all of the old set or all of the new one.
        let writes = plan(&groups, &CpuSet::below(16));
        for write in &writes {
            let group = &groups[write.group];
            let enough = group.current.is_subset(&write.cpus) || group.target.is_subset(&write.cpus);
            prop_assert!(enough);
        }
    }
}
