//! Cgroups of this machine that are there already, weighed where they are.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use serde_json::Value;
use tenantd_host::cgroup::Facet;

use super::ground::{Daemon, Ground};
use crate::util::{self, assert_same, wait_until};

/// The path of the cgroup `below` the root, from the mount of the tree that divides CPUs.
fn path(ground: &Ground, below: &str) -> String {
    let tree = &ground.layout.trees[ground.layout.tree(Facet::Cpu).unwrap()];
    format!("/{}", ground.dir(Facet::Cpu, below).strip_prefix(&tree.mount).unwrap().display())
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn cgroups_and_what_is_above_them_are_weighed_and_given_back() {
    let Some(mut ground) = Ground::take() else { return };
    for below in ["x", "x/a", "y", "y/b", "z"] {
        ground.make(below);
    }
    ground.give_values("x/a");
    let cpus = std::thread::available_parallelism().unwrap().get();
    for below in ["x/a", "y/b"] {
        ground.load(below, &format!("threads={}", 2 * cpus));
    }
    let before = ground.snapshot();
    let policy = format!(
        "tenants:\n  a: {{ match: {{ cgroup: {} }} }}\n  b: {{ weight: 400, match: {{ cgroup: [\"{}\"] }} }}\n",
        path(&ground, "x/a"),
        path(&ground, "y/*"),
    );
    let daemon = Daemon::start(&mut ground.enforce(&policy));
    wait_until("weights above", || ground.is_weighed("x") && ground.is_weighed("y"));
    let ratio = ground.ratio_of_use(["x/a", "y/b"]);
    assert!((2.5..6.0).contains(&ratio), "1 : {ratio}");
    assert!(!ground.is_weighed("z"), "a cgroup of nobody's was written");
    // A kill while all of it is held, and a second agent that begins from what the first one left.
    daemon.signal(Signal::SIGKILL);
    assert!(ground.is_weighed("x"));
    let daemon = Daemon::start(&mut ground.enforce(&policy));
    daemon.says("restoring them first");
    wait_until("weights again", || ground.is_weighed("x") && ground.is_weighed("y"));
    daemon.signal(Signal::SIGKILL);
    util::run(ground.tenantd().arg("--restore")).exits(0);
    assert_same(&before, &ground.snapshot(), "restored");
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_cgroup_in_place_goes_and_comes() {
    let Some(mut ground) = Ground::take() else { return };
    ground.make("jobs");
    let policy = format!(
        "tenants:\n  a: {{ weight: 300, match: {{ cgroup: {} }} }}\n  b: {{ match: {{ cgroup: [\"{}\"] }} }}\n",
        path(&ground, "jobs/a"),
        path(&ground, "jobs/**/b*"),
    );
    let before = ground.snapshot();
    let daemon = Daemon::start(&mut ground.enforce(&policy));
    daemon.says("is not there: it is shared with once it is");
    for round in 0..3 {
        ["jobs/a", "jobs/b"].iter().for_each(|below| ground.make(below));
        ground.load("jobs/a", "threads=1");
        ground.load("jobs/b", "threads=1");
        let are_weighed = || ["jobs/a", "jobs/b"].iter().all(|below| ground.is_weighed(below));
        wait_until(&format!("weights, round {round}"), are_weighed);
        ["jobs/a", "jobs/b"].iter().for_each(|below| ground.remove(below));
    }
    daemon.stop();
    assert_same(&before, &ground.snapshot(), "stopped");
}

/// A cgroup with this path from the mount of several hierarchies, and what was missing above it.
struct Made(Vec<PathBuf>);

impl Made {
    fn make(path: &Path) -> Made {
        let missing: Vec<PathBuf> =
            path.ancestors().take_while(|up| !up.exists()).map(Path::to_path_buf).collect();
        fs::create_dir_all(path).unwrap();
        Made(missing)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // Another test may use what is above.
        self.0.iter().for_each(|path| drop(fs::remove_dir(path)));
    }
}

/// Where the own cgroup is elsewhere in some hierarchies, a path from the mount is made in the others.
#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn memory_and_cpus_are_set_in_place_and_given_back() {
    let Some(ground) = Ground::take() else { return };
    if ground.layout.is_unified() || ground.layout.tree(Facet::Memory).is_none() {
        return util::skipped("the memory hierarchy is not a legacy one");
    }
    // Only below the own cgroup there.
    let memory = &ground.layout.trees[ground.layout.tree(Facet::Memory).unwrap()];
    let job = memory.root.strip_prefix(&memory.mount).unwrap().join("job");
    let trees = ground.layout.trees.iter();
    let dirs: Vec<PathBuf> = trees.map(|tree| tree.mount.join(&job)).collect();
    let _made: Vec<Made> = dirs.iter().map(|dir| Made::make(dir)).collect();
    let dir = |facet: Facet| dirs[ground.layout.tree(facet).unwrap()].clone();
    let mut files = vec![(dir(Facet::Memory).join("memory.limit_in_bytes"), "67108864")];
    let mut cpus = "";
    if ground.layout.tree(Facet::Cpuset).is_some() {
        let set = dir(Facet::Cpuset);
        let mount = &ground.layout.trees[ground.layout.tree(Facet::Cpuset).unwrap()].mount;
        for up in set.ancestors().take_while(|up| *up != mount).collect::<Vec<_>>().iter().rev() {
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let above = fs::read_to_string(up.parent().unwrap().join(file)).unwrap();
                fs::write(up.join(file), above.trim()).unwrap();
            }
        }
        files.push((set.join("cpuset.cpus"), "0"));
        cpus = "cpus: \"0\", ";
    }
    let read = |path: &Path| fs::read_to_string(path).unwrap().trim().to_string();
    let before: Vec<String> = files.iter().map(|(path, _)| read(path)).collect();
    let policy = format!(
        "tenants:\n  job: {{ {cpus}limit: {{ memory: 64MiB }}, match: {{ cgroup: /{} }} }}\n",
        job.display()
    );
    let daemon = Daemon::start(&mut ground.enforce(&policy));
    for (path, value) in &files {
        wait_until(&path.display().to_string(), || read(path) == *value);
    }
    daemon.stop();
    let after: Vec<String> = files.iter().map(|(path, _)| read(path)).collect();
    assert_eq!(after, before);
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn processes_are_moved_where_the_policy_says_so_and_go_back() {
    let Some(mut ground) = Ground::take() else { return };
    ground.make("jobs");
    let pids = [ground.load("jobs", "threads=1"), ground.load("jobs", "threads=1")];
    let before = ground.pids("jobs");
    let policy = format!(
        "tenants:\n  a: {{ match: {{ cgroup: {}, move: true }} }}\n",
        path(&ground, "jobs")
    );
    let mut daemon = ground.tenantd();
    daemon.arg("--policy").arg(ground.policy(&policy)).arg("--root");
    // What is below the root is in a tenant, or none is meant to have it.
    daemon.arg(format!("{}/tenants", ground.name));
    let daemon = Daemon::start(&mut daemon);
    daemon.says("moved into its cgroup from");
    wait_until("both in the tenant", || {
        let there = ground.pids("tenants/a");
        pids.iter().all(|pid| there.contains(pid))
    });
    daemon.stop();
    let is_there = |facet: Facet| ground.dir(facet, "tenants").exists();
    assert!(!is_there(Facet::Cpu) && !is_there(Facet::Memory));
    let set = |pids: Vec<u32>| pids.into_iter().collect::<BTreeSet<u32>>();
    assert_eq!(set(ground.pids("jobs")), set(before));
}

/// Cgroups without processes, those of the policy and those that a tenant has yet to get: the plan has their limits, names
/// their use and writes nothing.
#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn idle_cgroups_have_a_plan() {
    let Some(ground) = Ground::take() else { return };
    ["x", "x/a", "x/b"].iter().for_each(|below| ground.make(below));
    let before = ground.snapshot();
    let policy = format!(
        "tenants:\n  a: {{ limit: {{ cpu: 500m }}, match: {{ cgroup: {} }} }}\n  b: {{ match: {{ cgroup: {} }} }}\n  \
         own: {{ limit: {{ cpu: 500m }} }}\n",
        path(&ground, "x/a"),
        path(&ground, "x/b"),
    );
    let policy = ground.policy(&policy);
    let plan = |arguments: &[&str]| {
        let mut plan = util::tenantctl();
        plan.arg("plan").args(arguments).args(["--root", &ground.name, "--policy"]).arg(&policy);
        util::run(&mut plan).exits(0).out
    };
    let told: Value = serde_json::from_str(&plan(&["--json"])).unwrap();
    let tenants = told["tenants"].as_array().unwrap();
    let named = |name: &str| tenants.iter().find(|tenant| tenant["name"] == name).unwrap();
    for name in ["a", "b"] {
        assert_eq!(named(name)["usage_cores"], 0.0, "{told}");
        assert_eq!(named(name)["allocation_cores"], 0.0, "{told}");
    }
    assert!(named("own")["fair_share_cores"].as_f64().unwrap() > 0.0, "{told}");
    let quota = if ground.layout.is_unified() { "cpu.max" } else { "cpu.cfs_quota_us" };
    let actions = told["actions"].as_array().unwrap();
    let is_limit =
        |it: &&Value| it["tenant"] == "a" && it["path"].as_str().unwrap().ends_with(quota);
    let limit = actions.iter().find(is_limit).unwrap_or_else(|| panic!("{told}"));
    assert!(limit["to"].as_str().unwrap().starts_with("50000"), "{limit}");
    let text = plan(&[]);
    assert!(text.contains("uses 0.00 CPUs, wants 0.00"), "{text}");
    assert_same(&before, &ground.snapshot(), "planned");
}
