//! Whatever the kernel refuses, and whenever: no panic, and nothing is left behind.

use nix::errno::Errno;
use tenantd::sim::{Access, Fault};

use super::story::{STORIES, Story, leave, play};
use super::world::{assert_same, snapshot};

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

#[test]
fn without_trouble_every_story_leaves_nothing_behind() {
    for story in &STORIES {
        let (living, all) = nr_calls(story);
        assert!(living > 100 && all > living);
    }
}

#[test]
fn any_call_may_fail_with_any_errno() {
    for story in &STORIES {
        let (_, all) = nr_calls(story);
        // Each call meets one errno in turn, and all of them over a few stories.
        for call in 0..all {
            let errno = ERRNOS[(call % ERRNOS.len() as u64) as usize];
            let context = format!("{}: call {call} answers {errno}", story.name);
            survive(story, &context, |world| world.host.inject(Fault::at_call(call, errno)));
        }
    }
}
