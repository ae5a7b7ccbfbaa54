//! Widths and sets of CPUs through the whole agent: how many, which, for how long, and given back.

mod given_back;
mod hotplug;
mod lent;
mod policies;
mod refused;
mod restart;
mod still;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use tenantd::recovery::dop_files;
use tenantd_control::report::status::Status;
use tenantd_dop::CpuSet;
use tenantd_sim::SimHost;

use super::world::{World, legacy, tenant};

/// Eight CPUs on two nodes, unified and legacy.
const HOSTS: [fn() -> SimHost; 2] = [
    || SimHost { cpus: 8, numa_nodes: 2, ..SimHost::default() },
    || SimHost { cpus: 8, numa_nodes: 2, ..legacy() },
];

/// Two tenants of equal weight that are pinned.
const TWO: &str = "tenants: { a: { cpus: dop }, b: { cpus: dop } }";

fn set(list: &str) -> CpuSet {
    list.parse().unwrap()
}

/// A host on which somebody looks at the CPUs of tenants after every tick.
struct Watch {
    world: World,
    tenants: Vec<&'static str>,
    /// When each set last changed, by tenant, and what it is.
    sets: BTreeMap<&'static str, (Duration, CpuSet)>,
    online: CpuSet,
    now: Duration,
    nr_changes: usize,
}

impl Watch {
    /// A host with an agent that has made the tenants' cgroups.
    fn begin(host: SimHost, tenants: &[&'static str], yaml: &str) -> Watch {
        let mut world = World::on(host, yaml);
        world.start().unwrap();
        Watch::over(world, tenants)
    }

    /// The same on a host whose agent has started and not ticked yet.
    fn over(world: World, tenants: &[&'static str]) -> Watch {
        let mut watch = Watch {
            world,
            tenants: tenants.to_vec(),
            sets: BTreeMap::new(),
            online: CpuSet::new(),
            now: Duration::ZERO,
            nr_changes: 0,
        };
        watch.tick();
        watch
    }

    /// A tick; afterwards everybody has CPUs, and nobody's changed twice in 10 s unless some went away.
    #[track_caller]
    fn tick(&mut self) -> Status {
        let status = self.world.tick();
        self.now += self.world.step.unwrap_or(self.world.policy.control.interval);
        let online = self.world.host.with(|k| k.file("/sys/devices/system/cpu/online")).unwrap();
        let online = set(online.trim_end());
        let lost_some = !self.online.is_subset(&online);
        self.online = online;
        for name in self.tenants.clone() {
            let cpus = self.cpus(name);
            assert!(!cpus.is_empty() && !self.effective(name).is_empty(), "{name} has no CPU");
            match self.sets.get(name) {
                Some((_, before)) if *before == cpus => {}
                Some((changed, before)) => {
                    let rested = self.now - *changed >= Duration::from_secs(10);
                    assert!(rested || lost_some, "{name}: {before} to {cpus} at {:?}", self.now);
                    self.nr_changes += 1;
                    self.sets.insert(name, (self.now, cpus));
                }
                None => {
                    self.sets.insert(name, (self.now, cpus));
                }
            }
        }
        status
    }

    #[track_caller]
    fn ticks(&mut self, count: usize) -> Status {
        (0..count).map(|_| self.tick()).last().unwrap()
    }

    /// Ticks until `is_so`, at most `count` times; fails with what the tenants have then.
    #[track_caller]
    fn until(&mut self, what: &str, count: usize, is_so: impl Fn(&Watch) -> bool) {
        for _ in 0..count {
            if is_so(self) {
                return;
            }
            self.tick();
        }
        assert!(is_so(self), "{what}: not within {count} ticks: {:?}", self.sets);
    }

    /// What `cpuset.cpus` of a tenant holds.
    fn cpus(&self, tenant: &str) -> CpuSet {
        cpus(&self.world, tenant)
    }

    /// The CPUs that a tenant really may use.
    fn effective(&self, tenant: &str) -> CpuSet {
        let file = if is_legacy(&self.world) { "effective_cpus" } else { "cpus.effective" };
        set(&self.world.file(&cpuset(&self.world, tenant, file)))
    }

    /// Whether the tenants have these sets, in order.
    fn have(&self, lists: &[&str]) -> bool {
        self.tenants.iter().zip(lists).all(|(name, list)| self.cpus(name) == set(list))
    }

    /// Takes CPUs offline, or back.
    fn plug(&self, cpus: &str, online: bool) {
        self.world.host.with(|k| set(cpus).iter().for_each(|cpu| k.set_cpu_online(cpu, online)));
    }
}

fn is_legacy(world: &World) -> bool {
    world.host.with(|kernel| kernel.host().layout == tenantd_sim::Layout::Legacy)
}

/// The path of a cpuset file of a tenant below the mount.
fn cpuset(world: &World, tenant: &str, file: &str) -> String {
    let tree = if is_legacy(world) { "cpuset/" } else { "" };
    format!("{tree}{tenant}/cpuset.{file}")
}

fn cpus(world: &World, tenant: &str) -> CpuSet {
    set(&world.file(&cpuset(world, tenant, "cpus")))
}

/// The widths of all tenants in a status.
fn dops(status: &Status) -> Vec<u32> {
    status.tenants.iter().map(|tenant| tenant.dop.unwrap()).collect()
}

/// The findings that speak of CPUs.
fn cpuset_findings(status: &Status) -> Vec<&String> {
    status.findings.iter().filter(|finding| finding.contains("cpuset")).collect()
}

/// What a tenant was told.
fn told(world: &World, tenant: &str) -> String {
    let file = Path::new("tenants").join(tenant).join(dop_files::FILE);
    std::fs::read_to_string(world.state_dir().join(file)).unwrap()
}
