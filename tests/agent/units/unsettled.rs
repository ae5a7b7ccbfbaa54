//! Orders that were refused, answered late, or overtaken: what is recorded of a unit is what it held before it was set.

use std::collections::BTreeMap;

use nix::errno::Errno;
use tenantd_host::systemd::{Order, Property, PropertyValue, Setting};
use tenantd_sim::{Fault, Load, SimUnit, UnitFault};

use super::{WEB, number, services, whole};
use crate::agent::world::{MIB, World};
use crate::util;

fn fail(world: &World, fault: Option<UnitFault>) {
    world.host.systemd(|systemd, _| systemd.fault = fault);
}

/// A host with web.service, and a policy that accepts what others set and has this one tenant.
fn accepting(limit: &str) -> World {
    let mut world = World::new("tenants: { web: {} }");
    world.policy = accepting_policy(limit);
    world.host.systemd(|systemd, kernel| {
        systemd.add(kernel, "web.service", "/system.slice/web.service");
    });
    world
}

fn accepting_policy(limit: &str) -> tenantd_policy::Policy {
    util::policy(&format!(
        "version: 1\nmode: enforce\ncontrol: {{ on_drift: accept }}\n\
         tenants: {{ web: {{ match: {{ unit: web.service }}, limit: {{ {limit} }} }} }}"
    ))
}

/// Sets a property of `web.service` at run time, as an administrator does.
fn set(world: &World, theirs: &Setting) {
    world.host.systemd(|systemd, kernel| systemd.set_property(kernel, "web.service", theirs));
}

fn drop_ins(world: &World) -> BTreeMap<Property, PropertyValue> {
    whole(world).1["web.service"].drop_ins.clone()
}

/// A question that is on its way when the agent stops may be the same as the first one of the restoration.
#[test]
fn a_bus_that_is_back_is_not_taken_for_the_one_that_was_away() {
    // One of them is the first to be asked for.
    for (unit, nr_ticks) in
        ["web.service", "db.service"].iter().flat_map(|u| (1..8).map(move |n| (u, n)))
    {
        let mut world = services("control: { ancestors: leave }\n");
        let before = whole(&world).1[*unit].drop_ins.clone();
        world.ticks(4);
        fail(&world, Some(UnitFault::Away));
        world.host.systemd(|systemd, kernel| systemd.restart(kernel, unit));
        world.ticks(nr_ticks);
        fail(&world, None);
        assert_eq!(world.stop().failures, [""; 0], "{unit}: away for {nr_ticks} ticks");
        assert_eq!(whole(&world).1[*unit].drop_ins, before, "{unit}");
    }
}

/// Until something is set of a unit, it is its administrator's.
#[test]
fn what_is_set_after_systemd_refused_us_is_what_the_unit_held() {
    let mut world = services("");
    let before = whole(&world).1["db.service"].drop_ins.clone();
    fail(&world, Some(UnitFault::Denied));
    world.ticks(4);
    let orders = world.host.systemd(|systemd, _| std::mem::take(&mut systemd.orders));
    let is_set = |order: &Order| matches!(order, Order::Set { .. });
    assert!(!orders.iter().any(is_set), "denied: {orders:?}");
    let theirs = number(Property::CpuWeight, 555);
    set(&world, &theirs);
    fail(&world, None);
    let stopped_at_once = world.stop();
    assert_eq!(stopped_at_once.failures, [""; 0]);
    assert_eq!(drop_ins(&world), [(theirs.property, theirs.value.clone())].into());
    assert_eq!(whole(&world).1["db.service"].drop_ins, before);
}

/// The same, where it is set in the end.
#[test]
fn what_is_recorded_is_what_was_there_when_systemd_took_the_order() {
    let mut world = services("");
    fail(&world, Some(UnitFault::Denied));
    world.ticks(4);
    let theirs = number(Property::CpuWeight, 555);
    set(&world, &theirs);
    fail(&world, None);
    world.ticks(40);
    assert_ne!(world.file(&format!("{WEB}/cpu.weight")), "555");
    assert_eq!(world.stop().failures, [""; 0]);
    assert_eq!(world.file(&format!("{WEB}/cpu.weight")), "555");
    let web = whole(&world).1["web.service"].clone();
    assert_eq!(web.drop_ins, [(theirs.property, theirs.value)].into());
}

/// What was asked for under the old policy concerns nodes with other numbers by now.
#[test]
fn an_order_is_refused_after_a_reload_that_removed_a_tenant() {
    let policy = |tenants: &[&str]| {
        let control = "control: { ancestors: leave }";
        util::policy(&format!(
            "version: 1\nmode: enforce\n{control}\ntenants:\n{}",
            tenants.concat()
        ))
    };
    let one = "  one: { match: { unit: web.service } }\n";
    let two = "  two: { match: { unit: db.service }, limit: { cpu: 1 } }\n";
    for nr_ticks in 1..8 {
        let mut world = services("");
        world.stop();
        world.policy = policy(&[one, two]);
        world.start().unwrap();
        fail(&world, Some(UnitFault::Denied));
        world.ticks(nr_ticks);
        world.agent.as_mut().unwrap().reload(policy(&[two]), Vec::new()).unwrap();
        assert_eq!(world.tick().tenants.len(), 1);
        fail(&world, None);
        world.ticks(40);
        let limit = world.file("system.slice/db.service/cpu.max");
        assert_eq!(limit, "100000 100000", "reloaded after {nr_ticks} ticks");
        assert_eq!(world.stop().failures, [""; 0]);
    }
}

/// The file says what was written into it at once; systemd knows better, and writes what it knows with the next order.
#[test]
fn less_protection_that_was_refused_is_asked_for_again() {
    for fault in [UnitFault::Denied, UnitFault::Away] {
        let policy = |weight: u32, guarantee: &str| {
            util::policy(&format!(
                "version: 1\nmode: enforce\ncontrol: {{ on_drift: accept, ancestors: leave }}\ntenants:\n  \
                 web: {{ match: {{ unit: web.service }} }}\n  \
                 db: {{ match: {{ unit: db.service }}, weight: {weight}, guarantee: {{ memory: {guarantee} }} }}"
            ))
        };
        let mut world = services("control: { ancestors: leave }\n");
        world.stop();
        let before = whole(&world).1["db.service"].drop_ins.clone();
        world.policy = policy(100, "64MiB");
        world.start().unwrap();
        world.ticks(6);
        let (min, low) =
            ("system.slice/db.service/memory.min", "system.slice/db.service/memory.low");
        assert_ne!(world.file(min), "0");
        fail(&world, Some(fault));
        world.agent.as_mut().unwrap().reload(policy(100, "1MiB"), Vec::new()).unwrap();
        world.ticks(3);
        let relieved = world.file(min);
        fail(&world, None);
        world.agent.as_mut().unwrap().reload(policy(700, "1MiB"), Vec::new()).unwrap();
        let status = world.ticks(100);
        assert_eq!(world.file(min), relieved, "{fault:?}: {:?}", status.findings);
        assert_eq!(world.stop().failures, [""; 0]);
        assert_eq!(whole(&world).1["db.service"].drop_ins, before, "{fault:?}");
        assert_eq!((world.file(min), world.file(low)), ("0".into(), (9 * MIB).to_string()));
    }
}

/// A lowered protection is in its file before systemd is asked, so that its file does not show whether systemd refused it.
#[test]
fn a_lost_answer_leaves_the_drop_in_of_an_earlier_agent_owed() {
    let policy = |limit: &str, guarantee: &str| {
        util::policy(&format!(
            "version: 1\nmode: enforce\ncontrol: {{ on_drift: accept, ancestors: leave }}\ntenants:\n  \
             web: {{ match: {{ unit: web.service }}{limit} }}\n  \
             db: {{ match: {{ unit: db.service }}, guarantee: {{ memory: {guarantee} }} }}"
        ))
    };
    let limit = ", limit: { cpu: 1 }";
    let mut world = services("control: { ancestors: leave }\n");
    world.stop();
    let before = whole(&world).1["db.service"].drop_ins.clone();
    world.policy = policy(limit, "64MiB");
    world.start().unwrap();
    world.ticks(6);
    fail(&world, Some(UnitFault::Denied));
    world.stop();
    world.start().unwrap();
    world.ticks(6);
    world.agent.as_mut().unwrap().reload(policy(limit, "1MiB"), Vec::new()).unwrap();
    world.tick();
    let min = "system.slice/db.service/memory.min";
    assert_eq!(world.file(min), MIB.to_string());
    // The limit is restored by a connection of its own, and the answer is lost.
    world.agent.as_mut().unwrap().reload(policy("", "1MiB"), Vec::new()).unwrap();
    world.write(min, &(2 * MIB).to_string());
    assert_eq!(world.tick().nr_drift, 1);
    fail(&world, None);
    assert_eq!(world.stop().failures, [""; 0]);
    assert_eq!(whole(&world).1["db.service"].drop_ins, before);
}

/// What systemd said of a unit may be of the one before it, until its cgroup is open.
#[test]
fn a_slice_that_is_replaced_before_it_is_opened_is_given_back() {
    for nr_ticks in 1..6 {
        // Units elsewhere, so that the slice above is weighed against theirs.
        let mut world = services("");
        world.stop();
        let web = "web: { match: { unit: web.service } }";
        world.policy = util::policy(&format!(
            "version: 1\nmode: enforce\ntenants: {{ {web}, a: {{ owner: systemd }} }}"
        ));
        world.start().unwrap();
        world.ticks(nr_ticks);
        world.host.systemd(|systemd, kernel| systemd.stop(kernel, "tenants.slice"));
        world.tick();
        assert_eq!(world.stop().failures, [""; 0]);
        let left = whole(&world).1;
        let is_left = |(name, unit): &(&String, &SimUnit)| {
            name.starts_with("tenants") && !unit.drop_ins.is_empty()
        };
        let left: Vec<_> = left.iter().filter(is_left).collect();
        assert!(left.is_empty(), "stopped after {nr_ticks} ticks: {left:#?}");
    }
}

/// An administrator's value in the file stays, and so does what they had set at run time before.
#[test]
fn our_drop_in_gets_back_its_text_where_an_administrator_wrote_the_file() {
    let mut world = accepting("memory: 600MiB");
    let theirs = number(Property::MemoryMax, 900 * MIB);
    set(&world, &theirs);
    let drop_in =
        |world: &World| whole(world).1["web.service"].drop_ins.get(&Property::MemoryMax).cloned();
    world.start().unwrap();
    world.ticks(4);
    assert_eq!(drop_in(&world), Some(number(Property::MemoryMax, 600 * MIB).value));
    world.write(&format!("{WEB}/memory.max"), &(700 * MIB).to_string());
    assert_eq!(world.ticks(4).nr_drift, 1);
    // What cannot be done now is done later.
    fail(&world, Some(UnitFault::Away));
    world.stop();
    fail(&world, None);
    assert_eq!(world.restore().failures, [""; 0]);
    assert_eq!(drop_in(&world), Some(theirs.value));
    assert_eq!(world.file(&format!("{WEB}/memory.max")), (700 * MIB).to_string());
    assert!(!world.state_dir().join("journal").exists());
}

/// Sets a property at run time, and overrides the drop-in as `systemctl edit` does.
fn set_and_hide(world: &World, theirs: &Setting) {
    world.host.systemd(|systemd, kernel| {
        systemd.set_property(kernel, "web.service", theirs);
        let web = systemd.units.get_mut("web.service").unwrap();
        web.overrides.insert(theirs.property, theirs.property.unset());
        systemd.reload();
        systemd.restore_files(kernel, "web.service");
    });
}

/// A value that systemd refused was never set: a drop-in with this value is an administrator's.
#[test]
fn a_drop_in_with_a_refused_value_stays() {
    for nr_ticks in 4..12 {
        let mut world = accepting("cpu: 0.5");
        let theirs = number(Property::CpuQuotaPerSecUsec, 500_000);
        set_and_hide(&world, &theirs);
        fail(&world, Some(UnitFault::Denied));
        world.start().unwrap();
        world.ticks(nr_ticks);
        world.write(&format!("{WEB}/cpu.max"), "70000 100000");
        assert_eq!(world.tick().nr_drift, 1);
        fail(&world, None);
        assert_eq!(world.stop().failures, [""; 0]);
        assert_eq!(drop_ins(&world), [(theirs.property, theirs.value)].into(), "{nr_ticks} ticks");
        assert_eq!(world.file(&format!("{WEB}/cpu.max")), "70000 100000");
    }
}

/// A refused value does not arrive late, although an earlier one was set.
#[test]
fn a_refused_value_that_another_program_sets_is_drift() {
    let mut world = accepting("memory: 600MiB");
    world.start().unwrap();
    world.ticks(4);
    fail(&world, Some(UnitFault::Denied));
    let agent = world.agent.as_mut().unwrap();
    agent.reload(accepting_policy("memory: 700MiB"), Vec::new()).unwrap();
    world.ticks(6);
    let theirs = number(Property::MemoryMax, 700 * MIB);
    set(&world, &theirs);
    assert_eq!(world.tick().nr_drift, 1);
    fail(&world, None);
    assert_eq!(world.stop().failures, [""; 0]);
    assert_eq!(drop_ins(&world), [(theirs.property, theirs.value)].into());
}

fn begin_transient(world: &World) {
    world.host.systemd(|systemd, kernel| {
        systemd.add_transient("web.service", "/system.slice/web.service");
        systemd.start(kernel, "web.service");
    });
}

fn begin_next_life(world: &mut World) {
    world.host.systemd(|systemd, kernel| systemd.stop(kernel, "web.service"));
    world.ticks(2);
    begin_transient(world);
}

fn accepting_transient(limit: &str) -> World {
    let mut world = World::new("tenants: { web: {} }");
    world.policy = accepting_policy(limit);
    begin_transient(&world);
    world.start().unwrap();
    world.ticks(6);
    world
}

/// Settings of a transient unit end with it: the agent never set the next unit of this name.
#[test]
fn a_drop_in_with_a_value_of_an_earlier_life_stays() {
    for nr_ticks in 4..12 {
        let mut world = accepting_transient("cpu: 0.5");
        assert_eq!(world.file(&format!("{WEB}/cpu.max")), "50000 100000");
        begin_next_life(&mut world);
        let theirs = number(Property::CpuQuotaPerSecUsec, 500_000);
        set_and_hide(&world, &theirs);
        fail(&world, Some(UnitFault::Denied));
        world.ticks(nr_ticks);
        world.write(&format!("{WEB}/cpu.max"), "70000 100000");
        assert_eq!(world.tick().nr_drift, 1);
        fail(&world, None);
        assert_eq!(world.stop().failures, [""; 0]);
        assert_eq!(drop_ins(&world), [(theirs.property, theirs.value)].into(), "{nr_ticks} ticks");
    }
}

/// A value that the policy leaves to an administrator ends with the life of a transient unit, as their value does.
#[test]
fn drift_that_was_accepted_in_an_earlier_life_is_not_left_to_others_in_the_next() {
    let mut world = accepting_transient("cpu: 0.5");
    let theirs = number(Property::CpuQuotaPerSecUsec, 3_000_000);
    set(&world, &theirs);
    assert_eq!(world.ticks(4).nr_drift, 1);
    begin_next_life(&mut world);
    world.ticks(6);
    assert_eq!(world.file(&format!("{WEB}/cpu.max")), "50000 100000");
    assert_eq!(world.stop().failures, [""; 0]);
}

/// A record of accepted drift is void in the next life of a transient unit.
#[test]
fn drift_that_was_accepted_in_an_earlier_life_concerns_no_later_drop_in() {
    for is_killed in [false, true] {
        let mut world = accepting_transient("cpu: 0.5");
        set(&world, &number(Property::CpuQuotaPerSecUsec, 3_000_000));
        assert_eq!(world.ticks(4).nr_drift, 1);
        begin_next_life(&mut world);
        let theirs = number(Property::CpuQuotaPerSecUsec, 500_000);
        set(&world, &theirs);
        if !is_killed {
            world.ticks(6);
        }
        assert_eq!(world.end(is_killed).failures, [""; 0]);
        assert_eq!(
            drop_ins(&world).get(&theirs.property),
            Some(&theirs.value),
            "killed: {is_killed}"
        );
        assert!(!world.state_dir().join("journal").exists());
    }
}

/// An agent that sets what the one before left to somebody else gives it back like everything else.
#[test]
fn what_an_earlier_agent_left_to_others_is_given_back_once_it_is_set_again() {
    let mut world = accepting("memory: 600MiB");
    world.start().unwrap();
    world.ticks(4);
    world.write(&format!("{WEB}/memory.max"), &(700 * MIB).to_string());
    assert_eq!(world.ticks(4).nr_drift, 1);
    world.kill();
    fail(&world, Some(UnitFault::Away));
    world.policy = accepting_policy("memory: 500MiB");
    world.start().unwrap();
    fail(&world, None);
    world.ticks(40);
    let ours = number(Property::MemoryMax, 500 * MIB);
    assert_eq!(drop_ins(&world).get(&Property::MemoryMax), Some(&ours.value));
    assert_eq!(world.stop().failures, [""; 0]);
    assert_eq!(drop_ins(&world), [].into());
    assert_eq!(world.file(&format!("{WEB}/memory.max")), "max");
}

/// The same, where it is left to somebody else before this agent has set it.
#[test]
fn what_an_earlier_agent_set_is_given_back_by_one_that_left_it_to_others() {
    let mut world = accepting("memory: 600MiB");
    world.start().unwrap();
    world.ticks(4);
    world.kill();
    fail(&world, Some(UnitFault::Away));
    world.start().unwrap();
    fail(&world, None);
    world.ticks(4);
    world.write(&format!("{WEB}/memory.max"), &(700 * MIB).to_string());
    assert_eq!(world.ticks(4).nr_drift, 1);
    assert_eq!(world.stop().failures, [""; 0]);
    assert_eq!(drop_ins(&world), [].into());
}

/// What could not be read is neither empty nor in use.
#[test]
fn a_slice_is_stopped_in_the_end_whichever_read_failed() {
    for call in 0.. {
        let mut world = World::new("tenants: { a: { owner: systemd } }");
        world.start().unwrap();
        world.ticks(4);
        let from = world.host.nr_calls();
        world.host.inject(Fault::at_call(from + call, Errno::EIO));
        world.stop();
        let nr_calls = world.host.nr_calls() - from;
        world.host.heal();
        if world.state_dir().join("journal").exists() {
            assert_eq!(world.restore().failures, [""; 0], "call {call}");
        }
        let left = whole(&world).1;
        assert!(!left.contains_key("tenants-a.slice"), "call {call}: {left:#?}");
        if call > nr_calls {
            break;
        }
    }
}

/// The kernel gives the children of a cgroup with processes no controllers, whoever asks for them.
#[test]
fn a_slice_below_one_with_processes_is_reported() {
    let mut world = World::new("tenants: { a: { owner: systemd, limit: { memory: 64MiB } } }");
    world.host.systemd(|systemd, kernel| systemd.add(kernel, "tenants.slice", "/tenants.slice"));
    world.spawn("/tenants.slice", Load::busy(1));
    world.start().unwrap();
    let status = world.ticks(20);
    assert!(status.findings.iter().any(|finding| finding.contains("memory.")), "{status:?}");
    assert_eq!(world.stop().failures, [""; 0]);
}
