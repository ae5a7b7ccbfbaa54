//! Shares of the contended disk: guarantees, and its division together with CPU and memory.

use tenantd_control::report::disk::DiskShareStatus;
use tenantd_control::report::status::Status;
use tenantd_control::why::explain;
use tenantd_core::resource::{CPU, MEMORY};
use tenantd_fair::{self, Algorithm, Demand, Kind, Node, Problem, WorkConserving};
use tenantd_sim::{DiskWork, Divider, Load, SimHost};

use super::disks::{BFQ, COST, DEADLINE, WEIGH};
use super::world::{GIB, World, assert_near, legacy, tenant};

const COUPLED: &str = "host: { disks: weigh }\ncontrol: { couple: [cpu, memory, disk] }\n";

/// A second of a disk that does 400,000 reads of 64 KiB: enough that rounding is no matter.
const SECOND: DiskWork = DiskWork::reads(400_000, 8000);

struct Scene {
    world: World,
    /// Each process with the part of the disk that it wants.
    wants: Vec<(u32, f64)>,
    status: Status,
}

impl Scene {
    fn on(host: SimHost, divider: Divider, policy: &str, loads: &[(&str, Load, f64)]) -> Scene {
        let mut world = World::on(host, policy);
        world.host.with(|kernel| kernel.set_divider(divider));
        world.start().unwrap();
        world.ticks(1);
        let wants = loads.iter().map(|(path, load, want)| (world.spawn(path, *load), *want));
        let wants = wants.collect();
        Scene { world, wants, status: Status::default() }
    }

    fn ticks(&mut self, count: usize) {
        let wants: Vec<_> = self.wants.iter().copied().filter(|(_, want)| *want > 0.0).collect();
        for _ in 0..count {
            self.world.host.with(|kernel| kernel.contend_for(&wants, SECOND)).unwrap();
            self.status = self.world.tick();
        }
    }

    fn share(&self, name: &str) -> &DiskShareStatus {
        tenant(&self.status, name).disk_share.as_ref().unwrap()
    }

    /// Part of the disk's work.
    fn part(&self, name: &str) -> f64 {
        tenant(&self.status, name).disks.first().map_or(0.0, |of| of.work_ratio)
    }

    /// Part of the divided CPUs: that it may have, and that it used.
    fn cores(&self, name: &str) -> [f64; 2] {
        let of = tenant(&self.status, name);
        [of.allocation[CPU], of.usage[CPU].unwrap()].map(|it| it / self.status.host.capacity[CPU])
    }

    fn found(&self, what: &str) -> usize {
        self.status.findings.iter().filter(|finding| finding.contains(what)).count()
    }
}

/// Under weights of 100 and 300 the first would get a quarter.
#[test]
fn a_guarantee_is_a_floor_of_the_share() {
    for (host, divider) in [(SimHost::default(), BFQ), (SimHost::default(), COST), (legacy(), BFQ)]
    {
        let policy = format!(
            "{WEIGH}tenants: {{ a: {{ guarantee: {{ disk: 50% }} }}, b: {{ weight: 300 }}, c: {{}} }}"
        );
        let loads = [("/a", Load::idle(), 1.0), ("/b", Load::idle(), 1.0)];
        let mut scene = Scene::on(host, divider, &policy, &loads);
        scene.ticks(8);
        assert_near(&[scene.part("a"), scene.part("b")], &[0.5, 0.5], 0.02);
        let share = scene.share("a").clone();
        assert_eq!((share.disk.as_deref(), share.guarantee_ratio), (Some("sda"), Some(0.5)));
        assert_near(&[share.share_now_ratio, share.share_if_busy_ratio], &[0.5, 0.5], 0.02);
        assert!(!share.is_void && !share.is_coupled, "{share:?}");
        let c = scene.share("c").clone();
        assert_near(&[c.share_if_busy_ratio], &[0.125], 0.005);
        // A scheduler that ignores weights keeps no guarantee.
        scene.world.host.with(|kernel| kernel.set_divider(DEADLINE));
        scene.ticks(3);
        assert_eq!(
            scene.found("a: its guarantee of 50 % of sda is void"),
            1,
            "{:?}",
            scene.status.findings
        );
        assert!(scene.share("a").is_void);
        scene.world.host.with(|kernel| kernel.set_divider(divider));
        scene.ticks(3);
        assert_eq!(scene.found("void"), 0, "{:?}", scene.status.findings);
    }
}

const TENANTS: &str =
    "tenants: { reader: { weight: 300 }, compiler: { weight: 200 }, both: { weight: 100 } }\n";

/// CPUs that the reader uses. They do not follow its part of the disk here: only the tenant's own demand may hold them back.
const READER_CORES: f64 = 1.0;

/// A reader, a compiler, and a tenant that wants all of both.
fn three(host: SimHost, divider: Divider, policy: &str) -> Scene {
    let loads = [
        ("/reader", Load { duty: READER_CORES / 2.0, ..Load::busy(2) }, 1.0),
        ("/compiler", Load::busy(16), 0.0),
        ("/both", Load::busy(16), 1.0),
    ];
    Scene::on(SimHost { cpus: 8, ..host }, divider, &format!("{policy}{TENANTS}"), &loads)
}

/// Parts of CPU time and of the disk that the allocation core computes for these three.
fn solved(capacity: f64) -> [[f64; 2]; 3] {
    let leaf = |(weight, cores, disk): (f64, f64, f64)| Node {
        parent: None,
        weight: vec![weight; 2],
        kind: Kind::Leaf(Demand::once(vec![cores, disk])),
    };
    // The reader has three quarters of the disk, and grows by a tenth.
    let wants = [(3.0, 1.1 * READER_CORES / 0.75, 1.0), (2.0, capacity, 0.0), (1.0, capacity, 1.0)];
    let problem = Problem::try_new(vec![capacity, 1.0], wants.map(leaf).into()).unwrap();
    let solution = tenantd_fair::allocate(&problem, Algorithm::Drf, WorkConserving::Yes);
    [0, 1, 2].map(|leaf| {
        let all = solution.allocation(leaf);
        [all[0] / capacity, all[1]]
    })
}

const NAMES: [&str; 3] = ["reader", "compiler", "both"];

fn cpu_weights(scene: &Scene) -> [String; 3] {
    let is_legacy = scene.world.host.with(|kernel| kernel.host().layout == legacy().layout);
    NAMES.map(|name| {
        let of_v1 = format!("cpu/{name}/cpu.shares");
        scene.world.file(&if is_legacy { of_v1 } else { format!("{name}/cpu.weight") })
    })
}

#[test]
fn three_tenants_get_their_dominant_shares() {
    for (host, divider) in [(SimHost::default(), BFQ), (SimHost::default(), COST), (legacy(), BFQ)]
    {
        let mut scene = three(host, divider, COUPLED);
        scene.ticks(30);
        let [reader, compiler, both] = solved(scene.status.host.capacity[CPU]);
        let cores = NAMES.map(|name| scene.cores(name));
        let solved_cores = [reader[0], compiler[0], both[0]];
        assert_near(&cores.map(|it| it[0]), &solved_cores, 0.02);
        assert_near(&[cores[1][1], cores[2][1]], &solved_cores[1..], 0.05);
        let parts = [scene.part("reader"), scene.part("both")];
        assert_near(&parts, &[reader[1], both[1]], 0.02);
        // Dominant shares in proportion to the weights.
        assert_near(&[parts[0] / 3.0], &[parts[1].max(cores[2][1])], 0.05);
        let share = scene.share("both").clone();
        assert!(share.is_coupled && share.disk.as_deref() == Some("sda"), "{share:?}");
        assert_eq!(tenant(&scene.status, "reader").dominant_resource.as_deref(), Some("disk"));
        assert_eq!(scene.status.findings, [""; 0]);
        // A steady load moves nothing, and the reader keeps the weight of its share.
        scene.world.host.take_changes();
        let before = cpu_weights(&scene);
        scene.ticks(12);
        let changes = scene.world.host.take_changes();
        assert!(changes.len() <= 2, "{changes:?}");
        assert_eq!(before[0], cpu_weights(&scene)[0]);
        let trace = scene.world.agent.as_ref().unwrap().trace();
        let explanation = explain::explain(trace, &scene.status, "reader").unwrap();
        let disk = explanation.disk.unwrap();
        assert!(disk.reason.contains("of the time of sda"), "{}", disk.reason);
        let why = &explanation.allocation.reason;
        assert!(why.starts_with("held back: disk is used up"), "{why}");
    }
}

/// A tenant that waits for the disk keeps a working set within its share of memory beside one that wants all memory.
#[test]
fn a_tenant_that_waits_for_the_disk_keeps_its_memory() {
    let tenants = "tenants: { a: {}, b: {}, hog: {} }\n";
    let host = SimHost { memory_bytes: 16 * GIB, ..SimHost::default() };
    let loads = [
        ("/a", Load::idle().with_working_set(4 * GIB), 1.0),
        ("/b", Load::idle(), 1.0),
        ("/hog", Load::idle().with_hot_file(64 * GIB), 0.0),
    ];
    let loads =
        loads.map(|(path, load, want)| (path, Load { touch_bytes_per_sec: GIB, ..load }, want));
    let mut scene = Scene::on(host, BFQ, &format!("{COUPLED}{tenants}"), &loads);
    scene.ticks(40);
    assert!(scene.share("a").is_coupled, "{:?}", scene.share("a"));
    let bytes = tenant(&scene.status, "a").allocation[MEMORY];
    assert!(bytes >= 0.99 * 4.0 * GIB as f64, "{bytes}");
    assert_near(&[scene.part("a"), scene.part("b")], &[0.5, 0.5], 0.02);
}

/// A tenant that waits for CPUs reads less than it wants: its demand for the disk counts as with all of them, so that its
/// weight on the disk is that of its share.
#[test]
fn a_tenant_that_waits_for_cpus_keeps_its_part_of_the_disk() {
    let tenants = "tenants: { a: {}, b: {}, reader: {} }\n";
    let loads = [
        ("/a", Load::busy(16), 1.0 / 6.0),
        ("/b", Load::busy(16), 0.0),
        ("/reader", Load::idle(), 1.0),
    ];
    let mut scene = Scene::on(SimHost::default(), BFQ, &format!("{COUPLED}{tenants}"), &loads);
    scene.ticks(30);
    assert!(scene.share("a").is_coupled);
    assert_near(&[scene.part("a"), scene.part("reader")], &[1.0 / 6.0, 5.0 / 6.0], 0.01);
    let weight = |name: &str| {
        let text = scene.world.file(&format!("{name}/io.bfq.weight"));
        text.trim_start_matches("default ").parse::<f64>().unwrap()
    };
    assert!(weight("a") >= 0.5 * weight("reader"), "{} {}", weight("a"), weight("reader"));
    assert_near(&[scene.cores("a")[0]], &[0.5], 0.02);
}

/// Without a disk that obeys, `both` keeps the CPU time of its weight.
#[test]
fn a_void_disk_counts_for_nothing() {
    let after = |divider, policy: &str| {
        let mut scene = three(SimHost::default(), divider, policy);
        scene.ticks(30);
        scene
    };
    let (alone, void) = (after(BFQ, WEIGH), after(DEADLINE, COUPLED));
    let cores = |scene: &Scene| NAMES.map(|name| scene.cores(name)[0]);
    assert_near(&cores(&void), &cores(&alone), 0.005);
    let coupled = after(BFQ, COUPLED);
    assert!(cores(&coupled)[2] < 0.9 * cores(&alone)[2], "{:?}", cores(&coupled));
    let what = "does not count for the division of CPU and memory";
    assert_eq!((void.found(what), alone.found(what)), (1, 0), "{:?}", void.status.findings);
    assert!(void.share("both").is_void && !void.share("both").is_coupled);
}

/// The scheduler would obey weights, but the device below it is not the bottleneck.
#[test]
fn equal_parts_at_unequal_weights_end_the_coupling() {
    let mut scene = three(SimHost::default(), COST, COUPLED);
    scene.ticks(10);
    assert!(scene.share("both").is_coupled);
    scene.world.host.with(|kernel| kernel.set_divider(Divider { is_void: true, ..COST }));
    scene.ticks(12);
    assert_near(&[scene.part("both")], &[0.5], 0.01);
    assert!(!scene.share("both").is_coupled);
    let what = "tenants that wait for it get equal parts in spite of their weights";
    assert_eq!(scene.found(what), 1, "{:?}", scene.status.findings);
    scene.world.host.with(|kernel| kernel.set_divider(COST));
    scene.ticks(12);
    assert!(scene.share("both").is_coupled, "{:?}", scene.status.findings);
}

/// Without `weigh`, the keys of disks decide and write nothing.
#[test]
fn a_disk_that_is_left_changes_nothing() {
    let changes = |policy: &str| {
        let mut scene = three(SimHost::default(), BFQ, policy);
        scene.ticks(20);
        scene.world.host.take_changes()
    };
    let plain = changes("");
    assert_eq!(plain, changes("control: { couple: [cpu, memory, disk] }\n"));
    assert!(!plain.is_empty());
}

/// Collusion: of CPU, memory and disk, A wants (1, 0, 0), B (0, 1, 0), C (0, ⅓, 1) and D (1, 0, ⅓). A reads a third of the disk
/// for each of all CPUs as well, for nothing of its own. In proportions alone, B gains 4 % and C loses 11 % of ¾.
#[test]
fn a_tenant_that_reads_for_another_moves_little() {
    let after = |of_a: f64| {
        let tenants = "tenants: { a: {}, b: {}, c: {}, d: {} }\n";
        let host = SimHost { memory_bytes: 16 * GIB, ..SimHost::default() };
        let hog = Load::idle().with_hot_file(64 * GIB);
        let loads = [
            ("/a", Load::busy(16), of_a),
            ("/b", Load { touch_bytes_per_sec: GIB, ..hog }, 0.0),
            ("/c", Load::idle().with_working_set(16 * GIB / 3), 1.0),
            ("/d", Load::busy(16), 1.0 / 6.0),
        ];
        let mut scene = Scene::on(host, BFQ, &format!("{COUPLED}{tenants}"), &loads);
        scene.ticks(60);
        assert!(scene.share("c").is_coupled);
        // What they read is a third of the disk for all CPUs.
        assert_near(&[scene.cores("a")[1], scene.cores("d")[1]], &[0.5, 0.5], 0.02);
        scene
    };
    let (honest, lie) = (after(0.0), after(1.0 / 6.0));
    let memory = |scene: &Scene| tenant(&scene.status, "b").allocation[MEMORY];
    let gain = memory(&lie) / memory(&honest);
    assert!((0.99..=1.04).contains(&gain), "{gain}");
    let (before, now) = (honest.share("c").share_now_ratio, lie.part("c"));
    assert!(now >= 0.88 * before.min(0.75), "{before} {now}");
    // A reads for nothing, and that is visible.
    assert_near(&[lie.cores("a")[0], lie.part("a")], &[honest.cores("a")[0], 1.0 / 6.0], 0.01);
    let trace = lie.world.agent.as_ref().unwrap().trace();
    let explanation = explain::explain(trace, &lie.status, "c").unwrap();
    let reason = explanation.disk.unwrap().reason;
    assert!(reason.contains("of the time of sda"), "{reason}");
    assert!(reason.contains("other tenants have 33 %"), "{reason}");
}
