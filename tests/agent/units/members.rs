//! Tenants of several units, which come and go.

use tenantd_control::why::explain::explain;

use super::*;

const POLICY: &str = "\
tenants:
  web:
    weight: 300
    match: { unit: [nginx.service, \"php*-fpm.service\"] }
    limit: { memory: 2GiB }
  batch: { weight: 100, match: { unit: batch.service } }
";
const NGINX: &str = "system.slice/nginx.service";
const FPM: &str = "system.slice/php8-fpm.service";
const BATCH: &str = "batch.slice/batch.service";

fn world(busy: &[&str]) -> World {
    let world = World::new(POLICY);
    world.host.systemd(|systemd, kernel| {
        for unit in [NGINX, FPM, BATCH] {
            let name = unit.rsplit('/').next().unwrap();
            systemd.add(kernel, name, &format!("/{unit}"));
        }
    });
    for unit in busy {
        world.spawn(&format!("/{unit}"), Load::busy(8).with_working_set(64 * MIB));
    }
    world
}

fn start(world: &mut World, unit: &str) {
    let name = unit.rsplit('/').next().unwrap();
    world.host.systemd(|systemd, kernel| systemd.start(kernel, name));
    world.spawn(&format!("/{unit}"), Load::busy(8).with_working_set(64 * MIB));
}

fn stop(world: &mut World, unit: &str) {
    let name = unit.rsplit('/').next().unwrap();
    world.host.systemd(|systemd, kernel| systemd.stop(kernel, name));
}

fn limit(world: &World, unit: &str) -> u64 {
    world.file(&format!("{unit}/memory.max")).parse().unwrap()
}

#[test]
fn several_units_have_one_share_together() {
    let mut world = world(&[NGINX, FPM, BATCH]);
    let before = whole(&world);
    world.start().unwrap();
    world.ticks(20);
    assert_near(&world.shares(&[NGINX, FPM, BATCH], 20), &[0.375, 0.375, 0.25], 0.02);
    assert_eq!(limit(&world, NGINX) + limit(&world, FPM), 2 * GIB);
    let web = tenant(&world.tick(), "web").clone();
    let agent = world.agent.as_ref().unwrap();
    let explained = explain(agent.trace(), agent.status(), "web").unwrap();
    let units: Vec<&str> = explained.members.iter().map(|it| &*it.cgroup).collect();
    assert_eq!(units, ["nginx.service", "php8-fpm.service"]);
    let parts: f64 = explained.members.iter().map(|it| it.allocation[CPU]).sum();
    assert_near(&[parts, explained.weight.sibling_share], &[web.allocation[CPU], 0.75], 0.01);
    assert!(
        explained.members[0].values.iter().any(|it| it.path.ends_with("nginx.service/cpu.weight"))
    );
    assert_near(&[web.usage[CPU].unwrap()], &[3.0], 0.1);
    for unit in [NGINX, FPM, BATCH] {
        let procs = world.file(&format!("{unit}/cgroup.procs"));
        procs.lines().for_each(|pid| world.host.with(|k| k.kill(pid.parse().unwrap()).unwrap()));
    }
    assert_eq!(world.stop().failures, [""; 0]);
    let pids_gone = whole(&world);
    assert_eq!(before.1, pids_gone.1);
}

#[test]
fn members_come_and_go_without_a_reload() {
    let mut world = world(&[NGINX, BATCH]);
    stop(&mut world, FPM);
    world.start().unwrap();
    world.ticks(20);
    assert_near(&world.shares(&[NGINX, BATCH], 20), &[0.75, 0.25], 0.02);
    start(&mut world, FPM);
    world.ticks(8);
    assert_near(&world.shares(&[NGINX, FPM, BATCH], 20), &[0.375, 0.375, 0.25], 0.02);
    let used = tenant(&world.tick(), "web").cpu_usage_seconds.unwrap();
    stop(&mut world, FPM);
    world.ticks(8);
    assert_near(&world.shares(&[NGINX, BATCH], 20), &[0.75, 0.25], 0.02);
    // Nothing of a unit that has ended is left behind, nor is its use forgotten.
    world.ticks(60);
    let drop_ins =
        world.host.systemd(|systemd, _| systemd.units["php8-fpm.service"].drop_ins.clone());
    assert_eq!(drop_ins, BTreeMap::new());
    assert!(tenant(&world.tick(), "web").cpu_usage_seconds.unwrap() > used);
    assert_eq!(world.stop().failures, [""; 0]);
}

/// Where the members come from is what the newest policy says.
#[test]
fn a_reload_may_name_other_members() {
    let mut world = world(&[NGINX, FPM, BATCH]);
    world.start().unwrap();
    world.ticks(10);
    let text = POLICY
        .replace("[nginx.service, \"php*-fpm.service\"]", "[php8-fpm.service, batch.service]");
    let text = text.replace("{ unit: batch.service }", "{ unit: \"ngin?.service\" }");
    reload(&mut world, &text);
    // A unit that is found makes the tree anew.
    stop(&mut world, NGINX);
    world.ticks(2);
    start(&mut world, NGINX);
    world.ticks(20);
    assert_near(&world.shares(&[FPM, BATCH, NGINX], 20), &[0.375, 0.375, 0.25], 0.02);
    assert_eq!(world.stop().failures, [""; 0]);
}

#[test]
fn a_unit_that_is_named_and_missing_is_reported_and_one_of_a_pattern_is_not() {
    let mut world = world(&[BATCH]);
    stop(&mut world, NGINX);
    stop(&mut world, FPM);
    world.start().unwrap();
    let status = world.ticks(4);
    assert_eq!(said(&status, "nginx.service does not run").len(), 1, "{:?}", status.findings);
    assert_eq!(said(&status, "php").len(), 0, "{:?}", status.findings);
    assert_eq!(world.stop().failures, [""; 0]);
}

/// A container in the slice of one tenant fits the pattern of another: where it is counts, and it is moved by nobody.
#[test]
fn a_unit_in_the_slice_of_a_tenant_is_that_tenants() {
    for by_template in [false, true] {
        let boxes = if by_template {
            "boxes: { each: { match: { unit: 'box-*.scope' } } }"
        } else {
            "boxes: { match: { unit: 'box-*.scope' } }"
        };
        let mut world =
            World::new(&format!("tenants:\n  large: {{ owner: systemd }}\n  {boxes}\n"));
        let add = |world: &World, name: &str, slice: &str| {
            world.host.systemd(|systemd, kernel| {
                systemd.add_transient(name, &format!("/{slice}/{name}"));
                systemd.start(kernel, name);
            });
            world.spawn(&format!("/{slice}/{name}"), Load::busy(8).with_working_set(64 * MIB))
        };
        world
            .host
            .systemd(|systemd, kernel| systemd.add(kernel, "machine.slice", "/machine.slice"));
        world.start().unwrap();
        world.ticks(4);
        let (inside, outside) = ("tenants.slice/tenants-large.slice", "machine.slice");
        let pids = [add(&world, "box-1.scope", inside), add(&world, "box-2.scope", outside)];
        let status = world.ticks(20);
        assert_eq!(status.findings, [""; 0], "{by_template}");
        assert_near(&world.shares(&[inside, "machine.slice/box-2.scope"], 20), &[0.5, 0.5], 0.03);
        let weight = world.file(&format!("{inside}/box-1.scope/cpu.weight"));
        assert_eq!(weight, "100", "it is not divided from others of its slice");
        let drop_ins =
            |unit: &str| world.host.systemd(|systemd, _| systemd.units[unit].drop_ins.clone());
        assert_eq!(drop_ins("box-1.scope"), BTreeMap::new());
        pids.iter().for_each(|pid| world.host.with(|kernel| kernel.kill(*pid)).unwrap());
        assert_eq!(world.stop().failures, [""; 0]);
    }
}
