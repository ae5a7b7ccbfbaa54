//! `tenantctl metrics`: the last tick as OpenMetrics text.
//!
//! For node_exporter's textfile collector (docs/metrics.md), and behind `/metrics` of `tenantctl serve`. The
//! agent itself opens no port and knows no exposition format: whoever scrapes asks a reader of its socket.
//!
//! A daemon that does not answer is a measurement too: `tenantd_up 0`, and nothing else, so that no old figure
//! outlives it.

mod exposition;
mod table;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;

use super::args::MetricsArgs;
use super::client::Endpoint;
use super::exit::Exit;
use crate::varlink::interface::{Nothing, method};

pub use exposition::{CONTENT_TYPE, exposition};
pub use table::{Kind, METRICS, Metric, UP};

/// Runs the command.
///
/// # Errors
/// The daemon did not answer, which is told after it has been measured; the text could not be written.
pub(super) fn run(daemon: &Endpoint, args: &MetricsArgs) -> anyhow::Result<Exit> {
    let asked = daemon.call::<method::GetStatus>(&Nothing {});
    let text = exposition(asked.as_ref().ok().map(|reply| &reply.status));
    match &args.output {
        None => io::stdout().lock().write_all(text.as_bytes())?,
        Some(path) => replace(path, &text)
            .with_context(|| format!("cannot write the metrics to {}", path.display()))?,
    }
    asked?;
    Ok(Exit::Ok)
}

/// Writes `text` to `path` in one step: whoever reads it meets the old text or the new one, never a half.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
    // The collector reads `*.prom` only, so it passes over this one.
    name.push(format!(".{}", std::process::id()));
    let beside = path.with_file_name(name);
    let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // It may never have been made; what is told is why.
        let _ = fs::remove_file(&beside);
    }
    written
}
