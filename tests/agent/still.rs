//! What need not change does not, and what is not ours stays.

use nix::errno::Errno;
use tenantd_control::report::status::Status;
use tenantd_core::resource::CPU;
use tenantd_host::kernfs::Operation;
use tenantd_policy::model::Mode;
use tenantd_sim::{Fault, Load, SimHost, Trace, Workload};

use super::story::{ADOPTED, LEGACY, play};
use super::world::{GIB, MIB, World, assert_near, assert_same, legacy, snapshot, tenant};

const AB: &str = "tenants: { a: { weight: 100 }, b: { weight: 300 } }";

fn busy_pair() -> World {
    let world = World::begin(AB);
    world.spawn("/a", Load::busy(4).with_working_set(64 * MIB));
    world.spawn("/b", Load::busy(2).with_working_set(GIB));
    world
}

#[test]
fn a_steady_load_writes_nothing_once_settled() {
    let mut world = busy_pair();
    world.ticks(30);
    world.host.take_changes();
    let status = world.ticks(60);
    assert_eq!((world.host.take_changes(), status.actions), (vec![], vec![]));
}

/// `held` is due less of the CPUs than by its weight, because it holds memory. A kernel that gives it half of that makes its
/// use look like that of a sleeper, whose weight is that of its share if busy.
#[test]
fn a_tenant_that_the_kernel_holds_back_does_not_sleep() {
    let mut world =
        World::on(SimHost { cpus: 2, ..SimHost::default() }, "tenants: { held: {}, a: {}, b: {} }");
    world.start().unwrap();
    world.tick();
    world.spawn("/held", Load::busy(1).with_working_set(5 * GIB));
    world.spawn("/a", Load::busy(2));
    world.spawn("/b", Load::busy(2));
    world.host.with(|kernel| kernel.set_bias("/held", 0.5)).unwrap();
    world.ticks(30);
    world.host.take_changes();
    let status = world.ticks(30);
    let held = tenant(&status, "held");
    assert!(held.usage[CPU].unwrap() < 0.7 * held.allocation[CPU], "the kernel holds nothing back");
    assert_eq!((world.host.take_changes(), status.actions), (vec![], vec![]));
}

/// Small weights are whole shares on the legacy hierarchy, and whole weights on the other: neither holds what is wanted
/// to the digit.
#[test]
fn extreme_weights_are_not_written_again() {
    for host in [SimHost::default(), legacy()] {
        let mut yaml = "tenants: { big: { weight: 9000 }, huge: { weight: 9000 }".to_string();
        (0..30).for_each(|number| yaml.push_str(&format!(", t{number}: {{ weight: 1 }}")));
        let mut world = World::on(host, &format!("{yaml} }}"));
        world.start().unwrap();
        world.tick();
        for tenant in ["/big", "/huge"] {
            world.spawn(tenant, Load::busy(4));
        }
        world.ticks(60);
        world.host.take_changes();
        let status = world.ticks(20);
        assert_eq!((world.host.take_changes(), status.actions), (vec![], vec![]));
    }
}

#[test]
fn a_noisy_load_moves_no_weight() {
    // The one wants all CPUs; the other's memory is its larger share, so that what it is entitled to of the
    // CPUs follows its demand for them.
    let mut world = World::begin("tenants: { a: {}, b: {} }");
    world.spawn("/a", Load::busy(4));
    let base = Load { duty: 0.96, touch_bytes_per_sec: 64 * GIB, ..Load::busy(2) };
    let base = base.with_working_set(6 * GIB);
    let interval = std::time::Duration::from_millis(300);
    let trace = Trace::Noisy { base, amplitude: 0.03, interval, seed: 1 };
    let workload = Workload { trace, ..Workload::constant("noise", base) };
    world.host.with(|kernel| kernel.spawn("/b", workload)).unwrap();
    world.ticks(30);
    world.host.take_changes();
    let mut allocations: Vec<f64> =
        (0..60).map(|_| tenant(&world.tick(), "b").allocation[CPU]).collect();
    allocations.dedup();
    assert!(allocations.len() > 10, "the decision stands still by itself: {allocations:?}");
    let changes = world.host.take_changes();
    let weights: Vec<_> = changes.iter().filter(|c| c.path.ends_with("cpu.weight")).collect();
    assert!(weights.is_empty(), "{weights:#?}");
}

#[test]
fn drift_is_found_counted_and_repaired() {
    let mut world = busy_pair();
    world.ticks(20);
    let ours = world.file("a/cpu.weight");
    world.write("a/cpu.weight", "9999");
    let status = world.ticks(10);
    assert_eq!((status.nr_drift, world.file("a/cpu.weight")), (1, ours));
    let status = world.ticks(20);
    assert_eq!(status.nr_drift, 1, "its own repair is no drift");
}

#[test]
fn protection_is_kept_until_the_first_sample() {
    let mut kernel = tenantd_sim::SimKernel::new(tenantd_sim::SimHost::default());
    kernel.make_cgroup("/a").unwrap();
    kernel.write_file("/sys/fs/cgroup/a/memory.low", &(2 * GIB).to_string()).unwrap();
    let load = Load { touch_bytes_per_sec: 64 * GIB, ..Load::busy(1) };
    kernel.spawn("/a", load.with_working_set(GIB)).unwrap();
    let mut world = World::with(kernel, AB);
    world.start().unwrap();
    let status = world.tick();
    assert_eq!(world.file("a/memory.low"), (2 * GIB).to_string());
    assert!(status.actions.iter().all(|action| !action.path.ends_with("a/memory.low")));
    world.ticks(3);
    let low: u64 = world.file("a/memory.low").parse().unwrap();
    assert!((GIB..2 * GIB).contains(&low), "{low}");
}

#[test]
fn observing_changes_no_file() {
    for story in [&ADOPTED, &LEGACY] {
        let mut world = (story.begin)();
        world.policy.mode = Mode::Observe;
        let before = snapshot(&world.host);
        play(&mut world);
        world.ticks(20);
        world.stop();
        assert_eq!(world.host.take_changes(), [], "{}", story.name);
        assert!(!world.state_dir().exists(), "an observer keeps no journal");
        let after: Vec<String> = snapshot(&world.host).into_keys().collect();
        assert_eq!(before.into_keys().collect::<Vec<_>>(), after);
    }
}

#[test]
fn the_command_line_makes_any_policy_an_observer() {
    let mut world = World::new(AB);
    world.options.observe = true;
    world.start().unwrap();
    let status = world.ticks(3);
    assert_eq!(status.mode, Mode::Observe);
    assert!(!status.actions.is_empty(), "what would be written is shown");
    assert_eq!(world.host.take_changes(), []);
}

#[test]
fn an_observer_shows_what_an_enforcer_does() {
    // What is not made yet has nothing to be compared with, and is always written.
    let shown = |status: &Status| -> Vec<(String, String)> {
        let web = status.actions.iter().filter(|action| action.tenant == "web");
        web.map(|action| (action.path.clone(), action.to.clone())).collect()
    };
    let mut enforcer = (ADOPTED.begin)();
    enforcer.start().unwrap();
    let done = enforcer.tick();
    let mut observer = (ADOPTED.begin)();
    observer.options.observe = true;
    observer.start().unwrap();
    assert_eq!(shown(&observer.tick()), shown(&done));
    let written =
        done.actions.iter().find(|action| action.path.ends_with("web/cpu.weight")).unwrap();
    assert_eq!(
        (written.from.as_deref(), enforcer.file("machine/web/cpu.weight")),
        (Some("77"), written.to.clone())
    );
}

#[test]
fn one_bad_tenant_stops_no_other() {
    for operation in [Operation::Open, Operation::Read, Operation::Write, Operation::MakeDir] {
        let mut world = World::new(AB);
        for suffix in ["/a", "/a/cpu.weight", "/a/cpu.stat", "/a/memory.low", "/a/memory.stat"] {
            world.host.inject(Fault::matching(operation, suffix, Errno::EIO));
        }
        world.start().unwrap();
        world.tick();
        world.spawn("/b", Load::busy(4).with_working_set(GIB));
        let status = world.ticks(8);
        assert!(status.findings.iter().any(|finding| finding.contains("a: ")), "{operation}");
        let b = tenant(&status, "b");
        assert_near(&[b.usage[CPU].unwrap()], &[4.0], 0.01);
        assert!(world.file("b/memory.low").parse::<u64>().unwrap() > GIB, "{operation}");
        assert_ne!(world.file("b/cpu.weight"), "100", "{operation}");
    }
}

#[test]
fn a_write_that_fails_is_tried_again_with_growing_pauses() {
    let mut world = World::new("tenants: { a: { limit: { cpu: 1 } } }");
    world.host.inject(Fault::matching(Operation::Write, "a/cpu.max", Errno::EBUSY));
    world.start().unwrap();
    let tries: Vec<usize> = (0..64)
        .filter(|_| {
            world.host.take_changes();
            world.tick();
            world.host.take_changes().iter().any(|call| call.path.ends_with("cpu.max"))
        })
        .collect();
    assert_eq!(tries, [0, 1, 3, 7, 15, 31, 63]);
    world.host.heal();
    world.ticks(64);
    assert_eq!(world.file("a/cpu.max"), "100000 100000");
}

#[test]
fn a_limit_below_usage_is_deferred_and_kills_no_process() {
    let yaml = "tenants:\n  a: { limit: { memory: 1GiB } }\n  \
                g: { limit: { memory: 1GiB }, tenants: { b: {} } }\n";
    let load =
        |bytes| Load { touch_bytes_per_sec: 64 * GIB, ..Load::busy(1) }.with_working_set(bytes);
    let mut kernel = tenantd_sim::SimKernel::new(tenantd_sim::SimHost::default());
    ["/a", "/g/b"].iter().for_each(|path| kernel.make_cgroup(path).unwrap());
    let pids = ["/a", "/g/b"].map(|path| kernel.spawn(path, load(2 * GIB)).unwrap());
    kernel.advance(std::time::Duration::from_secs(1));
    let mut world = World::with(kernel, yaml);
    world.start().unwrap();
    let status = world.ticks(6);
    let kept = ["a", "g"].map(|tenant| world.file(&format!("{tenant}/memory.max")));
    assert_eq!(kept, ["max", "max"]);
    let waits = status.findings.iter().filter(|finding| finding.contains("not set yet")).count();
    assert!(waits <= 2, "{:?}", status.findings);
    for pid in pids {
        world.set_load(pid, load(MIB));
        world.host.with(|kernel| kernel.kill(pid)).unwrap();
    }
    world.ticks(64);
    let set = ["a", "g"].map(|tenant| world.file(&format!("{tenant}/memory.max")));
    assert_eq!(set, [GIB.to_string(), GIB.to_string()]);
}

#[test]
fn an_earlier_limit_below_usage_is_not_restored() {
    let mut kernel = tenantd_sim::SimKernel::new(tenantd_sim::SimHost::default());
    kernel.make_cgroup("/a").unwrap();
    kernel.write_file("/sys/fs/cgroup/a/memory.max", &(GIB / 2).to_string()).unwrap();
    let mut world = World::with(kernel, "tenants: { a: { limit: { memory: 4GiB } } }");
    let before = snapshot(&world.host);
    world.start().unwrap();
    world.tick();
    let load = Load { touch_bytes_per_sec: 64 * GIB, ..Load::busy(1) };
    let pid = world.spawn("/a", load.with_working_set(GIB));
    world.ticks(3);
    let restored = world.stop();
    let said: Vec<bool> = restored.failures.iter().map(|f| f.contains("a/memory.max")).collect();
    assert_eq!(said, [true], "{:?}", restored.failures);
    assert!(world.host.with(|kernel| kernel.pids().contains(&pid)), "it was killed");
    world.host.with(|kernel| kernel.kill(pid)).unwrap();
    assert_eq!(world.restore().failures, [""; 0]);
    assert_same(&before, &snapshot(&world.host), "after its processes ended");
}

#[test]
fn restored_values_are_not_restored_again() {
    let mut kernel = tenantd_sim::SimKernel::new(tenantd_sim::SimHost::default());
    ["/a", "/b"].iter().for_each(|path| kernel.make_cgroup(path).unwrap());
    kernel.write_file("/sys/fs/cgroup/a/memory.max", &(GIB / 2).to_string()).unwrap();
    let tenants = "tenants: { a: { limit: { memory: 4GiB } }, b: { limit: { cpu: 1 } } }";
    let mut world = World::with(kernel, tenants);
    world.start().unwrap();
    world.tick();
    let load = Load { touch_bytes_per_sec: 64 * GIB, ..Load::busy(1) };
    world.spawn("/a", load.with_working_set(GIB));
    world.ticks(3);
    assert_eq!(world.stop().failures.len(), 1);
    assert_eq!(world.file("b/cpu.max"), "max 100000");
    world.write("b/cpu.max", "200000 100000");
    assert_eq!(world.restore().failures.len(), 1);
    assert_eq!(world.file("b/cpu.max"), "200000 100000");
}
