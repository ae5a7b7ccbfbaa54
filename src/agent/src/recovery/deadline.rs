//! The deadline for systemd while units are given back, and signs of life meanwhile.
//!
//! A tick never waits for systemd, but giving units back has to: it is done when everything is as it was. At
//! a start, at a stop and for `tenantd --restore` there is no limit, and the service manager is told to wait
//! for as long as the work goes on. Between two ticks, for a reload, a mode
//! or a restore that was requested, there has to be one: nothing is sampled meanwhile, the client waits for
//! an answer, and the watchdog of the service manager runs. So one deadline holds for all units together,
//! well before the client or the watchdog gives up. What was not given back by then stays in the journal, is
//! reported as a failure, and is tried again at the next request and at the stop.

use std::time::{Duration, Instant};

use tenantd_host::notify::Notifier;
use tenantd_host::systemd::{UnitError, messenger};

/// The longest wait of a change between two ticks: half of the time that `tenantctl` waits for an answer.
const CHANGE_TIME: Duration = Duration::from_secs(15);

/// The deadline of all orders together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline<'a> {
    /// The end, and the time from the beginning to it.
    limit: Option<(Instant, Duration)>,
    notifier: &'a Notifier,
}

impl<'a> Deadline<'a> {
    /// No limit.
    pub(crate) fn unlimited(notifier: &'a Notifier) -> Deadline<'a> {
        Deadline { limit: None, notifier }
    }

    /// For a change between two ticks, from now on.
    pub(crate) fn between_ticks(notifier: &'a Notifier) -> Deadline<'a> {
        let watchdog = notifier.watchdog().map(|watchdog| watchdog / 2);
        let most = watchdog.map_or(CHANGE_TIME, |most| most.min(CHANGE_TIME));
        Deadline { limit: Some((Instant::now() + most, most)), notifier }
    }

    /// How long the next order may take; notifies the watchdog, and extends the time-out of a start or a stop.
    ///
    /// # Errors
    /// [`UnitError::Late`]: the deadline has passed.
    pub(crate) fn for_an_order(&self) -> Result<Duration, UnitError> {
        self.notifier.beat();
        let Some((until, most)) = self.limit else {
            // The time for one order, and for what is done before the next.
            self.notifier.extend(messenger::DEADLINE * 2);
            return Ok(messenger::DEADLINE);
        };
        let left = until.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(UnitError::Late(most)),
            false => Ok(left.min(messenger::DEADLINE)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_over_well_before_the_watchdog_bites_and_the_client_leaves() {
        for (watchdog, most) in [(None, 15), (Some(30), 15), (Some(10), 5), (Some(300), 15)] {
            let watchdog = watchdog.map(Duration::from_secs);
            let notifier = match watchdog {
                Some(watchdog) => Notifier::default().with_watchdog(watchdog),
                None => Notifier::default(),
            };
            let left = Deadline::between_ticks(&notifier).for_an_order().unwrap();
            assert!(left <= Duration::from_secs(most), "{watchdog:?}: {left:?}");
            assert_eq!(Deadline::unlimited(&notifier).for_an_order(), Ok(messenger::DEADLINE));
        }
    }
}
