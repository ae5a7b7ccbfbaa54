//! Rules of guaranteed parts of disks, and of their coupling with other resources.

use super::disk_limits::{DISKS_MOST as MOST, DISKS_WHOLE as WHOLE};
use super::nodes::Node;
use super::notes::note;
use super::read::Draft;
use super::report::Report;
use super::rules;
use super::tree::Place;
use super::types::{Allocation, Coupling};

/// Refuses guarantees of disks that do not fit into that of their group, or into a disk.
pub(super) fn check(nodes: &[Node<'_>], report: &mut Report) {
    let of = |node: &Node<'_>| node.tenant.guarantee.disk.map_or(0, |part| part.of(WHOLE));
    let mut below = vec![0_u64; nodes.len()];
    let mut whole = 0_u64;
    for (index, node) in nodes.iter().enumerate().rev() {
        let all = of(node).max(below[index]);
        match node.parent {
            Some(parent) => below[parent] = below[parent].saturating_add(all),
            None => whole = whole.saturating_add(all),
        }
    }
    let shown = |part: u64| format!("{}%", part as f64 / 1000.0);
    for (node, sum) in nodes.iter().zip(&below) {
        if let Some(at) = guaranteed_at(node).filter(|_| *sum > of(node)) {
            let message = format!(
                "guarantees of {} of disks below `{}` exceed its guarantee",
                shown(*sum),
                node.path
            );
            let finding = rules::GROUP_GUARANTEE.at(at, message, "for all of them");
            let help = "raise the guarantee of the group or lower the guarantees below it";
            report.push(finding.help(help));
        }
    }
    let largest = nodes.iter().max_by_key(|node| of(node)).and_then(guaranteed_at);
    if let Some(at) = largest.filter(|_| whole > MOST) {
        let message = format!(
            "{} of each disk are guaranteed, and at most {} can be",
            shown(whole),
            shown(MOST)
        );
        let finding = rules::GUARANTEE_BEYOND_CAPACITY.at(at, message, "the largest of them");
        report.push(finding.help("lower the guarantees: others read and write as well"));
    }
}

/// Notes about guarantees of disks and a coupling without effect.
pub(super) fn notes(draft: &Draft, nodes: &[Node<'_>], report: &mut Report) {
    let policy = &draft.policy;
    let is_weighed = policy.host.disks.weighs();
    let help = "add `host: { disks: weigh }`, or leave it out";
    let guaranteed = nodes.iter().filter(|_| !is_weighed);
    let guaranteed = guaranteed.filter_map(|node| Some((guaranteed_at(node)?, node.path)));
    let message =
        |path| format!("the disk guarantee of `{path}` has no effect: disks are not weighed");
    let guarantees: Vec<(&Place, String)> =
        guaranteed.map(|(at, path)| (at, message(path))).collect();
    note(&rules::VOID_DISKS, &guarantees, help, report);
    let (why, help) = match policy.control.allocation {
        _ if !is_weighed => ("they are not weighed", help),
        Allocation::Drf => return,
        _ => ("only `allocation: drf` couples", "choose `drf`, or leave `couple` out"),
    };
    let coupled = draft.given.value("control.couple");
    let coupled = coupled.filter(|_| policy.control.couple == Coupling::WithDisk);
    let message = format!("disks do not count for the division of CPU and memory: {why}");
    let coupled: Vec<(&Place, String)> = coupled.map(|at| (at, message)).into_iter().collect();
    note(&rules::VOID_DISKS, &coupled, help, report);
}

fn guaranteed_at<'d>(node: &Node<'d>) -> Option<&'d Place> {
    node.tenant.guarantee.disk.and_then(|_| node.given.value("guarantee.disk"))
}
