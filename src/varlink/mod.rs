//! The socket: what the agent tells, and how it is told, in Varlink.
//!
//! Varlink (<https://varlink.org>) is JSON objects with a NUL byte behind each, over a stream socket: readable
//! in strace, spoken by systemd's `varlinkctl`, with an interface that describes itself. It needs no broker,
//! so the agent can be asked while D-Bus is down, and no library: the protocol is a page.
//!
//! | file | what it is |
//! |---|---|
//! | [`interface`] | the two interfaces, and the types of what goes over the wire |

pub mod interface;
