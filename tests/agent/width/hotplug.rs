//! CPUs that come and go while the agent runs.

use tenantd_sim::Load;

use super::{HOSTS, TWO, Watch, dops, set};

fn hungry(host: tenantd_sim::SimHost, yaml: &str) -> Watch {
    let mut watch = Watch::begin(host, &["a", "b"], yaml);
    for path in ["/a", "/b"] {
        watch.world.spawn(path, Load::busy(8));
    }
    watch.ticks(12);
    watch
}

#[test]
fn a_set_follows_a_cpu_that_goes_offline_and_online() {
    for host in HOSTS {
        let mut watch = hungry(host(), TWO);
        watch.plug("5", false);
        watch.tick();
        assert!(!watch.cpus("b").contains(5), "{:?}", watch.sets);
        assert_eq!(watch.cpus("a"), set("0-3"), "it had nothing to do with it");
        watch.ticks(30);
        assert_eq!(watch.cpus("a").union(&watch.cpus("b")), set("0-4,6-7"), "none lies idle");
        watch.plug("5", true);
        watch.until("as before", 40, |watch| watch.have(&["0-3", "4-7"]));
    }
}

#[test]
fn no_tenant_is_left_without_a_cpu() {
    for host in HOSTS {
        let mut watch = hungry(host(), TWO);
        for gone in ["4-7", "0-2", "3"] {
            watch.plug(gone, false);
            watch.ticks(2);
            for tenant in ["a", "b"] {
                assert!(watch.cpus(tenant).is_subset(&watch.online), "{tenant}: {:?}", watch.sets);
            }
            if gone == "0-2" {
                watch.plug("4", true);
            }
        }
        assert_eq!((watch.cpus("a"), watch.cpus("b")), (set("4"), set("4")));
        let used = watch.world.cores(&["a", "b"], 2);
        crate::agent::world::assert_near(&used, &[0.5, 0.5], 0.05);
        watch.plug("0-7", true);
        watch.until("a node each", 60, |watch| {
            watch.have(&["0-3", "4-7"]) || watch.have(&["4-7", "0-3"])
        });
        let restored = watch.world.stop();
        assert_eq!(restored.failures, [""; 0]);
    }
}

#[test]
fn a_fixed_list_is_narrowed_and_restored() {
    for host in HOSTS {
        let yaml = "tenants: { a: { cpus: \"2-3\" }, b: { cpus: dop } }";
        let mut watch = hungry(host(), yaml);
        watch.plug("2", false);
        watch.ticks(2);
        assert_eq!(watch.effective("a"), set("3"));
        watch.plug("3", false);
        let status = watch.ticks(2);
        let said = |f: &&String| f.contains("none of the CPUs in `cpus` is online");
        assert_eq!(status.findings.iter().filter(said).count(), 1, "{:?}", status.findings);
        assert!(watch.effective("a").is_subset(&watch.online));
        watch.plug("2-3", true);
        watch.until("the list", 12, |watch| watch.effective("a") == set("2-3"));
    }
}

#[test]
fn an_exclusive_set_survives_hotplug() {
    for host in HOSTS {
        let yaml = "tenants: { a: { cpus: exclusive, dop: { manual: 4 } }, b: {} }";
        let mut watch = hungry(host(), yaml);
        for (cpus, online) in [("1", false), ("2-4", false), ("2", true), ("0-7", true)] {
            watch.plug(cpus, online);
            watch.ticks(15);
            assert!(watch.cpus("a").is_disjoint(&watch.cpus("b")), "{:?}", watch.sets);
        }
        assert_eq!(watch.cpus("a").len(), 4);
    }
}

#[test]
fn an_idle_tenant_whose_cpus_went_offline_gets_others() {
    let mut watch = Watch::begin(HOSTS[1](), &["a", "b"], TWO);
    watch.world.spawn("/b", Load::busy(8));
    let a = watch.world.spawn("/a", Load::idle());
    watch.ticks(20);
    let asleep_on = watch.cpus("a").to_string();
    watch.plug(&asleep_on, false);
    watch.ticks(2);
    assert!(watch.cpus("a").is_subset(&watch.online));
    watch.world.set_load(a, Load::busy(8));
    let status = watch.ticks(20);
    assert_eq!(dops(&status), [2, 2]);
}

#[test]
fn the_root_s_own_bounds_are_the_machine() {
    let mut world = super::World::on(HOSTS[0](), TWO);
    world.options.root = Some("/machine".into());
    world.host.with(|kernel| kernel.make_cgroup("/machine").unwrap());
    world.write("machine/cpuset.cpus", "2-5");
    world.start().unwrap();
    let mut watch = Watch::over(world, &[]);
    for path in ["/machine/a", "/machine/b"] {
        watch.world.spawn(path, Load::busy(8));
    }
    let status = watch.ticks(5);
    assert_eq!((dops(&status), super::cpuset_findings(&status).len()), (vec![2, 2], 0));
    let sets = ["machine/a", "machine/b"].map(|tenant| watch.cpus(tenant));
    assert_eq!(sets, [set("2-3"), set("4-5")]);
    watch.world.write("machine/cpuset.cpus", "0-7");
    watch.ticks(20);
    let sets = ["machine/a", "machine/b"].map(|tenant| watch.cpus(tenant));
    assert_eq!(sets[0].union(&sets[1]), set("0-7"));
    assert_eq!(sets.map(|set| set.len()), [4, 4]);
}
