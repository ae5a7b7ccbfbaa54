//! Credit spent on starts of jobs.
//!
//! **Problem.** The queue of jobs has no groups: it orders all tenants in one list. A tenant that starts early delays its
//! siblings and also tenants outside of its group, so its bank and those of the groups above it must cover the start.
//!
//! **Rule.** A tenant can spend its bank, and at most its part of the bank of its group, by fair shares. So all tenants of
//! a group together spend at most the bank of the group. A fee is taken from all these banks. A node without siblings
//! has no bank, and does not count.
//!
//! **Bounds.** Fees are at most what [`spendable`] returns, so no bank becomes negative by a fee.

use super::Credit;
use crate::tree::TreeNode;

/// Credit that the tenant at position `leaf` can spend on starts of jobs, in share-seconds. `credit` returns that of a
/// node.
///
/// O(nodes).
pub fn spendable(nodes: &[TreeNode], credit: impl Fn(usize) -> Credit, leaf: usize) -> f64 {
    if !nodes[leaf].has_credit {
        return 0.0;
    }
    let mut path: Vec<usize> = path(nodes, leaf).collect();
    path.reverse();
    let (mut bank, mut fair_above): (Option<f64>, f64) = (None, 0.0);
    for at in path {
        let Credit { account, entry, .. } = credit(at);
        if has_siblings(nodes, at) {
            let own = account.bank.max(0.0);
            let part =
                if fair_above > 0.0 { (entry.fair_cores / fair_above).min(1.0) } else { 1.0 };
            bank = Some(bank.map_or(own, |bank| (bank * part).min(own)));
        }
        fair_above = entry.fair_cores;
    }
    bank.unwrap_or(0.0)
}

/// Credits after the tenant at position `leaf` paid `fee` (share-seconds), with the positions of those that paid.
pub fn pay(
    nodes: &[TreeNode],
    credit: impl Fn(usize) -> Credit,
    leaf: usize,
    fee: f64,
) -> Vec<(usize, Credit)> {
    let paid = |at: usize| {
        let mut credit = credit(at);
        let before = credit.account.bank;
        if before <= 0.0 || !has_siblings(nodes, at) {
            return None;
        }
        credit.account.bank = (before - fee).max(0.0);
        credit.entry.bank_seconds *= credit.account.bank / before;
        Some((at, credit))
    };
    path(nodes, leaf).filter_map(paid).collect()
}

/// The node and the groups above it.
fn path(nodes: &[TreeNode], leaf: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(leaf), |at| nodes[*at].parent)
}

fn has_siblings(nodes: &[TreeNode], at: usize) -> bool {
    let parent = nodes[at].parent;
    nodes.iter().filter(|node| node.parent == parent).nth(1).is_some()
}
