//! The cgroups that no tenant claims: members of the tenant of the rest, as they come and go.
//!
//! **Problem.** The rest changes whenever a service starts, a user logs in or a tenant gets a member, and most
//! new cgroups end within seconds. Weighting a unit takes orders to systemd, and restoring it a reload.
//!
//! **Algorithm.** A search lists the cgroups that contain claimed ones, from the root downwards, and collects
//! their unclaimed siblings ([`tenantd_policy::rest`]).
//!
//! | bound | value |
//! |---|---|
//! | listings in a tick | [`LISTINGS_A_TICK`] |
//! | new cgroups in a tick | [`NEW_A_TICK`] |
//! | parts in total (more are counted) | [`PARTS_MAX`] |
//! | delay before existing cgroups get weights, while other tenants find theirs | [`SETTLING_TICKS`] |
//! | delay before later cgroups get weights | [`YOUNG_TICKS`] |
//! | delay before an ended cgroup is restored, together with all other ended ones | [`ENDED_TICKS`] |
//!
//! Until its delay is over, a cgroup is outside of every tenant. A cgroup that becomes claimed leaves the rest
//! at once. On a systemd host a divided slice stays divided until a reload.
//!
//! **Properties** (`tests/agent/rest.rs`): services and sessions stay whole and none of their processes is
//! moved; parts come and go without a reload; the work of one tick is bounded; in the end the host is as
//! before.

use std::collections::{BTreeMap, VecDeque};

use super::access::HostAccess;
use super::discovery::list;
use super::location::{Location, RestParts, rest_of};
use super::on_host::Ground;
use tenantd_control::tree::Tree;
use tenantd_control::words::finding::{Code, Finding};
use tenantd_host::cgroup::{Facet, Layout};
use tenantd_host::kernfs::KernFs;
use tenantd_policy::rest::{Claimed, Left};

const LISTINGS_A_TICK: usize = 64;
const NEW_A_TICK: usize = 64;
/// Ticks between two rounds if no claim changed meanwhile; more with many cgroups.
const ROUND_TICKS: u64 = 5;
/// The pause between two rounds grows by one tick for this many cgroups.
const CGROUPS_A_TICK: usize = 100;
const PARTS_MAX: usize = 1000;
/// Delay of the first cgroups, in ticks. The next tick knows from systemd the cgroups of units and the running
/// ones.
const SETTLING_TICKS: u64 = 3;
/// Delay of later cgroups, in ticks.
const YOUNG_TICKS: u64 = 10;
/// Ticks that an ended part stays.
const ENDED_TICKS: u64 = 300;

#[derive(Debug, Default)]
pub(super) struct Rest {
    found: BTreeMap<String, Seen>,
    pub(super) claimed: Option<Claimed>,
    tick: u64,
    began: u64,
    next_at: u64,
    /// Cgroups whose children are still to be listed in this round.
    left: VecDeque<String>,
    nr_listed: usize,
    nr_beyond: usize,
    is_partial: bool,
    /// True once all first cgroups were seen: not before tick `settles_at`.
    is_settled: bool,
    settles_at: Option<u64>,
    findings: Vec<(Code, String)>,
    told: Vec<(Code, String)>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    weighed_at: u64,
    last: u64,
}

/// Claims of tenants at these locations and of `members`. `home` returns the present or last cgroup of a unit;
/// ancestors in `before` stay divided.
pub(super) fn claimed<'a>(
    locations: &[Location],
    members: &[(usize, String)],
    home: impl Fn(&str) -> Option<&'a str>,
    before: Option<&Tree>,
) -> Claimed {
    let of_members = members.iter().filter_map(|(tenant, at)| match &locations[*tenant] {
        Location::Members(sources) => Some(sources.location_of(at)),
        _ => None,
    });
    let parts = rest_of(locations).and_then(|(_, sources)| sources.rest);
    let has_systemd = parts == Some(RestParts::Units);
    let mut claimed = Claimed { has_systemd, ..Claimed::default() };
    for location in locations.iter().cloned().chain(of_members) {
        claimed.cgroups.extend(location.in_place().map(str::to_string));
        if let Some(unit) = location.unit() {
            claimed.cgroups.extend(home(unit).map(str::to_string));
            claimed.units.insert(unit.to_string());
        }
    }
    let above = before.into_iter().flat_map(Tree::ancestors).map(|(_, above)| above);
    claimed.divided = above.filter(|it| it.is_unit).map(|it| it.cgroup.clone()).collect();
    claimed
}

impl Rest {
    pub(super) fn parts<'a>(&'a self, claimed: &Claimed) -> Vec<&'a str> {
        let weighed = self.found.iter().filter(|(_, seen)| seen.weighed_at <= self.tick);
        claimed.parts(weighed.map(|(path, _)| path.as_str()))
    }

    pub(super) fn findings(&self, tenant: &str) -> impl Iterator<Item = Finding> {
        self.told.iter().map(move |(code, what)| Finding::of(tenant, *code, what.as_str()))
    }

    pub(super) fn restart(&mut self) {
        (self.is_settled, self.settles_at, self.claimed) = (false, None, None);
    }

    /// Claims have changed: the next round begins without a pause.
    pub(super) fn hurry(&mut self) {
        self.next_at = 0;
    }

    pub(super) fn clear(&mut self) {
        *self = Rest::default();
    }

    pub(super) fn proceed<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        claimed: &Claimed,
        ground: impl FnOnce(&K) -> Ground,
        tick: u64,
    ) -> bool {
        let last_tick = std::mem::replace(&mut self.tick, tick);
        let is_due = |seen: &Seen| seen.weighed_at > last_tick && seen.weighed_at <= tick;
        let have_come = self.found.values().any(is_due);
        if self.left.is_empty() {
            if tick < self.next_at {
                return have_come;
            }
            self.left.push_back(String::new());
            (self.began, self.nr_listed, self.nr_beyond) = (tick, 0, 0);
            self.is_partial = false;
            self.findings.clear();
        }
        let (ground, mut nr_new) = (ground(&host.kernel), 0);
        for _ in 0..LISTINGS_A_TICK {
            let Some(dir) = self.left.pop_front() else { break };
            match list(host, &dir) {
                Ok(names) => self.look(&dir, names, claimed, (&host.layout, &ground), &mut nr_new),
                Err(error) if error.is_gone() => {}
                Err(error) => self.findings.push((Code::Unreadable, error.to_string())),
            }
        }
        let have_gone = self.left.is_empty() && self.end();
        have_come || have_gone
    }

    fn look(
        &mut self,
        dir: &str,
        names: Vec<String>,
        claimed: &Claimed,
        (layout, ground): (&Layout, &Ground),
        nr_new: &mut usize,
    ) {
        self.nr_listed += names.len();
        for path in names.iter().map(|name| format!("{dir}/{name}")) {
            match claimed.left_of(&path) {
                Left::Nothing => {}
                Left::Part => self.left.push_back(path),
                // The agent makes it, or is in it in another hierarchy.
                Left::All if ground.settle(layout, &path, false).is_err() => {}
                Left::All => self.take_in(path, nr_new),
            }
        }
    }

    fn take_in(&mut self, path: String, nr_new: &mut usize) {
        let tick = self.tick;
        if let Some(seen) = self.found.get_mut(&path) {
            seen.last = tick;
        } else if self.found.len() >= PARTS_MAX {
            self.nr_beyond += 1;
        } else if *nr_new >= NEW_A_TICK {
            self.is_partial = true;
        } else {
            *nr_new += 1;
            let ticks = if self.is_settled { YOUNG_TICKS } else { SETTLING_TICKS };
            self.found.insert(path, Seen { weighed_at: tick + ticks, last: tick });
        }
    }

    fn end(&mut self) -> bool {
        let settles_at = *self.settles_at.get_or_insert(self.tick + SETTLING_TICKS);
        self.is_settled |= !self.is_partial && self.tick >= settles_at;
        let pause = if self.is_partial {
            1
        } else {
            ROUND_TICKS.max((self.nr_listed / CGROUPS_A_TICK) as u64)
        };
        self.next_at = self.tick + pause;
        self.told = std::mem::take(&mut self.findings);
        if self.nr_beyond > 0 {
            let what = format!(
                "{} cgroups beyond {PARTS_MAX} that no tenant claims are not weighed: make a tenant of what is above \
                 them",
                self.nr_beyond
            );
            self.told.push((Code::NotAttached, what));
        }
        let (began, tick) = (self.began, self.tick);
        let has_ended = |seen: &Seen| seen.last < began;
        let are_due = self.found.values().any(|it| has_ended(it) && tick > it.last + ENDED_TICKS);
        if are_due {
            self.found.retain(|_, seen| !has_ended(seen));
        }
        are_due
    }
}

/// The agent's own cgroup and its root in the cpu hierarchy; they count as claimed.
pub(super) fn own(layout: &Layout) -> impl Iterator<Item = String> {
    let tree = layout.tree(Facet::Cpu).map(|tree| &layout.trees[tree]);
    tree.into_iter().flat_map(|tree| {
        let dirs = [&tree.own, &tree.root].into_iter().filter(|dir| dir.starts_with(&tree.mount));
        dirs.map(|dir| tree.path_to(dir))
    })
}
