//! Answers for programs.

use std::io::{self, Write};

use serde::Serialize;

/// Writes an object as one line of JSON.
///
/// # Errors
/// The output could not be written.
pub fn write_line(out: &mut impl Write, object: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, object)?;
    writeln!(out)
}
