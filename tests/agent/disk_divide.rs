//! Disks whose settings the policy changes: written, repaired, and restored in every way in which an agent ends.

use tenantd::recovery::restored::Restored;
use tenantd_control::report::status::Status;
use tenantd_sim::{DiskWork, Divider, Load, SimHost};

use super::disks::{BFQ, COST, DEADLINE, WEIGH};
use super::units;
use super::world::{Snapshot, World, assert_near, assert_same, legacy, snapshot, tenant};

const AB: &str = "tenants: { a: { weight: { cpu: 100, memory: 100, disk: 300 } }, b: {} }\n";
const BY_BFQ: &str = "host: { disks: { divide: { sda: bfq } } }\n";
const BY_COST: &str = "host: { disks: { divide: { sda: { cost: { read: 100MiB/s, read_iops: 1600, latency: 4ms } } } } }\n";
const QUEUE: &str = "/sys/block/sda/queue";
const COST_FILES: [&str; 2] = ["/sys/fs/cgroup/io.cost.model", "/sys/fs/cgroup/io.cost.qos"];
const SECOND: DiskWork = DiskWork::reads(400, 8000);

/// A host whose administrator has tuned the disk.
fn tuned(mut host: SimHost) -> SimHost {
    let queue = &mut host.queue;
    (queue.read_expire, queue.nr_requests, queue.wbt_lat_usec) = (100, 64, 2000);
    host
}

/// A host, its divider before, and a policy.
fn scenes() -> [(SimHost, Divider, &'static str); 4] {
    [
        (SimHost::default(), DEADLINE, BY_BFQ),
        (legacy(), DEADLINE, BY_BFQ),
        (SimHost::default(), DEADLINE, BY_COST),
        (SimHost::default(), BFQ, BY_COST),
    ]
}

fn world(host: SimHost, divider: Divider, policy: &str) -> World {
    World::on(tuned(SimHost { divider, ..host }), &format!("{policy}{AB}"))
}

fn file(world: &World, path: &str) -> String {
    world.host.with(|kernel| kernel.file(path)).unwrap_or_default().trim().to_string()
}

fn scheduler(world: &World) -> String {
    file(world, &format!("{QUEUE}/scheduler"))
}

/// All cgroups and all settings of the disk. A line of `io.cost` that is off and the kernel's counts as none.
fn settings(world: &World) -> Snapshot {
    let mut all = snapshot(&world.host);
    for name in ["scheduler", "nr_requests", "wbt_lat_usec", "iosched/read_expire"] {
        let path = format!("{QUEUE}/{name}");
        all.insert(path.clone(), file(world, &path));
    }
    for path in COST_FILES {
        let text = file(world, path);
        let is_trace = text.contains("ctrl=auto") && !text.contains("enable=1");
        all.insert(path.to_string(), if is_trace { String::new() } else { text });
    }
    all
}

fn said(status: &Status, what: &str) -> bool {
    status.findings.iter().any(|finding| finding.contains(what))
}

/// The life of an agent with a reload to another policy, up to its end.
fn live(world: &mut World, policy: &str) -> Restored {
    world.start().unwrap();
    world.ticks(3);
    units::reload(world, &format!("{policy}{AB}"));
    world.ticks(2);
    world.stop()
}

#[test]
fn a_named_disk_is_divided_and_restored() {
    for (host, divider, policy) in scenes() {
        let mut world = world(host, divider, policy);
        let before = settings(&world);
        world.start().unwrap();
        world.tick();
        let pids = ["/a", "/b"].map(|path| world.spawn(path, Load::busy(1)));
        let mut status = Status::default();
        for _ in 0..5 {
            world.host.with(|kernel| kernel.contend(&pids, SECOND)).unwrap();
            status = world.tick();
        }
        let parts = ["a", "b"].map(|name| tenant(&status, name).disks[0].work_ratio);
        assert_near(&parts, &[0.75, 0.25], 0.005);
        let way = if policy == BY_BFQ { "bfq" } else { "io.cost" };
        assert_eq!(status.host.disks[0].divided_by.as_deref(), Some(way));
        assert_eq!((status.findings.clone(), status.nr_drift), (vec![], 0));
        // A steady load writes nothing.
        world.host.take_changes();
        for _ in 0..5 {
            world.host.with(|kernel| kernel.contend(&pids, SECOND)).unwrap();
            world.tick();
        }
        assert_eq!(world.host.take_changes(), []);
        pids.iter().for_each(|pid| world.host.with(|kernel| kernel.kill(*pid)).unwrap());
        assert_eq!(world.stop().failures, [""; 0]);
        assert_same(&before, &settings(&world), policy);
    }
}

#[test]
fn a_kill_at_any_call_leaves_nothing() {
    for (host, divider, policy) in scenes() {
        let mut whole = world(host.clone(), divider, policy);
        assert_eq!(live(&mut whole, WEIGH).failures, [""; 0]);
        for call in (0..whole.host.nr_calls()).step_by(2) {
            let mut world = world(host.clone(), divider, policy);
            let before = settings(&world);
            let host = world.host.clone();
            let life = host.until_death(call, || live(&mut world, WEIGH));
            assert!(life.is_none());
            world.kill();
            assert_eq!(world.restore().failures, [""; 0]);
            assert_same(&before, &settings(&world), &format!("{policy} killed before {call}"));
        }
    }
}

#[test]
fn a_reload_changes_the_way_and_restores_a_disk_that_is_not_named() {
    let mut world = world(SimHost::default(), DEADLINE, BY_BFQ);
    world.start().unwrap();
    let before = scheduler(&world);
    world.ticks(2);
    assert_eq!(scheduler(&world), "none mq-deadline [bfq]");
    units::reload(&mut world, &format!("{BY_COST}{AB}"));
    world.ticks(2);
    assert_eq!(scheduler(&world), before);
    assert!(file(&world, COST_FILES[1]).contains("enable=1 ctrl=user rpct=90.00 rlat=4000"));
    assert!(
        file(&world, COST_FILES[0]).contains("rrandiops=2400 "),
        "1.5 times the measured speed"
    );
    units::reload(&mut world, &format!("{WEIGH}{AB}"));
    world.ticks(2);
    let now = [scheduler(&world), file(&world, &format!("{QUEUE}/iosched/read_expire"))];
    assert_eq!(now, [before, "100".to_string()]);
    assert!(file(&world, COST_FILES[1]).contains("enable=0 ctrl=auto"));
}

#[test]
fn an_observer_lists_the_settings_and_writes_none() {
    for (host, divider, policy) in scenes() {
        let mut world = world(host, divider, policy);
        world.options.observe = true;
        let before = settings(&world);
        world.start().unwrap();
        let status = world.ticks(2);
        assert_same(&before, &settings(&world), policy);
        let of_disks = status.actions.iter().filter(|action| action.tenant.is_empty());
        let paths: Vec<&str> =
            of_disks.map(|action| action.path.rsplit('/').next().unwrap()).collect();
        let expected: &[&str] = match (policy == BY_BFQ, divider.is_bfq) {
            (true, _) => &["scheduler"],
            (false, true) => &["scheduler", "io.cost.model", "io.cost.qos"],
            (false, false) => &["io.cost.model", "io.cost.qos"],
        };
        assert_eq!(paths, expected);
    }
}

#[test]
fn a_mode_of_observe_restores_the_disk() {
    let mut world = world(SimHost::default(), DEADLINE, BY_BFQ);
    let before = settings(&world);
    world.start().unwrap();
    world.ticks(2);
    let agent = world.agent.as_mut().unwrap();
    assert_eq!(agent.put_all_back().failures, [""; 0]);
    world.ticks(2);
    assert_same(&before, &settings(&world), "observing");
}

#[test]
fn a_foreign_scheduler_is_drift_and_is_repaired_with_pauses() {
    let mut world = world(SimHost::default(), DEADLINE, BY_BFQ);
    world.start().unwrap();
    world.ticks(2);
    let path = format!("{QUEUE}/scheduler");
    let write = |world: &World| world.host.with(|kernel| kernel.write_file(&path, "none")).unwrap();
    write(&world);
    let status = world.tick();
    assert_eq!((status.nr_drift, said(&status, "keeps writing")), (1, false));
    assert_eq!(scheduler(&world), "none mq-deadline [bfq]");
    write(&world);
    let status = world.tick();
    assert_eq!((status.nr_drift, said(&status, "keeps writing scheduler of sda")), (2, true));
    let status = world.ticks(2);
    assert_eq!((status.nr_drift, said(&status, "keeps writing")), (2, false));
    assert_eq!(scheduler(&world), "none mq-deadline [bfq]");
}

#[test]
fn a_foreign_scheduler_stays_where_the_policy_accepts_it() {
    let policy = format!("control: {{ on_drift: accept }}\n{BY_BFQ}");
    let mut world = world(SimHost::default(), DEADLINE, &policy);
    world.start().unwrap();
    world.ticks(2);
    let path = format!("{QUEUE}/scheduler");
    world.host.with(|kernel| kernel.write_file(&path, "none")).unwrap();
    world.tick();
    assert!(said(&world.ticks(3), "scheduler of sda is left to another program"));
    assert_eq!(world.stop().failures, [""; 0]);
    assert_eq!(scheduler(&world), "[none] mq-deadline bfq");
}

#[test]
fn obstacles_are_reported_with_a_remedy_and_end_with_their_cause() {
    let others = BY_BFQ.replace("sda", "sdx");
    for (host, divider, policy, what) in [
        (SimHost::default(), DEADLINE, BY_BFQ, "modprobe bfq"),
        (legacy(), DEADLINE, BY_COST, "io.cost cannot divide sda"),
        (SimHost::default(), COST, BY_BFQ, "tenantd did not switch it on"),
        (SimHost::default(), COST, BY_COST, "tenantd did not switch it on"),
        (SimHost::default(), DEADLINE, &*others, "there is no such disk"),
    ] {
        let mut host = tuned(SimHost { divider, ..host });
        host.queue.lacks_bfq = policy == BY_BFQ && !divider.has_cost;
        let mut world = World::on(host, &format!("{policy}{AB}"));
        let before = settings(&world);
        world.start().unwrap();
        let status = world.ticks(2);
        assert!(said(&status, what), "{policy}: {:?}", status.findings);
        let now = settings(&world);
        let of_disk = |all: &Snapshot| -> Snapshot {
            let is_of = |path: &String| path.starts_with("/sys/block") || path.contains("io.cost");
            all.iter()
                .filter(|(path, _)| is_of(path))
                .map(|it| (it.0.clone(), it.1.clone()))
                .collect()
        };
        assert_same(&of_disk(&before), &of_disk(&now), what);
        units::reload(&mut world, &format!("{WEIGH}{AB}"));
        assert!(!said(&world.ticks(2), what));
    }
}

/// Settings of a disk that is gone must not be written to the next one of its name.
#[test]
fn another_disk_of_the_same_name_keeps_its_settings() {
    for policy in [BY_BFQ, BY_COST] {
        let mut world = world(SimHost::default(), DEADLINE, policy);
        world.start().unwrap();
        world.ticks(2);
        world.kill();
        world.host.with(|kernel| {
            kernel.replace_disk();
            kernel.write_file(&format!("{QUEUE}/scheduler"), "none").unwrap();
        });
        let restored = world.restore();
        assert_eq!(restored.failures, [""; 0]);
        assert_eq!(restored.remarks().len(), 1, "{:?}", restored.remarks());
        assert!(restored.remarks()[0].contains("sda is gone"));
        assert_eq!(scheduler(&world), "[none] mq-deadline bfq");
    }
}
