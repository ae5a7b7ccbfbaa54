//! SIGKILL at every point of a life: the journal alone puts everything back.

use super::story::{
    ADOPTED, DEEP, LEGACY, MADE, PINNED, PINNED_LEGACY, SERVICE, Story, leave, play,
};
use super::world::{World, assert_same, snapshot};
use tenantd::sim::Load;

/// Tells `story` once for each of every `stride` calls, right before which the agent dies, then lets `revive`
/// bring the host in order.
fn die_at_any_call(story: &Story, stride: usize, revive: fn(&mut World)) {
    let mut world = (story.begin)();
    play(&mut world);
    world.stop();
    let all = world.host.nr_calls();
    for call in (0..all).step_by(stride) {
        let context = format!("{}: killed before call {call}", story.name);
        let mut world = (story.begin)();
        let before = snapshot(&world.host);
        let host = world.host.clone();
        let life = host.until_death(call, || {
            play(&mut world);
            world.stop();
        });
        assert!(life.is_none(), "{context}: it lived on");
        world.kill();
        revive(&mut world);
        // What the story started is found by its absence before.
        let born: Vec<u32> = world.host.with(|kernel| kernel.pids());
        let pids = story_pids(story);
        leave(&world, &born.into_iter().filter(|pid| !pids.contains(pid)).collect::<Vec<_>>());
        assert_same(&before, &snapshot(&world.host), &context);
        assert!(!world.state_dir().join("journal").exists(), "{context}: a journal is left");
    }
}

/// The processes that are there when a story begins.
fn story_pids(story: &Story) -> Vec<u32> {
    (story.begin)().host.with(|kernel| kernel.pids())
}

fn restore(world: &mut World) {
    assert_eq!(world.restore().failures, [""; 0]);
}

fn start_anew_and_stop(world: &mut World) {
    world.start().unwrap();
    world.ticks(2);
    assert_eq!(world.stop().failures, [""; 0]);
}

#[test]
fn a_restore_follows_a_kill_at_any_call_where_tenants_are_made() {
    die_at_any_call(&MADE, 1, restore);
}

#[test]
fn a_restore_follows_a_kill_at_any_call_in_a_service() {
    die_at_any_call(&SERVICE, 1, restore);
}

#[test]
fn a_restore_follows_a_kill_at_any_call_where_tenants_are_adopted() {
    die_at_any_call(&ADOPTED, 1, restore);
}

#[test]
fn a_restore_follows_a_kill_at_any_call_on_a_legacy_host() {
    die_at_any_call(&LEGACY, 1, restore);
}

#[test]
fn a_restore_follows_a_kill_at_any_call_where_tenants_are_pinned() {
    die_at_any_call(&PINNED, 1, restore);
    die_at_any_call(&PINNED_LEGACY, 2, restore);
}

#[test]
fn the_next_agent_takes_up_what_a_killed_one_left() {
    for story in [&DEEP, &ADOPTED, &LEGACY] {
        die_at_any_call(story, 3, start_anew_and_stop);
    }
}

#[test]
fn a_restore_that_is_killed_itself_is_done_by_the_next() {
    let mut begin = 0;
    loop {
        let mut world = (ADOPTED.begin)();
        let before = snapshot(&world.host);
        let born = play(&mut world);
        world.kill();
        let (host, calls) = (world.host.clone(), world.host.nr_calls());
        let died = host.until_death(calls + begin, || world.restore()).is_none();
        if died {
            restore(&mut world);
        }
        leave(&world, &born);
        assert_same(&before, &snapshot(&world.host), &format!("killed {begin} calls into it"));
        if !died {
            break;
        }
        begin += 1;
    }
    assert!(begin > 20, "{begin} calls restore nothing");
}

#[test]
fn a_restore_does_nothing_twice() {
    let mut world = (ADOPTED.begin)();
    let born = play(&mut world);
    world.kill();
    let first = world.restore();
    assert!(first.nr_files > 0 && first.nr_processes > 0 && first.nr_cgroups > 0, "{first:?}");
    leave(&world, &born);
    world.host.take_changes();
    let again = world.restore();
    assert_eq!((again, world.host.take_changes()), (Default::default(), vec![]));
}

#[test]
fn what_a_boot_ended_is_not_put_back() {
    let mut world = World::begin("tenants: { a: { limit: { cpu: 1 } } }");
    world.kill();
    world.host.reboot();
    world.host.take_changes();
    world.start().unwrap();
    let changes = world.host.take_changes();
    // Writing nothing is how a start tries whether it may write.
    assert!(changes.iter().all(|call| call.value.as_deref() == Some("")), "{changes:?}");
}

#[test]
fn on_exit_keep_leaves_values_and_a_later_restore_takes_them_back() {
    let mut world = World::new("control: { on_exit: keep }\ntenants: { a: { weight: 7 }, b: {} }");
    let before = snapshot(&world.host);
    world.start().unwrap();
    world.tick();
    let pid = world.spawn("/a", Load::busy(1));
    world.ticks(3);
    let kept = world.file("a/cpu.weight");
    assert_ne!(kept, "100");
    world.stop();
    assert_eq!(world.file("a/cpu.weight"), kept);
    restore(&mut world);
    leave(&world, &[pid]);
    assert_same(&before, &snapshot(&world.host), "kept, then restored");
}
