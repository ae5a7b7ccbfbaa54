//! Disks whose settings the policy changes: `host: { disks: { divide: … } }`.
//!
//! [`tenantd_host::disk_settings`] has the settings of each way. In each tick the settings of each named disk are compared with
//! the policy's; all old values are in the journal before the first of a disk is written. In mode observe the settings are reported
//! as actions and not written.
//!
//! **Other programs.** A value that was written and is another now is drift, as of a cgroup. It is written again, with pauses that
//! double up to [`PAUSE_MAX`] ticks if that happens again within [`CALM`] ticks, or left (`control.on_drift`). A disk whose
//! `io.cost` another program switched on keeps its settings: tenants only have weights there.
//!
//! **Properties** (`tests/agent/disk_divide.rs`): after a stop, a kill at any call, a reload without the disk and a change of mode
//! all settings are as before, but for the line of a disk in the files of `io.cost`, which the kernel keeps.

use std::path::PathBuf;
use std::sync::Arc;

use nix::errno::Errno;
use tracing::{info, warn};

use crate::backend::access::HostAccess;
use crate::recovery::disk_settings;
use crate::recovery::restored::Restored;
use crate::tenants::state::Tenants;
use tenantd_control::report::status::ActionStatus;
use tenantd_control::words::finding::{Code, Finding, Severity};
use tenantd_host::disk_settings::{Change, Found, MODEL, Obstacle, QOS, read};
use tenantd_host::enforce::with_causes;
use tenantd_host::journal::{DiskHeld, Entry};
use tenantd_host::kernfs::{KernError, KernFs};
use tenantd_policy::model::{DividedBy, DividedDisk, Mode};

/// Longest pause before an overwritten value is written again, in ticks.
const PAUSE_MAX: u64 = 64;
/// Ticks without drift after which the pauses begin again.
const CALM: u64 = 60;

/// A disk with settings of the agent.
#[derive(Debug)]
struct Divided {
    disk: DividedDisk,
    queue: PathBuf,
    inode: u64,
    /// Files that were written.
    written: Vec<&'static str>,
    /// Files that are left to other programs.
    left: Vec<&'static str>,
    /// True from a drift until the value is written again.
    is_drifted: bool,
    pause: u64,
    /// Tick of the next write, and tick from which a drift counts as the first.
    next: u64,
    calm_at: u64,
}

/// Disks that the agent divides.
#[derive(Debug, Default)]
pub(crate) struct DividedDisks {
    divided: Vec<Divided>,
    actions: Vec<ActionStatus>,
    nr_drift: u64,
}

impl DividedDisks {
    /// Compares the settings of all named disks with the policy, and writes those that differ.
    pub(super) fn tend<K: KernFs>(
        &mut self,
        tenants: &mut Tenants<K>,
        findings: &mut Vec<Finding>,
    ) {
        self.actions.clear();
        let policy = Arc::clone(&tenants.base.written);
        let disks = policy.host.disks.divided();
        if disks.is_empty() && self.divided.is_empty() {
            return;
        }
        let is_enforcing = tenants.mode() == Mode::Enforce;
        if !is_enforcing {
            // Their settings were restored with everything else.
            self.divided.clear();
        }
        let (tick, leaves_drift) =
            (tenants.control.tick(), tenants.control.settings().leaves_drift());
        let host = &mut tenants.host;
        self.release(host, disks, findings);
        for disk in disks {
            let outcome = match read(&mut host.kernel, &host.layout, &disk.name) {
                Ok(None) => Err(obstacle(disk, Obstacle::Absent)),
                Ok(Some(found)) => {
                    self.tend_one(host, disk, &found, (tick, is_enforcing, leaves_drift))
                }
                Err(error) => {
                    let what = format!("{}: {error}; its settings stay", disk.name);
                    Err(Finding::of_host(Code::Unreadable, what))
                }
            };
            findings.extend(outcome.err());
        }
    }

    /// Settings written in the last tick; in mode observe those that would be.
    pub(super) fn actions(&self) -> impl Iterator<Item = ActionStatus> {
        self.actions.iter().cloned()
    }

    /// Number of values that other programs wrote over the agent's.
    pub(super) fn nr_drift(&self) -> u64 {
        self.nr_drift
    }

    /// Restores disks that the policy no longer names, or divides in another way.
    fn release<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        disks: &[DividedDisk],
        findings: &mut Vec<Finding>,
    ) {
        let is_gone = |it: &Divided| !disks.contains(&it.disk);
        let gone: Vec<(PathBuf, u64)> = self
            .divided
            .iter()
            .filter(|it| is_gone(it))
            .map(|it| (it.queue.clone(), it.inode))
            .collect();
        if gone.is_empty() {
            return;
        }
        let concerns = |entry: &Entry| matches!(entry, Entry::DiskHeld(was) if gone.contains(&(was.queue.clone(), was.inode)));
        let entries: Vec<Entry> =
            host.journal.entries().iter().filter(|entry| concerns(entry)).cloned().collect();
        let mut restored = Restored::default();
        disk_settings::put_back(&mut host.kernel, &entries, &mut restored);
        let keeps = |entry: &Entry| !concerns(entry) || restored.owes(entry);
        if let Err(error) = host.journal.retain(keeps) {
            findings.push(Finding::of_host(Code::NotKept, with_causes(&error)));
        }
        let failed = restored.failures.iter();
        findings.extend(
            failed.map(|why| Finding::of_host(Code::NotKept, format!("not restored: {why}"))),
        );
        self.divided.retain(|it| !is_gone(it));
    }

    fn tend_one<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        disk: &DividedDisk,
        found: &Found,
        (tick, is_enforcing, leaves_drift): (u64, bool, bool),
    ) -> Result<(), Finding> {
        let is_same = |it: &Divided| it.queue == found.queue && it.inode == found.inode;
        let at = self.divided.iter().position(is_same);
        let is_ours = at.is_some_and(|at| self.divided[at].written.contains(&QOS));
        let changes = found.changes(disk, is_ours).map_err(|why| obstacle(disk, why))?;
        if !is_enforcing {
            self.actions.extend(changes.iter().map(|change| action(disk, change)));
            return Ok(());
        }
        let divided = match at {
            Some(at) => &mut self.divided[at],
            None => {
                // A disk of this name that is gone; the journal keeps its old values for a remark.
                self.divided.retain(|it| it.queue != found.queue);
                self.divided.push(Divided::new(disk, found));
                let at = self.divided.len() - 1;
                &mut self.divided[at]
            }
        };
        let (left, changes): (Vec<Change>, Vec<Change>) =
            changes.into_iter().partition(|change| divided.left.contains(&change.file));
        let drifted = changes.iter().find(|change| divided.written.contains(&change.file));
        if let Some(change) = drifted.filter(|_| !divided.is_drifted) {
            self.nr_drift += 1;
            let (path, held) = (change.dir.join(change.file), &change.held);
            warn!(
                resource = "disk",
                action = "drift",
                "someone else wrote here: {} holds {held} instead of {}",
                path.display(),
                change.to
            );
            if leaves_drift {
                let file = change.file;
                return divided.leave(host, file).map_err(|why| not_written(disk, &why));
            }
            divided.is_drifted = true;
            divided.pause(tick);
        }
        let left = left.first().map_or(Ok(()), |change| Err(left_to_others(disk, change)));
        if changes.is_empty() {
            return left;
        }
        if tick < divided.next {
            return Err(contested(disk, &changes[0], divided.next - tick));
        }
        let outcome = divided.write(host, found, &changes);
        self.actions.extend(changes.iter().map(|change| action(disk, change)));
        outcome.and(left)
    }
}

impl Divided {
    fn new(disk: &DividedDisk, found: &Found) -> Divided {
        let (queue, inode) = (found.queue.clone(), found.inode);
        let (written, left, is_drifted, pause, next, calm_at) = Default::default();
        Divided {
            disk: disk.clone(),
            queue,
            inode,
            written,
            left,
            is_drifted,
            pause,
            next,
            calm_at,
        }
    }

    /// Puts the next write off, longer each time.
    fn pause(&mut self, tick: u64) {
        self.pause = if tick < self.calm_at { (self.pause * 2).clamp(1, PAUSE_MAX) } else { 0 };
        self.next = tick + self.pause;
        self.calm_at = self.next + CALM;
    }

    /// Records all old values, then writes the new ones.
    fn write<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        found: &Found,
        changes: &[Change],
    ) -> Result<(), Finding> {
        let entry = |(dir, file, value): (&PathBuf, &str, String)| {
            let (queue, inode) = (self.queue.clone(), self.inode);
            let (dir, file) = (dir.clone(), file.to_string());
            Entry::DiskHeld(Box::new(DiskHeld { queue, inode, dir, file, value }))
        };
        let reset = found.reset_by(&mut host.kernel, changes);
        let reset = reset.into_iter().map(|(file, value)| entry((&self.queue, &file, value)));
        let own = changes.iter().map(|it| entry((&it.dir, it.file, found.old_text(it))));
        let entries: Vec<Entry> = reset.chain(own).collect();
        let recorded = host.journal.record_all(entries);
        recorded.map_err(|error| not_written(&self.disk, &with_causes(&error)))?;
        for change in changes {
            let dir = host.kernel.open_dir(&change.dir).map_err(|it| refused(&self.disk, &it))?;
            let outcome = host.kernel.write(dir, change.file, &change.to);
            host.kernel.close_dir(dir);
            outcome.map_err(|error| refused(&self.disk, &error))?;
            let path = change.dir.join(change.file);
            info!(
                resource = "disk",
                "{}: {} instead of {}",
                path.display(),
                change.to,
                change.held
            );
            if !self.written.contains(&change.file) {
                self.written.push(change.file);
            }
        }
        self.is_drifted = false;
        Ok(())
    }

    /// Leaves a file to another program: its old value is void, with those that the agent's write has reset.
    fn leave<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        file: &'static str,
    ) -> Result<(), String> {
        let is_void = |it: &str| {
            if [MODEL, QOS].contains(&file) { it == file } else { ![MODEL, QOS].contains(&it) }
        };
        let concerns = |was: &DiskHeld| {
            was.queue == self.queue && was.inode == self.inode && is_void(&was.file)
        };
        let keeps = |entry: &Entry| !matches!(entry, Entry::DiskHeld(was) if concerns(was));
        host.journal.retain(keeps).map_err(|error| with_causes(&error))?;
        self.left.push(file);
        Ok(())
    }
}

fn action(disk: &DividedDisk, change: &Change) -> ActionStatus {
    ActionStatus {
        tenant: String::new(),
        path: change.dir.join(change.file).display().to_string(),
        from: Some(change.held.clone()),
        to: change.to.clone(),
        reason: format!("host.disks divides {} by {}", disk.name, way(disk)),
    }
}

fn way(disk: &DividedDisk) -> &'static str {
    match disk.way {
        DividedBy::Bfq => "bfq",
        DividedBy::Cost(_) => "io.cost",
    }
}

fn obstacle(disk: &DividedDisk, why: Obstacle) -> Finding {
    let name = &disk.name;
    let (code, what, remedy) = match why {
        Obstacle::Absent => (
            Code::Ineffective,
            format!("host.disks divides {name}, and there is no such disk: nothing is written for it"),
            "write the name of a disk with a scheduler (`lsblk`); it is divided when it appears".to_string(),
        ),
        Obstacle::NoBfq => (
            Code::KernelLacks,
            format!("{name} does not offer bfq: disk weights have no effect there"),
            "load it (modprobe bfq); tenantd then chooses it. Without it in the kernel, divide by `cost`".to_string(),
        ),
        Obstacle::NoCost => (
            Code::KernelLacks,
            format!("io.cost cannot divide {name}: it needs cgroup v2 with the controller io, and a kernel with io.cost"),
            format!("divide it by bfq: `disks: {{ divide: {{ {name}: bfq }} }}`"),
        ),
        Obstacle::OthersCost => {
            let what = format!(
                "io.cost is on for {name}, and tenantd did not switch it on: tenants have weights there, and its settings stay"
            );
            let remedy = format!("leave {name} out of `divide`, or switch io.cost off (enable=0 in io.cost.qos)");
            let note = Finding::of_host(Code::LeftToOthers, what).with_remedy(remedy);
            return Finding { severity: Severity::Note, ..note };
        }
    };
    Finding::of_host(code, what).with_remedy(remedy)
}

fn not_written(disk: &DividedDisk, why: &str) -> Finding {
    let what = format!("{} is not divided by {}: {why}", disk.name, way(disk));
    Finding::of_host(Code::NotWritten, what)
}

fn refused(disk: &DividedDisk, error: &KernError) -> Finding {
    let finding = not_written(disk, &error.to_string());
    if error.errno == Errno::EROFS {
        let remedy = format!(
            "allow it in the unit: `systemctl edit tenantd.service`, with ReadWritePaths=/sys/block/{}/queue below \
             [Service], and restart it",
            disk.name.replace('/', "!")
        );
        return finding.with_remedy(remedy);
    }
    finding
}

fn left_to_others(disk: &DividedDisk, change: &Change) -> Finding {
    let what = format!(
        "{} of {} is left to another program, which wrote {} (control.on_drift: accept)",
        change.file, disk.name, change.held
    );
    Finding::of_host(Code::LeftToOthers, what)
}

fn contested(disk: &DividedDisk, change: &Change, ticks: u64) -> Finding {
    let what = format!(
        "another program keeps writing {} of {}, which is {} now: the disk is divided again in {ticks} ticks at the earliest",
        change.file, disk.name, change.held
    );
    Finding::of_host(Code::Contested, what).with_remedy(format!(
        "end that program (a udev rule, tuned), or leave {} out of `divide`",
        disk.name
    ))
}
