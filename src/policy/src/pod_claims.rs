//! Rules about matches of pods: no pod fits two tenants, unless the order of the policy decides.
//!
//! Two matches claim the same pods if their namespaces overlap, and so do two of their labels or neither has any. That is an
//! error. A pod can also have labels with two keys, or a label in one match and a namespace in another. There the first in the
//! policy counts, which is a note.

use std::borrow::Cow;
use std::collections::HashMap;

use super::claims::{Claim, claims, overlapping_among, overlapping_patterns, same_twice};
use super::keys::PodMatch;
use super::nodes::Node;
use super::pattern::overlap;
use super::report::Report;
use super::rules;

/// Most pairs of matches that are compared for the note.
const PAIRS_MAX: usize = 100_000;

fn pods<'n>(node: &Node<'n>) -> &'n PodMatch {
    &node.tenant.matches.pods
}

/// Refuses matches of tenants, or of templates, that claim the same pods.
pub(super) fn overlaps(nodes: &[&Node<'_>], report: &mut Report) {
    let all: Vec<&&Node<'_>> = nodes.iter().filter(|node| !pods(node).is_empty()).collect();
    let by_name = all.iter().filter(|node| pods(node).labels.is_empty());
    let namespaces =
        by_name.flat_map(|node| claims(node, "match.pod.namespace", &pods(node).namespaces));
    let mut namespaces: Vec<Claim<'_>> = namespaces.collect();
    same_twice("namespace", namespaces.iter().copied(), Cow::Borrowed, report);
    overlapping_patterns("namespace", &mut namespaces, report);
    let by_path: HashMap<&str, &PodMatch> = all.iter().map(|it| (it.path, pods(it))).collect();
    let labels = all.iter().flat_map(|node| claims(node, "match.pod.label", &pods(node).labels));
    let share_namespaces = |a: &Claim<'_>, b: &Claim<'_>| {
        let of = |claim: &Claim<'_>| by_path.get(claim.tenant).copied();
        of(a).zip(of(b)).is_some_and(|(a, b)| meet_in_namespace(a, b))
    };
    let mut labels: Vec<Claim<'_>> = labels.collect();
    overlapping_among("label", &mut labels, share_namespaces, report);
}

fn meet_in_namespace(a: &PodMatch, b: &PodMatch) -> bool {
    let (a, b) = (&a.namespaces, &b.namespaces);
    a.is_empty() || b.is_empty() || a.iter().any(|it| b.iter().any(|other| meet(it, other)))
}

fn meet(a: &str, b: &str) -> bool {
    overlap(a, b, &mut 0)
}

/// Notes the first two matches whose order decides about a pod that fits both.
pub(super) fn note_order(nodes: &[Node<'_>], report: &mut Report) {
    let all = || nodes.iter().filter(|node| !pods(node).is_empty());
    let pairs = all().enumerate().flat_map(|(at, a)| all().skip(at + 1).map(move |b| (a, b)));
    let decides = |(a, b): &(&Node<'_>, &Node<'_>)| {
        let differ = match (&pods(a).labels[..], &pods(b).labels[..]) {
            ([], []) => false,
            ([], _) | (_, []) => true,
            (a, b) => {
                !a.iter().any(|it| b.iter().any(|other| meet(it, other) || same_key(it, other)))
            }
        };
        a.is_template() == b.is_template() && differ && meet_in_namespace(pods(a), pods(b))
    };
    let Some((first, second)) = pairs.take(PAIRS_MAX).find(decides) else { return };
    let Some(place) = second.given.key("match.pod") else { return };
    let message = format!(
        "a pod can fit `{}` and `{}`: the first in the policy gets it",
        first.path, second.path
    );
    let finding = rules::CLAIMED_TWICE.at(place, message, "");
    let finding = match first.given.key("match.pod") {
        Some(place) => finding.also(place.label("the first")),
        None => finding,
    };
    report.push(finding.help("put the tenant that is meant first, or name the namespace in both"));
}

fn same_key(a: &str, b: &str) -> bool {
    a.split_once('=').map(|it| it.0) == b.split_once('=').map(|it| it.0)
}
