//! The published auto-DOP rule of an in-memory column index (IMCI), as published.
//!
//! **Problem.** Queries wait in order of arrival for some of a fixed number of slots. Give each a degree of
//! parallelism when it starts; it keeps it until it ends.
//!
//! **Rule.** *Step 1.* `average = slots / concurrency`, in integers, where the concurrency is the number of
//! queries that run or wait; one that is alone gets `max_per_query`. In order: a query gets its manual DOP,
//! else the average, at most its own `max`; the first that does not fit into the free slots ends the
//! admission, and so does the first whose memory does not fit, which makes the round *memory-bound*. *Step
//! 2*, if memory-bound: the average is taken again over the queries that really run, as `min(slots /
//! (running + scheduled), pool / scheduled)`, and queries without a manual DOP are raised to it.
//!
//! **Errors in the article**, and their treatment here:
//! - The printed code divides in step 2 the *rest* of step 1 by the number scheduled. That gives 2,2,2,2,
//!   but the article's own table has 4,3,3,4. The table needs the pool as it was *before* step 1.
//! - It calls the same field `hint_dop_` and `manual_dop_`.
//! - `slots / concurrency` is 0 when more queries wait than there are slots: every query is then scheduled
//!   with a DOP of 0, that is, none starts. Kept as published; a DOP of 0 is not admitted.
//! - `max_per_query` bounds only a query that is alone. Two queries on a wide machine may each get more
//!   than one alone. Kept.
//! - A manual DOP or a `max` in the queue does not feed back into the average: slots stay idle (2,2,2 on
//!   eight), or block the third of manual 6, any, any although two slots are there for it. Kept;
//!   [`super::target`] does better.
//!
//! The rule treats further resources like memory: the first query that lacks any of them ends the
//! admission. It ignores speed-ups. `users` is the article's bound on the queries that run or are
//! considered; without it all count.
//!
//! One thing is added: step 2 never raises beyond the slots that are free, in the order of the queue. As
//! published, a large manual DOP ahead of raised queries could overbook the machine.
//!
//! **Properties.** The published tables and all vectors (`tests/dop/target.rs`); never more than the slots;
//! memory-bound rounds give no query less than step 1 (same file).

use super::target::{Admission, Problem, Query, Width};

/// Decides a round by the published rule.
pub fn admit(problem: &Problem) -> Admission {
    let pool = problem.free_slots();
    let waiting = problem.looked_at().len() as u64;
    let running = problem.running().len() as u64;
    let average = average(problem, running + waiting);
    let mut free = pool;
    let mut pools = problem.pools();
    let mut dop = vec![0; problem.queue().len()];
    let mut scheduled = 0;
    let mut bound = None;
    for (index, query) in problem.looked_at().iter().enumerate() {
        let width = width(query, average);
        if width > free {
            break;
        }
        if let Err(pool) = pools.take(|pool| query.needs(pool, width)) {
            bound = Some(pool);
            break;
        }
        free -= width;
        dop[index] = width;
        scheduled += 1;
    }
    if bound.is_some() && scheduled > 0 {
        let average = self::average(problem, running + scheduled).min(pool / scheduled);
        let queries = problem.queue().iter().zip(&mut dop).take(scheduled as usize);
        for (query, dop) in queries {
            let more = width(query, average).saturating_sub(*dop).min(free);
            // The compensation adds slots; a query whose memory grows with them must still fit.
            let further =
                |pool: usize, more: u64| query.needs(pool, *dop + more) - query.needs(pool, *dop);
            let affordable =
                (0..=more).rev().find(|&more| pools.take(|pool| further(pool, more)).is_ok());
            let more = affordable.unwrap_or(0);
            *dop += more;
            free -= more;
        }
    }
    Admission::new(dop, bound, free)
}

fn average(problem: &Problem, concurrency: u64) -> u64 {
    match concurrency {
        0 | 1 => problem.max_per_query(),
        _ => problem.slots() / concurrency,
    }
}

fn width(query: &Query, average: u64) -> u64 {
    match query.width {
        Width::Manual(dop) => dop,
        Width::AtMost(max) => average.min(max),
        Width::Auto => average,
    }
}
