//! Placement of 1,000 tenants on 256 CPUs: from nothing, unchanged, and with one in ten changing.
//!
//! Bar: at most 5 ms each.

#![allow(clippy::expect_used, reason = "without a machine there is nothing to measure")]

mod bar;

use std::hint::black_box;
use std::process::ExitCode;

use bar::{Bars, least_millis};
use criterion::{Criterion, criterion_group};
use tenantd_dop::CpuSet;
use tenantd_dop::placement::{Request, Want, place};
use tenantd_dop::topology::{CpuPlace, Topology};

const BAR_MS: f64 = 5.0;
const NR_CPUS: u32 = 256;
const NR_TENANTS: u32 = 1_000;

/// Two sockets of four nodes, each of two caches of eight cores with two threads.
fn machine() -> Topology {
    let place = |cpu| {
        let core = cpu % 128;
        CpuPlace { package: core / 64, node: core / 16, llc: core / 8, core, cpu }
    };
    Topology::try_new((0..NR_CPUS).map(place).collect(), &CpuSet::new(), CpuSet::new())
        .expect("a machine with CPUs")
}

/// Most tenants are narrow, a few are wide.
fn width(tenant: u32) -> u32 {
    match tenant % 50 {
        0 => 24,
        1..=5 => 6,
        _ => 1 + tenant % 2,
    }
}

/// Requests by name, in four states of the machine.
fn cases(machine: &Topology) -> [(&'static str, Vec<Request>); 4] {
    let fresh: Vec<Request> =
        (0..NR_TENANTS).map(|tenant| Request::new(Want::Dop(width(tenant)))).collect();
    let placed = place(machine, &fresh);
    let settled: Vec<Request> = fresh
        .iter()
        .cloned()
        .zip(&placed.sets)
        .map(|(request, set)| request.after(set.clone()))
        .collect();
    let mut changing = settled.clone();
    for request in changing.iter_mut().step_by(10) {
        if let Want::Dop(count) = &mut request.want {
            *count += 2;
        }
    }
    // Everybody where a restart with one CPU left them.
    let crowded: Vec<Request> =
        fresh.iter().cloned().map(|request| request.after(CpuSet::below(1))).collect();
    [
        ("from nothing", fresh),
        ("unchanged", settled),
        ("one in ten wider", changing),
        ("all on one CPU before", crowded),
    ]
}

fn placement(c: &mut Criterion) {
    let machine = machine();
    let mut group = c.benchmark_group("place 1,000 tenants on 256 CPUs");
    for (name, requests) in &cases(&machine) {
        group.bench_function(*name, |b| b.iter(|| black_box(place(&machine, black_box(requests)))));
    }
    group.finish();
}

/// As many sets of the same widths, one after the other round the machine: what it takes to write sets down at all.
fn in_order(widths: &[u32]) -> Vec<CpuSet> {
    let mut next = 0;
    let set = |width: &u32| {
        let set = (next..next + width).map(|cpu| cpu % NR_CPUS).collect();
        next += width;
        set
    };
    widths.iter().map(set).collect()
}

criterion_group!(benches, placement);

fn main() -> ExitCode {
    benches();
    let (machine, mut bars) = (machine(), Bars::default());
    let widths: Vec<u32> = (0..NR_TENANTS).map(width).collect();
    let plain = least_millis(30, || drop(black_box(in_order(black_box(&widths)))));
    for (name, requests) in &cases(&machine) {
        let millis = least_millis(30, || drop(black_box(place(&machine, black_box(requests)))));
        bars.at_most(format!("1,000 tenants on 256 CPUs, {name}"), millis, "ms", BAR_MS);
        let unit = "x as many sets without a look at the machine";
        bars.note(format!("1,000 tenants on 256 CPUs, {name}"), millis / plain, unit);
    }
    bars.verdict()
}
