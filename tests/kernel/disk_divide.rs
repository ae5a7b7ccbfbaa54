//! A slow disk that the policy divides by bfq: its scheduler is chosen, obeyed, and restored also after SIGKILL.

use std::fs;

use nix::sys::signal::Signal;
use tenantd_host::cgroup::Facet;

use super::ask::Asked;
use super::disk_weights::{MIB, Readers, SlowDisk, count_requests, share_of_first, weight_ratio};
use super::ground::Ground;
use crate::util::{self, wait_until};

/// Bytes of both readers while they are compared: about five seconds of the disk.
const COMPARED: u64 = 250 * MIB;

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_slow_disk_gets_its_scheduler_and_keeps_its_old_settings() {
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
    // A value of an administrator, which a choice of a scheduler resets.
    fs::write(disk.queue("iosched/read_expire"), "77").unwrap();
    let settings = || {
        ["scheduler", "iosched/read_expire", "nr_requests", "wbt_lat_usec"]
            .map(|file| fs::read_to_string(disk.queue(file)).unwrap_or_default())
    };
    let before = settings();
    let policy = format!(
        "host: {{ disks: {{ divide: {{ {}: bfq }} }} }}\n\
         tenants: {{ a: {{ weight: {{ cpu: 100, memory: 100, disk: 300 }} }}, b: {{}} }}",
        disk.device
    );
    let is_divided = || settings()[0].contains("[bfq]");
    let mut asked = Asked::on(ground, &policy);
    wait_until("the scheduler", is_divided);
    // Another program chooses its own.
    disk.choose("none").unwrap();
    wait_until("the scheduler again", is_divided);
    let readers = Readers::start(&mut asked, &disk, &["a", "b"]);
    count_requests(&asked.ground, &disk.device);
    wait_until("the weights", || (weight_ratio(&asked) - 3.0).abs() < 0.1);
    let share = share_of_first(&asked, &disk, COMPARED);
    println!("300:100 on {} by divide: share of a {share:.3}", disk.device);
    assert_eq!(asked.status()["nr_drift"], 1);
    readers.end(&mut asked);
    let Asked { ground, daemon, .. } = asked;
    daemon.signal(Signal::SIGKILL);
    assert!(is_divided());
    util::run(ground.tenantd().arg("--restore")).exits(0);
    assert_eq!(settings(), before);
    assert!((share - 0.75).abs() < 0.1, "{share}");
}
