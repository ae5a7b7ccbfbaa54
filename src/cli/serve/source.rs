//! The last tick, asked for no more often than it is needed.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::cli::client::{Client, ClientError};
use crate::control::status::Status;
use crate::varlink::interface::{Method, Nothing, StatusReply};

/// How long the agent may take to answer; a browser does not wait for ever either.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the agent said, or in a sentence why it said nothing.
pub(super) type Told = Result<Arc<Status>, String>;

/// The agent behind its socket.
#[derive(Debug)]
pub(super) struct Source {
    socket: PathBuf,
    fresh: Duration,
    last: Mutex<Option<(Instant, Told)>>,
}

impl Source {
    /// The agent on `socket`; what it says is passed on for `fresh`.
    pub(super) fn new(socket: &Path, fresh: Duration) -> Source {
        Source { socket: socket.to_path_buf(), fresh, last: Mutex::new(None) }
    }

    /// The last tick. Whoever comes while it is asked for waits for the same answer.
    pub(super) fn told(&self) -> Told {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, told)) = &*last
            && at.elapsed() < self.fresh
        {
            return told.clone();
        }
        let told = self.ask().map_err(|error| error.to_string());
        *last = Some((Instant::now(), told.clone()));
        told
    }

    fn ask(&self) -> Result<Arc<Status>, ClientError> {
        // Every time anew, so that a daemon that was started again is found.
        let mut client = Client::connect_with_patience(&self.socket, PATIENCE)?;
        let reply: StatusReply = client.call(Method::GetStatus, &Nothing {})?;
        Ok(Arc::new(reply.status))
    }
}
