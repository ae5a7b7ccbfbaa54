//! What is known of the unit of one node.
//!
//! The actions on it are in [`super::systemd`] and [`super::unit_orders`].

use std::time::Duration;

use tenantd_control::plan::{Action, Knob, Value};
use tenantd_host::enforce::taken;
use tenantd_host::systemd::{Held, Property};

/// A unit that is missing is looked for again after 1, 2, 4 … at most this many ticks, and systemd is told again what it
/// refused. A unit that ran before is found by its cgroup as soon as it runs again.
const PAUSE_TICKS_MAX: u64 = 64;
/// No more requests than this are remembered of one unit.
const REQUESTS_MAX: usize = 64;

/// What is known of one unit.
#[derive(Debug)]
pub(super) struct UnitState {
    /// The name in the policy, which may be an alias of systemd's name.
    pub(super) name: String,
    /// Systemd's own name, once it is known. Its drop-ins are found under this name alone.
    pub(super) unit: String,
    /// Whether it is a slice of a tenant, which is started where it is missing.
    pub(super) is_slice: bool,
    pub(super) phase: Phase,
    /// Its cgroup, from the mount.
    pub(super) cgroup: String,
    /// Where that was last; it stays when the unit ends.
    pub(super) home: String,
    /// The invocation of the unit, where settings end with it.
    pub(super) life: String,
    pub(super) held: Vec<Held>,
    /// When `held` was read.
    pub(super) looked_at: u64,
    /// Whether its cgroup was open by then: what was read is of the unit that has this cgroup.
    pub(super) is_certain: bool,
    pub(super) is_looking: bool,
    /// Contents of files that differed from what systemd had said, and about which it was asked again.
    pub(super) asked_about: Vec<(Knob, Value)>,
    pub(super) pending: Option<Pending>,
    pub(super) ordered: Requests,
    /// What was written into the file to relieve the host, and systemd was not asked for yet, or refused.
    pub(super) relieved: Vec<Action>,
    /// How often in a row systemd refused to be told of that, and when it is told again.
    pub(super) relief_refused: (u32, u64),
    pub(super) kills: Kills,
    pub(super) nr_misses: u32,
    pub(super) message: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Looked for at this tick.
    Missing { look_at: u64 },
    /// Looked for, or started, just now.
    Asked,
    /// Its cgroup is there.
    There,
}

/// Values that were requested and have not all arrived.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) actions: Vec<Action>,
    /// The properties whose earlier values were recorded for it: until it is done, nothing of them was changed.
    pub(super) recorded: Vec<Property>,
    /// What is in the files already, to relieve the host.
    pub(super) relieved: Vec<Knob>,
    /// When systemd reported the job as done.
    pub(super) answered_at: Option<Duration>,
}

/// Runs of a unit that ended because one of its processes was killed for want of memory, as systemd tells.
#[derive(Debug, Default)]
pub(super) struct Kills {
    /// Whether the last run ended so, as far as it is known.
    was_killed: Option<bool>,
    /// Since they were last asked for.
    pub(super) nr_new: u64,
}

impl Kills {
    /// What was so when the unit was first looked at is no news.
    pub(super) fn begin(&mut self, is_killed: bool) {
        self.was_killed.get_or_insert(is_killed);
    }

    /// The result changed, or something else while the result stays. A start sets it back.
    pub(super) fn note(&mut self, is_killed: bool) {
        self.nr_new += u64::from(is_killed && self.was_killed == Some(false));
        self.was_killed = Some(is_killed);
    }
}

/// The values that systemd was asked for, oldest first, each until a later one of its knob has arrived.
///
/// On a busy host a value arrives seconds after it was given up and another one was asked for. It is no other
/// program's.
#[derive(Debug, Default)]
pub(super) struct Requests(Vec<(Knob, Value)>);

impl Requests {
    pub(super) fn add(&mut self, knob: Knob, value: Value) {
        if self.last(knob) == Some(&value) {
            return;
        }
        if self.0.len() == REQUESTS_MAX {
            self.0.remove(0);
        }
        self.0.push((knob, value));
    }

    /// The newest one.
    pub(super) fn last(&self, knob: Knob) -> Option<&Value> {
        self.0.iter().rev().find(|(known, _)| *known == knob).map(|(_, value)| value)
    }

    /// Whether `found` is one of them.
    pub(super) fn include(&self, knob: Knob, found: &Value) -> bool {
        self.position(knob, found).is_some()
    }

    /// The file holds `found`: what was asked for before it does not come any more.
    pub(super) fn note(&mut self, knob: Knob, found: &Value) {
        let Some(arrived) = self.position(knob, found) else { return };
        let mut at = 0;
        self.0.retain(|(known, _)| {
            at += 1;
            *known != knob || at > arrived
        });
    }

    /// All of this knob are void.
    pub(super) fn forget(&mut self, knob: Knob) {
        self.0.retain(|(known, _)| *known != knob);
    }

    /// The oldest one that `found` may be.
    fn position(&self, knob: Knob, found: &Value) -> Option<usize> {
        self.0.iter().position(|(known, value)| *known == knob && taken(found, value))
    }
}

/// Ticks until what failed is tried again, after so many failures before this one.
fn pause_after(nr_failures: u32) -> u64 {
    (1_u64 << nr_failures.min(8)).min(PAUSE_TICKS_MAX)
}

impl UnitState {
    pub(super) fn new(unit: &str, is_slice: bool) -> UnitState {
        UnitState {
            name: unit.to_string(),
            unit: unit.to_string(),
            is_slice,
            phase: Phase::Missing { look_at: 0 },
            cgroup: String::new(),
            home: String::new(),
            life: String::new(),
            held: Vec::new(),
            looked_at: 0,
            is_certain: false,
            is_looking: false,
            asked_about: Vec::new(),
            pending: None,
            ordered: Requests::default(),
            relieved: Vec::new(),
            relief_refused: (0, 0),
            kills: Kills::default(),
            nr_misses: 0,
            message: None,
        }
    }

    /// It is missing: look again later, and report the reason until then.
    pub(super) fn miss(&mut self, tick: u64, why: String) {
        self.phase = Phase::Missing { look_at: tick + pause_after(self.nr_misses) };
        self.nr_misses = self.nr_misses.saturating_add(1);
        self.relieved.clear();
        self.message = Some(why);
    }

    /// What of an order that was refused is in the files already: systemd has to be asked for it again, or it would
    /// write what it knows with the next order.
    pub(super) fn relieve_again(&mut self, refused: &Pending, tick: u64) {
        let is_in_file = |action: &&Action| refused.relieved.contains(&action.knob);
        for action in refused.actions.iter().filter(is_in_file) {
            if self.relieved.iter().all(|relieved| relieved.knob != action.knob) {
                self.relieved.push(action.clone());
            }
        }
        if !self.relieved.is_empty() {
            let (nr_refusals, _) = self.relief_refused;
            self.relief_refused = (nr_refusals.saturating_add(1), tick + pause_after(nr_refusals));
        }
    }

    /// Its node has another number in the tree of a new policy.
    pub(super) fn renumber(&mut self, number: usize) {
        let pending = self.pending.iter_mut().flat_map(|pending| &mut pending.actions);
        pending.chain(&mut self.relieved).for_each(|action| action.node = number);
    }

    /// Whether what was read of it may not be what it holds now. One that is gone when it is stopped may have been
    /// another one of its name.
    pub(super) fn is_outdated(&self, tick: u64) -> bool {
        self.looked_at + 1 < tick || !self.life.is_empty() && !self.is_certain
    }

    /// The connection of the request is gone, after all of it was done: no reply comes any more, and earlier
    /// readings may have changed since.
    pub(super) fn miss_answers(&mut self) {
        self.is_looking = false;
        self.looked_at = 0;
        if self.phase == Phase::Asked {
            self.phase = Phase::Missing { look_at: 0 };
        }
        if let Some(pending) = &mut self.pending {
            pending.answered_at.get_or_insert(Duration::ZERO);
        }
    }
}
