//! Asking the daemon: a Varlink client that waits for its answers.
//!
//! Whoever types a command is told what to do next where it does not work: start the daemon, become somebody
//! else, or restart a daemon that is older than this program.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::exit::Exit;
use crate::varlink::interface::{CallError, Method, Nothing, WatchReply};
use crate::varlink::wire::{Framer, WireError};

/// The longest answer: a status of ten thousand tenants is a tenth of it.
const ANSWER_MAX_BYTES: usize = 64 << 20;
/// How long an answer may take: a reload of ten thousand tenants is done by then.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error(
        "tenantd does not answer on {}: start it (systemctl start tenantd), or name its socket with --socket",
        .0.display()
    )]
    NotRunning(PathBuf),
    /// Somebody may listen, but not to us.
    #[error(
        "not permitted to ask on {}: become root, or a member of the group that may read it (see ls -l)",
        .0.display()
    )]
    NotPermittedToConnect(PathBuf),
    /// The conversation ended.
    #[error("tenantd ended the conversation on {}: see its log (journalctl -u tenantd)", .0.display())]
    Ended(PathBuf),
    /// It listens and does not answer.
    #[error("tenantd did not answer on {} in time: see its log (journalctl -u tenantd)", .0.display())]
    Late(PathBuf),
    /// What it says is not understood.
    #[error("what answers on {} is not understood: {what}", path.display())]
    NotUnderstood {
        /// The socket.
        path: PathBuf,
        /// Why.
        what: String,
    },
    /// The method is for others.
    #[error("not permitted: {0} is for root, and for the `administrators` of the policy")]
    NotPermitted(String),
    /// The daemon is of another version.
    #[error(
        "the tenantd that runs does not know {0}: it is older than this tenantctl, restart it \
         (systemctl restart tenantd)"
    )]
    OlderDaemon(String),
    /// The daemon said no.
    #[error(transparent)]
    Refused(CallError),
}

impl ClientError {
    /// How a command ends that meets this.
    pub fn exit(&self) -> Exit {
        match self {
            ClientError::NotPermittedToConnect(_) | ClientError::NotPermitted(_) => {
                Exit::NotPermitted
            }
            ClientError::Refused(CallError::Busy {}) => Exit::TryAgain,
            ClientError::Refused(CallError::BadPolicy { .. }) => Exit::BadConfiguration,
            ClientError::Refused(_) => Exit::Failed,
            _ => Exit::Unavailable,
        }
    }
}

/// A conversation with the daemon.
#[derive(Debug)]
pub(super) struct Client {
    stream: UnixStream,
    framer: Framer,
    path: PathBuf,
    patience: Duration,
}

impl Client {
    /// Begins a conversation on the socket `path`.
    pub(super) fn connect(path: &Path) -> Result<Client, ClientError> {
        Client::connect_with_patience(path, ANSWER_TIME)
    }

    /// The same, with a time of its own for each answer.
    pub(super) fn connect_with_patience(
        path: &Path,
        patience: Duration,
    ) -> Result<Client, ClientError> {
        let path = path.to_path_buf();
        let stream = match UnixStream::connect(&path) {
            Ok(stream) => stream,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(ClientError::NotPermittedToConnect(path));
            }
            Err(_) => return Err(ClientError::NotRunning(path)),
        };
        let timed = stream.set_read_timeout(Some(patience));
        if timed.and_then(|()| stream.set_write_timeout(Some(patience))).is_err() {
            return Err(ClientError::NotRunning(path));
        }
        Ok(Client { stream, framer: Framer::new(ANSWER_MAX_BYTES), path, patience })
    }

    /// Calls `method` and waits for its answer.
    pub(super) fn call<R: DeserializeOwned>(
        &mut self,
        method: Method,
        parameters: &impl Serialize,
    ) -> Result<R, ClientError> {
        self.send(method, parameters, false)?;
        self.answer(method)
    }

    /// Begins to watch; each tick is waited for by [`Client::next_tick`].
    pub(super) fn watch(&mut self) -> Result<(), ClientError> {
        self.send(Method::Watch, &Nothing {}, true)
    }

    /// The next tick of a watch. The first one comes at once; from then on the daemon has the time from one tick to
    /// the next as well, which may be longer than anybody waits for an answer.
    pub(super) fn next_tick(&mut self) -> Result<WatchReply, ClientError> {
        let reply: WatchReply = self.answer(Method::Watch)?;
        let interval = Duration::try_from_secs_f64(reply.status.interval_seconds);
        let patience = self.patience.saturating_add(interval.unwrap_or_default());
        self.stream.set_read_timeout(Some(patience)).map_err(|error| self.broken(&error))?;
        Ok(reply)
    }

    fn send(
        &mut self,
        method: Method,
        parameters: &impl Serialize,
        more: bool,
    ) -> Result<(), ClientError> {
        let mut call = json!({ "method": method.full_name(), "parameters": parameters });
        if more {
            call["more"] = Value::Bool(true);
        }
        let message = format!("{call}\0");
        self.stream.write_all(message.as_bytes()).map_err(|error| self.broken(&error))
    }

    /// The next answer.
    fn answer<R: DeserializeOwned>(&mut self, method: Method) -> Result<R, ClientError> {
        let not_understood =
            |path: &Path, what: String| ClientError::NotUnderstood { path: path.into(), what };
        let mut bytes = vec![0; 64 << 10];
        let mut message: Value = loop {
            match self.framer.next_message() {
                Ok(Some(message)) => {
                    let read = serde_json::from_slice(message);
                    break read.map_err(|error| not_understood(&self.path, error.to_string()))?;
                }
                Ok(None) => {}
                Err(error @ (WireError::TooLong(_) | WireError::Malformed(_))) => {
                    return Err(not_understood(&self.path, error.to_string()));
                }
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(ClientError::Ended(self.path.clone())),
                Ok(count) => self.framer.push(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.broken(&error)),
            }
        };
        if message["error"].is_string() {
            return Err(self.refusal(method, message));
        }
        let parameters = message["parameters"].take();
        serde_json::from_value(parameters)
            .map_err(|error| not_understood(&self.path, error.to_string()))
    }

    fn refusal(&self, method: Method, message: Value) -> ClientError {
        let (_, name) = method.names();
        match serde_json::from_value::<CallError>(message.clone()) {
            Ok(CallError::PermissionDenied {}) => ClientError::NotPermitted(name.to_string()),
            Ok(
                CallError::MethodNotFound { .. }
                | CallError::MethodNotImplemented { .. }
                | CallError::InterfaceNotFound { .. },
            ) => ClientError::OlderDaemon(name.to_string()),
            Ok(error) => ClientError::Refused(error),
            Err(_) => ClientError::NotUnderstood {
                path: self.path.clone(),
                what: format!("it refuses with {}", message["error"]),
            },
        }
    }

    fn broken(&self, error: &io::Error) -> ClientError {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                ClientError::Late(self.path.clone())
            }
            _ => ClientError::Ended(self.path.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::status::Status;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_watch_waits_as_long_as_the_daemon_sleeps() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let patience = Duration::from_secs(20);
        let mut client = Client::connect_with_patience(&path, patience).unwrap();
        let (mut daemon, _) = listener.accept().unwrap();
        client.watch().unwrap();
        assert_eq!(client.stream.read_timeout().unwrap(), Some(patience));
        for interval_seconds in [60.0, 1.0] {
            let status = Status { interval_seconds, ..Status::default() };
            let frame = json!({ "continues": true, "parameters": { "status": status, "lost": 0 } });
            daemon.write_all(format!("{frame}\0").as_bytes()).unwrap();
            client.next_tick().unwrap();
            let waits = patience + Duration::from_secs_f64(interval_seconds);
            assert_eq!(client.stream.read_timeout().unwrap(), Some(waits));
        }
    }
}
