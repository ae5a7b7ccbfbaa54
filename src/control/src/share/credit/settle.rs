//! Settlement of the accounts of siblings after a tick. The essay is that of [`super`].

use super::{Account, Entry, Node, Tick, kept_part};
use tenantd_policy::model::CreditsPolicy;

/// Part of the CPUs that must be in use for credit to be earned.
pub const BUSY_RATIO: f64 = 0.9;

/// Use of a node beside its fair share, in CPUs.
#[derive(Clone, Copy, Debug)]
struct Balance {
    lent: f64,
    short: f64,
    excess: f64,
    waited: f64,
}

impl Balance {
    fn of(node: &Node) -> Balance {
        let (fair, conduct) = (node.fair_cores, &node.conduct);
        if conduct.is_unread {
            return Balance { lent: 0.0, short: 0.0, excess: 0.0, waited: 0.0 };
        }
        let unused = (fair - conduct.used_cores).max(0.0);
        let free = (1.0 - (conduct.waited + conduct.held).min(1.0)).max(0.0);
        let lent = unused.min(fair * free);
        let short = (unused - lent).min(fair * conduct.waited);
        Balance {
            lent: if conduct.is_apart || conduct.is_over { 0.0 } else { lent },
            short: if conduct.is_apart { 0.0 } else { short },
            excess: (conduct.used_cores - fair).max(0.0),
            waited: conduct.waited,
        }
    }
}

/// Credits and charges the siblings of one `set`, and fades their banks.
pub(crate) fn settle(
    nodes: &[Node],
    set: &[usize],
    (tick, terms): (&Tick, &CreditsPolicy),
    is_busy: bool,
    accounts: &mut [Account],
    entries: &mut [Entry],
) {
    let balances: Vec<Balance> = set.iter().map(|index| Balance::of(&nodes[*index])).collect();
    let sum = |of: fn(&Balance) -> f64| balances.iter().map(of).sum::<f64>();
    let (lent, short, excess) = (sum(|it| it.lent), sum(|it| it.short), sum(|it| it.excess));
    let borrowed = if is_busy { lent.min((excess - short).max(0.0)) } else { 0.0 };
    let short_part = short / excess.max(f64::MIN_POSITIVE);
    let fading = kept_part(tick.seconds, terms.half_life);
    let waits = longest_waits(&balances);
    for ((place, &index), balance) in set.iter().enumerate().zip(&balances) {
        let (node, account, entry) = (&nodes[index], &mut accounts[index], &mut entries[index]);
        if borrowed > 0.0 {
            let part = borrowed * balance.lent / lent;
            entry.earned = tick.earning_seconds / tick.cores * part;
        }
        if balance.excess > 0.0 && !node.conduct.is_apart {
            let contended = waits.of_others(place).max(short_part).min(1.0);
            let charged = tick.seconds / tick.cores * contended * balance.excess;
            let has_boost = account.step > 0.0;
            entry.charged = if has_boost { charged } else { charged.min(account.bank.max(0.0)) };
        }
        let left = if account.bank > 0.0 { account.bank * fading } else { account.bank };
        let most = bank_max(node.fair_cores, tick, terms);
        account.bank = (left + entry.earned - entry.charged).min(most);
        if most > 0.0 {
            entry.bank_seconds = account.bank / most * terms.cap.as_secs_f64();
        }
    }
}

/// The largest bank of a node with this fair share.
pub(crate) fn bank_max(fair_cores: f64, tick: &Tick, terms: &CreditsPolicy) -> f64 {
    terms.cap.as_secs_f64() * fair_cores / tick.cores
}

/// The two longest waits of siblings, and the place of the longest.
struct Waits {
    longest: (usize, f64),
    second: f64,
}

impl Waits {
    /// The longest wait of all siblings but the one in this place.
    fn of_others(&self, place: usize) -> f64 {
        if place == self.longest.0 { self.second } else { self.longest.1 }
    }
}

fn longest_waits(balances: &[Balance]) -> Waits {
    let mut waits = Waits { longest: (0, 0.0), second: 0.0 };
    for (place, balance) in balances.iter().enumerate() {
        if balance.waited > waits.longest.1 {
            waits.second = waits.longest.1;
            waits.longest = (place, balance.waited);
        } else {
            waits.second = waits.second.max(balance.waited);
        }
    }
    waits
}
