//! Reason for the waits of a tenant for disks.
//!
//! It names no other tenant: its reader may be a user who sees only the own one.

use crate::report::disk::{DiskRates, DiskStatus, DiskStep, DiskUseStatus};
use crate::report::status::{GroupStatus, Status, TenantStatus};
use crate::share::demand::PRESSED_RATIO;

/// Part of a device's time from which it has none left.
const FULL_RATIO: f64 = 0.9;

/// Explains the disks of `tenant`; `None` if no disk of the machine is counted.
pub(crate) fn disk_step(status: &Status, tenant: &TenantStatus) -> Option<DiskStep> {
    let disks = &status.host.disks;
    if disks.is_empty() {
        return None;
    }
    let first = tenant.disks.first();
    let disk = first.and_then(|of| disks.iter().find(|disk| disk.name == of.disk));
    let is_pressed = tenant.disk_pressure_ratio.is_some_and(|ratio| ratio > PRESSED_RATIO);
    let reason = match first.zip(disk) {
        None if tenant.disk_read_bytes.is_none() => NOT_COUNTED.to_string(),
        None if is_pressed => NO_REQUESTS.to_string(),
        None => "no requests to a disk".to_string(),
        Some((of, disk)) => reason(of, disk, limit(status, tenant, of), is_pressed),
    };
    let waited = tenant
        .disk_pressure_ratio
        .map(|ratio| format!("; tasks waited for disks {:.0} % of the time", ratio * 100.0));
    let reason = reason + &waited.unwrap_or_default();
    let pressure_ratio = tenant.disk_pressure_ratio;
    let share = tenant.disk_share.as_deref().cloned();
    Some(DiskStep { pressure_ratio, uses: tenant.disks.clone(), share, reason })
}

const NOT_COUNTED: &str = "no request was counted yet; if it made some, in cgroup v2 enable the controller io above its \
                           cgroup (on a systemd host: IOAccounting=yes); in cgroup v1 the kernel may count only once a \
                           limit was set on the disk, if only for a moment";
const NO_REQUESTS: &str = "no counted requests, and tasks wait: for a file system of the network or of a program, or for \
                           writes of the kernel";

/// Reached limits of the tenant, or else of a group above it, on the disk that it uses most.
fn limit(status: &Status, tenant: &TenantStatus, of: &DiskUseStatus) -> Option<String> {
    let own = tenant.limit_disk.and_then(|limit| limit.reached(&of.rates));
    own.map(|limit| format!("its limit, {limit}")).or_else(|| {
        let is_in = |name: &str, group: &str| {
            name.strip_prefix(group).is_some_and(|below| below.starts_with('/'))
        };
        let reached = |group: &GroupStatus| {
            let inside = status.tenants.iter().filter(|it| is_in(&it.name, &group.name));
            let uses = inside.flat_map(|it| it.disks.iter().filter(|it| it.disk == of.disk));
            let rates = uses.fold(DiskRates::default(), |sum, of| sum.and(&of.rates));
            group.limit_disk?.reached(&rates)
        };
        let mut above = status.groups.iter().filter(|group| is_in(&tenant.name, &group.name));
        above.find_map(reached).map(|limit| format!("the limit of its group, {limit}"))
    })
}

fn reason(
    of: &DiskUseStatus,
    disk: &DiskStatus,
    limit: Option<String>,
    is_pressed: bool,
) -> String {
    let percent = |ratio: f64| format!("{:.0} %", ratio * 100.0);
    let outside = disk.outside_ratio.unwrap_or(0.0);
    let others = (1.0 - of.work_ratio - outside).max(0.0);
    let mut text = match of.time_ratio {
        Some(time) => format!("{} of the time of {}", percent(time), disk.name),
        None => format!("its work is {} of all on {}", percent(of.work_ratio), disk.name),
    };
    text += &format!(
        " ({}B/s, {:.0} operations/s)",
        short_bytes(of.rates.read_bytes_per_second + of.rates.written_bytes_per_second),
        of.rates.reads_per_second + of.rates.writes_per_second,
    );
    if let Some(limit) = limit {
        return text + &format!("; the policy holds it to {limit} for each disk");
    }
    let Some(time) = disk.time_ratio else {
        let known = "; how much more the disk can do is learned while it is full";
        return text + known;
    };
    text += &format!(
        "; of its work, other tenants have {} and other processes {}",
        percent(others),
        percent(outside)
    );
    text += &match (time >= FULL_RATIO, is_pressed) {
        (true, true) => format!("; {} is full: its users wait for each other", disk.name),
        (true, false) => format!("; {} is full", disk.name),
        (false, true) => format!(
            "; {} is {} in use, so the waits are those of single requests: more at a time would get more",
            disk.name,
            percent(time)
        ),
        (false, false) => String::new(),
    };
    text
}

fn short_bytes(bytes: f64) -> String {
    match bytes {
        _ if bytes >= 1e9 => format!("{:.1} G", bytes / 1e9),
        _ if bytes >= 1e6 => format!("{:.1} M", bytes / 1e6),
        _ => format!("{:.0} k", bytes / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::disk::DiskLimitStatus;

    fn status(time: Option<f64>, pressure: f64) -> (Status, TenantStatus) {
        let disk = DiskStatus {
            name: "sda".into(),
            time_ratio: time,
            outside_ratio: Some(0.25),
            ..DiskStatus::default()
        };
        let rates = DiskRates {
            read_bytes_per_second: 12e6,
            reads_per_second: 310.0,
            ..DiskRates::default()
        };
        let of = DiskUseStatus {
            disk: "sda".into(),
            rates,
            time_ratio: time.map(|time| time * 0.25),
            work_ratio: 0.25,
        };
        let tenant = TenantStatus {
            disk_pressure_ratio: Some(pressure),
            disk_read_bytes: Some(7),
            disks: vec![of],
            ..TenantStatus::default()
        };
        let mut status = Status::default();
        status.host.disks = vec![disk];
        (status, tenant)
    }

    fn reason(time: Option<f64>, pressure: f64) -> String {
        let (status, tenant) = status(time, pressure);
        disk_step(&status, &tenant).unwrap().reason
    }

    #[test]
    fn waits_have_a_reason() {
        assert_eq!(
            reason(Some(1.0), 0.43),
            "25 % of the time of sda (12.0 MB/s, 310 operations/s); of its work, other tenants have 50 % and other \
             processes 25 %; sda is full: its users wait for each other; tasks waited for disks 43 % of the time"
        );
        assert!(reason(Some(0.4), 0.43).contains("the waits are those of single requests"));
        assert!(!reason(Some(0.4), 0.01).contains("waits are"));
        assert!(reason(None, 0.5).contains("is learned while it is full"));
    }

    #[test]
    fn a_reached_limit_is_the_reason() {
        let (mut status, mut tenant) = status(Some(0.4), 0.43);
        tenant.name = "lab/web".into();
        let reads = |limit| {
            Some(DiskLimitStatus { read_bytes_per_second: Some(limit), ..Default::default() })
        };
        tenant.limit_disk = reads(12 << 20);
        status.tenants = vec![tenant.clone()];
        let of = |status: &Status, tenant: &TenantStatus| disk_step(status, tenant).unwrap().reason;
        let text = of(&status, &tenant);
        assert!(
            text.contains("; the policy holds it to its limit, reads 12MiB/s for each disk; tasks"),
            "{text}"
        );
        tenant.limit_disk = reads(20 << 20);
        assert!(!of(&status, &tenant).contains("limit"));
        let group =
            GroupStatus { name: "lab".into(), limit_disk: reads(12 << 20), ..Default::default() };
        status.groups = vec![group];
        assert!(of(&status, &tenant).contains("to the limit of its group, reads 12MiB/s"));
    }

    #[test]
    fn work_that_is_not_counted_is_not_zero() {
        let (status, mut tenant) = status(Some(1.0), 0.5);
        tenant.disks.clear();
        let of = |tenant: &TenantStatus| disk_step(&status, tenant).unwrap().reason;
        assert!(of(&tenant).starts_with(NO_REQUESTS));
        tenant.disk_read_bytes = None;
        assert!(of(&tenant).starts_with(NOT_COUNTED));
        assert_eq!(disk_step(&Status::default(), &tenant), None);
    }
}
