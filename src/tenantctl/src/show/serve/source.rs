//! The last tick, cached, so that many browsers cause few calls.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::common::client::{ClientError, Endpoint};
use tenantd_control::report::status::Status;
use tenantd_varlink::interface::{Nothing, method};

/// Deadline of a call to the agent, well within the timeout of a browser.
const CALL_TIME: Duration = Duration::from_secs(2);

/// Last tick, or one sentence about the failure.
pub(crate) type Newest = Result<Arc<Status>, String>;

#[derive(Debug)]
pub(crate) struct Source {
    daemon: Endpoint,
    fresh: Duration,
    last: Mutex<Option<(Instant, Newest)>>,
}

impl Source {
    pub(crate) fn new(daemon: &Endpoint, fresh: Duration) -> Source {
        let timeout = Some(daemon.timeout.unwrap_or(CALL_TIME));
        Source { daemon: Endpoint { timeout, ..daemon.clone() }, fresh, last: Mutex::new(None) }
    }

    /// Last tick. Concurrent callers wait for one call and share its answer.
    pub(crate) fn newest(&self) -> Newest {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, newest)) = &*last
            && at.elapsed() < self.fresh
        {
            return newest.clone();
        }
        let newest = self.ask().map_err(|error| error.to_string());
        *last = Some((Instant::now(), newest.clone()));
        newest
    }

    fn ask(&self) -> Result<Arc<Status>, ClientError> {
        // A new connection for each call survives a restart of the daemon.
        let reply = self.daemon.call::<method::GetStatus>(&Nothing {})?;
        Ok(Arc::new(reply.status))
    }
}
