//! Memory that is scarce: who gives some back, and what the agent withdraws while the whole host waits.

use std::time::Duration;

use super::ControlLoop;
use crate::control::demand;
use crate::control::finding::{Code, Finding};
use crate::control::memory_alarm::Stage;
use crate::control::plan::{Knob, Value};
use crate::control::sample::HostSample;
use crate::control::squeeze::{self, Holding, Squeeze};
use crate::control::state::NodeState;
use crate::control::target::Target;
use crate::resource::MEMORY;

/// A cgroup that lacks less than this part of what it wants of its entitlement lacks nothing.
const LACKING_RATIO: f64 = 0.02;

/// Intervals for which growth that was seen is expected to go on, as for protection.
const GROWTH_INTERVALS: f64 = 2.0;

impl ControlLoop {
    /// Notes whether the whole host waits for memory.
    pub(super) fn listen(&mut self, host: HostSample, since: Option<(Duration, HostSample)>) {
        let Some((elapsed, before)) = since else { return };
        let stalled = host.memory_full_usec.zip(before.memory_full_usec);
        let stalled = stalled.and_then(|(now, before)| now.checked_sub(before));
        let full_ratio = stalled.map(|usec| usec as f64 / elapsed.as_micros().max(1) as f64);
        self.alarm.step(full_ratio, elapsed);
    }

    /// Withdraws protection where the whole host waits for memory.
    pub(super) fn withdraw(&self, targets: &mut [Target]) -> Option<Finding> {
        let stage = self.alarm.stage();
        let finding = Finding::of_host(Code::Unkeepable, stage.text()?);
        for target in targets {
            let guaranteed = target.guarantee[MEMORY].unwrap_or(0.0);
            let most = if stage == Stage::Guarantees { guaranteed } else { 0.0 };
            let wanted = target.bounded_protection_bytes.unwrap_or(target.wanted_protection());
            if wanted > most {
                target.bounded_protection_bytes = Some(most);
            }
        }
        Some(finding)
    }

    /// Steps the bounds of memory, where values are written at all.
    pub(super) fn squeeze(&mut self, elapsed: Option<Duration>) {
        let Some(elapsed) = elapsed.filter(|_| self.settings.is_enforcing) else { return };
        let holding = |number: usize| {
            let state = self.states.get(number).filter(|_| self.tree.has_work(number))?;
            state.holding().filter(|_| state.is_governed && state.is_present)
        };
        let holdings: Vec<Option<Holding>> = (0..self.states.len()).map(holding).collect();
        let states = self.states.iter_mut();
        let mut squeezes: Vec<Option<Box<Squeeze>>> =
            states.map(|state| state.squeeze.take()).collect();
        let is_emergency = self.alarm.stage() != Stage::Calm;
        squeeze::step(&mut squeezes, &holdings, is_emergency, elapsed);
        for (state, mut squeeze) in self.states.iter_mut().zip(squeezes) {
            // Until the file holds what it held, there is something left to do.
            let found = state.observed(Knob::MemoryHigh);
            let is_back = |squeeze: &Squeeze| {
                let held = squeeze.held.map(|held| Value::Amount(MEMORY, held));
                held.is_none() || found == held.as_ref()
            };
            state.squeeze = squeeze.take().filter(|it| !(it.is_over() && is_back(it)));
        }
    }
}

impl NodeState {
    /// What its cgroup holds and may keep of memory; `None` without counters, and where memory cannot be bounded.
    fn holding(&self) -> Option<Holding> {
        let usage = self.usage.as_ref()?;
        let charged_bytes = usage.charged_bytes?;
        let target = &self.target;
        let fitting_bytes =
            target.bounded_protection_bytes.unwrap_or_else(|| target.wanted_protection());
        let grown = GROWTH_INTERVALS * usage.unreclaimable_growth_bytes.unwrap_or(0.0);
        let wanted_bytes = self.demand?.amount[MEMORY].min(fitting_bytes);
        let missing = wanted_bytes - charged_bytes;
        let is_taken_from =
            usage.reclaimed == Some(true) || demand::is_refaulting(usage, false, missing);
        let is_lacking = is_taken_from && missing > LACKING_RATIO * wanted_bytes;
        Some(Holding {
            charged_bytes,
            entitled_bytes: target.wanted_protection(),
            fitting_bytes,
            guarantee_bytes: target.guarantee[MEMORY].unwrap_or(0.0),
            inelastic_bytes: usage.unreclaimable_bytes? + grown,
            lacking_bytes: if is_lacking { missing } else { 0.0 },
            full_ratio: usage.memory_full_ratio,
            met_bound: usage.met_bound?,
        })
    }
}
