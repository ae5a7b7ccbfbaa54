//! What a policy says of widths and CPUs holds.

use tenantd_sim::{Load, SimHost};

use super::{HOSTS, Watch, dops, set, tenant};

#[test]
fn widths_are_within_the_policy_s_bounds() {
    let yaml = "tenants:\n  auto: { cpus: dop }\n  most: { cpus: dop, dop: { max: 2 } }\n  \
                manual: { cpus: dop, dop: { manual: 3 } }\n  limited: { cpus: dop, limit: { cpu: 1500m } }\n  \
                told: {}\n  listed: { cpus: \"6-7\" }\n";
    let names = ["auto", "most", "manual", "limited", "listed"];
    for host in HOSTS {
        let mut watch = Watch::begin(host(), &names, yaml);
        let all = ["auto", "most", "manual", "limited", "told", "listed"];
        let pids: Vec<u32> =
            all.iter().map(|name| watch.world.spawn(&format!("/{name}"), Load::idle())).collect();
        for tick in 0..120_usize {
            // Each is awake for a while, in every combination.
            for (index, pid) in pids.iter().enumerate().filter(|(i, _)| tick % 15 == 2 * i) {
                let awake = (tick / 15 + index) % 3 != 0;
                watch.world.set_load(*pid, if awake { Load::busy(8) } else { Load::idle() });
            }
            let dop = dops(&watch.tick());
            let bounds = [1..=8, 1..=2, 3..=3, 1..=2, 1..=8, 1..=2];
            for ((name, dop), bounds) in all.iter().zip(&dop).zip(bounds) {
                assert!(bounds.contains(dop), "{name}: {dop} is not in {bounds:?} at {tick}");
            }
            assert_eq!(watch.cpus("manual").len(), 3);
            assert_eq!(watch.cpus("listed"), set("6-7"));
        }
    }
}

#[test]
fn widths_fit_into_the_slots_where_all_are_hungry() {
    let yaml = "tenants: { a: { cpus: dop }, b: { cpus: dop }, c: { cpus: dop, weight: 200 } }";
    let host = SimHost { cpus: 12, numa_nodes: 3, ..SimHost::default() };
    let mut watch = Watch::begin(host, &["a", "b", "c"], yaml);
    for name in ["/a", "/b", "/c"] {
        watch.world.spawn(name, Load::busy(12));
    }
    let status = watch.ticks(30);
    assert_eq!(dops(&status), [3, 3, 6]);
    let (a, b, c) = (watch.cpus("a"), watch.cpus("b"), watch.cpus("c"));
    assert!(a.is_disjoint(&b) && a.is_disjoint(&c) && b.is_disjoint(&c), "{:?}", watch.sets);
}

/// A group that may use a fifth of a CPU, and is hungry, leaves the rest of two CPUs to the other tenant.
#[test]
fn a_limit_on_a_group_leaves_no_cpu_idle() {
    let yaml = "tenants:\n  g: { limit: { cpu: 200m }, tenants: { x: { cpus: dop } } }\n  b: { cpus: dop }\n";
    let host = SimHost { cpus: 2, threads_per_core: 1, ..SimHost::default() };
    let mut watch = Watch::begin(host, &["g/x", "b"], yaml);
    watch.world.spawn("/g/x", Load::busy(4));
    watch.world.spawn("/b", Load::busy(4));
    watch.ticks(30);
    let cores = watch.world.cores(&["g/x", "b"], 10);
    assert!(cores[0] > 0.17 && cores[1] > 1.75, "{cores:?}");
}

#[test]
fn shared_tenants_avoid_exclusive_cpus_and_fixed_lists_stay() {
    let yaml = "tenants:\n  own: { cpus: exclusive, dop: { manual: 2 } }\n  free: {}\n  \
                wide: { cpus: dop }\n  listed: { cpus: \"1,3\" }\n";
    for host in HOSTS {
        let mut watch = Watch::begin(host(), &["own", "free", "wide", "listed"], yaml);
        let pids = ["/own", "/free", "/wide", "/listed"]
            .map(|path| watch.world.spawn(path, Load::busy(8)));
        for tick in 0..60 {
            if tick == 20 {
                watch.world.set_load(pids[0], Load::idle());
            }
            let status = watch.tick();
            let own = watch.cpus("own");
            assert_eq!((own.len(), watch.cpus("listed")), (2, set("1,3")));
            assert_eq!(
                watch.cpus("free"),
                set("0-7").difference(&own),
                "all but what is exclusive"
            );
            for other in ["free", "wide", "listed"] {
                assert!(own.is_disjoint(&watch.effective(other)), "{other}: {:?}", watch.sets);
            }
            assert_eq!(super::cpuset_findings(&status), [""; 0]);
        }
        // Exclusive CPUs are not lent, asleep or not: `wide` has what is left.
        assert!(watch.cpus("wide").is_disjoint(&watch.cpus("own")));
    }
}

#[test]
fn processes_of_shared_tenants_keep_off_too() {
    for host in HOSTS {
        let yaml = "tenants: { own: { cpus: exclusive, dop: { manual: 4 } }, free: {} }";
        let mut watch = Watch::begin(host(), &["own", "free"], yaml);
        watch.world.spawn("/own", Load::busy(4));
        watch.world.spawn("/free", Load::busy(8));
        watch.ticks(3);
        let cores = watch.world.cores(&["own", "free"], 2);
        crate::agent::world::assert_near(&cores, &[4.0, 4.0], 0.01);
    }
}

#[test]
fn too_many_exclusive_cpus_are_reported_in_one_line() {
    let yaml = "tenants: { a: { cpus: exclusive, dop: { manual: 6 } }, \
                b: { cpus: exclusive, dop: { manual: 6 } } }";
    let mut watch = Watch::begin(HOSTS[0](), &["a", "b"], yaml);
    let status = watch.ticks(9);
    let said: Vec<_> =
        status.findings.iter().filter(|f| f.contains("could be exclusive")).collect();
    assert_eq!(said.len(), 1, "{:?}", status.findings);
    assert!(watch.cpus("a").is_disjoint(&watch.cpus("b")));
}

#[test]
fn no_tenant_is_pinned_without_a_policy() {
    for host in HOSTS {
        let mut watch = Watch::begin(host(), &[], "tenants: { a: {}, b: { dop: { max: 2 } } }");
        watch.world.spawn("/a", Load::busy(8));
        watch.world.host.take_changes();
        let status = watch.ticks(20);
        let changes = watch.world.host.take_changes();
        assert!(!changes.iter().any(|call| call.path.to_string_lossy().contains("cpuset")));
        assert_eq!((dops(&status)[1], tenant(&status, "a").cpus.as_deref()), (2, None));
    }
}
