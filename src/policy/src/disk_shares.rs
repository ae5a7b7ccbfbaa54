//! Guaranteed parts of disks: the form and the rules.

use serde_json::{Value, json};

use super::hint::shortened;
use super::key::Form;
use super::nodes::Node;
use super::notes::note;
use super::read::Draft;
use super::reader::Reader;
use super::report::Report;
use super::rules;
use super::tree::{self, Place};
use super::types::DisksChoice;
use tenantd_core::units::Percent;

/// Thousandths of a percent of the whole.
const WHOLE: u64 = 100_000;
/// Most of it that is guaranteed, likewise: the rest is for work outside tenants and for those without a guarantee.
const MOST: u64 = 80_000;

/// A percentage of the time of each disk.
pub(super) struct PartOfDisks;

impl Form<Option<Percent>> for PartOfDisks {
    fn read(&self, reader: &mut Reader<'_>, node: &tree::Node, into: &mut Option<Percent>) {
        const EXPECTED: &str = "a percentage of the time of each disk such as `20%`";
        let Some(text) = reader.text(node, EXPECTED) else { return };
        match text.parse::<Percent>() {
            Ok(part) if part.of(WHOLE) <= MOST => *into = Some(part),
            Ok(_) => reader.out_of_range(node, "above 0% and at most 80% of a disk"),
            Err(_) => {
                let message = format!("`{}` is not a part of a disk", shortened(text));
                let help = format!("write {EXPECTED}, at most 80%");
                reader.find(&rules::OUT_OF_RANGE, node, message, help);
            }
        }
    }

    fn show(&self, value: &Option<Percent>) -> Option<String> {
        value.map(|part| part.to_string())
    }

    fn schema(&self) -> Value {
        json!({ "type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?%$" })
    }
}

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
        if let Some(at) = guaranteed(node).filter(|_| *sum > of(node)) {
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
    let largest = nodes.iter().max_by_key(|node| of(node)).and_then(guaranteed);
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

/// Note about guarantees without `host.disks: weigh`.
pub(super) fn notes(draft: &Draft, nodes: &[Node<'_>], report: &mut Report) {
    if draft.policy.host.disks == DisksChoice::Weigh {
        return;
    }
    let guaranteed = nodes.iter().filter_map(|node| Some((guaranteed(node)?, node.path)));
    let message =
        |path| format!("the disk guarantee of `{path}` has no effect: disks are not weighed");
    let guarantees: Vec<(&Place, String)> =
        guaranteed.map(|(at, path)| (at, message(path))).collect();
    let help = "add `host: { disks: weigh }`, or leave it out";
    note(&rules::VOID_DISKS, &guarantees, help, report);
}

fn guaranteed<'d>(node: &Node<'d>) -> Option<&'d Place> {
    node.tenant.guarantee.disk.and_then(|_| node.given.value("guarantee.disk"))
}
