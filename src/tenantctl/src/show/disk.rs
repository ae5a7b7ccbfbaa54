//! Disks as text.

use std::cmp::Reverse;

use crate::common::rows::{Choice, is_chosen};
use tenantd_control::report::disk::{DiskStatus, DiskStep, DiskUseStatus};
use tenantd_control::report::status::{Line, Status};
use tenantd_lab::text::{percent, visible};

/// Most tenants that are named with a disk.
const TENANTS_MAX: usize = 3;
/// Least part of the work of a disk that is named.
const NAMED_RATIO: f64 = 0.005;

/// One line for each disk in use, with its largest users among the chosen tenants.
pub(crate) fn lines(status: &Status, choice: &Choice) -> Vec<String> {
    let is_used = |disk: &&DiskStatus| disk.rates != Default::default();
    status.host.disks.iter().filter(is_used).map(|disk| line(status, disk, choice)).collect()
}

fn line(status: &Status, disk: &DiskStatus, choice: &Choice) -> String {
    let tenants = status.tenants.iter().filter(|tenant| is_chosen(&tenant.name, choice));
    let uses = tenants.filter_map(|tenant| {
        let of = tenant.disks.iter().find(|of| of.disk == disk.name)?;
        let is_limited = tenant.limit_disk.is_some_and(|limit| limit.reached(&of.rates).is_some());
        (of.work_ratio >= NAMED_RATIO).then_some(((&tenant.name, is_limited), of))
    });
    let mut uses: Vec<(_, &DiskUseStatus)> = uses.collect();
    uses.sort_by_key(|(_, of)| Reverse((of.work_ratio * 1e6) as u64));
    let more = uses.len().saturating_sub(TENANTS_MAX);
    let first = uses.iter().take(TENANTS_MAX);
    let mut parts: Vec<String> = first
        .map(|((name, is_limited), of)| {
            let limited = if *is_limited { " (at its limit)" } else { "" };
            format!("{} {}{limited}", visible(name), percent(Some(of.work_ratio)))
        })
        .collect();
    match more {
        0 => {}
        1 => parts.push("1 more tenant".to_string()),
        more => parts.push(format!("{more} more tenants")),
    }
    if choice.name.is_none() {
        parts.extend(match disk.outside_ratio {
            Some(ratio) if ratio < NAMED_RATIO => None,
            Some(ratio) => Some(format!("other processes {}", percent(Some(ratio)))),
            None => Some("not counted by tenant".to_string()),
        });
    }
    let state = match disk.time_ratio {
        Some(time) => format!("{} of its time in use", percent(Some(time))),
        None => format!("requests {} of the time", percent(Some(disk.busy_ratio))),
    };
    let of =
        if parts.is_empty() { String::new() } else { format!("; its work: {}", parts.join(", ")) };
    let by = disk.divided_by.as_ref().map(|way| format!(", divided by {}", visible(way)));
    format!("{}: {state}{}{of}", visible(&disk.name), by.unwrap_or_default())
}

/// Part of the time of the disk that the tenant uses most, or of its work until the disk's speed is learned; empty for a
/// group.
pub(crate) fn used(line: Line<'_>) -> String {
    let Some(tenant) = line.tenant() else { return String::new() };
    percent(tenant.disks.first().map(DiskUseStatus::ratio))
}

/// Work of a tenant on disks, for an explanation.
pub(crate) fn explained(step: &DiskStep) -> String {
    let more = step
        .uses
        .iter()
        .skip(1)
        .map(|of| format!("{} {}", percent(Some(of.ratio())), visible(&of.disk)));
    let more: Vec<String> = more.collect();
    let more = if more.is_empty() { String::new() } else { format!("; also {}", more.join(", ")) };
    let share = step.share.as_ref().map(|share| format!("; {}", visible(&share.shown())));
    format!("{}{more}{}", step.reason, share.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenantd_control::report::disk::{DiskLimitStatus, DiskRates};
    use tenantd_control::report::status::TenantStatus;

    fn status(time_ratio: Option<f64>) -> Status {
        let rates = DiskRates { reads_per_second: 10.0, ..DiskRates::default() };
        let disk = DiskStatus {
            name: "sda".into(),
            rates,
            busy_ratio: 0.5,
            time_ratio,
            outside_ratio: Some(0.25),
            ..DiskStatus::default()
        };
        let idle = DiskStatus { name: "sdb".into(), ..DiskStatus::default() };
        let tenant = |(name, work_ratio): (&str, f64)| {
            let time_ratio = time_ratio.map(|time| time * work_ratio);
            let of = DiskUseStatus { disk: "sda".into(), rates, time_ratio, work_ratio };
            TenantStatus { name: name.into(), disks: vec![of], ..TenantStatus::default() }
        };
        let tenants = [("web", 0.125), ("db", 0.5), ("a", 0.0625), ("b", 0.03125), ("idle", 0.0)];
        let mut status = Status { tenants: tenants.map(tenant).into(), ..Status::default() };
        status.host.disks = vec![disk, idle];
        status
    }

    #[test]
    fn a_disk_in_use_has_a_line() {
        let all = Choice::default();
        assert_eq!(
            lines(&status(Some(0.5)), &all),
            [
                "sda: 50.0% of its time in use; its work: db 50.0%, web 12.5%, a 6.2%, 1 more tenant, other processes 25.0%"
            ]
        );
        let mut limited = status(Some(0.5));
        limited.tenants[1].limit_disk =
            Some(DiskLimitStatus { reads_per_second: Some(11), ..Default::default() });
        assert!(lines(&limited, &all)[0].contains("db 50.0% (at its limit), web 12.5%,"));
        let one = Choice { name: Some("web".into()), ..Choice::default() };
        assert_eq!(
            lines(&status(None), &one),
            ["sda: requests 50.0% of the time; its work: web 12.5%"]
        );
    }
}
