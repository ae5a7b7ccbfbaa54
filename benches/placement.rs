//! Placement of 1,000 tenants on 256 CPUs: from nothing, unchanged, and with one in ten changing.
//!
//! Bar: at most 5 ms each.

#![allow(clippy::expect_used, reason = "without a machine there is nothing to measure")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use tenantd::dop::CpuSet;
use tenantd::dop::placement::{Request, Want, place};
use tenantd::dop::topology::{CpuPlace, Topology};

const NR_TENANTS: u32 = 1_000;

/// Two sockets of four nodes, each of two caches of eight cores with two threads.
fn machine() -> Topology {
    let place = |cpu| {
        let core = cpu % 128;
        CpuPlace { package: core / 64, node: core / 16, llc: core / 8, core, cpu }
    };
    Topology::try_new((0..256).map(place).collect(), &CpuSet::new(), CpuSet::new())
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

fn placement(c: &mut Criterion) {
    let machine = machine();
    let fresh: Vec<Request> =
        (0..NR_TENANTS).map(|tenant| Request::new(Want::Dop(width(tenant)))).collect();
    let placed = place(&machine, &fresh);
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
    let mut group = c.benchmark_group("place 1,000 tenants on 256 CPUs");
    for (name, requests) in [
        ("from nothing", &fresh),
        ("unchanged", &settled),
        ("one in ten wider", &changing),
        ("all on one CPU before", &crowded),
    ] {
        group.bench_function(name, |b| b.iter(|| black_box(place(&machine, black_box(requests)))));
    }
    group.finish();
}

criterion_group!(benches, placement);
criterion_main!(benches);
