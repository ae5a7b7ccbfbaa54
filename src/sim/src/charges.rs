//! Memory charges of one process.

use super::account::Pages;
use super::tree::CgroupId;

/// Pages of one process by the charged cgroup, ascending. Most processes have one cgroup.
#[derive(Clone, Debug, Default)]
pub(super) struct Charges(Vec<(CgroupId, Pages)>);

impl Charges {
    #[inline]
    fn place(&self, id: CgroupId) -> Result<usize, usize> {
        match self.0.as_slice() {
            [(only, _)] if *only == id => Ok(0),
            all => all.binary_search_by_key(&id, |(id, _)| *id),
        }
    }

    pub(super) fn get(&self, id: CgroupId) -> Option<&Pages> {
        self.place(id).ok().map(|place| &self.0[place].1)
    }

    pub(super) fn get_mut(&mut self, id: CgroupId) -> Option<&mut Pages> {
        self.place(id).ok().map(|place| &mut self.0[place].1)
    }

    /// Pages charged to `id`; adds an empty entry if there is none.
    #[inline]
    pub(super) fn of(&mut self, id: CgroupId) -> &mut Pages {
        let place = self.place(id).unwrap_or_else(|place| {
            self.0.insert(place, (id, Pages::default()));
            place
        });
        &mut self.0[place].1
    }

    pub(super) fn remove(&mut self, id: CgroupId) -> Option<Pages> {
        self.place(id).ok().map(|place| self.0.remove(place).1)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(CgroupId, Pages)> {
        self.0.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut (CgroupId, Pages)> {
        self.0.iter_mut()
    }

    #[inline]
    pub(super) fn pages(&self) -> Pages {
        if let [(_, only)] = self.0.as_slice() {
            return *only;
        }
        let mut sum = Pages::default();
        self.0.iter().for_each(|(_, pages)| sum.add(pages));
        sum
    }
}
