//! Shares of the contended disk, and guarantees.

use tenantd_control::report::disk::DiskShareStatus;
use tenantd_control::report::status::Status;
use tenantd_sim::{DiskWork, Divider, Load, SimHost};

use super::disks::{BFQ, COST, DEADLINE, WEIGH, reads};
use super::world::{World, assert_near, legacy, tenant};

/// A second of a disk that does 400,000 reads of 64 KiB: enough that rounding is no matter.
const SECOND: DiskWork = reads(400_000, 8000);

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
        assert!(!share.is_void, "{share:?}");
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
