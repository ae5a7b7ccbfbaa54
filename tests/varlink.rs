//! The socket: the wire, the interfaces, the server with well-behaved and with hostile clients.

mod flood;
mod ground;
mod hostile;
mod peers;
mod server;
mod wire;
