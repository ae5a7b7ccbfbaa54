//! Weight input of siblings: nodes of one group, or cgroups in one parent.
//!
//! A sibling that wants more is weighed by its allocation, a satisfied one by its need when it wakes.
//! [`super::target`] and [`super::govern`] explain why.

use super::weight::Entitlement;

/// Least part of its own weight that an ancestor keeps while tenants below it lend theirs.
const KEPT_RATIO: f64 = 0.1;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Share {
    pub(crate) allocation_cores: f64,
    /// CPUs that it gets when all are hungry.
    pub(crate) burst_cores: f64,
    pub(crate) floor_cores: f64,
    /// CPUs that siblings lend to its jobs ([`super::turns`]); of an ancestor less those that are lent below it.
    pub(crate) lent_cores: f64,
    pub(crate) satisfied: bool,
}

impl Share {
    /// CPUs that it needs now, and when it wakes.
    pub(crate) fn needed_cores(&self) -> f64 {
        self.weighed_cores(1.0)
    }

    /// The same with this weight for one unit of allocation.
    fn weighed_cores(&self, ratio: f64) -> f64 {
        let by_allocation = self.allocation_cores * ratio;
        let by_demand =
            if self.satisfied { by_allocation.max(self.burst_cores) } else { by_allocation };
        let own = by_demand.max(self.floor_cores);
        (own + self.lent_cores).max(own * KEPT_RATIO)
    }

    pub(crate) fn standing_cores(&self) -> f64 {
        self.burst_cores.max(self.floor_cores)
    }
}

/// Weight input of each sibling, as parts of `whole` CPUs.
pub(crate) fn entitlements(shares: &[Share], whole: f64) -> Vec<Entitlement> {
    let whole = whole.max(f64::MIN_POSITIVE);
    let ratio = Siblings::of(shares).own_ratio();
    let entitlement = |share: &Share| Entitlement {
        standing: share.standing_cores() / whole,
        now: share.weighed_cores(ratio) / whole,
    };
    shares.iter().map(entitlement).collect()
}

#[derive(Clone, Debug, Default)]
struct Siblings {
    /// Allocation and burst of siblings with unmet demand.
    unmet: Vec<[f64; 2]>,
    /// Allocation and burst of satisfied siblings with more than their burst.
    borrowers: Vec<[f64; 2]>,
}

impl Siblings {
    fn of(shares: &[Share]) -> Siblings {
        let mut siblings = Siblings::default();
        for share in shares {
            let pair = [share.allocation_cores, share.burst_cores];
            if !share.satisfied {
                siblings.unmet.push(pair)
            } else if pair[0] > pair[1] {
                siblings.borrowers.push(pair)
            }
        }
        siblings
    }

    /// Weight of one unit of allocation, where one unit of burst has weight 1: the ratio at which the
    /// siblings weighed by allocation weigh no more together than by burst.
    ///
    /// While some demand is unmet, a borrower needs weight for its excess over its burst, unless its scaled
    /// amount is within its burst. Excluding such a borrower lowers the ratio. So borrowers are excluded in
    /// the order of their relative excess, smallest first, until the ratio excludes no more.
    fn own_ratio(&mut self) -> f64 {
        if self.unmet.is_empty() {
            return 0.0;
        }
        let mut sum = [0.0, 0.0];
        for [allocation, burst] in self.unmet.iter().chain(&self.borrowers) {
            sum = [sum[0] + allocation, sum[1] + burst];
        }
        let ratio = |[allocation, burst]: [f64; 2]| burst / allocation.max(f64::MIN_POSITIVE);
        self.borrowers.sort_unstable_by(|a, b| ratio(*a).total_cmp(&ratio(*b)));
        while let Some(&[allocation, burst]) = self.borrowers.last()
            && ratio([allocation, burst]) >= ratio(sum)
        {
            self.borrowers.pop();
            sum = [sum[0] - allocation, sum[1] - burst];
        }
        ratio(sum).min(1.0)
    }
}
