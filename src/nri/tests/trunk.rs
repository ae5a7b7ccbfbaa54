//! The multiplexed connection: any division into frames and reads, hostile lengths, random bytes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test asserts; it need not handle")]

use std::collections::VecDeque;
use std::io::{self, Read, Write};

use proptest::prelude::*;
use tenantd_nri::session::Session;
use tenantd_nri::table::Table;
use tenantd_nri::trunk::{
    FRAME_MAX, MESSAGE_MAX, Message, REQUEST, RESPONSE, SENT_MAX, TO_PLUGIN, TO_RUNTIME, Trunk,
    TrunkError,
};

/// A socket that gives its bytes in reads of these sizes, and then ends.
#[derive(Debug, Default)]
struct Script {
    input: VecDeque<u8>,
    sizes: Vec<usize>,
    nr_reads: usize,
    output: Vec<u8>,
}

impl Script {
    fn new(input: &[u8], sizes: &[usize]) -> Script {
        Script {
            input: input.iter().copied().collect(),
            sizes: sizes.to_vec(),
            ..Script::default()
        }
    }
}

impl Read for Script {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let size = self.sizes.get(self.nr_reads % self.sizes.len().max(1)).copied();
        self.nr_reads += 1;
        let count = size.unwrap_or(usize::MAX).max(1).min(into.len()).min(self.input.len());
        for (byte, next) in into.iter_mut().zip(self.input.drain(..count)) {
            *byte = next;
        }
        Ok(count)
    }
}

impl Write for Script {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn frame(connection: u32, bytes: &[u8]) -> Vec<u8> {
    let length = bytes.len() as u32;
    [&connection.to_be_bytes(), &length.to_be_bytes(), bytes].concat()
}

fn encoded(message: &Message) -> Vec<u8> {
    let length = message.data.len() as u32;
    let header = [length.to_be_bytes(), message.stream.to_be_bytes()].concat();
    [&header[..], &[message.kind, 0], &message.data].concat()
}

fn received(mut script: Script) -> (Vec<Message>, TrunkError) {
    let mut trunk = Trunk::new(&mut script);
    let mut messages = Vec::new();
    loop {
        match trunk.receive() {
            Ok(message) => messages.push(message),
            Err(error) => return (messages, error),
        }
    }
}

fn messages() -> impl Strategy<Value = Vec<Message>> {
    let data = prop::collection::vec(any::<u8>(), 0..300);
    let one = (TO_PLUGIN..=TO_RUNTIME, any::<u32>(), any::<u8>(), data)
        .prop_map(|(connection, stream, kind, data)| Message { connection, stream, kind, data });
    prop::collection::vec(one, 0..12)
}

proptest! {
    #[test]
    fn any_division_gives_the_same_messages(
        messages in messages(),
        cuts in prop::collection::vec(1..40_usize, 1..20),
        sizes in prop::collection::vec(1..50_usize, 1..20),
    ) {
        // The streams of both connections, each cut into frames; frames of unknown connections in between.
        let mut streams = [TO_PLUGIN, TO_RUNTIME].map(|connection| {
            let own = messages.iter().filter(|it| it.connection == connection);
            own.flat_map(encoded).collect::<Vec<u8>>()
        });
        let mut wire = Vec::new();
        for cut in cuts.iter().cycle() {
            for (stream, connection) in streams.iter_mut().zip([TO_PLUGIN, TO_RUNTIME]) {
                let rest = stream.split_off((*cut).min(stream.len()));
                wire.extend(frame(connection, stream));
                *stream = rest;
            }
            wire.extend(frame(9, &[7; 3]));
            if streams.iter().all(Vec::is_empty) {
                break;
            }
        }
        let (got, end) = received(Script::new(&wire, &sizes));
        prop_assert!(matches!(end, TrunkError::Closed), "{:?}", end);
        for connection in [TO_PLUGIN, TO_RUNTIME] {
            let of = |all: &[Message]| -> Vec<Message> {
                all.iter().filter(|it| it.connection == connection).cloned().collect()
            };
            prop_assert_eq!(of(&got), of(&messages));
        }
    }

    #[test]
    fn random_bytes_end_a_session(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        is_framed in any::<bool>(),
        kind in 0..4_u8,
    ) {
        let message = Message { connection: TO_PLUGIN, stream: 1, kind, data: bytes.clone() };
        let wire = if is_framed { frame(TO_PLUGIN, &encoded(&message)) } else { bytes };
        let (table, tenant) = (Table::default(), "{namespace}".parse().unwrap());
        let mut script = Script::new(&wire, &[]);
        let _ = Session::new(Some(&tenant), &table).run(&mut script, || {});
        prop_assert_eq!(table.count(), 0);
    }
}

#[test]
fn lengths_above_the_protocol_end_the_connection() {
    let length = |length: usize| u32::try_from(length).unwrap().to_be_bytes();
    let long_frame = [TO_PLUGIN.to_be_bytes(), length(FRAME_MAX + 1)].concat();
    let (_, error) = received(Script::new(&long_frame, &[]));
    assert!(matches!(error, TrunkError::TooLong("frame", _)), "{error}");
    let header = [&length(MESSAGE_MAX + 1)[..], &[0, 0, 0, 1, REQUEST, 0]].concat();
    let (_, error) = received(Script::new(&frame(TO_PLUGIN, &header), &[]));
    assert!(matches!(error, TrunkError::TooLong("message", _)), "{error}");
    // An announced length takes no memory, and its end is awaited.
    let short = [&[TO_PLUGIN.to_be_bytes(), length(FRAME_MAX)].concat()[..], &[0; 5]].concat();
    let (messages, error) = received(Script::new(&short, &[]));
    assert!(messages.is_empty() && matches!(error, TrunkError::Closed), "{error}");
}

#[test]
fn the_longest_message_is_received() {
    let longest =
        Message { connection: TO_RUNTIME, stream: 1, kind: RESPONSE, data: vec![7; MESSAGE_MAX] };
    let wire = frame(TO_RUNTIME, &encoded(&longest));
    let (messages, _) = received(Script::new(&wire, &[]));
    assert!(messages == [longest]);
}

#[test]
fn a_sent_message_fits_the_buffer_of_containerd() {
    let mut script = Script::default();
    let mut message =
        Message { connection: TO_PLUGIN, stream: 3, kind: RESPONSE, data: vec![1; SENT_MAX] };
    Trunk::new(&mut script).send(&message).unwrap();
    assert_eq!(script.output.len(), 8 + 4096);
    assert_eq!(script.output, frame(TO_PLUGIN, &encoded(&message)));
    message.data.push(1);
    let error = Trunk::new(&mut script).send(&message).unwrap_err();
    assert!(matches!(error, TrunkError::TooLongToSend(_)), "{error}");
}
