//! How long may be waited for systemd while units are given back, and a sign of life meanwhile.
//!
//! A tick never waits for systemd, but what puts units back has to: it is over when everything is as it was. At a
//! start, at a stop and for `tenantd --restore` it takes the time that it takes. Between two ticks, for a
//! reload, a mode or a restore that somebody asked for, it must not: nothing is sampled meanwhile, whoever asked
//! waits for an answer, and the service manager's watchdog bites. So there is an end to it, for all units
//! together and well before either of these loses deadline; what was not put back by then stays in the journal,
//! is told as a failure, and is tried again when it is asked for again and at the stop.

use std::time::{Duration, Instant};

use crate::host::notify::Notifier;
use crate::host::systemd::{UnitError, messenger};

/// The most that a change between two ticks may wait: half of what `tenantctl` waits for an answer.
const CHANGE_TIME: Duration = Duration::from_secs(15);

/// How long may be waited in all.
#[derive(Clone, Copy, Debug)]
pub(in crate::daemon) struct Deadline<'a> {
    /// Until when, and how long that was at first.
    limit: Option<(Instant, Duration)>,
    notifier: &'a Notifier,
}

impl<'a> Deadline<'a> {
    /// As long as it takes.
    pub(in crate::daemon) fn unlimited(notifier: &'a Notifier) -> Deadline<'a> {
        Deadline { limit: None, notifier }
    }

    /// For a change that is made between two ticks, from now on.
    pub(in crate::daemon) fn between_ticks(notifier: &'a Notifier) -> Deadline<'a> {
        let watchdog = notifier.watchdog().map(|watchdog| watchdog / 2);
        let most = watchdog.map_or(CHANGE_TIME, |most| most.min(CHANGE_TIME));
        Deadline { limit: Some((Instant::now() + most, most)), notifier }
    }

    /// How long the next order may take; tells whoever watches that this is no standstill.
    ///
    /// # Errors
    /// [`UnitError::Late`]: the time is over.
    pub(in crate::daemon) fn for_an_order(&self) -> Result<Duration, UnitError> {
        self.notifier.beat();
        let Some((until, most)) = self.limit else { return Ok(messenger::DEADLINE) };
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
