//! Whole lives of an agent, to be told again with something going wrong at every point.
//!
//! Each story begins on a host that somebody has already used: cgroups with values of their own, processes
//! that a policy claims. When it ends, in whatever way, the host must be as it was.

use std::time::Duration;

use tenantd_sim::{Layout, Load, SimHost, SimKernel, Workload};

use super::world::{MIB, World};

/// How a story begins, and what happens in it up to the stop.
#[derive(Clone, Copy)]
pub(super) struct Story {
    pub(super) name: &'static str,
    pub(super) begin: fn() -> World,
}

/// Tenants are made below the root of the hierarchy.
pub(super) const MADE: Story = Story { name: "made", begin: made };
/// ... or below a root that is made too.
pub(super) const DEEP: Story = Story { name: "deep", begin: deep };
/// The agent is alone in a cgroup of its own, as a service is.
pub(super) const SERVICE: Story = Story { name: "service", begin: service };
/// One tenant is there already, with values and processes that are claimed.
pub(super) const ADOPTED: Story = Story { name: "adopted", begin: adopted };
/// The same on a legacy host.
pub(super) const LEGACY: Story = Story { name: "legacy", begin: adopted_legacy };

/// Tenants are pinned to CPUs, one of them in a cgroup that has a set of its own already.
pub(super) const PINNED: Story = Story { name: "pinned", begin: pinned };
/// The same on a legacy host.
pub(super) const PINNED_LEGACY: Story = Story { name: "pinned, legacy", begin: pinned_legacy };

/// Tenants are cgroups that are there already, with values of their own, also above them.
pub(super) const IN_PLACE: Story = Story { name: "in place", begin: in_place };
/// The same on a legacy host.
pub(super) const IN_PLACE_LEGACY: Story =
    Story { name: "in place, legacy", begin: in_place_legacy };

const SETS: &str = "\
tenants:
  web: { cpus: exclusive, match: { cgroup: /build, move: true } }
  db: { owner: direct, cpus: dop, match: { users: [ 1000, 1001 ] } }
  ci: { tenants: { nightly: {} } }
";

const GROUPS: &str = "\
tenants:
  web: { weight: 300, limit: { cpu: 1, memory: 1GiB } }
  ci:
    limit: { memory: 2GiB }
    tenants: { nightly: {}, pulls: { weight: 3, guarantee: { memory: 64MiB } } }
";

const CLAIMS: &str = "\
tenants:
  web: { weight: 300, limit: { cpu: 1, memory: 1GiB }, match: { cgroup: /build, move: true } }
  db: { owner: direct, match: { users: [ 1000, 1001 ] } }
";

const PLACES: &str = "\
tenants:
  web: { weight: 300, limit: { cpu: 1, memory: 1GiB }, match: { cgroup: /web } }
  db: {}
  ci:
    tenants:
      nightly: { cpus: dop, match: { cgroup: /ci/nightly } }
      pulls: { weight: 3, guarantee: { memory: 64MiB }, match: { cgroup: /ci/pulls } }
";

/// A small machine: its files are read thousands of times.
fn small(layout: Layout) -> SimKernel {
    SimKernel::new(SimHost { cpus: 1, layout, ..SimHost::default() })
}

fn made() -> World {
    World::with(small(Layout::Unified), GROUPS)
}

fn deep() -> World {
    let mut world = made();
    world.options.root = Some("/machine/tenants".into());
    world
}

/// The agent starts in a delegated cgroup that holds nobody else.
fn service() -> World {
    let mut kernel = small(Layout::Unified);
    kernel.make_cgroup("/system/tenantd").unwrap();
    let caller = kernel.caller().to_string();
    kernel.write_file("/sys/fs/cgroup/system/tenantd/cgroup.procs", &caller).unwrap();
    World::with(kernel, GROUPS)
}

fn adopted() -> World {
    let mut kernel = small(Layout::Unified);
    kernel.make_cgroup("/machine/web").unwrap();
    for (file, value) in [
        ("cpu.weight", "77"),
        ("cpu.max", "30000 50000"),
        ("memory.low", "1048576"),
        ("memory.max", "536870912"),
    ] {
        kernel.write_file(&format!("/sys/fs/cgroup/machine/web/{file}"), value).unwrap();
    }
    populate(&mut kernel);
    let mut world = World::with(kernel, CLAIMS);
    world.options.root = Some("/machine".into());
    world
}

fn adopted_legacy() -> World {
    let mut kernel = small(Layout::Legacy);
    kernel.make_cgroup("/machine/web").unwrap();
    for (file, value) in [
        ("cpu/machine/web/cpu.shares", "77"),
        ("cpu/machine/web/cpu.cfs_period_us", "50000"),
        ("cpu/machine/web/cpu.cfs_quota_us", "30000"),
        ("memory/machine/web/memory.soft_limit_in_bytes", "1048576"),
        ("memory/machine/web/memory.limit_in_bytes", "536870912"),
    ] {
        kernel.write_file(&format!("/sys/fs/cgroup/{file}"), value).unwrap();
    }
    populate(&mut kernel);
    let mut world = World::with(kernel, CLAIMS);
    world.options.root = Some("/machine".into());
    world
}

fn pinned() -> World {
    pinned_on(Layout::Unified, "")
}

fn pinned_legacy() -> World {
    pinned_on(Layout::Legacy, "cpuset/")
}

fn pinned_on(layout: Layout, tree: &str) -> World {
    let mut kernel = SimKernel::new(SimHost { cpus: 2, layout, ..SimHost::default() });
    kernel.make_cgroup("/machine/web").unwrap();
    for (file, value) in [
        ("machine/cpuset.cpus", "0-1"),
        ("machine/cpuset.mems", "0"),
        ("machine/web/cpuset.cpus", "0-1"),
        ("machine/web/cpuset.mems", "0"),
    ] {
        kernel.write_file(&format!("/sys/fs/cgroup/{tree}{file}"), value).unwrap();
    }
    populate(&mut kernel);
    let mut world = World::with(kernel, SETS);
    world.options.root = Some("/machine".into());
    world
}

fn in_place() -> World {
    let values = [
        ("web/cpu.weight", "77"),
        ("web/cpu.max", "30000 50000"),
        ("web/memory.max", "536870912"),
        ("ci/cpu.weight", "50"),
        ("ci/memory.low", "1048576"),
        ("ci/nightly/cpuset.cpus", "0"),
        ("ci/pulls/memory.low", "2097152"),
    ];
    in_place_on(Layout::Unified, &values)
}

fn in_place_legacy() -> World {
    let values = [
        ("cpu/web/cpu.shares", "77"),
        ("cpu/web/cpu.cfs_period_us", "50000"),
        ("cpu/web/cpu.cfs_quota_us", "30000"),
        ("memory/web/memory.limit_in_bytes", "536870912"),
        ("cpu/ci/cpu.shares", "512"),
        ("cpuset/ci/cpuset.cpus", "0-1"),
        ("cpuset/ci/cpuset.mems", "0"),
        ("cpuset/ci/nightly/cpuset.cpus", "0"),
        ("cpuset/ci/nightly/cpuset.mems", "0"),
        ("memory/ci/pulls/memory.soft_limit_in_bytes", "2097152"),
    ];
    in_place_on(Layout::Legacy, &values)
}

fn in_place_on(layout: Layout, values: &[(&str, &str)]) -> World {
    let mut kernel = SimKernel::new(SimHost { cpus: 2, layout, ..SimHost::default() });
    for path in ["/web/inside", "/ci/nightly", "/ci/pulls"] {
        kernel.make_cgroup(path).unwrap();
    }
    for (file, value) in values {
        kernel.write_file(&format!("/sys/fs/cgroup/{file}"), value).unwrap();
    }
    let mut world = World::with(kernel, PLACES);
    world.host.without_systemd();
    world
}

/// Processes that the policy claims, and some that it does not.
fn populate(kernel: &mut SimKernel) {
    for path in ["/build/one", "/build/two", "/home"] {
        kernel.make_cgroup(path).unwrap();
    }
    let busy = Load::busy(1).with_working_set(MIB);
    let uid = |uid| Workload::constant("load", busy).owned_by(uid);
    // A legacy cpuset takes nobody before it is configured.
    kernel.spawn("/", uid(1001)).unwrap();
    for (path, uid) in [("build/one", 1), ("build/two", 1000), ("home", 1000), ("home", 1002)] {
        let pid = kernel.spawn("/", Workload::constant("load", busy).owned_by(uid)).unwrap();
        for tree in ["", "cpu/", "cpuacct/", "memory/", "blkio/", "unified/"] {
            let file = format!("/sys/fs/cgroup/{tree}{path}/cgroup.procs");
            let _ = kernel.write_file(&file, &pid.to_string());
        }
    }
}

/// The middle of every story: tenants are made, filled, shared among, disturbed. Where the agent could not
/// start, nothing happens. Returns the processes that were started on the way.
pub(super) fn play(world: &mut World) -> Vec<u32> {
    world.step = Some(Duration::from_millis(20));
    if world.start().is_err() {
        return Vec::new();
    }
    world.tick();
    let root = world.options.root.as_ref().map_or("", |root| root.to_str().unwrap()).to_string();
    let own = world.host.with(|kernel| kernel.process_cgroup(kernel.caller()).unwrap());
    let own = own.trim_end_matches('/').trim_end_matches("/tenantd.agent").to_string();
    let root = if root.is_empty() { own } else { root };
    let mut born = Vec::new();
    for tenant in ["web", "ci/nightly", "ci/pulls", "db"] {
        let path = format!("{root}/{tenant}");
        let busy = Load { touch_bytes_per_sec: 1 << 30, ..Load::busy(2) };
        // A tenant that could not be made has no place to run.
        let busy = busy.with_working_set(8 * MIB);
        born.extend(world.host.with(|kernel| kernel.spawn(&path, busy)));
    }
    world.ticks(2);
    if let Some(pid) = born.first() {
        // It may have been killed with its cgroup.
        let _ = world.host.with(|kernel| kernel.set_load(*pid, Load::idle()));
    }
    world.ticks(2);
    born
}

/// Ends what the story started.
pub(super) fn leave(world: &World, born: &[u32]) {
    world.host.with(|kernel| born.iter().for_each(|pid| kernel.kill(*pid).unwrap()));
}
