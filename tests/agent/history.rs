//! The history of an agent on disk, and what `tenantctl` makes of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tenantd_host::recording::recorder::Recorder;
use tenantd_host::recording::ring::Bounds;
use tenantd_sim::Load;

use super::world::{MIB, World};
use crate::util;

/// 2026-11-23 03:00:00.
const THREE: u64 = 1_795_402_800;

struct Recorded {
    world: World,
    wall: Arc<AtomicU64>,
    dir: TempDir,
}

impl Recorded {
    fn new(yaml: &str) -> Recorded {
        let mut world = World::new(yaml);
        let dir = util::scratch();
        let wall = Arc::new(AtomicU64::new(THREE));
        world.start().unwrap();
        let mut recorded = Recorded { world, wall, dir };
        recorded.record();
        recorded
    }

    fn history(&self) -> PathBuf {
        self.dir.path().join("history")
    }

    fn record(&mut self) {
        let clock = Arc::clone(&self.wall);
        let clock = move || Duration::from_secs(clock.load(Ordering::Relaxed));
        let bounds = Bounds::of(&self.world.policy.history);
        let recorder = Recorder::start(&self.history(), bounds, "alpha".into(), clock).unwrap();
        self.world.agent.as_mut().unwrap().record(Some(Box::new(recorder)));
    }

    fn ticks(&mut self, count: usize) {
        for _ in 0..count {
            self.wall.fetch_add(1, Ordering::Relaxed);
            self.world.tick();
        }
    }

    /// Ends the agent, and with it the recording.
    fn end(mut self) -> (PathBuf, TempDir) {
        self.world.stop();
        (self.history(), self.dir)
    }
}

fn history(dir: &Path, args: &[&str]) -> util::Ran {
    let dir = dir.to_str().unwrap();
    util::run(util::tenantctl().arg("history").args(["--dir", dir]).args(args))
}

/// Ten minutes: `a` is limited and wants more from the second minute to the fourth.
fn limited() -> (PathBuf, TempDir) {
    let mut recorded = Recorded::new("tenants: { a: { limit: { cpu: 500m } }, b: {} }");
    recorded.ticks(60);
    recorded.world.spawn("/b", Load { duty: 0.5, ..Load::busy(1) });
    let pid = recorded.world.spawn("/a", Load::busy(2).with_working_set(64 * MIB));
    recorded.ticks(180);
    recorded.world.set_load(pid, Load::idle());
    recorded.ticks(360);
    recorded.end()
}

#[test]
fn history_says_who_lacked_what_when_and_why() {
    let (dir, _scratch) = limited();
    let ran = history(&dir, &["--since", "2026-11-23 03:00"]).exits(0);
    util::fits_a_terminal(&ran.out);
    assert!(
        ran.out.contains("alpha, 2026-11-23 03:00:01 to 2026-11-23 03:10:00 UTC, 600 ticks"),
        "{}",
        ran.out
    );
    assert!(
        ran.out.contains("the policy limits it to 500m") || ran.out.contains("(limit.cpu)"),
        "{}",
        ran.out
    );
    let episode = ran.out.lines().find(|line| line.contains("  a ")).unwrap();
    assert!(episode.starts_with("03:01:") && episode.contains("lacked"), "{episode}");
    assert!(!ran.out.contains("  b lacked"), "{}", ran.out);
    // In another zone: what is said and what is meant.
    let mut there = util::tenantctl();
    there.env("TZ", "EST5").args(["history", "--since", "2026-11-22 22:00"]);
    let there = util::run(there.arg("--dir").arg(&dir)).exits(0);
    assert!(
        there.out.contains("2026-11-22 22:00:01 to 2026-11-22 22:10:00 EST, 600 ticks"),
        "{}",
        there.out
    );
    let utc = history(&dir, &["--utc", "--since", "2026-11-23 03:00"]).exits(0);
    assert_eq!(utc.out, ran.out);
    // A later window has nothing of it.
    let later =
        history(&dir, &["--since", "2026-11-23 03:08", "--until", "2026-11-23 03:09"]).exits(0);
    assert!(
        later.out.contains("no tenant lacked a part of its share")
            && later.out.contains("61 ticks"),
        "{}",
        later.out
    );
    // The course of one tenant.
    let one = history(&dir, &["a", "--since", "2026-11-23 03:00"]).exits(0);
    util::fits_a_terminal(&one.out);
    assert!(one.out.contains("FROM") && one.out.lines().count() > 20, "{}", one.out);
}

#[test]
fn history_as_json_has_every_episode_with_its_reasons() {
    let (dir, _scratch) = limited();
    let ran = history(&dir, &["a", "--json", "--since", "2026-11-23 03:00"]).exits(0);
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(report["ticks"], 600);
    let a = &report["tenants"][0];
    let lacking = a["lacking_seconds"].as_f64().unwrap();
    assert!((170.0..190.0).contains(&lacking), "{lacking}");
    assert_eq!(a["episodes"].as_array().unwrap().len(), 1, "{a}");
    assert_eq!(a["episodes"][0]["reasons"][0]["kind"], "policy_limit", "{a}");
    assert!(a["course"].as_array().unwrap().len() <= 21);
}

#[test]
fn a_history_that_is_not_there_is_told_in_one_line() {
    let scratch = util::scratch();
    history(&scratch.path().join("nowhere"), &[]).exits(69).says_in_one_line("no history is there");
    history(scratch.path(), &[]).exits(1).says_in_one_line("nothing is recorded there");
    let (dir, _scratch) = limited();
    history(&dir, &["--since", "2025-01-01 00:00", "--until", "2025-01-02 00:00"])
        .exits(1)
        .says_in_one_line("the recording is of 2026-11-23 03:00:0");
    history(&dir, &["nobody", "--since", "2026-11-23 03:00"])
        .exits(1)
        .says_in_one_line("no tenant `nobody`");
    history(&dir, &["--since", "three"]).exits(1).says_in_one_line("is no time");
}

/// The tick of a time, as the daemon published it then.
#[test]
fn top_shows_a_tick_of_the_recording() {
    let (dir, scratch) = limited();
    let top = |dir: &Path, args: &[&str]| {
        util::run(util::tenantctl().arg("top").arg("--dir").arg(dir).args(args))
    };
    let ran = top(&dir, &["--at", "2026-11-23 03:03"]).exits(0);
    for part in [
        "alpha: mode enforce, tick 1",
        ", 2026-11-23T03:0",
        "from a recording",
        "! a is held back: the policy limits it to 0.5 CPUs (limit.cpu)",
    ] {
        assert!(ran.out.contains(part), "{part}: {}", ran.out);
    }
    assert!(!ran.out.contains("old"), "a recording is never stale: {}", ran.out);
    let row = ran.out.lines().find(|line| line.starts_with("a ")).unwrap();
    assert!(row.contains(" 0.50 ") && row.contains("64MiB"), "{row}");
    let ran = top(&dir, &["b", "--at", "2026-11-23T03:08:00Z"]).exits(0);
    assert!(ran.out.contains("\nb ") && !ran.out.contains("\na "), "{}", ran.out);
    top(&dir, &["c", "--at", "2026-11-23 03:08"]).exits(1).says_in_one_line("or group `c`");
    top(&dir, &["--at", "2026-11-23 03:12"])
        .exits(1)
        .says_in_one_line("the last tick before is of 2026-11-23 03:");
    top(&dir, &["--at", "2026-11-23 02:00"]).exits(1).says_in_one_line("or before");
    top(&dir, &["--at", "noon"]).exits(1).says_in_one_line("is no time");
    top(scratch.path(), &["--at", "03:00"]).exits(1).says_in_one_line("nothing is recorded");
    util::run(util::tenantctl().args(["top", "--utc"])).exits(2);
}

fn replay(dir: &Path, policy: &Path, args: &[&str]) -> util::Ran {
    let (dir, policy) = (dir.to_str().unwrap(), policy.to_str().unwrap());
    let base = ["plan", "--replay", dir, "--policy", policy];
    util::run(util::tenantctl().args(base).args(args))
}

#[test]
fn a_replay_under_the_same_policy_changes_nothing_and_another_one_gives_more() {
    let (dir, scratch) = limited();
    let same = "version: 1\nmode: enforce\ntenants: { a: { limit: { cpu: 500m } }, b: {} }";
    let same = util::file(scratch.path(), "same.yaml", same);
    let ran = replay(&dir, &same, &["--json"]).exits(0);
    let lines: Vec<serde_json::Value> =
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 601, "each tick, and the summary");
    for tick in &lines[..600] {
        for (name, tenant) in tick["tenants"].as_object().unwrap() {
            assert_eq!(tenant["was"], tenant["would"], "{name}: {tick}");
        }
    }
    // Without the limit, and in a group.
    let other = "version: 1\nmode: enforce\ntenants: { g: { tenants: { a: {}, c: {} } }, b: {} }";
    let other = util::file(scratch.path(), "other.yaml", other);
    let page = scratch.path().join("page.html");
    let ran = replay(&dir, &other, &["--report", page.to_str().unwrap()]).exits(0);
    util::fits_a_terminal(&ran.out);
    assert!(ran.out.contains("not in the recording, so idle throughout: g/c"), "{}", ran.out);
    let ran = replay(&dir, &other, &["--json"]).exits(0);
    let summary: serde_json::Value = serde_json::from_str(ran.out.lines().last().unwrap()).unwrap();
    let a = &summary["tenants"]["g/a"];
    let cores = |side: &str| a[side]["allocation_cores"].as_f64().unwrap();
    assert!(cores("would") > 1.5 * cores("was"), "{a}");
    let short = |side: &str| a[side]["short_of_cpu_seconds"].as_f64().unwrap();
    assert!(short("was") > 100.0 && short("would") < 30.0, "{a}");
    let html = std::fs::read_to_string(page).unwrap();
    assert!(
        html.contains("<svg") && html.contains("g/a: CPUs") && !html.contains("<script"),
        "{html}"
    );
    assert!(!html.contains("http-equiv") && !html.contains("src="), "one file without links");
}

#[test]
fn a_restart_of_the_agent_is_a_gap_and_not_a_false_rate() {
    let mut recorded = Recorded::new("tenants: { a: {}, b: {} }");
    recorded.ticks(1);
    recorded.world.spawn("/a", Load { duty: 0.5, ..Load::busy(1) });
    recorded.ticks(59);
    recorded.world.stop();
    recorded.wall.fetch_add(600, Ordering::Relaxed);
    recorded.world.start().unwrap();
    recorded.record();
    recorded.ticks(60);
    let (dir, scratch) = recorded.end();
    let ran = history(&dir, &["--since", "2026-11-23 03:00"]).exits(0);
    assert!(
        ran.out.contains("nothing is recorded from 2026-11-23 03:01:00 to 2026-11-23 03:11:01"),
        "{}",
        ran.out
    );
    let policy = util::file(scratch.path(), "p.yaml", "version: 1\ntenants: { a: {}, b: {} }");
    let ran = replay(&dir, &policy, &["--json"]).exits(0);
    let summary: serde_json::Value = serde_json::from_str(ran.out.lines().last().unwrap()).unwrap();
    let used = summary["tenants"]["a"]["usage_cores"].as_f64().unwrap();
    assert!((0.4..0.6).contains(&used), "{summary}");
}
