//! Sets of CPUs on this machine's own cpusets: written, followed, lent, and given back.

use std::fs;
use std::path::PathBuf;

use nix::sys::signal::Signal;
use tenantd_dop::CpuSet;
use tenantd_host::cgroup::Facet;

use super::ground::{Daemon, Ground};
use crate::util::{self, assert_same, wait_until};

const TWO: &str = "tenants: { a: { cpus: dop }, b: { cpus: dop } }";

/// A piece of a machine that has cpusets and at least two CPUs, and how many.
fn take() -> Option<(Ground, usize)> {
    let ground = Ground::take()?;
    let root = ground.layout.trees[ground.layout.tree(Facet::Cpuset)?].root.clone();
    let above = root.parent()?;
    let all = [above.join("cpuset.effective_cpus"), above.join("cpuset.cpus.effective")];
    let all = all.iter().find_map(|file| fs::read_to_string(file).ok());
    match all.and_then(|list| list.trim_end().parse::<CpuSet>().ok()) {
        Some(all) if all.len() >= 2 => Some((ground, all.len())),
        _ => {
            util::skipped("fewer than two CPUs in a cpuset here");
            None
        }
    }
}

fn file(ground: &Ground, tenant: &str, name: &str) -> PathBuf {
    ground.dir(Facet::Cpuset, tenant).join(name)
}

/// The CPUs in a file of a tenant's cpuset; none where there is no such file yet.
fn set(ground: &Ground, tenant: &str, name: &str) -> CpuSet {
    let text = fs::read_to_string(file(ground, tenant, name)).unwrap_or_default();
    text.trim_end().parse().unwrap()
}

fn cpus(ground: &Ground, tenant: &str) -> CpuSet {
    set(ground, tenant, "cpuset.cpus")
}

fn effective(ground: &Ground, tenant: &str) -> CpuSet {
    let name =
        if ground.layout.is_unified() { "cpuset.cpus.effective" } else { "cpuset.effective_cpus" };
    set(ground, tenant, name)
}

/// The CPUs that the kernel lets a process run on.
fn allowed(pid: u32) -> CpuSet {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    list.trim().parse().unwrap()
}

/// Where a process is in the tree that has cpusets.
fn home(ground: &Ground, pid: u32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let is_cpuset = |line: &&str| {
        if ground.layout.is_unified() {
            line.starts_with("0::")
        } else {
            line.split(':').nth(1).is_some_and(|names| names.contains("cpuset"))
        }
    };
    text.lines().find(is_cpuset).unwrap().splitn(3, ':').nth(2).unwrap().to_string()
}

/// Two equal tenants that keep more threads busy than there are CPUs, and a daemon that has pinned them.
fn pinned(ground: &mut Ground, nr_cpus: usize) -> (Daemon, [u32; 2]) {
    let pids = ["a", "b"].map(|tenant| ground.load(tenant, &format!("threads={}", 2 * nr_cpus)));
    let daemon = Daemon::start(&mut ground.enforce(TWO));
    wait_until("a half of the CPUs for each", || {
        let (a, b) = (cpus(ground, "a"), cpus(ground, "b"));
        a.is_disjoint(&b) && a.len() + b.len() == nr_cpus && a.len().abs_diff(b.len()) <= 1
    });
    (daemon, pids)
}

fn made() -> Option<(Ground, usize)> {
    let (ground, nr_cpus) = take()?;
    ["a", "b"].iter().for_each(|tenant| ground.make(tenant));
    Some((ground, nr_cpus))
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn processes_follow_into_the_sets_of_their_tenants() {
    let Some((mut ground, nr_cpus)) = made() else { return };
    let (daemon, pids) = pinned(&mut ground, nr_cpus);
    for (tenant, pid) in ["a", "b"].into_iter().zip(pids) {
        wait_until("a process in its tenant's set", || {
            allowed(pid) == cpus(&ground, tenant) && home(&ground, pid).ends_with(tenant)
        });
        assert_eq!(effective(&ground, tenant), cpus(&ground, tenant));
    }
    // One that comes later follows, too.
    let late = ground.load("b", "threads=1");
    wait_until("the late one", || allowed(late) == cpus(&ground, "b"));
    assert!(!daemon.said().contains("WARN b:"), "{}", daemon.said());
    daemon.stop();
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn cpus_of_a_sleeper_are_lent_and_given_back() {
    let Some((mut ground, nr_cpus)) = made() else { return };
    let (daemon, [a, b]) = pinned(&mut ground, nr_cpus);
    let own = cpus(&ground, "a");
    ground.say(a, "threads=0");
    wait_until("all CPUs for b", || allowed(b).len() == nr_cpus);
    assert_eq!(cpus(&ground, "a"), own, "it keeps its own to wake up on");
    ground.say(a, &format!("threads={}", 2 * nr_cpus));
    wait_until("the CPUs of a for a alone", || allowed(b).is_disjoint(&own));
    assert_eq!((allowed(a), cpus(&ground, "a")), (own.clone(), own));
    daemon.stop();
}

/// `a` was pinned by somebody before, to one CPU; `b` was not.
fn adopted() -> Option<(Ground, usize)> {
    let (ground, nr_cpus) = made()?;
    if !ground.layout.is_unified() {
        for dir in ["", "a"].map(|below| ground.dir(Facet::Cpuset, below)) {
            let above = dir.parent()?.to_path_buf();
            fs::create_dir(&dir).unwrap();
            for name in ["cpuset.cpus", "cpuset.mems"] {
                fs::write(dir.join(name), fs::read(above.join(name)).unwrap()).unwrap();
            }
        }
    }
    let last = cpus(&ground, "").last().map(|cpu| cpu.to_string()).unwrap_or("1".into());
    fs::write(file(&ground, "a", "cpuset.cpus"), last).unwrap();
    Some((ground, nr_cpus))
}

/// A life from which everything has to be put back, however it ends.
fn put_back(end: impl FnOnce(&Ground, Daemon)) {
    let Some((mut ground, nr_cpus)) = adopted() else { return };
    let before = ground.snapshot();
    let (daemon, pids) = pinned(&mut ground, nr_cpus);
    wait_until("both in their sets", || {
        allowed(pids[0]).len() < nr_cpus && allowed(pids[1]).len() < nr_cpus
    });
    // Born in the set of its tenant: nothing was ever recorded of it.
    let born = ground.load("b", "threads=1");
    wait_until("the late one", || allowed(born) == cpus(&ground, "b"));
    end(&ground, daemon);
    for pid in [born, pids[0], pids[1]] {
        assert_eq!(allowed(pid).len(), nr_cpus, "it was confined by us alone");
        ground.end(pid);
    }
    assert_same(&before, &ground.snapshot(), "put back");
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn sigterm_restores_sets() {
    put_back(|_, daemon| drop(daemon.stop()));
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn restore_after_kill_restores_sets() {
    put_back(|ground, daemon| {
        daemon.signal(Signal::SIGKILL);
        util::run(ground.tenantd().arg("--restore")).exits(0);
    });
}
