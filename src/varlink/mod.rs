//! The socket: what the agent tells, and how it is told, in Varlink.
//!
//! Varlink (<https://varlink.org>) is JSON objects with a NUL byte behind each, over a stream socket: readable
//! in strace, spoken by systemd's `varlinkctl`, with an interface that describes itself. It needs no broker,
//! so the agent can be asked while D-Bus is down, and no library: the protocol is a page.
//!
//! | file | what it is |
//! |---|---|
//! | [`interface`] | the two interfaces, and the types of what goes over the wire |
//! | [`wire`] | bytes into messages, every size bounded |
//! | [`bridge`] | between the thread that ticks and the thread that talks |
//! | [`peers`] | who is at the other end, and what they may |
//! | [`listen`] | the listening socket |
//! | [`server`] | the thread that talks: all connections behind one epoll |
//! | `connection` | one of them: what came in, what goes out, whose turn it is |
//! | `complaints` | who is over a limit, in the log |
//! | `answer` | what a call is answered, from the last tick |

mod answer;
pub mod bridge;
mod complaints;
mod connection;
pub mod interface;
pub mod listen;
pub mod peers;
pub mod server;
pub mod wire;
