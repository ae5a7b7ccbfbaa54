//! State of the unit of one node.
//!
//! The actions on it are in [`super::systemd`] and [`super::unit_orders`].

use std::collections::BTreeSet;
use std::time::Duration;

use tenantd_control::words::knob::{Action, Knob, Value};
use tenantd_core::node::NodeId;
use tenantd_host::enforce::taken;
use tenantd_host::systemd::{self, Held, Property};

/// A missing unit is looked for, and a refusal is retried, after 1, 2, 4 … at most this many ticks. A unit that
/// ran before is found by its cgroup as soon as it runs again.
const PAUSE_TICKS_MAX: u64 = 64;
const REQUESTS_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct UnitState {
    /// Name in the policy, which may be an alias of systemd's name.
    pub(super) name: String,
    /// Systemd's own name, once known. Its drop-ins are found under this name only.
    pub(super) unit: String,
    /// True for a tenant's slice, which is started if it is missing.
    pub(super) is_slice: bool,
    pub(super) phase: Phase,
    pub(super) cgroup: String,
    /// Last cgroup; stays when the unit ends.
    pub(super) home: String,
    /// Identity of one life of a transient unit, with which its settings end; else empty.
    pub(super) life: String,
    pub(super) held: Vec<Held>,
    /// Tick of reading `held`.
    pub(super) looked_at: u64,
    /// True if its cgroup was open at that reading, which is then of the unit with this cgroup.
    pub(super) is_certain: bool,
    pub(super) is_looking: bool,
    /// Values in files that differed from systemd's report, and about which it was asked again.
    pub(super) asked_about: Vec<(Knob, Value)>,
    pub(super) pending: Option<Pending>,
    pub(super) ordered: Requests,
    /// Knobs of which systemd carried out an order of this agent: their drop-ins have a value that was ordered.
    pub(super) carried_out: BTreeSet<Knob>,
    /// Values written to files to relieve the host that were not ordered yet, or were refused.
    pub(super) relieved: Vec<Action>,
    /// Consecutive refusals of such an order, and the tick of the next try.
    pub(super) relief_refused: (u32, u64),
    pub(super) kills: Kills,
    pub(super) nr_misses: u32,
    pub(super) message: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Missing { look_at: u64 },
    Asked,
    There,
}

#[derive(Debug)]
pub(super) struct Pending {
    pub(super) actions: Vec<Action>,
    /// Properties journaled for this order; unchanged until it is done.
    pub(super) recorded: Vec<Property>,
    /// Knobs whose values were added to the list of ordered values for this order.
    pub(super) added: Vec<Knob>,
    /// Values already in the files, to relieve the host.
    pub(super) relieved: Vec<Knob>,
    pub(super) answered_at: Option<Duration>,
}

/// Runs of a unit that ended by an OOM kill, as reported by systemd.
#[derive(Debug, Default)]
pub(super) struct Kills {
    was_killed: Option<bool>,
    pub(super) nr_new: u64,
}

impl Kills {
    /// Ignores a kill from before the unit was first looked at.
    pub(super) fn begin(&mut self, is_killed: bool) {
        self.was_killed.get_or_insert(is_killed);
    }

    /// Counts a kill only when the result changes; a start resets it.
    pub(super) fn note(&mut self, is_killed: bool) {
        self.nr_new += u64::from(is_killed && self.was_killed == Some(false));
        self.was_killed = Some(is_killed);
    }
}

/// Values ordered from systemd and not refused, oldest first, each until a later one of its knob has arrived.
///
/// On a busy host a value may arrive seconds after it was given up and another one was ordered. It is not a
/// foreign value.
#[derive(Debug, Default)]
pub(super) struct Requests(Vec<(Knob, Value)>);

impl Requests {
    /// Returns false if it is the last value of this knob already.
    pub(super) fn add(&mut self, knob: Knob, value: Value) -> bool {
        let is_new = self.last(knob) != Some(&value);
        if is_new {
            if self.0.len() == REQUESTS_MAX {
                self.0.remove(0);
            }
            self.0.push((knob, value));
        }
        is_new
    }

    /// Removes a value that systemd refused.
    fn withdraw(&mut self, knob: Knob, refused: &Value) {
        let is_it = |(known, value): &(Knob, Value)| *known == knob && value == refused;
        if let Some(at) = self.0.iter().rposition(is_it) {
            self.0.remove(at);
        }
    }

    pub(super) fn last(&self, knob: Knob) -> Option<&Value> {
        self.all(knob).next_back()
    }

    pub(super) fn all(&self, knob: Knob) -> impl DoubleEndedIterator<Item = &Value> {
        self.0.iter().filter(move |(known, _)| *known == knob).map(|(_, value)| value)
    }

    pub(super) fn include(&self, knob: Knob, found: &Value) -> bool {
        self.position(knob, found).is_some()
    }

    /// The file holds `found`: earlier orders will not arrive any more.
    pub(super) fn note(&mut self, knob: Knob, found: &Value) {
        let Some(arrived) = self.position(knob, found) else { return };
        let mut at = 0;
        self.0.retain(|(known, _)| {
            at += 1;
            *known != knob || at > arrived
        });
    }

    pub(super) fn forget(&mut self, knob: Knob) {
        self.0.retain(|(known, _)| *known != knob);
    }

    fn position(&self, knob: Knob, found: &Value) -> Option<usize> {
        self.0.iter().position(|(known, value)| *known == knob && taken(found, value))
    }
}

/// Ticks until the next try after this many earlier failures.
fn pause_after(nr_failures: u32) -> u64 {
    (1_u64 << nr_failures.min(8)).min(PAUSE_TICKS_MAX)
}

/// Adds the values of an order that are in the files already, unless a later one of the same knob is queued.
fn queue_relief(relieved: &mut Vec<Action>, order: &Pending) {
    let is_in_file = |action: &&Action| order.relieved.contains(&action.knob);
    for action in order.actions.iter().filter(is_in_file) {
        if relieved.iter().all(|relieved| relieved.knob != action.knob) {
            relieved.push(action.clone());
        }
    }
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
            carried_out: BTreeSet::new(),
            relieved: Vec::new(),
            relief_refused: (0, 0),
            kills: Kills::default(),
            nr_misses: 0,
            message: None,
        }
    }

    /// Marks the unit as missing: looks again later, and reports the reason until then.
    pub(super) fn miss(&mut self, tick: u64, why: String) {
        self.phase = Phase::Missing { look_at: tick + pause_after(self.nr_misses) };
        self.nr_misses = self.nr_misses.saturating_add(1);
        self.relieved.clear();
        self.message = Some(why);
    }

    /// Re-queues values of a refused order that are in the files already. Otherwise systemd would write its old
    /// values with the next order.
    pub(super) fn relieve_again(&mut self, refused: &Pending, tick: u64) {
        queue_relief(&mut self.relieved, refused);
        if !self.relieved.is_empty() {
            let (nr_refusals, _) = self.relief_refused;
            self.relief_refused = (nr_refusals.saturating_add(1), tick + pause_after(nr_refusals));
        }
    }

    /// Forgets the values of a refused order, except those that were ordered or written before as well.
    pub(super) fn withdraw(&mut self, refused: &Pending) {
        for action in refused.actions.iter().filter(|it| refused.added.contains(&it.knob)) {
            self.ordered.withdraw(action.knob, &action.to);
        }
    }

    /// Forgets what was set in a life that `state` shows to be over. Returns true if it is.
    pub(super) fn end_life(&mut self, state: &systemd::UnitState) -> bool {
        let is_over = state.is_active && state.is_loaded && state.has_ended(&self.life);
        if is_over {
            self.life.clear();
            self.ordered = Requests::default();
            self.carried_out.clear();
        }
        is_over
    }

    /// The unit is the cgroup of another node from now on.
    pub(super) fn hand_to(&mut self, node: NodeId) {
        let pending = self.pending.iter_mut().flat_map(|pending| &mut pending.actions);
        pending.chain(&mut self.relieved).for_each(|action| action.node = node);
    }

    pub(super) fn is_outdated(&self, tick: u64) -> bool {
        self.looked_at + 1 < tick || !self.life.is_empty() && !self.is_certain
    }

    /// The connection was lost after the request was done: no reply will come, and earlier readings may be
    /// outdated.
    pub(super) fn miss_answers(&mut self) {
        self.is_looking = false;
        self.looked_at = 0;
        if self.phase == Phase::Asked {
            self.phase = Phase::Missing { look_at: 0 };
        }
        // Systemd may have carried it out or refused it.
        if let Some(pending) = &mut self.pending
            && pending.answered_at.is_none()
        {
            pending.answered_at = Some(Duration::ZERO);
            queue_relief(&mut self.relieved, pending);
        }
    }

    /// Systemd has carried out the pending order.
    pub(super) fn answer_pending(&mut self, time: Duration) {
        if let Some(pending) = &mut self.pending {
            pending.answered_at.get_or_insert(time);
            self.carried_out.extend(pending.actions.iter().map(|action| action.knob));
        }
    }
}
