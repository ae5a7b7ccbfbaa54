//! Running and waiting jobs in `tenantctl jobs`, and `tenantctl cancel`.
//!
//! The daemon ends no process. `cancel` sends the signal itself, with the permissions of its user, so that
//! users can end only processes that they may signal.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::json;

use super::administer::print_failures;
use crate::args::CancelArgs;
use crate::common::readers::owner;
use tenantd::exit::Exit;
use tenantd_control::words::jobs::{HeldUnits, UnitsStatus};
use tenantd_lab::text::{WIDTH, age, memory, shortened, visible, wrapped};
use tenantd_lab::{json, table};
use tenantd_varlink::client::{ClientError, Endpoint};
use tenantd_varlink::error::CallError;
use tenantd_varlink::interface::method;
use tenantd_varlink::jobs::{
    CancelParameters, CancelReply, Job, JobState, ListReply, Pool, Tasks, Units, Waiting,
};

const NAME_WIDTH: usize = 16;
const COMMAND_WIDTH: usize = WIDTH - NAME_WIDTH - 53;
const JOBS_MAX: usize = 200;

/// Prints the table of running and waiting jobs.
pub(super) fn print(out: &mut impl Write, list: &ListReply) -> io::Result<()> {
    if list.jobs.is_empty() {
        return writeln!(out, "no jobs; {}", free(&list.pool));
    }
    let mut table = table::plain();
    let [heads @ .., command] = HEADS;
    table.set_header(heads.into_iter().chain(["rho", command]));
    table::align_right(&mut table, [0, 3, 4, 5, 6, 7]);
    table::set_gap(&mut table, 2);
    for job in list.jobs.iter().take(JOBS_MAX) {
        table.add_row(row(job));
    }
    table::print(out, &table, list.jobs.len(), JOBS_MAX)?;
    writeln!(out, "{}", free(&list.pool))?;
    for (name, words) in holders(list, owner) {
        writeln!(out, "{}", wrapped(&format!("{name}: "), &words))?;
    }
    for job in list.jobs.iter().take(JOBS_MAX) {
        for (verb, note) in notes(job) {
            let lead = format!("job {}{verb}: ", job.id);
            writeln!(out, "{}", wrapped(&lead, &visible(&note)))?;
        }
    }
    print_tree(out, &list.jobs)
}

/// Remarks on a job, each with the verb before it.
pub(crate) fn notes(job: &Job) -> Vec<(&'static str, String)> {
    let mut notes = Vec::new();
    notes.extend(job.tasks.as_ref().map(|tasks| ("", figures(tasks))));
    notes.extend(job.waiting.as_ref().map(|waiting| (" waits", reason(waiting))));
    notes.extend(job.eviction.as_ref().map(|eviction| ("", eviction.text.clone())));
    if job.outside {
        let what = "its first process runs outside its cgroup, as after `su -`: its width stays reserved, and its CPU \
                    time is not its tenant's";
        notes.push(("", what.to_string()));
    } else if uses_nothing(job) {
        let what = "it uses none of its width: what it started may run elsewhere, as containers do, without its limits; \
                    docs/run.md has the forms that stay inside (TENANTD_CGROUP)";
        notes.push(("", what.to_string()));
    }
    notes
}

/// Prints the jobs that wait for others below these. A job with several requirements is below the last one.
fn print_tree(out: &mut impl Write, jobs: &[Job]) -> io::Result<()> {
    let mut below: BTreeMap<u64, Vec<&Job>> = BTreeMap::new();
    for job in jobs {
        if let Some(last) = job.after.iter().map(|it| it.id).max() {
            below.entry(last).or_default().push(job);
        }
    }
    below.values_mut().for_each(|jobs| jobs.sort_by_key(|job| job.id));
    let waits = |id: &u64| jobs.iter().any(|job| job.id == *id && !job.after.is_empty());
    let roots: Vec<u64> = below.keys().copied().filter(|id| !waits(id)).collect();
    let mut open: Vec<(u64, String, String)> =
        roots.iter().rev().map(|id| (*id, String::new(), String::new())).collect();
    for _ in 0..JOBS_MAX {
        let Some((id, lead, indent)) = open.pop() else { break };
        let job = jobs.iter().find(|job| job.id == id);
        let command = job.and_then(|job| job.command.as_deref()).unwrap_or("-");
        let line = format!("{lead}{id} {}{}", visible(command), job.map(needs).unwrap_or_default());
        writeln!(out, "{}", shortened(&line, WIDTH))?;
        let children = below.remove(&id).unwrap_or_default();
        for (place, child) in children.iter().enumerate().rev() {
            let is_last = place + 1 == children.len();
            let (branch, trunk) = if is_last { ("└ ", "  ") } else { ("├ ", "│ ") };
            open.push((child.id, format!("{indent}{branch}"), format!("{indent}{trunk}")));
        }
    }
    Ok(())
}

/// Requirements of a job in brackets.
fn needs(job: &Job) -> String {
    let of = |must_succeed: bool, name: &str| {
        let ids = job.after.iter().filter(|it| it.must_succeed == must_succeed);
        let ids: Vec<String> = ids.map(|it| it.id.to_string()).collect();
        (!ids.is_empty()).then(|| format!("{name} {}", ids.join(", ")))
    };
    let both: Vec<String> =
        [of(false, "after"), of(true, "after-ok")].into_iter().flatten().collect();
    if both.is_empty() { String::new() } else { format!(" ({})", both.join("; ")) }
}

/// Sums over the tasks of a set.
pub(super) fn figures(tasks: &Tasks) -> String {
    let Tasks { count, running, succeeded, failed, .. } = tasks;
    let rest = tasks.waiting();
    let most = tasks.at_once.map(|most| format!(", at most {most} at a time")).unwrap_or_default();
    format!(
        "{count} tasks: {succeeded} succeeded, {running} running, {failed} failed, {rest} waiting{most}"
    )
}

/// State of a job in a word or two.
pub(super) fn state(job: &Job) -> String {
    match (job.state, &job.waiting) {
        (JobState::Waiting, Some(waiting)) => format!("waits {}", waiting.position),
        (JobState::Waiting, None) => "waits".to_string(),
        (JobState::Running, _) if job.eviction.as_ref().is_some_and(|it| it.ending) => {
            "leaves".to_string()
        }
        (JobState::Running, _) if job.frozen => "frozen".to_string(),
        (JobState::Running, _) if job.outside => "outside".to_string(),
        (JobState::Running, _) if job.idle => "idle".to_string(),
        (JobState::Running, _) => "runs".to_string(),
        (JobState::Lingering, _) => "daemons".to_string(),
    }
}

fn row(job: &Job) -> Vec<String> {
    let mut cells = Vec::from(cells(job));
    cells[1] = shortened(&cells[1], NAME_WIDTH);
    cells[7] = shortened(&cells[7], COMMAND_WIDTH);
    cells.insert(7, rho(job.rho));
    cells
}

/// Finish-time fairness in a cell.
pub(super) fn rho(rho: Option<f64>) -> String {
    rho.map_or_else(|| "-".to_string(), |rho| format!("{rho:.2}"))
}

/// Finish-time fairness as a line of everything about a job.
pub(super) fn rho_line(rho: Option<f64>, unknown: Option<&str>) -> Option<(&'static str, String)> {
    let known = rho.map(|rho| {
        format!("{rho:.2} times as long as alone at its tenant's share of the CPUs, at most")
    });
    Some(("rho", known.or_else(|| unknown.map(|why| format!("not known: {why}")))?))
}

/// Heads of the columns of a list of jobs.
pub(crate) const HEADS: [&str; 8] =
    ["job", "tenant", "state", "wide", "cpu", "memory", "for", "command"];

/// Cells of a job, below [`HEADS`].
pub(crate) fn cells(job: &Job) -> [String; 8] {
    let unknown = || "-".to_string();
    let time = |seconds: f64| Duration::try_from_secs_f64(seconds).map_or_else(|_| unknown(), age);
    let wide = job.started.as_ref().map_or_else(unknown, |started| started.dop.to_string());
    let bytes = job.used_memory_bytes.or(job.memory_bytes);
    [
        job.id.to_string(),
        visible(&job.tenant),
        state(job),
        wide,
        job.cpu_seconds.map_or_else(unknown, time),
        bytes.map_or_else(unknown, |bytes| memory(bytes as f64)),
        time(job.ran_seconds.unwrap_or(job.waited_seconds)),
        visible(job.command.as_deref().unwrap_or("-")),
    ]
}

/// Time after which the use of a job is judged, and the part of its width below which it uses none.
const JUDGED_SECONDS: f64 = 30.0;
const UNUSED: f64 = 0.02;

/// True if a job runs and its processes do nothing.
fn uses_nothing(job: &Job) -> bool {
    let (Some(started), Some(ran), Some(used)) = (&job.started, job.ran_seconds, job.cpu_seconds)
    else {
        return false;
    };
    let is_judged = job.state == JobState::Running && !job.frozen && ran >= JUDGED_SECONDS;
    is_judged && used < UNUSED * ran * f64::from(started.dop.max(1))
}

/// The reason for which a job waits, and the expected time.
pub(crate) fn reason(waiting: &Waiting) -> String {
    let estimate = waiting.estimate_seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
    let estimate = estimate.map(|time| format!("; about {}", age(time))).unwrap_or_default();
    format!("{}{estimate}", waiting.reason.text)
}

/// Counted resources that jobs in the list hold, each with its holders in words.
pub(crate) fn holders(
    list: &ListReply,
    owner: impl Fn(&HeldUnits) -> String,
) -> Vec<(String, String)> {
    let of_one = |units: &Units| {
        let free = list.pool.free_units.iter().find(|free| free.name == units.name);
        let held = list.jobs.iter().filter_map(|job| {
            let assigned = job.started.iter().flat_map(|started| &started.assigned);
            let indices = assigned.filter(|it| it.name == units.name).flat_map(|it| &it.indices);
            let indices: Vec<u32> = indices.copied().collect();
            let (uid, tenant) = (job.uid, job.tenant.clone());
            (!indices.is_empty()).then_some(HeldUnits { job: job.id, tenant, uid, indices })
        });
        let (name, count) = (units.name.clone(), units.count);
        UnitsStatus { name, count, free: free.map_or(0, |it| it.count), held: held.collect() }
    };
    let all = list.pool.units.iter().map(of_one);
    let all = all.filter(|units| !units.held.is_empty());
    all.map(|units| (visible(&units.name), units.in_words(&owner))).collect()
}

/// Free slots, memory and counted resources of jobs.
pub(crate) fn free(pool: &Pool) -> String {
    let Pool { slots, free_slots, .. } = pool;
    let mut parts = vec![format!("{free_slots} of {slots} slots")];
    if let (Some(free), Some(all)) = (pool.free_memory_bytes, pool.memory_bytes) {
        parts.push(format!("{} of {} of memory", memory(free as f64), memory(all as f64)));
    }
    for all in &pool.units {
        let free = pool.free_units.iter().find(|free| free.name == all.name);
        let free = free.map_or_else(|| "-".to_string(), |free| free.count.to_string());
        parts.push(format!("{free} of {} {}", all.count, visible(&all.name)));
    }
    format!("free: {}", parts.join(", "))
}

/// Runs `cancel`: a waiting job leaves the queue; the processes of a running one get SIGTERM.
pub(crate) fn cancel(daemon: &Endpoint, args: &CancelArgs) -> anyhow::Result<Exit> {
    let parameters = CancelParameters { id: args.id };
    let reply = daemon.call::<method::Cancel>(&parameters).map_err(|error| match error {
        ClientError::NotYours(_) | ClientError::NotPermitted(_) => ClientError::NotYourJob(args.id),
        error => error,
    });
    let CancelReply { is_running, pids } = reply?;
    let open =
        |pid: u32| Some((pid, pidfd_open(Pid::from_raw(pid as i32)?, PidfdFlags::empty()).ok()?));
    let processes: Vec<(u32, OwnedFd)> = pids.into_iter().filter_map(open).collect();
    // A number may have become that of another process before it was opened. A process that the daemon
    // still counts among the job's processes after that is the open one, or has ended.
    let still = if is_running {
        match daemon.call::<method::Cancel>(&parameters) {
            Ok(reply) => reply.pids,
            Err(ClientError::Refused(CallError::NoSuchJob { .. })) => Vec::new(),
            Err(error) => return Err(error.into()),
        }
    } else {
        Vec::new()
    };
    let (mut signalled, mut failures) = (Vec::new(), Vec::new());
    for (pid, process) in processes.iter().filter(|(pid, _)| still.contains(pid)) {
        match pidfd_send_signal(process, Signal::TERM) {
            Ok(()) => signalled.push(*pid),
            Err(Errno::SRCH) => {}
            Err(error) => failures.push(format!("process {pid}: {}", io::Error::from(error))),
        }
    }
    let mut out = io::stdout().lock();
    let id = args.id;
    match (args.json, is_running) {
        (true, _) => {
            let object = json!({ "id": id, "is_running": is_running, "pids": signalled, "failures": failures });
            json::write_line(&mut out, &object)?;
        }
        (false, false) => writeln!(out, "job {id} has left the queue")?,
        (false, true) => {
            let pids: Vec<String> = signalled.iter().map(u32::to_string).collect();
            if pids.is_empty() {
                writeln!(out, "job {id}: no process is left to end")?
            } else {
                writeln!(out, "job {id}: sent SIGTERM to {}", pids.join(", "))?
            }
        }
    }
    Ok(print_failures("", &failures, args.json))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenantd_varlink::jobs::Started;

    #[test]
    fn a_job_whose_work_is_elsewhere_is_named() {
        let started = Started { dop: 2, ..Started::default() };
        let idle = Job {
            id: 7,
            state: JobState::Running,
            ran_seconds: Some(600.0),
            cpu_seconds: Some(1.5),
            started: Some(started),
            ..Job::default()
        };
        let printed = |job: &Job| {
            let mut out = Vec::new();
            let list = ListReply { jobs: vec![job.clone()], ..ListReply::default() };
            print(&mut out, &list).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert!(printed(&idle).contains("job 7: it uses none of its width"), "{}", printed(&idle));
        for other in [
            Job { ran_seconds: Some(5.0), cpu_seconds: Some(0.0), ..idle.clone() },
            Job { cpu_seconds: Some(60.0), ..idle.clone() },
            Job { cpu_seconds: None, ..idle.clone() },
            Job { frozen: true, ..idle.clone() },
            Job { state: JobState::Lingering, ..idle.clone() },
            Job { outside: true, ..idle.clone() },
        ] {
            assert!(!printed(&other).contains("none of its width"), "{other:?}");
        }
    }
}
