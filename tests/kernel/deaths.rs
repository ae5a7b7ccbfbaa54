//! Real kills: each death once, within two seconds, with the limit that was reached.

use std::fs;

use serde_json::Value;
use tenantd_host::cgroup::Facet;
use tenantd_host::kernfs::{KernFs, RealKernFs};

use super::ask::Asked;
use super::ground::Ground;
use crate::util::{self, wait_until};

const LIMITED: &str = "tenants: { a: { limit: { memory: 64MiB } }, b: {} }";

/// Most ticks from a kill to its report.
const TICKS_MAX: f64 = 2.0;

fn deaths(asked: &Asked, tenant: usize) -> (u64, Vec<Value>) {
    let tenant = &asked.status()["tenants"][tenant];
    (tenant["nr_deaths"].as_u64().unwrap(), tenant["deaths"].as_array().unwrap().clone())
}

fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

/// The kernel prints the details of at most ten kills in five seconds, for the whole host.
#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn each_kill_is_reported_once_with_its_limit() {
    let Some(ground) = Ground::take() else { return };
    if let Err(error) = RealKernFs::new().kernel_log() {
        return util::skipped(&error.to_string());
    }
    let dir = ground.dir(Facet::Memory, "");
    let mut asked = Asked::on(ground, LIMITED);
    wait_until("the tenants", || asked.ground.weight("b").is_some());
    for (number, orders) in
        [(1, "memory=125829120"), (2, "memory=125829120"), (3, "memory=104857600")]
    {
        let pid = asked.ground.load("a", orders);
        wait_until("a kill", || !is_running(pid));
        let killed_at = asked.status()["tick"].as_f64().unwrap();
        wait_until("its report", || deaths(&asked, 0).0 == number);
        let status = asked.status();
        let last = status["tenants"][0]["deaths"].as_array().unwrap().last().unwrap();
        // The interval is a second.
        let found_at = status["tick"].as_f64().unwrap() - last["age_seconds"].as_f64().unwrap();
        assert!(found_at < killed_at + TICKS_MAX + 0.5, "killed {killed_at}, found {found_at}");
        assert_eq!((&last["cause"], &last["pid"]), (&"limit".into(), &pid.into()), "{last}");
        let text = last["text"].as_str().unwrap();
        assert!(text.contains("a reached its limit of 64MiB"), "{text}");
    }
    // A limit above the tenants is named by its path.
    let file =
        if asked.ground.layout.is_unified() { "memory.max" } else { "memory.limit_in_bytes" };
    fs::write(dir.join(file), (100_u64 << 20).to_string()).unwrap();
    let pid = asked.ground.load("b", "memory=209715200");
    wait_until("a kill", || !is_running(pid));
    wait_until("its report", || deaths(&asked, 1).0 == 1);
    let (_, of_b) = deaths(&asked, 1);
    let text = of_b[0]["text"].as_str().unwrap();
    assert!(text.contains(&asked.ground.name) && text.contains("of 100MiB"), "{text}");
    let explained = asked.ask(&["explain", "b"]).exits(0).out;
    let words = explained.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("killed: the memory limit of 100MiB"), "{explained}");
    // None is reported twice.
    let tick = asked.status()["tick"].as_u64().unwrap();
    wait_until("three ticks", || asked.status()["tick"].as_u64().unwrap() > tick + 3);
    assert_eq!((deaths(&asked, 0).0, deaths(&asked, 1).0), (3, 1));
    let log = asked.daemon.said();
    assert_eq!(log.matches("action=\"death\"").count(), 4, "{log}");
    asked.daemon.stop();
}
