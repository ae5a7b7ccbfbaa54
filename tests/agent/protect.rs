//! Memory protection on a small host without swap, beside memory that cannot be reclaimed.

use tenantd_control::memory::protect;
use tenantd_control::why::explain::{self, Outcome};
use tenantd_core::resource::MEMORY;
use tenantd_sim::{Load, SimHost};

use super::world::{GIB, MIB, World, legacy, tenant};

const VICTIM: u64 = 600 * MIB;
const HOG: u64 = 1500 * MIB;

fn host() -> SimHost {
    SimHost { memory_bytes: 2 * GIB, ..SimHost::default() }
}

/// What of a cgroup's memory the kernel could not take, in bytes.
fn unreclaimable(world: &World, path: &str) -> f64 {
    let stat = world.file(&format!("{path}/memory.stat"));
    let of = |key: &str| -> u64 {
        let line = stat.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        line.unwrap().parse().unwrap()
    };
    (of("anon") + of("kernel")) as f64
}

fn number(world: &World, file: &str) -> f64 {
    world.file(file).parse().unwrap()
}

/// A tenant reads 600 MiB of files all the time; a minute later another fills 1,500 MiB of
/// anonymous memory as fast as it can. Returns how much of the first is left in the end, tick by
/// tick checked by `look`.
fn squeeze(agent: bool, mut look: impl FnMut(&World)) -> f64 {
    let mut world = World::on(host(), "tenants: { victim: {}, hog: {} }");
    if agent {
        world.start().unwrap();
        world.tick();
    } else {
        world.host.with(|kernel| {
            for dir in ["victim", "hog"] {
                kernel.make_cgroup(&format!("/{dir}")).unwrap();
            }
        });
    }
    let pass = |world: &mut World| {
        if agent {
            drop(world.tick())
        } else {
            world.host.with(|kernel| kernel.advance(std::time::Duration::from_secs(1)))
        }
    };
    world
        .spawn("/victim", Load { touch_bytes_per_sec: GIB, ..Load::busy(1) }.with_hot_file(VICTIM));
    (0..60).for_each(|_| pass(&mut world));
    let hog = Load { touch_bytes_per_sec: GIB, ..Load::busy(1) };
    world.spawn("/hog", hog.with_working_set(HOG));
    for _ in 0..120 {
        pass(&mut world);
        look(&world);
    }
    number(&world, "victim/memory.current")
}

/// The second in which the hog arrives cannot be foreseen; after it what is protected and what
/// cannot be taken fit into the machine, with room between them.
#[test]
fn protection_leaves_something_to_reclaim_at_every_tick() {
    let alone = squeeze(false, |_| ());
    let mut ticks = 0;
    let with_agent = squeeze(true, |world| {
        ticks += 1;
        let kept = |path: &str| {
            number(world, &format!("{path}/memory.low")).max(unreclaimable(world, path))
        };
        let total = (2 * GIB) as f64;
        // The kernel's own part of the simulated machine.
        let sum = kept("victim") + kept("hog") + total / 64.0;
        let standing = 0.2 * protect::margin(total);
        assert!(ticks <= 2 || sum <= total - standing, "tick {ticks}: {sum} of {total}");
    });
    assert!(with_agent >= alone * 0.99, "{with_agent} with an agent and {alone} without");
    assert!(with_agent > 0.4 * VICTIM as f64, "{with_agent}");
}

#[test]
fn a_squeezed_tenant_keeps_its_demand() {
    for host in [host(), SimHost { memory_bytes: 2 * GIB, ..legacy() }] {
        let mut world = World::on(host, "tenants: { victim: {}, hog: {} }");
        world.start().unwrap();
        world.tick();
        let load = Load { touch_bytes_per_sec: GIB, ..Load::busy(1) };
        world.spawn("/victim", load.with_hot_file(VICTIM));
        world.ticks(10);
        world.spawn("/hog", load.with_working_set(HOG));
        let status = world.ticks(90);
        let victim = tenant(&status, "victim");
        assert!(victim.demand[MEMORY] >= 0.95 * VICTIM as f64, "{victim:?}");
        let bounded = |finding: &String| finding.contains("leaves too little to protect");
        assert!(status.findings.iter().any(bounded), "{:?}", status.findings);
    }
}

/// A guarantee that the kernel does not pass on to cgroups inside does not count as kept; one of a tenant without such does.
#[test]
fn a_guarantee_that_ends_at_a_slice_is_not_shown_as_kept() {
    for recursive in [true, false] {
        let sim = SimHost { memory_recursiveprot: recursive, ..host() };
        let policy = "tenants: { db: { guarantee: { memory: 512MiB } }, web: { guarantee: { memory: 64MiB } }, x: {} }";
        let mut world = World::on(sim, policy);
        world.start().unwrap();
        world.ticks(2);
        world.host.with(|kernel| kernel.make_cgroup("/db/inner")).unwrap();
        world.spawn("/db/inner", Load::busy(1).with_working_set(100 * MIB));
        world.spawn("/web", Load::busy(1).with_working_set(32 * MIB));
        let status = world.ticks(25);
        let void = ["db", "web", "x"].map(|name| tenant(&status, name).memory_guarantee_void);
        assert_eq!(void, [!recursive, false, false]);
        let trace = world.agent.as_ref().unwrap().trace();
        let explanation = explain::explain(trace, &status, "db").unwrap();
        let min =
            explanation.values.iter().find(|value| value.path.ends_with("memory.min")).unwrap();
        assert_eq!(min.outcome == Outcome::Ineffective, !recursive, "{min:?}");
    }
}

/// A container that mounts cgroup2 without the option switches it off for the whole host.
#[test]
fn protection_that_ends_at_a_slice_is_reported_once() {
    let found = |recursive: bool| {
        let sim = SimHost { memory_recursiveprot: recursive, ..host() };
        let mut world = World::on(sim, "tenants: { db: { guarantee: { memory: 512MiB } } }");
        world.start().unwrap();
        world.ticks(12);
        let findings = world.agent.as_ref().unwrap().status().findings.clone();
        findings.into_iter().filter(|it| it.contains("memory_recursiveprot")).collect::<Vec<_>>()
    };
    assert!(found(true).is_empty());
    let findings = found(false);
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(
        findings[0].contains("mount -o remount,nsdelegate,memory_recursiveprot"),
        "{findings:?}"
    );
}
