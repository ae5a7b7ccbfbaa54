//! `tenantctl status` and `tenantctl watch`: the tenants now, once or at each tick.

use std::io::{self, Write};

use anyhow::bail;
use serde::Serialize;

use super::me;
use crate::args::{StatusArgs, TenantsArgs, WatchArgs};
use crate::common::output::{Output, has_escapes};
use crate::common::rows::{Choice, Idle, is_chosen, lacks};
use crate::show::status::{Look, shown};
use tenantd::exit::Exit;
use tenantd_control::report::status::Status;
use tenantd_varlink::client::{ClientError, Endpoint};
use tenantd_varlink::interface::{Nothing, WatchReply, method};

pub(crate) fn run(daemon: &Endpoint, args: &StatusArgs) -> anyhow::Result<Exit> {
    let reply = match daemon.call::<method::GetStatus>(&Nothing {}) {
        Err(ClientError::NotReader { .. }) => return me::instead(daemon, args.json),
        reply => reply?,
    };
    let mut status = reply.status;
    let look = look(&args.tenants);
    check_name(&status, &look.choice)?;
    let mut out = io::stdout().lock();
    if args.json {
        choose(&mut status, &look.choice);
        writeln!(out, "{}", serde_json::to_string(&status)?)?
    } else {
        write!(out, "{}", shown(&status, &look))?
    }
    Ok(Exit::Ok)
}

/// Rows and columns for the place of standard output.
fn look(args: &TenantsArgs) -> Look {
    let output = Output::of_stdout();
    let idle = match output {
        Output::Terminal { .. } if !args.verbose && args.tenant.is_none() => Idle::Folded,
        _ => Idle::Shown,
    };
    let choice = Choice {
        name: args.tenant.clone(),
        lacking: args.lacking,
        sort: args.sort,
        idle,
        ..Choice::default()
    };
    Look { choice, output, is_verbose: args.verbose }
}

fn check_name(status: &Status, choice: &Choice) -> anyhow::Result<()> {
    match &choice.name {
        Some(name) if status.lines().iter().all(|line| line.name() != name) => {
            bail!("the policy has no tenant or group `{name}`: `tenantctl status` lists them")
        }
        _ => Ok(()),
    }
}

/// Removes the tenants and groups that `choice` leaves out.
fn choose(status: &mut Status, choice: &Choice) {
    let thresholds = status.thresholds;
    status.groups.retain(|group| is_chosen(&group.name, choice) && !choice.lacking);
    status.tenants.retain(|tenant| {
        is_chosen(&tenant.name, choice) && (!choice.lacking || lacks(tenant, &thresholds))
    });
}

/// A line of `watch --json`: a status, and the number of ticks skipped before it.
#[derive(Serialize)]
struct Frame<'a> {
    lost: u64,
    #[serde(flatten)]
    status: &'a Status,
}

/// Runs `watch`, until the daemon ends or the output is closed.
pub(crate) fn watch(daemon: &Endpoint, args: &WatchArgs) -> anyhow::Result<Exit> {
    let mut frames = daemon.connect()?.watch()?;
    let mut out = io::stdout().lock();
    let redraws = has_escapes() && !args.json;
    let (mut nr_shown, mut drawn_lines) = (0, 0);
    while args.count.is_none_or(|count| nr_shown < count) {
        let WatchReply { mut status, lost } = frames.next_tick()?;
        let mut look = look(&args.tenants);
        if nr_shown == 0 {
            check_name(&status, &look.choice)?;
        }
        if args.json {
            choose(&mut status, &look.choice);
            writeln!(out, "{}", serde_json::to_string(&Frame { lost, status: &status })?)?;
        } else {
            if drawn_lines > 0 && redraws {
                write!(out, "\x1b[{drawn_lines}A\x1b[J")?;
            } else if nr_shown > 0 {
                writeln!(out)?;
            }
            if let Output::Terminal { lines, .. } = &mut look.output
                && !redraws
            {
                *lines = usize::MAX;
            }
            let text = fitting(shown(&status, &look), look.output);
            drawn_lines = text.lines().count();
            write!(out, "{text}")?;
        }
        out.flush()?;
        nr_shown += 1;
    }
    Ok(Exit::Ok)
}

/// Text in at most as many lines as the screen has: the next tick cannot replace lines that have scrolled off.
fn fitting(text: String, output: Output) -> String {
    let Output::Terminal { lines, .. } = output else { return text };
    let nr_lines = text.lines().count();
    // The cursor is in the last line.
    let room = lines.saturating_sub(1).max(1);
    if nr_lines <= room {
        return text;
    }
    let more = format!("… {} more lines: tenantctl status, or tenantctl top", nr_lines + 1 - room);
    let first = text.lines().take(room - 1);
    first.chain([more.as_str()]).map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_never_scrolls_its_screen() {
        let text: String = (0..9).map(|line| format!("{line}\n")).collect();
        let on = |lines| fitting(text.clone(), Output::Terminal { columns: 80, lines });
        assert_eq!((on(10), on(usize::MAX)), (text.clone(), text.clone()));
        assert!(on(9).ends_with("6\n… 2 more lines: tenantctl status, or tenantctl top\n"));
        for lines in 2..10 {
            assert_eq!(on(lines).lines().count(), lines - 1, "{lines}");
        }
        assert_eq!(fitting(text.clone(), Output::Stream), text);
    }
}
