//! `tenantctl check`.

use super::args::CheckArgs;
use super::exit::Exit;

/// Runs the command.
///
/// # Errors
/// What could not be read or printed.
pub(super) fn run(_args: &CheckArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("not built yet")
}
