//! Budget for waiting for the end of processes while their cgroups are removed.

use std::time::Duration;

use tenantd_host::kernfs::KernFs;

const WAIT_MAX: Duration = Duration::from_secs(1);
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

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
    /// Waits for a moment, longer each time; returns false if no time is left.
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
