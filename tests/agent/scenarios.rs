//! Random demands and faults of ten tenants, with memory: nothing is worse than without the agent.
//!
//! Each scenario is played twice from one seed: with the agent, and with the plain weights of the policy and nothing
//! else. In some of those with the agent a random subset of its files answers ENODEV or EBUSY, or a tick comes late; the
//! faults heal one by one, in random order. `TENANTD_SCENARIOS` is the number of scenarios, `TENANTD_SEED` the first seed.
//!
//! **What is compared.** Nobody does less than with plain weights, but for what was lent to it there:
//! - CPUs of tenants that waited for memory. With the agent these have what they are entitled to and work for their own
//!   share. So a tenant is due what plain weights give it beside others that want what they want with the agent.
//! - Memory beyond its part by weight, which the agent gives back to those whose part it is. What a tenant did in a second
//!   in which it held more is due in proportion, and at most what it does with a limit of that size: with a part of its memory it
//!   may wait for a disk most of the time.
//! - Memory that is guaranteed to another tenant, whatever that one does with it.
//!
//! All together do as much as with plain weights, less what one did with what was lent to it: memory that goes back to those whose
//! part it is need not be of as much use to them. A guarantee of memory is a promise (`memory.min`) that the
//! kernel kills others for where nothing else is left to take. So where there are guarantees, kills are compared with plain
//! weights and the same guarantees written by hand; where there are none, with plain weights. Of processes of
//! the same size a few pages decide which one is killed, and whether others follow: so many may be killed as with plain weights on a
//! host with slightly less memory.
//!
//! No tenant stands still for more than ten seconds at a bound of the agent's, and no bound is set far below what is held.
//!
//! That it can fail was seen with another writer beside the agent: `memory.min` of a tenth
//! of the host for each (more kills), a low `memory.high` for one tenant, equal weights for all (less CPU time).

use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::time::Duration;

use nix::errno::Errno;
use tenantd_host::kernfs::Operation;
use tenantd_sim::{Fault, Load, SimHost, SimKernel, Swap, When};

use super::world::{GIB, MIB, World};
use crate::util::{self, Dice};

const NR_TENANTS: usize = 10;
const NR_TICKS: usize = 40;
/// What `cargo test` plays ...
const USUAL: u64 = 20;
/// ... and what failed once. The first seven stood still at bounds that had been taken for another program's, or followed
/// what the tenant needed a tick late, or hid what it wanted; the others within their weight-fair share, at bounds that
/// were all they wanted a moment before, or while memory was free; the last had one more killed, of five of one size.
const MENDED: [u64; 14] = [
    1_001_493, 1_002_280, 1_003_199, 1_004_229, 1_004_880, 1_000_124, 1_004_796, 1_003_682,
    1_004_760, 1_006_287, 1_000_437, 5_003_978, 1_003_015, 7_011_076,
];
/// What a tenant may lose of what plain weights gave it, in parts of that ...
const LOSS_RATIO: f64 = 0.02;
/// ... of one that reads files without end: while its memory is bounded it reclaims what it reads itself (at 4 GiB/s, beside
/// reading at 2 GiB/s), and not a thread of the kernel that costs nobody here. So a GiB takes it half as long again.
const READER_LOSS_RATIO: f64 = 1.0 / 3.0;
/// What such a one reads.
const ENDLESS_BYTES: u64 = 1024 * GIB;
/// ... and in CPU seconds: the agent needs some ticks to learn what a tenant wants.
const LOSS_SEC: f64 = 1.0;
/// For how long tasks of a tenant may stand still at a bound of the agent's.
const STALL_MOST: Duration = Duration::from_secs(10);
/// Part of its memory that a host has less where kills are compared.
const LESS_PART: u64 = 500;
/// Kept between what is in use and a limit that is lowered, as in `control::sample`.
const MARGIN_BYTES: u64 = 16 * MIB;
const FAULTY: [(Operation, &str); 8] = [
    (Operation::Write, "cpu.weight"),
    (Operation::Write, "memory.low"),
    (Operation::Write, "memory.min"),
    (Operation::Write, "memory.high"),
    (Operation::Read, "cpu.stat"),
    (Operation::Read, "memory.stat"),
    (Operation::Read, "cpu.pressure"),
    (Operation::Read, "memory.current"),
];

/// What happens in one scenario; the same for both of its plays.
#[derive(Debug)]
struct Scenario {
    seed: u64,
    host: SimHost,
    weights: Vec<u64>,
    /// Guaranteed memory, where there is one.
    guarantees: Vec<Option<u64>>,
    /// The loads at first, and the changes: the tick, the tenant, its load from then on.
    loads: Vec<Load>,
    changes: Vec<(usize, usize, Load)>,
    faults: Vec<(usize, Fault)>,
    /// When each fault heals, by its number.
    heals: Vec<usize>,
    /// Ticks that come late, and by how much.
    late: BTreeMap<usize, Duration>,
}

/// What came of a play.
#[derive(Debug, Default)]
struct Outcome {
    cpu_sec: Vec<f64>,
    /// CPUs that each tenant wanted while it did not wait for memory or disk, tick by tick.
    wanted_cores: Vec<Vec<f64>>,
    /// CPU time of each tenant in each tick.
    ran_sec: Vec<Vec<f64>>,
    /// What each held of memory at the end of each tick, but for files that it had read once.
    held_bytes: Vec<Vec<f64>>,
    nr_kills: Vec<u64>,
}

/// What the processes of a play wanted and got so far.
struct Watch<'a> {
    scenario: &'a Scenario,
    pids: Vec<u32>,
    duties: Vec<f64>,
    /// Run and wait time of each, in nanoseconds.
    before: Vec<[f64; 2]>,
    wanted_cores: Vec<Vec<f64>>,
    cpu_sec: Vec<f64>,
    ran_sec: Vec<Vec<f64>>,
    held_bytes: Vec<Vec<f64>>,
}

impl Watch<'_> {
    fn new(scenario: &Scenario, pids: Vec<u32>) -> Watch<'_> {
        Watch {
            scenario,
            pids,
            duties: scenario.loads.iter().map(|load| load.duty).collect(),
            before: vec![[0.0; 2]; NR_TENANTS],
            wanted_cores: Vec::new(),
            cpu_sec: vec![0.0; NR_TENANTS],
            ran_sec: Vec::new(),
            held_bytes: Vec::new(),
        }
    }

    /// Changes the loads as the scenario says before this tick.
    fn change(&mut self, kernel: &mut SimKernel, tick: usize) {
        for (_, tenant, load) in self.scenario.changes.iter().filter(|(at, ..)| *at == tick) {
            // It may have been killed.
            let _ = kernel.set_load(self.pids[*tenant], *load);
            self.duties[*tenant] = load.duty;
            // Threads that ended took their waits with them.
            self.before[*tenant] = times(kernel, self.pids[*tenant]).unwrap_or_default();
        }
    }

    /// Notes what was wanted in this tick. A thread that waits does not catch up: it wants its duty of that time.
    fn note(&mut self, kernel: &SimKernel, tick: usize) {
        let nsec = self.scenario.length(tick).as_nanos() as f64;
        let each = self.pids.iter().zip(&self.duties).zip(&mut self.before);
        let wanted = each.map(|((pid, duty), before)| {
            let Some(now) = times(kernel, *pid) else { return 0.0 };
            let [ran, waited] = std::mem::replace(before, now);
            (now[0] - ran + (now[1] - waited) * duty) / nsec
        });
        let wanted = wanted.collect();
        self.wanted_cores.push(wanted);
        let held = |tenant| {
            let path = format!("/{}", name(tenant));
            let once = kernel.cold_cache_bytes(&path).unwrap();
            (kernel.memory_bytes(&path).unwrap() - once) as f64
        };
        self.held_bytes.push((0..NR_TENANTS).map(held).collect());
        let cpu_sec: Vec<f64> = (0..NR_TENANTS).map(|tenant| cpu_sec(kernel, tenant)).collect();
        let before = std::mem::replace(&mut self.cpu_sec, cpu_sec);
        self.ran_sec.push(self.cpu_sec.iter().zip(before).map(|(now, then)| now - then).collect());
    }
}

/// How long each tenant has stood still at its bound, without a moment of work.
struct Stalls {
    /// Times its bound was met, and time in which all of its tasks waited for memory, in microseconds.
    before: [[u64; 2]; NR_TENANTS],
    lasted: [Duration; NR_TENANTS],
}

impl Stalls {
    fn new() -> Stalls {
        Stalls { before: [[0; 2]; NR_TENANTS], lasted: [Duration::ZERO; NR_TENANTS] }
    }

    /// Takes in what a tick of this length came to.
    fn note(&mut self, kernel: &SimKernel, length: Duration) {
        for tenant in 0..NR_TENANTS {
            let path = format!("/{}", name(tenant));
            let pressure = kernel.file(&format!("/sys/fs/cgroup{path}/memory.pressure")).unwrap();
            let total = pressure.rsplit_once("total=").unwrap().1.trim().parse::<u64>().unwrap();
            let now = [count(kernel, &path, "memory.events", "high"), total];
            let [met, full] = std::mem::replace(&mut self.before[tenant], now);
            let is_stalled =
                now[0] > met && (now[1] - full) as f64 > 0.9 * length.as_micros() as f64;
            let lasted = &mut self.lasted[tenant];
            *lasted = if is_stalled { *lasted + length } else { Duration::ZERO };
        }
    }
}

/// Run and wait time of a process, in nanoseconds; `None` where it was killed.
fn times(kernel: &SimKernel, pid: u32) -> Option<[f64; 2]> {
    kernel.process_usage(pid).map(|usage| [usage.run_nsec, usage.wait_nsec])
}

/// What plain weights divide `cpus` into, where so much is wanted: each grows by weight until it has all it wants.
fn plain_shares(cpus: f64, weights: &[u64], wanted: &[f64]) -> Vec<f64> {
    let mut shares = vec![0.0; wanted.len()];
    let mut left = cpus;
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    let level = |tenant: usize| wanted[tenant] / weights[tenant] as f64;
    order.sort_by(|a, b| level(*a).total_cmp(&level(*b)));
    let mut weight: u64 = weights.iter().sum();
    for tenant in order {
        shares[tenant] = wanted[tenant].min(left * weights[tenant] as f64 / weight as f64);
        left -= shares[tenant];
        weight -= weights[tenant];
    }
    shares
}

fn name(tenant: usize) -> String {
    format!("t{tenant}")
}

/// CPU time of a tenant so far.
fn cpu_sec(kernel: &SimKernel, tenant: usize) -> f64 {
    kernel.usage_usec(&format!("/{}", name(tenant))).unwrap() as f64 * 1e-6
}

/// The number behind `field` in a file of a cgroup.
fn count(kernel: &SimKernel, cgroup: &str, file: &str, field: &str) -> u64 {
    let text = kernel.file(&format!("/sys/fs/cgroup{cgroup}/{file}")).unwrap();
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(name, _)| *name == field).unwrap().1.parse().unwrap()
}

/// A load; `bytes` is about what each tenant could have.
fn load(dice: &mut Dice, bytes: u64) -> Load {
    let threads = 1 + dice.below(6) as u32;
    let duty = dice.one_of(&[0.0, 0.1, 0.4, 0.8, 1.0, 1.0]);
    let part = |dice: &mut Dice, percents: &[u64]| bytes * dice.one_of(percents) / 100;
    Load {
        threads,
        duty,
        working_set_bytes: part(dice, &[0, 10, 30, 60, 120]),
        hot_file_bytes: part(dice, &[0, 0, 20, 60, 150]),
        cache_bytes: part(dice, &[0, 0, 50, 200]),
        touch_bytes_per_sec: dice.one_of(&[50, 250, 1000]) * MIB,
        ..Load::default()
    }
}

impl Scenario {
    fn new(seed: u64) -> Scenario {
        let mut dice = Dice::new(seed);
        let swaps = [None, None, Some(Swap::zram(GIB)), Some(Swap::disk(2 * GIB))];
        let host = SimHost {
            has_generations: matches!(seed % 8, 1 | 3),
            memory_bytes: dice.one_of(&[2, 4, 8]) * GIB,
            cpus: dice.one_of(&[2, 4, 8]),
            swap: dice.one_of(&swaps),
            ..SimHost::default()
        };
        let each = host.memory_bytes / NR_TENANTS as u64;
        let weights = (0..NR_TENANTS).map(|_| dice.one_of(&[100, 100, 200, 400])).collect();
        let guarantees = (0..NR_TENANTS)
            .map(|_| (dice.below(4) == 0).then(|| each * (20 + dice.below(50)) / 100))
            .collect();
        let loads = (0..NR_TENANTS).map(|_| load(&mut dice, each)).collect();
        let mut changes: Vec<(usize, usize, Load)> = (0..dice.below(8))
            .map(|_| (dice.index(NR_TICKS), dice.index(NR_TENANTS), load(&mut dice, each)))
            .collect();
        changes.sort_by_key(|(at, ..)| *at);
        let nr_faults = if dice.below(2) == 0 { 0 } else { dice.below(12) };
        let faults: Vec<(usize, Fault)> = (0..nr_faults)
            .map(|_| {
                let (operation, file) = dice.one_of(&FAULTY);
                let path = format!("{}/{file}", name(dice.index(NR_TENANTS)));
                let errno = match operation {
                    Operation::Write => dice.one_of(&[Errno::EBUSY, Errno::ENODEV]),
                    _ => dice.one_of(&[Errno::EIO, Errno::ENODEV]),
                };
                (dice.index(NR_TICKS / 2), Fault::matching(operation, &path, errno))
            })
            .collect();
        let heals = faults.iter().map(|(at, _)| at + 1 + dice.index(NR_TICKS / 2)).collect();
        let late = (0..if nr_faults > 0 { 3 } else { 0 })
            .map(|_| (dice.index(NR_TICKS), Duration::from_millis(100 * (1 + dice.below(40)))))
            .collect();
        let mut scenario =
            Scenario { seed, host, weights, guarantees, loads, changes, faults, heals, late };
        scenario.make_harder(&mut Dice::new(!seed));
        scenario
    }

    /// In some a tenant reads files without end, and in some more memory is in use than there is, without swap.
    fn make_harder(&mut self, dice: &mut Dice) {
        if dice.below(4) == 0 {
            self.loads[dice.index(NR_TENANTS)].cache_bytes = ENDLESS_BYTES;
        }
        if dice.below(6) == 0 {
            self.host.swap = None;
            if dice.below(2) == 0 {
                self.guarantees.fill(None);
            }
            let percent = 150 + dice.below(150);
            let changed = self.changes.iter_mut().map(|(.., load)| load);
            for load in self.loads.iter_mut().chain(changed) {
                load.working_set_bytes = load.working_set_bytes * percent / 100;
            }
        }
    }

    fn policy(&self) -> String {
        let tenants = (0..NR_TENANTS).map(|tenant| {
            let guarantee = self.guarantees[tenant]
                .map(|bytes| format!(", guarantee: {{ memory: {}MiB }}", bytes / MIB));
            let weight = self.weights[tenant];
            format!("  {}: {{ weight: {weight}{} }}\n", name(tenant), guarantee.unwrap_or_default())
        });
        // Plain weights know no memory: the same rule is compared with.
        format!("control: {{ allocation: max-min }}\ntenants:\n{}", tenants.collect::<String>())
    }

    /// The lengths of the ticks: the same time passes in both plays.
    fn length(&self, tick: usize) -> Duration {
        Duration::from_secs(1) + self.late.get(&tick).copied().unwrap_or_default()
    }

    fn spawn(&self, kernel: &mut SimKernel) -> Vec<u32> {
        let spawn = |(tenant, load): (usize, &Load)| {
            kernel.spawn(&format!("/{}", name(tenant)), *load).unwrap()
        };
        self.loads.iter().enumerate().map(spawn).collect()
    }

    /// CPU time that a tenant is due: what it did in the `plain` play, less what was lent to it.
    fn due_sec(&self, tenant: usize, plain: &Outcome, ours: &Outcome) -> f64 {
        let entitled = self.entitled_bytes(tenant);
        let own_ratio = |held: &Vec<f64>| (entitled / held[tenant].max(1.0)).min(1.0);
        let ran = plain.ran_sec.iter().zip(&plain.held_bytes);
        let own_sec: f64 = ran.map(|(ran, held)| ran[tenant] * own_ratio(held)).sum();
        let ran_sec = plain.cpu_sec[tenant];
        ran_sec.min(self.unlent_sec(tenant, plain, ours)) * own_sec / ran_sec.max(f64::MIN_POSITIVE)
    }

    /// Memory of a tenant by its weight, or its guarantee.
    fn entitled_bytes(&self, tenant: usize) -> f64 {
        let memory = self.host.memory_bytes as f64;
        let by_weight =
            memory * self.weights[tenant] as f64 / self.weights.iter().sum::<u64>() as f64;
        by_weight.max(self.guarantees[tenant].unwrap_or(0) as f64)
    }

    /// CPU time of a tenant that is limited to its memory, beside plain weights and the guarantees of all; `None` if it is
    /// killed there.
    fn limited_sec(&self, tenant: usize) -> Option<f64> {
        let limit = Some((tenant, self.entitled_bytes(tenant) as u64));
        let limited = self.without_agent(self.host.clone(), true, limit);
        (limited.nr_kills[tenant] == 0).then(|| limited.cpu_sec[tenant])
    }

    /// What plain weights give a tenant that wants what it wanted in the `plain` play, beside others that want what they
    /// did in `ours`.
    fn unlent_sec(&self, tenant: usize, plain: &Outcome, ours: &Outcome) -> f64 {
        let each = plain.wanted_cores.iter().zip(&ours.wanted_cores).enumerate();
        let due = each.map(|(tick, (plain, ours))| {
            let mut wanted = ours.clone();
            wanted[tenant] = plain[tenant];
            let shares = plain_shares(f64::from(self.host.cpus), &self.weights, &wanted);
            shares[tenant] * self.length(tick).as_secs_f64()
        });
        due.sum()
    }

    /// Number of processes killed beside plain weights and the guarantees, on this host or on one with slightly less memory.
    fn killed_by_hand(&self) -> u64 {
        let killed = |less_bytes| {
            let memory_bytes = self.host.memory_bytes - less_bytes;
            let host = SimHost { memory_bytes, ..self.host.clone() };
            self.without_agent(host, true, None).killed()
        };
        killed(0).max(killed(self.host.memory_bytes / LESS_PART))
    }

    /// Plain weights on this host, and perhaps the guarantees of memory written by hand, or a limit for a tenant.
    fn without_agent(
        &self,
        host: SimHost,
        keeps_promises: bool,
        limit: Option<(usize, u64)>,
    ) -> Outcome {
        let mut kernel = SimKernel::new(host);
        for tenant in 0..NR_TENANTS {
            kernel.make_cgroup(&format!("/{}", name(tenant))).unwrap();
            let file = format!("/sys/fs/cgroup/{}/cpu.weight", name(tenant));
            kernel.write_file(&file, &self.weights[tenant].to_string()).unwrap();
            if let Some(bytes) = self.guarantees[tenant].filter(|_| keeps_promises) {
                let file = format!("/sys/fs/cgroup/{}/memory.min", name(tenant));
                kernel.write_file(&file, &bytes.to_string()).unwrap();
            }
        }
        if let Some((tenant, bytes)) = limit {
            let file = format!("/sys/fs/cgroup/{}/memory.max", name(tenant));
            kernel.write_file(&file, &bytes.to_string()).unwrap();
        }
        let mut watch = Watch::new(self, self.spawn(&mut kernel));
        for tick in 0..NR_TICKS {
            watch.change(&mut kernel, tick);
            kernel.advance(self.length(tick));
            watch.note(&kernel, tick);
        }
        Outcome::of(&kernel, watch)
    }

    fn with_agent(&self) -> Outcome {
        let mut world = World::on(self.host.clone(), &self.policy());
        world.start().unwrap();
        world.tick();
        let mut watch = Watch::new(self, world.host.with(|kernel| self.spawn(kernel)));
        world.host.take_changes();
        let mut stalls = Stalls::new();
        for tick in 0..NR_TICKS {
            world.host.heal();
            let active = self.faults.iter().zip(&self.heals);
            active
                .filter(|((from, _), until)| (*from..**until).contains(&tick))
                .for_each(|((_, fault), _)| world.host.inject(fault.clone()));
            world.host.with(|kernel| watch.change(kernel, tick));
            world.step = Some(self.length(tick));
            world.pass();
            let used = world.host.with(|kernel| {
                let of = |t| (name(t), kernel.memory_bytes(&format!("/{}", name(t))).unwrap());
                (0..NR_TENANTS).map(of).collect()
            });
            world.host.with(|kernel| watch.note(kernel, tick));
            world.host.with(|kernel| stalls.note(kernel, self.length(tick)));
            self.check_stalls(&stalls, tick);
            let status = world.turn();
            self.check(&world, &used, tick);
            assert_eq!(status.tenants.len(), NR_TENANTS);
        }
        world.host.with(|kernel| Outcome::of(kernel, watch))
    }

    /// No tenant stands still at a bound for long, but one whose files are out of reach.
    fn check_stalls(&self, stalls: &Stalls, tick: usize) {
        for (tenant, lasted) in stalls.lasted.iter().enumerate() {
            let dir = format!("{}/", name(tenant));
            let is_its = |when: &When| matches!(when, When::Matching { path_suffix, .. } if path_suffix.starts_with(&dir));
            let is_reachable = !self.faults.iter().any(|(_, fault)| is_its(&fault.when));
            assert!(
                !is_reachable || *lasted <= STALL_MOST,
                "seed {} tick {tick}: {dir} stalled at its bound for {lasted:?}",
                self.seed
            );
        }
    }

    /// What must hold after every tick, before which `used` bytes were in use.
    fn check(&self, world: &World, used: &BTreeMap<String, u64>, tick: usize) {
        let at = format!("seed {} tick {tick}", self.seed);
        let bytes = |path: &str| world.file(path).parse::<u64>().unwrap_or(u64::MAX);
        let protection = |file: &str| {
            (0..NR_TENANTS).map(|t| bytes(&format!("{}/{file}", name(t)))).sum::<u64>()
        };
        // A value that cannot be lowered stays while others rise.
        for file in ["memory.min", "memory.low"].iter().filter(|_| self.faults.is_empty()) {
            let sum = protection(file);
            assert!(sum <= self.host.memory_bytes, "{at}: {sum} bytes of {file} together");
        }
        for change in world.host.take_changes().iter().filter(|change| change.outcome.is_ok()) {
            let path = change.path.to_string_lossy();
            let is_bound = path.ends_with("memory.high");
            let is_limit = is_bound || path.ends_with("memory.max");
            let Some(value) = change.value.as_ref().filter(|_| is_limit) else { continue };
            let Ok(value) = value.trim().parse::<u64>() else { continue };
            let dir = path.rsplit_once('/').unwrap().0.trim_start_matches("/sys/fs/cgroup");
            let used = used[&dir[1..]];
            // A bound falls by a twentieth a second, and a tick may be late.
            let least = if is_bound { used / 20 * 17 } else { used + MARGIN_BYTES };
            assert!(value >= least, "{at}: {path} told {value} with {used} in use");
        }
    }
}

impl Outcome {
    fn of(kernel: &SimKernel, watch: Watch<'_>) -> Outcome {
        let each = 0..NR_TENANTS;
        let kills =
            |tenant| count(kernel, &format!("/{}", name(tenant)), "memory.events", "oom_kill");
        Outcome {
            cpu_sec: watch.cpu_sec,
            wanted_cores: watch.wanted_cores,
            ran_sec: watch.ran_sec,
            held_bytes: watch.held_bytes,
            nr_kills: each.map(kills).collect(),
        }
    }

    fn killed(&self) -> u64 {
        self.nr_kills.iter().sum()
    }

    fn worked(&self) -> f64 {
        self.cpu_sec.iter().sum()
    }
}

/// What is left of so many CPU seconds with the loss that is let pass.
fn least(sec: f64, loss_ratio: f64) -> f64 {
    sec * (1.0 - loss_ratio) - LOSS_SEC
}

/// What is worse with the agent in this scenario.
fn judge(played: &Played) -> Vec<String> {
    let Played { scenario, plain, ours } = played;
    let mut worse = Vec::new();
    if ours.killed() > plain.killed() && ours.killed() > scenario.killed_by_hand() {
        worse.push(format!("kills {:?}, not {:?}", ours.nr_kills, plain.nr_kills));
    }
    if !played.is_comparable() {
        return worse;
    }
    for tenant in 0..NR_TENANTS {
        let (had, due) = (ours.cpu_sec[tenant], scenario.due_sec(tenant, plain, ours));
        let is_reader = scenario.loads[tenant].cache_bytes == ENDLESS_BYTES;
        let loss_ratio = if is_reader { READER_LOSS_RATIO } else { LOSS_RATIO };
        let is_less = |due| had < least(due, loss_ratio);
        if is_less(due) && scenario.limited_sec(tenant).is_none_or(is_less) {
            let plainly = plain.cpu_sec[tenant];
            worse.push(format!(
                "t{tenant} had {had:.2} s of CPU and was due {due:.2} s of {plainly:.2} s with plain weights"
            ));
        }
    }
    let due: f64 = (0..NR_TENANTS).map(|tenant| scenario.due_sec(tenant, plain, ours)).sum();
    if ours.worked() < least(due, LOSS_RATIO) {
        worse.push(format!("{:.2} s of work, not {due:.2} s", ours.worked()));
    }
    worse
}

struct Played {
    scenario: Scenario,
    plain: Outcome,
    ours: Outcome,
}

impl Played {
    /// Whether work is compared: whose goes on where some were killed, or could not be steered, is another question.
    fn is_comparable(&self) -> bool {
        self.plain.killed() + self.ours.killed() == 0 && self.scenario.faults.is_empty()
    }

    /// Whether all together did less, be it with what had been lent to them.
    fn does_less(&self) -> bool {
        self.is_comparable() && self.ours.worked() < least(self.plain.worked(), LOSS_RATIO)
    }
}

/// Plays the scenario of this seed twice; what did not hold on the way is an error, and others are played after it.
fn play(seed: u64) -> Result<Played, String> {
    let played = catch_unwind(|| {
        let scenario = Scenario::new(seed);
        let (plain, ours) =
            (scenario.without_agent(scenario.host.clone(), false, None), scenario.with_agent());
        Played { scenario, plain, ours }
    });
    played.map_err(|cause| {
        let text = cause.downcast_ref::<String>().cloned();
        text.or(cause.downcast_ref::<&str>().map(|text| text.to_string())).unwrap_or_default()
    })
}

#[test]
fn random_demands_and_faults_are_never_worse_than_plain_weights() {
    let asked = util::number("TENANTD_SCENARIOS");
    let first = util::first_seed(asked.is_some());
    let nr = asked.unwrap_or(USUAL);
    let (mut worse, mut nr_faulty, mut nr_less) = (Vec::new(), 0, 0);
    let (mut nr_killed, mut work) = ([0, 0], [0.0, 0.0]);
    let mended = MENDED.into_iter().filter(|_| asked.is_none());
    for seed in (first..first + nr).chain(mended) {
        let found = match play(seed) {
            Ok(played) => {
                nr_faulty += u64::from(!played.scenario.faults.is_empty());
                for (number, outcome) in [&played.plain, &played.ours].into_iter().enumerate() {
                    nr_killed[number] += outcome.killed();
                    work[number] += outcome.worked();
                }
                nr_less += u64::from(played.does_less());
                judge(&played)
            }
            Err(why) => vec![why],
        };
        for what in found {
            let what = format!("TENANTD_SEED={seed}: {what}");
            // A long run may be stopped.
            println!("{what}");
            worse.push(what);
        }
        let nr_played = seed.wrapping_sub(first).wrapping_add(1);
        if nr_played.is_multiple_of(500) {
            println!("{nr_played} of {nr} scenarios played, {} worse", worse.len());
        }
    }
    let nr_ticks = nr * NR_TICKS as u64;
    println!(
        "{nr} scenarios from seed {first}, {nr_faulty} with faults, {nr_ticks} ticks: \
         {} killed (plain weights: {}), {:.0} s of work ({:.0} s), {nr_less} with less than {:.0} % of it",
        nr_killed[1],
        nr_killed[0],
        work[1],
        work[0],
        100.0 * (1.0 - LOSS_RATIO)
    );
    assert!(worse.is_empty(), "{} of {nr}:\n{}", worse.len(), worse.join("\n"));
    assert!(asked.is_some() || nr_killed[0] > 0, "memory ran out nowhere: kills were not compared");
}
