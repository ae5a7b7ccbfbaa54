//! Placement: sets of CPUs for the widths of the tenants.
//!
//! **Problem.** Every tenant has a width. The machine has cores, caches and nodes. The last placement is in
//! force, and every CPU that moves to another tenant costs warm caches. Find sets of the right size that
//! share as little as possible, lie close together, and move as little as possible.
//!
//! **Terms.** A *request* is shared, fixed, exclusive or dop ([`Want`]). The *load* of a CPU is the number
//! of requests on it, without the shared ones. *Overlap* is the sum of the loads beyond one.
//!
//! **Goals**, in order of precedence:
//! 1. No request is without a CPU. A fixed list is taken as it is; an exclusive set meets no other.
//! 2. The right number of CPUs, and the least overlap, spread evenly: loads differ by at most one where
//!    fixed lists and held sets allow it.
//! 3. A set that has the right width stays. A set that changes keeps as many CPUs as possible.
//! 4. One node before two, one LLC before two, and inside of it whole cores before SMT siblings: a core is
//!    not split between two tenants while that can be avoided, and a tenant uses a second thread of a core
//!    only when its *core quota* is used up. Quotas divide the cores by integer max-min between "all
//!    siblings used" and "one thread on each core", so that idle cores are used before idle siblings.
//!
//! **Algorithm.** Fixed lists first. Exclusive requests next, narrowed in order where CPUs are short. Then
//! the dop requests: keep the previous CPUs where possible; release surplus CPUs, most loaded first;
//! release CPUs loaded beyond the mean, rounded up; fill up the widest need first from the least loaded
//! CPUs (`board`); and while two CPUs differ in load by two or more, move one tenant from one to the other,
//! which always exists (more tenants are on the first than on the second), so the loop ends with loads that
//! differ by at most one. A tenant whose width changed and that would now span several LLCs is placed again
//! from nothing where that needs fewer. O(n·P) for n requests on P CPUs, apart from the moves.
//!
//! While at most half of the CPUs are requested, the emptiest of several domains that fit is chosen (a
//! cache of its own); beyond that the fullest that fits (fewer tenants are split).
//!
//! **Properties** (`tests/dop/placement.rs`, over random machines of up to 1,024 CPUs with holes): right
//! count; disjoint when possible; even overlap; the same requests again move nothing; while nothing
//! overlapped, a tenant that leaves moves no other; a set that shrinks keeps a subset, one that grows in
//! its LLC keeps all; the order of domains; same input, same answer.

mod board;

use serde::{Deserialize, Serialize};
use std::cmp::Reverse;

use super::cpuset::CpuSet;
use super::topology::{Level, Topology};
use board::{Assigned, Board};
use tenantd_fair::integer::{self, Claim};

/// The kind of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// All CPUs that are not exclusive: the kernel places the threads.
    Shared,
    /// This number of CPUs, its own while there are enough. 0 counts as 1.
    Dop(u32),
    /// This number of CPUs that no other tenant runs on. 0 counts as 1.
    Exclusive(u32),
    /// These CPUs, regardless of other requests; isolated ones are allowed.
    Fixed(CpuSet),
}

/// One tenant to be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Kind and size of the request.
    pub want: Want,
    /// Present set, if it was placed before.
    pub previous: Option<CpuSet>,
    /// True if it moved so recently that it must stay for now (see [`super::transition::is_held`]). Has no
    /// effect once one of its CPUs is gone, and on shared and fixed requests.
    pub held: bool,
}

impl Request {
    /// Creates a request that was not placed before.
    pub fn new(want: Want) -> Self {
        Request { want, previous: None, held: false }
    }

    /// Sets the present CPUs of the request.
    #[must_use]
    pub fn after(self, previous: CpuSet) -> Self {
        Request { previous: Some(previous), ..self }
    }
}

/// The CPUs of all requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The CPUs of each request, in the order of the requests. Never empty.
    pub sets: Vec<CpuSet>,
    /// Number of CPUs of each request that were exchanged for others: the smaller of those removed and
    /// those added. Growing and shrinking alone moves nothing.
    pub moved: Vec<usize>,
    /// Number of times a CPU went to a further request, not counting shared requests.
    pub overlap: usize,
    /// Requests that were not met in full, in the order of the requests.
    pub refusals: Vec<Refusal>,
}

/// A request that was not met in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The index of the request.
    pub request: usize,
    /// Reason, and the result for the request.
    pub reason: Reason,
}

/// Reason why a request was not met, and its CPUs instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// There are fewer CPUs for exclusive use than requested: it got `granted`, disjoint, or the shared
    /// ones if that is 0.
    Narrowed {
        /// CPUs requested.
        wanted: u32,
        /// CPUs of its own.
        granted: u32,
    },
    /// No CPU of the fixed list is online: it got the shared ones.
    Offline,
}

/// Places all requests at once. Deterministic: ties go to the earlier request and the earlier CPU.
pub fn place(topology: &Topology, requests: &[Request]) -> Placement {
    let mut plan = Plan::new(topology, requests);
    plan.place_fixed();
    plan.keep_previous();
    plan.place_exclusive();
    plan.place_dop();
    plan.finish()
}

/// The work in progress. `assigned[i]` is the set of request `i`, as indices into the topology order.
struct Plan<'a> {
    topology: &'a Topology,
    requests: &'a [Request],
    board: Board<'a>,
    assigned: Vec<Assigned>,
    /// True for a request that keeps exactly its CPUs.
    held: Vec<bool>,
    exclusive: CpuSet,
    refusals: Vec<Refusal>,
}

impl<'a> Plan<'a> {
    fn new(topology: &'a Topology, requests: &'a [Request]) -> Self {
        let wanted: u64 = requests.iter().filter_map(count).map(u64::from).sum();
        let roomy = wanted * 2 <= topology.usable().len() as u64;
        let mut plan = Plan {
            topology,
            requests,
            board: Board::new(topology, roomy),
            assigned: vec![Assigned::default(); requests.len()],
            held: vec![false; requests.len()],
            exclusive: CpuSet::new(),
            refusals: Vec::new(),
        };
        for (index, quota) in core_quotas(topology, requests).into_iter().enumerate() {
            plan.assigned[index].core_quota = quota;
        }
        plan
    }

    fn place_fixed(&mut self) {
        for (index, request) in self.requests.iter().enumerate() {
            let Want::Fixed(list) = &request.want else { continue };
            let indices = self.board.indices_of(list);
            if indices.is_empty() {
                self.refusals.push(Refusal { request: index, reason: Reason::Offline })
            } else {
                self.board.assign_fixed(&mut self.assigned[index], &indices)
            }
        }
    }

    /// Starts dop and exclusive requests on their previous CPUs. CPUs that others need are released later.
    fn keep_previous(&mut self) {
        for (index, request) in self.requests.iter().enumerate() {
            let (Some(previous), Some(_)) = (&request.previous, count(request)) else { continue };
            let usable = previous.intersection(self.topology.usable());
            let whole = !previous.is_empty() && usable.len() == previous.len();
            let kept = self.board.indices_of(&usable);
            self.held[index] = request.held && whole;
            self.board.assign_all(&mut self.assigned[index], &kept);
        }
    }

    fn place_exclusive(&mut self) {
        let wanted: Vec<(usize, u32)> = self
            .requests
            .iter()
            .enumerate()
            .filter(|(_, request)| matches!(request.want, Want::Exclusive(_)))
            .filter_map(|(index, request)| Some((index, count(request)?)))
            .collect();
        if wanted.is_empty() {
            return;
        }
        let taken = self.taken_from_exclusive();
        self.board.close(&taken);
        let mut grants = self.grant_exclusive(&wanted, &taken);
        // All requests keep their CPUs where possible before any of them gets more.
        let mut claimed = taken.clone();
        for &(index, granted) in &grants {
            self.vacate(index, &claimed);
            self.board.release_to(&mut self.assigned[index], granted);
            claimed = claimed.union(self.assigned[index].indices());
            self.board.close(self.assigned[index].indices());
        }
        grants.sort_by_key(|&(index, granted)| Reverse(granted - self.assigned[index].len()));
        for (index, granted) in grants {
            self.board.open(&self.assigned[index].indices().clone());
            self.resize(index, granted);
            self.board.close(self.assigned[index].indices());
            self.exclusive = self.exclusive.union(self.assigned[index].indices());
        }
        self.board.open(&taken);
        let exclusive = self.exclusive.clone();
        for index in 0..self.requests.len() {
            if matches!(self.requests[index].want, Want::Dop(_)) {
                self.vacate(index, &exclusive);
            }
        }
    }

    /// CPUs that no exclusive request may have: those of fixed lists and of held dop requests.
    fn taken_from_exclusive(&self) -> CpuSet {
        let mut taken = CpuSet::new();
        for (index, request) in self.requests.iter().enumerate() {
            let blocks = match request.want {
                Want::Fixed(_) => true,
                Want::Dop(_) => self.held[index],
                Want::Shared | Want::Exclusive(_) => false,
            };
            if blocks {
                taken = taken.union(self.assigned[index].indices());
            }
        }
        taken
    }

    /// Number of CPUs of each exclusive request: its width while CPUs last, one for each that comes after
    /// it, and one for all that are not exclusive. Requests that get none are left out and refused.
    fn grant_exclusive(&mut self, wanted: &[(usize, u32)], taken: &CpuSet) -> Vec<(usize, u32)> {
        let offline = self.refusals.len();
        let others = self.requests.iter().filter(|r| matches!(r.want, Want::Shared | Want::Dop(_)));
        let available = self.board.open_count();
        // Requests without CPUs of their own can run where fixed lists and held sets are.
        let has_sharers = taken.is_empty() && others.count() + offline > 0;
        let must_share = has_sharers || (taken.is_empty() && wanted.len() > available);
        let mut room = available.saturating_sub(usize::from(must_share)) as u32;
        let mut grants = Vec::with_capacity(wanted.len());
        for (rank, &(index, wants)) in wanted.iter().enumerate() {
            let later = (wanted.len() - rank - 1) as u32;
            // Held sets count with their present size, so that the others share the actual rest.
            let wants = if self.held[index] { self.assigned[index].len() } else { wants };
            let granted = wants.min(room.saturating_sub(later).max(room.min(1)));
            room -= granted;
            if granted < wants {
                self.held[index] = false;
                let reason = Reason::Narrowed { wanted: wants, granted };
                self.refusals.push(Refusal { request: index, reason });
            }
            match granted {
                0 => self.clear(index),
                _ => grants.push((index, granted)),
            }
        }
        grants
    }

    fn place_dop(&mut self) {
        let dop: Vec<usize> = (0..self.requests.len())
            .filter(|&index| matches!(self.requests[index].want, Want::Dop(_)))
            .collect();
        let available = self.board.open_count() as u32;
        let width = |index: usize| count(&self.requests[index]).unwrap_or(1).min(available);
        for &index in dop.iter().filter(|&&index| !self.held[index]) {
            self.board.release_to(&mut self.assigned[index], width(index));
        }
        self.give_up_overload(&dop);
        let mut order: Vec<(usize, u32)> = dop
            .iter()
            .filter(|&&index| !self.held[index])
            .map(|&index| (index, width(index)))
            .filter(|&(index, width)| self.assigned[index].len() < width)
            .collect();
        order.sort_by_key(|&(index, width)| Reverse(width - self.assigned[index].len()));
        for (index, width) in order {
            self.resize(index, width);
        }
        let movable: Vec<usize> = dop.into_iter().filter(|&index| !self.held[index]).collect();
        self.board.balance(&mut self.assigned, &movable);
    }

    /// Removes dop requests from CPUs that are loaded beyond the mean, rounded up: the latest requests
    /// first.
    fn give_up_overload(&mut self, dop: &[usize]) {
        let available = self.board.open_count();
        let wanted: usize = dop
            .iter()
            .map(|&index| {
                if self.held[index] {
                    self.assigned[index].len() as usize
                } else {
                    (count(&self.requests[index]).unwrap_or(1) as usize).min(available)
                }
            })
            .sum();
        let cap = (wanted + self.board.fixed_load()).div_ceil(available.max(1)).max(1);
        for &index in dop.iter().rev().filter(|&&index| !self.held[index]) {
            self.board.release_beyond(&mut self.assigned[index], cap as u32);
        }
    }

    /// Widens the set of `index` to `width`. Places it from nothing if its width changed and that reduces
    /// its span.
    fn resize(&mut self, index: usize, width: u32) {
        let assigned = &mut self.assigned[index];
        let had = assigned.len();
        self.board.fill(assigned, width.saturating_sub(had));
        let in_place = self.board.span(assigned);
        let previous = self.requests[index].previous.as_ref().map_or(0, CpuSet::len);
        if had == 0 || previous == width as usize || in_place == Board::SPAN_OF_ONE_LLC {
            return;
        }
        let extended = assigned.indices().clone();
        self.board.release_to(assigned, 0);
        self.board.fill(assigned, width);
        if self.board.span(assigned) >= in_place {
            self.board.release_to(assigned, 0);
            self.board.assign_all(assigned, &extended);
        }
    }

    fn clear(&mut self, index: usize) {
        self.board.release_to(&mut self.assigned[index], 0);
    }

    fn vacate(&mut self, index: usize, from: &CpuSet) {
        for cpu in from {
            self.board.unassign(&mut self.assigned[index], cpu as usize);
        }
    }

    fn finish(self) -> Placement {
        let numbers = |indices: &CpuSet| -> CpuSet {
            indices.iter().map(|index| self.topology.cpus()[index as usize].place.cpu).collect()
        };
        let shared = self.topology.usable().difference(&numbers(&self.exclusive));
        let sets: Vec<CpuSet> = self
            .assigned
            .iter()
            .map(
                |assigned| {
                    if assigned.is_empty() { shared.clone() } else { numbers(assigned.indices()) }
                },
            )
            .collect();
        let moved = |(request, set): (&Request, &CpuSet)| match &request.previous {
            Some(old) => old.difference(set).len().min(set.difference(old).len()),
            None => 0,
        };
        let moved = self.requests.iter().zip(&sets).map(moved).collect();
        let mut refusals = self.refusals;
        refusals.sort_by_key(|refusal| refusal.request);
        debug_assert!(sets.iter().all(|set| !set.is_empty()));
        Placement { sets, moved, overlap: self.board.overlap(), refusals }
    }
}

/// The requested width, if the request has one.
fn count(request: &Request) -> Option<u32> {
    match request.want {
        Want::Dop(count) | Want::Exclusive(count) => Some(count.max(1)),
        Want::Shared | Want::Fixed(_) => None,
    }
}

/// Number of cores that each request should spread over: between all siblings used and one thread on each
/// core, the cores divided by integer max-min with the widths as weights.
fn core_quotas(topology: &Topology, requests: &[Request]) -> Vec<u32> {
    let widths = requests.iter().map(|request| count(request).unwrap_or(0));
    let threads = topology.threads_per_core_max() as u32;
    if threads == 1 {
        return widths.collect();
    }
    let usable = |core: &&std::ops::Range<usize>| {
        topology.cpus()[(*core).clone()].iter().any(|cpu| !cpu.isolated)
    };
    let cores = topology.domains(Level::Core).iter().filter(usable).count() as u64;
    let claims: Vec<Claim> = widths
        .map(|width| Claim {
            weight: f64::from(width.max(1)),
            floor: u64::from(width.div_ceil(threads)),
            ceiling: u64::from(width),
        })
        .collect();
    let quotas = integer::apportion(cores, &claims);
    quotas.iter().zip(&claims).map(|(quota, claim)| (*quota).max(claim.floor) as u32).collect()
}
