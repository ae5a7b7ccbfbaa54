//! `tenantctl plan --replay`: what another policy would have done with what was recorded.
//!
//! Two control loops are given the same recording: that of the agent, which decides again what it decided then, and a
//! *rival* with the other policy ([`rival`]). Both estimate demand from what the tenants really did under the policy of
//! that time. So what a tenant would have used under the other one is not known, and not claimed: what is compared is what
//! each was entitled to, beside the larger of the two estimates of what it wanted. A tenant that was held back then may
//! have wanted more than either could see.
//!
//! The values that the rival would write are taken as written at once. The cgroups above tenants keep what they have, and
//! tenants are nested as the policy nests them.

mod measure;
mod page;
mod rival;
mod show;

use std::fs;
use std::io;
use std::path::Path;

use anyhow::Context;

use super::json;
use crate::time::Clock;
use measure::Comparison;
use rival::Rival;
use tenantd::args::Colour;
use tenantd::command::load;
use tenantd::exit::Exit;
use tenantd_host::recording::tape::{self, Tape, TapeError};

/// What is wanted beside the table.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// One JSON object for each tick and a summary, instead of the table.
    pub json: bool,
    /// A page with pictures, written to this file.
    pub report: Option<&'a Path>,
    /// Times in UTC, not in the time zone of this host.
    pub utc: bool,
}

/// Runs the command.
///
/// # Errors
/// The recording cannot be read, or an output cannot be written.
pub fn run(
    recording: &Path,
    policy: &Path,
    args: &Wanted<'_>,
    colour: Colour,
) -> anyhow::Result<Exit> {
    let Some(policy) = load(policy, colour) else { return Ok(Exit::BadConfiguration) };
    let mut out = io::stdout().lock();
    let clock = Clock::new(args.utc);
    let mut comparison = Comparison::default();
    let mut rival: Option<Rival> = None;
    for (_, path) in tape::segments(recording)? {
        let mut tape = match Tape::open(&path) {
            Ok(tape) => tape,
            Err(TapeError::OtherVersion { version, .. }) if recording.is_dir() => {
                comparison.note_other_version(version);
                continue;
            }
            // All that a crash has left of it.
            Err(TapeError::Torn(_)) if recording.is_dir() => continue,
            Err(error) => return Err(error.into()),
        };
        let rival = rival.get_or_insert_with(|| Rival::new(&policy, &tape.control));
        rival.take_up(&tape.control);
        comparison.begin(&tape);
        while let Some(tick) = rival.play(&mut tape) {
            comparison.take(&tick, &tape.control, rival);
            if args.json
                && let Some(line) = comparison.line(&tick, &tape.control, rival)
            {
                json::write_line(&mut out, &line)?;
            }
        }
    }
    if let Some(rival) = &rival {
        comparison.note_unmatched(rival);
    }
    anyhow::ensure!(
        comparison.nr_ticks > 0,
        "{}: no tick is recorded there that this version of tenantd can replay",
        recording.display()
    );
    if let Some(path) = args.report {
        fs::write(path, page::page(&comparison, &clock)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    match args.json {
        true => json::write_line(&mut out, &comparison.summary())?,
        false => show::print(&mut out, &comparison, &clock)?,
    }
    Ok(Exit::Ok)
}
