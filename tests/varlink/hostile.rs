//! Hostile clients: each meets a limit, and all other clients are answered.

use std::io::Write;
use std::time::Duration;

use serde_json::json;
use tenantd_varlink::server::Limits;

use super::ground::{Client, Ground};

const WATCH: &str = "io.tenantd.Manager.Watch";

#[test]
fn a_request_without_an_end_is_cut_off() {
    let ground = Ground::new();
    let mut hostile = ground.client();
    let piece = vec![b' '; 1 << 16];
    // 64 MiB are offered; the server closes long before it has taken them.
    let refused = (0..1024).find(|_| hostile.stream.write_all(&piece).is_err());
    assert!(refused.is_some_and(|pieces| pieces < 32), "{refused:?}");
    assert_eq!(ground.client().tick(), 1);
}

#[test]
fn a_message_that_is_not_a_call_closes_the_connection() {
    let ground = Ground::new();
    let deep = format!("{{\"method\":{}", "[".repeat(60_000));
    for message in [
        "x",
        "[]",
        "{}",
        "{\"method\":7}",
        "\u{1}\u{2}",
        "{\"method\":\"a.b.C\",\"more\":1}",
        deep.as_str(),
    ] {
        let mut hostile = ground.client();
        hostile.stream.write_all(message.as_bytes()).unwrap();
        hostile.stream.write_all(&[0]).unwrap();
        assert!(hostile.is_closed(), "{}", &message[..message.len().min(20)]);
    }
    let mut empty = ground.client();
    empty.stream.write_all(&[0; 100]).unwrap();
    assert!(empty.is_closed());
    assert_eq!(ground.client().tick(), 1);
}

#[test]
fn a_request_that_takes_too_long_closes_the_connection() {
    let limits = Limits { request_time: Duration::from_millis(50), ..Limits::default() };
    let ground = Ground::with(limits, 2);
    let mut patient = ground.client();
    assert_eq!(patient.tick(), 1);
    let mut hostile = ground.client();
    hostile.stream.write_all(b"{\"method\":").unwrap();
    assert!(hostile.is_closed());
    // A silent connection has no request in transit, and no deadline.
    assert_eq!(patient.tick(), 1);
}

#[test]
fn the_connections_of_a_user_are_bounded() {
    let limits = Limits { connections_per_user: 5, kept_for_root: 0, ..Limits::default() };
    let ground = Ground::with(limits, 2);
    let mut clients: Vec<Client> = (0..5).map(|_| ground.client()).collect();
    for client in &mut clients {
        assert_eq!(client.tick(), 1);
    }
    assert!(ground.client().is_closed());
    // A hangup makes room; once a later connection is accepted, the server has noticed it.
    drop(clients.pop());
    crate::util::wait_until("room for another", || {
        let mut client = ground.client();
        client.stream.write_all(b"{\"method\":\"a.b.C\"}\0").is_ok() && client.receive().is_some()
    });
}

#[test]
fn a_thousand_idle_connections_do_not_delay_other_clients() {
    let limits = Limits { connections_per_user: 64, kept_for_root: 0, ..Limits::default() };
    let mut ground = Ground::with(limits, 100);
    let mut watcher = ground.client();
    watcher.send(&json!({ "method": WATCH, "more": true }));
    watcher.receive().unwrap();
    let mut regular = ground.client();
    let mut crowd: Vec<Client> = Vec::new();
    for round in 0..10 {
        for _ in 0..100 {
            let client = ground.client();
            // One byte and no more; the write fails where the connection was refused.
            let _ = (&client.stream).write_all(b"{");
            crowd.push(client);
        }
        ground.tick();
        assert_eq!(regular.tick(), round + 2);
        assert_eq!(watcher.receive().unwrap()["parameters"]["status"]["tick"], round + 2);
    }
}

#[test]
fn a_client_that_never_reads_is_not_read_from_either() {
    let ground = Ground::with(Limits::default(), 1000);
    let mut hostile = ground.client();
    hostile.stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let call = b"{\"method\":\"io.tenantd.Manager.GetStatus\"}\0";
    // The server stops reading, so that a pipe of bounded length fills up.
    let taken = (0..1_000_000).find(|_| hostile.stream.write_all(call).is_err());
    assert!(taken.is_some(), "a million calls were taken");
    assert_eq!(ground.client().tick(), 1);
}

#[test]
fn pending_replies_are_bounded() {
    let limits = Limits { pending_bytes: 1 << 20, ..Limits::default() };
    // A frame is more than half of that, less than all, and does not fit into a socket.
    let mut ground = Ground::with(limits, 700);
    let mut stuck: Vec<Client> = Vec::new();
    for tick in 2..12 {
        let mut client = ground.client();
        client.send(&json!({ "method": WATCH, "more": true }));
        stuck.push(client);
        assert_eq!(ground.client().tick(), tick - 1);
        ground.tick();
    }
    assert_eq!(ground.client().tick(), 11);
    // Those that waited longest were closed within their frame; the last ones were not.
    let frames = |client: &mut Client| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| client.receive())).ok().flatten()
    };
    assert!(frames(&mut stuck[0]).is_none());
    assert!(frames(stuck.last_mut().unwrap()).is_some());
}

#[test]
fn a_client_that_hangs_up_midway_does_not_affect_others() {
    let ground = Ground::with(Limits::default(), 1000);
    for cut in [1, 10, 30] {
        let mut client = ground.client();
        let call = b"{\"method\":\"io.tenantd.Manager.GetStatus\"}\0";
        client.stream.write_all(&call[..cut]).unwrap();
    }
    let mut client = ground.client();
    client.send(&json!({ "method": WATCH, "more": true }));
    drop(client);
    let mut half = ground.client();
    half.send(&json!({ "method": "a.b.C" }));
    half.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(half.receive().is_some(), "what was asked before is answered");
    assert!(half.is_closed());
    assert_eq!(ground.client().tick(), 1);
}
