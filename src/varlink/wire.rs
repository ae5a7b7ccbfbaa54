//! Messages on a stream: JSON objects, each with a NUL byte behind it, and every size bounded.
//!
//! **Problem.** Whoever may connect may send anything: half a message and then nothing, 64 MiB without an end,
//! brackets a million deep. Bytes come in pieces that have nothing to do with messages. **Answer.** A
//! [`Framer`] takes bytes and gives messages; it does no IO and knows no clock, so that a test can feed it
//! everything. It keeps at most one message and one piece: what is longer than the limit is an error that ends
//! the connection, before it is stored.
//!
//! A message that is no JSON object, or nested more than 128 deep (the parser's own bound), ends the
//! connection too, as there is nothing that an answer could refer to. Keys that Varlink does not know are
//! passed over; a key given twice is no call.
//!
//! **Properties** (`tests/varlink/wire.rs`): any division of the bytes into pieces gives the same messages; no
//! bytes make it panic; what it keeps never exceeds its limit and a piece.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::interface::CallError;

/// The longest request, its NUL byte not counted.
pub const REQUEST_MAX_BYTES: usize = 64 << 10;

/// Why a stream cannot be read any further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A message is longer than it may be.
    #[error("a message is longer than {0} bytes")]
    TooLong(usize),
    /// A message is not what it should be.
    #[error("a message is not a Varlink object: {0}")]
    Malformed(String),
}

/// Divides a stream of bytes into messages.
#[derive(Debug)]
pub struct Framer {
    buffer: Vec<u8>,
    /// Where the next message begins.
    begin: usize,
    /// Bytes before this were looked at, and are no end.
    looked: usize,
    max_bytes: usize,
}

impl Framer {
    /// A framer of messages of at most `max_bytes`.
    pub fn new(max_bytes: usize) -> Framer {
        Framer { buffer: Vec::new(), begin: 0, looked: 0, max_bytes }
    }

    /// Takes the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole message; `None` until more bytes come.
    ///
    /// # Errors
    /// [`WireError::TooLong`]; the stream is of no use then.
    pub fn next_message(&mut self) -> Result<Option<&[u8]>, WireError> {
        let unseen = &self.buffer[self.looked..];
        let end = unseen.iter().position(|byte| *byte == 0).map(|at| self.looked + at);
        let length = end.unwrap_or(self.buffer.len()) - self.begin;
        if length > self.max_bytes {
            return Err(WireError::TooLong(self.max_bytes));
        }
        match end {
            Some(end) => {
                let message = self.begin..end;
                self.begin = end + 1;
                self.looked = self.begin;
                Ok(Some(&self.buffer[message]))
            }
            None => {
                match self.begin == self.buffer.len() {
                    // Between messages nothing is kept, whatever the last one was.
                    true => self.buffer = Vec::new(),
                    false => drop(self.buffer.drain(..self.begin)),
                }
                (self.begin, self.looked) = (0, self.buffer.len());
                Ok(None)
            }
        }
    }

    /// Whether a message has begun that has not ended.
    pub fn is_within_message(&self) -> bool {
        self.begin < self.buffer.len()
    }

    /// Bytes that are kept.
    pub fn kept_bytes(&self) -> usize {
        self.buffer.len()
    }
}

/// What a client asks.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Call {
    /// The method's full name.
    pub method: String,
    /// What it is given.
    #[serde(default)]
    pub parameters: Option<Map<String, Value>>,
    /// Nobody waits for an answer.
    #[serde(default, skip_serializing_if = "is_false")]
    pub oneway: bool,
    /// More than one answer is welcome.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more: bool,
    /// The connection shall speak something else afterwards.
    #[serde(default, skip_serializing_if = "is_false")]
    pub upgrade: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Call {
    /// Reads a message.
    ///
    /// # Errors
    /// [`WireError::Malformed`].
    pub fn parse(message: &[u8]) -> Result<Call, WireError> {
        serde_json::from_slice(message).map_err(|error| WireError::Malformed(error.to_string()))
    }

    /// Its parameters as what the method takes.
    ///
    /// # Errors
    /// [`CallError::InvalidParameter`] with the name of the first that is missing, unknown or of another type.
    pub fn parameters<T: for<'de> Deserialize<'de>>(&self) -> Result<T, CallError> {
        let given = self.parameters.clone().unwrap_or_default();
        serde_json::from_value(Value::Object(given.clone())).map_err(|error| {
            // serde names a field that is missing or unknown between backticks; one of another type it does
            // not name, and there the first one given is as good as any.
            let text = error.to_string();
            let named = text.split('`').nth(1).filter(|_| text.contains(" field `"));
            let first = given.keys().next().map(String::as_str);
            let parameter = named.or(first).unwrap_or("parameters").to_string();
            CallError::InvalidParameter { parameter }
        })
    }
}

/// The message of an answer. `parameters` is serialised already: a status is made once for all who ask.
pub fn reply(parameters: &str, continues: bool) -> String {
    let tail = if continues { ",\"continues\":true}\0" } else { "}\0" };
    format!("{{\"parameters\":{parameters}{tail}")
}

/// The message of a refusal.
pub fn refusal(error: &CallError) -> String {
    // Strings and lists of strings: there is nothing in it that could not be written.
    let mut text = serde_json::to_string(error).unwrap_or_default();
    text.push('\0');
    text
}
