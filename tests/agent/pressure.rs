//! The agent where its figures are easily wrong: late ticks, short jobs, other writers, a root that goes away.

use std::time::Duration;

use tenantd_core::resource::{CPU, MEMORY};
use tenantd_policy::model::Policy;
use tenantd_sim::{Load, Trace};

use super::world::{World, legacy, tenant};

const TWO: &str = "tenants: { a: {}, b: {} }";

/// Lets the kernel run for `time` and the agent tick then.
fn tick_after(world: &mut World, time: Duration) -> tenantd_control::report::status::Status {
    let interval = world.step.replace(time);
    let status = world.tick();
    world.step = interval;
    status
}

#[test]
fn a_tick_right_after_a_late_one_gives_no_false_rates() {
    let mut world = World::begin(TWO);
    world.spawn("/a", Load::busy(1));
    world.ticks(3);
    tick_after(&mut world, Duration::from_millis(2500));
    for msec in [1, 14, 400] {
        let status = tick_after(&mut world, Duration::from_millis(msec));
        let used = tenant(&status, "a").usage[CPU].unwrap();
        assert!((used - 1.0).abs() < 0.02, "{msec} ms later: {used} CPUs of one thread");
        assert!(status.host.outside_cores.unwrap() < 0.1, "{:?}", status.host);
        assert!(status.actions.is_empty(), "{:?}", status.actions);
    }
    let status = world.tick();
    assert!((tenant(&status, "a").usage[CPU].unwrap() - 1.0).abs() < 0.02);
}

/// A tick that is held up, as on a host without CPUs to spare, reads counters of a later time than its own.
#[test]
fn counters_that_are_read_late_in_a_tick_give_no_false_rates() {
    let mut world = World::begin(TWO);
    let pause = Duration::from_millis(300);
    for tenant in ["/a", "/b"] {
        world.spawn(tenant, Load::busy(1));
    }
    world.ticks(10);
    world.host.take_calls();
    world.tick();
    let calls = world.host.take_calls();
    let reads = |tenant| calls.iter().position(|call| call.path.ends_with(tenant)).unwrap() as u64;
    // At the beginning of a tick; between the two tenants; after both.
    for call in [0, reads("a/cpu.stat") + 1, reads("b/cpu.stat") + 1] {
        let late = world.tick_with_pause(call, pause);
        let next = tick_after(&mut world, Duration::from_secs(1) - pause);
        for (status, when) in [(late, "late"), (next, "next")] {
            for name in ["a", "b"] {
                let used = tenant(&status, name).usage[CPU].unwrap();
                assert!((used - 1.0).abs() < 0.02, "{name}, {when}, call {call}: {used} CPUs");
            }
            assert!(status.host.outside_cores.unwrap() < 0.1, "{when}: {:?}", status.host);
        }
    }
}

/// A policy that promises more than there is has a finding for as long as it is in force.
#[test]
fn a_premature_tick_keeps_findings_and_loses_no_event() {
    let mut world = World::begin("tenants: { a: { guarantee: { cpu: 9 } }, b: {} }");
    world.spawn("/a", Load::busy(1));
    let findings = world.ticks(3).findings;
    assert_ne!(findings, [""; 0]);
    let pid = world.spawn("/b", Load::busy(1));
    world.tick();
    world.host.with(|kernel| kernel.kill(pid)).unwrap();
    assert_eq!(tick_after(&mut world, Duration::from_millis(1)).findings, findings);
    let status = world.tick();
    assert_eq!(status.findings, findings);
    assert!(tenant(&status, "b").usage[CPU].unwrap() < 0.01, "it has ended");
}

#[test]
fn short_jobs_are_visible() {
    for host in [tenantd_sim::SimHost::default(), legacy()] {
        let mut world = World::on(host, TWO);
        world.start().unwrap();
        world.tick();
        let mut seen = 0.0;
        for _ in 0..10 {
            // 0.8 s of work that is over before the next tick but one.
            let pid = world.spawn("/a", Load::busy(1));
            let status = tick_after(&mut world, Duration::from_millis(600));
            seen += tenant(&status, "a").usage[CPU].unwrap_or(0.0) * 0.6;
            world.host.with(|kernel| {
                kernel.advance(Duration::from_millis(200));
                kernel.kill(pid).unwrap();
            });
            // The clock of the agent has to follow.
            let status = tick_after(&mut world, Duration::from_millis(1000));
            seen += tenant(&status, "a").usage[CPU].unwrap_or(0.0);
        }
        assert!(seen > 0.5 * 8.0, "{seen:.2} s of 8 s of work were seen");
    }
}

#[test]
fn a_tenant_that_is_only_in_the_trees_of_cpu_and_memory_is_not_empty() {
    let mut world = World::on(legacy(), TWO);
    world.start().unwrap();
    world.tick();
    let pid = world.spawn("/a", Load::busy(2));
    // As a container engine does that knows no unified mount.
    world.host.with(|kernel| {
        kernel.write_file("/sys/fs/cgroup/unified/cgroup.procs", &pid.to_string()).unwrap();
    });
    let status = world.ticks(3);
    let used = tenant(&status, "a").usage[CPU].unwrap();
    assert!((used - 2.0).abs() < 0.05, "{used}");
}

/// The unified mount counts the waits of nobody there: that is no pressure of nought.
#[test]
fn pressure_of_a_cgroup_without_its_processes_does_not_count() {
    let policy = "control: { credits: {} }\ntenants: { a: {}, b: {}, c: {} }";
    let mut world = World::on(tenantd_sim::SimHost { cpus: 2, ..legacy() }, policy);
    world.start().unwrap();
    world.tick();
    for path in ["/a", "/b", "/c"] {
        let pid = world.spawn(path, Load::busy(if path == "/c" { 1 } else { 4 }));
        world.host.with(|kernel| {
            kernel.write_file("/sys/fs/cgroup/unified/cgroup.procs", &pid.to_string()).unwrap();
            if path == "/c" {
                let (awake, asleep) = (Load::busy(2), Load::idle());
                let period = Duration::from_secs(4);
                let trace = Trace::Square { awake, asleep, period, awake_ratio: 0.25 };
                kernel.set_trace(pid, trace).unwrap();
            }
        });
    }
    let status = world.ticks(60);
    for name in ["a", "b"] {
        let tenant = tenant(&status, name);
        assert_eq!(tenant.cpu_pressure_seconds, None, "{name}");
        assert!(tenant.demand[CPU] > 1.9, "{name} wants {}", tenant.demand[CPU]);
        assert!(tenant.credit_seconds.unwrap() < 0.2, "{name}: {:?}", tenant.credit_seconds);
    }
    assert!(tenant(&status, "c").credit_factor.unwrap() > 3.0);
}

#[test]
fn a_legacy_quota_counts_with_its_period() {
    let mut world = World::on(legacy(), "tenants: { a: { limit: { cpu: 500m } }, b: {} }");
    world.start().unwrap();
    world.ticks(2);
    let files = ["cpu/a/cpu.cfs_quota_us", "cpu/a/cpu.cfs_period_us"];
    let held = |world: &World| files.map(|file| world.file(file)).join(" ");
    assert_eq!(held(&world), "50000 100000");
    // The same quota, five times as often.
    world.write(files[1], "20000");
    let status = world.ticks(12);
    assert_eq!(held(&world), "50000 100000", "{:?}", status.findings);
    assert_eq!(status.nr_drift, 1);
}

#[test]
fn what_is_found_at_the_moment_of_writing_is_left_where_drift_is_accepted() {
    let policy = "control: { on_drift: accept }\ntenants: { a: {}, b: {} }";
    let mut world = World::begin(policy);
    world.ticks(3);
    world.write("a/cpu.weight", "777");
    // The next write falls between two readings.
    let heavy = policy.replace("a: {}", "a: { weight: 900 }");
    let heavier: Policy =
        super::super::util::policy(&format!("version: 1\nmode: enforce\n{heavy}"));
    world.agent.as_mut().unwrap().reload(heavier, Vec::new()).unwrap();
    let status = world.ticks(3);
    assert_eq!(world.file("a/cpu.weight"), "777", "{:?}", status.findings);
    let left = status.findings.iter().any(|finding| finding.contains("is left so"));
    assert!(left, "{:?}", status.findings);
}

#[test]
fn a_root_that_was_removed_is_made_and_taken_again() {
    for host in [tenantd_sim::SimHost::default(), legacy()] {
        let mut world = World::on(host, TWO);
        world.options.root = Some("/tenants".into());
        world.start().unwrap();
        world.ticks(2);
        world.host.with(|kernel| {
            for path in ["/tenants/a", "/tenants/b", "/tenants"] {
                kernel.remove_cgroup_at(path).unwrap();
            }
        });
        let told = (0..3).flat_map(|_| world.tick().findings).collect::<Vec<_>>();
        assert!(told.iter().any(|f| f.contains("made and taken again")), "{told:?}");
        let status = world.tick();
        assert_eq!(status.findings.iter().filter(|f| f.contains("the root")).count(), 0);
        assert_eq!(world.stop().failures, [""; 0]);
    }
}

#[test]
fn processes_directly_beside_the_tenants_are_named() {
    let mut world = World::on(legacy(), TWO);
    world.start().unwrap();
    world.tick();
    world.spawn("/a", Load::busy(4));
    world.spawn("/", Load::busy(8));
    let status = world.ticks(25);
    let said = status.findings.iter().any(|f| f.contains("the processes directly in"));
    assert!(said, "{:?}", status.findings);
}

#[test]
fn limits_above_the_tenants_are_capacity() {
    for (host, quota, memory) in [
        (tenantd_sim::SimHost::default(), "cpu.max", "memory.max"),
        (legacy(), "cpu/tenants/cpu.cfs_quota_us", "memory/tenants/memory.limit_in_bytes"),
    ] {
        let mut world = World::on(host, TWO);
        world.options.root = Some("/tenants".into());
        world.start().unwrap();
        world.ticks(2);
        let is_legacy = quota.contains('/');
        let place =
            |file: &str| if is_legacy { file.to_string() } else { format!("tenants/{file}") };
        world.write(&place(quota), if is_legacy { "50000" } else { "50000 100000" });
        world.write(&place(memory), "314572800");
        for path in ["/tenants/a", "/tenants/b"] {
            world.spawn(path, Load::busy(2));
        }
        let status = world.ticks(8);
        assert!((status.host.capacity[CPU] - 0.5).abs() < 1e-9, "{:?}", status.host);
        assert_eq!(status.host.capacity[MEMORY], 314_572_800.0);
        assert!((tenant(&status, "a").allocation[CPU] - 0.25).abs() < 0.01);
        assert!(status.max_share_error.unwrap() < 0.02, "{:?}", status.max_share_error);
    }
}

#[test]
fn a_limit_beyond_that_of_its_group_is_written_as_the_groups() {
    let policy = "tenants: { g: { limit: { cpu: 500m }, tenants: { x: { limit: { cpu: 1 } } } } }";
    let mut world = World::on(legacy(), policy);
    world.start().unwrap();
    let status = world.ticks(3);
    assert_eq!(status.findings, [""; 0], "{:?}", status.findings);
    for tenant in ["g", "g/x"] {
        assert_eq!(world.file(&format!("cpu/{tenant}/cpu.cfs_quota_us")), "50000");
    }
    assert_eq!(world.stop().failures, [""; 0]);
}
