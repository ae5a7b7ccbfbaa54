//! How wide each running job is.

use std::collections::BTreeMap;

use super::state::Admission;
use super::types::JobId;
use crate::fair::integer::{self, Claim};
use crate::queue::TenantId;

impl Admission {
    /// Jobs of others leave so many slots to each of these tenants from now on, as far as their floors let them; instead
    /// of what was withheld before. Returns whether that is different.
    pub fn withhold(&mut self, slots: &BTreeMap<String, u32>) -> bool {
        let number = |(path, slots): (&String, &u32)| {
            Some((TenantId(*self.numbers.get(path)?), u64::from(*slots)))
        };
        let withheld = slots.iter().filter_map(number).collect();
        let before = std::mem::replace(&mut self.withheld, withheld);
        before != self.withheld
    }

    /// The others no wider than what is left to them, down to their floors; what they give up goes to the jobs of those to
    /// whom it is due, where these have any.
    fn narrowed(&self, claims: &[Claim], widths: &[u64], is_due: &[bool]) -> Vec<u64> {
        let slots = u64::from(self.slots());
        let others = slots.saturating_sub(self.withheld.values().sum());
        let of_others = claims.iter().zip(widths).zip(is_due);
        let of_others = of_others.filter(|(_, is_due)| !**is_due);
        let capped: Vec<Claim> =
            of_others.map(|((claim, width), _)| Claim { ceiling: *width, ..*claim }).collect();
        let mut narrow = integer::apportion(others, &capped).into_iter();
        let fixed = claims.iter().zip(is_due).zip(widths);
        let fixed = fixed.map(|((claim, is_due), width)| match is_due {
            true => Claim { floor: *width, ..*claim },
            false => {
                let least = claim.floor.min(*width);
                let width = narrow.next().unwrap_or(least).max(least);
                Claim { floor: width, ceiling: width, ..*claim }
            }
        });
        let fixed: Vec<Claim> = fixed.collect();
        integer::apportion(slots, &fixed)
    }

    /// The slots divided among the running jobs by integer max-min: none below its floor or above its ceiling, the
    /// weight of a tenant in equal parts to its jobs.
    pub(super) fn widths(&self) -> Vec<(JobId, u32)> {
        let running: Vec<JobId> = self.runs().map(|(id, _)| id).collect();
        let mut nr_of: BTreeMap<TenantId, f64> = BTreeMap::new();
        for id in &running {
            *nr_of.entry(self.jobs[id].need.tenant).or_default() += 1.0;
        }
        let claim = |id: &JobId| {
            let need = &self.jobs[id].need;
            let weight = self.terms(need.tenant).map_or(1.0, |terms| terms.weight);
            Claim { weight: weight / nr_of[&need.tenant], floor: need.floor, ceiling: need.ceiling }
        };
        let claims: Vec<Claim> = running.iter().map(claim).collect();
        let mut widths = integer::apportion(u64::from(self.slots()), &claims);
        if !self.withheld.is_empty() {
            let is_due = |id: &JobId| self.withheld.contains_key(&self.jobs[id].need.tenant);
            let is_due: Vec<bool> = running.iter().map(is_due).collect();
            widths = self.narrowed(&claims, &widths, &is_due);
        }
        // More jobs than slots, where the machine has shrunk: each keeps one.
        let width = |dop: u64| u32::try_from(dop).unwrap_or(u32::MAX).max(1);
        running.into_iter().zip(widths).map(|(id, dop)| (id, width(dop))).collect()
    }
}
