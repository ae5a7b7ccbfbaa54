//! `tenantctl dop`.

use super::args::DopArgs;
use super::exit::Exit;

/// Runs the command.
///
/// # Errors
/// What could not be read or printed.
pub(super) fn run(_args: &DopArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("not built yet")
}
