//! Cgroups that the agent makes below its root and writes itself.
//!
//! A cgroup that was removed reports on every open descriptor that it is gone, even where another was made in
//! its place, and so do the files of a controller that was disabled and enabled again. In both cases the
//! remedy is to close all descriptors and to open the cgroup anew at the next tick, making it where it is
//! missing.

use tracing::debug;

use super::access::HostAccess;
use super::claims::{Found, Search};
use super::place::Place;
use crate::control::finding::{Code, Finding};
use crate::control::plan::{Action, Value};
use crate::control::tree::TreeNode;
use crate::host::cgroup::{Cgroup, Facet};
use crate::host::enforce::EnforceError;
use crate::host::kernfs::{KernError, KernFs};
use crate::host::process::{self, Claim, ClaimRule};

/// When this many processes have been moved, and then each time that their number has doubled, records of
/// those that ended are dropped.
const MOVED_MAX: usize = 1024;

/// Opens the cgroup of `node`; makes it where it is missing, if the agent enforces.
pub(super) fn attach<K: KernFs>(
    host: &mut HostAccess<K>,
    place: &mut Place,
    node: &TreeNode,
    is_enforcing: bool,
) -> Result<(), Finding> {
    let refused = |error: &dyn std::fmt::Display| {
        Finding::of(&node.path, Code::NotAttached, error.to_string())
    };
    if is_enforcing {
        host.enforcer().make_node(&node.path).map_err(|error| refused(&error))?;
    }
    match Cgroup::open(&mut host.kernel, &host.layout, &node.path) {
        Ok(cgroup) => place.cgroup = Some(cgroup),
        Err(error) if error.is_gone() && !is_enforcing => {}
        Err(error) => return Err(refused(&error)),
    }
    Ok(())
}

/// Writes the value of `action`; `None` where there is no file for it.
pub(super) fn apply<K: KernFs>(
    host: &mut HostAccess<K>,
    place: &Place,
    action: &Action,
    tenant: &str,
) -> Option<Result<Value, EnforceError>> {
    let cgroup = place.cgroup.as_ref().filter(|cgroup| cgroup.has(&host.layout, action.knob))?;
    let outcome = host.enforcer().apply(action, cgroup);
    if outcome.is_ok() {
        let (resource, reason) = (action.knob.resource().name(), &action.reason);
        let file = host.file(action.knob);
        debug!(tenant, resource, action = "write", "{file}: {}: {reason}", action.to);
    }
    Some(outcome)
}

/// How often processes that were started while others were moved are looked for: a child may be in some trees of
/// its tenant only.
const PASSES: usize = 4;

/// Searches one part of all processes for those that the policy assigns to a tenant, and moves them into its
/// cgroup, with what they start meanwhile; an observer moves none.
pub(super) fn claim<K: KernFs>(
    host: &mut HostAccess<K>,
    places: &mut [Place],
    nodes: &[TreeNode],
    rules: &[ClaimRule],
    is_enforcing: bool,
    search: &mut Search,
) {
    let proc = host.proc();
    let is_crowded = host.journal.nr_moved() > search.forget_at.max(MOVED_MAX);
    if rules.is_empty() && !is_crowded {
        return search.note(Vec::new(), Some(Found::default()), nodes);
    }
    let listed = process::own_pid(&mut host.kernel, proc)
        .and_then(|own| Ok((own, process::all(&mut host.kernel, proc)?)));
    let (own, mut pids) = match listed {
        Ok(listed) => listed,
        Err(error) => return search.note(vec![unreadable(&error)], None, nodes),
    };
    let mut findings = Vec::new();
    if is_crowded {
        if let Err(error) = host.enforcer().forget_ended(&pids) {
            findings.push(Finding::of_host(Code::NotKept, error.to_string()));
        }
        // Live processes are not checked again before there are twice as many.
        search.forget_at = 2 * host.journal.nr_moved();
    }
    let part = pids.iter().copied().filter(|pid| *pid > 1 && *pid != own && search.is_next(*pid));
    let mut claims = process::claims(&mut host.kernel, proc, &host.layout, rules, part);
    let cpu_tree = host.layout.tree(Facet::Cpu).unwrap_or(0);
    let found = Found::new(&claims, cpu_tree, is_enforcing);
    for _ in 0..PASSES {
        if !is_enforcing || claims.moves.is_empty() {
            break;
        }
        findings.extend(carry_out(host, places, nodes, &claims.moves));
        let known = std::mem::take(&mut pids);
        match process::all(&mut host.kernel, proc) {
            Ok(all) => pids = all,
            Err(error) => findings.push(unreadable(&error)),
        }
        let new = pids.iter().copied().filter(|pid| known.binary_search(pid).is_err());
        claims = process::claims(&mut host.kernel, proc, &host.layout, rules, new);
    }
    search.note(findings, Some(found), nodes);
}

/// Moves the claimed processes of tenants whose cgroups are open.
fn carry_out<K: KernFs>(
    host: &mut HostAccess<K>,
    places: &mut [Place],
    nodes: &[TreeNode],
    moves: &[Claim],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for claim in moves {
        let place = &mut places[claim.node];
        let Some(cgroup) = &place.cgroup else { continue };
        if let Err(error) = host.enforcer().claim(claim, cgroup) {
            let what = format!("process {} not claimed: {error}", claim.pid);
            findings.push(Finding::of(&nodes[claim.node].path, Code::NotClaimed, what));
        }
        place.is_joined = false;
    }
    findings
}

fn unreadable(error: &KernError) -> Finding {
    Finding::of_host(Code::Unreadable, error.to_string())
}
