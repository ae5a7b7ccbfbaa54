//! The socket: a status asked for and answered, at 100 tenants; twenty watchers at ten ticks a second; what a
//! tick costs beside them.
//!
//! Bars: a round trip of at most 200 µs in the median; the watchers under 2 % of a CPU. The resident set of the
//! daemon at 1,000 tenants and the time until it is ready are told by `tests/cost.py`.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "without a socket there is nothing to measure"
)]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use tenantd::control::status::{Status, TenantStatus};
use tenantd::resource::PerResource;
use tenantd::varlink::bridge::{self, AgentEnd, Governance, Published};
use tenantd::varlink::listen::Listener;
use tenantd::varlink::server::{Limits, Server};

const NR_TENANTS: usize = 100;
const GET_STATUS: &[u8] = b"{\"method\":\"io.tenantd.Manager.GetStatus\"}\0";
const WATCH: &[u8] = b"{\"method\":\"io.tenantd.Manager.Watch\",\"more\":true}\0";

/// A tick like that of a machine with work on it.
fn published(tick: u64) -> Published {
    let tenant = |index: usize| TenantStatus {
        name: format!("group-{}/tenant-{index}", index / 10),
        weight: 100.0,
        usage: PerResource([Some(0.123_456_789 * index as f64), Some(123_456_789.0)]),
        cpu_pressure_ratio: Some(0.012_345),
        demand: PerResource([0.135_802_467 * index as f64, 0.0]),
        allocation: PerResource([0.135_802_467 * index as f64, 123_456_789.0]),
        dominant_resource: Some("cpu".into()),
        dominant_share: 0.012_345_678,
        dop: Some(4),
        cpus: Some("0-3".into()),
        cpu_weight: Some(100.0),
        ..TenantStatus::default()
    };
    let tenants = (0..NR_TENANTS).map(tenant).collect();
    let status = Status { tick, tenants, ..Status::default() };
    Published::new(status, Arc::default(), Arc::new(Governance::default()))
}

fn serve(path: &Path) -> AgentEnd {
    let listener = Listener::make(path).expect("a socket");
    let (agent, socket) = bridge::bridge(published(1)).expect("descriptors");
    let server = Server::new(listener, socket, Limits::default()).expect("an epoll");
    thread::spawn(move || server.run());
    agent
}

/// Reads one message.
fn receive(stream: &mut UnixStream, bytes: &mut [u8]) -> bool {
    loop {
        match stream.read(bytes) {
            Ok(0) | Err(_) => return false,
            Ok(count) if bytes[count - 1] == 0 => return true,
            Ok(_) => {}
        }
    }
}

fn round_trip(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("socket");
    let agent = serve(&path);
    let mut stream = UnixStream::connect(&path).expect("the socket");
    let mut bytes = vec![0; 1 << 20];
    let mut ask = || {
        stream.write_all(GET_STATUS).expect("a call");
        assert!(receive(&mut stream, &mut bytes));
    };
    let mut group = c.benchmark_group("status of 100 tenants");
    group.bench_function("round trip", |bencher| bencher.iter(&mut ask));
    let mut tick = 1;
    group.bench_function("round trip after a tick", |bencher| {
        bencher.iter_custom(|count| {
            let mut spent = Duration::ZERO;
            for _ in 0..count {
                tick += 1;
                agent.publish(published(tick));
                let begin = Instant::now();
                ask();
                spent += begin.elapsed();
            }
            spent
        });
    });
    group.finish();
    println!(
        "CPU of twenty watchers at ten ticks a second: {:.2} %",
        watchers(&path, &agent) * 100.0
    );
}

/// The part of a CPU that twenty watchers and their server take together, over what publishing alone takes.
fn watchers(path: &Path, agent: &AgentEnd) -> f64 {
    let publish = |from: u64| {
        let (begin, used) = (Instant::now(), cpu_time());
        for tick in from..from + 50 {
            agent.publish(published(tick));
            thread::sleep(Duration::from_millis(100));
        }
        (cpu_time() - used).as_secs_f64() / begin.elapsed().as_secs_f64()
    };
    let alone = publish(1 << 32);
    for _ in 0..20 {
        let mut stream = UnixStream::connect(path).expect("the socket");
        stream.write_all(WATCH).expect("a call");
        thread::spawn(move || {
            let mut bytes = vec![0; 1 << 20];
            while receive(&mut stream, &mut bytes) {}
        });
    }
    publish(1 << 33) - alone
}

fn cpu_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("the usage of this process");
    let usec = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(usec as u64)
}

criterion_group!(benches, round_trip);
criterion_main!(benches);
