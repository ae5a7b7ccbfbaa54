//! What is written and cannot take effect is counted, explained and said with its remedy; and nothing else is.

use nix::errno::Errno;
use tenantd_control::report::reason::{Outsider, ReasonKind};
use tenantd_control::report::status::{ReasonStatus, Status};
use tenantd_control::why::explain::{Explanation, Outcome, explain};
use tenantd_core::resource::CPU;
use tenantd_host::kernfs::Operation;
use tenantd_host::systemd::{Property, PropertyValue, Setting};
use tenantd_sim::{Fault, Load, SimHost, SimKernel, Workload};

use super::world::{MIB, World, legacy, tenant};

fn explained(world: &World, status: &Status, tenant: &str) -> Explanation {
    explain(world.agent.as_ref().unwrap().trace(), status, tenant).unwrap()
}

fn is_weight(path: &str) -> bool {
    path.ends_with("/cpu.weight") || path.ends_with("/cpu.shares")
}

/// What is said of the weight of `tenant`.
fn weight(world: &World, status: &Status, tenant: &str) -> (Outcome, String) {
    let values = explained(world, status, tenant).values;
    let weight = values.into_iter().find(|value| is_weight(&value.path)).unwrap();
    (weight.outcome, weight.detail)
}

fn said<'a>(status: &'a Status, what: &str) -> Vec<&'a String> {
    status.findings.iter().filter(|finding| finding.contains(what)).collect()
}

/// A kernel that was booted without pressure has no such files.
#[test]
fn files_that_are_not_there_are_no_values_without_effect() {
    let mut world = World::new("tenants: { a: {}, b: {} }");
    for file in ["cpu.pressure", "memory.pressure"] {
        world.host.inject(Fault::matching(Operation::Open, file, Errno::ENOENT));
    }
    world.start().unwrap();
    world.tick();
    world.spawn("/a", Load::busy(8));
    let status = world.ticks(12);
    assert_eq!(said(&status, "a: cannot open").len(), 1, "{:?}", status.findings);
    assert_eq!(status.nr_ineffective, 0, "{:?}", status.findings);
}

#[test]
fn weights_of_tenants_in_slices_that_are_left_are_explained_as_void() {
    let mut world = World::new(
        "control: { ancestors: leave }\n\
         tenants: { web: { match: { unit: web.service } }, db: { match: { unit: db.service } }, \
         ana: { match: { unit: user-7.slice } } }",
    );
    world.host.systemd(|systemd, kernel| {
        systemd.add(kernel, "web.service", "/system.slice/web.service");
        systemd.add(kernel, "db.service", "/system.slice/db.service");
        systemd.add(kernel, "user-7.slice", "/user.slice/user-7.slice");
        for slice in ["system.slice", "user.slice"] {
            kernel.write_file(&format!("/sys/fs/cgroup/{slice}/memory.low"), "max").unwrap();
        }
    });
    world.start().unwrap();
    let status = world.ticks(12);
    assert_eq!(status.nr_ineffective, 3, "{:?}", status.findings);
    assert_eq!(said(&status, "cpu weights are ineffective").len(), 1, "{:?}", status.findings);
    for (tenant, other) in [("web", "ana"), ("db", "ana"), ("ana", "web")] {
        let (outcome, detail) = weight(&world, &status, tenant);
        assert_eq!(outcome, Outcome::Ineffective, "{detail}");
        assert!(detail.contains(&format!("between {tenant} and {other}")), "{detail}");
    }
}

#[test]
fn what_was_found_stays_while_the_machine_cannot_be_read() {
    let mut world = World::new("tenants: { a: { guarantee: { cpu: 1 } }, b: {} }");
    world.options.root = Some("/made".into());
    world.start().unwrap();
    world.write("made/cpu.max", "20000 100000");
    world.tick();
    world.spawn("/made/a", Load::busy(2));
    let is_short = |status: &Status| said(status, "leaves too little").len() == 1;
    assert!(is_short(&world.ticks(8)));
    world.host.inject(Fault::matching(Operation::Read, "/proc/meminfo", Errno::EIO));
    for _ in 0..3 {
        let status = world.tick();
        assert!(is_short(&status), "{:?}", status.findings);
        assert_eq!(said(&status, "/proc/meminfo").len(), 1, "{:?}", status.findings);
    }
    world.host.heal();
    assert_eq!(said(&world.tick(), "/proc/meminfo").len(), 0);
}

/// A tenant that wants all CPUs, beside a cgroup that is no tenant and has this load.
fn beside(host: SimHost, load: Load) -> (World, u32) {
    let mut world = World::on(host, "tenants: { a: {}, b: {} }");
    world.host.with(|kernel| kernel.make_cgroup("/other").unwrap());
    let pid = world.spawn("/other", load);
    world.start().unwrap();
    world.tick();
    world.spawn("/a", Load::busy(8));
    (world, pid)
}

/// Protection needs that of every cgroup above; those that have none are one finding, however many they protect.
#[test]
fn a_void_protection_is_said_once() {
    let mut kernel = SimKernel::new(SimHost::default());
    kernel.make_cgroup("/top/mid").unwrap();
    let yaml = "tenants: { a: { guarantee: { memory: 64MiB } }, b: { guarantee: { memory: 32MiB } }, c: {} }";
    let mut world = World::with(kernel, yaml);
    world.options.root = Some("/top/mid/t".into());
    world.start().unwrap();
    world.tick();
    for tenant in ["a", "b", "c"] {
        world.spawn(&format!("/top/mid/t/{tenant}"), Load::idle().with_working_set(16 * MIB));
    }
    for ticks in [12, 10] {
        let status = world.ticks(ticks);
        let said = said(&status, "memory.low is ineffective");
        let [said] = said[..] else { panic!("{:?}", status.findings) };
        let paths = "/sys/fs/cgroup/top is not protected itself, nor below it /sys/fs/cgroup/top/mid, /sys/fs/cgroup/top/mid/t;";
        assert!(said.contains(paths), "{said}");
    }
}

/// Weights in a cgroup with `cpu.idle` divide what all others leave.
#[test]
fn an_idle_parent_is_a_finding() {
    let mut kernel = SimKernel::new(SimHost::default());
    for path in ["/low/batch/a", "/low/batch/b"] {
        kernel.make_cgroup(path).unwrap();
        kernel.spawn(path, Load::busy(4)).unwrap();
    }
    let yaml = "tenants: { a: { match: { cgroup: /low/batch/a } }, b: { match: { cgroup: /low/batch/b } } }";
    let mut world = World::with(kernel, yaml);
    world.write("low/cpu.idle", "1");
    world.start().unwrap();
    let status = world.ticks(25);
    let found = said(&status, "cpu.idle is 1");
    assert_eq!(found.len(), 1, "{:?}", status.findings);
    assert!(
        found[0].contains("/sys/fs/cgroup/low: its") && found[0].contains("CPUWeight=idle"),
        "{found:?}"
    );
    world.write("low/cpu.idle", "0");
    let status = world.ticks(25);
    assert_eq!(said(&status, "cpu.idle"), [""; 0], "{:?}", status.findings);
}

/// A tenant whose own cpuset keeps it from its share is told so, with the CPUs.
#[test]
fn a_tenant_bound_by_itself_is_no_victim_of_others() {
    for (host, tree) in [(SimHost::default(), ""), (legacy(), "cpuset/")] {
        let mut world = World::on(host, "tenants: { a: { cpus: dop }, b: {} }");
        world.start().unwrap();
        world.ticks(2);
        world.host.with(|kernel| kernel.make_cgroup("/a/inner")).unwrap();
        if tree.is_empty() {
            world.write("a/cgroup.subtree_control", "+cpuset");
        }
        world.write(&format!("{tree}a/inner/cpuset.cpus"), "1");
        if !tree.is_empty() {
            world.write("cpuset/a/inner/cpuset.mems", "0");
        }
        world.spawn("/a/inner", Load::busy(4));
        let status = world.ticks(30);
        let tenant = tenant(&status, "a");
        let said: Vec<&str> = tenant.reasons.iter().map(|reason| &*reason.text).collect();
        assert!(
            said.iter().any(|it| it.starts_with("its running threads are bound to CPU 1,")),
            "{said:?} {tenant:?}"
        );
    }
}

#[test]
fn busy_siblings_of_a_waiting_tenant_are_named() {
    for host in [SimHost::default(), legacy()] {
        let (mut world, pid) = beside(host, Load::busy(4));
        let status = world.ticks(22);
        let said = said(&status, "cpu weights are ineffective against");
        assert_eq!(said.len(), 1, "{:?}", status.findings);
        assert!(
            said[0].contains("/other: busy beside a") && said[0].contains("CPUWeight="),
            "{said:?}"
        );
        // That of the tenant that sleeps does what it shall.
        assert_eq!(status.nr_ineffective, 1);
        assert_eq!(weight(&world, &status, "a"), (Outcome::Ineffective, said[0].clone()));
        assert_ne!(weight(&world, &status, "b").0, Outcome::Ineffective);
        let again = world.ticks(10);
        assert_eq!(again.findings, status.findings, "in the same words");
        world.set_load(pid, Load::idle());
        let status = world.ticks(20);
        assert_eq!((status.nr_ineffective, status.findings), (0, vec![]));
    }
}

#[test]
fn idle_siblings_of_a_waiting_tenant_are_not_named() {
    let small = Load { duty: 0.1, ..Load::busy(1) };
    let (mut world, _) = beside(SimHost::default(), small);
    let status = world.ticks(32);
    assert_eq!((status.nr_ineffective, status.findings), (0, vec![]));
    // Nor who is busy where no tenant waits.
    let mut world = World::on(SimHost::default(), "tenants: { a: {} }");
    world.host.with(|kernel| kernel.make_cgroup("/other").unwrap());
    world.spawn("/other", Load::busy(2));
    world.start().unwrap();
    world.tick();
    world.spawn("/a", Load { duty: 0.5, ..Load::busy(1) });
    let status = world.ticks(32);
    assert_eq!((status.nr_ineffective, status.findings), (0, vec![]));
}

/// The reasons of a tenant.
fn reasons(status: &Status, name: &str) -> Vec<ReasonStatus> {
    tenant(status, name).reasons.clone()
}

/// What is said of outside work as the reason of a tenant: cgroup, whether directly, program, CPUs.
fn outsiders(status: &Status, name: &str) -> Vec<(String, bool, Option<String>, f64)> {
    let outside = |reason: &&ReasonStatus| reason.kind == ReasonKind::OutsideWork;
    let found = reasons(status, name).iter().find(outside).map(|reason| reason.outsiders.clone());
    let shown = |it: Outsider| (it.cgroup, it.is_direct, it.command, it.cores);
    found.unwrap_or_default().into_iter().map(shown).collect()
}

#[test]
fn the_largest_work_of_no_tenant_is_named_with_its_program() {
    for (host, is_legacy) in [(SimHost::default(), false), (legacy(), true)] {
        let mut world = World::on(host, "tenants: { a: {}, b: {} }");
        world.host.with(|kernel| {
            for (cgroup, name, threads) in [
                ("/x.slice/one", "sleeper", 1),
                ("/x.slice/two/deep", "hog\x1b[1m", 4),
                ("/y.slice", "smaller", 2),
                ("/z.slice", "small", 1),
                ("/w.slice", "least", 1),
            ] {
                kernel.make_cgroup(cgroup).unwrap();
                let load = match name {
                    "sleeper" => Load::idle(),
                    "least" => Load { duty: 0.05, ..Load::busy(threads) },
                    _ => Load::busy(threads),
                };
                kernel.spawn(cgroup, Workload::constant(name, load)).unwrap();
            }
        });
        world.start().unwrap();
        world.tick();
        world.spawn("/a", Load::busy(8));
        let status = world.ticks(6);
        let named = outsiders(&status, "a");
        let places: Vec<&str> = named.iter().map(|(cgroup, ..)| cgroup.as_str()).collect();
        assert_eq!(places, ["/x.slice", "/y.slice", "/z.slice"], "{is_legacy} {named:?}");
        assert_eq!(named[0].2.as_deref(), Some("hog\u{fffd}[1m"));
        let nr_cpus = world.host.with(|kernel| kernel.host().cpus) as f64;
        let used: f64 = named.iter().map(|(.., cores)| cores).sum();
        let outside = status.host.outside_cores.unwrap();
        assert!(used <= outside + 0.01 && used > outside - 0.2, "{used} of {outside} of {nr_cpus}");
        assert_eq!(reasons(&status, "b"), []);
        let missing = tenant(&status, "a").missing[CPU].unwrap();
        assert!(missing > 0.3, "{missing}");
        let faults = tenant(&status, "a").faults;
        assert!(faults.cpu_short.unwrap().count == 1 && faults.cpu_short.unwrap().seconds >= 4.0);
        assert_eq!(explained(&world, &status, "a").reasons, reasons(&status, "a"));
    }
}

/// A service beside the slice of a tenant, and one beside the tenant itself; nothing else is read while nobody lacks
/// anything.
#[test]
fn work_is_found_beside_every_cgroup_above_a_tenant() {
    let mut world = World::new("tenants: { web: { match: { unit: web.service } } }");
    world.host.systemd(|systemd, kernel| {
        systemd.add(kernel, "web.service", "/system.slice/web.service");
        systemd.add(kernel, "cron.service", "/system.slice/cron.service");
        systemd.add(kernel, "user-7.slice", "/user.slice/user-7.slice");
    });
    world.start().unwrap();
    world.ticks(6);
    world.host.take_calls();
    world.ticks(12);
    let reads_others = |world: &World| {
        let calls = world.host.take_calls();
        calls.iter().filter(|call| format!("{call:?}").contains("cron.service")).count()
    };
    assert_eq!(reads_others(&world), 0, "nobody lacks anything");
    world.spawn("/system.slice/web.service", Load::busy(8));
    world.spawn("/system.slice/cron.service", Load::busy(2));
    world.spawn("/user.slice/user-7.slice", Load::busy(8));
    let status = world.ticks(6);
    let named: Vec<String> =
        outsiders(&status, "web").into_iter().map(|(cgroup, ..)| cgroup).collect();
    assert_eq!(named.len(), 2, "{:?}", reasons(&status, "web"));
    assert!(named.contains(&"/user.slice".to_string()), "{named:?}");
    assert!(named.contains(&"/system.slice/cron.service".to_string()), "{named:?}");
    assert!(reads_others(&world) > 0);
}

/// Of a tenant with cgroups in several places, that beside any of them.
#[test]
fn work_is_found_beside_every_cgroup_of_a_tenant() {
    let both = "[one.service, two.service]";
    let mut world = World::new(&format!("tenants: {{ web: {{ match: {{ unit: {both} }} }} }}"));
    world.host.systemd(|systemd, kernel| {
        systemd.add(kernel, "one.service", "/one.slice/one.service");
        systemd.add(kernel, "cron.service", "/one.slice/cron.service");
        systemd.add(kernel, "two.service", "/two.slice/two.service");
        systemd.add(kernel, "hog.service", "/two.slice/hog.service");
    });
    world.start().unwrap();
    world.ticks(6);
    for unit in ["one.slice/one", "one.slice/cron", "two.slice/two", "two.slice/hog"] {
        world.spawn(&format!("/{unit}.service"), Load::busy(4));
    }
    let status = world.ticks(6);
    let mut named: Vec<String> =
        outsiders(&status, "web").into_iter().map(|(cgroup, ..)| cgroup).collect();
    named.sort();
    assert_eq!(named, ["/one.slice/cron.service", "/two.slice/hog.service"]);
    assert!(tenant(&status, "web").faults.cpu_throttled.is_some());
}

/// On a legacy host processes are directly beside cgroups.
#[test]
fn processes_directly_beside_a_tenant_are_named() {
    let mut world = World::on(legacy(), "tenants: { a: {} }");
    world.options.root = Some("/made".into());
    world.start().unwrap();
    world.tick();
    world.spawn("/made", Load::busy(8));
    world.spawn("/made/a", Load::busy(8));
    let status = world.ticks(6);
    let (cgroup, is_direct, command, cores) = outsiders(&status, "a").remove(0);
    assert!((&*cgroup, is_direct) == ("/made", true) && command.is_some(), "{cgroup} {command:?}");
    assert!(cores > 0.5, "{cores}");
}

#[test]
fn a_quota_above_one_tenant_is_a_reason() {
    let both =
        "tenants: { web: { match: { unit: web.service } }, db: { match: { unit: db.service } } }";
    let mut world = World::new(both);
    world.host.systemd(|systemd, kernel| {
        systemd.add(kernel, "web.service", "/capped.slice/web.service");
        systemd.add(kernel, "db.service", "/system.slice/db.service");
    });
    world.start().unwrap();
    world.ticks(6);
    let half =
        Setting { property: Property::CpuQuotaPerSecUsec, value: PropertyValue::Number(500_000) };
    world.host.systemd(|systemd, kernel| systemd.set_property(kernel, "capped.slice", &half));
    world.spawn("/capped.slice/web.service", Load::busy(8));
    let status = world.ticks(6);
    let limits: Vec<String> = reasons(&status, "web")
        .into_iter()
        .filter(|reason| reason.kind == ReasonKind::KernelLimit)
        .map(|reason| reason.text)
        .collect();
    assert_eq!(limits, ["/capped.slice is limited to 0.50 CPUs for all in it"]);
    assert_eq!(reasons(&status, "db"), []);
}

/// A host with a thousand cgroups beside a tenant that lacks something: no tick reads many of them for long.
#[test]
fn a_thousand_siblings_are_not_read_in_every_tick() {
    let mut world = World::new("tenants: { a: {}, b: {} }");
    world.host.with(|kernel| {
        for number in 0..1000 {
            kernel.make_cgroup(&format!("/other{number}")).unwrap();
        }
        kernel.spawn("/other500", Load::busy(8)).unwrap();
    });
    world.start().unwrap();
    world.tick();
    world.spawn("/a", Load::busy(8));
    world.ticks(40);
    world.host.take_calls();
    let status = world.ticks(62);
    assert_eq!(outsiders(&status, "a")[0].0, "/other500");
    let calls = world.host.take_calls();
    let reads = calls.iter().filter(|call| format!("{call:?}").contains("/other"));
    let per_tick = reads.count() / 62;
    // A cgroup is opened and read: 32 of them per tick, and the largest ones.
    assert!(per_tick < 3 * (32 + 8), "{per_tick} calls per tick");
}

/// Other work that comes and goes beside guarantees that then do not fit: one finding, which stays.
#[test]
fn findings_about_the_load_do_not_flap() {
    for observe in [true, false] {
        let yaml = "tenants: { a: { guarantee: { cpu: 3 } }, b: { guarantee: { memory: 64MiB } } }";
        let mut world = World::new(yaml);
        world.host.with(|kernel| kernel.make_cgroup("/other").unwrap());
        let pid = world.spawn("/other", Load::idle());
        world.options.observe = observe;
        world.start().unwrap();
        let mut nr_changes = 0;
        let mut before = world.ticks(5).findings;
        assert_eq!(said(world.agent.as_ref().unwrap().status(), "guarantees").len(), 0);
        for round in 0..150 {
            world.set_load(pid, if round % 2 == 0 { Load::busy(4) } else { Load::idle() });
            for _ in 0..4 {
                let findings = world.tick().findings;
                nr_changes += usize::from(findings != before);
                before = findings;
            }
        }
        assert_eq!((nr_changes, before.len()), (1, 1), "{before:?}");
        // It ends with its cause.
        let status = world.ticks(40);
        assert_eq!(status.findings, [""; 0]);
    }
}
