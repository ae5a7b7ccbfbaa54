//! The cost of this process for the host.

use std::fs;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::unistd::{SysconfVar, sysconf};

/// CPU time and memory of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// CPU time of all its threads since it started.
    pub cpu: Duration,
    /// Resident memory; `None` if unreadable.
    pub resident_bytes: Option<u64>,
}

/// Cost of this process so far.
pub fn own() -> Cost {
    let cpu = getrusage(UsageWho::RUSAGE_SELF).map(|usage| {
        let usec = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
        Duration::from_micros(u64::try_from(usec).unwrap_or(0))
    });
    Cost { cpu: cpu.unwrap_or_default(), resident_bytes: resident_bytes() }
}

/// Second number of `/proc/self/statm`, which counts pages (proc_pid_statm(5)).
fn resident_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    let page_bytes = sysconf(SysconfVar::PAGE_SIZE).ok()??;
    pages.checked_mul(u64::try_from(page_bytes).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_costs_something() {
        let cost = own();
        assert!(cost.cpu > Duration::ZERO);
        assert!(cost.resident_bytes.is_some_and(|bytes| bytes > 1 << 20));
    }
}
