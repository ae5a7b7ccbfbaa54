//! Processes of a host, in order of their pids.
//!
//! They are read in every step of 10 ms, and for every touched page. So they are in one list, and a table
//! has the index of each.

const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Debug)]
pub(super) struct ByPid<T> {
    pids: Vec<u32>,
    items: Vec<T>,
    /// Index in the two lists, by pid.
    places: Vec<u32>,
}

// Not derived: that would require a default item.
impl<T> Default for ByPid<T> {
    fn default() -> Self {
        ByPid { pids: Vec::new(), items: Vec::new(), places: Vec::new() }
    }
}

impl<T> ByPid<T> {
    pub(super) fn len(&self) -> usize {
        self.pids.len()
    }

    pub(super) fn pid_at(&self, place: usize) -> Option<u32> {
        self.pids.get(place).copied()
    }

    /// Index of the next pid after `pid`, which was at `place`; it and others may have ended since.
    pub(super) fn place_after(&self, pid: u32, place: usize) -> usize {
        if self.pid_at(place) == Some(pid) {
            return place + 1;
        }
        self.pids.partition_point(|&other| other <= pid)
    }

    #[inline]
    fn place(&self, pid: u32) -> Option<usize> {
        let place = *self.places.get(pid as usize)?;
        (place != NOWHERE).then_some(place as usize)
    }

    pub(super) fn contains_key(&self, pid: &u32) -> bool {
        self.place(*pid).is_some()
    }

    #[inline]
    pub(super) fn get(&self, pid: &u32) -> Option<&T> {
        self.items.get(self.place(*pid)?)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, pid: &u32) -> Option<&mut T> {
        let place = self.place(*pid)?;
        self.items.get_mut(place)
    }

    /// Adds an item. Pids grow with time, so it is mostly the last one.
    pub(super) fn insert(&mut self, pid: u32, item: T) {
        if let Some(known) = self.get_mut(&pid) {
            *known = item;
            return;
        }
        let place = self.pids.partition_point(|&other| other < pid);
        self.pids.insert(place, pid);
        self.items.insert(place, item);
        if self.places.len() <= pid as usize {
            self.places.resize(pid as usize + 1, NOWHERE);
        }
        self.number_from(place);
    }

    pub(super) fn remove(&mut self, pid: &u32) -> Option<T> {
        let place = self.place(*pid)?;
        self.places[*pid as usize] = NOWHERE;
        self.pids.remove(place);
        let item = self.items.remove(place);
        self.number_from(place);
        Some(item)
    }

    fn number_from(&mut self, first: usize) {
        for (place, pid) in self.pids.iter().enumerate().skip(first) {
            self.places[*pid as usize] = place as u32;
        }
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &u32> {
        self.pids.iter()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.items.iter()
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.items.iter_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&u32, &T)> {
        self.pids.iter().zip(&self.items)
    }
}

impl<T> std::ops::Index<&u32> for ByPid<T> {
    type Output = T;

    fn index(&self, pid: &u32) -> &T {
        match self.get(pid) {
            Some(item) => item,
            None => unreachable!("a process that ended is reached through `get` only"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn it_holds_what_a_sorted_map_holds() {
        let (mut map, mut reference) = (ByPid::default(), BTreeMap::new());
        let mut dice = 1_u32;
        for round in 0..5_000 {
            dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let pid = (dice >> 16) % 50;
            if dice >> 31 == 0 {
                map.insert(pid, round);
                reference.insert(pid, round);
            } else {
                assert_eq!(map.remove(&pid), reference.remove(&pid));
            }
            assert!(map.iter().eq(reference.iter()));
            assert!((0..51).all(|pid| map.get(&pid) == reference.get(&pid)));
        }
    }

    #[test]
    fn a_walk_meets_all_that_are_left_when_some_end_on_the_way() {
        let mut map = ByPid::default();
        (1..=9).for_each(|pid| map.insert(pid, ()));
        let (mut met, mut place) = (Vec::new(), 0);
        while let Some(pid) = map.pid_at(place) {
            met.push(pid);
            let ended: &[u32] = match pid {
                3 => &[1, 3, 4],
                7 => &[2, 8, 9],
                _ => &[],
            };
            for pid in ended {
                map.remove(pid);
            }
            place = map.place_after(pid, place);
        }
        assert_eq!(met, [1, 2, 3, 5, 6, 7]);
    }
}
