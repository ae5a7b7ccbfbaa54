//! The policy's `match` as rules with users and groups by number, and the search for the processes that they
//! claim.
//!
//! **Search.** Reading the cgroups of thousands of processes takes tens of milliseconds. So each tick searches
//! one of [`PARTS`] parts of them, by pid: a new process is claimed within that many ticks. Processes already
//! in tenants are checked [`PARTS`] times less often. After a start and a reload all parts are *owed*; the
//! service searches them between two ticks. A part with many processes to move is interrupted.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use tracing::info;

use super::claim_findings::{PLACES_MAX, Stays, counted, describe, named};
use super::location::{self, Location, UserSlices};
use tenantd_control::report::status::MoveStatus;
use tenantd_control::tree::{self, Node, Tree};
use tenantd_control::words::finding::{Code, Finding, Severity};
use tenantd_core::kernel_text::text_of_path;
use tenantd_core::node::NodeId;
use tenantd_host::claiming::{ClaimRule, Claims, StayPlace};
use tenantd_host::process::Claim;
use tenantd_policy::accounts::{Accounts, Need, explicit, meaning};
use tenantd_policy::expand::Numbers;
use tenantd_policy::model::{Policy, Tenant};

/// Resolves every `match` of `policy` on this host, for programs that may wait for its accounts.
pub fn rules(policy: &Policy) -> Vec<ClaimRule> {
    rules_of(policy, &numbers(policy, &Accounts::default()))
}

/// Numbers of all accounts that `policy` matches, if they are known now.
pub fn numbers(policy: &Policy, accounts: &Accounts) -> Numbers {
    let user = |name: &str| meaning(name, |name| accounts.user(name, Need::Policy)).known();
    let group = |name: &str| meaning(name, |name| accounts.group(name, Need::Policy)).known();
    Numbers::of(policy, user, group)
}

/// Resolves every `match` of `policy` with these numbers. Returns, in the order of the policy, a rule for each
/// tenant that claims processes or keeps those of a cgroup in place.
pub fn rules_of(policy: &Policy, numbers: &Numbers) -> Vec<ClaimRule> {
    let locations = location::locations(policy, numbers, UserSlices::Unknown);
    let mut rules = Vec::new();
    let nodes = tree::flatten(policy);
    let leaves = nodes.iter().enumerate().filter(|(_, node)| node.is_leaf);
    for ((node, _), (_, tenant)) in leaves.zip(policy.leaves()) {
        // Nothing is moved into cgroups that systemd owns; processes of a user outside the slice are reported.
        let is_meant = match &locations[node] {
            Location::Direct | Location::InPlace(_) => true,
            Location::Unit(_) | Location::Members(_) => {
                tenant.matches.units.is_empty() || !tenant.matches.in_place().is_empty()
            }
            Location::Slice(_)
            | Location::Made(_)
            | Location::Above(_)
            | Location::AboveInPlace(_)
            | Location::Nowhere
            | Location::Unknown(_) => false,
        };
        if is_meant && tenant.matches.is_rest {
            let rest_beside = Some(policy.owners());
            rules.push(ClaimRule { node, rest_beside, ..ClaimRule::default() });
        } else if is_meant && claims(tenant) {
            rules.push(ClaimRule { node, ..resolve(tenant, numbers) });
        }
    }
    // Rules in place only keep other rules from moving their processes.
    if rules.iter().all(|rule: &ClaimRule| rule.is_in_place) {
        rules.clear();
    }
    rules
}

/// Rules of an expanded policy: those of its original policy, and one for each found user. `origins` are the
/// numbers of its nodes in the original policy.
pub(crate) fn expanded(
    rules: &[ClaimRule],
    policy: &Policy,
    origins: &[Option<usize>],
    locations: &[Location],
) -> Vec<ClaimRule> {
    let by_origin: HashMap<usize, usize> =
        origins.iter().enumerate().filter_map(|(node, origin)| Some(((*origin)?, node))).collect();
    let of_policy = rules.iter().filter_map(|rule| {
        let node = *by_origin.get(&rule.node)?;
        Some(ClaimRule { node, ..rule.clone() })
    });
    let mut all: Vec<ClaimRule> = of_policy.collect();
    let nodes = tree::flatten(policy);
    let leaves = nodes.iter().enumerate().filter(|(_, node)| node.is_leaf);
    for ((node, _), (_, tenant)) in leaves.zip(policy.leaves()) {
        let users = tenant.matches.users.iter().filter(|_| tenant.is_found);
        let uids: Vec<u32> = users.filter_map(|user| explicit(user)).collect();
        let is_meant = matches!(locations[node], Location::Direct | Location::Unit(_));
        if is_meant && !uids.is_empty() {
            let moves = tenant.matches.moves;
            all.push(ClaimRule { node, uids, moves, ..ClaimRule::default() });
        }
    }
    // If the rest consists of units, its processes are not moved.
    all.retain(|rule| rule.rest_beside.is_none() || locations[rule.node].is_made());
    all.sort_by_key(|rule| rule.node);
    settle(&mut all, locations);
    all
}

fn claims(tenant: &Tenant) -> bool {
    let matches = &tenant.matches;
    !(matches.cgroups.is_empty() && matches.users.is_empty() && matches.groups.is_empty())
}

fn resolve(tenant: &Tenant, known: &Numbers) -> ClaimRule {
    let cgroups = tenant.matches.cgroups.clone();
    if !tenant.matches.in_place().is_empty() {
        return ClaimRule { cgroups, is_in_place: true, ..ClaimRule::default() };
    }
    let uids = tenant.matches.users.iter().filter_map(|name| known.user(name)).collect();
    let gids = tenant.matches.groups.iter().filter_map(|name| known.group(name)).collect();
    let moves = tenant.matches.moves;
    ClaimRule { cgroups, uids, gids, moves, ..ClaimRule::default() }
}

fn settle(rules: &mut [ClaimRule], locations: &[Location]) {
    for rule in rules {
        rule.homes = locations[rule.node].homes();
    }
}

const PARTS: usize = 5;
/// Most new processes checked in one tick, beside those of its part.
const NEW_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct Search {
    next: usize,
    /// Selects the settled processes to check with the next part.
    turn: usize,
    owed: usize,
    part: Option<Part>,
    /// Processes found in tenants at the last check, in ascending order of pid.
    settled: Vec<u32>,
    /// All processes at the last begin of a part, if users are looked for.
    known: Vec<u32>,
    /// Users whose processes were checked since the last [`Search::take_users`].
    users: BTreeSet<u32>,
    /// Processes of users without a tenant, by user.
    strangers: BTreeMap<u32, Vec<u32>>,
    urgent: BTreeSet<u32>,
    failures: [Vec<Finding>; PARTS],
    found: [Found; PARTS],
    described: Vec<Finding>,
    pub(super) nr_moves: u64,
    /// Number of records of moved processes above which those of ended processes are dropped.
    pub(super) forget_at: usize,
}

#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) known: Vec<u32>,
    pub(super) left: std::vec::IntoIter<u32>,
    pub(super) failures: Vec<Finding>,
    pub(super) found: Found,
    pub(super) moved: Origins,
}

impl Default for Search {
    fn default() -> Search {
        let (failures, found) = Default::default();
        Search {
            next: 0,
            turn: 0,
            owed: PARTS,
            part: None,
            settled: Vec::new(),
            known: Vec::new(),
            users: BTreeSet::new(),
            strangers: BTreeMap::new(),
            urgent: BTreeSet::new(),
            failures,
            found,
            described: Vec::new(),
            nr_moves: 0,
            forget_at: 0,
        }
    }
}

impl Search {
    pub(super) fn restart(&mut self) {
        let (nr_moves, forget_at) = (self.nr_moves, self.forget_at);
        *self = Search { nr_moves, forget_at, ..Search::default() };
    }

    /// Drops the tenants that are not in `tree`.
    pub(super) fn follow(&mut self, tree: &Tree) {
        let parts = self.part.iter_mut();
        for found in self.found.iter_mut().chain(parts.map(|part| &mut part.found)) {
            found.origins.retain(|id, _| tree.find(*id).is_some());
            found.stays.retain(|(id, _), _| tree.find(*id).is_some());
        }
        if let Some(part) = &mut self.part {
            part.moved.retain(|id, _| tree.find(*id).is_some());
        }
    }

    pub(super) fn owed(&self) -> usize {
        self.owed.max(usize::from(self.part.is_some()))
    }

    /// Returns the next part of `all` (in ascending order), without the agent's `own` process. If users are
    /// looked for, every part contains all new processes: a user is found by the first process.
    pub(super) fn begin_part(&mut self, own: u32, all: Vec<u32>, finds_users: bool) -> Part {
        let mut urgent = std::mem::take(&mut self.urgent);
        if finds_users {
            let known = std::mem::replace(&mut self.known, all.clone());
            let new = all.iter().filter(|pid| known.binary_search(pid).is_err());
            urgent.extend(new.take(NEW_MAX));
        }
        let is_seldom = |pid: u32| pid as usize / PARTS % PARTS != self.turn;
        let mut settled = std::mem::take(&mut self.settled);
        settled.retain(|pid| {
            all.binary_search(pid).is_ok() && (!self.is_of_part(*pid) || is_seldom(*pid))
        });
        self.settled = settled;
        let is_wanted = |pid: &u32| {
            *pid > 1
                && *pid != own
                && (self.is_of_part(*pid) || urgent.contains(pid))
                && self.settled.binary_search(pid).is_err()
        };
        let left: Vec<u32> = all.iter().copied().filter(is_wanted).collect();
        Part { known: all, left: left.into_iter(), ..Part::default() }
    }

    pub(super) fn is_of_part(&self, pid: u32) -> bool {
        pid as usize % PARTS == self.next
    }

    pub(super) fn note_users(&mut self, users: &[(u32, Option<u32>)]) {
        for (uid, stranger) in users {
            self.users.insert(*uid);
            if let Some(pid) = stranger {
                self.strangers.entry(*uid).or_default().push(*pid);
            }
        }
    }

    pub(super) fn take_users(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.users)
    }

    /// Queues processes for the next part whose users have a tenant now.
    pub(super) fn look_again(&mut self, has_tenant: impl Fn(u32) -> bool) {
        let strangers = std::mem::take(&mut self.strangers).into_iter();
        self.urgent
            .extend(strangers.filter(|(uid, _)| has_tenant(*uid)).flat_map(|(_, pids)| pids));
    }

    /// Queues processes that have moved for the next part.
    pub(super) fn look_for(&mut self, pids: &[u32]) {
        self.settled.retain(|pid| !pids.contains(pid));
        self.urgent.extend(pids);
    }

    pub(super) fn take_part(&mut self) -> Option<Part> {
        self.part.take()
    }

    pub(super) fn interrupt(&mut self, part: Part) {
        self.part = Some(part);
    }

    pub(super) fn settle(&mut self, inside: &[u32]) {
        self.settled.extend(inside);
        self.settled.sort_unstable();
    }

    pub(super) fn note_moves(&mut self, moved: &Origins, tree: &Tree) {
        for (node, cgroups) in moved {
            let nr: usize = cgroups.values().sum();
            self.nr_moves += nr as u64;
            let Some(tenant) = tree.find(*node).map(Node::name) else { continue };
            let action = "move";
            let from = named(cgroups.keys());
            info!(
                tenant,
                action,
                "{} into its cgroup from {from}",
                counted(nr, "process moved", "processes moved")
            );
        }
    }

    pub(super) fn moves(&self, tree: &Tree) -> Vec<MoveStatus> {
        let mut all = Origins::new();
        for (node, cgroups) in self.found.iter().flat_map(|found| &found.origins) {
            for (cgroup, nr) in cgroups {
                *all.entry(*node).or_default().entry(cgroup.clone()).or_default() += nr;
            }
        }
        let mut moves = Vec::new();
        for node in tree.policy_nodes() {
            let Some(cgroups) = all.remove(&node.id()) else { continue };
            let tenant = || node.name().to_string();
            let of = |from: String, nr: usize| MoveStatus {
                tenant: tenant(),
                from,
                nr_processes: nr as u64,
            };
            let each = cgroups.iter().map(|(cgroup, nr)| of(text_of_path(cgroup), *nr));
            moves.extend(each.take(PLACES_MAX));
            let rest = cgroups.len().saturating_sub(PLACES_MAX);
            if rest > 0 {
                let nr = cgroups.values().skip(PLACES_MAX).sum();
                moves.push(of(counted(rest, "further cgroup", "further cgroups"), nr));
            }
        }
        moves
    }

    pub(super) fn note(&mut self, failures: Vec<Finding>, found: Option<Found>, tree: &Tree) {
        self.failures[self.next] = failures;
        if let Some(found) = found
            && found != self.found[self.next]
        {
            self.found[self.next] = found;
            let mut stays = Stays::new();
            for (stay, nr) in self.found.iter().flat_map(|found| &found.stays) {
                *stays.entry(stay.clone()).or_default() += nr;
            }
            self.described = describe(&stays, tree);
            self.described.extend(flattened(&self.found, tree));
        }
        self.next = (self.next + 1) % PARTS;
        if self.next == 0 {
            self.turn = (self.turn + 1) % PARTS;
        }
        self.owed = self.owed.saturating_sub(1);
    }

    /// Failures, processes that are claimed by owner and stay, and tenants whose processes come from several
    /// cgroups.
    pub(super) fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.failures.iter().flatten().chain(&self.described)
    }
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Found {
    stays: Stays,
    origins: Origins,
    /// False if an observer only would move them.
    pub(super) is_enforcing: bool,
}

impl Found {
    /// Adds a process that stays where it is.
    pub(super) fn stay(&mut self, node: NodeId, place: StayPlace) {
        *self.stays.entry((node, place)).or_default() += 1;
    }

    /// Adds `claims` on tenants of `tree`; cgroups are named in the hierarchy with this index.
    pub(super) fn add(&mut self, tree: &Tree, claims: &Claims, hierarchy: usize) {
        for claim in claims.moves.iter().filter(|claim| !claim.is_split) {
            note_origin(&mut self.origins, tree.at(claim.node).id(), claim, hierarchy);
        }
        for stay in &claims.stays {
            let of = (tree.at(stay.node).id(), stay.place.clone());
            *self.stays.entry(of).or_default() += stay.nr_processes;
        }
    }
}

/// Number of processes, by tenant and cgroup of origin.
pub(super) type Origins = BTreeMap<NodeId, BTreeMap<PathBuf, usize>>;

pub(super) fn note_origin(origins: &mut Origins, node: NodeId, claim: &Claim, hierarchy: usize) {
    *origins.entry(node).or_default().entry(claim.from[hierarchy].clone()).or_default() += 1;
}

/// Findings on tenants whose processes come from several cgroups: in the tenant they share one.
fn flattened(found: &[Found], tree: &Tree) -> Vec<Finding> {
    let mut cgroups: BTreeMap<NodeId, BTreeSet<&Path>> = BTreeMap::new();
    for (node, origins) in found.iter().flat_map(|found| &found.origins) {
        cgroups.entry(*node).or_default().extend(origins.keys().map(PathBuf::as_path));
    }
    cgroups.retain(|_, cgroups| cgroups.len() > 1);
    let verb = if found.iter().any(|found| found.is_enforcing) { "are" } else { "would be" };
    let note = |node: Node<'_>| {
        let cgroups = cgroups.get(&node.id())?;
        let what = format!(
            "processes of {} cgroups {verb} moved into one ({}): what those set for them has no \
             effect until they go back, and threads that were placed one by one go back together",
            cgroups.len(),
            named(cgroups.iter().copied())
        );
        Some(Finding {
            severity: Severity::Note,
            ..Finding::of(node.name(), Code::Ineffective, what)
        })
    };
    tree.policy_nodes().filter_map(note).collect()
}
