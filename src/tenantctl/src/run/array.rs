//! `tenantctl run --array`: starts a command once for each index, each time in a turn of its own.
//!
//! **Problem.** A set of tasks needs one entry in the queue, and a start that costs little more than the task. **Answer.**
//! This process is the first one of the set. The daemon moves it into the cgroup of the set before the first turn, so its
//! children are born there. It waits for two events: a turn from the daemon, and the end of a child. It reports the sum of
//! ended tasks; the daemon sends the sum of turns. Both count from the beginning, so a lost or repeated message changes
//! nothing.
//!
//! **A daemon that restarts.** Running tasks go on. This process connects again with the number of its set and its sums.
//! If the daemon is away for longer than [`RESTART_TIME`] and no task runs, the set ends.
//!
//! **Signals.** It handles none: Ctrl-C reaches it and its tasks at once. Tasks of a killed set run on until they end.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use signal_hook::consts::SIGCHLD;

use super::background::{self, ROLE, Role};
use super::launch;
use super::progress::Progress;
use super::request::parameters;
use super::requeue::{self, Runs};
use crate::args::RunArgs;
use crate::common::awaited;
use crate::common::exit::{self, Exit};
use crate::common::job_options::Indices;
use tenantd_dop::environment::replaced;
use tenantd_lab::text::visible;
use tenantd_varlink::client::{
    Client, ClientError, Endpoint, RESTART_PAUSE, RESTART_TIME, Replies,
};
use tenantd_varlink::error::CallError;
use tenantd_varlink::interface::method;
use tenantd_varlink::jobs::{
    Assigned, ReportParameters, Started, SubmitParameters, SubmitReply, TaskSums, Units,
};

const PLACEHOLDER: &str = "{index}";
const VARIABLE: &str = "TENANTD_ARRAY_INDEX";
/// Time without an event after which the sums are sent again.
const REPEAT: Duration = Duration::from_secs(10);
/// Time in which the rest of a reply must arrive.
const READ_TIME: Duration = Duration::from_secs(1);
/// Failed tasks that the message at the end names.
const NAMED_MAX: usize = 10;

/// Indices of the runs of a job that may be evicted: the daemon bounds them.
pub(super) const RUNS: Indices = Indices { first: 1, count: u32::MAX, at_once: Some(1) };

/// Runs the set, or with `--requeue` the job. Returns when no task runs and none is to start.
pub(super) fn run(
    daemon: &Endpoint,
    args: &RunArgs,
    range: Indices,
    role: Role,
) -> anyhow::Result<Exit> {
    let (mut ended, writer) = UnixStream::pair()?;
    ended.set_nonblocking(true)?;
    let runs = args.requeue.then(|| Runs::new(&writer)).transpose()?;
    signal_hook::low_level::pipe::register(SIGCHLD, writer)?;
    let mut set = Set::new(daemon, args, range, role);
    set.runs = runs;
    let exit = loop {
        if set.is_over() {
            break set.exit();
        }
        set.connect();
        // Without a daemon no event would follow.
        if set.is_over() {
            break set.exit();
        }
        let is_ready = wait(&ended, set.replies.as_ref(), set.pause());
        if is_ready.is_none() {
            // A message that was lost is sent again.
            set.reported = None;
        }
        let mut bytes = [0; 64];
        while ended.read(&mut bytes).is_ok_and(|count| count > 0) {}
        set.heed_signals();
        set.reap();
        set.receive(is_ready == Some(true));
        set.start();
        set.report();
    };
    set.report_end(exit);
    if let (Some(runs), None) = (&set.runs, &set.error) {
        runs.exit();
    }
    let has_begun = set.has_begun();
    // The command without a turn must not adopt orphans.
    drop(set.runs);
    match set.error {
        Some(error) if args.or_run && !has_begun => launch::without_turn(args, error),
        Some(error) => Err(error.into()),
        None => Ok(exit),
    }
}

/// Waits for the end of a child, for a reply, or for `pause`. Returns true if a reply has arrived, and none if the time is
/// over.
fn wait(
    ended: &UnixStream,
    replies: Option<&Replies<method::Submit>>,
    pause: Duration,
) -> Option<bool> {
    let mut fds = vec![PollFd::new(ended.as_fd(), PollFlags::POLLIN)];
    fds.extend(replies.map(|replies| PollFd::new(replies.as_fd(), PollFlags::POLLIN)));
    let timeout = PollTimeout::try_from(pause.as_millis() + 1).unwrap_or(PollTimeout::MAX);
    // An error is a signal: the loop looks at both.
    let is_late = poll(&mut fds, timeout) == Ok(0);
    let is_ready = fds.get(1).and_then(PollFd::any).unwrap_or(false);
    (!is_late).then_some(is_ready)
}

/// A running task, and the units that it uses.
struct Task {
    index: u64,
    assigned: Vec<Assigned>,
}

/// A set and its connection.
struct Set<'a> {
    daemon: Endpoint,
    args: &'a RunArgs,
    range: Indices,
    role: Role,
    /// End of the time in the queue, with that time.
    deadline: Option<(Instant, Duration)>,
    replies: Option<Replies<method::Submit>>,
    reporter: Option<Client>,
    /// True if the daemon has replied on this connection.
    is_attached: bool,
    /// Time since which no connection exists.
    lost: Option<Instant>,
    progress: Option<Progress>,
    id: Option<u64>,
    granted: u32,
    turn: Option<Started>,
    sums: TaskSums,
    /// The last sums that were sent on the present connection.
    reported: Option<TaskSums>,
    running: HashMap<Pid, Task>,
    /// Units that each task needs.
    units: Vec<Units>,
    /// The first failed tasks.
    failures: Vec<String>,
    /// Reason for not starting the remaining tasks.
    error: Option<ClientError>,
    /// With `--requeue`.
    runs: Option<Runs>,
    /// The end of an evicted run of which processes are left: its index, exit code and signal.
    last: Option<(u64, Option<i32>, Option<i32>)>,
}

impl<'a> Set<'a> {
    fn new(daemon: &Endpoint, args: &'a RunArgs, range: Indices, role: Role) -> Set<'a> {
        let began = Instant::now();
        Set {
            deadline: daemon.timeout.map(|time| (began + time, time)),
            // The option limits the time in the queue; a call has its own limit.
            daemon: Endpoint { timeout: None, ..daemon.clone() },
            args,
            range,
            role,
            replies: None,
            reporter: None,
            is_attached: false,
            lost: None,
            progress: Some(Progress::default()),
            id: None,
            granted: 0,
            turn: None,
            sums: TaskSums::default(),
            reported: None,
            running: HashMap::new(),
            units: parameters(args).units.unwrap_or_default(),
            failures: Vec::new(),
            error: None,
            runs: None,
            last: None,
        }
    }

    fn has_begun(&self) -> bool {
        self.turn.is_some()
    }

    fn is_over(&self) -> bool {
        let is_done = self.sums.closed || self.sums.started == self.range.count;
        self.running.is_empty() && self.last.is_none() && is_done
    }

    fn exit(&self) -> Exit {
        match &self.error {
            Some(error) => exit::of_client(error),
            None if self.sums.failed == 0 => Exit::Ok,
            None => Exit::TasksFailed,
        }
    }

    /// Longest wait for an event.
    fn pause(&self) -> Duration {
        let left = |(end, _): (Instant, Duration)| end.saturating_duration_since(Instant::now());
        let deadline = self.deadline.filter(|_| !self.has_begun()).map(left);
        let retry = self.replies.is_none() && !self.sums.closed;
        let retry = retry.then_some(RESTART_PAUSE);
        let ending = self.runs.as_ref().and_then(Runs::pause);
        deadline.into_iter().chain(retry).chain(ending).chain([REPEAT]).min().unwrap_or(REPEAT)
    }

    /// Starts no further task.
    fn stop(&mut self, error: ClientError) {
        self.sums.closed = true;
        self.error.get_or_insert(error);
        self.replies = None;
    }

    /// Connects, for the first time or again.
    fn connect(&mut self) {
        if self.replies.is_some() || self.sums.closed {
            return;
        }
        let is_set = self.runs.is_none();
        let parameters = SubmitParameters {
            tasks: is_set.then_some(self.range.count),
            tasks_at_once: self.range.at_once.filter(|_| is_set),
            supervised: Some(true),
            id: self.id,
            begun: self.has_begun().then_some(true),
            ..parameters(self.args)
        };
        let replies = self.daemon.connect().and_then(|it| it.stream::<method::Submit>(&parameters));
        match replies {
            Ok(replies) => {
                self.replies = Some(replies);
                (self.reported, self.reporter, self.is_attached) = (None, None, false);
            }
            Err(error) => self.lose(error),
        }
    }

    /// Handles a lost connection: a daemon that restarts is back in a moment.
    fn lose(&mut self, error: ClientError) {
        self.replies = None;
        let since = *self.lost.get_or_insert_with(Instant::now);
        let is_restart = match &error {
            ClientError::Ended(_) => true,
            ClientError::NotRunning(_) => self.id.is_some(),
            // A daemon that restarts finds its jobs at its first tick.
            ClientError::Refused(CallError::NoSuchJob { .. }) => self.has_begun(),
            error => !self.args.no_wait && awaited::is_early(error, since),
        };
        // Running tasks end whether the daemon is there or not.
        let may_wait = since.elapsed() < RESTART_TIME || !self.running.is_empty();
        if !is_restart || !may_wait {
            self.stop(error);
        }
    }

    /// Counts the children that have ended.
    fn reap(&mut self) {
        loop {
            let (pid, code, signal) = match waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => (pid, Some(code), None),
                Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, None, Some(signal)),
                _ => break,
            };
            let Some(task) = self.running.remove(&pid) else { continue };
            if self.runs.is_some() {
                self.last = Some((task.index, code, signal.map(|it| it as i32)));
                continue;
            }
            let code = code.filter(|code| *code != 0).map(|code| format!("exit code {code}"));
            self.count(task.index, code.or(signal.map(|it| it.to_string())));
        }
        self.end_run();
    }

    /// Counts the end of a run, once no process of an evicted one is left.
    fn end_run(&mut self) {
        let Some(runs) = &mut self.runs else { return };
        runs.insist(self.running.keys().next().copied());
        let Some((_, code, signal)) = self.last.filter(|_| !runs.is_any_left()) else { return };
        self.last = None;
        let is_evicted = runs.ended((code, signal), self.sums.started);
        let failed = u32::from(is_evicted || code != Some(0));
        self.sums.failed += failed;
        self.sums.succeeded += 1 - failed;
        self.sums.closed |= !is_evicted;
    }

    /// Handles the signals of this process, which it takes with `--requeue` only.
    fn heed_signals(&mut self) {
        let Some(runs) = &mut self.runs else { return };
        let Some(signal) = runs.take_signal() else { return };
        let Some(command) = self.running.keys().next() else {
            if self.last.is_none() {
                runs.end_by(signal);
            }
            self.sums.closed = true;
            return;
        };
        runs.pass_on(signal, *command);
    }

    fn count(&mut self, index: u64, failure: Option<String>) {
        let Some(failure) = failure else {
            self.sums.succeeded += 1;
            return;
        };
        self.sums.failed += 1;
        self.sums.closed |= self.args.stop_on_failure;
        if self.failures.len() < NAMED_MAX {
            self.failures.push(format!("{index} ({failure})"));
        }
    }

    /// Takes the replies that have arrived.
    fn receive(&mut self, is_ready: bool) {
        let mut time = if is_ready { READ_TIME } else { Duration::ZERO };
        while let Some(replies) = &mut self.replies {
            let reply = replies.next(Some(time));
            // Without a time it takes one that was read with the last.
            time = Duration::ZERO;
            match reply {
                Ok(reply) => self.take(reply),
                Err(ClientError::Late { .. }) => break,
                Err(error) => return self.refused(error),
            }
        }
        if let (Some((end, time)), false) = (self.deadline, self.has_begun())
            && end <= Instant::now()
        {
            self.stop(ClientError::NotStarted(time));
        }
    }

    fn refused(&mut self, error: ClientError) {
        match error {
            ClientError::Refused(CallError::NoSuchTenant { tenant, .. }) if self.id.is_some() => {
                self.stop(ClientError::TenantGone(tenant));
            }
            error => self.lose(error),
        }
    }

    fn take(&mut self, reply: SubmitReply) {
        (self.lost, self.is_attached) = (None, true);
        if reply.inside {
            return self.stop(inside(reply.id));
        }
        if self.id.replace(reply.id) != Some(reply.id) && self.role == Role::Job {
            background::tell_number(reply.id);
        }
        if let (Some(waiting), Some(progress)) = (&reply.waiting, &mut self.progress) {
            progress.show(&reply.tenant, waiting);
        }
        if let Some(started) = reply.started {
            if !self.has_begun() {
                self.progress = None;
                let notes = started.ineffective.iter();
                notes.for_each(|what| eprintln!("tenantctl: {}", visible(what)));
            }
            self.turn = Some(started);
        }
        self.granted = reply.granted.unwrap_or(self.granted);
        // An order for an earlier run has been carried out.
        let is_present = self.granted == self.sums.started;
        if let (Some(eviction), Some(runs), Some(command)) =
            (&reply.eviction, &mut self.runs, self.running.keys().next())
            && is_present
        {
            runs.evict(eviction, *command);
        }
    }

    /// Starts a task for each turn that has none.
    fn start(&mut self) {
        while !self.sums.closed && self.sums.started < self.granted.min(self.range.count) {
            let Some(turn) = &self.turn else { return };
            let index = self.range.first + u64::from(self.sums.started);
            let text = index.to_string();
            let assigned = self.next_units(&turn.assigned);
            let turn = Started { assigned: assigned.clone(), ..turn.clone() };
            let words = self.args.command.iter();
            let line: Vec<OsString> = match &mut self.runs {
                Some(runs) => {
                    runs.begin(&turn);
                    words.cloned().collect()
                }
                None => words.map(|word| replaced(word, PLACEHOLDER, &text)).collect(),
            };
            let mut command = launch::command(&line, &turn);
            let variable = if self.runs.is_some() { requeue::VARIABLE } else { VARIABLE };
            command.env(variable, &text).env_remove(ROLE);
            if self.runs.is_none() || self.role == Role::Job {
                command.stdin(Stdio::null());
            }
            self.sums.started += 1;
            match command.spawn() {
                Ok(child) => {
                    let task = Task { index, assigned };
                    self.running.insert(Pid::from_raw(child.id() as i32), task);
                }
                Err(error) => {
                    let exit = launch::report(&line, &error);
                    if self.runs.is_some() {
                        self.last = Some((index, Some(exit as i32), None));
                        self.end_run();
                    } else {
                        self.count(index, Some("not started".to_string()));
                    }
                }
            }
        }
    }

    /// Units that the running tasks use.
    fn in_use(&self) -> Vec<Assigned> {
        let mut in_use: Vec<Assigned> = Vec::new();
        for of_task in self.running.values().flat_map(|task| &task.assigned) {
            match in_use.iter_mut().find(|it| it.name == of_task.name) {
                Some(all) => all.indices.extend(&of_task.indices),
                None => in_use.push(of_task.clone()),
            }
        }
        in_use
    }

    /// The lowest of the set's units that no running task uses: the daemon knows the units of the set only.
    fn next_units(&self, of_set: &[Assigned]) -> Vec<Assigned> {
        let in_use = self.in_use();
        let is_used = |name: &str, index: &u32| {
            in_use.iter().any(|it| it.name == name && it.indices.contains(index))
        };
        let next = |all: &Assigned| {
            let wanted = self.units.iter().filter(|it| it.name == all.name);
            let wanted: usize = wanted.map(|it| it.count as usize).sum();
            let free = all.indices.iter().filter(|index| !is_used(&all.name, index));
            Assigned { indices: free.take(wanted).copied().collect(), ..all.clone() }
        };
        of_set.iter().map(next).collect()
    }

    /// Sends the sums if they have changed. A failed message is sent again with the next sums or connection.
    fn report(&mut self) {
        let is_known = self.has_begun() && (self.is_attached || self.sums.closed);
        let Some(id) = self.id.filter(|_| is_known) else { return };
        // Started tasks alone are no news, but for a daemon that has restarted.
        let sums = |it: TaskSums| TaskSums { started: self.sums.started, ..it };
        if self.reported.map(sums) == Some(self.sums) {
            return;
        }
        let in_use = self.in_use();
        let in_use = Some(in_use).filter(|in_use| !in_use.is_empty());
        let tasks = Some(self.sums);
        let report = ReportParameters { id, tasks, in_use, ..ReportParameters::default() };
        // The daemon closes a connection without calls after a while.
        for _ in 0..2 {
            if self.reporter.is_none() {
                self.reporter = self.daemon.connect().ok();
            }
            let Some(reporter) = &mut self.reporter else { return };
            if reporter.notify::<method::Report>(&report).is_ok() {
                self.reported = Some(self.sums);
                return;
            }
            self.reporter = None;
        }
    }

    /// Reports the end of the set and prints its failures.
    fn report_end(&mut self, exit: Exit) {
        if let Some(id) = self.id.filter(|_| self.has_begun()) {
            let (exit_code, tasks) = (Some(exit as u8), Some(self.sums));
            let report = ReportParameters { id, exit_code, tasks, ..ReportParameters::default() };
            let report = self.runs.as_ref().map_or(report.clone(), |runs| runs.report(report));
            let is_away =
                matches!(self.error, Some(ClientError::NotRunning(_) | ClientError::Ended(_)));
            let patience = if is_away { Duration::ZERO } else { RESTART_TIME };
            background::report(&self.daemon, &report, patience);
        }
        let Indices { count, .. } = self.range;
        let TaskSums { started, failed, .. } = self.sums;
        if failed == 0 && started == count || !self.has_begun() || self.runs.is_some() {
            return;
        }
        let mut text = format!("{failed} of {count} tasks failed");
        if !self.failures.is_empty() {
            let more = if failed as usize > self.failures.len() { ", …" } else { "" };
            let _ = write!(text, ": {}{more}", self.failures.join(", "));
        }
        if started < count {
            let _ = write!(text, "; {} not started", count - started);
        }
        eprintln!("tenantctl: {text}");
    }
}

fn inside(id: u64) -> ClientError {
    let reason = format!(
        "this process is part of job {id}, and so is what it runs, until that job ends: leave out --array and \
         --requeue; `xargs -P` runs several commands"
    );
    ClientError::Refused(CallError::Failed { reason })
}
