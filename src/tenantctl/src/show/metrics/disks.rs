//! Metrics of disks.

use super::metric::{Metric, Source, count, counter, metric, tenant};
use tenantd_control::report::disk::DiskStatus;
use tenantd_control::report::status::Status;

/// Disks of the machine, with the kernel's name as the label.
pub(super) fn of_host() -> Vec<Metric> {
    vec![
        metric(
            "host_disk_usage",
            "ratio",
            "Part of the time of the disk in use; only once its speed is learned.",
            Source::Each("disk", |s| each(s, |disk| disk.time_ratio)),
        ),
        metric(
            "host_disk_busy",
            "ratio",
            "Part of the last interval in which the disk had a request.",
            Source::Each("disk", |s| each(s, |disk| Some(disk.busy_ratio))),
        ),
        metric(
            "host_disk_outside",
            "ratio",
            "Part of the work of the disk that belongs to no tenant.",
            Source::Each("disk", |s| each(s, |disk| disk.outside_ratio)),
        ),
    ]
}

fn each(status: &Status, of: fn(&DiskStatus) -> Option<f64>) -> Vec<(String, f64)> {
    let disks = status.host.disks.iter();
    disks.filter_map(|disk| Some((disk.name.clone(), of(disk)?))).collect()
}

/// Work of each tenant; of several disks, the ratios are those of the one that it uses most.
pub(super) fn of_tenants() -> Vec<Metric> {
    vec![
        tenant(
            "tenant_disk_usage",
            "ratio",
            "Part of the time of the disk that it uses most; only once its speed is learned.",
            |t| t.disks.first()?.time_ratio,
        ),
        tenant(
            "tenant_disk_work",
            "ratio",
            "Part of the work of all programs on the disk that it uses most.",
            |t| Some(t.disks.first()?.work_ratio),
        ),
        tenant(
            "tenant_disk_pressure",
            "ratio",
            "Part of the last interval in which some task waited for a disk.",
            |t| t.disk_pressure_ratio,
        ),
        counter(tenant(
            "tenant_disk_pressure",
            "seconds",
            "Time in which some task waited for a disk, summed over re-created cgroups.",
            |t| t.disk_pressure_seconds,
        )),
        counter(tenant("tenant_disk_read", "bytes", "Bytes read from disks.", |t| {
            t.disk_read_bytes.and_then(count)
        })),
        counter(tenant(
            "tenant_disk_written",
            "bytes",
            "Bytes written to disks that the kernel charges to the tenant.",
            |t| t.disk_written_bytes.and_then(count),
        )),
        counter(tenant("tenant_disk_operations", "", "Operations on disks.", |t| {
            t.nr_disk_operations.and_then(count)
        })),
    ]
}
