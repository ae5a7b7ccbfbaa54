//! Notices of systemd-oomd before it ends a cgroup (systemd 260 and later).
//!
//! **Interface.** systemd-oomd calls `io.systemd.oom.Prekill.Notify(cgroup)` on each socket in `/run/systemd/oomd.prekill.hook/`,
//! and kills once all have answered or `PrekillHookTimeoutSec=` is over. With the default of 0 it calls none.
//!
//! **Rules.** The thread answers at once and waits for nothing else: memory is short meanwhile. It reads the memory of the cgroup
//! first, because the cgroup is empty a moment later. [`Hook::run`] serves one connection at a time, each for
//! [`CONNECTION_MAX`] at most. Notices wait in a queue of [`NOTICES_MAX`]; one more is answered and dropped.
//!
//! **Access.** The socket has mode 0600: the kernel admits root, and systemd-oomd by its CAP_DAC_OVERRIDE.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Component, Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Deserialize;

use super::error::CallError;
use super::listen::{ListenError, clear};
use super::wire::{Call, Framer, refusal};

/// Directory of the sockets.
pub const DIRECTORY: &str = "/run/systemd/oomd.prekill.hook";
const NAME: &str = "io.tenantd";
const NOTIFY: &str = "io.systemd.oom.Prekill.Notify";
const CONNECTION_MAX: Duration = Duration::from_secs(1);
const NOTICES_MAX: usize = 64;
/// Longest call: a path of 4096 bytes, each of which may be escaped.
const CALL_MAX_BYTES: usize = 32 << 10;

/// A cgroup that systemd-oomd is about to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Path from the root of the hierarchy.
    pub cgroup: String,
    /// Its memory; `None` if it could not be read.
    pub held_bytes: Option<u64>,
}

/// The other end of a [`Hook`]; its thread ends when this is dropped.
#[derive(Debug)]
pub struct Notices {
    received: Receiver<Notice>,
    _alive: UnixStream,
}

impl Notices {
    /// Notices since the last call.
    pub fn take(&self) -> impl Iterator<Item = Notice> {
        self.received.try_iter()
    }
}

/// A socket in the directory of hooks.
#[derive(Debug)]
pub struct Hook {
    socket: UnixListener,
    path: PathBuf,
    /// Mount of cgroup2.
    mount: PathBuf,
    notices: SyncSender<Notice>,
    stopped: UnixStream,
}

#[derive(Deserialize)]
struct NotifyParameters {
    cgroup: String,
}

impl Hook {
    /// Listens in a directory of hooks.
    ///
    /// # Errors
    /// The directory is missing or not writable, or another daemon listens there.
    pub fn listen(directory: &Path, mount: &Path) -> Result<(Hook, Notices), ListenError> {
        let path = directory.join(NAME);
        clear(&path)?;
        let error = |source| ListenError::Io { path: path.clone(), source };
        let socket = UnixListener::bind(&path).map_err(error)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(error)?;
        socket.set_nonblocking(true).map_err(error)?;
        let (alive, stopped) = UnixStream::pair().map_err(error)?;
        let (notices, received) = sync_channel(NOTICES_MAX);
        let mount = mount.to_path_buf();
        let hook = Hook { socket, path: path.clone(), mount, notices, stopped };
        Ok((hook, Notices { received, _alive: alive }))
    }

    /// Answers until the other end is dropped, and removes the socket.
    ///
    /// # Errors
    /// The socket cannot be waited for.
    pub fn run(&self) -> io::Result<()> {
        loop {
            let mut ready = [&self.socket.as_fd(), &self.stopped.as_fd()]
                .map(|descriptor| PollFd::new(*descriptor, PollFlags::POLLIN));
            match poll(&mut ready, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            if ready[1].any().unwrap_or(false) {
                return Ok(());
            }
            if let Ok((stream, _)) = self.socket.accept() {
                // A caller that sends nonsense, or nothing, loses its connection.
                let _ = self.serve(stream);
            }
        }
    }

    fn serve(&self, mut stream: UnixStream) -> io::Result<()> {
        let end = Instant::now() + CONNECTION_MAX;
        let (mut framer, mut piece) = (Framer::new(CALL_MAX_BYTES), [0; 4096]);
        stream.set_nonblocking(false)?;
        loop {
            while let Some(message) = framer.next_message().map_err(io::Error::other)? {
                let call = Call::parse(message).map_err(io::Error::other)?;
                let answer = self.answer(&call);
                if !call.oneway {
                    stream.set_write_timeout(Some(left(end)?))?;
                    stream.write_all(answer.as_bytes())?;
                }
            }
            stream.set_read_timeout(Some(left(end)?))?;
            match stream.read(&mut piece)? {
                0 => return Ok(()),
                count => framer.push(&piece[..count]),
            }
        }
    }

    fn answer(&self, call: &Call) -> String {
        if call.method != NOTIFY {
            return refusal(&CallError::MethodNotFound { method: call.method.clone() });
        }
        match call.parameters::<NotifyParameters>() {
            Ok(NotifyParameters { cgroup }) => {
                let held_bytes = self.memory(&cgroup);
                // A full queue loses the notice, and not the kill.
                let _ = self.notices.try_send(Notice { cgroup, held_bytes });
                "{\"parameters\":{}}\0".to_string()
            }
            Err(error) => refusal(&error),
        }
    }

    fn memory(&self, cgroup: &str) -> Option<u64> {
        let below = Path::new(cgroup.trim_start_matches('/'));
        if !below.components().all(|part| matches!(part, Component::Normal(_))) {
            return None;
        }
        let text = fs::read(self.mount.join(below).join("memory.current")).ok()?;
        let digit = |sum: u64, byte: &u8| {
            let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
            sum.checked_mul(10)?.checked_add(digit)
        };
        let text = text.trim_ascii();
        text.iter().try_fold(0, digit).filter(|_| !text.is_empty())
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        // It may have been removed already.
        let _ = fs::remove_file(&self.path);
    }
}

/// Time until `end`, above 0.
fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages that come back for these bytes.
    fn sent(path: &Path, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8(answer).unwrap()
    }

    fn call(cgroup: &str) -> Vec<u8> {
        format!("{{\"method\":\"{NOTIFY}\",\"parameters\":{{\"cgroup\":\"{cgroup}\"}}}}\0")
            .into_bytes()
    }

    #[test]
    fn calls_are_answered_at_once_and_read_the_memory() {
        let dir = tempfile::tempdir().unwrap();
        let (hooks, mount) = (dir.path().join("hooks"), dir.path().join("cgroup"));
        fs::create_dir_all(mount.join("a.slice/b.scope")).unwrap();
        fs::create_dir(&hooks).unwrap();
        fs::write(mount.join("a.slice/b.scope/memory.current"), "4096\n").unwrap();
        fs::write(dir.path().join("memory.current"), "1\n").unwrap();
        // A socket that a killed daemon has left.
        drop(UnixListener::bind(hooks.join(NAME)).unwrap());
        let (hook, notices) = Hook::listen(&hooks, &mount).unwrap();
        assert!(matches!(Hook::listen(&hooks, &mount), Err(ListenError::Taken(_))));
        let path = hooks.join(NAME);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let thread = std::thread::spawn(move || hook.run());
        let ok = "{\"parameters\":{}}\0";
        let both = [call("/a.slice/b.scope"), call("/gone")].concat();
        assert_eq!(sent(&path, &both), ok.repeat(2));
        assert_eq!(sent(&path, &call("/..")), ok);
        let held = |cgroup: &str, held_bytes| Notice { cgroup: cgroup.into(), held_bytes };
        let taken: Vec<Notice> = notices.take().collect();
        assert_eq!(
            taken,
            [held("/a.slice/b.scope", Some(4096)), held("/gone", None), held("/..", None)]
        );
        let other = sent(&path, b"{\"method\":\"io.systemd.oom.Prekill.Other\"}\0");
        assert!(other.contains("MethodNotFound"), "{other}");
        assert_eq!(sent(&path, b"nonsense\0"), "");
        assert_eq!(sent(&path, &vec![b' '; CALL_MAX_BYTES + 1]), "");
        // Beyond the queue, notices are answered and dropped.
        for _ in 0..NOTICES_MAX + 5 {
            assert_eq!(sent(&path, &call("/a.slice")), ok);
        }
        assert_eq!(notices.take().count(), NOTICES_MAX);
        drop(notices);
        thread.join().unwrap().unwrap();
        assert!(!path.exists());
    }
}
