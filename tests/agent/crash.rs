//! SIGKILL at every point of a life: the journal alone puts everything back.

use super::story::{
    ADOPTED, DEEP, IN_PLACE, IN_PLACE_LEGACY, LEGACY, MADE, PINNED, PINNED_LEGACY, SERVICE, Story,
    leave, play,
};
use super::world::{Snapshot, World, assert_same, snapshot};
use tenantd_sim::Load;

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
fn a_restore_follows_a_kill_at_any_call_where_tenants_are_in_place() {
    die_at_any_call(&IN_PLACE, 1, restore);
    die_at_any_call(&IN_PLACE_LEGACY, 2, restore);
}

#[test]
fn the_next_agent_continues_after_a_kill() {
    for story in [&DEEP, &ADOPTED, &LEGACY, &IN_PLACE] {
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
fn a_second_restore_does_nothing() {
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
fn values_of_an_earlier_boot_are_not_restored() {
    let mut world = World::begin("tenants: { a: { limit: { cpu: 1 } } }");
    world.kill();
    world.host.reboot();
    world.host.take_changes();
    world.start().unwrap();
    let changes = world.host.take_changes();
    // Writing nothing is how a start tries whether it may write.
    assert!(changes.iter().all(|call| call.value.as_deref() == Some("")), "{changes:?}");
}

/// An agent that steers and is told to keep; what the host was before it, and a process that it looks after.
fn kept() -> (World, Snapshot, u32) {
    let mut world = World::new("control: { on_exit: keep }\ntenants: { a: { weight: 7 }, b: {} }");
    let before = snapshot(&world.host);
    world.start().unwrap();
    world.tick();
    let pid = world.spawn("/a", Load::busy(1));
    world.ticks(3);
    assert_ne!(world.file("a/cpu.weight"), "100");
    (world, before, pid)
}

#[test]
fn on_exit_keep_leaves_values_and_a_later_restore_takes_them_back() {
    let (mut world, before, pid) = kept();
    let weight = world.file("a/cpu.weight");
    world.stop();
    assert_eq!(world.file("a/cpu.weight"), weight);
    restore(&mut world);
    leave(&world, &[pid]);
    assert_same(&before, &snapshot(&world.host), "kept, then restored");
}

#[test]
fn what_was_kept_on_purpose_outlives_what_follows_every_stop() {
    let (mut world, before, pid) = kept();
    world.stop();
    let left = snapshot(&world.host);
    for _ in 0..2 {
        assert_eq!(world.restore_unless_kept(), Default::default());
        assert_same(&left, &snapshot(&world.host), "kept");
    }
    // The next agent begins anew over it; if that one is killed, nothing is meant to stay.
    world.start().unwrap();
    world.ticks(3);
    assert_eq!(world.file("a/cpu.weight"), left["/sys/fs/cgroup/a/cpu.weight"].trim_end());
    world.kill();
    assert_eq!(world.restore_unless_kept().failures, [""; 0]);
    leave(&world, &[pid]);
    assert_same(&before, &snapshot(&world.host), "killed");
}

#[test]
fn a_kill_during_the_restore_of_kept_values_is_a_kill() {
    let mut call = 0;
    loop {
        let (mut world, before, pid) = kept();
        world.stop();
        let left = snapshot(&world.host);
        let (host, calls) = (world.host.clone(), world.host.nr_calls());
        let died = host.until_death(calls + call, || world.start().unwrap()).is_none();
        world.kill();
        world.restore_unless_kept();
        // All of it, where nothing was begun yet, or nothing.
        if snapshot(&world.host) != left {
            leave(&world, &[pid]);
            assert_same(&before, &snapshot(&world.host), &format!("killed {call} calls into it"));
        }
        if !died {
            break;
        }
        call += 1;
    }
    assert!(call > 20, "{call} calls begin nothing");
}

#[test]
fn published_dop_files_of_a_killed_agent_are_removed() {
    let two = "tenants: { a: {}, b: {} }";
    let told = |world: &World| world.state_dir().join("tenants");
    let killed = || {
        let mut world = World::new(two);
        world.start().unwrap();
        world.tick();
        world.spawn("/b", Load::busy(1));
        world.ticks(3);
        assert!(told(&world).join("b/dop").exists());
        world.kill();
        world
    };
    let mut world = killed();
    restore(&mut world);
    assert!(!told(&world).exists(), "after --restore");
    // Whoever comes next with less to tell leaves nothing of it either.
    let mut world = killed();
    world.options.observe = true;
    world.start().unwrap();
    assert!(!told(&world).exists(), "told by an observer");
    let mut world = killed();
    world.policy = crate::util::policy("version: 1\nmode: enforce\ntenants: { a: {} }");
    world.start().unwrap();
    world.ticks(3);
    assert!(!told(&world).join("b").exists(), "told of a tenant that there is not");
}
