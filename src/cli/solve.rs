//! `tenantctl solve`: the allocation of a problem file.
//!
//! The pure core for anyone to call: `read` turns the text into a [`fair::Problem`] and says where in the
//! text everything stands, `show` turns the solution into a table or into JSON. What is wrong with a problem
//! is reported all at once, on standard error in the manner of rustc, and with `--json` on standard output
//! as records; the exit code is then 78.

mod findings;
mod judge;
mod read;
mod show;
mod values;

use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::path::Path;

use anyhow::Context;
use serde::Serialize;

use super::args::SolveArgs;
use super::exit::Exit;
use crate::fair;
use crate::policy::Report;
use crate::policy::report::{Finding, Style};

/// The largest file that is read.
const LONGEST_BYTES: u64 = 1 << 30;

/// Runs the command.
///
/// # Errors
/// What could not be read or printed. A bad problem is no error but an exit code.
pub(super) fn run(args: &SolveArgs) -> anyhow::Result<Exit> {
    let (name, text) = read_text(&args.problem)?;
    let task = match read::read(&name, text) {
        Ok(task) => task,
        Err(report) => {
            refuse(&report, args.json)?;
            return Ok(Exit::BadConfiguration);
        }
    };
    let solution = fair::allocate(&task.problem, task.algorithm, task.work_conserving);
    let mut out = BufWriter::new(io::stdout().lock());
    match args.json {
        true => show::json(&mut out, &task, &solution)?,
        false => show::table(&mut out, &task, &solution)?,
    }
    out.flush()?;
    Ok(Exit::Ok)
}

/// The name of a problem as findings call it, and its text.
fn read_text(path: &Path) -> anyhow::Result<(String, Vec<u8>)> {
    let name = path.display().to_string();
    let mut bytes = Vec::new();
    // One byte beyond the bound tells a file that is too long from one that just fits.
    match name.as_str() {
        "-" => io::stdin().lock().take(LONGEST_BYTES + 1).read_to_end(&mut bytes),
        _ => std::fs::File::open(path)
            .and_then(|file| file.take(LONGEST_BYTES + 1).read_to_end(&mut bytes)),
    }
    .with_context(|| format!("cannot read {name}"))?;
    Ok((name, bytes))
}

#[derive(Serialize)]
struct Refusal {
    findings: Vec<Finding>,
    findings_left_out: usize,
}

/// Shows what is wrong with a problem.
fn refuse(report: &Report, json: bool) -> anyhow::Result<()> {
    if json {
        let findings = report.findings().iter().map(|finding| finding.to_finding()).collect();
        let refusal = Refusal { findings, findings_left_out: report.left_out() };
        let mut out = io::stdout().lock();
        serde_json::to_writer(&mut out, &refusal)?;
        writeln!(out)?;
        return Ok(());
    }
    let colour = io::stderr().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    write!(io::stderr(), "{}", report.render(Style { colour, ..Style::PLAIN }))?;
    Ok(())
}
