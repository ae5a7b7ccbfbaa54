//! Factors of siblings from their banks. The essay is that of [`super`].

use super::{Account, Entry, Node, ROUNDING, Tick, level, settle};
use tenantd_fair::max_min::{self, Claim};
use tenantd_policy::model::CreditsPolicy;

/// The smallest step is a half to this power.
const STEPS: i32 = 10;
/// A step rises when the bank covers this many ticks of the full boost.
const RISE_COVER: f64 = 2.0;
/// A bank with this part of its cap counts as full: it cannot cover more.
const FULL_RATIO: f64 = 0.99;
/// The smallest boost, as a part of the fair share: less is not worth a write.
const LEAST_BOOST: f64 = 0.25;
/// A factor stays unless it rises by this ratio or falls.
const RISE_RATIO: f64 = 1.5;

/// Siblings, and the level of their fair shares.
struct Set<'a> {
    nodes: Vec<&'a Node>,
    cores: f64,
    keep: f64,
    /// CPUs that are fair shares of these.
    whole: f64,
    /// `λ0`: fair shares are `min(ceiling, λ0·B)`.
    level: f64,
}

/// Sets the step and the factor of the siblings of one `set`.
pub(crate) fn boost(
    nodes: &[Node],
    set: &[usize],
    (tick, terms): (&Tick, &CreditsPolicy),
    accounts: &mut [Account],
    entries: &mut [Entry],
) {
    let set_of = Set::new(set.iter().map(|index| &nodes[*index]).collect(), tick, terms);
    let full = set_of.full_boosts();
    let mut wanted = Vec::with_capacity(set.len());
    for ((&index, node), full) in set.iter().zip(&set_of.nodes).zip(full) {
        let account = &mut accounts[index];
        account.step = step(node, account, full, (tick, terms));
        let most = (node.standing.limit_cores - node.fair_cores).max(0.0) / tick.cores;
        let extra = (account.step * full).min(most);
        let is_worth_it = extra >= node.fair_cores / tick.cores * LEAST_BOOST * (1.0 - ROUNDING);
        wanted.push(if is_worth_it { extra } else { 0.0 });
    }
    let (extra, others_level) = set_of.raise(&wanted);
    for (place, &index) in set.iter().enumerate() {
        let (node, account, entry) = (&nodes[index], &mut accounts[index], &mut entries[index]);
        entry.extra_cores = extra[place] * tick.cores;
        entry.others_level = others_level / set_of.level.max(f64::MIN_POSITIVE);
        let due = others_level * node.standing.share_cores;
        let factor = if extra[place] > 0.0 && due > 0.0 {
            ((node.fair_cores + entry.extra_cores) / due).max(1.0)
        } else {
            1.0
        };
        let held = account.factor;
        let is_near =
            held <= factor * (1.0 + ROUNDING) && factor < RISE_RATIO * held * (1.0 - ROUNDING);
        account.factor = if is_near { held } else { factor };
        entry.offered_factor = account.factor;
    }
}

/// The largest power of two that is at most `ratio`, from the smallest step to 1; else 0.
fn grid(ratio: f64) -> f64 {
    let steps = (0..=STEPS).map(|power| 0.5_f64.powi(power));
    steps.into_iter().find(|step| *step <= ratio * (1.0 + ROUNDING)).unwrap_or(0.0)
}

/// The part of the full boost that the bank covers for one tick: falls at once, rises late.
fn step(node: &Node, account: &Account, full: f64, (tick, terms): (&Tick, &CreditsPolicy)) -> f64 {
    let conduct = &node.conduct;
    if account.bank <= 0.0 || full <= 0.0 || conduct.is_apart || conduct.is_over {
        return 0.0;
    }
    let cover = account.bank / (full * tick.seconds);
    if conduct.is_unread {
        return account.step.min(grid(cover));
    }
    if cover < account.step * (1.0 - ROUNDING) {
        return grid(cover);
    }
    let most = settle::bank_max(node.fair_cores, tick, terms);
    let is_full = account.bank >= FULL_RATIO * most * (1.0 - ROUNDING);
    account.step.max(grid(if is_full { cover } else { cover / RISE_COVER }))
}

impl<'a> Set<'a> {
    fn new(nodes: Vec<&'a Node>, tick: &Tick, terms: &CreditsPolicy) -> Set<'a> {
        let claims: Vec<Claim> = nodes.iter().map(|node| claim(node, 0.0)).collect();
        let whole = nodes.iter().map(|node| node.fair_cores).sum();
        let level = level::lowest(whole, &claims, ROUNDING * tick.cores);
        Set { nodes, cores: tick.cores, keep: terms.keep, whole, level }
    }

    fn tolerance(&self) -> f64 {
        ROUNDING * self.cores
    }

    /// The level that siblings keep which have these largest ratios of a guarantee to a standing share.
    fn kept_level(&self, promised: f64) -> f64 {
        (self.keep * self.level).max(promised)
    }

    /// CPUs that a node keeps at this level.
    fn kept(node: &Node, level: f64) -> f64 {
        let by_level = node.fair_cores.min(level * node.standing.share_cores);
        node.standing.kept_cores().max(by_level)
    }

    /// Boost of each node that leaves the others what they keep, as a part of the machine.
    fn full_boosts(&self) -> Vec<f64> {
        let promised = Promised::of(self.nodes.iter().copied().enumerate());
        let kept = |level: f64| self.nodes.iter().map(|it| Set::kept(it, level)).sum::<f64>();
        let level = self.kept_level(promised.largest.1);
        let level_without = self.kept_level(promised.second);
        let (sum, sum_without) = (kept(level), kept(level_without));
        let full = |(place, node): (usize, &&Node)| {
            let others = if place == promised.largest.0 {
                sum_without - Set::kept(node, level_without)
            } else {
                sum - Set::kept(node, level)
            };
            let room = self.whole - node.fair_cores - others;
            if room > self.tolerance() { room / self.cores } else { 0.0 }
        };
        self.nodes.iter().enumerate().map(full).collect()
    }

    /// Boosts of those that want one, as parts of the machine, and the level that is left to the others.
    fn raise(&self, wanted: &[f64]) -> (Vec<f64>, f64) {
        let each = || self.nodes.iter().copied().zip(wanted).enumerate();
        let raised: Vec<(usize, &Node, f64)> = each()
            .filter(|(_, (_, it))| **it > 0.0)
            .map(|(at, (it, want))| (at, it, *want))
            .collect();
        let others: Vec<&Node> =
            each().filter(|(_, (_, it))| **it <= 0.0).map(|(_, (it, _))| it).collect();
        let mut extra = vec![0.0; wanted.len()];
        let promised = Promised::of(others.iter().copied().enumerate());
        let level = self.kept_level(promised.largest.1);
        let fair: f64 = raised.iter().map(|(_, node, _)| node.fair_cores).sum();
        let kept: f64 = others.iter().map(|node| Set::kept(node, level)).sum();
        let room = self.whole - fair - kept;
        if raised.is_empty() || room <= self.tolerance() {
            return (extra, self.level);
        }
        let claims: Vec<Claim> = raised
            .iter()
            .map(|(_, node, want)| Claim { weight: node.fair_cores, floor: 0.0, ceiling: *want })
            .collect();
        let parts = max_min::divide(room / self.cores, &claims).allocation;
        let given: f64 = parts.iter().sum::<f64>() * self.cores;
        raised.iter().zip(parts).for_each(|((place, ..), part)| extra[*place] = part);
        let claims: Vec<Claim> =
            others.iter().map(|node| claim(node, node.standing.kept_cores())).collect();
        let left = level::highest(self.whole - fair - given, &claims, self.tolerance());
        (extra, left.min(self.level))
    }
}

/// A claim by standing share, with at least `floor`.
fn claim(node: &Node, floor: f64) -> Claim {
    let (weight, ceiling) = (node.standing.share_cores, node.ceiling_cores.max(floor));
    Claim { weight, floor, ceiling }
}

/// The two largest ratios of a kept guarantee to a standing share, and the place of the largest.
struct Promised {
    largest: (usize, f64),
    second: f64,
}

impl Promised {
    fn of<'a>(nodes: impl Iterator<Item = (usize, &'a Node)>) -> Promised {
        let mut promised = Promised { largest: (usize::MAX, 0.0), second: 0.0 };
        for (place, node) in nodes.filter(|(_, node)| node.standing.kept_cores() > 0.0) {
            let ratio = node.standing.kept_cores() / node.standing.share_cores;
            if ratio > promised.largest.1 {
                promised.second = promised.largest.1;
                promised.largest = (place, ratio);
            } else {
                promised.second = promised.second.max(ratio);
            }
        }
        promised
    }
}
