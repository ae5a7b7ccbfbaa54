//! Recordings on disk: whole up to any cut, bounded, and harmless where they fail.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tenantd_control::measure::sample::HostSample;
use tenantd_control::state::step::{Input, NodeInput, Settings};
use tenantd_control::tick::control_loop::ControlLoop;
use tenantd_control::tick::event::{self, Event, Witness};
use tenantd_control::tree::{Tree, flatten};
use tenantd_host::recording::recorder::Recorder;
use tenantd_host::recording::ring::{Bounds, Ring, segments};
use tenantd_host::recording::segment::{Head, LAYOUT, MAGIC, whole_bytes};
use tenantd_host::recording::tape::{self, Tape, TapeError};

use super::twin::encode;
use crate::util::{self, Dice};

const DAY: Duration = Duration::from_secs(24 * 3600);
const ROOMY: Bounds = Bounds { max_bytes: 64 << 20, max_age: DAY };
const SECOND: Duration = Duration::from_secs(1);

fn control() -> ControlLoop {
    let policy = util::policy("version: 1\ntenants: { a: {}, b: { weight: 2 } }");
    let tree = Tree::new(flatten(&policy).into());
    ControlLoop::new(Settings::of(&policy, false, true), tree)
}

fn recorder(dir: &Path, bounds: Bounds) -> Recorder {
    let mut wall = Duration::from_secs(1_800_000_000);
    let clock = move || {
        wall += SECOND;
        wall
    };
    Recorder::start(dir, bounds, "here".into(), clock).unwrap()
}

fn happen(control: &mut ControlLoop, recorder: &mut Recorder, event: Event) {
    recorder.note(control, &event);
    control.apply(event);
}

fn tick(control: &mut ControlLoop, recorder: &mut Recorder, second: u32) {
    happen(control, recorder, Event::Begin);
    let host = HostSample {
        nr_cpus: 4,
        memory_total_bytes: 1 << 30,
        busy_usec: Some(u64::from(second) * 1_234_567),
        ..HostSample::default()
    };
    let nodes = vec![NodeInput { is_governed: true, ..NodeInput::default() }; 2];
    let input = Input { now: SECOND * second, host, nodes, ..Input::default() };
    happen(control, recorder, Event::Step(Box::new(input)));
}

/// The times of all ticks of a segment, in the agent's own time.
fn times(path: &Path) -> (Vec<Duration>, bool) {
    let mut tape = Tape::open(path).unwrap();
    let times = std::iter::from_fn(|| tape.play()).map(|played| played.now).collect();
    (times, tape.is_torn())
}

#[test]
fn what_is_recorded_is_there_and_ends_as_the_loop_did() {
    let dir = util::scratch();
    let (mut control, mut recorder) = (control(), recorder(dir.path(), ROOMY));
    (1..=45).for_each(|second| tick(&mut control, &mut recorder, second));
    recorder.finish();
    let found = segments(dir.path()).unwrap();
    assert_eq!(found.len(), 1);
    let mut tape = Tape::open(&found[0].1).unwrap();
    assert_eq!(tape.host, "here");
    let played: Vec<_> = std::iter::from_fn(|| tape.play()).collect();
    assert_eq!((played.len(), tape.is_torn()), (45, false));
    assert_eq!(encode(&tape.control), encode(&control));
    // The clock on the wall counts with the agent's.
    assert_eq!(played[44].wall - played[0].wall, SECOND * 44);
}

#[test]
fn a_kill_costs_no_more_than_the_last_seconds() {
    let dir = util::scratch();
    let (mut control, mut recorder) = (control(), recorder(dir.path(), ROOMY));
    (1..=45).for_each(|second| tick(&mut control, &mut recorder, second));
    // Nothing more is done by it, as after SIGKILL; its thread writes what it was given.
    std::mem::forget(recorder);
    let path = dir.path().join("00000001.rec");
    // Until its beginning is whole, the file cannot be opened.
    util::wait_until("the chunks are written", || {
        Tape::open(&path).is_ok() && times(&path).0.len() >= 35
    });
}

#[test]
fn every_cut_and_every_damage_leaves_a_beginning() {
    let dir = util::scratch();
    let (mut control, mut recorder) = (control(), recorder(dir.path(), ROOMY));
    (1..=60).for_each(|second| tick(&mut control, &mut recorder, second));
    recorder.finish();
    let path = dir.path().join("00000001.rec");
    let whole = fs::read(&path).unwrap();
    let (all, _) = times(&path);
    assert_eq!((all.len(), whole_bytes(&whole)), (60, whole.len()));
    let torn = dir.path().join("torn.rec");
    let mut dice = Dice::new(7);
    for cut in (0..whole.len()).step_by(3) {
        let mut bytes = whole[..cut].to_vec();
        if let (Some(byte), true) = (bytes.last_mut(), dice.below(2) == 0) {
            *byte ^= 1 + dice.below(255) as u8;
        }
        fs::write(&torn, &bytes).unwrap();
        match Tape::open(&torn) {
            Ok(_) => {
                let (left, is_torn) = times(&torn);
                assert_eq!(left, all[..left.len()], "cut at {cut}");
                assert!(is_torn || whole_bytes(&bytes) == bytes.len(), "cut at {cut}");
            }
            Err(TapeError::NotARecording(_) | TapeError::Torn(_)) => {}
            Err(error) => panic!("cut at {cut}: {error}"),
        }
    }
}

#[test]
fn a_recording_of_another_version_is_refused_with_its_version() {
    let dir = util::scratch();
    let (mut control, mut recorder) = (control(), recorder(dir.path(), ROOMY));
    (1..=5).for_each(|second| tick(&mut control, &mut recorder, second));
    recorder.finish();
    let path = dir.path().join("00000001.rec");
    let whole = fs::read(&path).unwrap();
    let own = concat!("tenantd ", env!("CARGO_PKG_VERSION"));
    let cases = [
        (20, whole[20] ^ 0x55, own),
        (15, b'\n', "an older tenantd"),
        (15, LAYOUT + 1, "a newer tenantd"),
    ];
    for (at, byte, by) in cases {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        fs::write(&path, &bytes).unwrap();
        for error in [Tape::open(&path).err(), tape::check(&path).err()] {
            let error = error.unwrap().to_string();
            let has = |part: &str| error.contains(part);
            assert!(
                has(by) && has("00000001.rec") && has("replay it with that version"),
                "{error}"
            );
        }
        // The next recorder leaves it to its own version.
        drop(Ring::open(dir.path(), ROOMY).unwrap());
        assert!(fs::read(&path).unwrap() == bytes, "{by}");
    }
}

#[test]
fn short_and_foreign_files_are_one_error() {
    let dir = util::scratch();
    let path = dir.path().join("00000001.rec");
    let whole = [&MAGIC[..], &[LAYOUT], &event::format().to_le_bytes(), &[0; 8]].concat();
    let files: [(&[u8], &str); 6] = [
        (b"", "cut off"),
        (&whole[..7], "cut off"),
        (&whole[..31], "cut off"),
        (&whole, "cut off"),
        (b"tenant", "cut off"),
        (b"# a policy, not a recording\nversion: 1\n", "not a recording"),
    ];
    for (bytes, what) in files {
        fs::write(&path, bytes).unwrap();
        let error = Tape::open(&path).err().unwrap().to_string();
        assert!(error.contains(what) && error.contains("; "), "{bytes:?}: {error}");
        // In a directory it is skipped.
        assert!(tape::segments(dir.path()).unwrap().len() <= 1);
    }
}

#[test]
fn the_next_recorder_cuts_the_torn_tail_and_begins_anew() {
    let dir = util::scratch();
    let (mut control, mut first) = (control(), recorder(dir.path(), ROOMY));
    (1..=30).for_each(|second| tick(&mut control, &mut first, second));
    first.finish();
    let path = dir.path().join("00000001.rec");
    let whole = fs::read(&path).unwrap();
    fs::write(&path, [&whole[..], &[9, 0, 0, 0, 9, 0, 0, 0, 1]].concat()).unwrap();
    let mut second = recorder(dir.path(), ROOMY);
    tick(&mut control, &mut second, 31);
    second.finish();
    assert_eq!(fs::read(&path).unwrap(), whole);
    assert_eq!(segments(dir.path()).unwrap().len(), 2);
    assert_eq!(times(&dir.path().join("00000002.rec")).0, [SECOND * 31]);
    // One without a beginning is worth nothing.
    fs::write(dir.path().join("00000003.rec"), &whole[..40]).unwrap();
    drop(recorder(dir.path(), ROOMY));
    assert_eq!(segments(dir.path()).unwrap().len(), 2);
}

#[test]
fn a_ring_stays_within_its_size_and_keeps_the_newest() {
    let dir = util::scratch();
    let bounds = Bounds { max_bytes: 1 << 20, max_age: DAY };
    let mut ring = Ring::open(dir.path(), bounds).unwrap();
    let mut dice = Dice::new(1);
    let head = Head { layout: LAYOUT, format: 1, begin: SECOND };
    for _ in 0..100 {
        ring.begin(head, b"first").unwrap();
        while ring.segment_bytes() < bounds.segment_bytes() {
            let noise: Vec<u8> = (0..4000).map(|_| dice.below(256) as u8).collect();
            ring.append(&noise).unwrap();
        }
        let all = segments(dir.path()).unwrap();
        let bytes: u64 = all.iter().map(|(_, path)| fs::metadata(path).unwrap().len()).sum();
        assert!(bytes <= bounds.max_bytes, "{bytes}");
    }
    let numbers: Vec<u64> = segments(dir.path()).unwrap().into_iter().map(|it| it.0).collect();
    assert!(numbers.len() > 10 && numbers.last() == Some(&100), "{numbers:?}");
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
}

#[test]
fn what_is_too_old_goes() {
    let dir = util::scratch();
    let bounds = Bounds { max_bytes: 1 << 20, max_age: Duration::from_secs(60) };
    let mut ring = Ring::open(dir.path(), bounds).unwrap();
    let head = Head { layout: LAYOUT, format: 1, begin: SECOND };
    (0..3).for_each(|_| ring.begin(head, b"first").unwrap());
    let old = std::time::SystemTime::now() - Duration::from_secs(3600);
    let second = dir.path().join("00000002.rec");
    fs::File::options().append(true).open(second).unwrap().set_modified(old).unwrap();
    ring.append(b"more").unwrap();
    let numbers = || -> Vec<u64> {
        segments(dir.path()).unwrap().into_iter().map(|(number, _)| number).collect()
    };
    assert_eq!(numbers(), [1, 2, 3], "while it is recorded, a step of the clock removes nothing");
    drop(ring);
    let mut ring = Ring::open(dir.path(), bounds).unwrap();
    ring.begin(head, b"next").unwrap();
    assert_eq!(numbers(), [3, 4], "that one, and what is before it");
    drop(ring);
    // A clock that was set back shows files of the future.
    let third = dir.path().join("00000003.rec");
    let next = std::time::SystemTime::now() + Duration::from_secs(3600);
    fs::File::options().append(true).open(third).unwrap().set_modified(next).unwrap();
    Ring::open(dir.path(), bounds).unwrap().begin(head, b"last").unwrap();
    assert_eq!(numbers(), [3, 4, 5]);
}

#[test]
fn a_disk_that_refuses_ends_nothing_and_is_tried_again() {
    let dir = util::scratch();
    let place = dir.path().join("history");
    let (mut control, mut recorder) = (control(), recorder(&place, ROOMY));
    fs::remove_dir(&place).unwrap();
    tick(&mut control, &mut recorder, 1);
    recorder.finish();
    tick(&mut control, &mut recorder, 2);
    let trouble = recorder.trouble().unwrap().to_string();
    assert!(trouble.contains("history") && trouble.contains("No such file"), "{trouble}");
    fs::create_dir(&place).unwrap();
    for second in 3..=61 {
        tick(&mut control, &mut recorder, second);
        assert!(recorder.trouble().is_some(), "not before a minute is over");
    }
    (62..=80).for_each(|second| tick(&mut control, &mut recorder, second));
    assert_eq!(recorder.trouble(), None);
    recorder.finish();
    let (_, path) = segments(&place).unwrap().pop().unwrap();
    let left = times(&path).0;
    assert!(left.len() >= 18 && left.last() == Some(&(SECOND * 80)), "{left:?}");
}

#[test]
fn nothing_is_recorded_where_the_policy_says_so() {
    let dir = util::scratch();
    let none = Bounds { max_bytes: 0, ..ROOMY };
    let (mut control, mut recorder) = (control(), recorder(dir.path(), none));
    (1..=30).for_each(|second| tick(&mut control, &mut recorder, second));
    recorder.finish();
    assert_eq!(segments(dir.path()).unwrap(), []);
    recorder.bound(ROOMY);
    (31..=60).for_each(|second| tick(&mut control, &mut recorder, second));
    recorder.finish();
    assert_eq!(segments(dir.path()).unwrap().len(), 1);
}
