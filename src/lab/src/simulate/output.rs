//! The outputs of a simulation: its answer, and a page on request.

use std::fs;
use std::io::{self, BufWriter, StdoutLock, Write};

use anyhow::Context;

use crate::args::SimulateArgs;
use tenantd::exit::Exit;

/// Writes the page of `--report`, if it is given.
///
/// # Errors
/// The page could not be made or written.
pub(super) fn page(
    args: &SimulateArgs,
    page: impl FnOnce() -> anyhow::Result<String>,
) -> anyhow::Result<()> {
    let Some(path) = &args.report else { return Ok(()) };
    fs::write(path, page()?).with_context(|| format!("cannot write {}", path.display()))
}

/// Writes the answer to standard output.
///
/// # Errors
/// The output could not be written.
pub(super) fn answer(
    write: impl FnOnce(&mut BufWriter<StdoutLock<'static>>) -> io::Result<()>,
) -> anyhow::Result<Exit> {
    let mut out = BufWriter::new(io::stdout().lock());
    write(&mut out)?;
    out.flush()?;
    Ok(Exit::Ok)
}
