//! `tenantctl serve`: `/metrics` for Prometheus and `/`, a status page for people, over HTTP.
//!
//! **Problem.** The agent runs as root and opens no port. **Answer.** This program does, as nobody: it may
//! read the agent's socket, and all that it can be asked is what any reader of the socket is told. It runs in
//! a unit of its own (systemd/tenantd-serve.service), on loopback unless told otherwise.
//!
//! **Limits.** [`CONNECTIONS_MAX`] connections, one request each, a head of [`http::HEAD_MAX_BYTES`], a fixed
//! time for a request and one for its answer: whoever sends slowly or does not read loses the connection, and
//! holds a place for that long at most. However many browsers ask, the agent is asked once in [`FRESH`].
//!
//! **Rebinding.** A page of another site can make a browser ask a name that resolves to this machine, and then
//! read the answer. While only this machine is listened to, requests are answered only where they name it by
//! address or as `localhost`. A proxy that passes on the name by which it was asked itself is told so.
//!
//! **Properties** (`tests/face/serve.rs`): nothing but GET and HEAD of the six resources is answered with 200;
//! a daemon that is away is said to be away; a thousand connections that send nothing do not stop it.

mod http;
mod pages;
mod source;

use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context;

use super::args::ServeArgs;
use super::client::Endpoint;
use super::exit::Exit;
use pages::Site;
use source::Source;

/// Connections at once.
const CONNECTIONS_MAX: usize = 64;
/// How long an answer of the agent is passed on.
const FRESH: Duration = Duration::from_millis(500);
/// From the connection to the end of the request, and from there to the end of the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// A connection needs little: its request is bounded, its answer is on the heap.
const STACK_BYTES: usize = 256 << 10;
/// How long to wait where the system has no descriptor or memory left for a connection.
const PAUSE: Duration = Duration::from_millis(50);

/// Runs the command, until it is ended.
///
/// # Errors
/// It cannot listen there.
pub(super) fn run(daemon: &Endpoint, args: &ServeArgs) -> anyhow::Result<Exit> {
    let listener = TcpListener::bind(args.listen)
        .with_context(|| format!("cannot listen on {}", args.listen))?;
    let address = listener.local_addr()?;
    writeln!(io::stdout(), "tenantctl: serving http://{address}/ and http://{address}/metrics")?;
    let site = Site::new(Source::new(daemon, FRESH), address.ip().is_loopback());
    serve(&listener, &Arc::new(site));
    Ok(Exit::Ok)
}

fn serve(listener: &TcpListener, site: &Arc<Site>) {
    let nr_open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // It aborted, which is its affair; or we are short of something, which passes.
            thread::sleep(PAUSE);
            continue;
        };
        let place = Place::take(&nr_open);
        let site = Arc::clone(site);
        let started = place.and_then(|place| {
            let work = move || {
                // Whoever is gone or too slow gets no answer; there is nobody to tell.
                let _ = answer(&stream, &site);
                drop(place);
            };
            thread::Builder::new().stack_size(STACK_BYTES).spawn(work).ok()
        });
        // With no place or no thread for it, the connection has been closed by being dropped.
        drop(started);
    }
}

/// One of the [`CONNECTIONS_MAX`] places, given back when dropped.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(nr_open: &Arc<AtomicUsize>) -> Option<Place> {
        if nr_open.fetch_add(1, Ordering::Relaxed) < CONNECTIONS_MAX {
            return Some(Place(Arc::clone(nr_open)));
        }
        nr_open.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn answer(stream: &TcpStream, site: &Site) -> io::Result<()> {
    let request = http::read(stream, PATIENCE)?;
    let (response, has_body) = match &request {
        Ok(request) => (site.response(request), request.method != http::Method::Head),
        Err(refusal) => (http::Response::refusal(*refusal), true),
    };
    http::write(stream, &response, has_body, PATIENCE)
}
