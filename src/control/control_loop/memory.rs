//! Memory while the whole host waits for it: what the agent withdraws.

use std::time::Duration;

use super::ControlLoop;
use crate::control::finding::{Code, Finding};
use crate::control::memory_alarm::Stage;
use crate::control::sample::HostSample;
use crate::control::target::Target;
use crate::resource::MEMORY;

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
}
