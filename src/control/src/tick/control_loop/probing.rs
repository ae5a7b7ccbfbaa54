//! Probes for the working sets of cgroups: applies [`crate::memory::probe`].

use std::time::Duration;

use super::ControlLoop;
use crate::measure::sample::HostSample;
use crate::memory::alarm::Stage;
use crate::memory::probe::Probed;
use crate::state::NodeState;
use tenantd_core::resource::MEMORY;

/// Swap with less free room than this part of the memory is not used for probes.
const SWAP_LEFT_RATIO: f64 = 1.0 / 32.0;

impl ControlLoop {
    /// Steps the probes of all cgroups if the policy enables them. All probes stop if swap is full, if a
    /// cgroup lacks or releases memory, or if the whole host stalls on memory.
    pub(crate) fn probe(&mut self, now: Duration, host: &HostSample, elapsed: Option<Duration>) {
        let Some(elapsed) = elapsed else { return };
        if !(self.settings.probes && self.settings.is_enforcing) {
            self.states.iter_mut().for_each(NodeState::end_probe);
            return;
        }
        let is_calm = self.alarm.stage() == Stage::Calm
            && has_swap(host)
            && !self.states.iter().any(NodeState::is_contended);
        for (node, state) in self.tree.all().zip(&mut self.states) {
            let may_be = is_calm && node.has_work() && state.is_steered();
            let probed = if may_be { state.probed(now, elapsed) } else { None };
            state.step_probe(probed.as_ref(), elapsed);
        }
    }
}

fn has_swap(host: &HostSample) -> bool {
    let least = SWAP_LEFT_RATIO * host.memory_total_bytes as f64;
    host.swap_free_bytes.is_some_and(|bytes| bytes as f64 >= least)
}

impl NodeState {
    /// True if the cgroup lacks memory or must release some.
    fn is_contended(&self) -> bool {
        let gives = self.squeeze.as_ref().is_some_and(|squeeze| squeeze.bound_bytes.is_some());
        gives || self.holding().is_some_and(|holding| holding.lacking_bytes > 0.0)
    }

    /// Probe input: memory and refaults of the cgroup. `None` without a sample in this tick, if the kernel
    /// has no memory bounds, or if reclaim takes protected memory.
    fn probed(&self, now: Duration, elapsed: Duration) -> Option<Probed> {
        let usage = self.usage.as_ref().filter(|_| self.sampled_at >= now)?;
        usage.met_bound?;
        if usage.reclaimed == Some(true) {
            return None;
        }
        Some(Probed {
            charged_bytes: usage.charged_bytes?,
            guarantee_bytes: self.target.guarantee[MEMORY].unwrap_or(0.0),
            pinned_bytes: (usage.unreclaimable_bytes? - usage.anon_bytes?).max(0.0),
            waited: elapsed.mul_f64(usage.memory_some_ratio?),
        })
    }

    fn step_probe(&mut self, probed: Option<&Probed>, elapsed: Duration) {
        let probe = self.probe.get_or_insert_default();
        probe.step(probed, elapsed);
        let bytes = probe.bound_bytes;
        if bytes.is_some() {
            self.squeeze.get_or_insert_default();
        }
        self.squeeze.iter_mut().for_each(|squeeze| squeeze.probe(bytes));
        self.target.is_probed = bytes.is_some();
    }

    fn end_probe(&mut self) {
        if self.probe.take().is_some() {
            self.squeeze.iter_mut().for_each(|squeeze| squeeze.probe(None));
        }
    }
}
