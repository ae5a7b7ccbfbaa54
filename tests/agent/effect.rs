//! What is written and cannot take effect is counted, explained and said with its remedy; and nothing else is.

use nix::errno::Errno;
use tenantd::control::explain::{Explanation, Outcome, explain};
use tenantd::control::status::Status;
use tenantd::host::kernfs::Operation;
use tenantd::sim::{Fault, Load, SimHost};

use super::world::{World, legacy};

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
