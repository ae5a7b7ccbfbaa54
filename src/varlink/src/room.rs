//! Room for one more connection.
//!
//! **Problem.** Places are few, every user of the host may connect, and a client can hold a place without ever calling.
//! **Terms.** An *account* is
//! the user for whom connections are counted ([`super::peers::account`]). A connection is *idle* between
//! two calls. **Rules.** The connections of an account are limited. The last places are for
//! root, and those before for members of the group of the socket as well. If all places are taken, the account
//! with the most connections loses one, if it would still have as many as the newcomer: the longest idle
//! connection, and a watcher only if none is idle. Connections of root and those with a call in flight are
//! never closed for that. **Bounds.** Linear in the number of connections.

use std::collections::HashMap;
use std::time::Instant;

use super::limits::Limits;

#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) account: u32,
    /// Its number, the begin of its idle time, and true for a watcher; `None` while a call of it is in flight.
    pub(super) idle: Option<(u64, Instant, bool)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Free,
    /// A place is free once this connection is closed.
    Instead(u64),
    Full,
}

/// Room for another connection of `account` beside those in `places`; true for a member of the group.
pub(super) fn room(limits: &Limits, (account, is_member): (u32, bool), places: &[Place]) -> Room {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    places.iter().for_each(|place| *counts.entry(place.account).or_default() += 1);
    let own = counts.get(&account).copied().unwrap_or(0);
    if own >= limits.connections_per_user {
        return Room::Full;
    }
    let kept = match (account, is_member) {
        (0, _) => 0,
        (_, true) => limits.kept_for_root,
        (_, false) => limits.kept_for_root.saturating_add(limits.kept_for_members),
    };
    let all = limits.connections.saturating_sub(kept);
    if places.len() < all {
        return Room::Free;
    }
    let closable =
        places.iter().filter(|place| place.account != 0 && counts[&place.account] > own + 1);
    let closable = closable.filter_map(|place| Some((counts[&place.account], place.idle?)));
    let first = closable
        .min_by_key(|(count, (_, since, watches))| (std::cmp::Reverse(*count), *watches, *since));
    first.map_or(Room::Full, |(_, (number, ..))| Room::Instead(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const LIMITS: Limits =
        Limits { connections: 8, kept_for_root: 2, connections_per_user: 4, ..Limits::DEFAULT };

    fn room(limits: &Limits, account: u32, places: &[Place]) -> Room {
        super::room(limits, (account, true), places)
    }

    /// Connections of accounts, the longest idle first; numbered from 0.
    fn places(accounts: &[u32]) -> Vec<Place> {
        let begin = Instant::now();
        let place = |(at, account): (usize, &u32)| Place {
            account: *account,
            idle: Some((at as u64, begin + Duration::from_secs(at as u64), false)),
        };
        accounts.iter().enumerate().map(place).collect()
    }

    #[test]
    fn a_user_and_all_users_have_so_many_places() {
        assert_eq!(room(&LIMITS, 7, &places(&[7, 7, 7])), Room::Free);
        assert_eq!(room(&LIMITS, 7, &places(&[7, 7, 7, 7])), Room::Full);
        assert_eq!(room(&LIMITS, 7, &places(&[1, 2, 3, 4, 5, 6])), Room::Full);
        assert_eq!(room(&LIMITS, 0, &places(&[1, 2, 3, 4, 5, 6])), Room::Free);
    }

    #[test]
    fn the_account_with_most_loses_the_connection_that_is_idle_longest() {
        let mut crowd = places(&[1, 2, 2, 3, 3, 3]);
        assert_eq!(room(&LIMITS, 7, &crowd), Room::Instead(3));
        crowd[3].idle = Some((3, Instant::now(), true));
        assert_eq!(room(&LIMITS, 7, &crowd), Room::Instead(4), "a watcher comes last");
        (3..6).for_each(|at| crowd[at].idle = None);
        assert_eq!(room(&LIMITS, 7, &crowd), Room::Instead(1), "calls in flight stay");
        assert_eq!(
            room(&LIMITS, 1, &crowd),
            Room::Full,
            "an account never gets more than the others"
        );
    }

    #[test]
    fn users_outside_the_group_leave_places_to_its_members() {
        let limits = Limits { kept_for_members: 3, ..LIMITS };
        let room =
            |is_member, accounts: &[u32]| super::room(&limits, (7, is_member), &places(accounts));
        assert_eq!(room(false, &[1, 2]), Room::Free);
        assert_eq!(room(false, &[1, 2, 3]), Room::Full);
        assert_eq!(room(false, &[1, 1, 2]), Room::Instead(0));
        assert_eq!(room(true, &[1, 2, 3]), Room::Free);
        assert_eq!(room(true, &[1, 2, 3, 4, 5, 6]), Room::Full);
    }

    #[test]
    fn no_connection_of_root_is_closed() {
        assert_eq!(room(&LIMITS, 7, &places(&[0, 0, 0, 0, 1, 2])), Room::Full);
    }
}
