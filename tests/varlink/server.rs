//! The server with clients that keep to the protocol.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenantd_control::report::status::Status;
use tenantd_policy::model::Mode;
use tenantd_varlink::bridge::Command;
use tenantd_varlink::error::CallError;
use tenantd_varlink::interface::{MANAGER_IDL, SERVICE_IDL};
use tenantd_varlink::server::Limits;

use super::ground::Ground;

const MANAGER: &str = "io.tenantd.Manager";

fn manager(method: &str) -> String {
    format!("{MANAGER}.{method}")
}

fn error_of(reply: &Value) -> &str {
    reply["error"].as_str().unwrap_or("none")
}

#[test]
fn a_service_describes_itself() {
    let ground = Ground::new();
    let mut client = ground.client();
    let info = client.call("org.varlink.service.GetInfo", json!({}));
    assert_eq!(info["parameters"]["product"], "tenantd");
    assert_eq!(
        info["parameters"]["interfaces"],
        json!(["org.varlink.service", MANAGER, "io.tenantd.Jobs"])
    );
    let describe = "org.varlink.service.GetInterfaceDescription";
    for (interface, text) in [("org.varlink.service", SERVICE_IDL), (MANAGER, MANAGER_IDL)] {
        let reply = client.call(describe, json!({ "interface": interface }));
        assert_eq!(reply["parameters"]["description"], text);
    }
    let unknown = client.call(describe, json!({ "interface": "a.b" }));
    assert_eq!(error_of(&unknown), "org.varlink.service.InterfaceNotFound");
    assert_eq!(unknown["parameters"]["interface"], "a.b");
}

#[test]
fn every_reader_gets_the_last_tick() {
    let mut ground = Ground::new();
    let mut client = ground.client();
    assert_eq!(client.tick(), 1);
    ground.tick();
    assert_eq!(client.tick(), 2);
    assert_eq!(ground.client().tick(), 2);
    let reply = client.call(&manager("GetStatus"), json!({}));
    let status: Status = serde_json::from_value(reply["parameters"]["status"].clone()).unwrap();
    assert_eq!(status.tenants.len(), ground.nr_tenants);
    let plan = client.call(&manager("GetPlan"), json!({}));
    assert_eq!(
        (&plan["parameters"]["tick"], &plan["parameters"]["mode"]),
        (&json!(2), &json!("observe"))
    );
    let policy = client.call(&manager("GetPolicy"), json!({}));
    assert!(policy["parameters"]["policy"]["tenants"].is_array());
}

#[test]
fn a_wrong_call_gets_an_error_and_the_connection_stays_open() {
    let ground = Ground::new();
    let mut client = ground.client();
    for (method, parameters, error) in [
        ("a.b.C", json!({}), "org.varlink.service.InterfaceNotFound"),
        ("nonsense", json!({}), "org.varlink.service.InterfaceNotFound"),
        ("io.tenantd.Manager.Nonsense", json!({}), "org.varlink.service.MethodNotFound"),
        ("io.tenantd.Manager.Explain", json!({}), "org.varlink.service.InvalidParameter"),
        (
            "io.tenantd.Manager.Explain",
            json!({ "tenant": 1 }),
            "org.varlink.service.InvalidParameter",
        ),
        ("io.tenantd.Manager.Explain", json!({ "tenant": "x" }), "io.tenantd.Manager.NoSuchTenant"),
        ("io.tenantd.Manager.GetStatus", json!({ "x": 1 }), "org.varlink.service.InvalidParameter"),
        (
            "io.tenantd.Manager.SetMode",
            json!({ "mode": "x" }),
            "org.varlink.service.InvalidParameter",
        ),
        ("io.tenantd.Manager.Watch", json!({}), "org.varlink.service.ExpectedMore"),
    ] {
        assert_eq!(error_of(&client.call(method, parameters)), error, "{method}");
    }
    client.send(&json!({ "method": manager("GetStatus"), "upgrade": true }));
    assert_eq!(error_of(&client.receive().unwrap()), "org.varlink.service.MethodNotImplemented");
    assert_eq!(client.tick(), 1);
}

#[test]
fn pipelined_calls_are_answered_in_order() {
    let ground = Ground::new();
    let mut client = ground.client();
    for index in 0..200 {
        client.send(&json!({ "method": format!("a.b{index}.C") }));
    }
    for index in 0..200 {
        let reply = client.receive().unwrap();
        assert_eq!(reply["parameters"]["interface"], format!("a.b{index}"));
    }
}

#[test]
fn a_oneway_call_is_executed_without_a_reply() {
    let ground = Ground::new();
    let mut client = ground.client();
    client.send(&json!({ "method": manager("GetStatus"), "oneway": true }));
    client.send(&json!({ "method": "a.b.C", "oneway": true }));
    client.send(&json!({ "method": manager("Watch"), "oneway": true, "more": true }));
    client.send(&json!({ "method": manager("Reload"), "oneway": true }));
    assert_eq!(ground.command().1, Command::Reload);
    assert_eq!(client.tick(), 1, "the first reply belongs to the first call that wants one");
}

#[test]
fn a_oneway_call_is_executed_after_its_caller_hung_up() {
    let ground = Ground::new();
    let mut client = ground.client();
    client.send(&json!({ "method": manager("Reload"), "oneway": true }));
    drop(client);
    assert_eq!(ground.command().1, Command::Reload);
}

#[test]
fn changes_reach_the_agent_and_their_answers_the_callers() {
    let ground = Ground::new();
    let (mut first, mut second) = (ground.client(), ground.client());
    first.send(&json!({ "method": manager("SetMode"), "parameters": { "mode": "enforce" } }));
    let (first_ticket, command) = ground.command();
    assert_eq!(command, Command::SetMode(Mode::Enforce));
    second.send(&json!({ "method": manager("Reload") }));
    let (second_ticket, command) = ground.command();
    assert_eq!(command, Command::Reload);
    // While one client waits, all others are answered.
    assert_eq!(ground.client().tick(), 1);
    let busy = CallError::Failed { reason: "no".into() };
    ground.agent().answer(second_ticket, Err(busy));
    ground.agent().answer(first_ticket, Ok(Arc::from(r#"{"before":"observe","failures":[]}"#)));
    assert_eq!(second.receive().unwrap()["parameters"]["reason"], "no");
    assert_eq!(first.receive().unwrap()["parameters"]["before"], "observe");
    assert_eq!(first.tick(), 1);
}

#[test]
fn a_caller_that_hangs_up_before_its_answer_does_not_affect_others() {
    let ground = Ground::new();
    let mut client = ground.client();
    client.send(&json!({ "method": manager("Restore") }));
    let (ticket, _) = ground.command();
    drop(client);
    ground.agent().answer(ticket, Ok(Arc::from("{}")));
    assert_eq!(ground.client().tick(), 1);
}

#[test]
fn the_queue_of_changes_is_bounded() {
    let ground = Ground::new();
    let mut clients: Vec<_> = (0..20).map(|_| ground.client()).collect();
    for client in &mut clients {
        client.send(&json!({ "method": manager("Reload") }));
    }
    // A later call is answered after all of these were read.
    assert_eq!(ground.client().tick(), 1);
    let mut tickets = Vec::new();
    while let Some((ticket, _)) = ground.agent().next_command() {
        tickets.push(ticket);
    }
    assert_eq!(tickets.len(), 16);
    for ticket in tickets {
        ground.agent().answer(ticket, Ok(Arc::from("{}")));
    }
    let replies: Vec<Value> = clients.iter_mut().map(|client| client.receive().unwrap()).collect();
    let busy = replies.iter().filter(|reply| error_of(reply) == "io.tenantd.Manager.Busy").count();
    assert_eq!(busy, 4);
}

#[test]
fn a_watcher_gets_every_tick_that_it_reads_in_time() {
    let mut ground = Ground::new();
    let mut client = ground.client();
    client.send(&json!({ "method": manager("Watch"), "more": true }));
    for tick in 1..=5 {
        let frame = client.receive().unwrap();
        assert_eq!(frame["parameters"]["status"]["tick"], tick);
        assert_eq!((&frame["parameters"]["lost"], &frame["continues"]), (&json!(0), &json!(true)));
        ground.tick();
    }
}

#[test]
fn a_slow_watcher_skips_ticks_and_gets_their_number() {
    // A frame of this size does not fit into what the kernel keeps for a socket.
    let mut ground = Ground::with(Default::default(), 2000);
    let mut slow = ground.client();
    slow.send(&json!({ "method": manager("Watch"), "more": true }));
    let mut other = ground.client();
    // Once a later call was answered, the frame of the first tick is in transit.
    other.tick();
    for tick in 2..=50 {
        ground.tick();
        assert_eq!(other.tick(), tick, "other clients do not wait");
    }
    let first = slow.receive().unwrap();
    assert_eq!(first["parameters"]["status"]["tick"], 1);
    let second = slow.receive().unwrap();
    assert_eq!(second["parameters"]["status"]["tick"], 50, "the newest, not the oldest");
    assert_eq!(second["parameters"]["lost"], 48);
    ground.tick();
    let third = slow.receive().unwrap();
    assert_eq!(
        (&third["parameters"]["status"]["tick"], &third["parameters"]["lost"]),
        (&json!(51), &json!(0))
    );
}

#[test]
fn a_watcher_has_no_deadline_to_read() {
    // Long enough for a client that reads on a busy machine.
    let limits = Limits { answer_time: Duration::from_secs(2), ..Limits::default() };
    // Neither a frame nor an answer of this size fits into what the kernel keeps for a socket.
    let mut ground = Ground::with(limits, 2000);
    let mut watcher = ground.client();
    watcher.send(&json!({ "method": manager("Watch"), "more": true }));
    // Once a later call was answered, the first frame is in transit.
    assert_eq!(ground.client().tick(), 1);
    let mut other = ground.client();
    other.send(&json!({ "method": manager("GetStatus") }));
    assert!(other.is_hung_up_on(), "a client that takes no byte of its reply is closed");
    ground.tick();
    for tick in 1..=2 {
        let frame = watcher.receive().unwrap();
        assert_eq!(
            (&frame["parameters"]["status"]["tick"], &frame["parameters"]["lost"]),
            (&json!(tick), &json!(0))
        );
    }
}

#[test]
fn the_server_ends_with_the_agent_and_removes_the_socket() {
    let mut ground = Ground::new();
    let mut client = ground.client();
    client.tick();
    client.send(&json!({ "method": manager("Watch"), "more": true }));
    client.receive().unwrap();
    ground.stop();
    assert!(client.is_closed());
    assert!(!ground.path.exists());
}
