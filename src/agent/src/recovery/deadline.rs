//! The deadline for systemd during the restoration of units, and signs of life meanwhile.
//!
//! A tick never waits for systemd, but a restoration must wait until everything is as before. A start, a stop
//! and `tenantd --restore` have no limit; the service manager is asked to wait as long as the work goes on. A
//! requested reload, mode or restore between two ticks needs a limit: meanwhile nothing is sampled, the client
//! waits for an answer, and the watchdog of the service manager runs. One deadline therefore holds for all
//! units together, well before the client or the watchdog gives up. Values not restored by then stay in the
//! journal, are reported as failures, and are tried again at the next request and at the stop.

use std::time::{Duration, Instant};

use tenantd_host::notify::Notifier;
use tenantd_host::systemd::{UnitError, messenger};

/// Longest wait of a change between two ticks: half of the time that `tenantctl` waits for an answer.
const CHANGE_TIME: Duration = Duration::from_secs(15);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline<'a> {
    limit: Option<(Instant, Duration)>,
    notifier: &'a Notifier,
}

impl<'a> Deadline<'a> {
    pub(crate) fn unlimited(notifier: &'a Notifier) -> Deadline<'a> {
        Deadline { limit: None, notifier }
    }

    pub(crate) fn between_ticks(notifier: &'a Notifier) -> Deadline<'a> {
        let watchdog = notifier.watchdog().map(|watchdog| watchdog / 2);
        let most = watchdog.map_or(CHANGE_TIME, |most| most.min(CHANGE_TIME));
        Deadline { limit: Some((Instant::now() + most, most)), notifier }
    }

    /// Longest wait for the next order. Notifies the watchdog, and extends the time-out of a start or a stop.
    /// Fails with [`UnitError::Late`] after the deadline.
    pub(crate) fn for_an_order(&self) -> Result<Duration, UnitError> {
        self.notifier.beat();
        let Some((until, most)) = self.limit else {
            // Time for one order, and for the work before the next.
            self.notifier.extend(messenger::DEADLINE * 2);
            return Ok(messenger::DEADLINE);
        };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(UnitError::Late(most)) } else { Ok(left.min(messenger::DEADLINE)) }
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
