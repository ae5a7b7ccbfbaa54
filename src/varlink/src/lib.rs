//! The socket of the agent, in Varlink.
//!
//! Varlink (<https://varlink.org>) is JSON objects, each followed by a NUL byte, over a stream socket:
//! readable in strace, spoken by systemd's `varlinkctl`, with an interface that describes itself. It needs
//! no broker, so the agent answers while D-Bus is down, and no library: the protocol is one page.
//!
//! | file | contents |
//! |---|---|
//! | [`interface`] | the table of methods, and the types on the wire |
//! | [`jobs`] | the types of the queue of jobs |
//! | `declare` | the macro for that table |
//! | [`error`] | the errors of all interfaces |
//! | [`wire`] | bytes into messages, every size bounded |
//! | [`bridge`] | the connection between the control thread and the socket thread |
//! | `access` | rights of users by name |
//! | `calls` | calls that only the agent can execute |
//! | `inbox` | calls that wait for the agent |
//! | `room` | room for one more connection |
//! | `tickets` | calls in flight of all connections |
//! | `turns` | pending work by user, taken in turn |
//! | [`client`] | the caller of a daemon, with a deadline for every wait |
//! | [`readers`] | the way to become a reader of all tenants |
//! | [`class`] | figures of the finished jobs of one class |
//! | [`own_view`] | the types of the own view of a user |
//! | [`peers`] | the process at the other end, and its permissions |
//! | [`listen`] | the listening socket |
//! | [`prekill`] | notices of systemd-oomd before a kill |
//! | [`server`] | the socket thread: all connections behind one epoll |
//! | `connection` | one connection: its input, its output, its turn |
//! | `limits` | limits of clients in number, size and time |
//! | `limit_log` | rate-limited logging of clients that exceed a limit |
//! | `view` | the tenants of one user, without data of others |
//! | `answer` | the answer to a call, from the last tick |
//!
//! A new method is a row of the table in [`interface`], its text in the `.varlink` file, and an arm in
//! `answer`; the compiler names a missing arm.

#![deny(missing_docs)]

mod access;
mod answer;
pub mod bridge;
mod calls;
pub mod class;
pub mod client;
mod connection;
mod declare;
pub mod descriptors;
pub mod error;
mod inbox;
pub mod interface;
pub mod jobs;
mod limit_log;
mod limits;
pub mod listen;
pub mod own_view;
pub mod peers;
pub mod prekill;
pub mod readers;
mod room;
pub mod server;
mod tickets;
mod turns;
mod view;
pub mod wire;
