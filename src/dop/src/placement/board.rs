//! The CPUs as a board: the load of each, and the choice of some of them for one tenant.
//!
//! Works in indices of the topology order ([`Topology::cpus`]), so that every domain is a range and
//! counting inside of one is a difference of two prefix sums.

use std::cmp::Reverse;
use std::ops::Range;

use super::super::cpuset::CpuSet;
use super::super::topology::{Level, Topology};

/// The CPUs of one request, as indices into the topology order.
#[derive(Clone, Debug, Default)]
pub(super) struct Assigned {
    indices: CpuSet,
    /// Number of cores to spread over before it uses a second thread of one.
    pub(super) core_quota: u32,
}

impl Assigned {
    pub(super) fn len(&self) -> u32 {
        self.indices.len() as u32
    }

    pub(super) fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    pub(super) fn contains(&self, index: usize) -> bool {
        self.indices.contains(index as u32)
    }

    pub(super) fn indices(&self) -> &CpuSet {
        &self.indices
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> {
        self.indices.iter().map(|index| index as usize)
    }
}

/// The load of each CPU, and the CPUs that may be chosen.
pub(super) struct Board<'a> {
    topology: &'a Topology,
    load: Vec<u32>,
    /// Number of requests with a fixed list on each CPU.
    fixed: Vec<u32>,
    /// CPUs that cannot be chosen: isolated ones, and those of exclusive requests.
    closed: Vec<bool>,
    /// True if emptier domains are better than tighter ones.
    roomy: bool,
}

impl<'a> Board<'a> {
    pub(super) fn new(topology: &'a Topology, roomy: bool) -> Self {
        let cpus = topology.cpus();
        Board {
            topology,
            load: vec![0; cpus.len()],
            fixed: vec![0; cpus.len()],
            closed: cpus.iter().map(|cpu| cpu.isolated).collect(),
            roomy,
        }
    }

    /// The online CPUs of `set` as indices.
    pub(super) fn indices_of(&self, set: &CpuSet) -> CpuSet {
        let cpus = self.topology.cpus().iter().enumerate();
        cpus.filter(|(_, cpu)| set.contains(cpu.place.cpu)).map(|(index, _)| index as u32).collect()
    }

    pub(super) fn close(&mut self, indices: &CpuSet) {
        for index in indices {
            self.closed[index as usize] = true;
        }
    }

    /// Opens CPUs again. Isolated ones stay closed.
    pub(super) fn open(&mut self, indices: &CpuSet) {
        for index in indices {
            self.closed[index as usize] = self.topology.cpus()[index as usize].isolated;
        }
    }

    pub(super) fn open_count(&self) -> usize {
        self.closed.iter().filter(|closed| !**closed).count()
    }

    pub(super) fn assign(&mut self, assigned: &mut Assigned, index: usize) {
        debug_assert!(!assigned.contains(index));
        assigned.indices.insert(index as u32);
        self.load[index] += 1;
    }

    pub(super) fn assign_all(&mut self, assigned: &mut Assigned, indices: &CpuSet) {
        for index in indices {
            self.assign(assigned, index as usize);
        }
    }

    pub(super) fn unassign(&mut self, assigned: &mut Assigned, index: usize) {
        if assigned.indices.remove(index as u32) {
            self.load[index] -= 1;
        }
    }

    /// Assigns the CPUs of a fixed list, closed ones included.
    pub(super) fn assign_fixed(&mut self, assigned: &mut Assigned, indices: &CpuSet) {
        for index in indices {
            self.assign(assigned, index as usize);
            self.fixed[index as usize] += 1;
        }
    }

    /// Load by fixed lists on the open CPUs.
    pub(super) fn fixed_load(&self) -> usize {
        let open = self.fixed.iter().zip(&self.closed).filter(|(_, closed)| !**closed);
        open.map(|(fixed, _)| *fixed as usize).sum()
    }

    pub(super) fn overlap(&self) -> usize {
        self.load.iter().map(|load| load.saturating_sub(1) as usize).sum()
    }

    /// The [`Board::span`] of a set that lies as close together as possible.
    pub(super) const SPAN_OF_ONE_LLC: (usize, usize, usize) = (1, 1, 1);

    /// Number of packages, nodes and LLCs that a set touches.
    pub(super) fn span(&self, assigned: &Assigned) -> (usize, usize, usize) {
        let touched = |level: Level| {
            let mut domains: Vec<usize> =
                assigned.iter().map(|index| self.topology.cpus()[index].domain(level)).collect();
            domains.dedup();
            domains.len()
        };
        (touched(Level::Package), touched(Level::Node), touched(Level::Llc))
    }

    /// Adds up to `count` CPUs: the least loaded ones, and the closest ones of these if there are more than
    /// needed.
    pub(super) fn fill(&mut self, assigned: &mut Assigned, count: u32) {
        let mut missing = count;
        while missing > 0 {
            let Some(free) = self.least_loaded(assigned) else { return };
            let nr_free = free.iter().filter(|free| **free).count() as u32;
            let chosen: Vec<usize> = if nr_free <= missing {
                (0..free.len()).filter(|&index| free[index]).collect()
            } else {
                Choice::new(self, assigned, free).choose(missing)
            };
            debug_assert_eq!(chosen.len() as u32, nr_free.min(missing));
            missing -= chosen.len() as u32;
            for index in chosen {
                self.assign(assigned, index);
            }
        }
    }

    /// True for each open CPU that is not in `assigned` and has the least load of these.
    fn least_loaded(&self, assigned: &Assigned) -> Option<Vec<bool>> {
        const TAKEN: u32 = u32::MAX;
        let open = self.load.iter().zip(&self.closed);
        let mut load: Vec<u32> =
            open.map(|(load, closed)| if *closed { TAKEN } else { *load }).collect();
        for index in assigned.iter() {
            load[index] = TAKEN;
        }
        let level = load.iter().copied().min().filter(|level| *level != TAKEN)?;
        Some(load.into_iter().map(|load| load == level).collect())
    }

    /// Releases CPUs until `width` are left: the most loaded ones first, then those far from the rest.
    pub(super) fn release_to(&mut self, assigned: &mut Assigned, width: u32) {
        let cpus = self.topology.cpus();
        let mut mine = Level::ALL.map(|level| vec![0_u32; self.topology.domains(level).len()]);
        let mut nr_cores = 0;
        for index in assigned.iter() {
            nr_cores += u32::from(mine[Level::Core as usize][cpus[index].domain(Level::Core)] == 0);
            for level in Level::ALL {
                mine[level as usize][cpus[index].domain(level)] += 1;
            }
        }
        while assigned.len() > width {
            let own = |index: usize, level: Level| mine[level as usize][cpus[index].domain(level)];
            let spread_too_far = nr_cores > assigned.core_quota;
            let worst = assigned.iter().max_by_key(|&index| {
                let in_core = own(index, Level::Core);
                (
                    self.load[index],
                    Reverse(own(index, Level::Package)),
                    Reverse(own(index, Level::Node)),
                    Reverse(own(index, Level::Llc)),
                    // Give up a lone thread to get back to whole cores, or a second one to stay spread.
                    if spread_too_far { u32::MAX - in_core } else { in_core },
                    index,
                )
            });
            let Some(worst) = worst else { return };
            self.unassign(assigned, worst);
            for level in Level::ALL {
                mine[level as usize][cpus[worst].domain(level)] -= 1;
            }
            nr_cores -= u32::from(mine[Level::Core as usize][cpus[worst].domain(Level::Core)] == 0);
        }
    }

    /// Releases every CPU with more than `cap` requests.
    pub(super) fn release_beyond(&mut self, assigned: &mut Assigned, cap: u32) {
        let crowded: Vec<usize> = assigned.iter().filter(|&index| self.load[index] > cap).collect();
        for index in crowded {
            self.unassign(assigned, index);
        }
    }

    /// Evens out the load by moving one CPU of one of the `movable` requests at a time.
    ///
    /// Each move lowers the sum of the squared loads, so the loop ends.
    pub(super) fn balance(&mut self, assigned: &mut [Assigned], movable: &[usize]) {
        let mut order: Vec<usize> = (0..self.load.len()).filter(|&s| !self.closed[s]).collect();
        loop {
            order.sort_by_key(|&index| (Reverse(self.load[index]), index));
            let lowest = order.last().map_or(0, |&index| self.load[index]);
            let crowded = order.iter().copied().take_while(|&index| self.load[index] >= lowest + 2);
            let found = crowded
                .flat_map(|from| movable.iter().map(move |&index| (from, index)))
                .filter(|&(from, index)| assigned[index].contains(from))
                .find_map(|(from, index)| {
                    Some((from, index, self.roomier(&order, &assigned[index], from)?))
                });
            let Some((from, index, to)) = found else { return };
            self.unassign(&mut assigned[index], from);
            self.assign(&mut assigned[index], to);
        }
    }

    /// The least loaded CPU that would relieve `from`; among equals the one nearest to the rest of
    /// `assigned`.
    fn roomier(&self, order: &[usize], assigned: &Assigned, from: usize) -> Option<usize> {
        let cpus = self.topology.cpus();
        let near = |to: usize, level: Level| {
            let domain = self.topology.domains(level)[cpus[to].domain(level)].clone();
            assigned.iter().filter(|&index| index != from && domain.contains(&index)).count()
        };
        let relieves =
            |to: &usize| self.load[*to] + 2 <= self.load[from] && !assigned.contains(*to);
        order.iter().copied().filter(relieves).max_by_key(|&to| {
            (Reverse(self.load[to]), near(to, Level::Llc), near(to, Level::Node), Reverse(to))
        })
    }
}

/// A choice among equally loaded CPUs, for one request.
struct Choice<'a> {
    topology: &'a Topology,
    free: Vec<bool>,
    /// Prefix sums over the CPUs: free ones, and those the request already has.
    nr_free: Vec<u32>,
    nr_mine: Vec<u32>,
    /// Prefix sum over the cores: those with every thread free.
    nr_whole: Vec<u32>,
    /// True for a core of which the request has a thread.
    my_cores: Vec<bool>,
    /// Number of further cores it should spread over.
    more_cores: u32,
    roomy: bool,
    chosen: Vec<usize>,
}

impl<'a> Choice<'a> {
    fn new(board: &Board<'a>, assigned: &Assigned, free: Vec<bool>) -> Self {
        let topology = board.topology;
        let cores = topology.domains(Level::Core);
        let mut mine = vec![false; free.len()];
        for index in assigned.iter() {
            mine[index] = true;
        }
        let nr_mine = prefix_sums(mine.into_iter());
        let nr_free = prefix_sums(free.iter().copied());
        let whole = |core: &Range<usize>| core.clone().all(|index| free[index]);
        let my_cores: Vec<bool> = cores.iter().map(|core| within(&nr_mine, core) > 0).collect();
        let nr_my_cores = my_cores.iter().filter(|mine| **mine).count() as u32;
        Choice {
            topology,
            nr_whole: prefix_sums(cores.iter().map(whole)),
            nr_free,
            nr_mine,
            free,
            my_cores,
            more_cores: assigned.core_quota.saturating_sub(nr_my_cores),
            roomy: board.roomy,
            chosen: Vec::new(),
        }
    }

    /// Chooses `count` free CPUs; the caller has checked that there are as many.
    fn choose(mut self, count: u32) -> Vec<usize> {
        let topology = self.topology;
        self.choose_among(Level::Package, topology.domains(Level::Package), count);
        self.chosen
    }

    /// One domain before two: all from the innermost domain that can hold them, else all of the fullest of
    /// `domains` and the rest from the others. A request that has CPUs already looks around these first.
    fn choose_among(&mut self, level: Level, domains: &[Range<usize>], count: u32) {
        let topology = self.topology;
        let mut missing = count;
        let mut rest: Vec<&Range<usize>> = domains.iter().collect();
        while missing > 0 && !rest.is_empty() {
            match self.innermost_fit(level, &rest, missing) {
                Some((Level::Node, node)) => {
                    return self.choose_among(
                        Level::Llc,
                        topology.inner(Level::Llc, &node),
                        missing,
                    );
                }
                Some((Level::Package, package)) => {
                    let nodes = topology.inner(Level::Node, &package);
                    return self.choose_among(Level::Node, nodes, missing);
                }
                Some((_, llc)) => return self.choose_cores(&llc, missing),
                None => {}
            }
            let fullest = |domain: &&Range<usize>| {
                (within(&self.nr_mine, domain), within(&self.nr_free, domain))
            };
            let Some(domain) = rest.iter().copied().rev().max_by_key(fullest) else { return };
            missing -= within(&self.nr_free, domain);
            self.chosen.extend(domain.clone().filter(|&index| self.free[index]));
            rest.retain(|other| *other != domain);
        }
    }

    /// The best of the innermost domains inside `outer` (domains of `level`) that hold `count` free CPUs.
    fn innermost_fit(
        &self,
        level: Level,
        outer: &[&Range<usize>],
        count: u32,
    ) -> Option<(Level, Range<usize>)> {
        let settled = outer.iter().any(|domain| within(&self.nr_mine, domain) > 0);
        let levels = [Level::Llc, Level::Node, Level::Package].into_iter();
        levels.take_while(|&inner| inner <= level).find_map(|inner| {
            let inside = |domain: &&Range<usize>| {
                outer.iter().any(|o| o.start <= domain.start && domain.end <= o.end)
            };
            let fits = |domain: &&Range<usize>| {
                within(&self.nr_free, domain) >= count
                    && (!settled || within(&self.nr_mine, domain) > 0)
            };
            let domains = self.topology.domains(inner).iter().rev();
            let best = domains.filter(inside).filter(fits).max_by_key(|d| self.rank(d, count));
            best.map(|domain| (inner, domain.clone()))
        })
    }

    /// Rank among domains that fit: those where the request already is, then those with enough whole cores,
    /// then the emptiest surroundings or the tightest.
    fn rank(&self, domain: &Range<usize>, count: u32) -> (u32, bool, [i64; 3]) {
        let first = &self.topology.cpus()[domain.start];
        let last = &self.topology.cpus()[domain.end - 1];
        let cores = first.domain(Level::Core)..last.domain(Level::Core) + 1;
        let enough = within(&self.nr_whole, &cores) >= self.more_cores.min(count);
        let free = |level: Level| {
            let around = &self.topology.domains(level)[first.domain(level)];
            i64::from(within(&self.nr_free, around))
        };
        let room = if self.roomy {
            [free(Level::Package), free(Level::Node), free(Level::Llc)]
        } else {
            [-free(Level::Llc), -free(Level::Node), -free(Level::Package)]
        };
        (within(&self.nr_mine, domain), enough, room)
    }

    /// Whole cores before siblings: one thread each of new whole cores up to the quota, then the other
    /// threads of the request's own cores, then further whole cores, then threads of cores that others use.
    fn choose_cores(&mut self, llc: &Range<usize>, count: u32) {
        let topology = self.topology;
        let goal = self.chosen.len() + count as usize;
        let first = topology.cpus()[llc.start].domain(Level::Core);
        let cores = topology.inner(Level::Core, llc);
        let whole = |choice: &Self, rank: usize| {
            within(&choice.nr_whole, &(first + rank..first + rank + 1)) == 1
                && !choice.my_cores[first + rank]
        };
        for (rank, core) in cores.iter().enumerate() {
            if self.more_cores > 0 && whole(self, rank) && self.chosen.len() < goal {
                self.more_cores -= 1;
                self.my_cores[first + rank] = true;
                self.take(core, 1, goal);
            }
        }
        for (rank, core) in cores.iter().enumerate() {
            if self.my_cores[first + rank] {
                self.take(core, core.len(), goal);
            }
        }
        for (rank, core) in cores.iter().enumerate() {
            if whole(self, rank) {
                self.take(core, core.len(), goal);
            }
        }
        for core in cores {
            self.take(core, core.len(), goal);
        }
    }

    /// Takes up to `most` free CPUs of a core, until `goal` CPUs are chosen.
    fn take(&mut self, core: &Range<usize>, most: usize, goal: usize) {
        let wanted = most.min(goal - self.chosen.len());
        let taken: Vec<usize> =
            core.clone().filter(|&index| self.free[index]).take(wanted).collect();
        for index in taken {
            self.free[index] = false;
            self.chosen.push(index);
        }
    }
}

/// `sums[i]` is the number of flags set among the first `i`.
fn prefix_sums(flags: impl Iterator<Item = bool>) -> Vec<u32> {
    let mut sums = Vec::with_capacity(flags.size_hint().0 + 1);
    let mut sum = 0;
    sums.push(sum);
    for flag in flags {
        sum += u32::from(flag);
        sums.push(sum);
    }
    sums
}

fn within(sums: &[u32], range: &Range<usize>) -> u32 {
    sums[range.end] - sums[range.start]
}
