//! Notifications to the service manager: the protocol of sd_notify(3).
//!
//! Datagrams of lines go to the socket in `NOTIFY_SOCKET`; without that variable nothing is sent. A failed
//! message changes nothing for the agent, so errors appear only in the debug log. The variables stay in the
//! environment, because this program starts no others.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use tracing::debug;

/// The service manager, if there is one.
#[derive(Debug, Default)]
pub struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// Connects to the service manager named in the environment.
    pub fn from_env() -> Notifier {
        let own_pid = std::process::id().to_string();
        let is_ours = env::var("WATCHDOG_PID").map_or(true, |pid| pid == own_pid);
        let usec = env::var("WATCHDOG_USEC").ok().and_then(|usec| usec.parse().ok());
        let watchdog = usec.filter(|usec| *usec > 0 && is_ours).map(Duration::from_micros);
        let Some(name) = env::var_os("NOTIFY_SOCKET") else { return Notifier::default() };
        match connect(&name) {
            Ok(socket) => Notifier { socket: Some(socket), watchdog },
            Err(error) => {
                debug!("cannot notify the service manager: {}: {error}", name.to_string_lossy());
                Notifier::default()
            }
        }
    }

    /// Makes a notifier for the socket at `path`.
    pub fn to(path: &std::path::Path) -> io::Result<Notifier> {
        let socket = Some(connect(&path.as_os_str().to_os_string())?);
        Ok(Notifier { socket, watchdog: None })
    }

    /// Adds a watchdog that expects a notification at least every `watchdog`.
    pub fn with_watchdog(self, watchdog: Duration) -> Notifier {
        Notifier { watchdog: Some(watchdog), ..self }
    }

    /// Longest time between two notifications of the watchdog.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// Reports the end of the start, or of a reload.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    /// Reports the begin of a reload.
    pub fn reloading(&self) {
        // The manager matches this to its request by the time (sd_notify(3), MONOTONIC_USEC).
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.as_micros()));
    }

    /// Sends one line of status.
    pub fn status(&self, status: &str) {
        self.send(&format!("STATUS={status}"));
    }

    /// Notifies the watchdog, if there is one.
    pub fn beat(&self) {
        if self.watchdog.is_some() {
            self.send("WATCHDOG=1");
        }
    }

    /// Reports that the start or the stop goes on, and asks for at most `time` more until the next call: the
    /// manager waits beyond its own time-out (`EXTEND_TIMEOUT_USEC`).
    pub fn extend(&self, time: Duration) {
        self.send(&format!("EXTEND_TIMEOUT_USEC={}", time.as_micros()));
    }

    /// Reports the begin of the stop.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    fn send(&self, message: &str) {
        let Some((socket, address)) = &self.socket else { return };
        if let Err(error) = socket.send_to_addr(message.as_bytes(), address) {
            debug!("cannot notify the service manager: {error}");
        }
    }
}

/// A name that begins with `@` is an abstract name of unix(7).
fn connect(name: &OsString) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(abstract_name) => SocketAddr::from_abstract_name(abstract_name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    // A manager that does not read must not block the tick.
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_receives_notifications() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let next_message = || {
            let mut bytes = [0; 256];
            let count = manager.recv(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes[..count]).into_owned()
        };
        let notifier = Notifier::to(&path).unwrap().with_watchdog(Duration::from_secs(1));
        notifier.ready("2 tenants");
        assert_eq!(next_message(), "READY=1\nSTATUS=2 tenants");
        notifier.beat();
        assert_eq!(next_message(), "WATCHDOG=1");
        Notifier::to(&path).unwrap().beat();
        notifier.status("3 tenants");
        assert_eq!(next_message(), "STATUS=3 tenants", "that one was not asked for beats");
        notifier.reloading();
        let reloading = next_message();
        let usec = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
        assert!(usec.parse::<u64>().unwrap() > 0);
        notifier.stopping();
        assert_eq!(next_message(), "STOPPING=1");
        notifier.extend(Duration::from_secs(2));
        assert_eq!(next_message(), "EXTEND_TIMEOUT_USEC=2000000");
    }

    #[test]
    fn without_a_notify_socket_nothing_is_sent() {
        Notifier::default().ready("");
        let dir = tempfile::tempdir().unwrap();
        Notifier::to(&dir.path().join("absent")).unwrap().stopping();
    }
}
