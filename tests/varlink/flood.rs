//! Floods of calls by one and by several users: queues stay bounded, and others are answered.

use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};
use tenantd_varlink::bridge::{Command, JobCall};
use tenantd_varlink::server::Limits;

use super::ground::{Client, Ground, STRANGERS};
use crate::util::wait_until;

const JOBS: &str = "io.tenantd.Jobs";
const MANAGER: &str = "io.tenantd.Manager";

/// Calls that only the agent can carry out, and that any user may make.
fn calls() -> [Value; 3] {
    [
        json!({ "method": format!("{JOBS}.Cancel"), "parameters": { "id": 1 }, "oneway": true }),
        json!({ "method": format!("{MANAGER}.Detach"), "parameters": { "pids": [7] }, "oneway": true }),
        json!({ "method": format!("{JOBS}.Cancel"), "parameters": { "id": 1 } }),
    ]
}

#[test]
fn a_client_is_read_only_as_fast_as_the_agent_takes_its_calls() {
    let ground = Ground::new();
    for call in calls() {
        let mut hostile = ground.client_of(7);
        hostile.stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        let text = format!("{call}\0").repeat(100);
        let taken = (0..10_000).find(|_| hostile.stream.write_all(text.as_bytes()).is_err());
        assert!(taken.is_some(), "a million calls were taken: {call}");
        assert_eq!(ground.client().tick(), 1);
    }
}

#[test]
fn a_oneway_call_waits_until_it_is_taken_and_no_longer() {
    let ground = Ground::new();
    let mut client = ground.client_of(7);
    for call in calls().into_iter().take(2).cycle().take(20) {
        client.send(&call);
    }
    for _ in 0..10 {
        wait_until("a call for a job", || ground.agent().next_job_call().is_some());
        assert!(matches!(ground.command().1, Command::Detach(..)));
    }
    assert_eq!(client.tick(), 1);
}

#[test]
fn submissions_of_clients_that_left_do_not_wait_for_the_agent() {
    let ground = Ground::new();
    let submit = json!({ "method": format!("{JOBS}.Submit"), "more": true });
    for _ in 0..1000 {
        let client = ground.client_of(7);
        // It fails where there is no room for the connection.
        let _ = (&client.stream).write_all(format!("{submit}\0").as_bytes());
    }
    // One that is refused has met the limit of calls in flight; the others were read.
    wait_until("room for another", || {
        let mut client = ground.client_of(7);
        client.stream.write_all(b"{\"method\":\"a.b.C\"}\0").is_ok() && client.receive().is_some()
    });
    let taken = std::iter::from_fn(|| ground.agent().next_job_call());
    let nr_taken = taken.filter(|(_, call)| matches!(call, JobCall::Submit(_))).count();
    assert!(nr_taken <= Limits::DEFAULT.connections_per_user, "{nr_taken} are in the queue");
}

#[test]
fn a_client_that_leaves_after_its_job_was_taken_is_reported_once() {
    let ground = Ground::new();
    let mut client = ground.client_of(7);
    client.send(&json!({ "method": format!("{JOBS}.Submit"), "more": true }));
    let mut taken = None;
    wait_until("the submission", || {
        taken = ground.agent().next_job_call();
        taken.is_some()
    });
    let (ticket, _) = taken.unwrap();
    drop(client);
    let mut left = None;
    wait_until("the end of its client", || {
        left = ground.agent().next_left();
        left.is_some()
    });
    assert_eq!((left, ground.agent().next_left()), (Some(ticket), None));
}

#[test]
fn a_call_counts_as_a_connection_until_it_is_answered() {
    let limits = Limits { connections_per_user: 5, ..Limits::default() };
    let ground = Ground::with(limits, 2);
    let detach = json!({ "method": format!("{MANAGER}.Detach"), "parameters": { "pids": [7] } });
    for _ in 0..5 {
        let mut client = ground.client_of(7);
        client.send(&detach);
    }
    wait_until("all places to be taken", || ground.client_of(7).is_closed_at_once());
    assert_eq!(ground.client_of(8).tick(), 1, "others have theirs");
    assert_eq!(ground.client().tick(), 1);
    for _ in 0..5 {
        let (ticket, _) = ground.command();
        ground.agent().answer(ticket, Ok("{}".into()));
    }
    wait_until("room for another", || !ground.client_of(7).is_closed_at_once());
}

#[test]
fn when_all_places_are_taken_the_longest_idle_connection_of_the_user_with_most_goes() {
    let ground = Ground::with(Limits::default(), 2);
    let mut idle: Vec<Vec<Client>> = Vec::new();
    for uid in [1, 2, 3] {
        let mut clients: Vec<Client> = (0..32).map(|_| ground.client_of(uid)).collect();
        clients.iter_mut().for_each(|client| assert_eq!(client.tick(), 1));
        idle.push(clients);
    }
    let mut others: Vec<Client> = (10..20).map(|uid| ground.client_of(uid)).collect();
    others.iter_mut().for_each(|client| assert_eq!(client.tick(), 1));
    let mut nr_closed = 0;
    for clients in &mut idle {
        let is_closed: Vec<bool> =
            clients.iter_mut().map(|client| client.is_closed_now()).collect();
        let closed = is_closed.iter().filter(|closed| **closed).count();
        assert_eq!(is_closed.iter().position(|closed| !closed), Some(closed), "the oldest first");
        assert!((3..=4).contains(&closed), "each gives up about as many: {closed}");
        nr_closed += closed;
    }
    assert_eq!(nr_closed, 10);
}

const OWN_VIEW: &str = "io.tenantd.Manager.GetOwnView";

#[test]
fn users_outside_the_group_leave_places_to_its_members() {
    let ground = Ground::with(Limits::default(), 2);
    let watch = json!({ "method": format!("{JOBS}.WatchJobs"), "more": true });
    let mut held: Vec<Client> = Vec::new();
    // One watcher for each of more users than there are places: none of them has one too many.
    let nr_held = (0..200)
        .filter(|number| {
            let mut client = ground.client_of(STRANGERS + number);
            let text = format!("{watch}\0");
            let is_open =
                client.stream.write_all(text.as_bytes()).is_ok() && client.receive().is_some();
            held.push(client);
            is_open
        })
        .count();
    let Limits { connections, kept_for_root, kept_for_members, .. } = Limits::DEFAULT;
    assert_eq!(nr_held, connections - kept_for_root - kept_for_members);
    let mut members: Vec<Client> = (1..=32).map(|uid| ground.client_of(uid)).collect();
    members.iter_mut().for_each(|client| assert_eq!(client.tick(), 1));
    assert_eq!(ground.client().tick(), 1);
}

#[test]
fn a_user_outside_the_group_floods_and_others_are_answered() {
    let mut ground = Ground::with(Limits::default(), 1000);
    let mut member = ground.client_of(7);
    let call = format!("{}\0", json!({ "method": OWN_VIEW }));
    let mut crowd: Vec<Client> = Vec::new();
    for round in 0..10 {
        for _ in 0..100 {
            let client = ground.client_of(STRANGERS);
            client.stream.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
            // It never reads; the write fails where the connection is refused or not read any more.
            let _ = (&client.stream).write_all(call.repeat(20).as_bytes());
            crowd.push(client);
        }
        ground.tick();
        assert_eq!(member.tick(), round + 2);
        assert_eq!(ground.client_of(8).tick(), round + 2);
        assert_eq!(ground.client().tick(), round + 2);
    }
    let nr_open = crowd.iter_mut().filter_map(|it| (!it.is_closed_now()).then_some(())).count();
    assert!(nr_open <= Limits::DEFAULT.connections_per_user, "{nr_open} connections are open");
    assert!(ground.agent().next_command().is_none() && ground.agent().next_job_call().is_none());
}

#[test]
fn idle_connections_of_users_have_a_deadline() {
    let limits = Limits { idle_time: Duration::from_millis(50), ..Limits::default() };
    let ground = Ground::with(limits, 2);
    let (mut root, mut watcher) = (ground.client(), ground.client_of(7));
    watcher.send(&json!({ "method": format!("{MANAGER}.Watch"), "more": true }));
    assert!(watcher.receive().is_some());
    let mut idle = ground.client_of(7);
    assert_eq!(idle.tick(), 1);
    assert!(idle.is_hung_up_on(), "it made no further call");
    assert_eq!(root.tick(), 1, "root's connection stays");
    assert!(!watcher.is_closed_now(), "a watcher has no deadline");
}

#[test]
fn a_job_that_waits_and_never_reads_is_late() {
    let limits = Limits { answer_time: Duration::from_secs(1), ..Limits::default() };
    let ground = Ground::with(limits, 2);
    let mut client = ground.client_of(7);
    client.send(&json!({ "method": format!("{JOBS}.Submit"), "more": true }));
    let mut taken = None;
    wait_until("the submission", || {
        taken = ground.agent().next_job_call();
        taken.is_some()
    });
    let (ticket, _) = taken.unwrap();
    let large: std::sync::Arc<str> = format!("\"{}\"", "x".repeat(1 << 18)).into();
    // Its place in the queue changes again and again.
    wait_until("the end of the connection", || {
        ground.agent().tell(ticket, large.clone());
        ground.agent().next_left().is_some()
    });
}
