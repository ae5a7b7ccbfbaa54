//! The connection to containerd: ttrpc messages of two logical connections on one socket.
//!
//! **Wire** (`pkg/net/multiplex` of containerd/nri; PROTOCOL.md of containerd/ttrpc). All numbers are big-endian.
//!
//! ```text
//! frame:   connection u32, length u32, bytes          a piece of the stream of one connection
//! message: length u32, stream u32, type u8, flags u8, data
//! ```
//!
//! Connection 1 has calls of containerd to the plugin, connection 2 those of the plugin to containerd. A message may begin and end
//! anywhere in a frame; messages of the two connections may alternate. Containerd's reader needs each frame of ours within its
//! buffer of 4 KiB, so what is sent here is one short frame.
//!
//! **Bounds.** A frame has at most [`FRAME_MAX`] bytes and a message [`MESSAGE_MAX`], as in containerd. A longer one ends the
//! connection. Memory grows with the bytes that have arrived, not with a length that was announced. Frames of other connections
//! are skipped.
//!
//! **Properties** (`tests/trunk.rs`): any division of the messages into frames and of the frames into reads gives the same
//! messages; no bytes cause a panic.

use std::io::{self, Read, Write};

/// Longest data of a message (`messageLengthMax` of ttrpc).
pub const MESSAGE_MAX: usize = 4 << 20;
const MESSAGE_HEADER: usize = 10;
/// Longest frame (`maxPayloadSize` of the multiplexer).
pub const FRAME_MAX: usize = MESSAGE_HEADER + MESSAGE_MAX;
const FRAME_HEADER: usize = 8;
/// Longest data of a message sent here: with its header a frame that containerd's reader holds.
pub const SENT_MAX: usize = 4096 - MESSAGE_HEADER;
const PIECE: usize = 64 << 10;

/// Connection of calls to the plugin.
pub const TO_PLUGIN: u32 = 1;
/// Connection of calls to containerd.
pub const TO_RUNTIME: u32 = 2;
/// Type of a call.
pub const REQUEST: u8 = 1;
/// Type of a reply.
pub const RESPONSE: u8 = 2;

/// Error that ends the connection.
#[derive(Debug, thiserror::Error)]
pub enum TrunkError {
    /// Containerd closed the connection.
    #[error("containerd closed the connection")]
    Closed,
    /// The socket failed.
    #[error("the connection to containerd failed: {0}")]
    Io(#[from] io::Error),
    /// A length exceeds its bound.
    #[error("containerd announced a {0} of {1} bytes, which is above the limit of its protocol")]
    TooLong(&'static str, usize),
    /// A message to containerd is too long.
    #[error("a message of {0} bytes is too long to send")]
    TooLongToSend(usize),
}

/// A message of ttrpc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Logical connection: [`TO_PLUGIN`] or [`TO_RUNTIME`].
    pub connection: u32,
    /// Number of the call.
    pub stream: u32,
    /// [`REQUEST`], [`RESPONSE`], or a type of streams, which NRI does not use.
    pub kind: u8,
    /// Data.
    pub data: Vec<u8>,
}

/// The socket, with the bytes of messages that are not complete.
#[derive(Debug)]
pub struct Trunk<S> {
    socket: S,
    pending: [Pending; 2],
}

/// Bytes of one connection that are no complete message yet, from `begin` on.
#[derive(Debug, Default)]
struct Pending {
    bytes: Vec<u8>,
    begin: usize,
}

impl<S: Read + Write> Trunk<S> {
    /// Uses a connected socket.
    pub fn new(socket: S) -> Trunk<S> {
        Trunk { socket, pending: Default::default() }
    }

    /// Waits for the next message of either connection.
    ///
    /// # Errors
    /// [`TrunkError`]; the connection cannot be used any further.
    pub fn receive(&mut self) -> Result<Message, TrunkError> {
        loop {
            for connection in [TO_PLUGIN, TO_RUNTIME] {
                if let Some(message) = self.pending_of(connection).complete(connection)? {
                    return Ok(message);
                }
            }
            self.read_frame()?;
        }
    }

    /// Sends a message in one frame.
    ///
    /// # Errors
    /// [`TrunkError`]
    pub fn send(&mut self, message: &Message) -> Result<(), TrunkError> {
        let length = message.data.len();
        let Some(sent) = u32::try_from(length).ok().filter(|_| length <= SENT_MAX) else {
            return Err(TrunkError::TooLongToSend(length));
        };
        let mut frame = Vec::with_capacity(FRAME_HEADER + MESSAGE_HEADER + length);
        frame.extend(message.connection.to_be_bytes());
        frame.extend((sent + MESSAGE_HEADER as u32).to_be_bytes());
        frame.extend(sent.to_be_bytes());
        frame.extend(message.stream.to_be_bytes());
        frame.extend([message.kind, 0]);
        frame.extend(&message.data);
        self.socket.write_all(&frame)?;
        Ok(())
    }

    fn read_frame(&mut self) -> Result<(), TrunkError> {
        let mut header = [0; FRAME_HEADER];
        self.fill(&mut header)?;
        let [c0, c1, c2, c3, l0, l1, l2, l3] = header;
        let connection = u32::from_be_bytes([c0, c1, c2, c3]);
        let mut left = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        if left > FRAME_MAX {
            return Err(TrunkError::TooLong("frame", left));
        }
        let mut piece = vec![0; left.min(PIECE)];
        while left > 0 {
            let part = left.min(PIECE);
            self.fill(&mut piece[..part])?;
            if [TO_PLUGIN, TO_RUNTIME].contains(&connection) {
                self.pending_of(connection).push(&piece[..part]);
            }
            left -= part;
        }
        Ok(())
    }

    fn pending_of(&mut self, connection: u32) -> &mut Pending {
        &mut self.pending[usize::from(connection == TO_RUNTIME)]
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), TrunkError> {
        self.socket.read_exact(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => TrunkError::Closed,
            _ => TrunkError::Io(error),
        })
    }
}

impl Pending {
    fn push(&mut self, bytes: &[u8]) {
        if self.begin == self.bytes.len() {
            // A message of megabytes comes once, at the start: its memory is not kept.
            *self = Pending::default();
        }
        self.bytes.drain(..self.begin);
        self.begin = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the first message, if it is complete.
    fn complete(&mut self, connection: u32) -> Result<Option<Message>, TrunkError> {
        let bytes = &self.bytes[self.begin..];
        let Some((header, rest)) = bytes.split_first_chunk::<MESSAGE_HEADER>() else {
            return Ok(None);
        };
        let [l0, l1, l2, l3, s0, s1, s2, s3, kind, _flags] = *header;
        let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        if length > MESSAGE_MAX {
            return Err(TrunkError::TooLong("message", length));
        }
        let Some(data) = rest.get(..length) else { return Ok(None) };
        let stream = u32::from_be_bytes([s0, s1, s2, s3]);
        let message = Message { connection, stream, kind, data: data.to_vec() };
        self.begin += MESSAGE_HEADER + length;
        Ok(Some(message))
    }
}
