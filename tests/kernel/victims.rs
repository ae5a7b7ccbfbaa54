//! Real kills: memory runs out below a limit, and the work of the tenant furthest above its share ends.

use std::collections::BTreeMap;
use std::fs;

use tenantd_host::cgroup::Facet;

use super::ask::Asked;
use super::ground::Ground;
use crate::util::{assert_same, wait_until};

const BY_SHARE: &str = "memory: { victims: share }\ntenants: { a: {}, b: {} }";

/// Limit of the root, as this layout writes it.
fn limit(ground: &Ground, mib: u64) {
    let dir = ground.dir(Facet::Memory, "");
    let file = if ground.layout.is_unified() { "memory.max" } else { "memory.limit_in_bytes" };
    fs::write(dir.join(file), (mib << 20).to_string()).unwrap();
    // Swap would take what is to be killed.
    let _ = fs::write(dir.join("memory.swappiness"), "0");
}

fn score(pid: u32) -> Option<i16> {
    fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).ok()?.trim().parse().ok()
}

fn kills(ground: &Ground, below: &str) -> u64 {
    let dir = ground.dir(Facet::Memory, below);
    let file = if ground.layout.is_unified() { "memory.events" } else { "memory.oom_control" };
    let text = fs::read_to_string(dir.join(file)).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    line.unwrap().trim().parse().unwrap()
}

/// One process of `a` holds more than any of `b`, and `b` holds more than its half.
#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn the_greedy_tenant_is_killed_and_not_the_largest_process() {
    let Some(ground) = Ground::take() else { return };
    limit(&ground, 400);
    let before = ground.snapshot();
    let mut asked = Asked::on(ground, BY_SHARE);
    wait_until("the tenants", || asked.ground.weight("b").is_some());
    let modest = asked.ground.load("a", "memory=125829120");
    let greedy: Vec<u32> = (0..3).map(|_| asked.ground.load("b", "memory=73400320")).collect();
    wait_until("the victim", || asked.status()["victim"]["tenant"] == "b");
    wait_until("marks", || greedy.iter().all(|pid| score(*pid) == Some(997)));
    let shown = asked.ask(&["status"]).exits(0).out;
    assert!(shown.contains("if memory runs out: work of b ends first"), "{shown}");
    let last = asked.ground.load("b", "memory=104857600");
    wait_until("a kill", || kills(&asked.ground, "b") > 0);
    assert_eq!((kills(&asked.ground, "a"), score(modest).is_some()), (0, true));
    asked.daemon.stop();
    let marks: BTreeMap<u32, i16> =
        greedy.iter().chain([&modest]).filter_map(|pid| Some((*pid, score(*pid)?))).collect();
    assert!(marks.values().all(|score| *score == 0), "{marks:?}");
    greedy.into_iter().chain([modest, last]).for_each(|pid| asked.ground.end(pid));
    assert_same(&before, &asked.ground.snapshot(), "after the stop");
}
