//! Evictions of a simulation, their cost, and their effect on waiting.

use std::collections::BTreeMap;

use serde::Serialize;

use super::moments::Moments;
use crate::text::plain;
use tenantd_queue::TenantId;

/// Evictions of the requests of one tenant.
#[derive(Clone, Debug, Default)]
pub(super) struct Evictions {
    pub(super) count: u64,
    /// CPU time of the runs that were evicted, in seconds.
    pub(super) lost_cpu_seconds: f64,
    /// Times from arrival to the first start, in seconds; those of requests that wait at the end until then.
    pub(super) waits: Moments,
    /// The same if no request is evicted.
    pub(super) waits_without: Moments,
}

/// Requests that have not started, by tenant and number, with their arrivals.
#[derive(Debug, Default)]
pub(super) struct Unstarted(BTreeMap<(TenantId, u64), f64>);

impl Unstarted {
    pub(super) fn arrive(&mut self, tenant: TenantId, number: u64, time: f64) {
        self.0.insert((tenant, number), time);
    }

    /// The arrival of a request that starts for the first time, or leaves.
    pub(super) fn take(&mut self, tenant: TenantId, number: u64) -> Option<f64> {
        self.0.remove(&(tenant, number))
    }

    pub(super) fn rest(&self) -> impl Iterator<Item = (TenantId, f64)> {
        self.0.iter().map(|((tenant, _), arrived)| (*tenant, *arrived))
    }
}

/// The figures of a tenant in JSON, in seconds.
#[derive(Serialize)]
pub(super) struct EvictionsRow {
    count: u64,
    lost_cpu_seconds: f64,
    wait_mean: Option<f64>,
    wait_max: Option<f64>,
    wait_mean_without: Option<f64>,
    wait_max_without: Option<f64>,
}

impl EvictionsRow {
    pub(super) fn new(of: &Evictions) -> EvictionsRow {
        let (waits, without) = (of.waits.mean_and_max(), of.waits_without.mean_and_max());
        EvictionsRow {
            count: of.count,
            lost_cpu_seconds: plain(of.lost_cpu_seconds),
            wait_mean: waits.map(|it| plain(it.0)),
            wait_max: waits.map(|it| plain(it.1)),
            wait_mean_without: without.map(|it| plain(it.0)),
            wait_max_without: without.map(|it| plain(it.1)),
        }
    }
}
