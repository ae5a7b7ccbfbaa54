//! Replies of the agent, cached, so that many browsers cause few calls.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::hour::Hours;
use super::opened::Opened;
use tenantd_control::report::status::Status;
use tenantd_varlink::client::Endpoint;
use tenantd_varlink::interface::{Nothing, Signature, method};
use tenantd_varlink::jobs::ListReply;

/// Deadline of a call to the agent, well within the timeout of a browser.
const CALL_TIME: Duration = Duration::from_secs(2);

/// Reply, or one sentence about the failure.
pub(crate) type Newest<T> = Result<Arc<T>, String>;

/// A reply and the time of its arrival.
#[derive(Debug)]
struct Cached<T>(Mutex<Option<(Instant, Newest<T>)>>);

impl<T> Cached<T> {
    /// Reply that is not older than `fresh`. Concurrent callers wait for one call and share its answer.
    fn newest(&self, fresh: Duration, ask: impl FnOnce() -> Result<T, String>) -> Newest<T> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, newest)) = &*last
            && at.elapsed() < fresh
        {
            return newest.clone();
        }
        let newest = ask().map(Arc::new);
        *last = Some((Instant::now(), newest.clone()));
        newest
    }
}

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Cached(Mutex::new(None))
    }
}

#[derive(Debug)]
pub(crate) struct Source {
    daemon: Endpoint,
    fresh: Duration,
    status: Cached<Status>,
    jobs: Cached<ListReply>,
    pub(crate) opened: Opened,
    pub(crate) hours: Hours,
}

impl Source {
    pub(crate) fn new(daemon: &Endpoint, fresh: Duration) -> Source {
        let timeout = Some(daemon.timeout.unwrap_or(CALL_TIME));
        let daemon = Endpoint { timeout, ..daemon.clone() };
        Source {
            opened: Opened::new(daemon.clone(), fresh),
            hours: Hours::new(daemon.clone()),
            daemon,
            fresh,
            status: Cached::default(),
            jobs: Cached::default(),
        }
    }

    /// Last tick.
    pub(crate) fn newest(&self) -> Newest<Status> {
        self.status
            .newest(self.fresh, || self.ask::<method::GetStatus>(&Nothing {}).map(|it| it.status))
    }

    /// Jobs as a user without work on the host may see them: programs without arguments.
    pub(crate) fn jobs(&self) -> Newest<ListReply> {
        self.jobs.newest(self.fresh, || {
            let list = self.ask::<method::List>(&Nothing {})?;
            Ok(list.seen_by(NO_USER))
        })
    }

    fn ask<S: Signature>(&self, parameters: &S::Parameters) -> Result<S::Reply, String> {
        // A new connection for each call survives a restart of the daemon.
        self.daemon.call::<S>(parameters).map_err(|error| error.to_string())
    }
}

/// Number that the kernel gives to no user.
const NO_USER: u32 = u32::MAX;
