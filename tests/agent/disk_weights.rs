//! Weights on disks: written where a scheduler obeys them, through systemd and in its files, and restored.

use tenantd_control::report::status::Status;
use tenantd_host::systemd::Property;
use tenantd_sim::{DiskWork, Divider, Load, SimHost};

use super::disks::{BFQ, COST, DEADLINE, WEIGH};
use super::units;
use super::world::{World, assert_near, assert_same, legacy, snapshot, tenant};

const AB: &str = "tenants: { a: { weight: { cpu: 100, memory: 100, disk: 300 } }, b: {}, idle: { weight: 200 } }\n";

/// A second of a disk that does 400 reads of 64 KiB.
const SECOND: DiskWork = DiskWork::reads(400, 8000);

struct Scene {
    world: World,
    pids: [u32; 2],
    file: &'static str,
}

impl Scene {
    fn on(host: SimHost, divider: Divider, policy: &str) -> Scene {
        let is_legacy = host.layout == legacy().layout;
        let file = match (is_legacy, divider.has_cost) {
            (true, _) => "blkio.bfq.weight",
            (false, true) => "io.weight",
            (false, false) => "io.bfq.weight",
        };
        let mut world = World::on(host, policy);
        world.host.with(|kernel| kernel.set_divider(divider));
        world.start().unwrap();
        world.ticks(1);
        let pids = ["/a", "/b"].map(|path| world.spawn(path, Load::busy(1)));
        Scene { world, pids, file }
    }

    /// Ticks, after seconds in which both want all of the disk.
    fn ticks(&mut self, count: usize) -> Status {
        let mut status = Status::default();
        for _ in 0..count {
            self.world.host.with(|kernel| kernel.contend(&self.pids, SECOND)).unwrap();
            status = self.world.tick();
        }
        status
    }

    fn weights(&self) -> [String; 3] {
        ["a", "b", "idle"].map(|name| self.weight(name))
    }

    fn weight(&self, name: &str) -> String {
        let tree = if self.file.starts_with("blkio") { "blkio/" } else { "" };
        let text = self.world.file(&format!("{tree}{name}/{}", self.file));
        text.trim_start_matches("default ").to_string()
    }
}

fn scenes(policy: &str) -> [Scene; 3] {
    [(SimHost::default(), BFQ), (SimHost::default(), COST), (legacy(), BFQ)]
        .map(|(host, divider)| Scene::on(host, divider, policy))
}

fn said(status: &Status, what: &str) -> usize {
    status.findings.iter().filter(|finding| finding.contains(what)).count()
}

#[test]
fn the_disk_is_divided_by_the_weights_of_the_policy() {
    for mut scene in scenes(&format!("{WEIGH}{AB}")) {
        scene.ticks(3);
        let [a, b, idle] = scene.weights().map(|weight| weight.parse::<f64>().unwrap());
        assert_near(&[a / b, idle / b], &[3.0, 2.0], 0.05);
        let status = scene.ticks(2);
        let parts = ["a", "b"].map(|name| tenant(&status, name).disks[0].work_ratio);
        assert_near(&parts, &[0.75, 0.25], 0.005);
        assert_eq!((said(&status, "disk"), status.nr_drift), (0, 0), "{:?}", status.findings);
        // A steady load writes nothing.
        scene.world.host.take_changes();
        scene.ticks(12);
        assert_eq!(scene.world.host.take_changes(), []);
    }
}

#[test]
fn what_is_written_is_restored() {
    for (divider, host) in [(BFQ, SimHost::default()), (COST, SimHost::default()), (BFQ, legacy())]
    {
        let mut world = World::on(host, &format!("{WEIGH}{AB}"));
        world.host.with(|kernel| {
            kernel.set_divider(divider);
            ["/a", "/b"].iter().for_each(|path| kernel.make_cgroup(path).unwrap());
        });
        let before = snapshot(&world.host);
        world.start().unwrap();
        world.ticks(4);
        assert_ne!(before, snapshot(&world.host));
        assert_eq!(world.stop().failures, [""; 0]);
        assert_same(&before, &snapshot(&world.host), "stopped");
    }
}

#[test]
fn nothing_is_written_where_the_policy_leaves_disks_or_no_disk_obeys() {
    let weigh = format!("{WEIGH}{AB}");
    for (divider, policy) in [(BFQ, AB), (COST, AB), (DEADLINE, &weigh)] {
        for host in [SimHost::default(), legacy()] {
            let mut scene = Scene::on(host, divider, policy);
            scene.ticks(12);
            let is_of_disk = |path: &str| path.contains("/io.") || path.contains("/blkio.");
            let changes = scene.world.host.take_changes();
            let written =
                changes.iter().filter(|call| is_of_disk(&call.path.display().to_string()));
            assert_eq!(written.count(), 0, "{divider:?}");
        }
    }
}

/// Loading the module makes new files, with a weight of 100 in each.
#[test]
fn weights_are_written_again_after_a_scheduler_is_chosen() {
    for mut scene in
        scenes(&format!("{WEIGH}{AB}")).into_iter().filter(|it| it.file.contains("bfq"))
    {
        scene.ticks(4);
        let ours = scene.weights();
        for divider in [BFQ, DEADLINE, BFQ] {
            scene.world.host.with(|kernel| kernel.set_divider(divider));
            let status = scene.ticks(2);
            assert_eq!((status.nr_drift, said(&status, "went away")), (0, 0));
            if divider.is_bfq {
                assert_eq!(scene.weights(), ours);
            } else {
                assert_eq!(
                    said(&status, "disk weights are ineffective on sda"),
                    1,
                    "{:?}",
                    status.findings
                );
            }
        }
        assert_eq!(said(&scene.ticks(2), "disk weights"), 0);
    }
}

#[test]
fn a_foreign_value_is_drift_and_is_repaired() {
    for mut scene in scenes(&format!("{WEIGH}{AB}")) {
        scene.ticks(4);
        let ours = scene.weights();
        let tree = if scene.file.starts_with("blkio") { "blkio/" } else { "" };
        let path = format!("/sys/fs/cgroup/{tree}a/{}", scene.file);
        scene.world.host.with(|kernel| kernel.write_file(&path, "777")).unwrap();
        assert_eq!(scene.ticks(11).nr_drift, 1);
        assert_eq!(scene.weights(), ours);
    }
}

#[test]
fn a_reload_that_leaves_disks_restores_their_weights() {
    for mut scene in scenes(&format!("{WEIGH}{AB}")) {
        scene.ticks(4);
        units::reload(&mut scene.world, AB);
        scene.ticks(2);
        assert_eq!(scene.weights(), ["100"; 3]);
        units::reload(&mut scene.world, &format!("{WEIGH}{AB}").replace("300", "900"));
        scene.ticks(4);
        let [a, b, _] = scene.weights().map(|weight| weight.parse::<f64>().unwrap());
        assert_near(&[a / b], &[9.0], 0.25);
    }
}

/// Two cgroups of which one is at rest, in slices of their own.
const UNITS: &str = "\
tenants:
  web: { weight: 300, match: { unit: web.service } }
  db: { match: { unit: db.service } }
  job: { weight: 100, match: { unit: job.service } }
";

fn unit_of(name: &str) -> String {
    match name {
        "job" => "batch.slice/job.service".to_string(),
        name => format!("system.slice/{name}.service"),
    }
}

fn services(divider: Divider) -> (World, [u32; 3]) {
    let world = World::new(&format!("{WEIGH}{UNITS}"));
    world.host.systemd(|systemd, kernel| {
        for name in ["web", "db", "job"] {
            systemd.add(kernel, &format!("{name}.service"), &format!("/{}", unit_of(name)));
        }
        kernel.set_divider(divider);
    });
    let pids =
        ["web", "db", "job"].map(|name| world.spawn(&format!("/{}", unit_of(name)), Load::busy(1)));
    (world, pids)
}

#[test]
fn units_get_their_weight_through_systemd_and_then_in_the_file() {
    for divider in [BFQ, COST] {
        let (mut world, pids) = services(divider);
        world.start().unwrap();
        let tick = |world: &mut World| {
            world.host.with(|kernel| kernel.contend(&pids, SECOND)).unwrap();
            world.tick()
        };
        (0..8).for_each(|_| drop(tick(&mut world)));
        let status = tick(&mut world);
        let parts = ["web", "db", "job"].map(|name| tenant(&status, name).disks[0].work_ratio);
        assert_near(&parts, &[0.6, 0.2, 0.2], 0.02);
        // Systemd writes all properties of a unit again whenever any of them is set.
        for round in 0..20 {
            world.host.systemd(|systemd, kernel| {
                let setting = units::number(Property::TasksMax, 500 + round);
                systemd.set_property(kernel, "web.service", &setting);
                systemd.set_property(kernel, "system.slice", &setting);
                systemd.reload();
            });
            tick(&mut world);
        }
        let status = (0..2).map(|_| tick(&mut world)).last().unwrap();
        let parts = ["web", "db", "job"].map(|name| tenant(&status, name).disks[0].work_ratio);
        assert_near(&parts, &[0.6, 0.2, 0.2], 0.02);
        assert_eq!((status.nr_drift, status.findings.clone()), (0, vec![]));
        assert_eq!(world.stop().failures, [""; 0]);
        for name in ["web", "db", "job"] {
            for file in ["io.weight", "io.bfq.weight"]
                .iter()
                .filter(|file| divider.is_bfq || !file.contains("bfq"))
            {
                assert_eq!(world.file(&format!("{}/{file}", unit_of(name))), "default 100");
            }
        }
    }
}

/// A service at rest leaves its part to the tenants beside it, not to those in another slice.
#[test]
fn a_unit_at_rest_costs_its_neighbour_nothing() {
    let (mut world, [web, db, _]) = services(BFQ);
    world.start().unwrap();
    let mut status = Status::default();
    for _ in 0..16 {
        world.host.with(|kernel| kernel.contend(&[web, db], SECOND)).unwrap();
        status = world.tick();
    }
    let part = |status: &Status, name: &str| tenant(status, name).disks[0].work_ratio;
    assert_near(&[part(&status, "web"), part(&status, "db")], &[0.75, 0.25], 0.02);
}

#[test]
fn an_observer_writes_nothing() {
    let mut scene = Scene::on(SimHost::default(), BFQ, &format!("{WEIGH}{AB}"));
    scene.ticks(2);
    let (mut world, _) = services(BFQ);
    world.options.observe = true;
    world.start().unwrap();
    world.host.take_changes();
    world.ticks(6);
    assert_eq!(world.host.take_changes(), []);
}

#[test]
fn troubles_are_reported_within_three_ticks() {
    let two = Divider { has_cost: true, ..BFQ };
    let strict = Divider { is_strict: true, ..BFQ };
    for (divider, what) in [
        (DEADLINE, "sda: its scheduler is mq-deadline"),
        (two, "sda divides its time twice"),
        (strict, "strict_guarantees of bfq is on for sda"),
    ] {
        let mut scene = Scene::on(SimHost::default(), divider, &format!("{WEIGH}{AB}"));
        let status = scene.ticks(3);
        assert_eq!(said(&status, what), 1, "{:?}", status.findings);
        scene.world.host.with(|kernel| kernel.set_divider(BFQ));
        let status = scene.ticks(3);
        assert_eq!(status.findings, [""; 0]);
    }
}

/// A cgroup of another program, in one that enables no controller of disks for it.
#[test]
fn a_cgroup_without_the_controller_is_reported() {
    let policy =
        format!("{WEIGH}tenants: {{ web: {{ match: {{ cgroup: /other/web }} }}, b: {{}} }}");
    for has_controller in [false, true] {
        let mut world = World::new(&policy);
        world.host.with(|kernel| {
            kernel.set_divider(BFQ);
            kernel.make_cgroup("/other/web").unwrap();
            if !has_controller {
                let path = "/sys/fs/cgroup/other/cgroup.subtree_control";
                kernel.write_file(path, "-io").unwrap();
            }
        });
        let pid = world.spawn("/other/web", Load::busy(1));
        world.start().unwrap();
        let mut status = Status::default();
        for _ in 0..6 {
            world.host.with(|kernel| kernel.use_disk(pid, SECOND)).unwrap();
            status = world.tick();
        }
        let what = "disk weights are ineffective for web";
        assert_eq!(said(&status, what), usize::from(!has_controller), "{:?}", status.findings);
    }
}
