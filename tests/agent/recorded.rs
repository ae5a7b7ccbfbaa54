//! What the agent's control loop was given is enough to decide again what it decided.

use nix::errno::Errno;
use tenantd_host::kernfs::Operation;
use tenantd_policy::model::Mode;
use tenantd_sim::{Fault, Load, SimHost};

use super::reload::reload;
use super::world::{MIB, World};
use crate::history::twin::Twin;
use crate::util::Dice;

/// Policies that a reload goes to and fro between: tenants come and go, become groups, get bounds and CPUs.
const POLICIES: [&str; 5] = [
    "tenants: { a: {}, b: { weight: 3 }, c: { limit: { cpu: 1 } } }",
    "tenants: { a: { guarantee: { cpu: 1, memory: 64MiB } }, c: {}, d: { cpus: dop } }",
    "control: { allocation: max-min, on_drift: accept, trim: true }\nmemory: { probe: true }\n\
     tenants: { b: { limit: { cpu: 50%, pids: 100 } }, g: { tenants: { a: {}, e: {} } } }",
    "host: { reserve: { cpu: 5%, memory: 256MiB } }\n\
     tenants: { a: { cpus: exclusive }, b: {}, c: { dop: { max: 2 } }, d: {} }",
    "mode: observe\ntenants: { a: {}, b: {} }",
];

fn load(dice: &mut Dice) -> Load {
    let load =
        Load { duty: dice.below(100) as f64 / 100.0, ..Load::busy(1 + dice.below(6) as u32) };
    load.with_working_set(dice.below(200) * MIB).with_cache(dice.below(64) * MIB)
}

/// One random thing happens to the host or the agent.
fn happen(world: &mut World, dice: &mut Dice) {
    let tenant = dice.one_of(&["a", "b", "c", "d", "g/a", "g/e"]);
    match dice.below(14) {
        0..5 => {
            let load = load(dice);
            let _ = world.host.with(|kernel| kernel.spawn(&format!("/{tenant}"), load));
        }
        5..7 => {
            let pids = world.host.with(|kernel| kernel.pids());
            let pid = dice.one_of(&pids);
            if pid > 100 {
                let _ = world.host.with(|kernel| kernel.kill(pid));
            }
        }
        7 => {
            let file = dice.one_of(&[
                "cpu.weight",
                "memory.low",
                "cpu.max",
                "cpu.stat",
                "memory.current",
                "",
            ]);
            let operation = dice.one_of(&[Operation::Read, Operation::Write]);
            let errno = dice.one_of(&[Errno::ENODEV, Errno::EBUSY, Errno::EIO]);
            world.host.inject(Fault::matching(operation, file, errno).times(1 + dice.below(9)));
        }
        8 => world.host.heal(),
        9 => {
            let path = format!("/sys/fs/cgroup/{tenant}/cpu.weight");
            let _ = world.host.with(|kernel| kernel.write_file(&path, "77"));
        }
        10 => {
            let cpu = 1 + dice.below(3) as u32;
            world.host.with(|kernel| kernel.set_cpu_online(cpu, dice.below(2) == 0));
        }
        11 | 12 => {
            let policy = dice.one_of(&POLICIES);
            let _ = reload(world, policy);
        }
        _ => {
            let mode = dice.one_of(&[Mode::Observe, Mode::Enforce]);
            let _ = world.agent.as_mut().unwrap().set_mode(mode);
        }
    }
}

#[test]
fn a_replay_decides_the_same_to_the_bit() {
    let before = Twin::nr_decisions();
    for seed in 0..12 {
        let mut dice = Dice::new(seed);
        let mut world = World::on(SimHost { cpus: 4, ..SimHost::default() }, POLICIES[0]);
        world.start().unwrap();
        world.agent.as_mut().unwrap().record(Twin::boxed());
        for _ in 0..120 {
            if dice.below(3) == 0 {
                happen(&mut world, &mut dice);
            }
            if dice.below(4) == 0 {
                world.short_tick()
            } else {
                world.tick()
            };
            let agent = world.agent.as_mut().unwrap();
            while agent.has_more_work() && dice.below(8) > 0 {
                agent.continue_work();
            }
        }
        world.host.heal();
        world.stop();
    }
    assert!(Twin::nr_decisions() - before > 1000, "{}", Twin::nr_decisions());
}
