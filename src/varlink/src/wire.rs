//! Messages on a stream: JSON objects, each followed by a NUL byte, and every size bounded.
//!
//! **Problem.** A client can send anything: half a message and then nothing, 64 MiB without an end, a million
//! nested brackets. Bytes arrive in arbitrary pieces. **Answer.** A [`Framer`] takes bytes and returns
//! messages; it does no IO and reads no clock, so that a test can feed it anything. It holds at most one
//! message and one piece: a longer message is an error that ends the connection before the message is stored.
//!
//! A message that is not a JSON object, or is nested more than 128 deep (the bound of the parser), ends the
//! connection too, because an error reply would have no call to refer to. Keys that Varlink does not define are
//! ignored; a message with a duplicate key is rejected.
//!
//! **Properties** (`tests/varlink/wire.rs`): any division of the bytes into pieces gives the same messages; no
//! bytes cause a panic; the held bytes never exceed the limit and a piece.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::error::CallError;

/// Longest request, without its NUL byte.
pub const REQUEST_MAX_BYTES: usize = 64 << 10;

/// Error that ends a stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A message exceeds the limit.
    #[error("a message is longer than {0} bytes")]
    TooLong(usize),
    /// A message is not a Varlink object.
    #[error("a message is not a Varlink object: {0}")]
    Malformed(String),
}

/// Divides a stream of bytes into messages.
#[derive(Debug)]
pub struct Framer {
    buffer: Vec<u8>,
    begin: usize,
    /// End of the scanned bytes, none of which is NUL.
    scanned: usize,
    max_bytes: usize,
}

impl Framer {
    /// Creates a framer of messages of at most `max_bytes`.
    pub fn new(max_bytes: usize) -> Framer {
        Framer { buffer: Vec::new(), begin: 0, scanned: 0, max_bytes }
    }

    /// Adds the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Takes the next complete message; `None` until more bytes arrive.
    ///
    /// # Errors
    /// [`WireError::TooLong`]; the stream cannot be used any further.
    pub fn next_message(&mut self) -> Result<Option<&[u8]>, WireError> {
        let unseen = &self.buffer[self.scanned..];
        let end = unseen.iter().position(|byte| *byte == 0).map(|at| self.scanned + at);
        let length = end.unwrap_or(self.buffer.len()) - self.begin;
        if length > self.max_bytes {
            return Err(WireError::TooLong(self.max_bytes));
        }
        match end {
            Some(end) => {
                let message = self.begin..end;
                self.begin = end + 1;
                self.scanned = self.begin;
                Ok(Some(&self.buffer[message]))
            }
            None => {
                if self.begin == self.buffer.len() {
                    // Freed between messages, because it may have held a long one.
                    self.buffer = Vec::new()
                } else {
                    drop(self.buffer.drain(..self.begin))
                }
                (self.begin, self.scanned) = (0, self.buffer.len());
                Ok(None)
            }
        }
    }

    /// True if the stream is within a message.
    pub fn is_within_message(&self) -> bool {
        self.begin < self.buffer.len()
    }

    /// Number of held bytes.
    pub fn kept_bytes(&self) -> usize {
        self.buffer.len()
    }
}

/// A call of a client.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Call {
    /// Full name of the method.
    pub method: String,
    /// Parameters of the call.
    #[serde(default)]
    pub parameters: Option<Map<String, Value>>,
    /// True if the client does not read a reply.
    #[serde(default, skip_serializing_if = "is_false")]
    pub oneway: bool,
    /// True if the client accepts several replies.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more: bool,
    /// True if the client wants to switch to another protocol.
    #[serde(default, skip_serializing_if = "is_false")]
    pub upgrade: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Call {
    /// Parses a message.
    ///
    /// # Errors
    /// [`WireError::Malformed`].
    pub fn parse(message: &[u8]) -> Result<Call, WireError> {
        serde_json::from_slice(message).map_err(|error| WireError::Malformed(error.to_string()))
    }

    /// Converts its parameters to the type of the method.
    ///
    /// # Errors
    /// [`CallError::InvalidParameter`] with the first name that is missing, unknown or of the wrong type.
    pub fn parameters<T: for<'de> Deserialize<'de>>(&self) -> Result<T, CallError> {
        let given = self.parameters.clone().unwrap_or_default();
        serde_json::from_value(Value::Object(given.clone())).map_err(|error| {
            // serde names a missing or unknown field between backticks. It does not name a field of the
            // wrong type; then the first one in the call is reported.
            let text = error.to_string();
            let named = text.split('`').nth(1).filter(|_| text.contains(" field `"));
            let first = given.keys().next().map(String::as_str);
            let parameter = named.or(first).unwrap_or("parameters").to_string();
            CallError::InvalidParameter { parameter }
        })
    }
}

/// Message of an error.
pub fn refusal(error: &CallError) -> String {
    // It contains strings and lists only, so serialisation does not fail.
    let mut text = serde_json::to_string(error).unwrap_or_default();
    text.push('\0');
    text
}
