//! Turns of users: pending work of many users, taken one piece at a time.
//!
//! **Problem.** A user may have 32 connections and expensive calls. In the order of arrival, such a user
//! would get nearly all of the time. **Terms.** A *lane* has the pending work of one user. Its *tag* is the
//! time spent on the user's work, counted from the tag of the served lane at its arrival. **Rule.** Root is
//! served first, then the lane with the smallest tag, and of equal ones the longest unserved one:
//! start-time fair queueing with equal weights. A user with 32 connections gets as much time as one with a
//! single connection. Time without work is not saved up.
//!
//! **Bounds.** Lanes: users with pending work, and at most [`LANES_MAX`] others since the queue was last
//! empty. The caller bounds the number of pieces.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

const LANES_MAX: usize = 256;
/// Least cost of a piece of work, so that turns alternate despite a coarse clock.
const COST_MIN: Duration = Duration::from_micros(1);

#[derive(Debug)]
pub(super) struct Turns<T> {
    lanes: BTreeMap<u32, Lane<T>>,
    nr_items: usize,
    served_tag: Duration,
    nr_served: u64,
}

#[derive(Debug)]
struct Lane<T> {
    items: VecDeque<T>,
    tag: Duration,
    served_at: u64,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Turns { lanes: BTreeMap::new(), nr_items: 0, served_tag: Duration::ZERO, nr_served: 0 }
    }
}

impl<T> Turns<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.nr_items == 0
    }

    pub(super) fn nr_of(&self, uid: u32) -> usize {
        self.lanes.get(&uid).map_or(0, |lane| lane.items.len())
    }

    pub(super) fn push(&mut self, uid: u32, item: T) {
        if self.nr_items == 0 {
            self.lanes.clear();
        } else if self.lanes.len() > LANES_MAX {
            self.lanes.retain(|_, lane| !lane.items.is_empty());
        }
        let new = Lane { items: VecDeque::new(), tag: self.served_tag, served_at: self.nr_served };
        let lane = self.lanes.entry(uid).or_insert(new);
        // Time without work is not saved up.
        if lane.items.is_empty() {
            lane.tag = lane.tag.max(self.served_tag);
        }
        lane.items.push_back(item);
        self.nr_items += 1;
    }

    pub(super) fn pop(&mut self) -> Option<(u32, T)> {
        let with_work = self.lanes.iter_mut().filter(|(_, lane)| !lane.items.is_empty());
        let (uid, lane) =
            with_work.min_by_key(|(uid, lane)| (**uid != 0, lane.tag, lane.served_at))?;
        let (uid, item) = (*uid, lane.items.pop_front()?);
        if uid != 0 {
            self.served_tag = lane.tag;
        }
        self.nr_served += 1;
        lane.served_at = self.nr_served;
        lane.tag += COST_MIN;
        self.nr_items -= 1;
        Some((uid, item))
    }

    pub(super) fn charge(&mut self, uid: u32, cost: Duration) {
        if let Some(lane) = self.lanes.get_mut(&uid) {
            lane.tag += cost;
        }
    }

    /// Removes the first piece of work of user `uid` for which `is_it` is true.
    pub(super) fn remove(&mut self, uid: u32, is_it: impl Fn(&T) -> bool) -> Option<T> {
        let lane = self.lanes.get_mut(&uid)?;
        let at = lane.items.iter().position(is_it)?;
        self.nr_items -= 1;
        lane.items.remove(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSEC: Duration = Duration::from_millis(1);

    fn order(turns: &mut Turns<u32>, cost: impl Fn(u32) -> Duration) -> Vec<u32> {
        let mut order = Vec::new();
        while let Some((uid, _)) = turns.pop() {
            turns.charge(uid, cost(uid));
            order.push(uid);
        }
        order
    }

    #[test]
    fn users_take_turns_however_much_work_each_has() {
        let mut turns = Turns::default();
        (0..6).for_each(|item| turns.push(7, item));
        [8, 9, 8].into_iter().for_each(|uid| turns.push(uid, 0));
        assert_eq!(order(&mut turns, |_| MSEC), [7, 8, 9, 7, 8, 7, 7, 7, 7]);
        assert!(turns.is_empty());
    }

    #[test]
    fn root_is_first_and_expensive_work_waits() {
        let mut turns = Turns::default();
        (0..3).for_each(|item| turns.push(7, item));
        (0..3).for_each(|item| turns.push(8, item));
        turns.push(0, 0);
        let cost = |uid| if uid == 7 { 100 * MSEC } else { MSEC };
        assert_eq!(order(&mut turns, cost), [0, 7, 8, 8, 8, 7, 7]);
    }

    #[test]
    fn a_user_that_comes_late_is_not_owed_the_time_before() {
        let mut turns = Turns::default();
        (0..100).for_each(|item| turns.push(7, item));
        for _ in 0..50 {
            turns.pop();
            turns.charge(7, MSEC);
        }
        (0..10).for_each(|item| turns.push(8, item));
        let order = order(&mut turns, |_| MSEC);
        assert!(order[..4].contains(&7) && order[..4].contains(&8), "{order:?}");
        assert_eq!(order[..20].iter().filter(|uid| **uid == 8).count(), 10, "{order:?}");
    }

    #[test]
    fn lanes_are_bounded() {
        let mut turns = Turns::default();
        turns.push(1, 0);
        for uid in 2..10_000 {
            turns.push(uid, 0);
            assert!(turns.remove(uid, |_| true).is_some());
        }
        assert!(turns.lanes.len() <= LANES_MAX + 2, "{}", turns.lanes.len());
        assert_eq!((turns.nr_of(1), turns.nr_items), (1, 1));
    }
}
