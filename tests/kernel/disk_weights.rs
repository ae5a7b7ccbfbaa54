//! Two tenants that want all of a slow disk under bfq: they get it by their weights.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tenantd_host::cgroup::Facet;

use super::ask::Asked;
use super::ground::Ground;
use crate::util::{self, wait_until};

const SLOW_DISK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernel/slow_disk.py");
const POLICY: &str = "host: { disks: weigh }\n\
                      tenants: { a: { weight: { cpu: 100, memory: 100, disk: 300 } }, b: {} }";
pub(super) const MIB: u64 = 1 << 20;
const RATE: &str = "50e6";
/// Bytes of both while they are compared: about eight seconds of the disk.
const COMPARED: u64 = 400 * MIB;

/// A loop device on a disk of one head, which goes with it.
pub(super) struct SlowDisk {
    server: Child,
    pub(super) device: String,
    _dir: tempfile::TempDir,
}

impl SlowDisk {
    pub(super) fn start() -> Result<SlowDisk, String> {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("python3");
        command.arg(SLOW_DISK).arg(dir.path()).args(["400", RATE]);
        let server = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut server = server.map_err(|error| format!("python3: {error}"))?;
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let mut disk = SlowDisk { server, device: String::new(), _dir: dir };
        if line.trim() != "mounted" {
            return Err("no FUSE file system can be mounted".to_string());
        }
        let mut losetup = Command::new("losetup");
        losetup.args(["-f", "--show", "--direct-io=on"]).arg(disk._dir.path().join("disk"));
        let found = losetup.output().map_err(|error| format!("losetup: {error}"))?;
        let path = String::from_utf8_lossy(&found.stdout).trim().to_string();
        match path.strip_prefix("/dev/") {
            Some(name) => disk.device = name.to_string(),
            None => return Err("no loop device is free".to_string()),
        }
        Ok(disk)
    }

    pub(super) fn queue(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/sys/block/{}/queue/{file}", self.device))
    }

    pub(super) fn choose(&self, scheduler: &str) -> std::io::Result<()> {
        fs::write(self.queue("scheduler"), scheduler)
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        if !self.device.is_empty() {
            self.choose("none").ok();
            Command::new("losetup").args(["-d", &format!("/dev/{}", self.device)]).status().ok();
        }
        kill(Pid::from_raw(self.server.id() as i32), Signal::SIGTERM).ok();
        util::ended(&mut self.server);
    }
}

/// Bytes that the tenant read from the device.
fn bytes_read(ground: &Ground, tenant: &str, device: &str) -> u64 {
    let number = fs::read_to_string(format!("/sys/block/{device}/dev")).unwrap();
    let (file, key) = if ground.layout.is_unified() {
        ("io.stat", "rbytes=")
    } else {
        ("blkio.bfq.io_service_bytes", "Read ")
    };
    let text = fs::read_to_string(ground.dir(Facet::Io, tenant).join(file)).unwrap_or_default();
    let line = text.lines().find_map(|line| {
        let rest = line.strip_prefix(number.trim())?;
        rest.split_once(key).map(|(_, count)| count.split(' ').next().unwrap_or_default())
    });
    line.map_or(0, |count| count.parse().unwrap())
}

/// Starts the counts of cgroup v1, which begin with the first limit on a device.
pub(super) fn count_requests(ground: &Ground, device: &str) {
    if ground.layout.is_unified() {
        return;
    }
    let number = fs::read_to_string(format!("/sys/block/{device}/dev")).unwrap();
    let file = ground.dir(Facet::Io, "a").join("blkio.throttle.read_bps_device");
    for limit in ["1000000000000", "0"] {
        fs::write(&file, format!("{} {limit}", number.trim())).unwrap();
    }
}

/// Processes that want all of a disk, one in each tenant.
pub(super) struct Readers(Vec<u32>);

impl Readers {
    pub(super) fn start(asked: &mut Asked, disk: &SlowDisk, tenants: &[&str]) -> Readers {
        let read = format!(
            "read go; for at in 0 100 200 300; do (while dd if=/dev/{} of=/dev/null bs=256k skip=${{at}}M count=400 \
             iflag=direct,skip_bytes; do :; done) & done; wait",
            disk.device
        );
        let start = |tenant: &&str| {
            let mut shell = Command::new("setsid");
            shell.args(["sh", "-c", &read]).stdin(Stdio::piped()).stderr(Stdio::null());
            let pid = asked.ground.spawn(tenant, shell);
            // What it starts is in its cgroup.
            asked.ground.say(pid, "go");
            pid
        };
        Readers(tenants.iter().map(start).collect())
    }

    pub(super) fn end(self, asked: &mut Asked) {
        for reader in self.0 {
            kill(Pid::from_raw(-(reader as i32)), Signal::SIGKILL).unwrap();
            asked.ground.end(reader);
        }
    }
}

/// Weight of `a` under bfq in parts of that of `b`.
pub(super) fn weight_ratio(asked: &Asked) -> f64 {
    let file = if asked.ground.layout.is_unified() { "io.bfq.weight" } else { "blkio.bfq.weight" };
    let weight = |tenant: &str| -> f64 {
        let path = asked.ground.dir(Facet::Io, tenant).join(file);
        let text = fs::read_to_string(path).unwrap_or_default();
        let first = text.lines().next().unwrap_or_default();
        first.trim_start_matches("default ").parse().unwrap_or(0.0)
    };
    weight("a") / weight("b")
}

/// Part of `a` in the bytes that both read from now on, which are `compared` at least.
pub(super) fn share_of_first(asked: &Asked, disk: &SlowDisk, compared: u64) -> f64 {
    let read = || ["a", "b"].map(|tenant| bytes_read(&asked.ground, tenant, &disk.device));
    let before = read();
    let mut after = before;
    wait_until("the bytes to compare", || {
        after = read();
        after.iter().sum::<u64>() - before.iter().sum::<u64>() >= compared
    });
    let [a, b] = [0, 1].map(|tenant| (after[tenant] - before[tenant]) as f64);
    a / (a + b)
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_slow_disk_is_divided_by_weight() {
    let Some(ground) = Ground::take() else { return };
    if ground.layout.tree(Facet::Io).is_none() {
        return util::skipped("no hierarchy has the controller of disks");
    }
    let disk = match SlowDisk::start() {
        Ok(disk) => disk,
        Err(why) => return util::skipped(&why),
    };
    if disk.choose("bfq").is_err() {
        return util::skipped("the kernel has no bfq");
    }
    disk.choose("mq-deadline").unwrap();
    let mut asked = Asked::on(ground, POLICY);
    let readers = Readers::start(&mut asked, &disk, &["a", "b"]);
    count_requests(&asked.ground, &disk.device);
    let has_finding = |asked: &Asked| {
        let what = format!("disk weights are ineffective on {}", disk.device);
        asked.status()["findings"].to_string().contains(&what)
    };
    wait_until("a finding on a scheduler that ignores weights", || has_finding(&asked));
    disk.choose("bfq").unwrap();
    wait_until("the weights", || (weight_ratio(&asked) - 3.0).abs() < 0.1);
    wait_until("the end of the finding", || !has_finding(&asked));
    let share = share_of_first(&asked, &disk, COMPARED);
    println!("300:100 on {}: share of a {share:.3}", disk.device);
    readers.end(&mut asked);
    asked.daemon.stop();
    assert!((share - 0.75).abs() < 0.1, "{share}");
}
