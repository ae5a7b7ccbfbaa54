//! Values as bytes: whatever was put is what is taken, and what is no value is no panic.

use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use tenantd_control::measure::sample::{
    HostSample, MemorySample, PidsSample, TenantSample, ThreadSample,
};
use tenantd_control::report::reason::{LimitAbove, Outsider, Surroundings};
use tenantd_control::state::drift::Observation;
use tenantd_control::state::step::{Input, NodeInput};
use tenantd_control::words::knob::{Knob, Value};
use tenantd_core::codec::{Coded, In, Out, decode, encode, fingerprint};
use tenantd_core::resource::{CPU, MEMORY, Resource};
use tenantd_core::units::Limit;
use tenantd_dop::CpuSet;

fn resource() -> impl Strategy<Value = Resource> {
    prop_oneof![Just(CPU), Just(MEMORY)]
}

fn float() -> impl Strategy<Value = f64> {
    prop_oneof![Just(-0.0), Just(f64::INFINITY), any::<f64>()]
}

fn value() -> impl Strategy<Value = Value> {
    let limit = || prop_oneof![Just(Limit::Max), any::<u64>().prop_map(Limit::Finite)];
    prop_oneof![
        float().prop_map(Value::Weight),
        (resource(), limit()).prop_map(|(resource, limit)| Value::Amount(resource, limit)),
        limit().prop_map(Value::Count),
        vec(0..300_u32, 0..8).prop_map(|cpus| {
            let mut set = CpuSet::new();
            for cpu in cpus {
                set.insert(cpu);
            }
            Value::CpuList(set)
        }),
    ]
}

fn threads() -> impl Strategy<Value = Vec<ThreadSample>> {
    let thread = (1..60_u32, any::<u64>(), any::<u64>());
    vec(thread, 0..20).prop_map(|mut threads| {
        threads.sort_by_key(|thread| thread.0);
        threads.dedup_by_key(|thread| thread.0);
        let sample = |(tid, run_nsec, wait_nsec)| ThreadSample { tid, run_nsec, wait_nsec };
        threads.into_iter().map(sample).collect()
    })
}

fn sample() -> impl Strategy<Value = TenantSample> {
    let count = || option::of(prop_oneof![0..1000_u64, any::<u64>()]);
    let memory = (any::<u64>(), any::<u64>(), [count(), count(), count(), count()]);
    let memory = memory.prop_map(|(current_bytes, inactive_file_bytes, counts)| MemorySample {
        current_bytes,
        inactive_file_bytes,
        active_file_bytes: current_bytes ^ inactive_file_bytes,
        anon_bytes: counts[0],
        slab_reclaimable_bytes: counts[1],
        stolen_mib: counts[3],
        refaults: counts[2],
        nr_low_events: counts[3],
        nr_high_events: counts[2],
        nr_max_events: counts[0],
        nr_oom_kills: counts[1],
    });
    (
        any::<u64>(),
        option::of(any::<bool>()),
        [count(), count(), count()],
        option::of(memory),
        option::of(threads()),
    )
        .prop_map(|(generation, populated, counts, memory, threads)| TenantSample {
            generation,
            populated,
            usage_usec: counts[0],
            nr_throttled: counts[1],
            cpu_some_usec: counts[2],
            memory,
            memory_some_usec: counts[0],
            memory_full_usec: counts[1],
            io_some_usec: counts[1],
            threads,
        })
}

fn surroundings() -> impl Strategy<Value = Surroundings> {
    (".{0,20}", option::of(".{0,9}"), float(), resource(), any::<bool>()).prop_map(
        |(cgroup, command, cores, resource, flag)| Surroundings {
            outsiders: vec![Outsider { cgroup: cgroup.clone(), is_direct: flag, command, cores }]
                .into(),
            limits: vec![LimitAbove { cgroup, resource, amount: cores, is_binding: flag }],
            void_weight: flag.then(|| "void".to_string()),
        },
    )
}

fn node() -> impl Strategy<Value = NodeInput> {
    let knobs = (0..Knob::ALL.len()).prop_map(|index| Knob::ALL[index]);
    let seen = (knobs.clone(), value(), any::<bool>());
    let seen = seen.prop_map(|(knob, value, is_ours)| Observation { knob, value, is_ours });
    let pids = (any::<u64>(), any::<u64>(), option::of(any::<u64>()));
    let pids = pids.prop_map(|(generation, nr_current, nr_refused)| PidsSample {
        generation,
        nr_current,
        nr_refused,
    });
    let texts = (option::of(surroundings()), vec((knobs, value()), 0..3), any::<u64>());
    (
        any::<(bool, bool, Duration)>(),
        option::of(sample()),
        option::of(pids),
        option::of(vec(seen, 0..4)),
        texts,
    )
        .prop_map(
            |(
                (is_governed, is_present, sampled_after),
                sample,
                pids,
                observed,
                (surroundings, held_before, kills),
            )| NodeInput {
                is_governed,
                is_present,
                sample,
                sampled_after,
                nr_threads: is_governed.then_some(kills as usize >> 1),
                nr_oom_kills: is_present.then_some(kills),
                nr_killed_runs: kills / 2,
                pids,
                observed,
                arrivals: Vec::new(),
                held_before,
                surroundings: surroundings.map(Box::new),
            },
        )
}

fn input() -> impl Strategy<Value = Input> {
    let counts = (any::<u32>(), option::of(any::<u64>()), any::<u64>());
    (any::<Duration>(), counts, vec(node(), 0..5)).prop_map(
        |(now, (nr_cpus, count, bytes), nodes)| Input {
            now,
            host: HostSample {
                nr_cpus,
                busy_usec: count,
                memory_total_bytes: bytes,
                ..HostSample::default()
            },
            nodes,
            ..Input::default()
        },
    )
}

/// Bit for bit: `NaN` is itself, and −0 is not 0.
#[track_caller]
fn assert_equal(a: &Input, b: &Input) {
    assert_eq!(format!("{a:?}"), format!("{b:?}"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_was_put_is_what_is_taken(inputs in vec(input(), 1..6)) {
        let (mut writing, mut reading) = (Input::blank(), Input::blank());
        let mut out = Out::default();
        inputs.iter().for_each(|input| input.put(&mut writing, &mut out));
        let (tokens, bits) = out.split();
        let mut from = In::new(&tokens, &bits);
        for input in &inputs {
            assert_equal(&Input::take(&mut reading, &mut from).unwrap(), input);
        }
        prop_assert_eq!(from.left(), 0);
    }

    #[test]
    fn damaged_bytes_are_a_value_or_an_error(input in input(), at in any::<prop::sample::Index>(), with in any::<u8>()) {
        let bytes = encode(&input);
        let cut = at.index(bytes.len());
        let _ = decode::<Input>(&bytes[..cut]);
        let mut changed = bytes.clone();
        changed[cut] ^= with;
        let _ = decode::<Input>(&changed);
    }
}

/// Numbers and a flag of the sample below that are absent, each a token.
const NR_ABSENT: usize = 6;

#[test]
fn what_stays_the_same_is_a_zero_byte() {
    let sample =
        TenantSample { generation: 7, usage_usec: Some(123_456_789), ..TenantSample::default() };
    let (mut last, mut out) = (TenantSample::blank(), Out::default());
    sample.put(&mut last, &mut out);
    out.split();
    sample.put(&mut last, &mut out);
    let (tokens, bits) = out.split();
    let nr_changed = tokens.iter().filter(|token| **token != 0).count();
    assert_eq!((nr_changed, bits.len()), (NR_ABSENT, 0), "{tokens:?}");
    // An absent value is not compared: the next one is compared with the last that was there.
    TenantSample { usage_usec: None, ..sample.clone() }.put(&mut last, &mut out);
    out.split();
    sample.put(&mut last, &mut out);
    let (tokens, bits) = out.split();
    let nr_changed = tokens.iter().filter(|token| **token != 0).count();
    assert_eq!((nr_changed, bits.len()), (NR_ABSENT, 0), "{tokens:?}");
}

#[test]
fn a_thread_is_compared_with_itself() {
    let thread =
        |tid| ThreadSample { tid, run_nsec: u64::from(tid) << 40, wait_nsec: u64::from(tid) << 33 };
    let threads = |tids: &[u32]| tids.iter().map(|tid| thread(*tid)).collect::<Vec<_>>();
    let (mut last, mut out) = (Vec::blank(), Out::default());
    threads(&[3, 5, 9]).put(&mut last, &mut out);
    out.split();
    // One comes and one goes: the others are as they were.
    let now = threads(&[3, 4, 9]);
    now.put(&mut last, &mut out);
    let new = encode(&thread(4)).len();
    assert!(out.len() <= 1 + 3 * 4 + new, "{out:?}");
}

#[test]
fn other_kinds_have_another_fingerprint() {
    assert_ne!(fingerprint::<Input>(), fingerprint::<NodeInput>());
    assert_ne!(fingerprint::<Option<u64>>(), fingerprint::<Vec<u64>>());
    assert_ne!(fingerprint::<[u64; 2]>(), fingerprint::<[u64; 3]>());
}

#[test]
fn numbers_of_every_length_come_back_and_pages_are_short() {
    let numbers: Vec<u64> = (0..64)
        .flat_map(|bit| [1 << bit, (1 << bit) - 1, u64::MAX >> bit, u64::MAX << bit])
        .collect();
    let (mut last, mut out) = (0_u64, Out::default());
    for number in &numbers {
        number.put(&mut last, &mut out);
        out.number(*number);
    }
    let (tokens, bits) = out.split();
    let (mut last, mut from) = (0_u64, In::new(&tokens, &bits));
    for number in &numbers {
        assert_eq!(u64::take(&mut last, &mut from).unwrap(), *number);
        assert_eq!(from.number().unwrap(), *number);
    }
    assert!(from.byte().is_err());
    let nr_bits = |from: u64, to: u64| {
        let (mut last, mut out) = (from, Out::default());
        (0..8).for_each(|_| out.number(3));
        to.put(&mut last, &mut out);
        out.split().1.len()
    };
    assert!(
        nr_bits(1 << 30, (1 << 30) + 100 * 4096) < nr_bits(1 << 30, (1 << 30) + 100 * 4096 + 1)
    );
}
