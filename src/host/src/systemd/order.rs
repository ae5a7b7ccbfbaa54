//! What is asked of systemd, and what comes of it.

use std::fmt;
use std::time::Duration;

use super::property::{Property, Setting};

/// One thing asked of systemd.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// What does systemd know of this unit? It is loaded where it can be; answered by [`Reply::Unit`].
    Look {
        /// The unit.
        unit: String,
    },
    /// Starts a slice; one without a unit file is transient, and leaves nothing when stopped.
    StartSlice {
        /// The slice.
        unit: String,
        /// What `systemctl status` calls it.
        description: String,
    },
    /// Starts a transient scope with processes that are there, which systemd moves into it. That it was accepted does not
    /// say that they are there yet.
    StartScope {
        /// The scope.
        unit: String,
        /// The slice that it is in, which is started where it does not run.
        slice: String,
        /// What `systemctl status` calls it.
        description: String,
        /// The processes.
        pids: Vec<u32>,
        /// Its properties and their values.
        settings: Vec<Setting>,
    },
    /// Sets properties at run time, all in one call.
    Set {
        /// The unit.
        unit: String,
        /// The properties and their values.
        settings: Vec<Setting>,
    },
    /// Gives drop-ins of a unit that does not run, where there are any, the text that they had; see
    /// [`Order::Reload`].
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
    /// Gives the drop-in that says exactly this setting the text that it had before, or removes it where there was
    /// none; leaves one that says something else. See [`Order::Reload`].
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
    /// Which units run whose names fit any of these patterns? Answered by [`Reply::Running`].
    List {
        /// With `*` and `?`.
        patterns: Vec<String>,
    },
    /// What became of the services of the host since the last such order? Answered by [`Reply::Results`].
    Watch,
    /// Stops a unit, and with it everything that requires it; refused where one of them is about to start.
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
            | Order::Rewrite { unit, .. }
            | Order::Forget { unit, .. }
            | Order::ForgetOurs { unit, .. }
            | Order::Stop { unit } => unit,
            Order::Reload | Order::Watch | Order::List { .. } => "",
        }
    }
}

/// What a successful order gives.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// It was done, as far as systemd says; whether a value arrived, the file tells.
    Done,
    /// What systemd knows of a unit.
    Unit(UnitState),
    /// The results of services and scopes that changed, oldest first.
    Results(Vec<RunResult>),
    /// The names of units that run, or are on their way from or to it.
    Running(Vec<String>),
}

/// What systemd says of the last run of a unit, or of the present one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunResult {
    /// The unit.
    pub unit: String,
    /// Whether it ended because one of its processes was killed for want of memory (`Result` is `oom-kill`);
    /// until it is started again.
    pub is_oom_kill: bool,
}

/// What systemd knows of a unit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnitState {
    /// The name that systemd calls it by; it may have others, and its drop-ins are found under this one alone.
    pub id: String,
    /// Whether there is such a unit (`LoadState` is `loaded`).
    pub is_loaded: bool,
    /// Whether it runs (`ActiveState` is `active`, or on its way from or to it).
    pub is_active: bool,
    /// Whether it exists only until it is stopped.
    pub is_transient: bool,
    /// Tells one life of a transient unit from the next of the same name, and not one run from the next: what was
    /// set of it outlasts a restart, and goes when it is unloaded. Empty for a unit that has a file.
    pub life: String,
    /// Its cgroup from the mount, beginning with `/`; empty where it has none.
    pub cgroup: String,
    /// As [`RunResult::is_oom_kill`].
    pub is_oom_kill: bool,
    /// The units that stop when it stops: those in a slice are among them.
    pub required_by: Vec<String>,
    /// What its properties hold; of a unit that does not run nothing is told.
    pub held: Vec<Held>,
}

/// What one property of a unit holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The property and its value.
    pub setting: Setting,
    /// The text of its drop-in, where it was set at run time.
    pub drop_in: Option<String>,
}

/// An order, and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The order.
    pub order: Order,
    /// What systemd said.
    pub outcome: Result<Reply, UnitError>,
}

/// Why systemd did not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// The bus cannot be reached, or went away: try again later.
    #[error("systemd cannot be reached over D-Bus: {0}")]
    Away(String),
    /// The bus is there and nothing came back in time: whether it was done is not known.
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
        /// What systemd said.
        message: String,
    },
    /// Systemd refused it for another reason.
    #[error("systemd refused for {unit}: {message}")]
    Refused {
        /// The unit.
        unit: String,
        /// What systemd said.
        message: String,
    },
}

impl UnitError {
    /// Whether it is about the bus and not about a unit: every other order would fail as well.
    pub fn is_about_the_bus(&self) -> bool {
        matches!(self, UnitError::Away(_) | UnitError::Late(_))
    }
}

/// While an answer is awaited, `timeout` is asked again this often: that tells the service manager that the work
/// goes on.
const PART: Duration = Duration::from_secs(5);

/// Executes orders: systemd, or a simulation of it.
///
/// Answers come in the order of the orders, one for each.
pub trait UnitManager: fmt::Debug {
    /// Hands in an order. Never waits.
    fn submit(&mut self, order: Order);

    /// How many orders were handed in whose answers were not taken yet.
    fn nr_unanswered(&self) -> usize;

    /// The next answer, if it comes within `timeout`; with none it never waits.
    fn answer(&mut self, timeout: Duration) -> Option<Answer>;
}

/// Hands in `orders` and waits for their answers, for each at most as long as `timeout` returns, which is asked again
/// every few seconds. Answers to earlier orders are dropped, and each of them is waited for as long: a thousand may
/// still be on their way. They are told by their number: an earlier order may be the same as one of these, and what
/// came of it is not what comes of this one. The outcomes are in the order of the orders; once one is late, so are
/// those behind it.
pub fn carry_out_all(
    units: &mut dyn UnitManager,
    orders: Vec<Order>,
    mut timeout: impl FnMut() -> Result<Duration, UnitError>,
) -> Vec<Result<Reply, UnitError>> {
    // What there is no time for is not begun.
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

/// # Errors
/// [`UnitError::Late`].
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

    /// Answers every order or none, the first ones with a failure, and notes how long it was waited for.
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

    /// What systemd said of a unit before says nothing of it now.
    #[test]
    fn the_answer_to_an_earlier_order_that_is_the_same_is_dropped() {
        let look = || Order::Look { unit: "web".into() };
        let mut units = Slow { nr_failing: 1, ..Slow::default() };
        units.submit(look());
        let outcomes = carry_out_all(&mut units, vec![look()], || Ok(PART));
        assert_eq!(outcomes, [Ok(Reply::Done)]);
        assert_eq!(units.nr_unanswered(), 0);
    }

    /// The service manager takes an agent that says nothing for long for one that hangs.
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
        // Once before anything is begun, and once before each part.
        assert_eq!(nr_signs, 4);
    }
}
