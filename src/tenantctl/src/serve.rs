//! `tenantctl serve`: `/metrics` for Prometheus and `/`, a status page, over HTTP.
//!
//! **Problem.** The agent runs as root and opens no port. **Answer.** This program does, as an unprivileged
//! user that may read the socket of the agent; it serves only data that every reader of the socket gets. It
//! runs in a unit of its own (systemd/tenantd-serve.service), on loopback by default.
//!
//! **Limits.** [`CONNECTIONS_MAX`] connections, one request each, a head of [`http::HEAD_MAX_BYTES`], a
//! deadline for the request and one for the response: a client that sends slowly or does not read loses its
//! connection at the deadline. However many browsers connect, the agent gets one call in [`FRESH`].
//!
//! **Rebinding.** A page of another site can make a browser resolve a name to this machine, and then read
//! the response (DNS rebinding). A server on loopback answers only requests whose `Host` is an address or
//! `localhost`, and explains that to a proxy that forwards another name.
//!
//! **Properties** (`tests/face/serve.rs`): only GET and HEAD of the six resources get 200; a daemon that
//! does not answer is reported; a thousand silent connections do not stop the server.

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
use pages::Site;
use source::Source;
use tenantd::exit::Exit;

const CONNECTIONS_MAX: usize = 64;
/// Time for which a status of the agent is reused.
const FRESH: Duration = Duration::from_millis(500);
/// Time from the connection to the end of the request, and from there to the end of the response.
const IO_TIME: Duration = Duration::from_secs(5);
/// Stack of a connection: its request is bounded, its response is on the heap.
const STACK_BYTES: usize = 256 << 10;
/// Pause when the system has no descriptor or memory left for a connection.
const PAUSE: Duration = Duration::from_millis(50);

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
            // The client aborted, or the system is short of a resource for a moment.
            thread::sleep(PAUSE);
            continue;
        };
        let place = Place::take(&nr_open);
        let site = Arc::clone(site);
        let started = place.and_then(|place| {
            let work = move || {
                // A client that is gone or too slow gets no response.
                let _ = answer(&stream, &site);
                drop(place);
            };
            thread::Builder::new().stack_size(STACK_BYTES).spawn(work).ok()
        });
        // Without a place or a thread the connection is closed here.
        drop(started);
    }
}

/// One of the [`CONNECTIONS_MAX`] places, released when dropped.
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
    let request = http::read(stream, IO_TIME)?;
    let (response, has_body) = match &request {
        Ok(request) => (site.response(request), request.method != http::Method::Head),
        Err(refusal) => (http::Response::refusal(*refusal), true),
    };
    http::write(stream, &response, has_body, IO_TIME)
}
