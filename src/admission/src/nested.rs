//! Guarantees that are due, of tenants and of groups, as a forest: a claim of a tenant lies in that of its group.
//!
//! A job outside of all claims leaves something to each of the outermost ones. A member of a group to which something is
//! due is part of it, so it leaves nothing to claims outside; but it leaves what is due to the tenants inside that have a
//! claim of their own. So each tenant is on one *level*, the innermost claim that it is in, and it leaves something to the
//! claims right below that.

use std::collections::BTreeMap;

use tenantd_queue::TenantId;

/// Claims by their paths, each group before what is in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Forest {
    paths: Vec<String>,
    above: Vec<Option<usize>>,
}

/// Whether the node `path` is `group`, or in it.
pub fn is_in_group(path: &str, group: &str) -> bool {
    path.strip_prefix(group).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Forest {
    /// The claims with these paths, in this order.
    pub(super) fn new<'a>(paths: impl Iterator<Item = &'a str>) -> Forest {
        let mut paths: Vec<String> = paths.map(str::to_string).collect();
        // A path is before those that it begins.
        paths.sort_unstable();
        paths.dedup();
        let mut forest = Forest::default();
        for path in paths {
            let above = forest.level(&path);
            forest.paths.push(path);
            forest.above.push(above);
        }
        forest
    }

    pub(super) fn paths(&self) -> &[String] {
        &self.paths
    }

    /// The innermost claim that a tenant is in.
    pub(super) fn level(&self, tenant: &str) -> Option<usize> {
        // Of those that hold the same tenant, the longer path comes later.
        self.paths.iter().rposition(|path| is_in_group(tenant, path))
    }

    /// The claims right below a level: those to which tenants on it leave something.
    pub(super) fn below(&self, level: Option<usize>) -> impl Iterator<Item = usize> {
        let above = self.above.iter().enumerate();
        above.filter(move |(_, above)| **above == level).map(|(claim, _)| claim)
    }

    /// Whether tenants on this level leave something to any claim.
    pub(super) fn is_above_any(&self, level: Option<usize>) -> bool {
        self.above.contains(&level)
    }

    /// What is due to each claim: to a group at least what is due in it together.
    pub(super) fn summed(&self, own: &[f64]) -> Vec<f64> {
        let (mut due, mut inside) = (own.to_vec(), vec![0.0; own.len()]);
        for claim in (0..self.paths.len()).rev() {
            due[claim] = due[claim].max(inside[claim]);
            if let Some(above) = self.above[claim] {
                inside[above] += due[claim];
            }
        }
        due
    }

    /// A tenant on this level gives so much: what the claims below it lack, each and all in it, is less by that.
    pub(super) fn pay(&self, level: Option<usize>, amount: f64, lacking: &mut [f64]) {
        // A claim is paid once, and its sum is not changed by what others are paid.
        let due = self.summed(lacking);
        self.pay_below(level, amount, &due, lacking);
    }

    fn pay_below(&self, level: Option<usize>, amount: f64, due: &[f64], lacking: &mut [f64]) {
        let mut left = amount;
        for claim in self.below(level) {
            let paid = due[claim].min(left);
            left -= paid;
            lacking[claim] = (lacking[claim] - paid).max(0.0);
            self.pay_below(Some(claim), paid, due, lacking);
        }
    }
}

/// Slots that jobs of others leave to claims.
#[derive(Clone, Debug, Default)]
pub(super) struct Withheld {
    pub(super) forest: Forest,
    slots: Vec<f64>,
    /// The level of every tenant that is in a claim.
    levels: BTreeMap<TenantId, usize>,
}

impl Withheld {
    /// So many slots for each tenant or group; `tenants` are all that have a number.
    pub(super) fn new(slots: &BTreeMap<String, u32>, tenants: &BTreeMap<String, u32>) -> Withheld {
        let forest = Forest::new(slots.keys().map(String::as_str));
        let slots = forest.paths().iter().map(|path| f64::from(slots[path])).collect();
        let level =
            |(path, number): (&String, &u32)| Some((TenantId(*number), forest.level(path)?));
        let levels = tenants.iter().filter_map(level).collect();
        Withheld { forest, slots, levels }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Whether it withholds the same; which tenants there are does not count.
    pub(super) fn is_as(&self, other: &Withheld) -> bool {
        (&self.forest, &self.slots) == (&other.forest, &other.slots)
    }

    /// The innermost claim that a tenant is in.
    pub(super) fn level(&self, tenant: TenantId) -> Option<usize> {
        self.levels.get(&tenant).copied()
    }

    /// What is left to each claim in all.
    pub(super) fn due(&self) -> Vec<u64> {
        let due = self.forest.summed(&self.slots);
        due.into_iter().map(|slots| slots as u64).collect()
    }

    /// What a job of this tenant leaves free, where these slots are held by the jobs of tenants already.
    pub(super) fn left_by(
        &self,
        tenant: TenantId,
        held: impl Iterator<Item = (TenantId, u64)>,
    ) -> u64 {
        let level = self.level(tenant);
        if !self.forest.is_above_any(level) {
            return 0;
        }
        let mut own = self.slots.clone();
        for (holder, slots) in held {
            let mut claim = self.level(holder);
            while let Some(at) = claim {
                own[at] = (own[at] - slots as f64).max(0.0);
                claim = self.forest.above[at];
            }
        }
        let left = self.forest.summed(&own);
        self.forest.below(level).map(|claim| left[claim]).sum::<f64>() as u64
    }
}
