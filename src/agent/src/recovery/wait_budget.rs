//! How long the end of processes is waited for while their cgroups are removed.

use std::time::Duration;

use tenantd_host::kernfs::KernFs;

/// How long processes that are about to end are waited for, in all.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// How long is waited between two looks, at first and at most.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// What is left of the time for which the end of processes is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitBudget {
    left: Duration,
    pause: Duration,
}

impl Default for WaitBudget {
    fn default() -> WaitBudget {
        WaitBudget { left: WAIT_MAX, pause: SHORTEST_PAUSE }
    }
}

impl WaitBudget {
    /// Waits for a moment, longer each time; says whether there was any time left.
    pub(super) fn wait(&mut self, kernel: &mut impl KernFs) -> bool {
        let pause = self.pause.min(self.left);
        if pause.is_zero() {
            return false;
        }
        kernel.pause(pause);
        self.left -= pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        true
    }
}
