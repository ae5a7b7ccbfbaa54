//! Widths of the running jobs.

use std::collections::BTreeMap;

use super::job::Job;
use super::nested::Withheld;
use super::state::Admission;
use super::types::{JobId, Owed};
use tenantd_fair::integer::{self, Claim};
use tenantd_queue::TenantId;

impl Admission {
    /// Makes the jobs of others leave these slots to each tenant or group, down to the jobs' floors, for what is
    /// owed to it. Replaces the earlier values; returns true if the slots changed.
    pub fn withhold(&mut self, claims: &BTreeMap<String, (u32, Owed)>) -> bool {
        let withheld = Withheld::new(claims, self.numbers.all());
        let before = std::mem::replace(&mut self.withheld, withheld);
        !before.is_as(&self.withheld)
    }

    /// Narrows the others to their remaining slots, down to their floors; their rest goes to the jobs of
    /// the claims, if any. `levels` are the claims around the jobs.
    fn narrowed(&self, claims: &[Claim], widths: &[u64], levels: &[Option<usize>]) -> Vec<u64> {
        let (slots, due) = (u64::from(self.slots()), self.withheld.due());
        let forest = &self.withheld.forest;
        // Without a claim to leave slots to, a job gets no narrower.
        let fix = |(claim, width): (&Claim, &u64)| Claim { floor: *width, ..*claim };
        let mut fixed: Vec<Claim> = claims.iter().zip(widths).map(fix).collect();
        let mut left = vec![slots; due.len()];
        for level in std::iter::once(None).chain((0..due.len()).map(Some)) {
            if !forest.is_above_any(level) {
                continue;
            }
            let all = level.map_or(slots, |claim| left[claim]);
            let sum: u64 = forest.below(level).map(|claim| due[claim]).sum();
            let on_level = || (0..claims.len()).filter(|job| levels[*job] == level);
            // Jobs outside all claims get no wider while something is due to others; jobs inside one share
            // in it.
            let capped = |job: usize| match level {
                None => Claim { ceiling: widths[job], ..claims[job] },
                Some(_) => claims[job],
            };
            let capped: Vec<Claim> = on_level().map(capped).collect();
            let narrow = integer::apportion(all.saturating_sub(sum), &capped);
            let mut taken = 0;
            for (job, width) in on_level().zip(narrow) {
                let (least, before) = (claims[job].floor.min(widths[job]), widths[job]);
                let width = width.max(least);
                fixed[job] = Claim { floor: width.min(before), ceiling: width, ..claims[job] };
                taken += width;
            }
            for claim in forest.below(level) {
                left[claim] = all.saturating_sub(taken + sum - due[claim]);
            }
        }
        integer::apportion(slots, &fixed)
    }

    /// Divides the slots among the running jobs by integer max-min: none below its floor or above its
    /// ceiling, the weight of a tenant in equal parts to its jobs.
    pub(super) fn widths(&self) -> Vec<(JobId, u32)> {
        let running: Vec<JobId> = self.runs().map(|(id, _)| id).collect();
        let mut nr_of: BTreeMap<TenantId, f64> = BTreeMap::new();
        for id in &running {
            *nr_of.entry(self.jobs[id].need.tenant).or_default() += 1.0;
        }
        let claim = |id: &JobId| {
            let Job { need, is_idle, .. } = &self.jobs[id];
            let weight = self.terms(need.tenant).map_or(1.0, |terms| terms.weight);
            let (floor, ceiling) = if *is_idle { (1, 1) } else { (need.floor, need.ceiling) };
            Claim { weight: weight / nr_of[&need.tenant], floor, ceiling }
        };
        let claims: Vec<Claim> = running.iter().map(claim).collect();
        let mut widths = integer::apportion(u64::from(self.slots()), &claims);
        if !self.withheld.is_empty() {
            let level = |id: &JobId| self.withheld.level(self.jobs[id].need.tenant);
            let levels: Vec<Option<usize>> = running.iter().map(level).collect();
            widths = self.narrowed(&claims, &widths, &levels);
        }
        // More jobs than slots after the machine has shrunk: each keeps one.
        let width = |dop: u64| u32::try_from(dop).unwrap_or(u32::MAX).max(1);
        running.into_iter().zip(widths).map(|(id, dop)| (id, width(dop))).collect()
    }
}
