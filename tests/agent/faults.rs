//! Whatever the kernel refuses, and whenever: no panic, and nothing is left behind.

use nix::errno::Errno;
use tenantd_host::kernfs::Operation;
use tenantd_sim::{Access, Call, Fault, SimKernel};

use super::story::{
    ADOPTED, DEEP, IN_PLACE, IN_PLACE_LEGACY, LEGACY, MADE, PINNED, PINNED_LEGACY, SERVICE, Story,
    leave, play,
};
use super::world::{World, assert_same, snapshot, tenant};

/// What the kernel may answer to a write, an open or a read of a cgroup that is there.
const ERRNOS: [Errno; 12] = [
    Errno::EACCES,
    Errno::EAGAIN,
    Errno::EBUSY,
    Errno::EINTR,
    Errno::EINVAL,
    Errno::EIO,
    Errno::EMFILE,
    Errno::ENOMEM,
    Errno::ENOSPC,
    Errno::EOPNOTSUPP,
    Errno::EPERM,
    Errno::EROFS,
];

/// Tells `story` with `trouble` from call `at` on; afterwards the host must be as before, if need be with the
/// help of `tenantd --restore` once the trouble is over.
fn survive(story: &Story, context: &str, trouble: impl FnOnce(&mut super::world::World)) {
    let mut world = (story.begin)();
    let before = snapshot(&world.host);
    trouble(&mut world);
    let born = play(&mut world);
    let clean = match world.agent.take() {
        Some(agent) => agent.stop().unwrap().0.failures.is_empty(),
        None => !world.state_dir().join("journal").exists(),
    };
    world.host.heal();
    world.host.with(|kernel| kernel.set_access(Access::Root));
    if !clean {
        let restored = world.restore();
        assert_eq!(restored.failures, [""; 0], "{context}");
    }
    leave(&world, &born);
    assert_same(&before, &snapshot(&world.host), context);
    assert!(!world.state_dir().join("journal").exists(), "{context}: a journal is left");
}

/// Calls of a life without trouble: up to the stop, and altogether.
fn nr_calls(story: &Story) -> (u64, u64) {
    let mut world = (story.begin)();
    let before = snapshot(&world.host);
    let born = play(&mut world);
    let living = world.host.nr_calls();
    let restored = world.stop();
    assert_eq!(restored.failures, [""; 0], "{}", story.name);
    let all = world.host.nr_calls();
    leave(&world, &born);
    assert_same(&before, &snapshot(&world.host), story.name);
    (living, all)
}

/// Tells `story` once for each of its calls, which then fails; the errnos take turns.
fn any_call_may_fail(story: &Story) {
    let (living, all) = nr_calls(story);
    assert!(living > 100 && all > living, "{living} and {all} calls are no life");
    for call in 0..all {
        let errno = ERRNOS[(call % ERRNOS.len() as u64) as usize];
        let context = format!("{}: call {call} answers {errno}", story.name);
        survive(story, &context, |world| world.host.inject(Fault::at_call(call, errno)));
    }
}

#[test]
fn any_call_may_fail_where_tenants_are_made() {
    any_call_may_fail(&MADE);
}

#[test]
fn any_call_may_fail_where_the_root_is_made() {
    any_call_may_fail(&DEEP);
}

#[test]
fn any_call_may_fail_in_a_service() {
    any_call_may_fail(&SERVICE);
}

#[test]
fn any_call_may_fail_where_tenants_are_adopted() {
    any_call_may_fail(&ADOPTED);
}

#[test]
fn any_call_may_fail_on_a_legacy_host() {
    any_call_may_fail(&LEGACY);
}

#[test]
fn any_call_may_fail_where_tenants_are_pinned() {
    any_call_may_fail(&PINNED);
}

#[test]
fn any_call_may_fail_where_tenants_are_pinned_on_a_legacy_host() {
    any_call_may_fail(&PINNED_LEGACY);
}

#[test]
fn any_call_may_fail_where_tenants_are_in_place() {
    any_call_may_fail(&IN_PLACE);
    any_call_may_fail(&IN_PLACE_LEGACY);
}

/// While its agent lives a cgroup may go in many ways; at the stop, one that is gone needs nothing.
#[test]
fn any_file_may_be_missing_at_any_call() {
    for story in [&MADE, &ADOPTED] {
        let (living, _) = nr_calls(story);
        for call in (0..living).step_by(2) {
            let errno = [Errno::ENODEV, Errno::ENOENT, Errno::ESRCH][(call / 2 % 3) as usize];
            let context = format!("{}: call {call} answers {errno}", story.name);
            survive(story, &context, |world| world.host.inject(Fault::at_call(call, errno)));
        }
    }
}

#[test]
fn the_mount_may_become_read_only_at_any_moment() {
    for story in [&SERVICE, &LEGACY] {
        let (_, all) = nr_calls(story);
        for call in (0..all).step_by(5) {
            let context = format!("{}: read-only from call {call}", story.name);
            survive(story, &context, |world| {
                let read_only = |kernel: &mut SimKernel| kernel.set_access(Access::ReadOnlyMount);
                world.host.before_call(call, read_only);
            });
        }
    }
}

/// Every write to one file is refused, for good, with each errno.
#[test]
fn a_file_may_refuse_every_write() {
    for errno in ERRNOS {
        for file in ["cpu.weight", "cpu.max", "memory.low", "memory.max", "cgroup.subtree_control"]
        {
            let context = format!("{file} answers {errno}");
            survive(&ADOPTED, &context, |world| {
                world.host.inject(Fault::matching(Operation::Write, file, errno));
            });
        }
        let context = format!("cpu.shares answers {errno}");
        survive(&LEGACY, &context, |world| {
            world.host.inject(Fault::matching(Operation::Write, "cpu.shares", errno));
        });
    }
}

/// The value is in its file, and the agent does not know it: it is not taken for somebody else's.
#[test]
fn a_value_that_cannot_be_read_back_is_no_drift() {
    let yaml = "control: { on_drift: accept }\ntenants: { a: { weight: 300 }, b: {} }";
    let begin = |world: &mut World| -> (u64, Vec<Call>) {
        world.start().unwrap();
        world.host.take_calls();
        let from = world.host.nr_calls();
        world.ticks(3);
        (from, world.host.take_calls())
    };
    let (from, calls) = begin(&mut World::new(yaml));
    let is_write =
        |call: &Call| call.operation == Operation::Write && call.path.ends_with("a/cpu.weight");
    let after = calls.iter().position(is_write).unwrap() + 1;
    assert_eq!(calls[after].operation, Operation::Read);
    let mut world = World::new(yaml);
    world.host.inject(Fault::at_call(from + after as u64, Errno::EIO));
    begin(&mut world);
    let status = world.ticks(20);
    assert_eq!((status.nr_drift, &status.findings), (0, &vec![]));
    let weight = world.file("a/cpu.weight").parse().unwrap();
    assert!(weight > 100.0, "{weight}");
    assert_eq!(tenant(&status, "a").cpu_weight, Some(weight));
}
