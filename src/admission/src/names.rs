//! Numbers of tenants in the queue, and of the classes of each tenant; both bounded.
//!
//! **Problem.** The queue counts tenants and classes by number, and keeps tags and estimates for each. Names of
//! found tenants (containers, CI jobs) seldom return, and names of classes are free text. **Rules.** A tenant
//! that is not in the policy and has no job is *gone*. The last [`GONE_MAX`] gone tenants keep their numbers,
//! so that one that returns soon finds its tags; numbers of earlier ones are reset and reused. Each tenant has
//! the [`CLASSES_MAX`] last used classes. A class is numbered when a job of it is admitted, with a new number,
//! so that it inherits no estimate. **Bounds.** Numbers: the most tenants present at once, plus [`GONE_MAX`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

/// Most gone tenants that keep their numbers.
const GONE_MAX: usize = 256;
const CLASSES_MAX: usize = 64;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct TenantNumbers {
    numbers: BTreeMap<String, u32>,
    #[serde(skip)]
    gone: VecDeque<String>,
    #[serde(default)]
    free: BTreeSet<u32>,
}

impl TenantNumbers {
    pub(super) fn get(&self, tenant: &str) -> Option<u32> {
        self.numbers.get(tenant).copied()
    }

    pub(super) fn all(&self) -> &BTreeMap<String, u32> {
        &self.numbers
    }

    /// Number of a tenant, new if it has none.
    pub(super) fn number(&mut self, tenant: &str) -> u32 {
        if let Some(number) = self.get(tenant) {
            return number;
        }
        let next = (self.numbers.len() + self.free.len()) as u32;
        let number = self.free.pop_first().unwrap_or(next);
        self.numbers.insert(tenant.to_string(), number);
        number
    }

    /// Frees and returns the numbers of the longest gone tenants. `is_there` tests whether a number's tenant is
    /// in the policy, `has_job` whether it has a job.
    pub(super) fn sweep(
        &mut self,
        is_there: impl Fn(u32) -> bool,
        has_job: impl Fn(u32) -> bool,
    ) -> Vec<u32> {
        let mut gone = std::mem::take(&mut self.gone);
        gone.retain(|name| self.get(name).is_some_and(|number| !is_there(number)));
        let known: BTreeSet<&String> = gone.iter().collect();
        let went = |(name, number): &(&String, &u32)| !is_there(**number) && !known.contains(name);
        let went: Vec<String> =
            self.numbers.iter().filter(went).map(|(name, _)| name.clone()).collect();
        gone.extend(went);
        let mut freed = Vec::new();
        let mut excess = gone.len().saturating_sub(GONE_MAX);
        gone.retain(|name| {
            let Some(number) = self.numbers.get(name).copied() else { return false };
            if excess == 0 || has_job(number) {
                return true;
            }
            excess -= 1;
            self.numbers.remove(name);
            freed.push(number);
            false
        });
        self.free.extend(&freed);
        self.gone = gone;
        freed
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct ClassNumbers {
    /// The last used class comes last.
    #[serde(default)]
    classes_of_tenants: BTreeMap<u32, VecDeque<(String, u32)>>,
    #[serde(default)]
    nr_classes: u32,
}

impl ClassNumbers {
    /// Number of a class of `tenant`, or its next number; 0 without a class.
    pub(super) fn get(&self, tenant: u32, class: Option<&str>) -> u32 {
        let Some(class) = class else { return 0 };
        let known = self.classes_of_tenants.get(&tenant).into_iter().flatten();
        let mut known = known.filter(|(name, _)| name == class);
        known.next().map_or(self.nr_classes.wrapping_add(1).max(1), |(_, number)| *number)
    }

    pub(super) fn note(&mut self, tenant: u32, class: Option<&str>) {
        let number = self.get(tenant, class);
        let Some(class) = class else { return };
        let known = self.classes_of_tenants.entry(tenant).or_default();
        match known.iter().position(|(name, _)| name == class) {
            Some(at) => drop(known.remove(at)),
            None => self.nr_classes = number,
        }
        known.push_back((class.to_string(), number));
        if known.len() > CLASSES_MAX {
            known.pop_front();
        }
    }

    pub(super) fn forget(&mut self, tenant: u32) {
        self.classes_of_tenants.remove(&tenant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_never_return_need_no_more_numbers() {
        let mut numbers = TenantNumbers::default();
        let kept = numbers.number("kept");
        let with_job = numbers.number("with-job");
        let mut highest = 0;
        for index in 0..10_000 {
            let number = numbers.number(&format!("c{index}"));
            highest = highest.max(number);
            numbers.sweep(|it| it == kept || it == number, |it| it == with_job);
        }
        assert!(highest as usize <= GONE_MAX + 4, "{highest}");
        assert!(numbers.numbers.len() + numbers.free.len() <= GONE_MAX + 4);
        assert_eq!((numbers.get("kept"), numbers.get("with-job")), (Some(kept), Some(with_job)));
        assert!(numbers.get("c9999").is_some() && numbers.get("c9900").is_some());
        assert_eq!(numbers.get("c0"), None);
        let all: BTreeSet<u32> = numbers.numbers.values().copied().collect();
        assert_eq!(all.len(), numbers.numbers.len(), "no number twice");
    }

    #[test]
    fn classes_are_of_one_tenant_and_the_oldest_goes() {
        let mut classes = ClassNumbers::default();
        classes.note(1, Some("build"));
        for index in 0..1000 {
            classes.note(2, Some(&format!("c{index}")));
            classes.note(1, Some("build"));
        }
        assert_eq!(classes.get(1, Some("build")), 1);
        assert_eq!(classes.classes_of_tenants[&2].len(), CLASSES_MAX);
        let newest = classes.get(2, Some("c999"));
        let fresh = classes.get(2, Some("fresh"));
        assert!(fresh > newest, "one that is not noted takes no number");
        assert_eq!((classes.get(1, Some("fresh")), classes.get(2, None)), (fresh, 0));
        assert_eq!(classes.get(2, Some("c0")), fresh, "it is not known any more");
    }
}
