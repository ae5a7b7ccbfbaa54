//! Ends of a tenant's work for lack of memory: each once, with its cause.
//!
//! **Problem.** The counters of a cgroup say how many processes were killed, the kernel log says which ones and why. Either may
//! be missing: the kernel limits its messages, a container has no log, and systemd removes a cgroup with its counters.
//!
//! **Rules.** A [`Kill`] of the log becomes a [`Death`] at once. Its processes count against the counters of the tenant. What
//! the counters have beyond that becomes one death of an unknown cause. Log entries that no counter follows
//! expire after [`EXPIRY_TICKS`] without news: the counters went with their cgroup.
//!
//! **Bound.** The last [`LAST_MAX`] deaths of each tenant; the others are counted.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Deaths that are kept of each tenant.
const LAST_MAX: usize = 8;
/// Counters of cgroup v1 inside a tenant's are searched now and then, so they may follow late.
const EXPIRY_TICKS: u32 = 30;

/// Owner of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LimitOf {
    /// The job itself: its declared memory.
    Job,
    /// A cgroup of the tenant, or inside.
    Inside,
    /// A tenant or group: `limit.memory` of the policy.
    #[default]
    Policy,
    /// A cgroup above the tenant.
    Above,
}

/// Cause of a kill.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Killer {
    /// The host had no memory left.
    Host,
    /// The limit of a cgroup was reached.
    Limit {
        /// Its owner.
        of: LimitOf,
        /// The cgroup, below the mount; of a limit of the policy the path of the tenant or group.
        cgroup: String,
        /// The limit in bytes; `None` if it could not be read.
        bytes: Option<u64>,
    },
    /// systemd-oomd ended a unit because of memory pressure.
    Oomd,
    /// Only the counters of the cgroup show it.
    #[default]
    Unknown,
}

/// A killed process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Victim {
    /// Its number.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its name in the kernel.
    pub program: String,
}

/// A kill, as the agent found it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kill {
    /// Number of its job.
    pub job: Option<u64>,
    /// Cgroup of the victim, below the mount; empty if unknown.
    pub cgroup: String,
    /// The victim.
    pub victim: Option<Victim>,
    /// Processes killed, as the counters of the cgroup count them.
    pub nr_kills: u64,
    /// Resident memory of these processes.
    pub held_bytes: Option<u64>,
    /// The cause.
    pub killer: Killer,
    /// True if these are more processes of the last kill.
    pub is_more: bool,
}

/// A kill with the figures of its tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Death {
    /// Number among the deaths of its tenant, from 1.
    pub number: u64,
    /// Tick time at which it was found.
    pub at: Duration,
    /// The kill.
    pub kill: Kill,
    /// Memory of the tenant in the last samples around the kill.
    pub used_bytes: Option<f64>,
    /// Share of the tenant if all tenants want everything.
    pub share_bytes: f64,
}

/// Deaths of one tenant since the agent started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Deaths {
    last: Vec<Death>,
    nr_all: u64,
    nr_counted: u64,
    /// Kills of the log that the counters do not have yet.
    nr_ahead: u64,
    nr_quiet_ticks: u32,
    /// Time of the last tick.
    now: Duration,
}

impl Deaths {
    /// Adds the kills since the last tick, where the counters have `nr_counted` kills in all. `draft` has the figures of the
    /// tenant.
    pub(crate) fn note(
        &mut self,
        kills: Vec<Kill>,
        nr_counted: u64,
        now: Duration,
        draft: impl Fn() -> Death,
    ) {
        self.now = now;
        let nr_new = nr_counted.saturating_sub(self.nr_counted);
        self.nr_counted = nr_counted;
        if kills.is_empty() && nr_new == 0 {
            self.nr_quiet_ticks = self.nr_quiet_ticks.saturating_add(1);
            if self.nr_quiet_ticks > EXPIRY_TICKS {
                self.nr_ahead = 0;
            }
            return;
        }
        self.nr_quiet_ticks = 0;
        for kill in kills {
            self.nr_ahead = self.nr_ahead.saturating_add(kill.nr_kills);
            self.push(kill, &draft);
        }
        let nr_unknown = nr_new.saturating_sub(self.nr_ahead);
        self.nr_ahead = self.nr_ahead.saturating_sub(nr_new);
        if nr_unknown > 0 {
            self.push(Kill { nr_kills: nr_unknown, ..Kill::default() }, &draft);
        }
    }

    fn push(&mut self, kill: Kill, draft: impl Fn() -> Death) {
        if let (true, Some(last)) = (kill.is_more, self.last.last_mut()) {
            last.kill.nr_kills = last.kill.nr_kills.saturating_add(kill.nr_kills);
            let held = last.kill.held_bytes.zip(kill.held_bytes).map(|(a, b)| a.saturating_add(b));
            last.kill.held_bytes = held.or(last.kill.held_bytes);
            return;
        }
        self.nr_all += 1;
        if self.last.len() == LAST_MAX {
            self.last.remove(0);
        }
        self.last.push(Death { number: self.nr_all, at: self.now, kill, ..draft() });
    }

    /// The last deaths, oldest first.
    pub fn last(&self) -> &[Death] {
        &self.last
    }

    /// The last deaths after the one with this number, oldest first.
    pub fn after(&self, number: u64) -> impl Iterator<Item = &Death> {
        self.last.iter().filter(move |death| death.number > number)
    }

    /// The deaths that the last tick found.
    pub fn newest(&self) -> impl Iterator<Item = &Death> {
        self.last.iter().filter(|death| death.at == self.now)
    }

    /// Time of the last tick.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// All deaths since the agent started.
    pub fn nr_all(&self) -> u64 {
        self.nr_all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kill(nr_kills: u64) -> Kill {
        Kill { killer: Killer::Host, nr_kills, ..Kill::default() }
    }

    fn note(deaths: &mut Deaths, kills: Vec<Kill>, nr_counted: u64) -> Vec<(Killer, u64)> {
        let before = deaths.nr_all();
        deaths.note(kills, nr_counted, Duration::ZERO, Death::default);
        deaths.after(before).map(|it| (it.kill.killer.clone(), it.kill.nr_kills)).collect()
    }

    #[test]
    fn a_death_of_the_log_and_of_the_counters_is_one() {
        let mut deaths = Deaths::default();
        assert_eq!(note(&mut deaths, vec![], 0), []);
        assert_eq!(note(&mut deaths, vec![kill(1)], 1), [(Killer::Host, 1)]);
        // The counters follow a tick later.
        assert_eq!(note(&mut deaths, vec![kill(2)], 1), [(Killer::Host, 2)]);
        assert_eq!(note(&mut deaths, vec![], 3), []);
        // The log has nothing, or not all.
        assert_eq!(note(&mut deaths, vec![], 4), [(Killer::Unknown, 1)]);
        assert_eq!(note(&mut deaths, vec![kill(1)], 7), [(Killer::Host, 1), (Killer::Unknown, 2)]);
        assert_eq!(deaths.nr_all(), 5);
    }

    #[test]
    fn a_kill_that_no_counter_follows_hides_no_later_one() {
        let mut deaths = Deaths::default();
        note(&mut deaths, vec![kill(3)], 0);
        for _ in 0..=EXPIRY_TICKS {
            assert_eq!(note(&mut deaths, vec![], 0), []);
        }
        assert_eq!(note(&mut deaths, vec![], 1), [(Killer::Unknown, 1)]);
    }

    #[test]
    fn a_group_that_is_read_in_parts_is_one_death_and_few_are_kept() {
        let mut deaths = Deaths::default();
        note(&mut deaths, vec![kill(2)], 2);
        assert_eq!(note(&mut deaths, vec![Kill { is_more: true, ..kill(3) }], 5), []);
        assert_eq!((deaths.last().len(), deaths.last()[0].kill.nr_kills), (1, 5));
        (0..100).for_each(|at| drop(note(&mut deaths, vec![kill(1)], 6 + at)));
        assert_eq!((deaths.last().len(), deaths.nr_all()), (LAST_MAX, 101));
    }
}
