//! Notes on disks: keys that have less effect on this machine than they say.

use std::path::Path;

use super::facts::{DiskFacts, HostFacts};
use super::nodes::Node;
use super::notes::note;
use super::read::Draft;
use super::report::Report;
use super::rules;
use super::tree::Place;
use tenantd_core::disk_rate::DiskRate;

/// Paths with the files of tenants on most hosts.
const FOLDERS: [&str; 5] = ["/", "/home", "/srv", "/var", "/var/tmp"];
/// File systems whose requests leave the machine, or are those of the program that serves them.
const OFF_DISK: [&str; 8] = ["nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "fuse"];
/// File systems on a disk without cgroup writeback (`SB_I_CGROUPWB`): a kernel thread writes their pages for no tenant.
const WITHOUT_WRITEBACK: [&str; 9] =
    ["zfs", "jfs", "ntfs3", "exfat", "vfat", "nilfs2", "ocfs2", "gfs2", "fuseblk"];

/// Notes about limits and weights of disks on a machine.
pub(super) fn check(draft: &Draft, nodes: &[Node<'_>], host: &HostFacts, report: &mut Report) {
    let weighs = draft.policy.host.disks.weighs();
    let at = draft.given.value("host.disks").or_else(|| draft.given.key("host.disks"));
    let of_weights = at.filter(|_| weighs);
    let limited = |is_write: bool| {
        nodes.iter().find_map(|node| {
            let is_it = |rate: DiskRate| !is_write || rate.is_write();
            let mut limits = node.tenant.limit.disk.limits();
            let (rate, _) = limits.find(|(rate, _)| is_it(*rate))?;
            node.given.key(&format!("limit.disk.{}", rate.name()))
        })
    };
    if let Some(place) = of_weights.or_else(|| limited(false)) {
        let writes = of_weights.or_else(|| limited(true));
        file_systems(place, writes, host, report);
    }
    if let Some(place) = of_weights {
        unweighed(draft, place, host, report);
    }
}

fn file_systems(place: &Place, writes: Option<&Place>, host: &HostFacts, report: &mut Report) {
    let kinds = FOLDERS.map(|folder| Some((folder, (host.file_system)(Path::new(folder))?)));
    let (mut away, mut unknown) = (Vec::new(), Vec::new());
    for (folder, kind) in kinds.into_iter().flatten() {
        if OFF_DISK.contains(&&*kind) || kind.starts_with("fuse.") {
            away.push((
                place,
                format!("requests to {folder} ({kind}) do not reach a disk as those of a tenant"),
            ));
        } else if let Some(writes) = writes.filter(|_| WITHOUT_WRITEBACK.contains(&&*kind)) {
            let message = format!("buffered writes to {folder} ({kind}) belong to no tenant");
            unknown.push((writes, message));
        }
    }
    let help = "neither weights nor limits of disks bound them: limit them at the server, or on the client's network";
    note(&rules::VOID_DISKS, &away, help, report);
    let help = "neither weights nor limits bound them; ext4, xfs, btrfs and f2fs charge the writer, in cgroup v2";
    note(&rules::VOID_DISKS, &unknown, help, report);
}

fn unweighed(draft: &Draft, place: &Place, host: &HostFacts, report: &mut Report) {
    let divided = draft.policy.host.disks.divided();
    let is_named = |disk: &DiskFacts| divided.iter().any(|it| it.name == disk.name);
    let is_void = |disk: &&DiskFacts| disk.scheduler != "bfq" && !disk.has_cost && !is_named(disk);
    let disks = (host.disks)().unwrap_or_default();
    let found: Vec<(&Place, String)> = disks
        .iter()
        .filter(is_void)
        .map(|disk| {
            let DiskFacts { name, scheduler, .. } = disk;
            (place, format!("weights have no effect on {name} now: its scheduler is {scheduler}, and io.cost is off"))
        })
        .collect();
    let help = "choose bfq for it (`echo bfq > /sys/block/NAME/queue/scheduler`; a udev rule keeps it), let \
                tenantd choose it (`disks: { divide: { NAME: bfq } }`), or switch io.cost on";
    note(&rules::VOID_DISKS, &found, help, report);
    let absent = divided.iter().filter(|disk| !(host.has_disk)(&disk.name));
    let absent = absent.map(|disk| (place, format!("this machine has no disk {} now", disk.name)));
    let absent: Vec<(&Place, String)> = absent.collect();
    let help = "it is divided when it appears; a partition has no settings of its own: name its disk (`lsblk`)";
    note(&rules::VOID_DISKS, &absent, help, report);
}
