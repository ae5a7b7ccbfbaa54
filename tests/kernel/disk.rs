//! Requests to a real disk, counted for the cgroup that makes them.

use std::process::{Command, Stdio};

use tenantd_control::measure::disk::DiskCounts;
use tenantd_host::cgroup::{Cgroup, Facet, Last};
use tenantd_host::kernfs::RealKernFs;
use tenantd_host::machine::Machine;

use super::disk_weights::count_requests;
use super::ground::Ground;
use crate::util;

const BYTES: u64 = 8 << 20;

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn reads_of_a_disk_are_charged_to_the_reader() {
    let Some(mut ground) = Ground::take() else { return };
    if ground.layout.tree(Facet::Io).is_none() {
        return util::skipped("no hierarchy has the controller of disks");
    }
    ["a", "b"].iter().for_each(|below| ground.make(below));
    // The scratch folder of the ground is in memory.
    let scratch = tempfile::tempdir().unwrap();
    let file = util::file(scratch.path(), "data", "x".repeat(BYTES as usize));
    assert!(Command::new("sync").arg(&file).status().unwrap().success());
    let mut kernel = RealKernFs::new();
    let mut machine = Machine::open(&mut kernel).unwrap();
    let disks = machine.sample(&mut kernel).unwrap().disks;
    if disks.is_empty() {
        return util::skipped("this machine has no disk that was ever used");
    }
    disks.iter().for_each(|(_, disk)| count_requests(&ground, &disk.name.to_string()));
    let cgroups = ["a", "b"].map(|below| Cgroup::open(&mut kernel, &ground.layout, below).unwrap());
    let mut sleeper = Command::new("sleep");
    sleeper.arg("infinity");
    ground.spawn("b", sleeper);
    let (mut reader, done) = (Command::new("sh"), scratch.path().join("done"));
    let read = format!(
        "read go; dd if={} of=/dev/null bs=64k iflag=direct && touch {}; read end",
        file.display(),
        done.display()
    );
    reader.args(["-c", &read]).stdin(Stdio::piped()).stderr(Stdio::null());
    let reader = ground.spawn("a", reader);
    let mut sums = |machine: &mut Machine| {
        machine.sample(&mut kernel).unwrap();
        let last = Last { disks: machine.sampled_disks(), ..Last::default() };
        cgroups.each_ref().map(|cgroup| {
            let mut gaps = Vec::new();
            let sample = cgroup.sample(&mut kernel, true, &last, &mut gaps).unwrap();
            assert!(gaps.is_empty(), "{:?}", gaps.first());
            let mut sum = DiskCounts::default();
            sample.disks.iter().flat_map(|disks| disks.iter()).for_each(|(_, it)| sum.add(it));
            sum
        })
    };
    let before = sums(&mut machine);
    ground.say(reader, "go");
    util::wait_until("the file to be read", || done.exists());
    let after = sums(&mut machine);
    let read = |of: usize| after[of].read_bytes - before[of].read_bytes;
    if read(0) < BYTES / 2 {
        // A folder in memory or in the network; a controller that is not enabled; a file system on a stack of devices.
        return util::skipped("requests to the disk of the scratch folder are not counted here");
    }
    assert!(read(0) >= BYTES && after[0].reads - before[0].reads >= BYTES / (64 << 10));
    assert_eq!(read(1), 0, "the other cgroup reads nothing");
}
