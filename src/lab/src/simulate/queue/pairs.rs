//! Differences of the services of two tenants while both are backlogged.

use tenantd_queue::TenantId;

/// For each pair of tenants, the range of the difference of their services while both were backlogged.
#[derive(Debug)]
pub(super) struct Pairs {
    nr_tenants: usize,
    /// Lowest and highest difference of each pair since both are backlogged; `None` otherwise.
    ranges: Vec<Option<(f64, f64)>>,
    pub(super) largest: f64,
    pub(super) widest: Option<(TenantId, TenantId)>,
}

impl Pairs {
    pub(super) fn new(nr_tenants: usize) -> Pairs {
        let ranges = vec![None; nr_tenants * nr_tenants.saturating_sub(1) / 2];
        Pairs { nr_tenants, ranges, largest: 0.0, widest: None }
    }

    pub(super) fn add(
        &mut self,
        service: impl Fn(TenantId) -> f64,
        is_backlogged: impl Fn(TenantId) -> bool,
    ) {
        let tenants = || (0..self.nr_tenants as u32).map(TenantId);
        let services: Vec<Option<f64>> =
            tenants().map(|tenant| is_backlogged(tenant).then(|| service(tenant))).collect();
        let mut ranges = self.ranges.iter_mut();
        for (index, a) in services.iter().enumerate() {
            for (other, b) in services.iter().enumerate().skip(index + 1) {
                let Some(range) = ranges.next() else { return };
                let (Some(a), Some(b)) = (a, b) else {
                    *range = None;
                    continue;
                };
                let (low, high) = range.unwrap_or((a - b, a - b));
                let (low, high) = (low.min(a - b), high.max(a - b));
                *range = Some((low, high));
                if high - low > self.largest {
                    self.largest = high - low;
                    self.widest = Some((TenantId(index as u32), TenantId(other as u32)));
                }
            }
        }
    }
}
