//! Cgroups that the agent makes below its root and writes itself.
//!
//! A cgroup that was removed reports on every open descriptor that it is gone, even where another was made in
//! its place, and so do the files of a controller that was disabled and enabled again. In both cases the
//! remedy is to close all descriptors and to open the cgroup anew at the next tick, making it where it is
//! missing.

use std::collections::HashSet;

use tracing::debug;

use super::access::HostAccess;
use super::claims;
use super::place::Place;
use crate::control::finding::{Code, Finding};
use crate::control::plan::{Action, Value};
use crate::control::tree::TreeNode;
use crate::host::cgroup::{Cgroup, Facet};
use crate::host::enforce::EnforceError;
use crate::host::kernfs::KernFs;
use crate::host::process::{self, ClaimRule};

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
        let (resource, reason) = (action.knob.resource(), &action.reason);
        let file = host.file(action.knob);
        debug!(tenant, resource, action = "write", "{file}: {}: {reason}", action.to);
    }
    Some(outcome)
}

/// How often processes are looked for again after some were moved: what they start meanwhile may be left behind.
const CLAIM_PASSES: usize = 4;

/// The result of the search for processes that the policy assigns to tenants.
#[derive(Debug, Default)]
pub(super) struct Claimed {
    pub(super) findings: Vec<Finding>,
    /// The finding on processes that are claimed by owner and stay where they are; `None` where they could
    /// not be looked for.
    pub(super) stays: Option<Vec<Finding>>,
}

/// Moves the processes that the policy assigns to a tenant into its cgroup; an observer moves none.
///
/// With more than `forget_at` records of moved processes, those that ended are dropped.
pub(super) fn claim<K: KernFs>(
    host: &mut HostAccess<K>,
    places: &[Place],
    nodes: &[TreeNode],
    rules: &[ClaimRule],
    is_enforcing: bool,
    forget_at: &mut usize,
) -> Claimed {
    let proc = host.proc();
    let (mut findings, mut stays, mut tried) = (Vec::new(), None, HashSet::new());
    for pass in 0..CLAIM_PASSES {
        let claims = process::own_pid(&mut host.kernel, proc)
            .and_then(|own| process::claims(&mut host.kernel, proc, &host.layout, rules, own));
        let claims = match claims {
            Ok(claims) => claims,
            Err(error) => {
                findings.push(Finding::of_host(Code::Unreadable, error.to_string()));
                return Claimed { findings, stays: None };
            }
        };
        stays = Some(claims::describe(&claims.stays, nodes));
        if pass == 0 {
            let tree = host.layout.tree(Facet::Cpu).unwrap_or(0);
            findings.extend(claims::flattened(&claims.moves, nodes, tree, is_enforcing));
        }
        if !is_enforcing {
            return Claimed { findings, stays };
        }
        let mut is_done = true;
        for claim in &claims.moves {
            let Some(cgroup) = &places[claim.node].cgroup else { continue };
            if !tried.insert((claim.pid, claim.start_ticks)) {
                continue;
            }
            is_done = false;
            if let Err(error) = host.enforcer().claim(claim, cgroup) {
                let what = format!("process {} not claimed: {error}", claim.pid);
                findings.push(Finding::of(&nodes[claim.node].path, Code::NotClaimed, what));
            }
        }
        if is_done {
            break;
        }
    }
    if host.journal.nr_moved() > (*forget_at).max(MOVED_MAX) {
        if let Err(error) = host.enforcer().forget_ended(proc) {
            findings.push(Finding::of_host(Code::NotKept, error.to_string()));
        }
        // Live processes are not checked again before there are twice as many.
        *forget_at = 2 * host.journal.nr_moved();
    }
    Claimed { findings, stays }
}
