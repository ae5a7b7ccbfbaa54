//! Contended memory: bounds on tenants, and protection withdrawn while the whole host stalls.

use std::time::Duration;

use super::ControlLoop;
use crate::measure::sample::HostSample;
use crate::memory::alarm::Stage;
use crate::memory::protect::GROWTH_INTERVALS;
use crate::memory::squeeze::{self, Cgroup, Holding, Squeeze};
use crate::share::demand;
use crate::share::target::Target;
use crate::state::NodeState;
use crate::words::finding::{Code, Finding};
use crate::words::knob::{Knob, Value};
use tenantd_core::resource::MEMORY;

/// A shortfall below this part of the wanted entitlement does not count.
const LACKING_RATIO: f64 = 0.02;

impl ControlLoop {
    pub(crate) fn listen(&mut self, host: HostSample, since: Option<(Duration, HostSample)>) {
        let Some((elapsed, before)) = since else { return };
        let stalled = host.memory_full_usec.zip(before.memory_full_usec);
        let stalled = stalled.and_then(|(now, before)| now.checked_sub(before));
        let full_ratio = stalled.map(|usec| usec as f64 / elapsed.as_micros().max(1) as f64);
        self.alarm.step(full_ratio, elapsed);
    }

    pub(crate) fn withdraw(&self, targets: &mut [Target]) -> Option<Finding> {
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

    /// Steps the memory bounds, in mode enforce only.
    pub(crate) fn squeeze(&mut self, host: &HostSample, elapsed: Option<Duration>) {
        let Some(elapsed) = elapsed.filter(|_| self.settings.is_enforcing) else { return };
        let (tree, is_emergency) = (&self.tree, self.alarm.stage() != Stage::Calm);
        let spare_bytes = spare_bytes(host);
        let states = tree.all().zip(&mut self.states);
        let mut cgroups: Vec<Cgroup<'_>> = states
            .map(|(node, state)| {
                let is_ours = node.has_work() && state.is_steered();
                let holding = if is_ours { state.holding() } else { None };
                Cgroup { squeeze: &mut state.squeeze, holding }
            })
            .collect();
        let host = squeeze::Host { spare_bytes, is_emergency };
        squeeze::step(&mut cgroups, host, elapsed);
        self.states.iter_mut().for_each(NodeState::end_squeeze);
    }
}

/// Free memory above the kernel's watermarks; 0 if unknown.
fn spare_bytes(host: &HostSample) -> f64 {
    let spare = |free: u64| Some(free.saturating_sub(host.kept_free_bytes?));
    host.memory_free_bytes.and_then(spare).unwrap_or(0) as f64
}

impl NodeState {
    /// Forgets a finished bound. It stays until the file holds the earlier value again.
    fn end_squeeze(&mut self) {
        let is_done = |squeeze: &Squeeze| {
            let held = squeeze.held.map(|held| Value::Amount(MEMORY, held));
            let is_back = held.is_none() || self.observed(Knob::MemoryHigh) == held.as_ref();
            squeeze.is_over() && is_back
        };
        if self.squeeze.as_deref().is_some_and(is_done) {
            self.squeeze = None;
        }
    }

    /// Memory held by the cgroup and its entitlement; `None` without counters or if memory cannot be bounded.
    pub(crate) fn holding(&self) -> Option<Holding> {
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
        // A probe returns the memory it took by itself.
        let is_lacking =
            is_taken_from && !self.is_probed() && missing > LACKING_RATIO * wanted_bytes;
        Some(Holding {
            charged_bytes,
            entitled_bytes: target.wanted_protection(),
            fair_bytes: target.burst[MEMORY],
            inelastic_bytes: usage.unreclaimable_bytes? + grown,
            lacking_bytes: if is_lacking { missing } else { 0.0 },
            full_ratio: usage.memory_full_ratio,
            met_bound: usage.met_bound?,
        })
    }
}
