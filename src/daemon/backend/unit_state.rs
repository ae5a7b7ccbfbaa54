//! What is known of the unit of one node.
//!
//! The actions on it are in [`super::systemd`] and [`super::unit_orders`].

use crate::control::plan::{Action, Knob, Value};
use crate::host::systemd::Held;

/// A unit that is missing is looked for again after 1, 2, 4 … at most this many ticks. One that ran before is
/// found by its cgroup as soon as it runs again.
const LOOK_TICKS_MAX: u64 = 64;
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
    /// The invocation of the unit, where settings end with it.
    pub(super) life: String,
    pub(super) held: Vec<Held>,
    /// When `held` was read.
    pub(super) looked_at: u64,
    pub(super) is_looking: bool,
    pub(super) pending: Option<Pending>,
    /// The last request for each knob.
    pub(super) ordered: Vec<(Knob, Value)>,
    /// A protection that was lowered in the file and that systemd was not asked for yet.
    pub(super) lowered: Option<Action>,
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
    /// When systemd reported the job as done.
    pub(super) answered_at: Option<u64>,
}

impl UnitState {
    pub(super) fn new(unit: &str, is_slice: bool) -> UnitState {
        UnitState {
            name: unit.to_string(),
            unit: unit.to_string(),
            is_slice,
            phase: Phase::Missing { look_at: 0 },
            cgroup: String::new(),
            life: String::new(),
            held: Vec::new(),
            looked_at: 0,
            is_looking: false,
            pending: None,
            ordered: Vec::new(),
            lowered: None,
            nr_misses: 0,
            message: None,
        }
    }

    /// It is missing: look again later, and report the reason until then.
    pub(super) fn miss(&mut self, tick: u64, why: String) {
        let pause = (1_u64 << self.nr_misses.min(8)).min(LOOK_TICKS_MAX);
        self.nr_misses = self.nr_misses.saturating_add(1);
        self.phase = Phase::Missing { look_at: tick + pause };
        self.lowered = None;
        self.message = Some(why);
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
            pending.answered_at.get_or_insert(0);
        }
    }
}
