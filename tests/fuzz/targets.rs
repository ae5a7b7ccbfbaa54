//! What hostile bytes are given to. The same functions are called by the tests, with bytes made by chance, and
//! by libFuzzer, which looks for bytes that reach code nobody reached before (`fuzz/`).
//!
//! A target panics where a promise is broken; whatever else it may do with its bytes is right.

use tenantd_policy::{self as policy, outline::Outline, report::Style};
use tenantd_varlink::interface::Method;
use tenantd_varlink::wire::{Call, Framer};

/// Bytes on the wire: in pieces, framed, parsed as calls of every method. The first two say how long a
/// message may be and how long the pieces are.
pub(crate) fn wire(bytes: &[u8]) {
    let [limit, piece, stream @ ..] = bytes else { return };
    let (max_bytes, piece) = (1 + 16 * usize::from(*limit), 1 + usize::from(*piece));
    let mut framer = Framer::new(max_bytes);
    for piece in stream.chunks(piece) {
        framer.push(piece);
        loop {
            match framer.next_message() {
                Ok(Some(message)) => call(message),
                Ok(None) => break,
                Err(_) => return,
            }
        }
        assert!(framer.kept_bytes() <= max_bytes);
    }
}

fn call(message: &[u8]) {
    let Ok(call) = Call::parse(message) else { return };
    // What was read is written and read the same again.
    let again = serde_json::to_vec(&call).map(|text| Call::parse(&text));
    assert!(again.is_ok_and(|again| again.is_ok_and(|again| again.method == call.method)));
    let _ = Method::find(&call.method);
    for method in Method::ALL {
        let _ = method.request(&call);
    }
}

/// Bytes as a policy: taken up, or told what is wrong with it.
pub(crate) fn policy(bytes: &[u8]) {
    match policy::load_text("fuzz", &String::from_utf8_lossy(bytes)) {
        Ok(loaded) => {
            let outline = Outline::of(&loaded.policy);
            assert!(outline.changes_to(&outline).is_empty());
        }
        Err(report) => {
            assert!(!report.findings().is_empty());
            assert!(!report.render(Style::PLAIN).is_empty());
        }
    }
}
