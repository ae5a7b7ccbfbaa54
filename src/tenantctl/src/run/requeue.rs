//! `tenantctl run --requeue`: ends a run for another job, and waits for the next one.
//!
//! **Problem.** The daemon may not signal the processes of a user, and a job that is to wait again needs a process that waits.
//! **Answer.** The job is a set of one task at a time ([`super::array`]), and each run is a task. This process stays, in
//! the cgroup of the job. The command is its child with the same terminal, process group and standard streams.
//!
//! **Eviction.** All processes of the job but this one get SIGTERM, and SIGKILL after the grace. The run has ended once
//! none is left; whatever its exit status, it counts as evicted from the signal on. Orphans of the command become children of
//! this process (child subreaper), so that their end wakes it.
//!
//! **Signals.** Ctrl-C and Ctrl-\ reach the command itself; this process waits for its end, as a shell does. SIGTERM and SIGHUP are
//! passed on. Between two runs each of them ends the job. The exit code is that of the last run, or 128 + signal.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use tenantd_core::kernel_text::mountinfo::cgroup_mounts;
use tenantd_core::kernel_text::path_of;
use tenantd_lab::text::visible;
use tenantd_varlink::jobs::{Eviction, ReportParameters, Started, beneficiary};

/// Variable with the number of the run, from 1.
pub(super) const VARIABLE: &str = "TENANTD_RUN";
/// Time between two signals to processes that are left after the grace.
const AGAIN: Duration = Duration::from_secs(1);
/// Most cgroups inside the job's that are searched for processes.
const INSIDE_MAX: usize = 1000;
/// Offset of signals in exit codes of shells.
const SIGNALLED: i32 = 128;

/// Runs of a job that may be evicted.
pub(super) struct Runs {
    /// Last signal that this process got; 0 before any.
    got: Arc<AtomicUsize>,
    cgroup: Option<PathBuf>,
    ending: Option<Ending>,
    /// Exit code or signal of the last run.
    status: Option<(Option<i32>, Option<i32>)>,
}

impl Drop for Runs {
    fn drop(&mut self) {
        // It was not set where it cannot be reset.
        let _ = rustix::process::set_child_subreaper(None);
    }
}

/// An eviction under way.
struct Ending {
    text: String,
    /// Time of the next SIGKILL.
    kill_at: Instant,
}

impl Runs {
    /// Takes over the signals of this process; each wakes `writer`.
    pub(super) fn new(writer: &UnixStream) -> io::Result<Runs> {
        let got = Arc::new(AtomicUsize::new(0));
        for signal in [SIGINT, SIGQUIT, SIGTERM, SIGHUP] {
            signal_hook::flag::register_usize(signal, Arc::clone(&got), signal as usize)?;
            signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
        }
        // Without it orphans of the command are found by their cgroup.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        Ok(Runs { got, cgroup: None, ending: None, status: None })
    }

    /// The signal that this process got since the last call.
    pub(super) fn take_signal(&self) -> Option<Signal> {
        let got = self.got.swap(0, Ordering::Relaxed);
        i32::try_from(got).ok().and_then(|got| Signal::try_from(got).ok())
    }

    /// Passes a signal on to the command; those of the terminal have reached it.
    pub(super) fn pass_on(&self, signal: Signal, command: Pid) {
        if matches!(signal, Signal::SIGTERM | Signal::SIGHUP) {
            // It may have ended.
            let _ = kill(command, signal);
        }
    }

    /// Ends the job between two runs.
    pub(super) fn end_by(&mut self, signal: Signal) {
        self.status = Some((None, Some(signal as i32)));
    }

    /// Finds the cgroup of the job, for the end of its processes.
    pub(super) fn begin(&mut self, turn: &Started) {
        self.status = None;
        self.cgroup = self.cgroup.take().or_else(|| dir_of(turn));
    }

    /// Begins to end the run of `command`.
    pub(super) fn evict(&mut self, eviction: &Eviction, command: Pid) {
        if self.ending.is_some() {
            return;
        }
        let grace = Duration::from_secs(eviction.grace_seconds.into());
        let whom = beneficiary(eviction.job, &eviction.tenant);
        let text = format!("tenantd ended this job for {whom}");
        self.ending = Some(Ending { text, kill_at: Instant::now() + grace });
        self.signal(Signal::SIGTERM, Some(command));
    }

    /// Ends processes that are left after the grace.
    pub(super) fn insist(&mut self, command: Option<Pid>) {
        let Some(ending) = &mut self.ending else { return };
        if ending.kill_at <= Instant::now() {
            ending.kill_at = Instant::now() + AGAIN;
            self.signal(Signal::SIGKILL, command);
        }
    }

    /// Time until the next SIGKILL, or until the next look at processes that are not descendants of this one.
    pub(super) fn pause(&self) -> Option<Duration> {
        let left = self.ending.as_ref()?.kill_at.saturating_duration_since(Instant::now());
        Some(left.min(AGAIN))
    }

    /// True if the run is ending, and a process of it is left.
    pub(super) fn is_any_left(&self) -> bool {
        self.ending.is_some() && !self.others().is_empty()
    }

    /// Records the end of a run. Returns true if it was evicted: then another one follows.
    pub(super) fn ended(&mut self, status: (Option<i32>, Option<i32>), run: u32) -> bool {
        self.status = Some(status);
        let Some(ending) = self.ending.take() else { return false };
        eprintln!("tenantctl: {}; it waits again, run {}", visible(&ending.text), run + 1);
        true
    }

    /// The status of the last run for the daemon.
    pub(super) fn report(&self, report: ReportParameters) -> ReportParameters {
        let Some((code, signal)) = self.status else { return report };
        let byte = |value: i32| u8::try_from(value).ok();
        let (exit_code, exit_signal) = (code.and_then(byte), signal.and_then(byte));
        ReportParameters { exit_code, exit_signal, ..report }
    }

    /// Ends this process with the status of the last run. Returns without one.
    pub(super) fn exit(&self) {
        if let Some((code, signal)) = self.status {
            process::exit(code.or(signal.map(|it| SIGNALLED + it)).unwrap_or(SIGNALLED));
        }
    }

    /// Signals all processes of the job but this one; without its cgroup the command alone.
    fn signal(&self, signal: Signal, command: Option<Pid>) {
        let targets = self.others();
        if targets.is_empty() {
            // It may have ended.
            let _ = command.map(|command| kill(command, signal));
            return;
        }
        let open = |pid: &i32| {
            let known = rustix::process::Pid::from_raw(*pid)?;
            Some((*pid, pidfd_open(known, PidfdFlags::empty()).ok()?))
        };
        let opened: Vec<_> = targets.iter().filter_map(open).collect();
        // A number may have become that of another process before it was opened.
        let still = self.others();
        let sent = if signal == Signal::SIGKILL {
            rustix::process::Signal::KILL
        } else {
            rustix::process::Signal::TERM
        };
        for (_, process) in opened.iter().filter(|(pid, _)| still.contains(pid)) {
            // A process that this user may not signal is left to the daemon.
            let _ = pidfd_send_signal(process, sent);
        }
    }

    /// Processes in the cgroup of the job, and in cgroups inside, without this one.
    fn others(&self) -> Vec<i32> {
        let own = process::id() as i32;
        let mut dirs: Vec<PathBuf> = self.cgroup.iter().cloned().collect();
        let (mut processes, mut place) = (Vec::new(), 0);
        while let Some(dir) = dirs.get(place).cloned() {
            place += 1;
            let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
            processes.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
            let inside = fs::read_dir(&dir).into_iter().flatten().flatten();
            let inside = inside.filter(|entry| entry.file_type().is_ok_and(|it| it.is_dir()));
            let room = INSIDE_MAX.saturating_sub(dirs.len());
            dirs.extend(inside.map(|entry| entry.path()).take(room));
        }
        // 0 is a process outside the own PID namespace.
        processes.retain(|pid| *pid != own && *pid > 0);
        processes
    }
}

/// Directory of the job's cgroup; `None` if it is not visible here, or if this process is not in it.
fn dir_of(turn: &Started) -> Option<PathBuf> {
    let mounts = cgroup_mounts(&fs::read("/proc/self/mountinfo").ok()?);
    let below = path_of(turn.cgroup.trim_start_matches('/'));
    let own = process::id().to_string();
    let is_own = |dir: &PathBuf| {
        let procs = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
        procs.lines().any(|line| line == own)
    };
    let ordered = mounts.iter().filter(|it| it.has("cpu"));
    let ordered = ordered.chain(mounts.iter().filter(|it| it.is_unified));
    ordered.map(|mount| mount.mount_point.join(&below)).find(is_own)
}
