//! Descriptors kept for root: for its connections, its changes, and the restore.
//!
//! **Problem.** Users can make the agent open files: connections, jobs, attached cgroups. At the limit an administrator could
//! neither connect nor have anything restored. **Answer.** The soft limit of the process stays [`RESERVED`] below the hard one.
//! Work for root raises it while it lasts ([`Reserve::open`]).

use std::fs::File;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::c_int;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::close;

/// Descriptors of the reserve; a quarter of all where the hard limit is low.
pub const RESERVED: u64 = 64;

/// The soft limit without the reserve.
fn common(hard: u64) -> u64 {
    hard - RESERVED.min(hard / 4)
}

/// Sets the limit for all work: the most that the hard limit allows beside the reserve.
///
/// # Errors
/// The limit cannot be read or set.
pub fn keep_reserve() -> Result<u64, Errno> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let limit = common(hard);
    if soft != limit {
        setrlimit(Resource::RLIMIT_NOFILE, limit, hard)?;
    }
    Ok(limit)
}

/// Makes the process's table of descriptors large enough for `count` of them; for use before the first thread starts.
///
/// The kernel doubles a full table. If threads share it, each doubling waits until no CPU can still read the old one
/// (`synchronize_rcu` in `expand_fdtable`, fs/file.c): 10 ms or more each time, in whichever file happens to be opened next.
///
/// # Errors
/// `count` is beyond the soft limit, or memory is short. The table grows as it fills, then.
pub fn make_room(count: u64) -> Result<(), Errno> {
    let any = File::open("/")
        .map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
    let last = c_int::try_from(count.saturating_sub(1)).map_err(|_| Errno::EINVAL)?;
    close(fcntl(&any, FcntlArg::F_DUPFD_CLOEXEC(last))?)
}

/// Lets the process use the reserve until it is dropped.
#[derive(Debug)]
pub struct Reserve(());

impl Reserve {
    /// Opens the reserve. Where the limit cannot be changed, there is none.
    pub fn open() -> Reserve {
        if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
            let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
        }
        Reserve(())
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        // A limit that stays raised costs the reserve, and nothing else.
        let _ = keep_reserve();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_fits_every_hard_limit() {
        let limits = [0, 1, 7, 256, 1024, 262_144];
        assert_eq!(limits.map(common), [0, 1, 6, 192, 960, 262_080]);
    }

    #[test]
    fn the_table_has_room_for_as_many() {
        let status = || std::fs::read_to_string("/proc/self/status").unwrap();
        let size = |status: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
            line.unwrap().trim().parse().unwrap()
        };
        let count = 2 * size(&status());
        make_room(count).unwrap();
        assert!(size(&status()) >= count);
        assert_eq!(make_room(u64::MAX), Err(Errno::EINVAL));
    }
}
