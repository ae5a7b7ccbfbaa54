//! Indices of the units of counted resources.
//!
//! # Problem
//! A job that asks for two GPUs has to know which two, and no other job may get one of them. A number alone
//! leaves the choice to the programs, which all begin with the first device.
//!
//! # Terms
//! The units of a resource are numbered from 0. An index is *held* from the start of a request until nothing of
//! it is left, or *free*.
//!
//! # Rules
//! 1. A start takes the lowest free indices.
//! 2. An index stays with its holder while others come and go. Held indices beyond a reduced number of units stay
//!    held until their holder ends, and are not assigned again.
//! 3. A set holds the indices of all its running tasks together: only the starter of the tasks knows which task
//!    has which. It reports the indices in use, and keeps these when tasks end ([`Indices::keep`]).
//!
//! # Properties
//! No index is held twice, none beyond the number of units is assigned, and a free one is found if there is one
//! (`indices_are_held_once`). [`crate::simulation`] and the admission of jobs use this code.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Held indices, by the name of the resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Indices(BTreeMap<String, BTreeSet<u32>>);

impl Indices {
    /// Indices of one resource, ascending.
    pub fn of(&self, name: &str) -> impl Iterator<Item = u32> {
        self.0.get(name).into_iter().flatten().copied()
    }

    /// Resources with their indices.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &BTreeSet<u32>)> {
        self.0.iter().map(|(name, indices)| (name.as_str(), indices))
    }

    /// True if no index is held.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds indices of a resource.
    pub fn extend(&mut self, name: &str, indices: impl IntoIterator<Item = u32>) {
        let indices: BTreeSet<u32> = indices.into_iter().collect();
        if !indices.is_empty() {
            self.0.entry(name.to_string()).or_default().extend(indices);
        }
    }

    /// Adds the lowest free indices below `units`: `wanted` ones, or fewer if there are no more.
    pub fn take(&mut self, name: &str, wanted: u32, units: u32, held: &BTreeSet<u32>) {
        let free = (0..units).filter(|index| !held.contains(index));
        self.extend(name, free.take(wanted as usize));
    }

    /// Keeps at most `count` indices of a resource: those in use before the others, lower ones before higher ones.
    pub fn keep(&mut self, name: &str, count: u32, in_use: &Indices) {
        let used: BTreeSet<u32> = in_use.of(name).collect();
        let Some(held) = self.0.get_mut(name) else { return };
        let (mut kept, others): (Vec<u32>, Vec<u32>) =
            held.iter().partition(|index| used.contains(index));
        kept.extend(others);
        kept.truncate(count as usize);
        *held = kept.into_iter().collect();
        if held.is_empty() {
            self.0.remove(name);
        }
    }
}

/// Number of free indices below `units`.
pub fn free(units: u32, held: &BTreeSet<u32>) -> u32 {
    units.saturating_sub(held.range(..units).count() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_set_keeps_the_indices_in_use() {
        let mut held = Indices::default();
        held.take("gpu", 4, 8, &[1].into());
        assert_eq!(held.of("gpu").collect::<Vec<_>>(), [0, 2, 3, 4]);
        let mut in_use = Indices::default();
        in_use.extend("gpu", [3, 4, 7]);
        held.keep("gpu", 3, &in_use);
        assert_eq!(
            held.of("gpu").collect::<Vec<_>>(),
            [0, 3, 4],
            "one that it does not hold is not kept"
        );
        held.keep("gpu", 1, &in_use);
        assert_eq!(held.of("gpu").collect::<Vec<_>>(), [3]);
        held.keep("gpu", 0, &in_use);
        assert!(held.is_empty());
    }

    proptest! {
        #[test]
        fn indices_are_held_once(
            units in 1..9_u32,
            steps in prop::collection::vec((0..6_usize, 1..4_u32, any::<bool>()), 0..60),
        ) {
            let mut holders = vec![Indices::default(); 6];
            for (holder, wanted, ends) in steps {
                let held: BTreeSet<u32> = holders.iter().flat_map(|it| it.of("gpu")).collect();
                if ends {
                    holders[holder] = Indices::default();
                    continue;
                }
                let before = holders[holder].of("gpu").count() as u32;
                let found = free(units, &held).min(wanted);
                holders[holder].take("gpu", wanted, units, &held);
                prop_assert_eq!(holders[holder].of("gpu").count() as u32, before + found);
                let all: Vec<u32> = holders.iter().flat_map(|it| it.of("gpu")).collect();
                let once: BTreeSet<u32> = all.iter().copied().collect();
                prop_assert_eq!(once.len(), all.len(), "{:?}", holders);
                prop_assert!(once.iter().all(|index| *index < units));
            }
        }
    }
}
