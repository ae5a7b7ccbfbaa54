//! `tenantd-nri`: containers of containerd as members of tenants.
//!
//! Containerd tells its plugins about containers over NRI, the Node Resource Interface. This program is such a plugin. It calls
//! `Attach` of tenantd for the cgroup of each container of a tenant, and changes nothing else. It needs no kubelet.
//!
//! | file | contents |
//! |---|---|
//! | [`session`] | one connection to containerd: registration and events |
//! | [`trunk`] | messages on the multiplexed connection |
//! | [`messages`] | the messages that are used |
//! | [`cgroup`] | the cgroup of a container |
//! | [`tenant`] | facts about a pod, and the tenant that an option names for it |
//! | [`table`] | running containers |
//! | [`attach`] | calls of tenantd |
//!
//! **Threads.** One talks to containerd, one to tenantd: neither waits for the other. Both outlive restarts of their peers.

#![deny(missing_docs)]

pub mod args;
pub mod attach;
pub mod cgroup;
pub mod messages;
pub mod session;
pub mod table;
pub mod tenant;
pub mod trunk;

use std::io;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use tracing::{info, warn};

use args::Arguments;
use attach::Pauses;
use session::{Session, SessionError};
use table::Table;
use tenantd_varlink::client::Endpoint;

/// First pause before containerd is tried again; each later one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause before containerd is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// An error that another attempt would meet again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Containerd refused the plugin.
    #[error("{0}: see the log of containerd")]
    Refused(SessionError),
    /// The socket does not permit the connection.
    #[error("not permitted to connect to {0}: run as root")]
    NotPermitted(String),
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

impl Error {
    /// Exit code (sysexits.h).
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::NotPermitted(_) => 77,
            _ => 1,
        }
    }
}

/// Serves containerd, and its successors, until one refuses.
pub fn run(arguments: &Arguments) -> Error {
    let table = Table::default();
    let mut tenantd = Endpoint { path: arguments.socket.clone(), timeout: None };
    thread::scope(|scope| {
        let work = || attach::work(&table, &mut tenantd, Pauses::default());
        if let Err(error) = thread::Builder::new().name("attach".into()).spawn_scoped(scope, work) {
            return Error::Thread(error);
        }
        let error = serve(arguments, &table);
        table.close();
        error
    })
}

fn serve(arguments: &Arguments, table: &Table) -> Error {
    let path = arguments.nri_socket.display();
    let mut session = Session::new(arguments.tenant.as_ref(), table);
    let mut pause = FIRST_PAUSE;
    let mut is_away = false;
    loop {
        match UnixStream::connect(&arguments.nri_socket) {
            Ok(socket) => {
                is_away = false;
                let mut is_registered = false;
                match session.run(socket, || is_registered = true) {
                    error @ SessionError::Refused(_) => return Error::Refused(error),
                    error => info!("{error}; it is tried again"),
                }
                if is_registered {
                    pause = FIRST_PAUSE;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Error::NotPermitted(path.to_string());
            }
            Err(error) => {
                if !is_away {
                    warn!(
                        "no containers are attached: cannot connect to {path}: {error}; start containerd, and enable NRI in its \
                         configuration (`disable = false` in plugins.\"io.containerd.nri.v1.nri\"); it is tried again"
                    );
                }
                is_away = true;
            }
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
