//! Multilevel feedback and concurrency, by Trino's own tests.

use serde_json::Value;
use tenantd_queue::concurrency::{Drivers, TaskLoad};
use tenantd_queue::multilevel::{LEVELS, Levels, Priority, level_of};
use tenantd_queue::{Discipline, TenantId};

use super::harness::Case;
use super::suite::{number, suite};

const NANOS: f64 = 1e9;

fn nanos(seconds: &Value) -> u64 {
    (number(seconds) * NANOS) as u64
}

fn times(input: &Value) -> [u64; LEVELS] {
    let times: Vec<u64> = input["level_time_s"].as_array().unwrap().iter().map(nanos).collect();
    times.try_into().unwrap()
}

/// What happens to the levels when tasks are charged slices one after the other.
fn charge_sequence(vector: &Value) {
    let input = &vector["input"];
    let mut levels = Levels::new(number(&input["multiplier"]));
    let mut tasks: Vec<(String, u64, Priority)> = Vec::new();
    let after = vector["expect"]["after"].as_array().unwrap();
    for (slice, expected) in input["quanta_s"].as_array().unwrap().iter().zip(after) {
        let name = slice[0].as_str().unwrap();
        if !tasks.iter().any(|(other, _, _)| other == name) {
            tasks.push((name.to_string(), 0, Priority::default()));
        }
        let (_, scheduled, priority) =
            tasks.iter_mut().find(|(other, _, _)| other == name).unwrap();
        *scheduled += nanos(&slice[1]);
        *priority = levels.charge(*priority, nanos(&slice[1]), *scheduled);
        assert_eq!(expected["task"], name);
        assert_eq!(expected["level"], priority.level, "{}", vector["id"]);
        assert_eq!(
            number(&expected["priority_s"]),
            priority.nanos as f64 / NANOS,
            "{}",
            vector["id"]
        );
    }
    assert_eq!(levels.times(), times(&vector["expect"]), "{}", vector["id"]);
}

fn level_after_phases(vector: &Value) {
    let expected = vector["expect"]["level_after_phases"].as_object().unwrap();
    let slice_nanos = vector["input"]["quanta_ms"].as_u64().unwrap() * 1_000_000;
    let mut levels = Levels::new(2.0);
    let (mut priority, mut scheduled) = (Priority::default(), 0);
    for phase in 1..=600 {
        for _ in 0..vector["input"]["task_splits"].as_u64().unwrap() {
            scheduled += slice_nanos;
            priority = levels.charge(priority, slice_nanos, scheduled);
        }
        if let Some(level) = expected.get(&phase.to_string()) {
            assert_eq!(*level, priority.level, "{} phase {phase}", vector["id"]);
        }
    }
}

fn batches(vector: &Value) {
    let input = &vector["input"];
    let count = |key: &str| input[key].as_u64().map(|count| count as u32);
    let drivers = Drivers {
        min: count("min_drivers").unwrap(),
        min_per_task: count("min_per_task").unwrap(),
        // What a user may run bounds each of its tasks as well.
        max_per_task: count("max_per_task").unwrap().min(count("user_max").unwrap_or(u32::MAX)),
    };
    let mut queued = count("splits").unwrap();
    let mut batches = Vec::new();
    while queued > 0 {
        let started = drivers.start(&[TaskLoad { inside: 0, outside: queued }])[0];
        queued -= started;
        batches.push(started);
    }
    assert_eq!(vector["expect"]["batches"], serde_json::json!(batches), "{}", vector["id"]);
}

#[test]
fn published_levels() {
    for vector in suite("trino_mlsq") {
        let (input, expect) = (&vector["input"], &vector["expect"]);
        match vector["op"].as_str().unwrap() {
            "compute_level" => {
                assert_eq!(*expect, level_of(input["ns"].as_u64().unwrap()), "{}", vector["id"]);
            }
            "charge_sequence" => charge_sequence(&vector),
            "select_level" => {
                let mut levels = Levels::with_times(number(&input["multiplier"]), times(input));
                assert_eq!(number(&expect["level0_target_s"]), levels.target() as f64 / NANOS);
                let waiting = input["waiting"].as_array().unwrap();
                levels.fill((0..LEVELS).filter(|level| waiting[*level] == true));
                assert_eq!(expect["level"], levels.select().unwrap(), "{}", vector["id"]);
            }
            "offer_to_empty_level" => {
                let mut levels = Levels::with_times(number(&input["multiplier"]), times(input));
                levels.offer(input["level"].as_u64().unwrap() as usize, (0, 0, TenantId(0)));
                assert_eq!(levels.times(), times(expect), "{}", vector["id"]);
            }
            _ if expect.get("level_after_phases").is_some() => level_after_phases(&vector),
            _ if expect.get("batches").is_some() => batches(&vector),
            _ => higher_levels_get_twice(&vector),
        }
    }
}

/// Slices of two levels that always have some: the lower gets twice as many.
fn higher_levels_get_twice(vector: &Value) {
    assert_eq!(
        vector["expect"]["rule"],
        "once higher>20: lower > 2*higher-10 and higher < 2*lower+10"
    );
    let workers = vector["input"]["workers"].as_u64().unwrap() as u32;
    // Trino's clock stands still in this test, so that tasks stay at their levels; so do they here.
    let mut levels = Levels::with_times(number(&vector["input"]["multiplier"]), [1; LEVELS]);
    let (mut higher, mut lower) = (0_i64, 0_i64);
    levels.fill([0, 1]);
    for _ in 0..100 * workers {
        let level = levels.select().unwrap();
        let scheduled = if level == 0 { 0 } else { 5_000_000_000 };
        levels.charge(Priority { level, nanos: 0 }, 1_000_000, scheduled);
        if level == 0 {
            lower += 1
        } else {
            higher += 1
        }
        if higher > 20 {
            assert!(lower > 2 * higher - 10 && higher < 2 * lower + 10, "{lower} {higher}");
        }
    }
    assert!(higher > 100, "{higher}");
}

/// All levels always have slices, of tasks that are at their levels for good.
#[test]
fn level_shares_converge() {
    // A level without any time has the ratio 0: in use, it gets its time with the first offer.
    let mut levels = Levels::with_times(2.0, [1; LEVELS]);
    let (mut slices, mut rest) = ([0_u64; LEVELS], 100_000);
    let scheduled = [0, 2, 20, 100, 1_000].map(|seconds| seconds * 1_000_000_000_u64);
    levels.fill(0..LEVELS);
    while rest > 0 {
        let level = levels.select().unwrap();
        levels.charge(Priority { level, nanos: 0 }, 1_000_000, scheduled[level]);
        slices[level] += 1;
        rest -= 1;
    }
    let least = slices[4] as f64;
    for (slices, expected) in slices.iter().zip([16.0, 8.0, 4.0, 2.0, 1.0]) {
        assert!((*slices as f64 / least / expected - 1.0).abs() < 0.01, "{slices} {least}");
    }
}

#[test]
fn a_stall_of_ten_minutes_charges_thirty_seconds() {
    // A task hangs for ten minutes; others of the first level go on meanwhile as if it had taken thirty
    // seconds.
    let discipline = Discipline::Multilevel { multiplier: 2.0 };
    let mut case = Case::new(discipline, 1, 3);
    case.arrivals = vec![(0.0, 0, 600.0), (0.0, 1, 3.0), (0.0, 2, 3.0), (0.0, 0, 1.0)];
    case.horizon = 700.0;
    let order = case.run().order();
    assert_eq!(order, [0, 1, 2, 0]);
    let mut levels = Levels::new(2.0);
    let priority = levels.charge(Priority::default(), 600_000_000_000, 600_000_000_000);
    assert_eq!(priority, Priority { level: 4, nanos: 1_170_000_000_000 });
    assert_eq!(levels.times().iter().sum::<u64>(), 30_000_000_000);
}

/// Short tasks pass a long one, slice by slice, and the long one still gets its part.
#[test]
fn short_tasks_pass_long_ones() {
    let discipline = Discipline::Multilevel { multiplier: 2.0 };
    let mut case = Case::new(discipline, 1, 12);
    case.quantum = Some(1.0);
    case.arrivals.push((0.0, 0, 100.0));
    case.arrivals.extend((1..12).map(|task| (30.0 + f64::from(task), task, 0.5)));
    case.horizon = 200.0;
    let trace = case.run();
    for (finished, tenant, _, arrived) in &trace.completed {
        match tenant {
            0 => assert!((finished - 105.5).abs() < 1e-6, "{finished}"),
            _ => assert!(finished - arrived <= 1.5, "{tenant} took {}", finished - arrived),
        }
    }
    assert_eq!(trace.completed.len(), 12);
}

#[test]
fn tasks_are_filled_up_in_turn() {
    let drivers = Drivers { min: 7, min_per_task: 1, max_per_task: 4 };
    let idle = TaskLoad { inside: 0, outside: 9 };
    let started =
        drivers.start(&[idle, TaskLoad { outside: 1, ..idle }, TaskLoad { inside: 4, ..idle }]);
    assert_eq!(started, [2, 1, 0]);
}
