//! The socket: a status asked for and answered, at 100 tenants; twenty watchers at ten ticks a second; what a
//! tick costs beside them.
//!
//! Bars: a round trip of at most 100 µs in the median, beside one of a thread that answers `{}` at once on a socket of the
//! same kind; the watchers under 2 % of a CPU. The resident set of the
//! daemon at 1,000 tenants and the time until it is ready are told by `tests/cost.py`.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "without a socket there is nothing to measure"
)]

mod bar;

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bar::Bars;
use criterion::{Criterion, criterion_group};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use tenantd_control::report::status::{Status, TenantStatus};
use tenantd_core::resource::PerResource;
use tenantd_varlink::bridge::{self, AgentEnd, Governance, Published};
use tenantd_varlink::listen::Listener;
use tenantd_varlink::server::{Limits, Server};

/// Round trips of which the median is told.
const TRIPS: usize = 2_000;
const TRIP_BAR_USEC: f64 = 100.0;
const NR_TENANTS: usize = 100;
const GET_STATUS: &[u8] = b"{\"method\":\"io.tenantd.Manager.GetStatus\"}\0";
const WATCH: &[u8] = b"{\"method\":\"io.tenantd.Manager.Watch\",\"more\":true}\0";

/// A tick like that of a machine with work on it.
fn published(tick: u64) -> Published {
    let tenant = |index: usize| TenantStatus {
        name: format!("group-{}/tenant-{index}", index / 10).into(),
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
}

/// A socket of the same kind on which a thread answers each message with an empty one.
fn echo(path: &Path) {
    let listener = UnixListener::bind(path).expect("a socket");
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut bytes = vec![0; 1 << 10];
        while receive(&mut stream, &mut bytes) {
            stream.write_all(b"{}\0").expect("a client");
        }
    });
}

/// The median of many round trips, in microseconds.
fn median_usec(path: &Path) -> f64 {
    let mut stream = UnixStream::connect(path).expect("the socket");
    let mut bytes = vec![0; 1 << 20];
    let mut trip = || {
        let begin = Instant::now();
        stream.write_all(GET_STATUS).expect("a call");
        assert!(receive(&mut stream, &mut bytes));
        begin.elapsed().as_secs_f64() * 1e6
    };
    for _ in 0..TRIPS / 10 {
        trip();
    }
    let mut times: Vec<f64> = (0..TRIPS).map(|_| trip()).collect();
    times.sort_by(f64::total_cmp);
    times[TRIPS / 2]
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

fn main() -> ExitCode {
    benches();
    let mut bars = Bars::default();
    let dir = tempfile::tempdir().expect("a directory");
    let (path, plain) = (dir.path().join("socket"), dir.path().join("echo"));
    let agent = serve(&path);
    echo(&plain);
    let (plain, status) = (median_usec(&plain), median_usec(&path));
    bars.at_most("a status of 100 tenants, p50", status, "us", TRIP_BAR_USEC);
    bars.note("a status of 100 tenants, p50", status / plain, "x an empty echo over a socket");
    let percent = watchers(&path, &agent) * 100.0;
    bars.at_most("20 watchers at ten ticks a second", percent, "% of a CPU", 2.0);
    bars.verdict()
}
