//! What a day costs: a hundred tenants on 64 CPUs, of which ten compute, thirty serve and sixty sleep most of the time.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tenantd_control::measure::disk::{Device, DiskCounts, DiskSample, PerDisk};
use tenantd_control::measure::sample::{HostSample, MemorySample, TenantSample, ThreadSample};
use tenantd_control::measure::thread_budget::Look;
use tenantd_control::state::drift::Observation;
use tenantd_control::state::step::{Input, NodeInput, Settings};
use tenantd_control::tick::control_loop::ControlLoop;
use tenantd_control::tick::event::{Event, Witness};
use tenantd_control::tree::{Node, Tree, flatten};
use tenantd_control::words::knob::{Knob, Value};
use tenantd_host::recording::recorder::Recorder;
use tenantd_host::recording::ring::{Bounds, segments};
use tenantd_host::recording::tape::Tape;

use crate::util::{self, Dice};

const NR_TENANTS: usize = 100;
/// A segment: its beginning counts once.
const TICKS: u32 = 1800;
/// Ticks of a chunk.
const CHUNK_TICKS: u32 = 10;
const PAGE: u64 = 4096;
const GIB: u64 = 1 << 30;
const SDA: Device = Device { major: 8, minor: 0 };

/// One tenant: its counters, and what its files hold.
struct Worker {
    kind: usize,
    level: f64,
    sample: TenantSample,
    threads: Vec<ThreadSample>,
    files: Vec<(Knob, Value)>,
}

/// Somewhere around `mean`, a different amount each time.
fn around(dice: &mut Dice, mean: f64) -> u64 {
    let sum: u64 = (0..4).map(|_| dice.below(1 << 20)).sum();
    (mean * sum as f64 / f64::from(2 << 20)) as u64
}

impl Worker {
    fn new(number: usize, dice: &mut Dice) -> Worker {
        let kind = match number % 10 {
            0 => 0,
            1..=3 => 1,
            _ => 2,
        };
        let memory = MemorySample {
            current_bytes: GIB + dice.below(1 << 18) * PAGE,
            inactive_file_bytes: dice.below(1 << 16) * PAGE,
            active_file_bytes: dice.below(1 << 16) * PAGE,
            anon_bytes: Some(dice.below(1 << 17) * PAGE),
            slab_reclaimable_bytes: Some(dice.below(1 << 12) * PAGE),
            stolen_mib: None,
            refaults: Some(dice.below(1 << 20)),
            nr_low_events: Some(0),
            nr_high_events: Some(0),
            nr_max_events: Some(0),
            nr_oom_kills: Some(0),
        };
        let sample = TenantSample {
            generation: 4000 + number as u64,
            populated: Some(true),
            usage_usec: Some(dice.below(1 << 40)),
            nr_throttled: Some(0),
            cpu_some_usec: Some(dice.below(1 << 36)),
            memory: Some(memory),
            memory_some_usec: Some(dice.below(1 << 30)),
            memory_full_usec: Some(dice.below(1 << 20)),
            io_some_usec: Some(dice.below(1 << 30)),
            disks: Some(Arc::new(PerDisk::of([(SDA, DiskCounts::default())]))),
            threads: None,
        };
        let thread = |index| ThreadSample {
            tid: 1000 + number as u32 * 64 + index,
            run_nsec: dice_at(number, index) << 20,
            wait_nsec: dice_at(index as usize, number as u32) << 18,
        };
        let threads = (0..12).map(thread).collect();
        Worker { kind, level: 1.0, sample, threads, files: Vec::new() }
    }

    fn work(&mut self, dice: &mut Dice) {
        // Loads drift over minutes, and jump now and then.
        self.level = (self.level * (0.97 + dice.below(61) as f64 / 1000.0)).clamp(0.2, 3.0);
        let (usec, waits, pages) = match self.kind {
            0 => (4.0e6 * self.level, 400_000.0, 400.0),
            1 => (120_000.0 * self.level, 2_000.0, 60.0),
            _ if dice.below(4) == 0 => (900.0, 20.0, 1.0),
            _ => return,
        };
        let is_reading = dice.below(3) == 0;
        let add = |count: &mut Option<u64>, more: u64| *count = count.map(|count| count + more);
        // What computes varies by a tenth from second to second, what serves by half.
        let steady = if self.kind == 0 { 0.8 } else { 0.0 };
        let varies = |dice: &mut Dice, mean: f64| {
            (mean * steady) as u64 + around(dice, mean * (1.0 - steady))
        };
        add(&mut self.sample.usage_usec, varies(dice, usec));
        add(&mut self.sample.cpu_some_usec, varies(dice, waits));
        if let Some(memory) = &mut self.sample.memory {
            let mut page = |bytes: &mut u64| {
                let up = around(dice, pages) * PAGE;
                *bytes = (*bytes + 2 * up).saturating_sub(around(dice, pages * 2.0) * PAGE);
            };
            page(&mut memory.current_bytes);
            if self.kind < 2 && is_reading {
                page(&mut memory.active_file_bytes);
                page(&mut memory.inactive_file_bytes);
            }
            if self.kind < 2
                && let Some(anon) = &mut memory.anon_bytes
            {
                page(anon);
            }
        }
        if let Some(counts) =
            self.sample.disks.as_mut().and_then(|disks| Arc::make_mut(disks).get_mut(SDA))
            && self.kind < 2
            && is_reading
        {
            let reads = around(dice, pages / 4.0);
            counts.add(DiskCounts {
                reads,
                read_bytes: reads * 16 * PAGE,
                ..DiskCounts::default()
            });
            add(&mut self.sample.io_some_usec, reads * 90);
        }
        for thread in self.threads.iter_mut().take(4) {
            // As they are read: to 4 µs.
            thread.run_nsec += varies(dice, usec * 250.0) & !0xfff;
            thread.wait_nsec += varies(dice, waits * 250.0) & !0xfff;
        }
    }
}

fn dice_at(a: usize, b: u32) -> u64 {
    Dice::new(a as u64 * 1000 + u64::from(b)).below(1 << 20)
}

struct Day {
    workers: Vec<Worker>,
    control: ControlLoop,
    dice: Dice,
    busy_usec: u64,
    requests: DiskCounts,
}

impl Day {
    fn input(&mut self, second: u32) -> Input {
        let Day { workers, control, dice, busy_usec, requests } = self;
        let mut nodes = Vec::new();
        for (number, worker) in workers.iter_mut().enumerate() {
            let before = worker.sample.usage_usec;
            worker.work(dice);
            *busy_usec += worker.sample.usage_usec.unwrap() - before.unwrap();
            let node = control.tree().at(number);
            let wants = control.sampling(node);
            let mut sample = worker.sample.clone();
            let nr_threads = worker.threads.len();
            sample.threads = wants.threads.reads(nr_threads).then(|| worker.threads.clone());
            let observed = control.wants_observation(node).then(|| {
                let seen = worker.files.iter().cloned();
                seen.map(|(knob, value)| Observation { knob, value, is_ours: false }).collect()
            });
            nodes.push(NodeInput {
                is_governed: true,
                nr_threads: (wants.threads != Look::None).then_some(nr_threads),
                is_present: true,
                nr_oom_kills: Some(0),
                sample: Some(sample),
                observed,
                ..NodeInput::default()
            });
        }
        *requests = DiskCounts::default();
        let disks = workers.iter().filter_map(|worker| worker.sample.disks.as_ref()?.get(SDA));
        disks.for_each(|counts| requests.add(counts));
        *busy_usec += around(dice, 300_000.0);
        let late = Duration::from_micros(around(dice, 400.0));
        let host = HostSample {
            nr_cpus: 64,
            busy_usec: Some(*busy_usec),
            idle_usec: Some(
                u64::from(second) * 64_000_000 - (*busy_usec).min(u64::from(second) * 60_000_000),
            ),
            memory_total_bytes: 512 * GIB,
            huge_pages_bytes: 0,
            memory_available_bytes: Some(200 * GIB + around(dice, 1e5) * PAGE),
            memory_free_bytes: Some(40 * GIB + around(dice, 1e5) * PAGE),
            memory_full_usec: Some(u64::from(second) * 3),
            unreclaimable_bytes: Some(150 * GIB + around(dice, 1e4) * PAGE),
            anon_bytes: Some(140 * GIB + around(dice, 1e4) * PAGE),
            swap_free_bytes: Some(0),
            kept_free_bytes: Some(64 << 20),
            disks: PerDisk::of([(
                SDA,
                DiskSample {
                    counts: *requests,
                    busy_msec: requests.reads,
                    ..DiskSample::default()
                },
            )]),
        };
        Input { now: Duration::from_secs(second.into()) + late, host, nodes, ..Input::default() }
    }
}

/// Ticks of a whole segment.
fn nr_ticks(path: &Path) -> u32 {
    let mut tape = Tape::open(path).unwrap();
    let mut count = 0;
    while tape.play().is_some() {
        count += 1;
    }
    assert!(!tape.is_torn());
    count
}

#[test]
fn a_day_of_a_hundred_tenants_fits_into_96_mib() {
    let names: Vec<String> =
        (0..NR_TENANTS).map(|n| format!("t{n}: {{ weight: {} }}", n % 7 + 1)).collect();
    let policy =
        util::policy(&format!("version: 1\nmode: enforce\ntenants: {{ {} }}", names.join(", ")));
    let control =
        ControlLoop::new(Settings::of(&policy, false, true), Tree::new(flatten(&policy).into()));
    let mut dice = Dice::new(42);
    let workers = (0..NR_TENANTS).map(|number| Worker::new(number, &mut dice)).collect();
    let mut day = Day { workers, control, dice, busy_usec: 0, requests: DiskCounts::default() };
    let dir = util::scratch();
    let bounds = Bounds { max_bytes: 96 << 20, max_age: Duration::from_secs(24 * 3600) };
    let mut recorder =
        Recorder::start(dir.path(), bounds, "here".into(), || Duration::ZERO).unwrap();
    let (mut noting, mut stepping) = (Duration::ZERO, Duration::ZERO);
    for second in 1..=TICKS {
        let input = day.input(second);
        let mut happen = |control: &mut ControlLoop, event: Event| {
            let begin = Instant::now();
            recorder.note(control, &event);
            noting += begin.elapsed();
            let begin = Instant::now();
            let decision = control.apply(event);
            stepping += begin.elapsed();
            decision
        };
        happen(&mut day.control, Event::Begin);
        let decision = happen(&mut day.control, Event::Step(Box::new(input))).unwrap();
        for action in decision.actions {
            let at = day.control.tree().position(action.node).unwrap();
            let files = &mut day.workers[at].files;
            files.retain(|(knob, _)| *knob != action.knob);
            files.push((action.knob, action.to.clone()));
            let written = action.to.clone();
            happen(&mut day.control, Event::Settle(Box::new((action, Ok(written)))));
        }
        if second.is_multiple_of(CHUNK_TICKS) {
            // These ticks come faster than the writer compresses; a full queue would end the segment.
            recorder.finish();
        }
        assert_eq!(recorder.trouble(), None, "second {second}");
    }
    recorder.finish();
    let all = segments(dir.path()).unwrap();
    let bytes: u64 = all.iter().map(|(_, path)| std::fs::metadata(path).unwrap().len()).sum();
    let begin = Instant::now();
    let played: u32 = all.iter().map(|(_, path)| nr_ticks(path)).sum();
    let playing = begin.elapsed();
    assert_eq!(played, TICKS, "the recording has a gap, so its size means nothing");
    let day_mib = bytes as f64 / f64::from(TICKS) * 86_400.0 / f64::from(1 << 20);
    let is_pressed = |node: &Node<'_>| day.control.sampling(*node).threads != Look::None;
    let pressed = day.control.tree().policy_nodes().filter(is_pressed).count();
    println!(
        "a day: {day_mib:.1} MiB, {} bytes a tick; a tick: {:?} to note, {:?} to step, {:?} to replay; {pressed} tenants pressed",
        bytes / u64::from(TICKS),
        noting / TICKS,
        stepping / TICKS,
        playing / TICKS
    );
    assert!(pressed >= 8, "{pressed}: the load is not what it is meant to be");
    assert!(day_mib <= 96.0, "{day_mib:.1} MiB");
}
