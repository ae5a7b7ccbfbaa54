//! Prints how wide a tenant should run, now and whenever that changes.
//!
//! Usage: `resize /run/tenantd/tenants/NAME`

use std::path::Path;
use std::{env, fs, io};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

/// Calls `resize` with the width of the tenant at once and after every change; returns when tenantd stops.
fn follow(folder: &Path, mut resize: impl FnMut(usize)) -> io::Result<()> {
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC)?;
    // The watch comes first, so that no change falls between reading and watching.
    inotify.add_watch(folder, AddWatchFlags::IN_MOVED_TO)?;
    let mut told = None;
    loop {
        let text = match fs::read_to_string(folder.join("dop")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            text => text?,
        };
        let width: usize = text.trim().parse().map_err(io::Error::other)?;
        if told.replace(width) != Some(width) {
            resize(width);
        }
        inotify.read_events()?; // sleeps until something changes
    }
}

fn main() -> io::Result<()> {
    let folder = env::args_os().nth(1).ok_or_else(|| io::Error::other("usage: resize FOLDER"))?;
    // Here a program resizes its pool of workers.
    follow(Path::new(&folder), |width| println!("{width}"))
}
