//! Devices of counted resources: those of other jobs are closed to a job.
//!
//! **Problem.** The indices of a job are a promise that each program keeps for itself, or does not. **Answer.** Where the
//! host can close devices ([`tenantd_host::devices`]), a job can open those of its own units and none of the other units,
//! also if it asked for none. Everything else stays as it was.
//!
//! **Scope.** Systemd gets the devices with the order that starts the scope.
//!
//! **Cgroup v1.** The job gets a cgroup below the one in which its process is, in the devices hierarchy only: rules of the
//! cgroups above stay in force, so no process gains a device by becoming a job. It is removed with the other cgroups of
//! the job.
//!
//! **Sets.** The devices follow the indices that the tasks have together.
//!
//! A failure is a note of the job. A job without units gets none: it asked for nothing.

use std::collections::BTreeSet;
use std::path::Path;

use tracing::debug;

use super::records::Home;
use super::room::JobRoom;
use super::scope::unit_of;
use crate::backend::access::HostAccess;
use tenantd_admission::{Indices, JobId};
use tenantd_core::kernel_text::text_of_name;
use tenantd_host::devices::{self, Device};
use tenantd_host::kernfs::{KernError, KernFs};
use tenantd_host::process::{self, Candidate};
use tenantd_host::systemd::Order;
use tenantd_policy::model::Counted;

const ALLOW: &str = "devices.allow";
const DENY: &str = "devices.deny";

/// Devices of a job with these indices that are closed to it, and its own that do not exist.
pub(super) fn closed(resources: &[Counted], held: &Indices) -> (BTreeSet<Device>, Vec<String>) {
    let (mut own, mut others, mut missing) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for counted in resources.iter().filter(|it| !it.devices.is_empty()) {
        let held: BTreeSet<u32> = held.of(&counted.name).collect();
        for index in 0..counted.count {
            let is_own = held.contains(&index);
            for path in counted.devices_of(index) {
                match Device::at(&path) {
                    Ok(device) if is_own => drop(own.insert(device)),
                    Ok(device) => drop(others.insert(device)),
                    Err(error) if is_own => missing.push(format!(
                        "it has {} {index} without its device {}: {error}; check `host.resources`",
                        counted.name,
                        path.display()
                    )),
                    Err(_) => {}
                }
            }
        }
    }
    // Two paths may lead to one device.
    others.retain(|device| !own.contains(device));
    (others, missing)
}

/// Prepares closing the devices of others to a job that is about to start.
pub(super) fn close<K: KernFs>(room: &mut JobRoom, host: &mut HostAccess<K>, job: JobId) {
    let Some(held) = room.admission.job(job).map(|view| view.indices.clone()) else { return };
    let resources = &room.policy.host.resources;
    let Some(record) = room.records.get_mut(&job) else { return };
    let (pid, started) = (record.process.pid, record.process.start_ticks);
    let Some(home) = &mut record.home else { return };
    let has_units = !held.is_empty();
    home.held = held;
    if resources.iter().all(|it| it.devices.is_empty()) {
        return;
    }
    let (closed, missing) = closed(resources, &home.held);
    home.ineffective.extend(missing);
    home.closed = closed;
    let proc = host.proc();
    let outcome = if home.cgroup.unit.is_some() {
        let drivers = host.kernel.read_once(proc, "devices");
        let patterns = drivers.map(|drivers| devices::allowed(&home.closed, drivers));
        patterns.map_err(|error| error.to_string()).map(|patterns| {
            if let Some(starting) = room.scopes.starting.get_mut(&job) {
                starting.devices = Some(patterns);
            }
        })
    } else {
        let above = devices::legacy_dir(&mut host.kernel, proc, pid);
        // No other agent, and no earlier one, has a cgroup of this name.
        let name = format!("tenantd-job-{job}-{pid}-{started}");
        home.cgroup.devices = above.map(|above| above.join(name));
        home.cgroup.devices.as_ref().map(|_| ()).ok_or_else(|| {
            "on this host only scopes of systemd, or the devices controller of cgroup v1, can close devices".to_string()
        })
    };
    if let Err(why) = outcome.map_err(|why| note(&why)) {
        home.closed.clear();
        home.ineffective.extend(Some(why).filter(|_| has_units));
    }
}

fn note(why: &str) -> String {
    format!("devices of other jobs stay open to it: {why}")
}

/// Moves the process of a job into its cgroup of the devices hierarchy, after it has entered the others.
pub(super) fn enter<K: KernFs>(
    room: &mut JobRoom,
    host: &mut HostAccess<K>,
    job: JobId,
    found: &Candidate,
) {
    let record = room.records.get_mut(&job);
    let Some(home) = record.and_then(|record| record.home.as_mut()) else { return };
    let Some(path) = home.cgroup.devices.clone() else { return };
    let kernel = &mut host.kernel;
    let above = path.parent().unwrap_or(&path);
    let moved = made(kernel, above, &path, &home.closed).and_then(|()| join(kernel, &path, found));
    match moved {
        Ok(true) => {}
        // The number may be another process's by now.
        Ok(false) => drop(join(kernel, above, found)),
        Err(error) => {
            debug!("job {job} has no cgroup of its own for devices: {error}");
            if !home.held.is_empty() {
                home.ineffective.push(note(&error.to_string()));
            }
        }
    }
}

fn made<K: KernFs>(
    kernel: &mut K,
    above: &Path,
    path: &Path,
    closed: &BTreeSet<Device>,
) -> Result<(), KernError> {
    let name = text_of_name(path.file_name().unwrap_or_default());
    let dir = kernel.open_dir(above)?;
    let outcome = kernel.make_dir(dir, &name);
    kernel.close_dir(dir);
    outcome?;
    write(kernel, path, DENY, closed.iter())
}

fn write<'d, K: KernFs>(
    kernel: &mut K,
    path: &Path,
    file: &str,
    mut devices: impl Iterator<Item = &'d Device>,
) -> Result<(), KernError> {
    let dir = kernel.open_dir(path)?;
    let outcome = devices.try_for_each(|device| kernel.write(dir, file, &device.rule()));
    kernel.close_dir(dir);
    outcome
}

/// Moves a process. Returns true if it lives.
fn join<K: KernFs>(kernel: &mut K, path: &Path, found: &Candidate) -> Result<bool, KernError> {
    let dir = kernel.open_dir(path)?;
    let moved = kernel.move_process(dir, found.claim.pid);
    kernel.close_dir(dir);
    moved?;
    process::is_alive(kernel, found.held)
}

/// Brings the devices of running jobs in line with their indices, which change for sets. Returns true if any has changed.
pub(super) fn follow<K: KernFs>(room: &mut JobRoom, host: &mut HostAccess<K>) -> bool {
    let mut changed = Vec::new();
    for view in room.admission.active() {
        let home = room.records.get(&view.job).and_then(|record| record.home.as_ref());
        if home.is_some_and(|home| home.held != *view.indices) {
            changed.push((view.job, view.indices.clone()));
        }
    }
    let has_changed = !changed.is_empty();
    for (job, held) in changed {
        room.unkept.insert(job);
        let resources = &room.policy.host.resources;
        let record = room.records.get_mut(&job);
        let Some(home) = record.and_then(|record| record.home.as_mut()) else { continue };
        home.held = held;
        let (closed, missing) = closed(resources, &home.held);
        missing.into_iter().for_each(|what| home.add_note(what));
        if home.cgroup.unit.is_some() {
            home.closed = closed;
            let Ok(drivers) = host.kernel.read_once(host.machine.proc(), "devices") else {
                continue;
            };
            let devices = devices::allowed(&home.closed, drivers);
            match room.scopes.starting.get_mut(&job).filter(|starting| starting.asked.is_none()) {
                Some(starting) => starting.devices = Some(devices),
                None => {
                    let unit = unit_of(job);
                    room.scopes.ask(&host.kernel, Order::SetDevices { unit, devices });
                }
            }
        } else {
            follow_legacy(host, job, home, closed);
        }
    }
    has_changed
}

fn follow_legacy<K: KernFs>(
    host: &mut HostAccess<K>,
    job: JobId,
    home: &mut Home,
    closed: BTreeSet<Device>,
) {
    let Some(path) = home.cgroup.devices.clone() else { return };
    let before = std::mem::replace(&mut home.closed, closed);
    let (opened, shut) = (before.difference(&home.closed), home.closed.difference(&before));
    let kernel = &mut host.kernel;
    let outcome =
        write(kernel, &path, ALLOW, opened).and_then(|()| write(kernel, &path, DENY, shut));
    if let Err(error) = outcome {
        debug!("the devices of job {job} do not follow its indices: {error}");
        home.add_note(note(&error.to_string()));
    }
}
