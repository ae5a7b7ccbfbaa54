//! Members of tenants with several units or cgroups, as they come and go.
//!
//! **Problem.** A tenant may name several units or cgroups, match some by a pattern, or consist of the people
//! of a group. They start and end while the policy stays.
//!
//! **Rules.** A named unit or cgroup is always a member, even while it is missing. A unit that matches a
//! pattern, or is the slice of a user in a group, is a member while it runs. Each belongs to one tenant only,
//! in this order:
//!
//! 1. the tenant that names it
//! 2. the tenant that it is attached to
//! 3. the tenant whose slice or service contains it, whatever patterns it matches
//! 4. the first matching tenant in the policy
//!
//! Cgroups inside a member are part of it. The search for matching cgroups is in [`super::discovery`]. Systemd
//! lists the running units in every tick, and less often if there are hundreds. An ended member stays for
//! [`LINGER_TICKS`], because it may only restart; then all ended ones leave together, because restoring units
//! takes calls to systemd.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::ancestry::dir_of;
use super::discovery::{Discovery, LINGER_TICKS};
use super::location::Location;
use tenantd_host::systemd::Order;
use tenantd_policy::accounts::{Accounts, Answer, Need};
use tenantd_policy::unit_path::{USER_SLICES, unit_at, user_of_slice};

/// Time after which answers about accounts may have expired.
const REVIEW: Duration = Duration::from_secs(20);
/// The pause between two lists grows by one tick for this many units.
const UNITS_A_TICK: usize = 100;

/// Named members of tenants at these locations, known without asking.
pub(crate) fn named(locations: &[Location]) -> Vec<(usize, String)> {
    Members::default().of(locations)
}

#[derive(Debug, Default)]
pub(super) struct Members {
    /// With the tick in which each was last seen to run.
    running: BTreeMap<String, u64>,
    groups_of: BTreeMap<String, Vec<u32>>,
    accounts: Accounts,
    /// Time of the next look at the groups, and generation of the answers at the last look.
    look_at: (Duration, u64),
    /// Their cgroups below the mount. Learned when they are members, and kept afterwards: it may be the reason
    /// to exclude them.
    homes: BTreeMap<String, String>,
    is_asking: bool,
    ask_at: u64,
    pub(super) discovery: Discovery,
    pub(super) has_changed: bool,
    pub(super) has_changed_for_each: bool,
}

impl Members {
    /// Members of all tenants at these locations, ordered by tenant: tenant number, and unit or cgroup path
    /// below the mount.
    pub(super) fn of(&self, locations: &[Location]) -> Vec<(usize, String)> {
        let sources = || {
            locations.iter().enumerate().filter_map(|(number, location)| match location {
                Location::Members(sources) => Some((number, sources)),
                _ => None,
            })
        };
        let of_one = locations.iter().filter_map(|it| it.unit().or_else(|| it.in_place()));
        let mut taken: BTreeSet<&str> = of_one.collect();
        taken.extend(sources().flat_map(|(_, sources)| sources.by_name()));
        let mut attached: BTreeSet<(usize, &str)> = BTreeSet::new();
        for (number, sources) in sources() {
            for at in &sources.attached {
                if is_apart(at, &taken) && taken.insert(at) {
                    attached.insert((number, at));
                }
            }
        }
        let mut members: Vec<(usize, String)> = Vec::new();
        for (number, sources) in sources() {
            members.extend(sources.by_name().map(|name| (number, name.to_string())));
            let of_tenant = attached.range((number, "")..(number + 1, ""));
            members.extend(of_tenant.map(|(number, at)| (*number, at.to_string())));
            for unit in self.running.keys() {
                let groups = self.groups_of.get(unit).map_or(&[][..], Vec::as_slice);
                let is_free = !self.is_inside(unit, &taken);
                if sources.fits(unit, groups) && is_free && taken.insert(unit) {
                    members.push((number, unit.clone()));
                }
            }
            let found = sources.cgroup_patterns.iter().flat_map(|it| self.discovery.of(it));
            for found in found {
                if is_apart(found, &taken) && taken.insert(found) {
                    members.push((number, found.to_string()));
                }
            }
        }
        members
    }

    /// Units that run (or did a moment ago), match a tenant or template, and are in none of the units `taken`.
    pub(super) fn running(&self, taken: &BTreeSet<&str>) -> impl Iterator<Item = &String> {
        self.running.keys().filter(|unit| !self.is_inside(unit, taken))
    }

    pub(super) fn note_homes<'a>(&mut self, home_of: impl Fn(&str) -> Option<&'a str>) {
        for unit in self.running.keys() {
            if let Some(home) = home_of(unit)
                && self.homes.get(unit).is_none_or(|known| known != home)
            {
                self.homes.insert(unit.clone(), home.to_string());
                self.has_changed_for_each = true;
            }
        }
        self.homes.retain(|unit, _| self.running.contains_key(unit));
    }

    fn is_inside(&self, unit: &str, taken: &BTreeSet<&str>) -> bool {
        let home = self.homes.get(unit).map(String::as_str);
        let mut above = std::iter::successors(home.and_then(dir_of), |path| dir_of(path));
        above.any(|up| taken.contains(up) || unit_at(up).is_some_and(|it| taken.contains(it)))
    }

    /// Returns the question to systemd that is due, if any: the running units that match a tenant at these
    /// locations, or any of `others`.
    pub(super) fn question<'a>(
        &mut self,
        locations: impl Iterator<Item = &'a Location>,
        others: &BTreeSet<String>,
        tick: u64,
    ) -> Option<Order> {
        if self.is_asking || tick < self.ask_at {
            return None;
        }
        let mut patterns: BTreeSet<&str> = others.iter().map(String::as_str).collect();
        for location in locations {
            let Location::Members(sources) = location else { continue };
            patterns.extend(sources.patterns.iter().map(String::as_str));
            patterns.extend((!sources.groups.is_empty()).then_some(USER_SLICES));
        }
        if patterns.is_empty() {
            return None;
        }
        self.is_asking = true;
        Some(Order::List { patterns: patterns.into_iter().map(str::to_string).collect() })
    }

    pub(super) fn answered(&mut self, running: Option<Vec<String>>, tick: u64) {
        self.is_asking = false;
        let Some(running) = running else { return };
        self.ask_at = tick + 1 + (running.len() / UNITS_A_TICK) as u64;
        for unit in running {
            if self.running.insert(unit.clone(), tick).is_none() {
                self.look_at = Default::default();
                self.note_change();
            }
        }
        // All ended members leave with the first.
        let has_ended = |seen: &u64| tick > seen + LINGER_TICKS;
        if self.running.values().any(has_ended) {
            self.running.retain(|_, seen| *seen == tick);
            self.groups_of.retain(|unit, _| self.running.contains_key(unit));
            self.note_change();
        }
    }

    pub(super) fn ask(&mut self, accounts: Accounts) {
        self.accounts = accounts;
        self.look_at = Default::default();
    }

    /// Looks at the groups of users again if an answer may have changed. On a failed lookup they stay.
    pub(super) fn review(&mut self) {
        let (now, generation) = (self.accounts.now(), self.accounts.generation());
        let (look_at, seen) = self.look_at;
        if self.running.is_empty() || now < look_at && generation == seen {
            return;
        }
        self.look_at = (now + REVIEW, generation);
        for unit in self.running.keys() {
            let Some(uid) = user_of_slice(unit) else { continue };
            let groups = match self.accounts.owner(uid, Need::Identity) {
                Answer::Known(user) => user.groups,
                Answer::Missing => Vec::new(),
                Answer::Unknown(_) | Answer::Pending => continue,
            };
            if self.groups_of.get(unit) != Some(&groups) {
                self.groups_of.insert(unit.clone(), groups);
                (self.has_changed, self.has_changed_for_each) = (true, true);
            }
        }
    }

    pub(super) fn note_change(&mut self) {
        (self.has_changed, self.has_changed_for_each) = (true, true);
    }

    /// The connection to systemd was replaced: the last question gets no answer.
    pub(super) fn miss_answers(&mut self) {
        self.is_asking = false;
    }
}

/// True if a cgroup is neither inside nor around one that is `taken`; always true for a unit.
fn is_apart(path: &str, taken: &BTreeSet<&str>) -> bool {
    if !path.starts_with('/') {
        return true;
    }
    let mut above = std::iter::successors(dir_of(path), |path| dir_of(path));
    let is_taken =
        |up: &str| taken.contains(up) || unit_at(up).is_some_and(|it| taken.contains(it));
    let is_below = |other: &&&str| other.strip_prefix(path).is_some_and(|it| it.starts_with('/'));
    let mut from = taken.range(path..).take_while(|other| other.starts_with(path));
    !above.any(is_taken) && !from.any(|other| is_below(&other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::location::Sources;

    fn members(sources: Sources) -> Location {
        Location::Members(sources)
    }

    fn running(units: &[&str], tick: u64, known: &mut Members) {
        known.answered(Some(units.iter().map(|unit| (*unit).to_string()).collect()), tick);
    }

    fn patterns(patterns: &[&str]) -> Sources {
        let patterns = patterns.iter().map(|it| (*it).to_string()).collect();
        Sources { patterns, ..Sources::default() }
    }

    #[test]
    fn a_unit_is_the_tenants_that_names_it_then_the_first_that_it_fits() {
        let named = Sources { named: vec!["b.service".into()], ..Sources::default() };
        let locations = [
            members(patterns(&["*.service"])),
            members(named),
            Location::Unit("c.service".into()),
            members(patterns(&["d*.service"])),
        ];
        let mut known = Members::default();
        running(&["a.service", "b.service", "c.service", "d.service"], 1, &mut known);
        let of = |number, unit: &str| (number, unit.to_string());
        let expected = [of(0, "a.service"), of(0, "d.service"), of(1, "b.service")];
        assert_eq!(known.of(&locations), expected);
    }

    #[test]
    fn members_that_ended_linger_and_go_together() {
        let mut known = Members::default();
        running(&["a.service", "b.service", "c.service"], 1, &mut known);
        assert!(std::mem::take(&mut known.has_changed));
        running(&["b.service", "c.service"], 2, &mut known);
        running(&["c.service"], 3 + LINGER_TICKS / 2, &mut known);
        assert!(!known.has_changed && known.running.len() == 3);
        running(&["c.service"], 2 + LINGER_TICKS, &mut known);
        assert!(known.has_changed && known.running.len() == 1, "{known:?}");
    }

    #[test]
    fn systemd_is_asked_only_where_somebody_is_found_by_pattern() {
        let mut known = Members::default();
        let none = BTreeSet::new();
        let named = Sources { named: vec!["a.service".into()], ..Sources::default() };
        assert_eq!(known.question([members(named), Location::Direct].iter(), &none, 1), None);
        let group = Sources { groups: vec![50], ..Sources::default() };
        let locations = [members(patterns(&["x@*.service"])), members(group)];
        let others = BTreeSet::from(["y.scope".to_string()]);
        let asked = known.question(locations.iter(), &others, 1);
        let expected = [USER_SLICES, "x@*.service", "y.scope"].map(str::to_string).to_vec();
        assert_eq!(asked, Some(Order::List { patterns: expected }));
        assert_eq!(
            known.question([members(patterns(&["x"]))].iter(), &none, 2),
            None,
            "asked already"
        );
        let many: Vec<String> = (0..250).map(|n| format!("x@{n}.service")).collect();
        known.answered(Some(many), 5);
        assert_eq!(known.question([members(patterns(&["x"]))].iter(), &none, 7), None);
        assert!(known.question([members(patterns(&["x"]))].iter(), &none, 8).is_some());
    }
}
