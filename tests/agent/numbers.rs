//! Nodes, members and ancestors are counted in one sequence: none is ever taken for another one.

use tenantd::backend::claims;
use tenantd_control::report::status::Status;
use tenantd_control::why::explain::{self, Outcome};
use tenantd_policy::model::Mode;
use tenantd_sim::{Load, SimHost, SimKernel};
use tenantd_varlink::bridge::{Caller, Work};

use super::world::{World, legacy, snapshot, tenant};
use crate::util;

const ROOT: Caller = Caller { user: None, pid: 0 };
/// More than the cgroups that one tick of a service makes, or one step after it.
const NR_TENANTS: usize = 40;

/// Tenants that are weighed in place: each gets a cgroup of the agent's as a member when it is given a process.
fn in_place(names: impl IntoIterator<Item = usize>) -> String {
    let tenant = |n| format!("  t{n}: {{ match: {{ cgroup: /in/t{n} }} }}\n");
    let tenants: String = names.into_iter().map(tenant).collect();
    format!("tenants:\n{tenants}")
}

/// The host, with a process beside the tenants for each of them.
fn host(sim: SimHost, nr_tenants: usize) -> (World, Vec<u32>) {
    let mut kernel = SimKernel::new(sim);
    for number in 0..nr_tenants {
        kernel.make_cgroup(&format!("/in/t{number}")).unwrap();
    }
    kernel.make_cgroup("/beside").unwrap();
    let mut world = World::with(kernel, &in_place(0..nr_tenants));
    world.host.without_systemd();
    world.options.root = Some("/tenants".into());
    let pids = (0..nr_tenants).map(|_| world.spawn("/beside", Load::busy(1))).collect();
    (world, pids)
}

fn attach_all(world: &mut World, pids: &[u32]) {
    for (number, pid) in pids.iter().enumerate() {
        let (tenant, work) = (format!("t{number}"), Work::Processes(vec![*pid]));
        world.agent.as_mut().unwrap().attach_work(&tenant, &work, false, ROOT).unwrap();
    }
}

/// A tick as a service has it, with the work that it leaves over.
fn serve(world: &mut World) -> Status {
    let status = world.short_tick();
    finish(world);
    status
}

fn finish(world: &mut World) {
    let agent = world.agent.as_mut().unwrap();
    for _ in 0..1000 {
        if !agent.has_more_work() {
            return;
        }
        agent.continue_work();
    }
    panic!("the work never ends");
}

fn set_mode(world: &mut World, mode: Mode) {
    assert_eq!(world.agent.as_mut().unwrap().set_mode(mode).unwrap(), [""; 0]);
    finish(world);
}

fn reload(world: &mut World, yaml: &str) {
    let mode = if yaml.contains("mode:") { "" } else { "mode: enforce\n" };
    let policy = util::policy(&format!("version: 1\n{mode}{yaml}"));
    let rules = claims::rules(&policy);
    assert_eq!(world.agent.as_mut().unwrap().reload(policy, rules).unwrap(), [""; 0]);
    finish(world);
}

/// Every process is in the cgroup of its own tenant, which has its own width, and there are no findings.
fn check(world: &mut World, pids: &[u32], when: &str) {
    for _ in 0..3 {
        serve(world);
    }
    let status = serve(world);
    assert_eq!(status.findings, [""; 0], "{when}");
    for (number, pid) in pids.iter().enumerate() {
        let name = format!("t{number}");
        let place = world.host.with(|kernel| kernel.process_cgroup(*pid)).unwrap();
        assert_eq!(place, format!("/tenants/{name}"), "{when}");
        let told = world.state_dir().join("tenants").join(&name).join("dop");
        let told = std::fs::read_to_string(told).unwrap_or_default();
        let expected = tenant(&status, &name).dop.map(|dop| dop.to_string());
        assert_eq!(Some(told.trim()), expected.as_deref(), "{when}: {name}");
    }
    let told = std::fs::read_dir(world.state_dir().join("tenants")).unwrap().count();
    assert_eq!(told, pids.len(), "{when}: widths are told of tenants, not of their members");
}

#[test]
fn members_are_no_tenants_after_changes_of_mode_restorations_and_reloads() {
    for (sim, nr) in [(SimHost::default(), 1), (legacy(), 3), (SimHost::default(), NR_TENANTS)] {
        let (mut world, pids) = host(sim, nr);
        let before = snapshot(&world.host);
        world.start().unwrap();
        serve(&mut world);
        attach_all(&mut world, &pids);
        finish(&mut world);
        check(&mut world, &pids, "attached");
        set_mode(&mut world, Mode::Observe);
        serve(&mut world);
        set_mode(&mut world, Mode::Enforce);
        check(&mut world, &pids, "observe, then enforce");
        world.agent.as_mut().unwrap().put_all_back();
        finish(&mut world);
        set_mode(&mut world, Mode::Enforce);
        check(&mut world, &pids, "restore, then enforce");
        world.kill();
        assert_eq!(world.restore().failures, [""; 0]);
        world.start().unwrap();
        check(&mut world, &pids, "restored, and started again");
        let reversed = in_place((0..nr).rev());
        reload(&mut world, &reversed);
        check(&mut world, &pids, "a reload that reverses");
        reload(&mut world, &format!("mode: observe\n{reversed}"));
        serve(&mut world);
        reload(&mut world, &in_place(0..nr));
        check(&mut world, &pids, "reloads to observe and to enforce");
        assert_eq!(world.stop().failures, [""; 0]);
        util::assert_same(&before, &snapshot(&world.host), "stopped");
    }
}

/// A new tenant gets the number that a member had before: it gets nothing else of that.
#[test]
fn a_new_tenant_begins_without_the_counters_of_a_member() {
    let (mut world, pids) = host(SimHost::default(), 2);
    world.start().unwrap();
    serve(&mut world);
    attach_all(&mut world, &pids);
    (0..8).for_each(|_| drop(serve(&mut world)));
    world.host.with(|kernel| {
        (2..6).for_each(|number| kernel.make_cgroup(&format!("/in/t{number}")).unwrap());
    });
    reload(&mut world, &in_place(0..6));
    let status = serve(&mut world);
    for number in 0..6 {
        let of = tenant(&status, &format!("t{number}"));
        let used = of.cpu_usage_seconds.unwrap_or(0.0);
        assert_eq!(used > 1.0, number < 2, "{}: {used}", of.name);
    }
}

/// The effect of each tenant's weight, as an explanation has it.
fn outcomes(world: &World, status: &Status, tenants: &[&str]) -> Vec<Outcome> {
    let trace = world.agent.as_ref().unwrap().trace();
    let of = |tenant: &&str| {
        let values = explain::explain(trace, status, tenant).unwrap().values;
        values.into_iter().find(|value| value.path.ends_with("/cpu.weight")).unwrap().outcome
    };
    tenants.iter().map(of).collect()
}

/// What was found about one tenant stays that tenant's when a reload orders them in another way.
#[test]
fn a_reload_that_reverses_leaves_each_obstacle_to_its_tenant() {
    let mut world = World::new("tenants: { a: {}, b: {} }");
    world.host.with(|kernel| kernel.make_cgroup("/other").unwrap());
    world.spawn("/other", Load::busy(4));
    world.start().unwrap();
    world.tick();
    world.spawn("/a", Load::busy(8));
    let status = world.ticks(22);
    let expected = [Outcome::Ineffective, Outcome::Settled];
    assert_eq!(outcomes(&world, &status, &["a", "b"]), expected);
    reload(&mut world, "tenants: { b: {}, a: {} }");
    for _ in 0..3 {
        let status = world.tick();
        assert_eq!(outcomes(&world, &status, &["a", "b"]), expected, "{:?}", status.findings);
    }
}
