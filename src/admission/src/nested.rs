//! Due guarantees of tenants and groups, as a forest: a tenant's claim is inside its group's.
//!
//! A job outside all claims leaves slots to each of the outermost ones. A member of a group with a due
//! guarantee is part of that claim and leaves nothing to claims outside; but it leaves slots to tenants
//! inside with claims of their own. So each tenant is on one *level*, the innermost claim around it, and
//! leaves slots to the claims directly below that level.

use std::collections::BTreeMap;

use super::types::Owed;
use tenantd_queue::TenantId;

/// Claims by their paths, each group before its members.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Forest {
    paths: Vec<String>,
    above: Vec<Option<usize>>,
}

/// True if the node `path` is `group`, or inside it.
pub fn is_in_group(path: &str, group: &str) -> bool {
    path.strip_prefix(group).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Forest {
    pub(super) fn new<'a>(paths: impl Iterator<Item = &'a str>) -> Forest {
        let mut paths: Vec<String> = paths.map(str::to_string).collect();
        // A path precedes those that it begins.
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

    pub(super) fn level(&self, tenant: &str) -> Option<usize> {
        // Of several claims around a tenant, the longer path comes later.
        self.paths.iter().rposition(|path| is_in_group(tenant, path))
    }

    /// Claims directly below a level, to which its tenants leave slots.
    pub(super) fn below(&self, level: Option<usize>) -> impl Iterator<Item = usize> {
        let above = self.above.iter().enumerate();
        above.filter(move |(_, above)| **above == level).map(|(claim, _)| claim)
    }

    /// True if tenants on this level leave slots to any claim.
    pub(super) fn is_above_any(&self, level: Option<usize>) -> bool {
        self.above.contains(&level)
    }

    /// Due amount of each claim: for a group at least the sum inside it.
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

    /// Subtracts an amount released on this level from the lacks of the claims below it, together and each
    /// inside.
    pub(super) fn pay(&self, level: Option<usize>, amount: f64, lacking: &mut [f64]) {
        // A claim is paid once, and payments to others do not change its sum.
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

#[derive(Clone, Debug, Default)]
pub(super) struct Withheld {
    pub(super) forest: Forest,
    slots: Vec<f64>,
    owed: Vec<Owed>,
    levels: BTreeMap<TenantId, usize>,
}

impl Withheld {
    pub(super) fn new(
        claims: &BTreeMap<String, (u32, Owed)>,
        tenants: &BTreeMap<String, u32>,
    ) -> Withheld {
        let forest = Forest::new(claims.keys().map(String::as_str));
        let slots = forest.paths().iter().map(|path| f64::from(claims[path].0)).collect();
        let owed = forest.paths().iter().map(|path| claims[path].1).collect();
        let level =
            |(path, number): (&String, &u32)| Some((TenantId(*number), forest.level(path)?));
        let levels = tenants.iter().filter_map(level).collect();
        Withheld { forest, slots, owed, levels }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// True if both withhold the same; the set of tenants does not count.
    pub(super) fn is_as(&self, other: &Withheld) -> bool {
        (&self.forest, &self.slots) == (&other.forest, &other.slots)
    }

    pub(super) fn level(&self, tenant: TenantId) -> Option<usize> {
        self.levels.get(&tenant).copied()
    }

    /// The claim with the largest lack among those to which jobs of this tenant leave slots.
    pub(super) fn most_lacking(&self, tenant: TenantId) -> Option<(&str, Owed)> {
        let claims = self.forest.below(self.level(tenant));
        let lacking = |claim: &usize| self.owed[*claim].lacking_cores;
        let claim = claims.max_by(|a, b| lacking(a).total_cmp(&lacking(b)))?;
        Some((self.forest.paths()[claim].as_str(), self.owed[claim]))
    }

    pub(super) fn due(&self) -> Vec<u64> {
        let due = self.forest.summed(&self.slots);
        due.into_iter().map(|slots| slots as u64).collect()
    }

    /// Slots that a job of this tenant leaves free, less those that the claims' own jobs already hold.
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
