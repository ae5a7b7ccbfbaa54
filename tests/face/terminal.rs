//! Programs on a terminal of their own.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Instant;

use nix::fcntl::OFlag;
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::termios::tcgetattr;

use crate::util;

const COLOURED: &str = "xterm-256color";

/// Both sides of a terminal of 80 columns and 24 lines. Neither side is ever passed on to a program unasked:
/// a process that held the master would keep the terminal from hanging up.
pub(crate) struct Pty {
    pub(crate) master: File,
    pub(crate) slave: File,
}

pub(crate) fn terminal() -> Pty {
    let master = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let path = ptsname_r(&master).unwrap();
    let mut options = File::options();
    let slave = options.read(true).write(true).custom_flags(OFlag::O_NOCTTY.bits()).open(&path);
    let sized = Command::new("stty").args(["-F", &path, "rows", "24", "cols", "80"]).status();
    assert!(sized.unwrap().success());
    Pty { master: master.as_fd().try_clone_to_owned().unwrap().into(), slave: slave.unwrap() }
}

/// Starts `command` on `terminal`, which calls itself `term`.
fn spawn(command: &mut Command, terminal: &Pty, term: &str) -> Child {
    let slave = || Stdio::from(terminal.slave.try_clone().unwrap());
    let on_it = command.env("TERM", term).stdin(slave()).stdout(slave());
    on_it.stderr(slave()).spawn().unwrap()
}

/// How `command` ends by itself on a terminal, and all that it shows there.
pub(crate) fn transcript(command: Command) -> (ExitStatus, String) {
    transcript_on(COLOURED, command)
}

/// The same on a terminal that calls itself `term`.
pub(crate) fn transcript_on(term: &str, mut command: Command) -> (ExitStatus, String) {
    let terminal = terminal();
    let mut child = spawn(&mut command, &terminal, term);
    // The master ends once no process holds the slave.
    drop((command, terminal.slave));
    let (mut master, mut shown) = (terminal.master, Vec::new());
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = master.read(&mut bytes) {
        shown.extend_from_slice(&bytes[..count]);
    }
    (util::ended(&mut child), String::from_utf8(shown).unwrap())
}

/// A program on a terminal of its own, with 80 columns and 24 lines.
#[derive(Debug)]
pub(crate) struct OnTerminal {
    pub(crate) child: Child,
    pub(crate) master: File,
    slave: File,
    shown: Receiver<Vec<u8>>,
    text: String,
}

impl OnTerminal {
    pub(crate) fn start(command: &mut Command) -> OnTerminal {
        let terminal = terminal();
        let child = spawn(command, &terminal, COLOURED);
        let Pty { master, slave } = terminal;
        let mut from = master.try_clone().unwrap();
        let (sender, shown) = mpsc::channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        OnTerminal { child, master, slave, shown, text: String::new() }
    }

    /// Waits until `part` has been written to the terminal.
    pub(crate) fn until(&mut self, part: &str) {
        let deadline = Instant::now() + util::PATIENCE;
        while !self.text.contains(part) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.shown.recv_timeout(left) {
                Ok(bytes) => self.text += &String::from_utf8_lossy(&bytes),
                Err(_) => {
                    let begin: String = self.text.chars().take(4000).collect();
                    panic!("{part:?} was never shown:\n{begin:?}");
                }
            }
        }
    }

    pub(crate) fn end(mut self) -> Option<i32> {
        // The terminal is left as it was found: the other screen is gone, lines are edited again.
        self.until("\x1b[?1049l");
        let status = util::ended(&mut self.child);
        let echo = nix::sys::termios::LocalFlags::ECHO | nix::sys::termios::LocalFlags::ICANON;
        assert!(tcgetattr(&self.slave).unwrap().local_flags.contains(echo));
        status.code()
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
