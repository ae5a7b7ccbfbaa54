//! Varlink client of the daemon, in which every wait has a deadline.
//!
//! **Problem.** A daemon may be away, busy, stopped (SIGSTOP) or of another version, and a command must end
//! in each case with one sentence and a remedy. A stopped daemon still has a listening socket: connecting
//! succeeds until its queue is full, and then blocks. **Answer.** Connecting, sending and receiving share
//! the deadline of the call, however the bytes arrive; the socket never blocks beyond it.
//!
//! **Properties** (the tests below, `tests/cli/asking.rs`): a call ends at its deadline if the daemon is
//! silent, sends a byte at a time, or has a full queue.

use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, UnixAddr};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::error::CallError;
use super::interface::{Access, Method, Nothing, Signature, WatchReply, method};
use super::readers;
use super::wire::{Framer, WireError};

/// Longest reply: a status of ten thousand tenants is a tenth of it.
const REPLY_MAX_BYTES: usize = 64 << 20;
/// Deadline of a reading call, which the daemon answers from memory.
const READ_TIME: Duration = Duration::from_secs(10);
/// Deadline of a changing call: twice the daemon's own limit for a change.
const CHANGE_TIME: Duration = Duration::from_secs(30);
/// Pause before the next attempt to connect to a socket whose queue is full.
const CONNECT_PAUSE: Duration = Duration::from_millis(10);

/// Time for a daemon that went away to come back while jobs wait: a restart takes less than a second. Also the
/// time for which a daemon may close connections without an answer, because one user opened too many at once.
pub const RESTART_TIME: Duration = Duration::from_secs(10);
/// Pause before the next attempt to reach such a daemon.
pub const RESTART_PAUSE: Duration = Duration::from_millis(100);

/// Error of a call.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is no listener.
    #[error(
        "tenantd does not answer on {}: start it (systemctl start tenantd), or name its socket with --socket",
        .0.display()
    )]
    NotRunning(PathBuf),
    /// The socket file does not permit the connection.
    #[error("not permitted to connect to {}: {remedy}, and log in again", path.display())]
    NotPermittedToConnect {
        /// Path of the socket.
        path: PathBuf,
        /// Ways to the permission.
        remedy: String,
    },
    /// The daemon closed the connection.
    #[error("tenantd closed the connection on {}: see its log (journalctl -u tenantd)", .0.display())]
    Ended(PathBuf),
    /// The daemon did not answer before the deadline.
    #[error(
        "tenantd did not answer on {} within {time:?}: it is stopped or overloaded (see systemctl status tenantd)",
        path.display()
    )]
    Late {
        /// Path of the socket.
        path: PathBuf,
        /// Deadline of the call.
        time: Duration,
    },
    /// A job waited for its whole deadline.
    #[error("the job did not start within {0:?}, and has left the queue")]
    NotStarted(Duration),
    /// The tenant of a job left the policy while the job waited.
    #[error(
        "the tenant `{0}` has left the policy, and its job has left the queue: name another one with --tenant"
    )]
    TenantGone(String),
    /// A job did not end before the deadline.
    #[error("job {0} has not ended within {1:?}")]
    NotEnded(u64, Duration),
    /// The reply does not have the type of the method.
    #[error("the reply on {} is not understood: {what}", path.display())]
    NotUnderstood {
        /// Path of the socket.
        path: PathBuf,
        /// Error in the reply.
        what: String,
    },
    /// The caller lacks the permission for this method.
    #[error("not permitted: {0} requires root, or an entry in the `administrators` of the policy")]
    NotPermitted(String),
    /// The caller may not read about all tenants.
    #[error("not permitted: {method} shows all tenants; {remedy}; your own is in `tenantctl me`")]
    NotReader {
        /// Method.
        method: String,
        /// Ways to the permission.
        remedy: String,
    },
    /// The work is not the caller's, or not allowed.
    #[error(
        "not permitted: {0} requires root, an entry in the `administrators` of the policy, or work of your own and \
         an entry in `allow` of the tenant"
    )]
    NotYours(String),
    /// The job is not the caller's.
    #[error(
        "not permitted: job {0} is of another user; only that user, root and administrators may cancel it"
    )]
    NotYourJob(u64),
    /// The daemon does not have this method.
    #[error(
        "the running tenantd does not know {0}: it is older than this program, restart it \
         (systemctl restart tenantd)"
    )]
    OlderDaemon(String),
    /// The daemon refused.
    #[error(transparent)]
    Refused(CallError),
}

/// Socket of a daemon, with the deadline of its calls.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Path of the socket.
    pub path: PathBuf,
    /// Deadline of every call, instead of the one of its access.
    pub timeout: Option<Duration>,
}

impl Endpoint {
    /// Connects to the daemon.
    ///
    /// # Errors
    /// [`ClientError`], if nothing listens or the deadline passes.
    pub fn connect(&self) -> Result<Client, ClientError> {
        let time = self.time(Access::Read);
        let stream = connect(&self.path, time)?;
        Ok(Client { stream, framer: Framer::new(REPLY_MAX_BYTES), endpoint: self.clone() })
    }

    /// Connects and calls once; a call that may be repeated is made again while the daemon refuses connections.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn call<S: Signature>(&self, parameters: &S::Parameters) -> Result<S::Reply, ClientError> {
        let (begin, time) = (Instant::now(), self.time(S::METHOD.access()).min(RESTART_TIME));
        let once = || self.connect()?.call::<S>(parameters);
        let mut outcome = once();
        while is_repeatable(S::METHOD)
            && matches!(outcome, Err(ClientError::Ended(_)))
            && begin.elapsed() < time
        {
            thread::sleep(RESTART_PAUSE);
            match once() {
                Err(ClientError::NotRunning(_)) => break,
                again => outcome = again,
            }
        }
        outcome
    }

    /// Deadline of a call with this access.
    pub fn time(&self, access: Access) -> Duration {
        self.timeout.unwrap_or(match access {
            Access::Open | Access::Read => READ_TIME,
            Access::Change | Access::Own => CHANGE_TIME,
        })
    }
}

/// True for a call that has the same effect if it is made again. The daemon closes connections beyond its limit for one user
/// without an answer, as of 200 commands that start at once.
fn is_repeatable(method: Method) -> bool {
    matches!(method.access(), Access::Open | Access::Read) || method == Method::Cancel
}

/// Connects to the socket `path` within `time`. If the listener's queue is full, connect(2) of a blocking
/// socket waits forever, and of a non-blocking one fails with EAGAIN.
fn connect(path: &Path, time: Duration) -> Result<UnixStream, ClientError> {
    let not_running = || ClientError::NotRunning(path.to_path_buf());
    let deadline = Instant::now() + time;
    let address = UnixAddr::new(path).map_err(|_| not_running())?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd: OwnedFd = socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)
        .map_err(|_| not_running())?;
    loop {
        match socket::connect(fd.as_raw_fd(), &address) {
            Ok(()) => break,
            Err(Errno::EAGAIN | Errno::EINTR) if Instant::now() < deadline => {
                thread::sleep(CONNECT_PAUSE.min(time));
            }
            Err(Errno::EAGAIN | Errno::EINTR) => {
                return Err(ClientError::Late { path: path.to_path_buf(), time });
            }
            Err(Errno::EACCES | Errno::EPERM) => {
                let remedy = readers::remedy(path);
                return Err(ClientError::NotPermittedToConnect {
                    path: path.to_path_buf(),
                    remedy,
                });
            }
            Err(_) => return Err(not_running()),
        }
    }
    let stream = UnixStream::from(fd);
    stream.set_nonblocking(false).map_err(|_| not_running())?;
    Ok(stream)
}

/// Connection to a daemon.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    framer: Framer,
    endpoint: Endpoint,
}

impl Client {
    /// Calls and waits for the reply.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn call<S: Signature>(
        &mut self,
        parameters: &S::Parameters,
    ) -> Result<S::Reply, ClientError> {
        let time = self.endpoint.time(S::METHOD.access());
        let deadline = Instant::now() + time;
        self.send::<S>(parameters, "", time)?;
        self.receive(S::METHOD, Some((deadline, time)))
    }

    /// Calls a method with more than one reply.
    ///
    /// # Errors
    /// [`ClientError`], if the call cannot be sent.
    pub fn stream<S: Signature>(
        mut self,
        parameters: &S::Parameters,
    ) -> Result<Replies<S>, ClientError> {
        let time = self.endpoint.time(S::METHOD.access());
        self.send::<S>(parameters, "more", time)?;
        Ok(Replies { client: self, method: PhantomData })
    }

    /// Sends a call without waiting for a reply.
    ///
    /// # Errors
    /// [`ClientError`], if the call cannot be sent.
    pub fn notify<S: Signature>(&mut self, parameters: &S::Parameters) -> Result<(), ClientError> {
        let time = self.endpoint.time(S::METHOD.access());
        self.send::<S>(parameters, "oneway", time)
    }

    /// Calls `Watch`.
    ///
    /// # Errors
    /// [`ClientError`], if the call cannot be sent.
    pub fn watch(self) -> Result<Frames, ClientError> {
        let time = self.endpoint.time(Access::Read);
        Ok(Frames { replies: self.stream(&Nothing {})?, time })
    }

    fn send<S: Signature>(
        &mut self,
        parameters: &S::Parameters,
        flag: &str,
        time: Duration,
    ) -> Result<(), ClientError> {
        let mut call = json!({ "method": S::METHOD.full_name(), "parameters": parameters });
        if !flag.is_empty() {
            call[flag] = Value::Bool(true);
        }
        let message = format!("{call}\0");
        let sent = self
            .stream
            .set_write_timeout(Some(time))
            .and_then(|()| self.stream.write_all(message.as_bytes()));
        sent.map_err(|error| self.broken(&error, time))
    }

    fn receive<R: DeserializeOwned>(
        &mut self,
        method: Method,
        deadline: Option<(Instant, Duration)>,
    ) -> Result<R, ClientError> {
        let path = self.endpoint.path.clone();
        let not_understood = |what: String| ClientError::NotUnderstood { path: path.clone(), what };
        let mut bytes = vec![0; 64 << 10];
        let mut message: Value = loop {
            match self.framer.next_message() {
                Ok(Some(message)) => {
                    let parsed = serde_json::from_slice(message);
                    break parsed.map_err(|error| not_understood(error.to_string()))?;
                }
                Ok(None) => {}
                Err(error @ (WireError::TooLong(_) | WireError::Malformed(_))) => {
                    return Err(not_understood(error.to_string()));
                }
            }
            let left = deadline.map(|(end, _)| end.saturating_duration_since(Instant::now()));
            let time = deadline.map_or(Duration::MAX, |(_, time)| time);
            if left.is_some_and(|left| left.is_zero()) {
                return Err(ClientError::Late { path, time });
            }
            let read =
                self.stream.set_read_timeout(left).and_then(|()| self.stream.read(&mut bytes));
            match read {
                Ok(0) => return Err(ClientError::Ended(path)),
                Ok(count) => self.framer.push(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.broken(&error, time)),
            }
        };
        if message["error"].is_string() {
            return Err(self.refusal(method, message));
        }
        let parameters = message["parameters"].take();
        serde_json::from_value(parameters).map_err(|error| not_understood(error.to_string()))
    }

    fn refusal(&self, method: Method, message: Value) -> ClientError {
        let (_, name) = method.names();
        match serde_json::from_value::<CallError>(message.clone()) {
            Ok(CallError::PermissionDenied {}) if method.access() == Access::Own => {
                ClientError::NotYours(name.to_string())
            }
            Ok(CallError::PermissionDenied {}) if method.access() == Access::Read => {
                let remedy = readers::remedy(&self.endpoint.path);
                ClientError::NotReader { method: name.to_string(), remedy }
            }
            Ok(CallError::PermissionDenied {}) => ClientError::NotPermitted(name.to_string()),
            Ok(
                CallError::MethodNotFound { .. }
                | CallError::MethodNotImplemented { .. }
                | CallError::InterfaceNotFound { .. },
            ) => ClientError::OlderDaemon(name.to_string()),
            Ok(error) => ClientError::Refused(error),
            Err(_) => ClientError::NotUnderstood {
                path: self.endpoint.path.clone(),
                what: format!("the error {} is unknown", message["error"]),
            },
        }
    }

    fn broken(&self, error: &io::Error, time: Duration) -> ClientError {
        let path = self.endpoint.path.clone();
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ClientError::Late { path, time },
            _ => ClientError::Ended(path),
        }
    }
}

/// Replies of a call with more than one.
#[derive(Debug)]
pub struct Replies<S> {
    client: Client,
    method: PhantomData<S>,
}

impl<S: Signature> Replies<S> {
    /// Waits for the next reply, at most `time`.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn next(&mut self, time: Option<Duration>) -> Result<S::Reply, ClientError> {
        let deadline = time.map(|time| (Instant::now() + time, time));
        self.client.receive(S::METHOD, deadline)
    }
}

impl<S> AsFd for Replies<S> {
    /// Readable when a part of a reply has arrived.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.client.stream.as_fd()
    }
}

/// Ticks of a daemon.
#[derive(Debug)]
pub struct Frames {
    replies: Replies<method::Watch>,
    time: Duration,
}

impl Frames {
    /// Next tick. The first one is sent at once; each later one may take an interval longer than a reply.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn next_tick(&mut self) -> Result<WatchReply, ClientError> {
        let reply = self.replies.next(Some(self.time))?;
        let interval = Duration::try_from_secs_f64(reply.status.interval_seconds);
        let reply_time = self.replies.client.endpoint.time(Access::Read);
        self.time = reply_time.saturating_add(interval.unwrap_or_default());
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use tenantd_control::report::status::Status;

    fn endpoint(dir: &Path, timeout: Duration) -> (Endpoint, UnixListener) {
        let path = dir.join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        (Endpoint { path, timeout: Some(timeout) }, listener)
    }

    #[test]
    fn a_watch_waits_an_interval_longer_than_a_call() {
        let dir = tempfile::tempdir().unwrap();
        let time = Duration::from_secs(20);
        let (endpoint, listener) = endpoint(dir.path(), time);
        let client = endpoint.connect().unwrap();
        let (mut daemon, _) = listener.accept().unwrap();
        let mut frames = client.watch().unwrap();
        assert_eq!(frames.time, time);
        for interval_seconds in [60.0, 1.0] {
            let status = Status { interval_seconds, ..Status::default() };
            let frame = json!({ "continues": true, "parameters": { "status": status, "lost": 0 } });
            daemon.write_all(format!("{frame}\0").as_bytes()).unwrap();
            frames.next_tick().unwrap();
            assert_eq!(frames.time, time + Duration::from_secs_f64(interval_seconds));
        }
    }

    #[test]
    fn a_call_to_a_full_queue_ends_at_its_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let (endpoint, _listener) = endpoint(dir.path(), Duration::from_millis(50));
        // The queue of a listener is bounded; a stopped daemon accepts nothing from it.
        let mut queued = Vec::new();
        let refused = (0..100_000).find_map(|_| match endpoint.connect() {
            Ok(client) => {
                queued.push(client);
                None
            }
            Err(error) => Some(error),
        });
        assert!(matches!(refused, Some(ClientError::Late { .. })), "{refused:?}");
    }

    #[test]
    fn a_reply_a_byte_at_a_time_ends_at_the_deadline_of_the_call() {
        let dir = tempfile::tempdir().unwrap();
        let (endpoint, listener) = endpoint(dir.path(), Duration::from_millis(100));
        let mut client = endpoint.connect().unwrap();
        let (mut daemon, _) = listener.accept().unwrap();
        let drip = thread::spawn(move || while daemon.write_all(b" ").is_ok() {});
        let late = client.call::<method::GetStatus>(&Nothing {});
        drop(client);
        drip.join().unwrap();
        assert!(matches!(late, Err(ClientError::Late { .. })), "{late:?}");
    }
}
