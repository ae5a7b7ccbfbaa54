//! Orders to systemd, and their answers.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use super::property::{Property, Setting};

/// A request to systemd.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Requests the state of a unit, which is loaded if possible; answered by [`Reply::Unit`].
    Look {
        /// The unit.
        unit: String,
    },
    /// Starts a slice; one without a unit file is transient, and leaves nothing when stopped.
    StartSlice {
        /// The slice.
        unit: String,
        /// Description in `systemctl status`.
        description: String,
    },
    /// Starts a transient scope with an existing process, which systemd moves into it. It may arrive after the
    /// answer.
    StartScope {
        /// The scope.
        unit: String,
        /// The slice that contains it, which is started if it does not run.
        slice: String,
        /// Description in `systemctl status`.
        description: String,
        /// The process.
        process: ScopeProcess,
        /// Its properties and their values.
        settings: Vec<Setting>,
        /// Patterns of the devices that it may open; `None` for all.
        devices: Option<Vec<String>>,
    },
    /// Replaces the devices that a scope may open.
    SetDevices {
        /// The scope.
        unit: String,
        /// Patterns of these devices.
        devices: Vec<String>,
    },
    /// Sets properties at run time, all in one call.
    Set {
        /// The unit.
        unit: String,
        /// The properties and their values.
        settings: Vec<Setting>,
    },
    /// Restores the text of existing drop-ins of a unit that does not run; see [`Order::Reload`].
    Rewrite {
        /// The unit.
        unit: String,
        /// The properties and the texts.
        drop_ins: Vec<(Property, String)>,
    },
    /// Removes the drop-ins of properties that were set at run time; see [`Order::Reload`].
    Forget {
        /// The unit.
        unit: String,
        /// The properties.
        properties: Vec<Property>,
    },
    /// Restores the text of a drop-in with exactly this setting, or removes it if there was none before; leaves
    /// one with another setting. See [`Order::Reload`].
    ForgetOurs {
        /// The unit.
        unit: String,
        /// The setting.
        ours: Setting,
        /// The text.
        before: Option<String>,
    },
    /// Makes systemd read its configuration again.
    Reload,
    /// Lists running units whose names match any of these patterns; answered by [`Reply::Running`].
    List {
        /// Patterns with `*` and `?`.
        patterns: Vec<String>,
    },
    /// Requests the results of the host's services since the last such order; answered by [`Reply::Results`].
    Watch,
    /// Stops a unit, and with it everything that requires it; refused if one of them is about to start.
    Stop {
        /// The unit.
        unit: String,
    },
}

impl Order {
    /// The unit it concerns.
    pub fn unit(&self) -> &str {
        match self {
            Order::Look { unit }
            | Order::StartSlice { unit, .. }
            | Order::StartScope { unit, .. }
            | Order::Set { unit, .. }
            | Order::SetDevices { unit, .. }
            | Order::Rewrite { unit, .. }
            | Order::Forget { unit, .. }
            | Order::ForgetOurs { unit, .. }
            | Order::Stop { unit } => unit,
            Order::Reload | Order::Watch | Order::List { .. } => "",
        }
    }
}

/// Process that a scope begins with.
#[derive(Clone, Debug)]
pub struct ScopeProcess {
    /// Its number, which another process may have by the time systemd moves it.
    pub pid: u32,
    /// Its pidfd, which always means this process; `None` if the kernel has none.
    pub handle: Option<Arc<OwnedFd>>,
}

impl PartialEq for ScopeProcess {
    fn eq(&self, other: &ScopeProcess) -> bool {
        let handles = (self.handle.as_ref(), other.handle.as_ref());
        self.pid == other.pid && handles.0.map(Arc::as_ptr) == handles.1.map(Arc::as_ptr)
    }
}

/// Result of a successful order.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// Systemd reported success; only the file shows that a value has arrived.
    Done,
    /// No file had to be changed, so systemd need not read its configuration again.
    Unchanged,
    /// State of a unit.
    Unit(UnitState),
    /// Results of services and scopes that changed, oldest first.
    Results(Vec<RunResult>),
    /// Names of units that run, start or stop.
    Running(Vec<String>),
}

/// Result of the last or present run of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunResult {
    /// The unit.
    pub unit: String,
    /// True if the run ended by an OOM kill (`Result` is `oom-kill`), until the next start.
    pub is_oom_kill: bool,
}

/// State of a unit in systemd.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnitState {
    /// Systemd's name of the unit. It may have others; its drop-ins are found under this one only.
    pub id: String,
    /// True if there is such a unit (`LoadState` is `loaded`).
    pub is_loaded: bool,
    /// True if it runs, starts or stops (`ActiveState`).
    pub is_active: bool,
    /// True if it exists only until it is stopped.
    pub is_transient: bool,
    /// Identity of one life of a transient unit, to distinguish it from the next of the same name. Settings
    /// outlast a restart, and end when the unit is unloaded. Empty for a unit with a file.
    pub life: String,
    /// Cgroup below the mount, beginning with `/`; empty if it has none.
    pub cgroup: String,
    /// As [`RunResult::is_oom_kill`].
    pub is_oom_kill: bool,
    /// Units that stop when it stops; those in a slice are among them.
    pub required_by: Vec<String>,
    /// Values of its properties; empty for a unit that does not run.
    pub held: Vec<Held>,
}

impl UnitState {
    /// True if it runs and is not loaded.
    pub fn is_unloaded(&self) -> bool {
        self.is_active && !self.is_loaded && !self.cgroup.is_empty()
    }

    /// True if this life of a transient unit has ended. A unit that is not loaded has no file that identifies its
    /// life; it cannot be restarted either.
    pub fn has_ended(&self, life: &str) -> bool {
        !life.is_empty() && life != self.life && !self.is_unloaded()
    }
}

/// Value of one property of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The property and its value.
    pub setting: Setting,
    /// Text of its drop-in, if it was set at run time.
    pub drop_in: Option<String>,
}

/// An order with its outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The order.
    pub order: Order,
    /// The outcome.
    pub outcome: Result<Reply, UnitError>,
}

/// Reason for a failed order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// The bus cannot be reached, or went away: try again later.
    #[error("systemd cannot be reached over D-Bus: {0}")]
    Away(String),
    /// The bus is there and no answer came in time; the outcome is unknown.
    #[error("systemd has not answered for {} s", .0.as_secs())]
    Late(Duration),
    /// There is no such unit, or it was unloaded meanwhile.
    #[error("systemd knows no unit {0}")]
    NoSuchUnit(String),
    /// Not permitted.
    #[error("not permitted to change {unit}: {message}; run as root")]
    Denied {
        /// The unit.
        unit: String,
        /// Systemd's message.
        message: String,
    },
    /// Systemd refused it for another reason.
    #[error("systemd refused for {unit}: {message}")]
    Refused {
        /// The unit.
        unit: String,
        /// Systemd's message.
        message: String,
    },
}

impl UnitError {
    /// True if the error is about the bus and not about a unit: every other order would fail as well.
    pub fn is_about_the_bus(&self) -> bool {
        matches!(self, UnitError::Away(_) | UnitError::Late(_))
    }
}

/// Interval of asking `timeout` again during a wait, which tells the service manager that the work goes on.
const PART: Duration = Duration::from_secs(5);

/// Executes orders: systemd, or a simulation of it.
///
/// Answers come in the order of the orders, one for each.
pub trait UnitManager: fmt::Debug {
    /// Submits an order. Never waits.
    fn submit(&mut self, order: Order);

    /// Number of submitted orders whose answers were not taken yet.
    fn nr_unanswered(&self) -> usize;

    /// Returns the next answer if it comes within `timeout`; never waits if no order is outstanding.
    fn answer(&mut self, timeout: Duration) -> Option<Answer>;
}

/// Submits `orders` and waits for their answers, for each at most as long as `timeout` returns, which is asked
/// again every few seconds. Outcomes are in the order of the orders; once one is late, so are those behind it.
///
/// Answers to earlier orders are dropped, after an equal wait for each: a thousand may still be outstanding.
/// They are identified by their number, because an earlier order may equal one of these and have another
/// outcome.
pub fn carry_out_all(
    units: &mut dyn UnitManager,
    orders: Vec<Order>,
    mut timeout: impl FnMut() -> Result<Duration, UnitError>,
) -> Vec<Result<Reply, UnitError>> {
    // Without time left, nothing is begun.
    if let Err(error) = timeout() {
        return orders.iter().map(|_| Err(error.clone())).collect();
    }
    let (nr_earlier, nr_orders) = (units.nr_unanswered(), orders.len());
    orders.into_iter().for_each(|order| units.submit(order));
    let mut late: Option<UnitError> = None;
    let outcome = |_| {
        if let Some(error) = &late {
            return Err(error.clone());
        }
        await_answer(units, &mut timeout).unwrap_or_else(|error| {
            late = Some(error.clone());
            Err(error)
        })
    };
    (0..nr_earlier + nr_orders).map(outcome).collect::<Vec<_>>().split_off(nr_earlier)
}

fn await_answer(
    units: &mut dyn UnitManager,
    timeout: &mut impl FnMut() -> Result<Duration, UnitError>,
) -> Result<Result<Reply, UnitError>, UnitError> {
    let (most, mut waited) = (timeout()?, Duration::ZERO);
    loop {
        let part = most.saturating_sub(waited).min(PART);
        match units.answer(part) {
            Some(answer) => return Ok(answer.outcome),
            None if waited + part >= most => return Err(UnitError::Late(most)),
            None => {
                waited += part;
                timeout()?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers every order or none, the first ones with a failure, and records the waits.
    #[derive(Debug, Default)]
    struct Slow {
        hangs: bool,
        nr_failing: usize,
        orders: Vec<Order>,
        waits: Vec<Duration>,
    }

    impl UnitManager for Slow {
        fn submit(&mut self, order: Order) {
            self.orders.push(order);
        }

        fn nr_unanswered(&self) -> usize {
            self.orders.len()
        }

        fn answer(&mut self, timeout: Duration) -> Option<Answer> {
            self.waits.push(timeout);
            if self.hangs {
                return None;
            }
            let order = self.orders.remove(0);
            let is_failing = self.nr_failing > 0;
            self.nr_failing = self.nr_failing.saturating_sub(1);
            let outcome = if is_failing { Err(UnitError::Late(PART)) } else { Ok(Reply::Done) };
            Some(Answer { order, outcome })
        }
    }

    #[test]
    fn earlier_orders_take_no_time_from_later_ones() {
        let mut units = Slow::default();
        let look = |unit: usize| Order::Look { unit: unit.to_string() };
        (0..1000).for_each(|unit| units.submit(look(unit)));
        let timeout = PART / 2;
        let outcomes = carry_out_all(&mut units, vec![look(1000), look(1001)], || Ok(timeout));
        assert_eq!(outcomes, [Ok(Reply::Done), Ok(Reply::Done)]);
        assert_eq!(units.waits, [timeout; 1002]);
    }

    /// An earlier answer of systemd may be outdated.
    #[test]
    fn the_answer_to_an_earlier_order_that_is_the_same_is_dropped() {
        let look = || Order::Look { unit: "web".into() };
        let mut units = Slow { nr_failing: 1, ..Slow::default() };
        units.submit(look());
        let outcomes = carry_out_all(&mut units, vec![look()], || Ok(PART));
        assert_eq!(outcomes, [Ok(Reply::Done)]);
        assert_eq!(units.nr_unanswered(), 0);
    }

    /// The service manager treats an agent that is silent for long as hanging.
    #[test]
    fn a_long_wait_is_one_of_many_parts() {
        let mut units = Slow { hangs: true, ..Slow::default() };
        let (most, mut nr_signs) = (PART * 5 / 2, 0);
        let timeout = || {
            nr_signs += 1;
            Ok(most)
        };
        let outcomes = carry_out_all(&mut units, vec![Order::Reload, Order::Reload], timeout);
        assert_eq!(outcomes, vec![Err(UnitError::Late(most)); 2]);
        assert_eq!(units.waits, [PART, PART, PART / 2]);
        // Once before the begin, and once before each part.
        assert_eq!(nr_signs, 4);
    }
}
