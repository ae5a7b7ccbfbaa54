//! What a tick costs where tenants are found by `each`, beside one where the policy names them.
//!
//! `cargo bench --bench each`. Bar: on a simulated host with 1,000 users, 50 of whom have processes, a tick costs at most
//! 1.2 times that of 50 named tenants, in the same run. Printed as well: ticks in which one of them leaves and another
//! one comes, and a host on which all 1,000 have a sleeping process.

#![allow(clippy::unwrap_used, reason = "a benchmark measures; it need not handle")]

mod bar;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use bar::Bars;
use tenantd::agent::{Agent, Options};
use tenantd::backend::claims;
use tenantd_policy::accounts::{Accounts, Directory, Outcome, User};
use tenantd_policy::{Policy, load_text};
use tenantd_sim::{Load, SimHost, SimKernel, Workload};

const USERS: u32 = 1000;
const ACTIVE: u32 = 50;
const TICKS: usize = 200;
const SECOND: Duration = Duration::from_secs(1);

fn policy(tenants: &str) -> Policy {
    let text = format!("version: 1\nmode: enforce\ntenants: {{ people: {{ {tenants} }} }}\n");
    load_text("policy.yaml", &text).unwrap().policy
}

/// Accounts that are called after their numbers.
struct Numbered;

impl Directory for Numbered {
    fn user(&mut self, _: &str) -> Outcome<u32> {
        Ok(None)
    }

    fn group(&mut self, _: &str) -> Outcome<u32> {
        Ok(None)
    }

    fn owner(&mut self, uid: u32) -> Outcome<User> {
        Ok(Some(User { name: format!("u{uid}"), groups: Vec::new() }))
    }
}

/// One user has so many processes of which one is busy, and the agent has settled.
struct World {
    agent: Agent<SimKernel>,
    pids: Vec<u32>,
    now: Duration,
    next: u32,
}

impl World {
    fn new(policy: Policy, here: u32, busy: u32) -> World {
        let mut kernel = SimKernel::new(SimHost::default());
        kernel.make_cgroup("/home").unwrap();
        let pids = (0..here).map(|n| log_in(&mut kernel, 1000 + n, n < busy)).collect();
        let accounts = Accounts::direct(Numbered);
        let options = Options { root: Some("/tenants".into()), accounts, ..Options::default() };
        let rules = claims::rules(&policy);
        let agent = Agent::start(kernel, policy, rules, &options).unwrap();
        let mut world = World { agent, pids, now: Duration::ZERO, next: 1000 + here };
        for _ in 0..60 {
            world.tick();
        }
        let nr_tenants = world.agent.status().tenants.len();
        assert_eq!(nr_tenants as u32, here, "not all are tenants");
        world
    }

    /// How long a tick takes.
    fn tick(&mut self) -> Duration {
        self.agent.kernel_mut().advance(SECOND);
        self.now += SECOND;
        let begin = Instant::now();
        self.agent.tick(self.now);
        begin.elapsed()
    }

    /// One user leaves, and another one comes.
    fn turn_over(&mut self) {
        let gone = self.pids.remove(0);
        let kernel = self.agent.kernel_mut();
        kernel.kill(gone).unwrap();
        self.pids.push(log_in(kernel, self.next, true));
        self.next += 1;
    }
}

fn log_in(kernel: &mut SimKernel, uid: u32, is_busy: bool) -> u32 {
    let load = if is_busy { Load::busy(1) } else { Load::idle() };
    kernel.spawn("/home", Workload::constant("work", load).owned_by(uid)).unwrap()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn main() -> ExitCode {
    let mut bars = Bars::default();
    let user = |n: u32| format!("u{n}: {{ match: {{ users: [{}] }} }}", 1000 + n);
    let users: Vec<String> = (0..ACTIVE).map(user).collect();
    let named = policy(&format!("tenants: {{ {} }}", users.join(", ")));
    let each = || policy("each: { match: { users: '*' } }");
    let mut worlds = [
        World::new(named, ACTIVE, ACTIVE),
        World::new(each(), ACTIVE, ACTIVE),
        World::new(each(), ACTIVE, ACTIVE),
    ];
    // In turn, so that whatever else happens on the machine happens to all.
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..TICKS {
        worlds[2].turn_over();
        for (world, times) in worlds.iter_mut().zip(&mut times) {
            times.push(world.tick());
        }
    }
    let [named, found, turned] = times.map(median);
    let ratio = |time: Duration| time.as_secs_f64() / named.as_secs_f64();
    println!("a tick with {ACTIVE} named users: {named:.2?}");
    let named = "x as many named tenants";
    bars.at_most(
        format!("a tick with {ACTIVE} of {USERS} users found by each"),
        ratio(found),
        named,
        1.2,
    );
    bars.note("a tick in which one of them leaves and one comes", ratio(turned), named);
    let mut all = World::new(each(), USERS, ACTIVE);
    let all = median((0..TICKS / 4).map(|_| all.tick()).collect());
    bars.note(format!("a tick with {USERS} who have a sleeping process"), ratio(all), named);
    bars.verdict()
}
