//! The queue of requests, and the disciplines that choose the next one.
//!
//! # Problem
//! Several tenants have work waiting for a few workers. A worker takes one request at a time and is not
//! interrupted. Requests cost between a millisecond and an hour, and often the cost is unknown beforehand.
//! The order has to give every tenant its weighted share of the workers' time, in the long run and in the
//! short: a tenant of small requests should not have to wait in bursts behind large ones.
//!
//! # Terms
//! *Tenant*, *request*, *worker*: as above. *Cost*: the time of one worker, in any unit. *Backlogged*: has
//! a request waiting. *Service*: the work done for a tenant so far. *GPS*: the ideal in which all
//! backlogged tenants are served at once ([`gps`]). *Lag*: service in GPS less service got. *Virtual time*:
//! the service in GPS of a tenant of weight 1 that is always backlogged ([`virtual_time`]). *Start tag*,
//! *finish tag* of a request: the virtual times at which GPS would begin and end it.
//!
//! # The interface
//! A [`Queue`] takes requests ([`Queue::enqueue`]), gives one to worker `i` at time `t` ([`Queue::pick`]),
//! and is charged with the use of a running one ([`Queue::charge`], [`Queue::complete`]) and with service that
//! a tenant got elsewhere ([`Queue::charge_beside`]). Tenants come, change their terms and go
//! ([`Queue::admit`], [`Queue::retire`]). Time is an argument, in seconds from any beginning, and never
//! decreases.
//!
//! # The disciplines
//! | [`Discipline`] | next is | made for | read |
//! |---|---|---|---|
//! | `Fifo` | the earliest request | no fairness at all | `discipline/plain` |
//! | `Priority` | the highest priority, raised by waiting | importance | `discipline/plain` |
//! | `RoundRobin` | the next tenant in turn | equal numbers of requests | `discipline/plain` |
//! | `Fair`: SFQ | the smallest start tag | varying speed | `discipline/tags` |
//! | FQ, WFQ | the smallest finish tag, without and with weights | one worker | `discipline/tags` |
//! | WF²Q | the same among requests that GPS has begun | one worker, no bursts | `discipline/tags` |
//! | 2DFQ | the same, where worker `i` may begin early by `i/n` of the cost | many workers | `discipline/tags`, `discipline/staggered` |
//! | WFQ^E, WF²Q^E, 2DFQ^E | with estimated costs | unknown costs | `estimate` |
//! | `Drf` | the smallest dominant share held | several resources | `discipline/dominant` |
//! | `Multilevel` | the level furthest below its target, then the least served | unknown, very long costs | [`multilevel`] |
//!
//! Tenants that left service to others can start earlier ([`Queue::lend`], `discipline/lead`): under the disciplines with
//! tags, which are those of `Fair`.
//!
//! Reservations and limits of tenants hold in every discipline (`bounds`), as do a capacity that running
//! requests share (`room`) and workers for small requests ([`Reserve`]). [`entrance`] comes before the
//! queue: rates, bounds on waiting requests and on the splits of a task. [`operations`] are sets of
//! requests that wait for each other ([`donation`]: the turns that these use), [`sets`] those with one entry in the
//! queue. [`indices`] numbers the units of counted resources. [`simulation`] runs all of it with workers.
//!
//! # Determinism
//! The same calls give the same answers. Ties go to the smaller finish tag, then to the earlier tenant
//! ([`tag`] defines when two tags are equal). Ties of DRF go in turn for real jobs ([`Ties`]).
//!
//! # Errata
//! Descriptions of 2DFQ differ from the rules that reproduce its figures in three places: the sign of the
//! early start (`discipline::staggered`), `≤` where figure 7 has `<` (`discipline::tags`), and the rule of
//! the estimate (`estimate`). In Presto's queue, the level that gets the most is the first (`multilevel`).

#![deny(missing_docs)]

mod bounds;
pub mod concurrency;
pub mod discipline;
pub mod donation;
pub mod entrance;
mod estimate;
pub mod gps;
pub mod indices;
pub mod operations;
mod order;
mod requests;
mod room;
pub mod sets;
pub mod simulation;
pub mod tag;
mod types;
pub mod virtual_time;
mod weights;

pub use discipline::{Discipline, Rule, Ties, multilevel};
pub use estimate::{Estimator, Ledger};
pub use requests::{Pick, Queue, Reserve, Setup};
pub use types::{Machine, Picked, Request, TenantId, Terms, TermsError, Ticket};
