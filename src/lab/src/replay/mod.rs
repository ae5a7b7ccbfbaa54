//! `tenantctl plan --replay`: the decisions of another policy on a recording.
//!
//! Two control loops replay the same recording: that of the agent, which repeats its decisions, and a
//! *rival* with the other policy ([`rival`]). Both estimate demand from the usage that was recorded under
//! the policy of that time. The comparison shows the entitlements, beside the larger of the two estimates of demand, and a
//! forecast of the use under the other policy, with an interval ([`forecast`]). A tenant that was throttled then may
//! have wanted more than either estimate.
//!
//! The values that the rival would write count as written at once. The cgroups above tenants keep their
//! values, and tenants are nested like in the policy.

mod forecast;
mod measure;
mod origin;
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
use tenantd_host::recording::tape::{self, Damage, Listing, Tape, TapeError};

/// Form of the output.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Prints one JSON object for each tick and a summary, instead of the table.
    pub json: bool,
    /// File for a page with pictures.
    pub report: Option<&'a Path>,
    /// Prints times in UTC instead of the time zone of this host.
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
    let Listing { segments, damaged } = tape::listing(recording)?;
    comparison.note_damage(damaged);
    for (_, path) in segments {
        let mut tape = match Tape::open(&path) {
            Ok(tape) => tape,
            Err(error) if !recording.is_dir() => return Err(error.into()),
            Err(TapeError::OtherVersion { recorder, .. }) => {
                comparison.note_other_version(recorder);
                continue;
            }
            Err(error) => {
                comparison.note_damage(Damage::of(&path, &error));
                continue;
            }
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
        comparison.note_damage(Damage::at_end(&path, &tape));
    }
    if let Some(rival) = &rival {
        comparison.note_unmatched(rival);
    }
    anyhow::ensure!(
        comparison.nr_ticks > 0,
        "{}: no tick is recorded there that this version of tenantd can replay{}",
        recording.display(),
        comparison.unreplayed()
    );
    let forecasts = comparison.forecasts();
    if let Some(path) = args.report {
        fs::write(path, page::page(&comparison, &forecasts, &clock)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if args.json {
        for line in comparison.minutes(&forecasts) {
            json::write_line(&mut out, &line)?;
        }
        json::write_line(&mut out, &comparison.summary(&forecasts))?
    } else {
        show::print(&mut out, &comparison, &forecasts, &clock)?
    }
    Ok(Exit::Ok)
}
