//! Another program that keeps overwriting a value of the agent.

use tenantd_control::report::status::Status;
use tenantd_control::state::contest::{PAUSE_TICKS, ROUNDS, WINDOW_TICKS};
use tenantd_control::words::finding::{Code, Severity};
use tenantd_policy::model::Mode;
use tenantd_sim::Load;

use super::world::{World, tenant};
use crate::util;

const AB: &str = "tenants: { a: { weight: 100 }, b: { weight: 300 } }";
const FILE: &str = "a/cpu.weight";
const THEIRS: &str = "9999";

fn contested() -> World {
    let mut world = World::begin(AB);
    world.spawn("/a", Load::busy(4));
    world.spawn("/b", Load::busy(4));
    world.ticks(20);
    world
}

/// Ticks with another program that writes before each of them; the status of the last.
fn fight(world: &mut World, nr_ticks: u64) -> Status {
    (0..nr_ticks)
        .map(|_| {
            world.write(FILE, THEIRS);
            world.tick()
        })
        .last()
        .unwrap()
}

/// The number of times that the file is given another value than the other program's in so many ticks of a fight.
fn nr_writes(world: &mut World, nr_ticks: u64) -> usize {
    (0..nr_ticks)
        .filter(|_| {
            fight(world, 1);
            world.file(FILE) != THEIRS
        })
        .count()
}

/// A fight until the agent gives way.
fn lost() -> (World, String) {
    let mut world = contested();
    let ours = world.file(FILE);
    let status = fight(&mut world, 60);
    assert_eq!((status.nr_yields, status.nr_contested), (1, 1), "{:?}", status.findings);
    (world, ours)
}

#[test]
fn a_value_that_is_overwritten_again_and_again_is_left_alone_for_a_time() {
    let mut world = contested();
    assert_eq!(nr_writes(&mut world, 60), ROUNDS - 1);
    let status = world.tick();
    assert_eq!((status.nr_drift, status.nr_yields, status.nr_contested), (5, 1, 1));
    let finding = status.finding_records.iter().find(|finding| finding.code == Code::Contested);
    let finding = finding.unwrap();
    assert_eq!((finding.severity, finding.tenant.as_deref()), (Severity::Error, Some("a")));
    assert!(finding.message.contains("cpu.weight"), "{finding}");
    assert!(finding.remedy.as_ref().unwrap().contains("tenantctl mode enforce"), "{finding}");
    assert!(status.actions.is_empty(), "{:?}", status.actions);
    // The other values of the tenant, and those of the others, stay the agent's.
    world.write("b/cpu.weight", "7777");
    world.ticks(10);
    assert_ne!(world.file("b/cpu.weight"), "7777");
    // Once more after the pause, and again after one that is twice as long.
    assert_eq!(nr_writes(&mut world, PAUSE_TICKS + 10), 1);
    let status = world.tick();
    assert_eq!((status.nr_yields, status.nr_contested), (2, 1));
    assert_eq!(nr_writes(&mut world, 2 * PAUSE_TICKS - 40), 0);
    assert_eq!(nr_writes(&mut world, 60), 1);
}

#[test]
fn who_gives_up_is_overwritten_after_the_pause_and_forgotten() {
    let (mut world, ours) = lost();
    let status = world.ticks(PAUSE_TICKS as usize + 10);
    assert_eq!((world.file(FILE), status.nr_contested), (ours, 0));
    assert_eq!(status.findings, [""; 0]);
    world.ticks(WINDOW_TICKS as usize);
    // The next fight begins from the start.
    assert_eq!(nr_writes(&mut world, 60), ROUNDS - 1);
}

#[test]
fn a_reload_and_the_mode_that_is_on_already_try_at_once() {
    for reloads in [true, false] {
        let (mut world, ours) = lost();
        let agent = world.agent.as_mut().unwrap();
        if reloads {
            let policy = util::policy(&format!("version: 1\nmode: enforce\n{AB}"));
            assert_eq!(agent.reload(policy, Vec::new()).unwrap(), [""; 0]);
        } else {
            assert_eq!(agent.set_mode(Mode::Enforce).unwrap(), [""; 0])
        }
        let status = world.tick();
        assert_eq!((world.file(FILE), status.nr_contested), (ours, 0));
        assert_eq!(fight(&mut world, 10).nr_yields, 2);
    }
}

#[test]
fn a_value_that_is_lost_before_it_is_read_back_is_left_alone_too() {
    let mut world = contested();
    world.host.overwrite_writes(FILE, THEIRS);
    world.write(FILE, THEIRS);
    let status = world.ticks(40);
    assert_eq!((status.nr_yields, status.nr_contested), (1, 1), "{:?}", status.findings);
    let codes: Vec<Code> = status.finding_records.iter().map(|finding| finding.code).collect();
    assert_eq!(codes, [Code::Contested]);
}

#[test]
fn what_is_left_alone_is_a_reason_for_what_a_tenant_lacks_and_is_put_back_at_the_end() {
    let mut world = World::new(AB);
    world.host.with(|kernel| kernel.make_cgroup("/a")).unwrap();
    world.write(FILE, "123");
    world.start().unwrap();
    world.tick();
    world.spawn("/a", Load::busy(4));
    world.spawn("/b", Load::busy(4));
    world.ticks(20);
    for _ in 0..100 {
        world.write(FILE, "1");
        world.tick();
    }
    let status = world.tick();
    let reasons = &tenant(&status, "a").reasons;
    let text = format!("{reasons:?}");
    assert!(text.contains("is left to another program that keeps overwriting it"), "{text}");
    world.stop();
    assert_eq!(world.file(FILE), "123");
}

#[test]
fn mode_observe_loses_no_rounds() {
    let mut world = World::new(&format!("mode: observe\n{AB}"));
    world.host.with(|kernel| kernel.make_cgroup("/a")).unwrap();
    world.start().unwrap();
    for round in 0..100 {
        world.write(FILE, &(100 + round % 2).to_string());
        assert_eq!(world.tick().nr_yields, 0);
    }
}
