//! The socket: the wire, the interfaces, the server with well-behaved and with hostile clients.

mod idl;
