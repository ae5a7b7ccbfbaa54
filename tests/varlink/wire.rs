//! Bytes into messages, whatever the bytes and however they come.

use proptest::prelude::*;
use serde_json::json;
use tenantd_varlink::error::CallError;
use tenantd_varlink::interface::{ExplainParameters, Method, Nothing, SetModeParameters};
use tenantd_varlink::wire::{Call, Framer, REQUEST_MAX_BYTES, WireError};

/// What a framer makes of `bytes` that come in pieces of the given lengths, over and over.
fn framed(bytes: &[u8], pieces: &[usize], max_bytes: usize) -> Result<Vec<Vec<u8>>, WireError> {
    let mut framer = Framer::new(max_bytes);
    let mut messages = Vec::new();
    let (mut left, mut lengths) = (bytes, pieces.iter().cycle());
    while !left.is_empty() {
        let length = (*lengths.next().unwrap()).clamp(1, left.len());
        framer.push(&left[..length]);
        left = &left[length..];
        while let Some(message) = framer.next_message()? {
            messages.push(message.to_vec());
        }
        assert!(framer.kept_bytes() <= max_bytes, "nothing but one message is kept");
    }
    Ok(messages)
}

/// Bytes in which ends of messages are frequent.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![3 => any::<u8>(), 1 => Just(0)], 0..400)
}

proptest! {
    #[test]
    fn any_division_into_pieces_gives_the_same_messages(
        bytes in stream(),
        pieces in prop::collection::vec(1_usize..50, 1..8),
    ) {
        let whole: Vec<Vec<u8>> = bytes
            .split_inclusive(|byte| *byte == 0)
            .filter_map(|message| message.strip_suffix(&[0]).map(<[u8]>::to_vec))
            .collect();
        prop_assert_eq!(framed(&bytes, &pieces, 1000).unwrap(), whole.clone());
        prop_assert_eq!(framed(&bytes, &[1], 1000).unwrap(), whole);
    }

    #[test]
    fn any_bytes_are_parsed_or_refused(bytes in stream()) {
        let _ = Call::parse(&bytes);
    }

    #[test]
    fn a_message_that_is_too_long_is_refused_in_any_pieces(
        length in 0_usize..200,
        pieces in prop::collection::vec(1_usize..50, 1..4),
    ) {
        let mut bytes = vec![b'x'; length];
        bytes.push(0);
        let outcome = framed(&bytes, &pieces, 100);
        prop_assert_eq!(outcome.is_ok(), length <= 100);
    }
}

#[test]
fn an_endless_message_is_refused_before_it_is_stored() {
    let mut framer = Framer::new(REQUEST_MAX_BYTES);
    let piece = vec![b' '; 16 << 10];
    let pushed = (1..=(64 << 20) / piece.len()).find(|_| {
        framer.push(&piece);
        framer.next_message().is_err()
    });
    let bytes = pushed.expect("64 MiB are too much") * piece.len();
    assert!(bytes <= REQUEST_MAX_BYTES + piece.len(), "{bytes} bytes were taken");
}

#[test]
fn a_call_has_a_method_and_optional_fields() {
    let call =
        Call::parse(br#"{"method":"a.b.C","parameters":{"x":1},"more":true,"new":7}"#).unwrap();
    assert_eq!((call.method.as_str(), call.more, call.oneway), ("a.b.C", true, false));
    assert_eq!(call.parameters.unwrap()["x"], 1);
    assert!(Call::parse(br#"{"method":"a.b.C"}"#).unwrap().parameters.is_none());
    assert!(Call::parse(br#"{"method":"a.b.C","parameters":null}"#).unwrap().parameters.is_none());
    for wrong in [
        "",
        " ",
        "{",
        "[]",
        "7",
        "null",
        "{}",
        r#"{"method":7}"#,
        r#"{"method":"a.b.C","more":"yes"}"#,
        r#"{"method":"a.b.C","parameters":[]}"#,
        r#"{"method":"a.b.C"}{}"#,
        "\u{feff}{}",
        "{'method':'a'}",
        r#"{"method":"a.b.C","method":"a.b.D"}"#,
    ] {
        assert!(Call::parse(wrong.as_bytes()).is_err(), "{wrong}");
    }
    assert!(Call::parse(b"{\"method\":\"a.b.\xff\"}").is_err());
}

#[test]
fn deep_nesting_is_refused() {
    let nested = |depth: usize| {
        let value = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        format!(r#"{{"method":"a.b.C","parameters":{{"x":{value}}}}}"#)
    };
    assert!(Call::parse(nested(100).as_bytes()).is_ok());
    for depth in [130, 1000, 30_000] {
        assert!(Call::parse(nested(depth).as_bytes()).is_err(), "{depth}");
    }
}

#[test]
fn the_wrong_parameter_is_named() {
    let wrong = |parameters: serde_json::Value| Call {
        parameters: parameters.as_object().cloned(),
        ..Call::default()
    };
    let named = |error: CallError| match error {
        CallError::InvalidParameter { parameter } => parameter,
        other => panic!("{other:?}"),
    };
    let explain = |p| named(wrong(p).parameters::<ExplainParameters>().unwrap_err());
    assert_eq!(explain(json!({})), "tenant");
    assert_eq!(explain(json!({ "tenant": 7 })), "tenant");
    assert_eq!(explain(json!({ "tenant": "web", "verbose": true })), "verbose");
    let mode = |p| named(wrong(p).parameters::<SetModeParameters>().unwrap_err());
    assert_eq!(mode(json!({ "mode": "enforced" })), "mode");
    assert_eq!(named(wrong(json!({ "x": 1 })).parameters::<Nothing>().unwrap_err()), "x");
    assert!(Call::default().parameters::<Nothing>().is_ok());
}

#[test]
fn a_method_is_found_by_its_full_name() {
    assert_eq!(Method::find("io.tenantd.Manager.GetStatus"), Ok(Method::GetStatus));
    let missing = |name: &str| Method::find(name).unwrap_err();
    assert_eq!(
        missing("io.tenantd.Manager.Status"),
        CallError::MethodNotFound { method: "io.tenantd.Manager.Status".into() }
    );
    for (name, interface) in [("io.tenantd.Other.X", "io.tenantd.Other"), ("x", "x"), ("", "")] {
        assert_eq!(missing(name), CallError::InterfaceNotFound { interface: interface.into() });
    }
}
