//! Events as bytes: each comes back to the bit, and damaged bytes are an error or other events, never a panic.

use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use tenantd_control::measure::death::{Kill, Killer, LimitOf, Victim};
use tenantd_control::measure::disk::{Device, DiskCounts, PerDisk};
use tenantd_control::measure::sample::{
    HostSample, MemorySample, PidsSample, TenantSample, ThreadSample,
};
use tenantd_control::report::reason::{Binding, LimitAbove, Outsider, Surroundings};
use tenantd_control::share::turns::Slots;
use tenantd_control::state::drift::Observation;
use tenantd_control::state::step::{Input, NodeInput, Settings};
use tenantd_control::tick::control_loop::ControlLoop;
use tenantd_control::tick::event::{self, Event};
use tenantd_control::tree::{Tree, flatten};
use tenantd_control::words::knob::{Knob, Value};
use tenantd_core::resource::{CPU, MEMORY, Resource};
use tenantd_core::units::Limit;
use tenantd_dop::CpuSet;
use tenantd_host::recording::rows::{Last, Rows};
use tenantd_host::recording::segment::{self, Beginning, Clock, EVENTS_BYTES_MAX, Head, LAYOUT};

use super::twin::encode;
use crate::util;

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

/// Some devices with such counts.
fn disks(number: u64, count: u64) -> PerDisk<DiskCounts> {
    let counts = DiskCounts { read_bytes: count, reads: number, ..DiskCounts::default() };
    let minor = |at: u32| Device { major: number as u32, minor: at };
    PerDisk::of((0..number as u32 % 6).map(|at| (minor(at), counts)))
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
            disks: counts[2].map(|count| Arc::new(disks(generation, count))),
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
            binding: flag.then(|| Binding { cpus: "0-1".to_string(), nr_cpus: 2 }),
        },
    )
}

fn kill(number: u64) -> Kill {
    let limit = Killer::Limit { of: LimitOf::Inside, cgroup: "/a".into(), bytes: Some(number) };
    let causes = [Killer::Host, limit, Killer::Oomd, Killer::Unknown];
    Kill {
        job: Some(number),
        cgroup: "/a/b".to_string(),
        victim: Some(Victim { pid: 7, uid: 8, program: "c".to_string() }),
        nr_kills: number,
        held_bytes: None,
        killer: causes[number as usize % causes.len()].clone(),
        is_more: number.is_multiple_of(2),
    }
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
                is_unit: false,
                sample,
                sampled_after,
                nr_threads: is_governed.then_some(kills as usize >> 1),
                nr_oom_kills: is_present.then_some(kills),
                nr_killed_runs: kills / 2,
                kills: vec![kill(kills); kills as usize % 3],
                pids,
                observed,
                arrivals: Vec::new(),
                held_before,
                surroundings: surroundings.map(Box::new),
                slots: Slots {
                    held: kills as u32,
                    are_awaited: is_present,
                    were_held: is_governed,
                },
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

/// The chunk of some inputs.
fn chunk(inputs: &[Input], last: &mut Last) -> Vec<u8> {
    let mut rows = Rows::default();
    for input in inputs {
        segment::put(&Event::step(input.clone()), &mut rows).unwrap();
    }
    segment::data(Clock::default(), &rows, last).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn each_input_comes_back(chunks in vec(vec(input(), 1..4), 1..4)) {
        let (mut writing, mut reading) = (Last::default(), Last::default());
        for inputs in &chunks {
            let data = chunk(inputs, &mut writing);
            let (_, events) = segment::events(&data, &mut reading).unwrap();
            // Bit for bit: `NaN` is itself, and −0 is not 0.
            let before: Vec<_> = inputs.iter().cloned().map(Event::step).collect();
            assert_eq!(format!("{events:?}"), format!("{before:?}"));
        }
    }

    #[test]
    fn damaged_bytes_are_events_or_an_error(input in input(), at in any::<prop::sample::Index>(), with in any::<u8>()) {
        let data = chunk(&[input], &mut Last::default());
        let cut = at.index(data.len());
        let _ = segment::events(&data[..cut], &mut Last::default());
        let mut changed = data.clone();
        changed[cut] ^= with;
        let _ = segment::events(&changed, &mut Last::default());
    }

    #[test]
    fn any_bytes_are_a_value_or_an_error(bytes in vec(any::<u8>(), 0..2000), small in vec(0..4_u8, 0..2000)) {
        for bytes in [&bytes, &small] {
            decode(bytes);
            // As a whole file, and with sizes that the rest has not.
            let head = Head { layout: LAYOUT, format: event::format(), begin: Duration::ZERO };
            let file = [&head.bytes()[..], &segment::chunk(bytes), bytes].concat();
            prop_assert!(segment::whole_bytes(&file) <= file.len());
        }
    }

    #[test]
    fn a_damaged_beginning_is_a_loop_or_an_error(at in any::<prop::sample::Index>(), with in 1..=u8::MAX) {
        let policy = util::policy("version: 1\ntenants: { a: {}, b: { weight: 2 } }");
        let tree = Tree::new(flatten(&policy).into());
        let mut data = encode(&ControlLoop::new(Settings::of(&policy, false, true), tree));
        let at = at.index(data.len());
        decode(&data[..at]);
        data[at] ^= with;
        decode(&data);
    }
}

/// Gives bytes to every decoder.
fn decode(bytes: &[u8]) {
    let _ = segment::events(bytes, &mut Last::default());
    let _ = (Beginning::version(bytes), Beginning::of(bytes));
    let _ = (Head::of(bytes), segment::inflate(bytes, 0));
}

#[test]
fn a_chunk_that_inflates_beyond_the_limit_is_torn() {
    let mut file = vec![0; segment::HEAD_BYTES];
    file.extend(segment::chunk(b"beginning"));
    let at = file.len();
    file.extend(segment::chunk(&vec![0; EVENTS_BYTES_MAX + 1]));
    assert!(segment::inflate(&file, segment::HEAD_BYTES).is_some());
    assert!(segment::inflate(&file, at).is_none());
    // A size that is less than that of the data.
    file[at + 4..at + 8].copy_from_slice(&100_u32.to_le_bytes());
    assert!(segment::inflate(&file, at).is_none());
}
