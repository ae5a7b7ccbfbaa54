//! Jobs of other users in own views, and the note about the rest.

use std::io::{self, Write};
use std::path::Path;

use tenantd_control::words::jobs::HeldUnits;
use tenantd_lab::text::{visible, wrapped};
use tenantd_varlink::readers::{command, group_name, name_of};

/// User and tenant of a job that holds units.
pub(crate) fn owner(held: &HeldUnits) -> String {
    format!("{} ({})", name_of(held.uid), visible(&held.tenant))
}

/// Prints, about an output that shows own work only, how to see the rest; not into the output of programs.
pub(crate) fn print_note(out: &mut impl Write, socket: &Path, is_json: bool) -> io::Result<()> {
    let note = match group_name(socket) {
        Some(group) => format!("your own view; the group {group} sees all: {}", command(&group)),
        None => "your own view; root and the `administrators` of the policy see all".to_string(),
    };
    if is_json {
        writeln!(io::stderr(), "tenantctl: {}", visible(&note))
    } else {
        writeln!(out, "{}", wrapped("", &note))
    }
}
