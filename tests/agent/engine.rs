//! Schedulers that are loaded through sched_ext, and the effect of weights under each.

use tenantd_control::report::status::Status;
use tenantd_control::why::explain::{Outcome, explain};
use tenantd_control::words::finding::Severity;
use tenantd_sim::{Load, Loaded, SimHost, Weighs};

use super::world::{World, snapshot};

const POLICY: &str = "tenants: { a: {}, b: { weight: 300 }, c: { weight: 200 } }";

fn loaded(name: &str, weighs: Weighs) -> Option<Loaded> {
    Some(Loaded { name: name.into(), weighs })
}

fn busy(host: SimHost) -> World {
    let mut world = World::on(SimHost { cpus: 4, ..host }, POLICY);
    world.start().unwrap();
    world.tick();
    for (tenant, threads) in [("/a", 16), ("/b", 8), ("/c", 8)] {
        world.spawn(tenant, Load::busy(threads));
    }
    world.ticks(5);
    world
}

fn of_engine(status: &Status) -> Vec<(Severity, &str)> {
    let is_of_engine =
        |it: &&tenantd_control::words::finding::Finding| it.message.contains("sched_ext");
    let all = status.finding_records.iter().filter(is_of_engine);
    all.map(|it| (it.severity, it.message.as_str())).collect()
}

fn is_void(world: &World, status: &Status) -> bool {
    let values = explain(world.agent.as_ref().unwrap().trace(), status, "a").unwrap().values;
    let weight = values
        .into_iter()
        .find(|it| it.path.contains("cpu.weight") || it.path.contains("cpu.shares"));
    weight.unwrap().outcome == Outcome::Ineffective
}

/// Loaded and replaced while tenants compete, on both hierarchies: the right finding in the third tick, and nothing is restored.
#[test]
fn the_effect_of_weights_is_known_in_three_ticks() {
    for host in [SimHost::default(), super::world::legacy()] {
        let mut world = busy(host);
        let nr_cgroups = snapshot(&world.host).len();
        for (name, weighs, severity, words) in [
            ("scx_flat", Weighs::Threads, Severity::Warning, "each thread, so a tenant with twice"),
            ("scx_blind", Weighs::Nothing, Severity::Warning, "gives each thread the same"),
            ("scx_cgroups", Weighs::Groups, Severity::Note, "as measured"),
        ] {
            world.host.with(|kernel| kernel.load_scheduler(loaded(name, weighs)));
            let status = world.ticks(3);
            let all = of_engine(&status);
            assert!(
                matches!(all[..], [(it, text)] if it == severity && text.contains(words) && text.contains(name)),
                "{all:?}"
            );
            assert_eq!(is_void(&world, &status), severity == Severity::Warning);
            assert_eq!(snapshot(&world.host).len(), nr_cgroups);
        }
        world.host.with(|kernel| kernel.load_scheduler(None));
        let status = world.ticks(12);
        assert_eq!(of_engine(&status), []);
        assert!(!is_void(&world, &status));
    }
}

/// Without competition there is no evidence, and the finding names that.
#[test]
fn an_idle_host_proves_nothing() {
    let mut world = World::on(SimHost { cpus: 4, ..SimHost::default() }, POLICY);
    world.start().unwrap();
    world.tick();
    world.host.with(|kernel| kernel.load_scheduler(loaded("scx_flat", Weighs::Threads)));
    world.spawn("/a", Load::busy(8));
    let status = world.ticks(8);
    let all = of_engine(&status);
    assert!(
        matches!(all[..], [(Severity::Warning, text)] if text.contains("may be ineffective")),
        "{all:?}"
    );
}
