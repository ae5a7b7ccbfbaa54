//! Atomic writing of whole files.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;

/// Writes `text` to `path` atomically: a reader gets the old text or the new one.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
    // Programs that read a folder select files by suffix, and ignore this one.
    name.push(format!(".{}", std::process::id()));
    let beside = path.with_file_name(name);
    let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // The file may not exist; the first error is reported.
        let _ = fs::remove_file(&beside);
    }
    written
}
