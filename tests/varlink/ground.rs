//! A server on a socket of its own, an agent's end that the test plays, and clients.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, bind, connect, socket};
use serde_json::{Value, json};
use tempfile::TempDir;
use tenantd_control::report::status::{Status, TenantStatus};
use tenantd_policy::accounts::ranges::Owners;
use tenantd_varlink::bridge::{self, AgentEnd, Command, Governance, Published, Ticket};
use tenantd_varlink::listen::Listener;
use tenantd_varlink::peers::{self, Membership, Peer};
use tenantd_varlink::server::{Limits, Server};

use crate::util::{self, PATIENCE};

pub(super) struct Ground {
    _dir: TempDir,
    pub(super) path: PathBuf,
    agent: Option<AgentEnd>,
    server: Option<JoinHandle<std::io::Result<()>>>,
    tick: u64,
    pub(super) nr_tenants: usize,
}

impl Ground {
    pub(super) fn new() -> Ground {
        Ground::with(Limits::default(), 2)
    }

    pub(super) fn with(limits: Limits, nr_tenants: usize) -> Ground {
        let dir = util::scratch();
        let path = dir.path().join("socket");
        let listener = Listener::make(&path).unwrap();
        let (agent, socket) = bridge::bridge(published(1, nr_tenants)).unwrap();
        let server = Server::new(listener, socket, limits).unwrap();
        let server = server.identified_by(identify).admitting(admit);
        let server = Some(std::thread::spawn(move || server.run()));
        Ground { _dir: dir, path, agent: Some(agent), server, tick: 1, nr_tenants }
    }

    /// Another tick is published.
    pub(super) fn tick(&mut self) {
        self.tick += 1;
        self.agent.as_ref().unwrap().publish(published(self.tick, self.nr_tenants));
    }

    /// The next command from a client.
    pub(super) fn command(&self) -> (Ticket, Command) {
        let mut found = None;
        util::wait_until("a command", || {
            found = self.agent.as_ref().unwrap().next_command();
            found.is_some()
        });
        found.unwrap()
    }

    pub(super) fn agent(&self) -> &AgentEnd {
        self.agent.as_ref().unwrap()
    }

    pub(super) fn client(&self) -> Client {
        Client::of(UnixStream::connect(&self.path).unwrap())
    }

    /// A client that the server takes for one of this user.
    pub(super) fn client_of(&self, uid: u32) -> Client {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
        let name = format!("{USER}{uid}-{}-{number}", std::process::id());
        bind(socket.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes()).unwrap()).unwrap();
        connect(socket.as_raw_fd(), &UnixAddr::new(&self.path).unwrap()).unwrap();
        Client::of(UnixStream::from(socket))
    }

    /// The agent goes; the server's thread must end.
    pub(super) fn stop(&mut self) {
        self.agent = None;
        self.server.take().unwrap().join().unwrap().unwrap();
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        self.agent = None;
    }
}

/// What the address of a client begins with that plays another user; the number of the user follows.
const USER: &str = "tenantd-test-user-";

fn identify(stream: &UnixStream, owners: &mut Owners) -> std::io::Result<(Peer, u32)> {
    let (peer, account) = peers::identify(stream, owners)?;
    let address = stream.peer_addr()?;
    let name = address.as_abstract_name().and_then(|name| std::str::from_utf8(name).ok());
    let uid = name.and_then(|name| name.strip_prefix(USER)?.split('-').next()?.parse().ok());
    Ok(uid.map_or((peer, account), |uid| (Peer { uid, gid: uid, ..peer }, uid)))
}

/// Users from this number on are outside the group of readers.
pub(super) const STRANGERS: u32 = 5000;

fn admit(peer: &Peer, _: Option<u32>) -> Membership {
    if peer.uid < STRANGERS { Membership::Member } else { Membership::None }
}

/// A tick with its number everywhere that one would look.
fn published(tick: u64, nr_tenants: usize) -> Published {
    let tenant =
        |index: usize| TenantStatus { name: format!("t{index}").into(), ..Default::default() };
    let status =
        Status { tick, tenants: (0..nr_tenants).map(tenant).collect(), ..Status::default() };
    Published::new(status, Arc::default(), Arc::new(Governance::default()))
}

pub(super) struct Client {
    pub(super) stream: UnixStream,
    kept: Vec<u8>,
}

impl Client {
    fn of(stream: UnixStream) -> Client {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Client { stream, kept: Vec::new() }
    }

    pub(super) fn send(&mut self, message: &Value) {
        let text = format!("{message}\0");
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    /// The next message; `None` where the server closed.
    pub(super) fn receive(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.kept.iter().position(|byte| *byte == 0) {
                let message: Vec<u8> = self.kept.drain(..=end).collect();
                return Some(serde_json::from_slice(&message[..end]).unwrap());
            }
            let mut bytes = [0; 65536];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.kept.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no answer: {error}"),
            }
        }
    }

    pub(super) fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.send(&json!({ "method": method, "parameters": parameters }));
        self.receive().expect("an answer")
    }

    /// The status' tick, asked for.
    pub(super) fn tick(&mut self) -> u64 {
        let reply = self.call("io.tenantd.Manager.GetStatus", json!({}));
        reply["parameters"]["status"]["tick"].as_u64().unwrap()
    }

    /// Whether the server closes before anything is read.
    pub(super) fn is_hung_up_on(&self) -> bool {
        let mut stream = [PollFd::new(self.stream.as_fd(), PollFlags::empty())];
        let patience = PollTimeout::try_from(PATIENCE).unwrap();
        poll(&mut stream, patience).unwrap();
        stream[0].revents().is_some_and(|events| events.contains(PollFlags::POLLHUP))
    }

    /// Whether the server has closed.
    pub(super) fn is_closed_now(&mut self) -> bool {
        let mut stream = [PollFd::new(self.stream.as_fd(), PollFlags::empty())];
        poll(&mut stream, PollTimeout::ZERO).unwrap();
        stream[0].revents().is_some_and(|events| events.contains(PollFlags::POLLHUP))
    }

    /// Whether the server refuses the connection: its first call has no answer.
    pub(super) fn is_closed_at_once(&mut self) -> bool {
        self.stream.write_all(b"{\"method\":\"a.b.C\"}\0").is_err() || self.receive().is_none()
    }

    /// Whether the server closed, or closes without saying anything more.
    pub(super) fn is_closed(&mut self) -> bool {
        self.receive().is_none()
    }
}
