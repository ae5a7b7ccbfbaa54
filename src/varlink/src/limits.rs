//! Limits of clients on the socket, in number, size and time.

use std::time::Duration;

use super::wire::REQUEST_MAX_BYTES;

/// Limits of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections in total.
    pub connections: usize,
    /// Connections reserved for root.
    pub kept_for_root: usize,
    /// Further connections reserved for root and members of the group of the socket.
    pub kept_for_members: usize,
    /// Connections per user.
    pub connections_per_user: usize,
    /// Bytes of one request.
    pub request_bytes: usize,
    /// Time from the first byte of a request to its last.
    pub request_time: Duration,
    /// Time in which a client must take a byte of its reply. Watchers are exempt.
    pub answer_time: Duration,
    /// Time between two calls. Watchers and root are exempt.
    pub idle_time: Duration,
    /// Bytes of pending replies; a shared text counts once, and the largest does not count.
    pub pending_bytes: usize,
}

impl Limits {
    /// Limits of a service.
    pub const DEFAULT: Limits = Limits {
        connections: 128,
        kept_for_root: 32,
        kept_for_members: 32,
        connections_per_user: 32,
        request_bytes: REQUEST_MAX_BYTES,
        request_time: Duration::from_secs(5),
        answer_time: Duration::from_secs(30),
        idle_time: Duration::from_secs(120),
        pending_bytes: 4 << 20,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Limits::DEFAULT
    }
}
