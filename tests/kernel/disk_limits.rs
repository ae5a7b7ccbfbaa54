//! A tenant with a limit reads slowly from a disk of this machine, beside one without.

use std::fs;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tenantd_host::cgroup::Facet;

use super::ask::Asked;
use super::disk_weights::SlowDisk;
use super::ground::Ground;
use crate::util::{self, wait_until};

const POLICY: &str = "tenants: { a: { limit: { disk: { read: 5MiB/s } } }, b: {} }";
const MIB: u64 = 1 << 20;
/// Bytes of the tenant without a limit while they are compared: about three seconds of the disk.
const COMPARED: u64 = 150 * MIB;

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_limit_bounds_reads_of_a_slow_disk() {
    let Some(ground) = Ground::take() else { return };
    if ground.layout.tree(Facet::Io).is_none() {
        return util::skipped("no hierarchy has the controller of disks");
    }
    let disk = match SlowDisk::start() {
        Ok(disk) => disk,
        Err(why) => return util::skipped(&why),
    };
    let number = fs::read_to_string(format!("/sys/block/{}/dev", disk.device)).unwrap();
    let number = number.trim().to_string();
    let is_unified = ground.layout.is_unified();
    let (limits, counts) = if is_unified {
        ("io.max", "io.stat")
    } else {
        ("blkio.throttle.read_bps_device", "blkio.throttle.io_service_bytes")
    };
    let mut asked = Asked::on(ground, POLICY);
    let line = |ground: &Ground, file: &str, tenant: &str| -> String {
        let path = ground.dir(Facet::Io, tenant).join(file);
        let text = fs::read_to_string(path).unwrap_or_default();
        let lines = text.lines().filter(|line| line.starts_with(&format!("{number} ")));
        lines.map(|line| format!("{line}\n")).collect()
    };
    let readers: Vec<u32> = ["a", "b"]
        .iter()
        .map(|tenant| {
            let read = format!(
                "read go; while dd if=/dev/{} of=/dev/null bs=256k count=400 iflag=direct; do :; done",
                disk.device
            );
            let mut shell = Command::new("setsid");
            shell.args(["sh", "-c", &read]).stdin(Stdio::piped()).stderr(Stdio::null());
            let pid = asked.ground.spawn(tenant, shell);
            asked.ground.say(pid, "go");
            pid
        })
        .collect();
    let limit = if is_unified { "rbps=5242880" } else { "5242880" };
    wait_until("the limit", || line(&asked.ground, limits, "a").contains(limit));
    assert!(!line(&asked.ground, limits, "b").contains(limit), "the other tenant has none");
    let key = if is_unified { "rbytes=" } else { "Read " };
    let read = |asked: &Asked| {
        ["a", "b"].map(|tenant| {
            let text = line(&asked.ground, counts, tenant);
            let count = text
                .split_once(key)
                .map_or("0", |(_, rest)| rest.split([' ', '\n']).next().unwrap_or_default());
            count.parse::<u64>().unwrap()
        })
    };
    let before = read(&asked);
    let mut after = before;
    wait_until("the bytes to compare", || {
        after = read(&asked);
        after[1] - before[1] >= COMPARED
    });
    let [a, b] = [0, 1].map(|tenant| (after[tenant] - before[tenant]) as f64);
    println!("limited {:.1} MiB beside {:.1} MiB", a / MIB as f64, b / MIB as f64);
    wait_until("the mark of the limit", || {
        asked.status()["tenants"][0]["limit_disk"]["read_bytes_per_second"] == 5 * MIB
    });
    for reader in readers {
        kill(Pid::from_raw(-(reader as i32)), Signal::SIGKILL).unwrap();
        asked.ground.end(reader);
    }
    let Asked { ground, daemon, .. } = asked;
    daemon.stop();
    assert!(!line(&ground, limits, "a").contains(limit), "restored");
    // 5 MiB/s beside 45: equal parts would be 1.
    assert!(a > 0.0 && a / b < 0.3, "{a} and {b} bytes");
}
