//! An explanation says what the files hold, and its reasons agree with the numbers beside them.

use nix::errno::Errno;
use tenantd_control::report::status::Status;
use tenantd_control::why::explain::{self, AllocationBound, Explanation, Outcome};
use tenantd_core::resource::{CPU, MEMORY};
use tenantd_host::kernfs::Operation;
use tenantd_sim::{Fault, Load, SimHost};
use tenantd_varlink::jobs::SubmitParameters;

use super::world::{GIB, MIB, World, legacy, tenant};

fn explain(world: &World, status: &Status, tenant: &str) -> Explanation {
    let trace = world.agent.as_ref().unwrap().trace();
    explain::explain(trace, status, tenant).unwrap_or_else(|| panic!("no {tenant}"))
}

fn value<'a>(explanation: &'a Explanation, file: &str) -> &'a explain::ValueStep {
    let found = explanation.values.iter().find(|value| value.path.ends_with(file));
    found.unwrap_or_else(|| panic!("no {file} in {:?}", explanation.values))
}

#[test]
fn the_chain_ends_in_what_the_files_hold() {
    let policy = "tenants:\n  a: { weight: 300, limit: { memory: 2GiB } }\n  b: { cpus: dop }\n  \
                  ci: { tenants: { x: {}, y: { weight: 300 } } }\n";
    let mut world = World::begin(policy);
    world.spawn("/a", Load::busy(8).with_working_set(100 * MIB));
    world.spawn("/b", Load::busy(8));
    world.spawn("/ci/x", Load::busy(1).with_working_set(GIB));
    for _ in 0..30 {
        let status = world.tick();
        for path in ["a", "b", "ci", "ci/x", "ci/y"] {
            let explanation = explain(&world, &status, path);
            assert_eq!((explanation.tick, &*explanation.tenant), (status.tick, path));
            assert!(!explanation.values.is_empty());
            for value in &explanation.values {
                let file = value.path.strip_prefix("/sys/fs/cgroup/").unwrap();
                let holds = world.file(file);
                match value.outcome {
                    Outcome::Written => assert_eq!(holds, value.wanted, "{file}"),
                    _ => assert_eq!(Some(&holds), value.held.as_ref(), "{file} {value:?}"),
                }
                assert!(!value.reason.is_empty() && !value.detail.is_empty(), "{value:?}");
            }
            // Two samples of a cgroup with somebody in it make a rate.
            assert!(explanation.usage.is_some() == (path != "ci") || status.tick < 4, "{path}");
        }
    }
}

/// The legacy file counts what happens in cgroups that a tenant made under names of its own.
#[test]
fn refaults_in_cgroups_that_a_tenant_made_are_counted() {
    for (host, tree) in [(SimHost::default(), ""), (legacy(), "memory/")] {
        let mut world = World::on(host, "tenants: { a: { limit: { memory: 64MiB } }, b: {} }");
        world.start().unwrap();
        world.ticks(2);
        world.host.with(|kernel| kernel.make_cgroup("/a/job")).unwrap();
        world.spawn("/a/job", Load::busy(1).with_hot_file(90 * MIB));
        let status = world.ticks(8);
        let refaults =
            |name| explain(&world, &status, name).usage.and_then(|it| it.refaults_per_sec);
        assert!(refaults("a") > Some(100.0), "{tree}: {:?}", refaults("a"));
        assert_eq!(refaults("b").unwrap_or(0.0), 0.0, "{tree}");
        if !tree.is_empty() {
            let own = world.file("memory/a/memory.stat");
            assert!(own.lines().any(|line| line == "workingset_refault_file 0"), "{own}");
        }
    }
}

#[test]
fn the_numbers_are_those_of_the_status() {
    let mut world = World::begin("tenants:\n  a: {}\n  b: { limit: { cpu: 1 } }\n");
    world.spawn("/a", Load::busy(16).with_working_set(GIB));
    world.spawn("/b", Load::busy(16));
    let status = world.ticks(10);
    for tenant in &status.tenants {
        let explanation = explain(&world, &status, &tenant.name);
        let (usage, demand) = (explanation.usage.unwrap(), explanation.demand.unwrap());
        assert_eq!(Some(usage.cpu_cores), tenant.usage[CPU]);
        assert_eq!(demand.amount[CPU], tenant.demand[CPU]);
        assert_eq!(explanation.allocation.amount[CPU], tenant.allocation[CPU]);
        assert_eq!(explanation.width.unwrap().dop, tenant.dop);
        let counter = |name: &str| {
            let found = explanation.sample.iter().find(|counter| counter.name == name).unwrap();
            found.now.unwrap() - found.before.unwrap()
        };
        let cores = counter("usage_usec") as f64 / 1e6 / explanation.elapsed_seconds.unwrap();
        assert!((cores - usage.cpu_cores).abs() < 1e-6);
        assert!(usage.reason.starts_with("pressed"), "{}", usage.reason);
    }
    assert_eq!(explain(&world, &status, "a").allocation.bound, AllocationBound::Level);
    assert_eq!(explain(&world, &status, "b").allocation.bound, AllocationBound::Limit);
}

/// Files are read every few ticks only: what they held says how old it is.
#[test]
fn what_a_file_holds_says_when_it_was_read() {
    let mut world = World::begin("tenants: { a: { limit: { memory: 1GiB } }, b: {} }");
    world.spawn("/a", Load::idle());
    let mut ages = Vec::new();
    for _ in 0..30 {
        let status = world.tick();
        let explanation = explain(&world, &status, "a");
        let max = value(&explanation, "memory.max");
        let age = max.held_seconds.unwrap();
        let detail = match age {
            0.0 => "the file holds it".to_string(),
            age => format!("the file held it {age} s ago, when it was read last"),
        };
        assert_eq!((max.outcome, &max.detail), (Outcome::Settled, &detail));
        ages.push(age);
    }
    let oldest = ages.iter().copied().fold(0.0, f64::max);
    assert!(ages.contains(&0.0) && oldest == 9.0, "{ages:?}");
}

#[test]
fn a_percentage_is_shown_with_what_it_comes_to() {
    let mut world = World::begin("tenants: { a: { limit: { memory: 50% } }, b: {} }");
    world.spawn("/a", Load::idle());
    let status = world.tick();
    let explanation = explain(&world, &status, "a");
    let of_machine = world.host.with(|kernel| kernel.host().memory_bytes) / 2;
    assert_eq!(explanation.allocation.limit[MEMORY], Some(of_machine as f64));
    let written: Vec<(&str, &str)> = explanation
        .allocation
        .written
        .iter()
        .map(|setting| (&*setting.key, &*setting.value))
        .collect();
    assert_eq!(written, [("limit.memory", "50%")]);
    let max = value(&explanation, "memory.max");
    assert_eq!(max.wanted, of_machine.to_string());
    assert_eq!(max.reason, "the policy's limit, 50% of the machine");
}

#[test]
fn a_refused_write_is_reported_with_its_next_retry() {
    let mut world = World::begin("tenants: { a: { weight: 300 }, b: {} }");
    world.ticks(2);
    world.spawn("/a", Load::busy(8));
    let refuse = Fault::matching(Operation::Write, "memory.low", Errno::EIO);
    world.host.inject(refuse);
    world.spawn("/b", Load::busy(8).with_working_set(GIB));
    let status = world.ticks(2);
    let explanation = explain(&world, &status, "b");
    let low = value(&explanation, "memory.low");
    assert_eq!(low.outcome, Outcome::Failed);
    assert!(low.detail.contains("tried again"), "{}", low.detail);
    world.host.heal();
    let status = world.ticks(70);
    assert_eq!(value(&explain(&world, &status, "b"), "memory.low").outcome, Outcome::Settled);
}

#[test]
fn a_lethal_limit_is_deferred_and_an_observer_only_plans() {
    let mut world = World::new("tenants: { a: { limit: { memory: 256MiB } }, b: {} }");
    world.host.with(|kernel| kernel.make_cgroup("/a")).unwrap();
    world.spawn("/a", Load::idle().with_working_set(GIB));
    world.start().unwrap();
    let status = world.ticks(3);
    let explanation = explain(&world, &status, "a");
    let max = value(&explanation, "memory.max");
    assert_eq!(max.outcome, Outcome::Deferred, "{max:?}");
    assert!(max.detail.contains("cannot be reclaimed"), "{}", max.detail);

    let mut world =
        World::on(SimHost::default(), "mode: observe\ntenants: { a: { weight: 300 }, b: {} }");
    world.host.with(|kernel| kernel.make_cgroup("/a")).unwrap();
    world.start().unwrap();
    let status = world.ticks(3);
    assert_eq!(value(&explain(&world, &status, "a"), "cpu.weight").outcome, Outcome::Planned);
    assert_eq!(value(&explain(&world, &status, "b"), "cpu.weight").outcome, Outcome::Missing);
}

#[test]
fn an_unknown_tenant_is_answered_with_similar_names() {
    let world = {
        let mut world = World::begin("tenants: { web: {}, ci: { tenants: { nightly: {} } } }");
        world.tick();
        world
    };
    let trace = world.agent.as_ref().unwrap().trace();
    assert!(explain::explain(trace, &Status::default(), "nigthly").is_none());
    assert_eq!(explain::names_near(trace, "nigthly", 1), ["ci/nightly"]);
    assert_eq!(explain::names_near(trace, "wbe", 1), ["web"]);
    assert_eq!(explain::names_near(trace, "", 9).len(), 3);
}

/// A job of one tenant has all slots, and one of another tenant waits for them. The third tenant gets its own share, and that
/// is no shortfall.
#[test]
fn what_is_lent_to_jobs_is_named_and_is_no_shortfall() {
    let mut world =
        World::on(SimHost { cpus: 4, ..SimHost::default() }, "tenants: { a: {}, b: {}, c: {} }");
    world.add_session();
    world.start().unwrap();
    world.tick();
    world.spawn("/c", Load::busy(8));
    for (tenant, load) in [("a", Load::busy(8)), ("b", Load::idle())] {
        let parameters = SubmitParameters {
            tenant: Some(tenant.into()),
            dop: Some(4),
            ..SubmitParameters::default()
        };
        world.submit(load, parameters, 0.0);
    }
    let mut status = world.tick();
    for second in 1..=30 {
        world.agent.as_mut().unwrap().tend_jobs(true, f64::from(second));
        status = world.tick();
    }
    let c = tenant(&status, "c");
    let used = c.usage[CPU].unwrap();
    assert!((used - 4.0 / 3.0).abs() < 0.1 && c.allocation[CPU] > 1.5, "{c:?}");
    assert!(
        c.share_error.unwrap() < 0.03 && c.reasons.is_empty() && c.starved_seconds == 0.0,
        "{c:?}"
    );
    for (tenant, words) in [
        ("a", "and by 1.33 CPUs of tenants whose jobs wait for its slots"),
        (
            "c",
            "1.33 of them are due beside siblings with credit, or with jobs that others wait for",
        ),
    ] {
        let reason = &value(&explain(&world, &status, tenant), "cpu.weight").reason.clone();
        assert!(reason.contains(words), "{reason}");
    }
}
