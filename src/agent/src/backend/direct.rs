//! Cgroups that the agent makes below its root and writes itself.
//!
//! After a cgroup was removed, every descriptor still open on it reports that it is gone, even if another was
//! made in its place. So do the files of a controller that was disabled and enabled again. In both cases the
//! agent closes all descriptors; the next tick opens the cgroup again and makes it if it is missing.

use tracing::debug;

use super::access::HostAccess;
use super::claims::{Part, Search, note_origin};
use super::location::Location;
use super::place::Place;
use super::unmoved::Unmoved;
use tenantd_control::tree::Tree;
use tenantd_control::words::finding::{Code, Finding};
use tenantd_control::words::knob::{Action, Value};
use tenantd_core::kernel_text::text_of_path;
use tenantd_core::node::{NodeId, NodeMap};
use tenantd_host::cgroup::{Cgroup, Facet};
use tenantd_host::claiming::{self, ClaimRules, Claims, StayPlace};
use tenantd_host::enforce::EnforceError;
use tenantd_host::kernfs::{KernError, KernFs};
use tenantd_host::process::{self, Claim};

/// Number of moved processes at which records of ended ones are dropped; doubled each time.
const MOVED_MAX: usize = 1024;

pub(super) fn attach<K: KernFs>(
    host: &mut HostAccess<K>,
    place: &mut Place,
    name: &str,
    is_enforcing: bool,
) -> Result<(), Finding> {
    let refused =
        |error: &dyn std::fmt::Display| Finding::of(name, Code::NotAttached, error.to_string());
    let Some(below) = place.location.below_root(name).map(str::to_string) else { return Ok(()) };
    if is_enforcing {
        host.enforcer().make_node(&below).map_err(|error| refused(&error))?;
    }
    match Cgroup::open(&mut host.kernel, &host.layout, &below) {
        Ok(cgroup) => place.cgroup = Some(cgroup),
        Err(error) if error.is_gone() && !is_enforcing => {}
        Err(error) => return Err(refused(&error)),
    }
    Ok(())
}

/// Writes the value of `action`; `None` if there is no file for it.
pub(super) fn apply<K: KernFs>(
    host: &mut HostAccess<K>,
    place: &Place,
    action: &Action,
    tenant: &str,
) -> Option<Result<Value, EnforceError>> {
    let cgroup = place.cgroup.as_ref().filter(|cgroup| cgroup.has(&host.layout, action.knob))?;
    let outcome = host.enforcer().apply(action, cgroup);
    if outcome.is_ok() {
        let (resource, reason) = (action.knob.subject(), &action.reason);
        let file = host.file(action.knob);
        debug!(tenant, resource, action = "write", "{file}: {}: {reason}", action.to);
    }
    Some(outcome)
}

/// Journals the present values of the files of `actions`, all in one write to disk. A refusal here is repeated
/// and reported when the action is carried out.
pub(super) fn record<K: KernFs>(
    host: &mut HostAccess<K>,
    places: &NodeMap<Place>,
    actions: &[Action],
) {
    let open = actions
        .iter()
        .filter_map(|action| Some((action, places.get(action.node)?.cgroup.as_ref()?)));
    if let Err(error) = host.enforcer().record(open) {
        debug!("recorded one by one: {error}");
    }
}

/// Passes to find processes started during the moves: such a child may be in some trees of its tenant only.
const PASSES: usize = 4;

/// Searches one part of all processes for those that the policy assigns to a tenant, and moves them and their
/// new children into its cgroup. With more than `nr_max`, the next call continues.
pub(super) fn claim<K: KernFs>(
    host: &mut HostAccess<K>,
    places: &mut NodeMap<Place>,
    tree: &Tree,
    rules: &ClaimRules,
    nr_max: usize,
    search: &mut Search,
) {
    let mut part = match search.take_part().map_or_else(|| begin(host, rules, search), Ok) {
        Ok(part) => part,
        Err(error) => return search.note(vec![unreadable(&error)], None, tree),
    };
    let claims = find(host, (tree, rules), &mut part, nr_max, search);
    part.found.is_enforcing = true;
    if !claims.moves.is_empty() {
        carry_out(host, places, tree, &claims.moves, &mut part);
    }
    if !part.left.as_slice().is_empty() {
        return search.interrupt(part);
    }
    if !part.moved.is_empty() {
        claim_children(host, places, tree, rules, &mut part);
    }
    search.note_moves(&part.moved, tree);
    search.note(part.failures, Some(part.found), tree);
}

/// Searches one part of all processes for those that the policy assigns to a tenant. An observer measures them
/// where they are.
pub(super) fn look_for<K: KernFs>(
    host: &mut HostAccess<K>,
    tree: &Tree,
    rules: &ClaimRules,
    search: &mut Search,
    unmoved: &mut Unmoved,
) {
    let mut part = match begin(host, rules, search) {
        Ok(part) => part,
        Err(error) => return search.note(vec![unreadable(&error)], None, tree),
    };
    let claims = find(host, (tree, rules), &mut part, usize::MAX, search);
    let moves: Vec<_> = claims.moves.iter().map(|it| (tree.at(it.node).id(), it)).collect();
    unmoved.take_part(host, &moves, |pid| search.is_of_part(pid));
    search.note(part.failures, Some(part.found), tree);
}

fn find<K: KernFs>(
    host: &mut HostAccess<K>,
    (tree, rules): (&Tree, &ClaimRules),
    part: &mut Part,
    nr_max: usize,
    search: &mut Search,
) -> Claims {
    let proc = host.proc();
    let claims =
        claiming::claims(&mut host.kernel, proc, &host.layout, rules, &mut part.left, nr_max);
    search.settle(&claims.inside);
    search.note_users(&claims.users);
    part.found.add(tree, &claims, host.layout.tree(Facet::Cpu).unwrap_or(0));
    if let Some((nr, error)) = &claims.unread {
        let processes = if *nr == 1 { "1 process".to_string() } else { format!("{nr} processes") };
        let what = format!("{processes} could not be read, and may belong to a tenant: {error}");
        let remedy = "tenantd tries again with each search";
        part.failures.push(Finding::of_host(Code::Unreadable, what).with_remedy(remedy));
    }
    claims
}

/// Begins the next part with a list of all processes; drops the records of ended processes if there are many.
fn begin<K: KernFs>(
    host: &mut HostAccess<K>,
    rules: &ClaimRules,
    search: &mut Search,
) -> Result<Part, KernError> {
    let is_crowded = host.journal.nr_moved() > search.forget_at.max(MOVED_MAX);
    if rules.is_empty() && !is_crowded {
        return Ok(Part::default());
    }
    let proc = host.proc();
    let own = process::own_pid(&mut host.kernel, proc)?;
    let pids = process::all(&mut host.kernel, proc)?;
    let mut failures = Vec::new();
    if is_crowded {
        if let Err(error) = host.enforcer().forget_ended(&pids) {
            failures.push(Finding::of_host(Code::NotKept, error.to_string()));
        }
        // Live processes are not checked again until their number has doubled.
        search.forget_at = 2 * host.journal.nr_moved();
    }
    Ok(Part { failures, ..search.begin_part(own, pids, rules.finds_users.is_some()) })
}

fn claim_children<K: KernFs>(
    host: &mut HostAccess<K>,
    places: &mut NodeMap<Place>,
    tree: &Tree,
    rules: &ClaimRules,
    part: &mut Part,
) {
    let proc = host.proc();
    for _ in 1..PASSES {
        let pids = match process::all(&mut host.kernel, proc) {
            Ok(pids) => pids,
            Err(error) => return part.failures.push(unreadable(&error)),
        };
        let known = std::mem::replace(&mut part.known, pids);
        let mut new = part.known.iter().copied().filter(|pid| known.binary_search(pid).is_err());
        let claims =
            claiming::claims(&mut host.kernel, proc, &host.layout, rules, &mut new, usize::MAX);
        if claims.moves.is_empty() {
            break;
        }
        carry_out(host, places, tree, &claims.moves, part);
    }
}

fn carry_out<K: KernFs>(
    host: &mut HostAccess<K>,
    places: &mut NodeMap<Place>,
    tree: &Tree,
    moves: &[Claim],
    part: &mut Part,
) {
    let hierarchy = host.layout.tree(Facet::Cpu).unwrap_or(0);
    for claim in moves {
        let node = tree.at(claim.node);
        let own = own_place(places, node.id());
        let Some(place) = places.get_mut(own) else { continue };
        let Some(cgroup) = &place.cgroup else { continue };
        match host.enforcer().claim(claim, cgroup) {
            Ok(()) => note_origin(&mut part.moved, node.id(), claim, hierarchy),
            Err(EnforceError::RealTime(cgroup)) => {
                part.found.stay(node.id(), StayPlace::RealTime(text_of_path(&cgroup)));
            }
            Err(error) => {
                let what = format!("process {} not claimed: {error}", claim.pid);
                part.failures.push(Finding::of(node.name(), Code::NotClaimed, what));
            }
        }
        place.is_joined = false;
    }
}

/// The cgroup that the agent makes for a node: a member, if the node has others as well.
fn own_place(places: &NodeMap<Place>, node: NodeId) -> NodeId {
    let made = match places.get(node).map(|place| &place.location) {
        Some(Location::Members(sources)) => sources.made.as_ref().map(|at| sources.location_of(at)),
        _ => None,
    };
    let made = made.and_then(|made| places.iter().find(|(_, place)| place.location == made));
    made.map_or(node, |(id, _)| id)
}

fn unreadable(error: &KernError) -> Finding {
    Finding::of_host(Code::Unreadable, error.to_string())
}
