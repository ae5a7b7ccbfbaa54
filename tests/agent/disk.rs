//! Requests to disks: counted for each tenant, and in the unit of the device's time.

use nix::errno::Errno;
use tenantd_control::report::disk::{DiskStatus, DiskUseStatus};
use tenantd_control::report::status::Status;
use tenantd_control::why::explain;
use tenantd_host::kernfs::Operation;
use tenantd_sim::{DiskWork, Fault, Load, SimHost};

use super::world::{World, assert_near, legacy, tenant};

const AB: &str = "tenants: { a: {}, b: {}, idle: {} }";
const KIB: u64 = 1 << 10;
/// Work of the disk in a second: 400 operations, or 64 MiB, or a mix of the two.
const OPERATIONS: u64 = 400;

/// Reads of a second that take this part of it, at `kib` each; with others in the queue if it is full.
fn reads(part: f64, kib: u64) -> DiskWork {
    let seconds_each = 1.0 / OPERATIONS as f64 + (kib * KIB) as f64 / (64 << 20) as f64;
    let reads = (part / seconds_each).round() as u64;
    let busy_msec = (part * 1000.0).round() as u64;
    let queued_msec = busy_msec * 4;
    DiskWork { reads, read_bytes: reads * kib * KIB, busy_msec, queued_msec, ..DiskWork::default() }
}

struct Scene {
    world: World,
    pids: [u32; 2],
    outside: u32,
}

impl Scene {
    fn on(host: SimHost) -> Scene {
        let mut world = World::on(host, AB);
        world.start().unwrap();
        world.ticks(2);
        let pids = ["/a", "/b"].map(|path| world.spawn(path, Load::busy(1)));
        let outside = world.spawn("/", Load::idle());
        Scene { world, pids, outside }
    }

    /// A tick after a second in which `a`, `b` and the rest did this.
    fn tick(&mut self, work: [DiskWork; 3]) -> Status {
        let pids = [self.pids[0], self.pids[1], self.outside];
        for (pid, work) in pids.into_iter().zip(work) {
            self.world.host.with(|kernel| kernel.use_disk(pid, work)).unwrap();
        }
        self.world.tick()
    }

    fn ticks(&mut self, count: usize, work: [DiskWork; 3]) -> Status {
        (0..count).map(|_| self.tick(work)).last().unwrap()
    }
}

fn both() -> [SimHost; 2] {
    [SimHost::default(), legacy()]
}

fn disk(status: &Status) -> &DiskStatus {
    let [disk] = &status.host.disks[..] else { panic!("{:?}", status.host.disks) };
    assert_eq!(disk.name, "sda", "a partition is not counted beside its disk");
    disk
}

fn of<'a>(status: &'a Status, name: &str) -> &'a DiskUseStatus {
    let [of] = &tenant(status, name).disks[..] else { panic!("{name}") };
    of
}

#[test]
fn each_tenant_has_its_part_of_the_device_s_time() {
    for host in both() {
        let mut scene = Scene::on(host);
        assert!(scene.world.tick().host.disks.is_empty(), "never used");
        // The cost of an operation and of a byte follows from two sizes.
        let none = DiskWork::default();
        scene.ticks(3, [reads(1.0, 4), none, none]);
        let status = scene.ticks(3, [none, reads(1.0, 1024), none]);
        let (bytes, operations) =
            (disk(&status).most_bytes_per_second, disk(&status).most_operations_per_second);
        assert_near(&[bytes.unwrap() / f64::from(64 << 20)], &[1.0], 0.02);
        assert_near(&[operations.unwrap()], &[400.0], 8.0);
        // A small reader uses more of the time than of the bytes.
        let status = scene.ticks(2, [reads(0.25, 4), reads(0.5, 1024), reads(0.125, 64)]);
        let time =
            [of(&status, "a").time_ratio, of(&status, "b").time_ratio, disk(&status).time_ratio];
        assert_near(&time.map(Option::unwrap), &[0.25, 0.5, 0.875], 0.03);
        assert_near(&[disk(&status).outside_ratio.unwrap()], &[1.0 / 7.0], 0.03);
        let rates = of(&status, "a").rates;
        assert_near(&[rates.read_bytes_per_second / 4096.0], &[rates.reads_per_second], 1.0);
        assert_eq!(tenant(&status, "idle").disk_read_bytes, None);
        let total = tenant(&status, "a").disk_read_bytes.unwrap();
        assert!(total > 4 * KIB * 390 * 2, "{total}");
    }
}

#[test]
fn shares_are_known_before_the_device_is() {
    for host in both() {
        let mut scene = Scene::on(host);
        let half = DiskWork { busy_msec: 250, queued_msec: 250, ..reads(0.5, 16) };
        let status = scene.ticks(3, [half, half, half]);
        assert_eq!(disk(&status).time_ratio, None, "it was never full");
        assert_near(
            &[of(&status, "a").work_ratio, disk(&status).outside_ratio.unwrap()],
            &[1.0 / 3.0; 2],
            0.01,
        );
        let trace = scene.world.agent.as_ref().unwrap().trace();
        let reason = explain::explain(trace, &status, "a").unwrap().disk.unwrap().reason;
        assert!(reason.contains("33 % of all on sda") && reason.contains("learned"), "{reason}");
    }
}

/// A part of what all do would be wrong, and a zero would be a lie.
#[test]
fn counts_that_cannot_be_read_are_absent() {
    let files = ["io.stat", "blkio.throttle.io_service_bytes_recursive"];
    for (host, file) in both().into_iter().zip(files) {
        let mut scene = Scene::on(host);
        let work = [reads(0.5, 16), reads(0.5, 16), DiskWork::default()];
        scene.ticks(3, work);
        scene.world.host.inject(Fault::matching(Operation::Read, &format!("a/{file}"), Errno::EIO));
        let status = scene.ticks(2, work);
        assert_eq!(tenant(&status, "a").disks, []);
        assert_eq!(tenant(&status, "b").disks.len(), 1);
        let is_named = |finding: &&String| finding.starts_with("a: ") && finding.contains(file);
        assert_eq!(status.findings.iter().filter(is_named).count(), 1, "{:?}", status.findings);
        scene.world.host.heal();
        let status = scene.ticks(2, work);
        assert_near(&[of(&status, "a").work_ratio], &[0.5], 0.01);
    }
}

#[test]
fn a_tenant_at_rest_costs_no_reading_of_its_counts() {
    for (host, file) in both().into_iter().zip(["io.stat", "io_serviced_recursive"]) {
        let mut scene = Scene::on(host);
        let sleeper = scene.world.spawn("/idle", Load::idle());
        // In cgroup v1 a count has no line before the first request.
        scene.world.host.with(|kernel| kernel.use_disk(sleeper, reads(0.01, 16))).unwrap();
        let work = [reads(0.5, 16), DiskWork::default(), DiskWork::default()];
        scene.ticks(12, work);
        scene.world.host.take_calls();
        scene.ticks(10, work);
        let calls = scene.world.host.take_calls();
        let nr = |tenant: &str| {
            let of = |path: String| path.contains(&format!("/{tenant}/")) && path.ends_with(file);
            calls.iter().filter(|call| of(call.path.display().to_string())).count()
        };
        assert_eq!((nr("a"), nr("idle")), (10, 1));
        // What the kernel writes on its behalf is counted in its turn.
        scene.world.host.with(|kernel| kernel.use_disk(sleeper, reads(1.0, 16))).unwrap();
        let status = scene.ticks(10, work);
        assert!(tenant(&status, "idle").disk_read_bytes.unwrap() > 0);
    }
}
