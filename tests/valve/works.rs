//! Clients of a valve whose commands begin and end when a test says so.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;
use tenantd_host::valve::Valve;

use crate::util::PATIENCE;

fn open(path: &Path) -> File {
    let flags = OFlag::O_NONBLOCK.bits();
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).unwrap()
}

/// A client that takes and returns tokens by hand.
pub(super) struct Client(File);

impl Client {
    pub(super) fn open(valve: &Valve) -> Client {
        Client(open(&valve.fifo()))
    }

    /// Takes free tokens, which must be there.
    #[track_caller]
    pub(super) fn take(&mut self, count: usize) {
        self.0.read_exact(&mut vec![0; count]).unwrap();
    }

    /// Takes a token if one is free, and says how many it took.
    pub(super) fn take_if_free(&mut self) -> u32 {
        match self.0.read(&mut [0]) {
            Ok(count) => count as u32,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => panic!("{error}"),
        }
    }

    pub(super) fn give(&mut self, count: u32) {
        self.0.write_all(&vec![b'+'; count as usize]).unwrap();
    }
}

/// Commands that report their beginning and wait for leave to end.
pub(crate) struct Works {
    report: File,
    leave: File,
    pub(super) dir: PathBuf,
    /// Commands that have reported and have no leave yet: at least as many run.
    pub(super) running: u32,
}

impl Works {
    pub(crate) fn new(dir: &Path) -> Works {
        for name in ["report", "leave"] {
            nix::unistd::mkfifo(&dir.join(name), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        }
        let (report, leave) = (open(&dir.join("report")), open(&dir.join("leave")));
        Works { report, leave, dir: dir.to_path_buf(), running: 0 }
    }

    /// What the shell of such a command runs.
    pub(crate) fn command(&self) -> String {
        let dir = self.dir.display();
        // The shell reads a byte at a time, so that each empty line is leave for one command.
        format!("test -e {dir}/over || {{ printf s >{dir}/report; read line <{dir}/leave; }}")
    }

    /// Lets all commands end, and those that begin from now on do nothing.
    pub(crate) fn finish(&mut self) {
        File::create(self.dir.join("over")).unwrap();
        // Some have begun and not reported yet.
        self.end(2 * self.running.max(32));
    }

    /// Counts the commands that have begun, and waits so long for the first.
    fn begun(&mut self, time: PollTimeout) -> u32 {
        let mut ready = [PollFd::new(self.report.as_fd(), PollFlags::POLLIN)];
        if poll(&mut ready, time).unwrap() == 0 {
            return 0;
        }
        let begun = self.report.read(&mut [0; 64]).unwrap() as u32;
        self.running += begun;
        begun
    }

    /// Waits until exactly `count` commands run.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, count: u32) {
        while self.running < count {
            let patience = PollTimeout::try_from(PATIENCE).unwrap();
            assert_ne!(self.begun(patience), 0, "{} of {count} commands run", self.running);
        }
        assert_eq!(self.running, count, "commands run");
    }

    /// Lets commands end.
    pub(crate) fn end(&mut self, count: u32) {
        self.leave.write_all(&vec![b'\n'; count as usize]).unwrap();
        self.running = self.running.saturating_sub(count);
    }

    /// Lets commands end, one after another, until none is `left`.
    pub(crate) fn end_until_none(&mut self, what: &str, left: impl Fn() -> u32) {
        let begin = Instant::now();
        loop {
            let before = left();
            if before == 0 {
                return;
            }
            self.end(1);
            // The token is taken, or the client was faster and begins the next command with it.
            while left() == before && self.begun(PollTimeout::from(10_u8)) == 0 {
                assert!(begin.elapsed() < PATIENCE, "waited in vain for {before} {what}");
            }
        }
    }
}
