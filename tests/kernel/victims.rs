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

const GUARDED: &str =
    "memory: { victims: share }\ntenants: { a: {}, b: {}, c: { guarantee: { memory: 60MiB } } }";
const ROUNDS: u32 = 20;

/// Twenty kills, of which half are caused by the growth of a tenant that is not the victim. `a` has the largest process within
/// its share, `b` is above its share in small ones, and `c` is within its guarantee.
#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn forced_kills_end_the_work_of_the_rule() {
    let Some(ground) = Ground::take() else { return };
    limit(&ground, 400);
    let mut asked = Asked::on(ground, GUARDED);
    wait_until("the tenants", || asked.ground.weight("c").is_some());
    let calm =
        [asked.ground.load("a", "memory=110000000"), asked.ground.load("c", "memory=48000000")];
    let mut greedy: Vec<u32> = Vec::new();
    let counts = |asked: &Asked| ["a", "b", "c"].map(|below| kills(&asked.ground, below));
    let mut nr_right = 0;
    for round in 0..ROUNDS {
        greedy.retain(|pid| {
            let is_alive = score(*pid).is_some() && !has_ended(*pid);
            if !is_alive {
                asked.ground.end(*pid);
            }
            is_alive
        });
        while greedy.len() < 3 {
            greedy.push(asked.ground.load("b", "memory=58000000"));
        }
        wait_until("the victim", || asked.status()["victim"]["tenant"] == "b");
        wait_until("marks", || greedy.iter().all(|pid| score(*pid) == Some(997)));
        let before = counts(&asked);
        let below = if round % 2 == 0 { "b" } else { "a" };
        let taker = asked.ground.load(below, "memory=100000000");
        wait_until("a kill", || counts(&asked) != before);
        let after = counts(&asked);
        nr_right += u32::from((after[0], after[2]) == (before[0], before[2]));
        asked.ground.end(taker);
    }
    println!(
        "{nr_right} of {ROUNDS} kills as the rule has them, {:?} in a, b and c",
        counts(&asked)
    );
    assert!(nr_right == ROUNDS && counts(&asked)[2] == 0, "{nr_right}: {:?}", counts(&asked));
    asked.daemon.stop();
    greedy.into_iter().chain(calm).for_each(|pid| asked.ground.end(pid));
}

/// True for a process that was killed and not reaped.
fn has_ended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with(['Z', 'X']))
}
