//! Writes that may take long, each on a separate thread.
//!
//! **Problem.** Writing a lower `memory.high` returns only after reclaim to the new value, or after a number of
//! failed attempts (`memory_high_write`, `mm/memcontrol.c`). On a host without swap, or with a slow disk, that
//! may take seconds, and no tick may wait for it. Linux 6.16 supports `O_NONBLOCK` for that; older kernels do
//! not.
//!
//! **Rule.** There is one write to a file at a time, and at most [`MOST`] in total. Further writes are refused
//! with EAGAIN and tried again in a later tick. A failed write is detected when the file is read.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use nix::errno::Errno;
use tracing::debug;

use super::seam::{KernError, Operation};

const MOST: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Aside {
    under_way: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl Aside {
    /// Writes `value` to the file at `path`, open for writing, on another thread. Fails with EAGAIN while the
    /// last write to that file, or too many others, are under way, or if no thread can be made.
    pub(super) fn write(
        &self,
        mut file: File,
        path: PathBuf,
        value: &str,
    ) -> Result<(), KernError> {
        let refused = |path: PathBuf| KernError {
            operation: Operation::Write,
            path,
            value: Some(value.to_string()),
            errno: Errno::EAGAIN,
        };
        {
            let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
            if under_way.len() >= MOST || !under_way.insert(path.clone()) {
                return Err(refused(path));
            }
        }
        let (under_way, own, text) = (Arc::clone(&self.under_way), path.clone(), value.to_string());
        let write = move || {
            if let Err(error) = file.write_all(text.as_bytes()) {
                debug!("{}: {text}: {error}", own.display());
            }
            under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&own);
        };
        let thread = thread::Builder::new().name("tenantd-bound".to_string()).spawn(write);
        thread.map(drop).map_err(|_| {
            self.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&path);
            refused(path)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, Read};
    use std::os::fd::OwnedFd;

    use super::*;

    /// A full pipe: a write to it blocks.
    fn full_pipe() -> (PipeReader, File) {
        let (reader, writer) = std::io::pipe().unwrap();
        let writer = File::from(OwnedFd::from(writer));
        let size = nix::fcntl::fcntl(&writer, nix::fcntl::FcntlArg::F_GETPIPE_SZ).unwrap();
        (&writer).write_all(&vec![0; size as usize]).unwrap();
        (reader, writer)
    }

    #[test]
    fn a_write_that_takes_long_is_not_waited_for_and_the_next_is_refused() {
        let aside = Aside::default();
        let (mut reader, writer) = full_pipe();
        let again = writer.try_clone().unwrap();
        let path = || PathBuf::from("/slow");
        aside.write(writer, path(), "1\n").unwrap();
        let refused = aside.write(again, path(), "2\n").unwrap_err();
        assert_eq!(refused.errno, Errno::EAGAIN);
        let (mut other, file) = full_pipe();
        aside.write(file, PathBuf::from("/other"), "3\n").unwrap();
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        assert!(all.ends_with(b"1\n"));
        all.clear();
        other.read_to_end(&mut all).unwrap();
        assert!(all.ends_with(b"3\n"));
    }

    #[test]
    fn no_more_than_some_are_under_way() {
        let aside = Aside::default();
        let pipes: Vec<(PipeReader, File)> = (0..=MOST).map(|_| full_pipe()).collect();
        for (number, (_, writer)) in pipes.iter().enumerate() {
            let file = writer.try_clone().unwrap();
            let outcome = aside.write(file, PathBuf::from(format!("/{number}")), "1");
            assert_eq!(outcome.is_err(), number == MOST);
        }
    }
}
