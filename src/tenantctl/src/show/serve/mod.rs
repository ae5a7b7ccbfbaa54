//! `tenantctl serve`: `/metrics` for Prometheus and `/`, a status page ([`page`]), over HTTP.
//!
//! **Problem.** The agent runs as root and opens no port. **Answer.** This program does, as an unprivileged
//! user that may read the socket of the agent; it serves only data that every reader of the socket gets. It
//! runs in a unit of its own (systemd/tenantd-serve.service), on loopback by default.
//!
//! **Limits.** [`CONNECTIONS_MAX`] connections, one request each; one more ends the oldest with an incomplete
//! request. Each has a head of [`http::HEAD_MAX_BYTES`], a deadline for the request and one for the response: a
//! client that sends slowly or does not read loses its connection at the deadline. However many browsers
//! connect, the agent gets one call for its status in [`FRESH`], one for its jobs, and one for each of a few open
//! tenants ([`opened`]); its recording is replayed by one thread ([`hour`]).
//!
//! **Rebinding.** A page of another site can make a browser resolve a name to this machine, and then read
//! the response (DNS rebinding). A server on loopback answers only requests whose `Host` is an address or
//! `localhost`, and explains that to a proxy that forwards another name.
//!
//! **Properties** (`tests/face/serve.rs`): only GET and HEAD of the seven resources get 200; a daemon that
//! does not answer is reported; a thousand silent connections do not stop the server.

mod figures;
mod hour;
mod html;
mod http;
mod opened;
mod page;
mod pages;
mod panel;
mod query;
mod source;

use std::io::{self, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Context;

use crate::args::ServeArgs;
use pages::Site;
use source::Source;
use tenantd::exit::Exit;
use tenantd_varlink::client::Endpoint;

const CONNECTIONS_MAX: usize = 64;
/// Threads at once: `TasksMax=` of the unit has room for them.
const THREADS_MAX: usize = 76;
/// Time for which a status of the agent is reused.
const FRESH: Duration = Duration::from_millis(500);
/// Time from the connection to the end of the request, and from there to the end of the response.
const IO_TIME: Duration = Duration::from_secs(5);
/// Pause when the system has no descriptor or memory left for a connection.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) fn run(daemon: &Endpoint, args: &ServeArgs) -> anyhow::Result<Exit> {
    let listener = TcpListener::bind(args.listen)
        .with_context(|| format!("cannot listen on {}", args.listen))?;
    let address = listener.local_addr()?;
    writeln!(io::stdout(), "tenantctl: serving http://{address}/ and http://{address}/metrics")?;
    let site = Site::new(Source::new(daemon, FRESH), address.ip().is_loopback());
    serve(&listener, &Arc::new(site));
    Ok(Exit::Ok)
}

fn serve(listener: &TcpListener, site: &Arc<Site>) {
    let places = Arc::new(Places::default());
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // The client aborted, or the system is short of a resource for a moment.
            thread::sleep(PAUSE);
            continue;
        };
        let Some(place) = Place::take(&places, stream) else { continue };
        let site = Arc::clone(site);
        let work = move || {
            // A client that is gone or too slow gets no response.
            let _ = answer(&place.open, &site);
            drop(place);
        };
        // Without a thread the connection is closed here.
        let _ = thread::Builder::new().spawn(work);
    }
}

/// An open connection.
#[derive(Debug)]
struct Open {
    stream: TcpStream,
    has_request: AtomicBool,
}

/// The connections with a place, the oldest first, and the threads that answer. A connection that lost its place has its
/// thread for a moment longer.
#[derive(Debug, Default)]
struct Places {
    open: Mutex<Vec<Arc<Open>>>,
    nr_threads: AtomicUsize,
}

impl Places {
    fn open(&self) -> MutexGuard<'_, Vec<Arc<Open>>> {
        // Each change of the list is complete before anything can panic.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of the [`CONNECTIONS_MAX`] places, free again when dropped.
#[derive(Debug)]
struct Place {
    places: Arc<Places>,
    open: Arc<Open>,
}

impl Place {
    /// A place for `stream`. Where none is free, the oldest connection without a complete request ends, or else the oldest.
    fn take(places: &Arc<Places>, stream: TcpStream) -> Option<Place> {
        if places.nr_threads.fetch_add(1, Ordering::Relaxed) >= THREADS_MAX {
            places.nr_threads.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let open = Arc::new(Open { stream, has_request: AtomicBool::new(false) });
        let mut all = places.open();
        if all.len() >= CONNECTIONS_MAX {
            let is_waiting = |open: &Arc<Open>| !open.has_request.load(Ordering::Relaxed);
            let oldest = all.iter().position(is_waiting).unwrap_or(0);
            // Its thread reads the end of the request.
            let _ = all.remove(oldest).stream.shutdown(Shutdown::Both);
        }
        all.push(Arc::clone(&open));
        drop(all);
        Some(Place { places: Arc::clone(places), open })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.open().retain(|open| !Arc::ptr_eq(open, &self.open));
        self.places.nr_threads.fetch_sub(1, Ordering::Relaxed);
    }
}

fn answer(open: &Open, site: &Site) -> io::Result<()> {
    let request = http::read(&open.stream, IO_TIME)?;
    open.has_request.store(true, Ordering::Relaxed);
    let (response, has_body) = match &request {
        Ok(request) => (site.response(request), request.method != http::Method::Head),
        Err(refusal) => (http::Response::refusal(*refusal), true),
    };
    http::write(&open.stream, &response, has_body, IO_TIME)
}
