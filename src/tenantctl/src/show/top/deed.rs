//! Actions on a process: end it, or change its nice value.
//!
//! A process is identified by its number and start time. Its descriptor is opened before the start time is
//! compared, so that a signal never reaches a later process with the same number.

use std::fs;

use rustix::process::{
    Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, setpriority_process,
};

use super::inspect::Process;
use tenantd_host::kernfs::KernFs;
use tenantd_host::process;

/// Process of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Process ID.
    pub pid: u32,
    /// Start time in clock ticks.
    pub start_ticks: u64,
    /// Command line.
    pub command: String,
}

/// Action on a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Send SIGTERM.
    End(Target),
    /// Send SIGKILL.
    Kill(Target),
    /// Set the nice value of all its threads.
    Renice(Target, i32),
}

impl Target {
    pub(crate) fn of(process: &Process) -> Target {
        let Process { pid, start_ticks, command, .. } = process;
        Target { pid: *pid, start_ticks: *start_ticks, command: command.clone() }
    }

    /// Number and command in words.
    pub(crate) fn words(&self) -> String {
        format!("{} ({})", self.pid, self.command)
    }
}

impl Deed {
    fn target(&self) -> &Target {
        match self {
            Deed::End(target) | Deed::Kill(target) | Deed::Renice(target, _) => target,
        }
    }

    /// Carries out the action; returns the result in words.
    pub fn carry_out(&self, kernel: &mut impl KernFs) -> String {
        let target = self.target();
        let who = format!("process {}", target.pid);
        let pid = i32::try_from(target.pid).ok().and_then(Pid::from_raw);
        let opened = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty()));
        let Some(Ok(descriptor)) = opened else { return format!("{who} has ended") };
        if !is_running(kernel, target) {
            return format!("{who} has ended");
        }
        let signal = |signal: Signal, name: &str| match pidfd_send_signal(&descriptor, signal) {
            Ok(()) => format!("{who} got {name}"),
            Err(error) => format!("{who} did not get {name}: {error}"),
        };
        match self {
            Deed::End(_) => signal(Signal::TERM, "SIGTERM"),
            Deed::Kill(_) => signal(Signal::KILL, "SIGKILL"),
            Deed::Renice(_, nice) => match renice(target.pid, *nice) {
                Ok(1) => format!("1 thread of {who} has the nice value {nice}"),
                Ok(count) => format!("{count} threads of {who} have the nice value {nice}"),
                Err(error) => format!("{who} keeps its nice value: {error}"),
            },
        }
    }
}

fn is_running(kernel: &mut impl KernFs, target: &Target) -> bool {
    let Ok(proc) = kernel.open_dir("/proc".as_ref()) else { return false };
    let start = process::start_ticks(kernel, proc, target.pid);
    kernel.close_dir(proc);
    start == Ok(Some(target.start_ticks))
}

/// Sets the nice value of each thread: on Linux it belongs to threads, not to processes.
fn renice(pid: u32, nice: i32) -> Result<usize, std::io::Error> {
    let mut count = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let name = thread?.file_name();
        let thread = name.to_str().and_then(|name| Pid::from_raw(name.parse().ok()?));
        // Without a number, the call would be about this process.
        let Some(thread) = thread else { continue };
        match setpriority_process(Some(thread), nice) {
            // It has ended meanwhile.
            Err(rustix::io::Errno::SRCH) => {}
            outcome => {
                outcome?;
                count += 1;
            }
        }
    }
    Ok(count)
}
