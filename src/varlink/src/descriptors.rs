//! Descriptors kept for root: for its connections, its changes, and the restore.
//!
//! **Problem.** Users can make the agent open files: connections, jobs, attached cgroups. At the limit an administrator could
//! neither connect nor have anything restored. **Answer.** The soft limit of the process stays [`RESERVED`] below the hard one.
//! Work for root raises it while it lasts ([`Reserve::open`]).

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

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
}
