//! Cgroups beside the tenants that no policy names.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::ground::{Daemon, Ground};
use crate::util::wait_until;

/// Of all that the three use, the part of the cgroup that no policy names, over four seconds of CPU time; `stir` is
/// called again and again meanwhile.
fn part_of_foreign(ground: &Ground, mut stir: impl FnMut()) -> f64 {
    let used = || ["foreign", "a", "b"].map(|below| ground.used_sec(below));
    let sum = |used: [f64; 3]| used.iter().sum::<f64>();
    let begin = used();
    wait_until("four seconds of CPU time", || {
        stir();
        sum(used()) > sum(begin) + 4.0
    });
    let end = used();
    (end[0] - begin[0]) / (sum(end) - sum(begin))
}

/// Kernels from 6.12 on can lose the tasks of one cgroup while the weights of its siblings are written (Linux 6.18.45
/// takes back what caused it). So the weights of two hungry tenants are swapped as fast as the daemon follows.
#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_cgroup_outside_of_the_policy_keeps_its_part_while_weights_change() {
    let Some(mut ground) = Ground::take() else { return };
    let cpus = std::thread::available_parallelism().unwrap().get();
    for below in ["foreign", "a", "b"] {
        ground.make(below);
        ground.load(below, &format!("threads={}", 2 * cpus));
    }
    let ran = || ["foreign", "a", "b"].iter().all(|below| ground.used_sec(below) > 0.2);
    wait_until("the loads to run", ran);
    let without = part_of_foreign(&ground, || ());

    let mut told = [100, 1000];
    let policy =
        |[a, b]: [u32; 2]| format!("tenants: {{ a: {{ weight: {a} }}, b: {{ weight: {b} }} }}");
    let daemon = Daemon::start(&mut ground.enforce(&policy(told)));
    let weights = || ["a", "b"].map(|below| ground.weight(below).unwrap_or(0.0));
    wait_until("the weights", || ground.is_weighed("a") && ground.is_weighed("b"));
    let mut nr_swaps = 0;
    let swap = || {
        let [a, b] = weights();
        if (a < b) == (told[0] < told[1]) {
            told.reverse();
            ground.policy(&policy(told));
            kill(Pid::from_raw(daemon.pid()), Signal::SIGHUP).unwrap();
            nr_swaps += 1;
        }
    };
    let with = part_of_foreign(&ground, swap);
    daemon.stop();
    assert!(nr_swaps >= 3, "the weights were swapped {nr_swaps} times only");
    assert!(with >= 0.9 * without, "{with:.3} of the CPU time, {without:.3} without the agent");
}
