//! Two tenants, one of which sleeps now and then: whose CPUs are whose, and when.

use std::time::Duration;

use tenantd_core::resource::CPU;
use tenantd_sim::{Load, SimHost};

use super::{HOSTS, TWO, Watch, dops, set, tenant, told};
use crate::agent::world::assert_near;

/// Both hungry for more than their share.
fn both_awake(host: SimHost) -> (Watch, [u32; 2]) {
    let mut watch = Watch::begin(host, &["a", "b"], TWO);
    let pids = ["/a", "/b"].map(|path| watch.world.spawn(path, Load::busy(8)));
    watch.ticks(3);
    (watch, pids)
}

#[test]
fn two_equal_tenants_have_a_node_each() {
    for host in HOSTS {
        let (mut watch, _) = both_awake(host());
        let status = watch.ticks(20);
        assert!(watch.have(&["0-3", "4-7"]), "{:?}", watch.sets);
        assert_eq!((dops(&status), watch.nr_changes), (vec![4, 4], 0));
        assert_eq!(tenant(&status, "b").cpus.as_deref(), Some("4-7"));
        assert_eq!(
            (told(&watch.world, "a"), told(&watch.world, "b")),
            ("4\n".into(), "4\n".into())
        );
    }
}

#[test]
fn a_sleeper_s_cpus_are_lent_and_it_has_them_back() {
    for host in HOSTS {
        let (mut watch, [a, _]) = both_awake(host());
        for _ in 0..3 {
            watch.world.set_load(a, Load::idle());
            watch.until("lent", 25, |watch| watch.have(&["0-3", "0-7"]));
            let status = watch.ticks(2);
            assert_near(&[tenant(&status, "b").usage[CPU].unwrap()], &[8.0], 0.01);
            // What it would start now should be as wide as its share.
            assert_eq!(told(&watch.world, "a"), "4\n");
            watch.ticks(10);
            watch.world.set_load(a, Load::busy(8));
            watch.until("given back", 3, |watch| watch.have(&["0-3", "4-7"]));
            watch.ticks(10);
            assert!(watch.have(&["0-3", "4-7"]), "{:?}", watch.sets);
        }
    }
}

/// Fewer ticks see it fall asleep, and each of them counts for more.
#[test]
fn a_sleeper_keeps_its_cpus_however_late_the_ticks_are() {
    for seconds in 2..=8 {
        let (mut watch, [a, b]) = both_awake(HOSTS[0]());
        // Neither uses all that it has: narrower would do, though not yet.
        for pid in [a, b] {
            watch.world.set_load(pid, Load::busy(3));
        }
        watch.world.step = Some(Duration::from_secs(seconds));
        watch.tick();
        watch.world.set_load(a, Load::idle());
        watch.world.set_load(b, Load::busy(8));
        for _ in 0..20 {
            watch.tick();
            assert_eq!(watch.cpus("a"), set("0-3"), "ticks of {seconds} s");
        }
        assert!(watch.cpus("b").len() > 6, "ticks of {seconds} s: {:?}", watch.sets);
    }
}

/// What a policy lists is as good to others while its tenant sleeps as what a width gave it.
#[test]
fn the_cpus_of_a_list_are_lent_while_its_tenant_sleeps() {
    for host in HOSTS {
        let host = SimHost { cpus: 2, threads_per_core: 1, numa_nodes: 1, ..host() };
        let yaml = "tenants: { a: { cpus: \"1\" }, b: { cpus: dop } }";
        let mut watch = Watch::begin(host, &["a", "b"], yaml);
        let a = watch.world.spawn("/a", Load::idle());
        watch.world.spawn("/b", Load::busy(4));
        for _ in 0..2 {
            watch.until("lent", 25, |watch| watch.have(&["1", "0-1"]));
            let status = watch.ticks(2);
            assert_near(
                &[tenant(&status, "b").usage[tenantd_core::resource::CPU].unwrap()],
                &[2.0],
                0.01,
            );
            watch.ticks(12);
            watch.world.set_load(a, Load::busy(4));
            watch.until("given back", 12, |watch| watch.have(&["1", "0"]));
            watch.ticks(12);
            assert!(watch.have(&["1", "0"]), "{:?}", watch.sets);
            watch.world.set_load(a, Load::idle());
        }
    }
}

#[test]
fn a_waking_tenant_is_not_confined_and_gets_its_share_at_once() {
    let (mut watch, [a, _]) = both_awake(HOSTS[0]());
    watch.world.set_load(a, Load::idle());
    watch.ticks(30);
    watch.world.set_load(a, Load::busy(8));
    // Before the agent has seen anything of it.
    let used = watch.world.cores(&["a"], 1);
    assert!(used[0] > 8.0 / 3.0 - 0.1, "{used:?}");
}

#[test]
fn a_starved_tenant_is_not_idle() {
    let (mut watch, [a, _]) = both_awake(HOSTS[0]());
    watch.world.set_load(a, Load::idle());
    watch.until("lent", 25, |watch| watch.have(&["0-3", "0-7"]));
    // Somebody who is no tenant leaves next to nothing of these CPUs to anybody.
    watch.world.host.with(|kernel| kernel.make_cgroup("/outside")).unwrap();
    watch.world.write("outside/cpu.weight", "10000");
    watch.world.write("outside/cpuset.cpus", "0-3");
    watch.world.spawn("/outside", Load::busy(64));
    watch.ticks(10);
    watch.world.set_load(a, Load::busy(8));
    watch.until("given back", 5, |watch| watch.have(&["0-3", "4-7"]));
    let status = watch.ticks(20);
    assert!(tenant(&status, "a").usage[CPU].unwrap() < 0.1, "it is not starved");
    assert!(watch.have(&["0-3", "4-7"]), "{:?}", watch.sets);
}

#[test]
fn scattered_tenants_are_compacted() {
    for host in HOSTS {
        let (mut watch, _) = both_awake(host());
        // Half of each node goes away and comes back the wrong way round.
        watch.plug("4-7", false);
        watch.ticks(12);
        for cpu in ["4", "5", "6", "7"] {
            watch.plug(cpu, true);
            watch.tick();
        }
        watch.until("a node each", 60, |watch| {
            watch.have(&["0-3", "4-7"]) || watch.have(&["4-7", "0-3"])
        });
        let settled = watch.nr_changes;
        watch.ticks(60);
        assert_eq!(watch.nr_changes, settled, "it is done once");
    }
}
