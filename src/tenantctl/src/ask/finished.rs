//! `tenantctl jobs`, with the finished jobs, and `tenantctl wait`.

use std::io::{self, IsTerminal, Write};
use std::process;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;
use serde_json::json;

use super::jobs;
use crate::args::{JobsArgs, WaitArgs};
use crate::common::readers;
use tenantd::exit::Exit;
use tenantd_lab::text::{age, memory, shortened, visible, wrapped};
use tenantd_lab::time::Clock;
use tenantd_lab::{json, table};
use tenantd_varlink::class::{ClassFigures, Percentiles, declaration};
use tenantd_varlink::client::{ClientError, Endpoint, RESTART_PAUSE, RESTART_TIME};
use tenantd_varlink::error::CallError;
use tenantd_varlink::interface::{Nothing, method};
use tenantd_varlink::jobs::{
    EndReason, FinishedJob, FinishedParameters, Forecast, Job, ListReply, Units, WaitParameters,
};

const NAME_WIDTH: usize = 12;
const COMMAND_WIDTH: usize = 10;
const JOBS_MAX: usize = 200;
/// Offset of signals in exit codes of shells.
const SIGNALLED: u16 = 128;

/// Runs `jobs`: the running and waiting jobs, with `--all` the finished ones too; with a number that job.
pub(crate) fn list(daemon: &Endpoint, args: &JobsArgs) -> anyhow::Result<Exit> {
    if let Some(id) = args.id {
        return one(daemon, id, args.json);
    }
    if let Some(class) = &args.class {
        return of_class(daemon, class, args.json);
    }
    let reply = daemon.call::<method::List>(&Nothing {})?;
    let finished = args.all.then(|| all(daemon)).transpose()?;
    let mut out = io::stdout().lock();
    if reply.own_only {
        readers::print_note(&mut out, &daemon.path, args.json)?;
    }
    match (args.json, finished) {
        (true, Some(finished)) => {
            let ListReply { jobs, pool, own_only } = reply;
            let object =
                json!({ "jobs": jobs, "pool": pool, "own_only": own_only, "finished": finished });
            json::write_line(&mut out, &object)?;
        }
        (true, None) => json::write_line(&mut out, &reply)?,
        (false, finished) => {
            jobs::print(&mut out, &reply)?;
            if let Some(finished) = finished {
                writeln!(out)?;
                print(&mut out, &finished)?;
            }
        }
    }
    Ok(Exit::Ok)
}

/// Finished jobs, the caller's own or all for an administrator.
fn all(daemon: &Endpoint) -> Result<Vec<FinishedJob>, ClientError> {
    Ok(daemon.call::<method::Finished>(&FinishedParameters { id: None })?.jobs)
}

/// Runs `jobs --class`: figures of the finished jobs of a class that the caller may see.
fn of_class(daemon: &Endpoint, class: &str, is_json: bool) -> anyhow::Result<Exit> {
    let jobs = all(daemon)?;
    let figures = ClassFigures::of(jobs.iter().filter(|job| job.class.as_deref() == Some(class)));
    let mut out = io::stdout().lock();
    if is_json {
        json::write_line(&mut out, &figures)?;
    } else if figures.nr_jobs == 0 {
        writeln!(out, "no finished jobs of class {}: see tenantctl jobs --all", visible(class))?;
    } else {
        print_class(&mut out, &visible(class), &figures)?;
    }
    Ok(Exit::Ok)
}

fn print_class(out: &mut impl Write, class: &str, figures: &ClassFigures) -> io::Result<()> {
    let ClassFigures { nr_jobs, nr_exceeded, .. } = figures;
    let head = format!("{nr_jobs} finished jobs, {nr_exceeded} exceeded their declared memory");
    writeln!(out, "{}", wrapped(&format!("class {class}: "), &head))?;
    let mut table = table::plain();
    table.set_header(["", "10 %", "50 %", "90 %", "95 %", "largest"]);
    for (name, values, show) in [
        ("peak", figures.peak_bytes, memory as fn(f64) -> String),
        ("ran", figures.ran_seconds, time),
        ("cpu", figures.cpu_seconds, time),
    ] {
        let Some(Percentiles { p10, p50, p90, p95, max }) = values else { continue };
        let mut row = vec![name.to_string()];
        row.extend([p10, p50, p90, p95, max].map(show));
        table.add_row(row);
    }
    table::align_figures(&mut table);
    table::set_gap(&mut table, 2);
    write!(out, "{}", table::text(&table))?;
    if let Some(proposed) = figures.proposed_bytes {
        let proposed = format!(
            "--memory {} covers 95 % of the peaks, and 1.2 times each that a kill cut off",
            declaration(proposed)
        );
        writeln!(out, "{}", wrapped("", &proposed))?;
    }
    Ok(())
}

/// Prints the table of finished jobs, the last first.
pub(super) fn print(out: &mut impl Write, finished: &[FinishedJob]) -> io::Result<()> {
    let is_whole = !io::stdout().is_terminal();
    print_as(out, finished, is_whole)
}

fn print_as(out: &mut impl Write, finished: &[FinishedJob], is_whole: bool) -> io::Result<()> {
    if finished.is_empty() {
        return writeln!(out, "no finished jobs");
    }
    let mut table = table::plain();
    // A terminal has no room for all columns.
    let rho = is_whole.then_some("rho");
    let heads = ["job", "tenant", "end", "cpu", "peak", "ran", "ago"];
    table.set_header(heads.into_iter().chain(rho).chain(["command"]));
    table::align_right(&mut table, [0, 3, 4, 5, 6]);
    table::set_gap(&mut table, 2);
    let most = if is_whole { usize::MAX } else { JOBS_MAX };
    for job in finished.iter().rev().take(most) {
        table.add_row(row(job, is_whole));
    }
    table::print(out, &table, finished.len(), most)
}

fn row(job: &FinishedJob, is_whole: bool) -> Vec<String> {
    let unknown = || "-".to_string();
    let fit = |text: &str, width| if is_whole { visible(text) } else { shortened(text, width) };
    let ago = since_1970() - job.ended_unix_seconds;
    let cells = [
        job.id.to_string(),
        fit(&job.tenant, NAME_WIDTH),
        end(job),
        job.cpu_seconds.map_or_else(unknown, time),
        job.peak_memory_bytes.map_or_else(unknown, |bytes| memory(bytes as f64)),
        job.ran_seconds.map_or_else(unknown, time),
        time(ago.max(0.0)),
    ];
    let command = fit(job.command.as_deref().unwrap_or("-"), COMMAND_WIDTH);
    let rho = is_whole.then(|| jobs::rho(job.rho));
    cells.into_iter().chain(rho).chain([command]).collect()
}

/// End in a word or two.
fn end(job: &FinishedJob) -> String {
    match (job.reason, job.exit_code, job.exit_signal) {
        (EndReason::Exited, Some(code), _) => format!("exit {code}"),
        (EndReason::Signalled, _, Some(signal)) => signal_name(signal),
        (EndReason::Killed, ..) => "killed".to_string(),
        (EndReason::Cancelled, ..) => "cancelled".to_string(),
        (EndReason::Withdrawn | EndReason::Requeued, ..) => "withdrawn".to_string(),
        (EndReason::StartFailed, ..) => "no start".to_string(),
        (EndReason::TenantGone, ..) => "no tenant".to_string(),
        (EndReason::RequirementFailed, ..) => "not met".to_string(),
        (EndReason::Evicted, ..) => "evicted".to_string(),
        _ => "ended".to_string(),
    }
}

fn signal_name(signal: u8) -> String {
    let known = Signal::try_from(i32::from(signal)).ok();
    known.map_or_else(|| format!("signal {signal}"), |signal| signal.to_string())
}

fn time(seconds: f64) -> String {
    Duration::try_from_secs_f64(seconds).map_or_else(|_| "-".to_string(), age)
}

fn since_1970() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Runs `jobs ID`: everything about one job.
fn one(daemon: &Endpoint, id: u64, is_json: bool) -> anyhow::Result<Exit> {
    let list = daemon.call::<method::List>(&Nothing {})?;
    let own_only = list.own_only;
    let job = list.jobs.into_iter().find(|job| job.id == id);
    let asked = daemon.call::<method::Finished>(&FinishedParameters { id: Some(id) });
    let finished = match asked {
        Ok(reply) => reply.jobs.into_iter().next(),
        Err(ClientError::Refused(CallError::NoSuchJob { .. })) if job.is_some() => None,
        // A daemon without finished jobs still has the others.
        Err(ClientError::OlderDaemon(_)) if job.is_some() => None,
        Err(error @ ClientError::Refused(CallError::NoSuchJob { .. })) if own_only => {
            let remedy = tenantd_varlink::readers::remedy(&daemon.path);
            let what = format!("you have no job {id}, and may not see those of others; {remedy}");
            return Err(anyhow::Error::new(error).context(what));
        }
        Err(error) => return Err(error.into()),
    };
    let mut out = io::stdout().lock();
    if is_json {
        json::write_line(&mut out, &json!({ "job": job, "finished": finished }))?;
        return Ok(Exit::Ok);
    }
    let lines = match (&finished, &job) {
        (Some(finished), job) => of_finished(finished, job.is_some()),
        (None, Some(job)) => of_active(job),
        (None, None) => Vec::new(),
    };
    for (name, value) in lines {
        writeln!(out, "{}", wrapped(&format!("{name:<10}"), &value))?;
    }
    Ok(Exit::Ok)
}

fn of_finished(job: &FinishedJob, lingers: bool) -> Vec<(&'static str, String)> {
    let clock = Clock::new(false);
    let at =
        |seconds: f64| clock.with_zone(Duration::try_from_secs_f64(seconds).unwrap_or_default());
    let mut lines = vec![
        ("job", job.id.to_string()),
        ("tenant", job.tenant.clone()),
        ("user", job.uid.to_string()),
        ("end", job.text.clone()),
        ("submitted", at(job.submitted_unix_seconds)),
    ];
    lines.extend(job.hint.iter().map(|hint| ("hint", hint.clone())));
    lines.extend(job.started_unix_seconds.map(|seconds| ("started", at(seconds))));
    lines.extend([("ended", at(job.ended_unix_seconds)), ("waited", time(job.waited_seconds))]);
    lines.extend(job.ran_seconds.map(|seconds| ("ran", time(seconds))));
    lines.extend(job.cpu_seconds.map(|seconds| ("cpu", format!("{seconds:.1} s"))));
    lines.extend(jobs::rho_line(job.rho, job.rho_unknown.as_deref()));
    let peak = job.peak_memory_bytes.map(|bytes| format!("peak {}", memory(bytes as f64)));
    lines.extend(of_memory(peak, job.memory_bytes));
    lines.extend(job.dop.map(|dop| ("width", dop.to_string())));
    lines.extend(job.tasks.map(|tasks| ("tasks", jobs::figures(&tasks))));
    lines.extend(of_request(&job.units, job.class.as_deref(), job.command.as_deref()));
    if lingers {
        lines.push(("note", "processes that it left behind still run".to_string()));
    }
    lines
}

fn of_active(job: &Job) -> Vec<(&'static str, String)> {
    let mut lines = vec![
        ("job", job.id.to_string()),
        ("tenant", job.tenant.clone()),
        ("user", job.uid.to_string()),
        ("process", job.pid.to_string()),
        ("state", jobs::state(job)),
    ];
    lines.extend(job.waiting.as_ref().map(|waiting| ("reason", jobs::reason(waiting))));
    let starts = job.waiting.as_ref().and_then(|waiting| waiting.starts);
    lines.extend(starts.map(|starts| ("starts in", start(&starts))));
    lines.extend(job.tasks.map(|tasks| ("tasks", jobs::figures(&tasks))));
    lines.push(("waited", time(job.waited_seconds)));
    lines.extend(job.ran_seconds.map(|seconds| ("ran", time(seconds))));
    lines.extend(job.ends.map(|ends| ("ends in", forecast(&ends))));
    lines.extend(job.cpu_seconds.map(|seconds| ("cpu", format!("{seconds:.1} s"))));
    lines.extend(jobs::rho_line(job.rho, job.rho_unknown.as_deref()));
    let used = job.used_memory_bytes.map(|bytes| format!("uses {}", memory(bytes as f64)));
    lines.extend(of_memory(used, job.memory_bytes));
    if let Some(started) = &job.started {
        lines.push(("width", started.dop.to_string()));
        lines.extend(started.cpus.as_ref().map(|cpus| ("cpus", cpus.clone())));
        lines.push(("cgroup", started.cgroup.clone()));
        let assigned = started.assigned.iter();
        lines.extend(assigned.map(|it| ("has", format!("{} {}", it.name, it.list()))));
        lines.extend(started.ineffective.iter().map(|what| ("note", what.clone())));
    }
    lines.extend(of_request(&job.units, job.class.as_deref(), job.command.as_deref()));
    lines
}

fn forecast(ends: &Forecast) -> String {
    let Forecast { low_seconds, likely_seconds, high_seconds, nr_jobs } = ends;
    format!(
        "{}; 4 of 5 jobs of its class in {} to {} ({nr_jobs} ran as long)",
        time(*likely_seconds),
        time(*low_seconds),
        time(*high_seconds)
    )
}

fn start(starts: &Forecast) -> String {
    let Forecast { low_seconds, likely_seconds, high_seconds, nr_jobs } = starts;
    format!(
        "{}; 4 of 5 times {} to {}, by {nr_jobs} runs of each class, if no other job goes before",
        time(*likely_seconds),
        time(*low_seconds),
        time(*high_seconds)
    )
}

fn of_memory(used: Option<String>, declared: Option<u64>) -> Option<(&'static str, String)> {
    let declared = declared.map(|bytes| format!("declared {}", memory(bytes as f64)));
    let parts: Vec<String> = used.into_iter().chain(declared).collect();
    (!parts.is_empty()).then(|| ("memory", parts.join(", ")))
}

fn of_request(
    units: &[Units],
    class: Option<&str>,
    command: Option<&str>,
) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if !units.is_empty() {
        let units: Vec<String> =
            units.iter().map(|it| format!("{} {}", it.count, it.name)).collect();
        lines.push(("units", units.join(", ")));
    }
    lines.extend(class.map(|class| ("class", class.to_string())));
    lines.extend(command.map(|command| ("command", command.to_string())));
    lines
}

/// Exit status as shells have it: the code, or 128 and the signal; `None` if it is not known.
pub(crate) fn status_of(job: &FinishedJob) -> Option<u16> {
    let signal = job.exit_signal.map(|signal| SIGNALLED + u16::from(signal));
    job.exit_code.map(u16::from).or(signal)
}

/// Runs `wait`: ends with the exit status of the job.
pub(crate) fn wait(daemon: &Endpoint, args: &WaitArgs) -> anyhow::Result<Exit> {
    let job = ended(daemon, args.id)?;
    let mut out = io::stdout().lock();
    if args.json {
        json::write_line(&mut out, &job)?
    } else {
        writeln!(out, "{}", wrapped(&format!("job {}: ", job.id), &job.text))?;
        if let Some(hint) = &job.hint {
            writeln!(out, "{}", wrapped("hint: ", hint))?;
        }
    }
    let Some(status) = status_of(&job) else { return Ok(Exit::NotKnown) };
    out.flush()?;
    // The status of another command, whatever it is.
    process::exit(status.into())
}

/// Returns the record of a job once it has ended. A daemon that restarts meanwhile is asked again.
fn ended(daemon: &Endpoint, id: u64) -> Result<FinishedJob, ClientError> {
    let deadline = daemon.timeout.map(|time| (Instant::now() + time, time));
    let endpoint = Endpoint { timeout: None, ..daemon.clone() };
    let mut lost: Option<Instant> = None;
    let mut has_waited = false;
    loop {
        let left = deadline.map(|(end, _)| end.saturating_duration_since(Instant::now()));
        let replies =
            endpoint.connect().and_then(|it| it.stream::<method::Wait>(&WaitParameters { id }));
        let is_connected = replies.is_ok();
        let outcome = replies.and_then(|mut replies| replies.next(left));
        match (outcome, deadline) {
            (Ok(reply), _) => return Ok(reply.job),
            (Err(ClientError::Late { .. }), Some((_, time))) => {
                return Err(ClientError::NotEnded(id, time));
            }
            // A daemon that restarts finds its jobs at its first tick.
            (
                Err(
                    ClientError::Ended(_)
                    | ClientError::NotRunning(_)
                    | ClientError::Refused(CallError::NoSuchJob { .. }),
                ),
                _,
            ) if has_waited && lost.is_some_and(|since| since.elapsed() < RESTART_TIME) => {}
            (Err(ClientError::Ended(_)), _) if is_connected => lost = Some(Instant::now()),
            (Err(error), _) => return Err(error),
        }
        has_waited |= is_connected;
        thread::sleep(RESTART_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenantd_lab::text::WIDTH;

    fn job() -> FinishedJob {
        FinishedJob {
            id: 123_456,
            tenant: "customers/acme/nightly".into(),
            command: Some("python3 -m train --epochs 400 --data /srv/data".into()),
            cpu_seconds: Some(7_000.0),
            ran_seconds: Some(7_000.0),
            ended_unix_seconds: since_1970() - 7_000_000.0,
            peak_memory_bytes: Some(1023 << 20),
            exit_signal: Some(26),
            reason: EndReason::Signalled,
            text: "ended by signal 26 (SIGVTALRM)".into(),
            ..FinishedJob::default()
        }
    }

    #[test]
    fn a_table_fits_a_terminal_and_is_whole_in_a_pipe() {
        let printed = |is_whole| {
            let mut out = Vec::new();
            print_as(&mut out, &[job()], is_whole).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert!(
            printed(false).lines().all(|line| line.chars().count() <= WIDTH),
            "{}",
            printed(false)
        );
        let whole = printed(true);
        assert!(whole.contains("customers/acme/nightly") && whole.contains("/srv/data"), "{whole}");
    }

    #[test]
    fn the_figures_of_a_class_fit_a_terminal() {
        let jobs = [1, 2, 3].map(|hours| FinishedJob {
            started_unix_seconds: Some(1.0),
            ran_seconds: Some(f64::from(hours) * 36_000.0),
            ..job()
        });
        let mut out = Vec::new();
        print_class(&mut out, "train", &ClassFigures::of(jobs.iter())).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("class train: 3 finished jobs, 0 exceeded"), "{text}");
        assert!(text.contains("--memory 1023MiB covers 95 %"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    }

    #[test]
    fn an_exit_status_is_that_of_shells() {
        assert_eq!(status_of(&job()), Some(154));
        assert_eq!(
            status_of(&FinishedJob { exit_code: Some(3), ..FinishedJob::default() }),
            Some(3)
        );
        assert_eq!(status_of(&FinishedJob::default()), None);
    }
}
