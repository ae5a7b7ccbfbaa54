//! Random administration of a host whose tenants are cgroups in place: cgroups come and go, with values of their own,
//! the policy names others, and the agent is killed. In the end every cgroup holds what it was made with.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tenantd_policy::model::Mode;
use tenantd_sim::{Layout, Load, SimHost};
use tenantd_varlink::bridge::{Caller, Work};

use super::super::world::{MIB, Snapshot, World, assert_same, snapshot};
use super::{host, reload};

/// Cgroups that a policy may name; what is above them comes and goes with them.
const PATHS: [&str; 6] = ["/top", "/x/a", "/x/deep/b", "/x/deep/c", "/y/d", "/y/e"];

const ROOT: Caller = Caller { user: None, pid: 0 };

#[derive(Clone, Debug)]
enum Step {
    Ticks(usize),
    /// Ticks as a service has them, with so many steps of the work that each leaves over.
    Serve(usize, usize),
    /// A cgroup is made, with this weight and this protection.
    Make(usize, u64),
    Remove(usize),
    Start(usize),
    End,
    Reload(Plan),
    /// The agent is killed, and the next one starts; or what it left is restored first.
    Kill(bool),
    Mode(bool),
    /// A process is handed to a tenant.
    Attach(usize, usize),
    /// A cgroup is.
    AttachCgroup(usize, usize),
    /// Either is taken back.
    Detach(usize),
}

/// What a policy names.
#[derive(Clone, Debug)]
struct Plan {
    named: BTreeSet<usize>,
    limits: bool,
    pins: bool,
    moves: bool,
    leaves: bool,
    /// Those below some directories are found by pattern, and not named.
    finds: bool,
}

impl Plan {
    fn yaml(&self) -> String {
        let mut yaml = String::new();
        if self.leaves {
            yaml += "control: { ancestors: leave }\n";
        }
        yaml += "tenants:\n  made: {}\n";
        if self.finds {
            let limit = if self.limits { "limit: { cpu: 2, memory: 1GiB }, " } else { "" };
            let paths = "[ \"/x/deep/*\", \"/y/**/?\" ]";
            yaml += &format!("  found: {{ {limit}match: {{ cgroup: {paths} }} }}\n");
        }
        for index in self.named.iter().filter(|index| **index < 2 || !self.finds) {
            let limit = if self.limits { "limit: { cpu: 2, memory: 1GiB }, " } else { "" };
            let cpus = if self.pins && *index == 1 { "cpus: \"1\", " } else { "" };
            let moves = if self.moves && *index == 4 { ", move: true" } else { "" };
            let (weight, path) = (100 * (index + 1), PATHS[*index]);
            yaml += &format!(
                "  t{index}: {{ weight: {weight}, {limit}{cpus}match: {{ cgroup: {path}{moves} }} }}\n"
            );
        }
        yaml
    }
}

fn plan() -> impl Strategy<Value = Plan> {
    let named = prop::collection::btree_set(0..PATHS.len(), 0..=PATHS.len());
    let all = (named, any::<[bool; 4]>(), prop::bool::weighted(0.2));
    all.prop_map(|(named, [limits, pins, moves, finds], leaves)| Plan {
        named,
        limits,
        pins,
        moves,
        leaves,
        finds,
    })
}

fn step() -> impl Strategy<Value = Step> {
    let path = 0..PATHS.len();
    prop_oneof![
        4 => (1_usize..4).prop_map(Step::Ticks),
        2 => (path.clone(), 2_u64..999).prop_map(|(path, value)| Step::Make(path, value)),
        1 => path.clone().prop_map(Step::Remove),
        3 => path.prop_map(Step::Start),
        1 => Just(Step::End),
        2 => plan().prop_map(Step::Reload),
        1 => any::<bool>().prop_map(Step::Kill),
        2 => any::<bool>().prop_map(Step::Mode),
        3 => (1_usize..4, 0_usize..4).prop_map(|(ticks, steps)| Step::Serve(ticks, steps)),
        3 => (0_usize..8, 0..PATHS.len()).prop_map(|(process, to)| Step::Attach(process, to)),
        2 => (0..PATHS.len(), 0..PATHS.len()).prop_map(|(path, to)| Step::AttachCgroup(path, to)),
        1 => (0_usize..8).prop_map(Step::Detach),
    ]
}

struct Run {
    world: World,
    layout: Layout,
    pids: Vec<u32>,
    /// What each cgroup was made with.
    made: Snapshot,
}

impl Run {
    fn begin(layout: Layout) -> Run {
        let sim = SimHost { cpus: 2, layout, ..SimHost::default() };
        let yaml = Plan {
            named: BTreeSet::from([0, 2, 3]),
            limits: true,
            pins: false,
            moves: false,
            leaves: false,
            finds: false,
        };
        let mut world = host(sim, &["/other"], &yaml.yaml());
        world.options.root = Some("/tenants".into());
        let made = snapshot(&world.host);
        let mut run = Run { world, layout, pids: Vec::new(), made };
        (0..PATHS.len()).for_each(|index| run.make(index, 70 + index as u64));
        run.world.start().unwrap();
        run
    }

    fn file(&self, tree: &str, path: &str, name: &str) -> String {
        match self.layout {
            Layout::Unified => format!("{}/{name}", &path[1..]),
            _ => format!("{tree}{path}/{name}"),
        }
    }

    fn is_there(&self, path: &str) -> bool {
        let procs = self.file("cpu", path, "cgroup.procs");
        self.world.host.with(|kernel| kernel.file(&format!("/sys/fs/cgroup/{procs}"))).is_ok()
    }

    fn make(&mut self, index: usize, value: u64) {
        let path = PATHS[index];
        if self.is_there(path) {
            return;
        }
        let ups = |path: &str| -> Vec<String> {
            let ends = path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]);
            ends.map(|end| path[..end].to_string()).collect()
        };
        let new: Vec<String> = ups(path).into_iter().filter(|up| !self.is_there(up)).collect();
        super::make(&self.world, path);
        let (weight, low) = match self.layout {
            Layout::Unified => ("cpu.weight", "memory.low"),
            _ => ("cpu.shares", "memory.soft_limit_in_bytes"),
        };
        for up in &new {
            self.world.write(&self.file("cpu", up, weight), &value.to_string());
            self.world.write(&self.file("memory", up, low), &(value * 4096).to_string());
        }
        let is_new = |name: &String| {
            new.iter().any(|up| name.ends_with(up.as_str()) || name.contains(&format!("{up}/")))
        };
        self.made.extend(snapshot(&self.world.host).into_iter().filter(|(name, _)| is_new(name)));
    }

    fn end_loads(&mut self) {
        for pid in self.pids.drain(..) {
            // It may have been killed for want of memory.
            let _ = self.world.host.with(|kernel| kernel.kill(pid));
        }
    }

    fn remove(&mut self, index: usize) {
        self.end_loads();
        if self.is_there(PATHS[index]) {
            super::remove(&self.world, PATHS[index]);
            self.made.retain(|name, _| {
                !name.ends_with(PATHS[index]) && !name.contains(&format!("{}/", PATHS[index]))
            });
        }
    }

    fn serve(&mut self, nr_ticks: usize, nr_steps: usize) {
        for _ in 0..nr_ticks {
            // What the change before it has left over comes first.
            for _ in 0..nr_steps {
                let agent = self.world.agent.as_mut().unwrap();
                if agent.has_more_work() {
                    agent.continue_work();
                }
            }
            self.world.short_tick();
        }
    }

    /// Hands work to a tenant, which may be refused.
    fn attach(&mut self, to: usize, work: &Work) {
        let tenant = if to == 0 { "made".to_string() } else { format!("t{to}") };
        let _ = self.world.agent.as_mut().unwrap().attach_work(&tenant, work, false, ROOT);
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Ticks(nr) => drop(self.world.ticks(*nr)),
            Step::Serve(nr_ticks, nr_steps) => self.serve(*nr_ticks, *nr_steps),
            Step::Attach(process, to) => {
                let pid = self.pids.get(process % self.pids.len().max(1)).copied();
                let work = pid.map(|pid| Work::Processes(vec![pid]));
                work.into_iter().for_each(|work| self.attach(*to, &work));
            }
            Step::AttachCgroup(path, to) => {
                self.attach(*to, &Work::Cgroup(PATHS[*path].to_string()));
            }
            Step::Detach(number) => {
                let pid = self.pids.get(number % self.pids.len().max(1)).copied();
                let path = Work::Cgroup(PATHS[number % PATHS.len()].to_string());
                let agent = self.world.agent.as_mut().unwrap();
                let works = pid.map(|pid| Work::Processes(vec![pid])).into_iter().chain([path]);
                // Most is not attached.
                works.for_each(|work| drop(agent.detach_work(&work, ROOT)));
            }
            Step::Make(index, value) => self.make(*index, *value),
            Step::Remove(index) => self.remove(*index),
            Step::Start(index) => {
                let load = Load::busy(2).with_working_set(8 * MIB);
                let pid = self.world.host.with(|kernel| kernel.spawn(PATHS[*index], load));
                self.pids.extend(pid);
            }
            Step::End => self.end_loads(),
            Step::Reload(plan) => reload(&mut self.world, &plan.yaml()),
            Step::Kill(restores) => {
                self.world.kill();
                if *restores {
                    assert_eq!(self.world.restore().failures, [""; 0]);
                }
                self.world.start().unwrap();
            }
            Step::Mode(enforces) => {
                let mode = if *enforces { Mode::Enforce } else { Mode::Observe };
                let agent = self.world.agent.as_mut().unwrap();
                assert_eq!(agent.set_mode(mode).unwrap(), [""; 0]);
            }
        }
    }
}

fn live(layout: Layout, steps: &[Step]) {
    let mut run = Run::begin(layout);
    steps.iter().for_each(|step| run.take(step));
    run.end_loads();
    assert_eq!(run.world.stop().failures, [""; 0]);
    assert_same(&run.made, &snapshot(&run.world.host), &format!("{layout:?}"));
    assert!(!run.world.state_dir().join("journal").exists(), "a journal is left");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn every_cgroup_holds_what_it_was_made_with(steps in prop::collection::vec(step(), 1..40)) {
        live(Layout::Unified, &steps);
        live(Layout::Legacy, &steps);
    }
}
