//! What is known of the units of tenants: one post for each.
//!
//! What is done about them stands in [`super::units`]. A reload of the policy leaves the posts of tenants that
//! stay as they are: what was asked for is still on its way, and must not be taken for somebody else's doing
//! when it arrives (`our_own_values_are_no_drift_after_a_reload`).

use std::collections::HashMap;

use super::agent::Slot;
use super::enforce::taken;
use super::seats::Seat;
use crate::control::plan::{Action, Knob, Value};
use crate::host::kernfs::KernFs;
use crate::host::systemd::slice_name::TOP;
use crate::host::systemd::{Held, Order, Reply, UnitError, UnitManager};

/// A unit that is missing is looked for again after 1, 2, 4 … at most this many ticks. One that ran before is found
/// by its cgroup as soon as it runs again.
const LOOK_TICKS_MAX: u64 = 64;
/// A bus that is away is tried again after 1, 2, 4 … at most this many ticks.
const BUS_TICKS_MAX: u64 = 32;

/// The units of all tenants.
#[derive(Debug, Default)]
pub(super) struct Units {
    pub(super) manager: Option<Box<dyn UnitManager>>,
    /// One for each node that is a unit, and behind them one for [`TOP`] where any of them is a slice.
    pub(super) posts: Vec<Option<Box<Post>>>,
    pub(super) by_unit: HashMap<String, usize>,
    /// What the top slice holds.
    pub(super) top: Slot,
    pub(super) trouble: Option<Trouble>,
}

/// A bus that is away.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) nr_failures: u32,
    pub(super) retry_at: u64,
    pub(super) message: String,
}

/// What is known of one unit.
#[derive(Debug)]
pub(super) struct Post {
    /// As the policy calls it, which may be by another name than systemd's.
    pub(super) name: String,
    /// As systemd calls it, once it said so. Its drop-ins are found under this name alone.
    pub(super) unit: String,
    /// Whether it is a slice of a tenant, which is started where it is missing.
    pub(super) is_slice: bool,
    pub(super) phase: Phase,
    /// Its cgroup, from the mount.
    pub(super) cgroup: String,
    /// Which life of it, where what is set goes with it.
    pub(super) life: String,
    pub(super) held: Vec<Held>,
    /// When `held` was true.
    pub(super) looked_at: u64,
    pub(super) is_looking: bool,
    pub(super) pending: Option<Pending>,
    /// What was asked for last, of each knob.
    pub(super) ordered: Vec<(Knob, Value)>,
    pub(super) nr_misses: u32,
    pub(super) message: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Looked for at this tick.
    Missing { look_at: u64 },
    /// Looked for, or started, just now.
    Asked,
    /// Its cgroup is there.
    There,
}

/// Values that were asked for and have not all arrived.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) actions: Vec<Action>,
    /// When systemd said that it is done.
    pub(super) answered_at: Option<u64>,
}

impl Post {
    pub(super) fn new(unit: &str, is_slice: bool) -> Post {
        Post {
            name: unit.to_string(),
            unit: unit.to_string(),
            is_slice,
            phase: Phase::Missing { look_at: 0 },
            cgroup: String::new(),
            life: String::new(),
            held: Vec::new(),
            looked_at: 0,
            is_looking: false,
            pending: None,
            ordered: Vec::new(),
            nr_misses: 0,
            message: None,
        }
    }

    /// It is not there: look again later, and say why until then.
    pub(super) fn miss(&mut self, tick: u64, why: String) {
        let pause = (1_u64 << self.nr_misses.min(8)).min(LOOK_TICKS_MAX);
        self.nr_misses = self.nr_misses.saturating_add(1);
        self.phase = Phase::Missing { look_at: tick + pause };
        self.message = Some(why);
    }

    /// Whoever was asked did all of it and went: what he answered is not heard any more, and what a look had
    /// found may have changed since.
    fn miss_answers(&mut self) {
        self.is_looking = false;
        self.looked_at = 0;
        if self.phase == Phase::Asked {
            self.phase = Phase::Missing { look_at: 0 };
        }
        if let Some(pending) = &mut self.pending {
            pending.answered_at.get_or_insert(0);
        }
    }
}

impl Units {
    /// The posts of `seats`. A manager is made only where one of them is a unit.
    pub(super) fn new(kernel: &impl KernFs, seats: &[Seat]) -> Units {
        let post =
            |seat: &Seat| Some(Box::new(Post::new(seat.unit()?, matches!(seat, Seat::Slice(_)))));
        let mut posts: Vec<Option<Box<Post>>> = seats.iter().map(post).collect();
        let any_slice = posts.iter().flatten().any(|post| post.is_slice);
        posts.push(any_slice.then(|| Box::new(Post::new(TOP, true))));
        let mut units = Units { posts, ..Units::default() };
        units.index();
        if !units.by_unit.is_empty() {
            units.manager = kernel.unit_manager();
        }
        units
    }

    fn index(&mut self) {
        let posts = self.posts.iter().enumerate();
        let posts = posts.filter_map(|(index, post)| Some((index, post.as_ref()?)));
        let names =
            posts.flat_map(|(index, post)| [&post.name, &post.unit].map(|n| (n.clone(), index)));
        self.by_unit = names.collect();
    }

    /// Takes other `seats`. What is known of a unit stays so where its node stays: the one at `index` is the
    /// one at `kept[index]` from now on.
    pub(super) fn reseat(
        &mut self,
        kernel: &mut impl KernFs,
        seats: &[Seat],
        kept: &[Option<usize>],
    ) {
        let mut old = std::mem::replace(self, Units::new(kernel, seats));
        let is_heard = old.manager.is_some();
        let top = old.posts.pop().flatten();
        for (post, new) in old.posts.into_iter().zip(kept) {
            if let (Some(mut post), Some(new)) = (post, new) {
                if !is_heard {
                    post.miss_answers();
                }
                self.posts[*new] = Some(post);
            }
        }
        match (self.posts.last_mut(), top) {
            (Some(Some(post)), Some(mut top)) => {
                if !is_heard {
                    top.miss_answers();
                }
                (*post, self.top) = (top, old.top);
            }
            _ => close(old.top, kernel),
        }
        self.index();
        self.trouble = old.trouble;
        self.manager = old.manager.or(self.manager.take());
    }

    /// Begins anew with `seats`.
    pub(super) fn restart(&mut self, kernel: &mut impl KernFs, seats: &[Seat]) {
        let old = std::mem::replace(self, Units::new(kernel, seats));
        close(old.top, kernel);
    }

    /// The knob of the node at `index` was put back: whatever was asked for is past.
    pub(super) fn forget(&mut self, index: usize, knob: Knob) {
        let Some(Some(post)) = self.posts.get_mut(index) else { return };
        post.ordered.retain(|(known, _)| *known != knob);
        if let Some(pending) = &mut post.pending {
            pending.actions.retain(|action| action.knob != knob);
        }
    }

    /// Whether the node at `index` is a unit.
    pub(super) fn owns(&self, index: usize) -> bool {
        self.posts.get(index).is_some_and(Option::is_some)
    }

    /// The cgroup of the node at `index`, from the mount; `None` where it is no unit, or not found yet.
    pub(super) fn cgroup(&self, index: usize) -> Option<&str> {
        let post = self.posts.get(index)?.as_ref()?;
        (post.phase == Phase::There).then_some(&*post.cgroup)
    }

    /// Whether `found` is what systemd was asked to write there.
    pub(super) fn ordered(&self, index: usize, knob: Knob, found: &Value) -> bool {
        let Some(Some(post)) = self.posts.get(index) else { return false };
        post.ordered.iter().any(|(known, value)| *known == knob && taken(found, value))
    }

    /// What the top slice shall hold, and holds; `None` where there is none to steer.
    pub(super) fn top(&self) -> Option<&Slot> {
        let is_there = self.posts.last()?.as_ref()?.phase == Phase::There;
        (is_there && self.top.cgroup.is_some()).then_some(&self.top)
    }

    /// Notes what systemd calls the unit of the node at `index`.
    ///
    /// # Errors
    /// Another node has that unit: its index.
    pub(super) fn identify(&mut self, index: usize, id: &str) -> Result<(), usize> {
        match self.by_unit.get(id) {
            Some(other) if *other != index => return Err(*other),
            Some(_) => {}
            None => drop(self.by_unit.insert(id.to_string(), index)),
        }
        if let Some(Some(post)) = self.posts.get_mut(index) {
            post.unit = id.to_string();
        }
        Ok(())
    }

    /// The unit of the node at `index`.
    pub(super) fn unit(&self, index: usize) -> Option<&str> {
        Some(&self.posts.get(index)?.as_ref()?.unit)
    }

    /// Whether there are units, and nobody who manages any.
    pub(super) fn is_unmanaged(&self) -> bool {
        self.manager.is_none() && !self.by_unit.is_empty()
    }

    /// Hands the manager over to whoever puts everything back.
    pub(super) fn take_manager(&mut self) -> Option<Box<dyn UnitManager>> {
        self.manager.take()
    }

    /// The node's cgroup went: systemd is asked for it again.
    pub(super) fn lose(&mut self, index: usize) {
        if let Some(Some(post)) = self.posts.get_mut(index) {
            post.phase = Phase::Missing { look_at: 0 };
            post.pending = None;
            post.ordered.clear();
        }
    }

    /// Whether there is anybody to ask now.
    pub(super) fn may_ask(&self, tick: u64) -> bool {
        self.trouble.as_ref().is_none_or(|trouble| tick >= trouble.retry_at)
    }

    pub(super) fn submit(&mut self, order: Order) {
        if let Some(manager) = &mut self.manager {
            manager.submit(order);
        }
    }

    /// Notes how the bus is doing.
    pub(super) fn note(&mut self, tick: u64, outcome: &Result<Reply, UnitError>) {
        let Err(error) = outcome.as_ref() else {
            self.trouble = None;
            return;
        };
        if !error.is_about_the_bus() || !self.may_ask(tick) {
            return;
        }
        let nr_failures = self.trouble.as_ref().map_or(1, |trouble| trouble.nr_failures + 1);
        let pause = (1_u64 << (nr_failures - 1).min(8)).min(BUS_TICKS_MAX);
        let message =
            format!("{error}: tenants that are units keep what they have until it answers");
        self.trouble = Some(Trouble { nr_failures, retry_at: tick + pause, message });
    }
}

fn close(top: Slot, kernel: &mut impl KernFs) {
    if let Some(cgroup) = top.cgroup {
        cgroup.close(kernel);
    }
}
