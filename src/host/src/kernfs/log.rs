//! The log of the kernel, from the moment of opening on.
//!
//! `/dev/kmsg` has a position for each reader, so reading takes nothing away from others. A flood of messages costs a
//! reader at most [`RECORDS_MAX`] records a call; the kernel overwrites those that it did not read in time, and reports that
//! once.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;
use nix::fcntl::OFlag;

/// Most records that one call reads.
const RECORDS_MAX: usize = 4096;
/// The kernel's bound of a record with all its escapes.
const RECORD_BYTES: usize = 8192;

/// A log of the kernel.
pub trait KernelLog: Debug {
    /// Calls `take` with each new record. Returns false if some were lost.
    fn read(&mut self, take: &mut dyn FnMut(&[u8])) -> bool;
}

/// `/dev/kmsg` at a position of its own.
#[derive(Debug)]
pub(super) struct Kmsg {
    file: File,
    buffer: Vec<u8>,
}

impl Kmsg {
    pub(super) const PATH: &str = "/dev/kmsg";

    pub(super) fn open() -> io::Result<Kmsg> {
        let flags = OFlag::O_NONBLOCK.bits();
        let mut file = OpenOptions::new().read(true).custom_flags(flags).open(Kmsg::PATH)?;
        // In a container another file may have this name.
        file.seek(SeekFrom::End(0))?;
        Ok(Kmsg { file, buffer: vec![0; RECORD_BYTES] })
    }
}

impl KernelLog for Kmsg {
    fn read(&mut self, take: &mut dyn FnMut(&[u8])) -> bool {
        let mut is_whole = true;
        for _ in 0..RECORDS_MAX {
            match self.file.read(&mut self.buffer) {
                Ok(0) => break,
                Ok(length) => take(&self.buffer[..length]),
                Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                    Some(Errno::EAGAIN) => break,
                    Some(Errno::EINTR) => {}
                    // Overwritten; the next one is the oldest that is left.
                    Some(Errno::EPIPE) => is_whole = false,
                    _ => return false,
                },
            }
        }
        is_whole
    }
}
