//! `tenantctl solve`.

use super::args::SolveArgs;
use super::exit::Exit;

/// Runs the command.
///
/// # Errors
/// What could not be read or printed.
pub(super) fn run(_args: &SolveArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("not built yet")
}
