//! Credit of a node: its bank, its factor, and the spender that it pays.

use crate::report::explanation::CreditStep;
use crate::report::trace::{Record, Trace};
use crate::share::credit::{BUSY_RATIO, Credit};
use crate::tree::TreeNode;
use tenantd_core::resource::{CPU, MEMORY};
use tenantd_policy::model::CreditsPolicy;

/// A part of the fair share that counts as all of it.
const WHOLE_RATIO: f64 = 0.98;

/// Explains the credit of the node at `index`; `None` before the second sample.
pub(crate) fn credit_step(trace: &Trace, index: usize) -> Option<CreditStep> {
    trace.elapsed?;
    let record = trace.records.get(index)?;
    let case = Case { trace, nodes: trace.tree.nodes(), index, record };
    let (account, entry) = (&record.credit.account, &record.credit.entry);
    let terms = trace.credits.unwrap_or_default();
    let is_on = trace.credits.is_some();
    let spenders = if is_on { case.spenders() } else { Vec::new() };
    let pays_seconds = spenders.iter().filter_map(|it| case.burst_seconds(*it)).reduce(f64::max);
    let due = record.target.cores_after_loans;
    let mut step = CreditStep {
        is_on,
        bank_seconds: entry.bank_seconds,
        cap_seconds: terms.cap.as_secs_f64(),
        factor: account.factor,
        offered_factor: entry.offered_factor,
        fair_share_cores: entry.fair_cores,
        extra_cores: entry.extra_cores,
        earned_seconds: case.in_own_share(entry.earned),
        charged_seconds: case.in_own_share(entry.charged),
        burst_seconds: case.burst_seconds(index),
        spenders: spenders.iter().map(|it| case.nodes[*it].path.to_string()).collect(),
        due_cores: due.filter(|_| !spenders.is_empty()),
        pays_seconds,
        reason: String::new(),
    };
    step.reason = case.reason(&step, &terms);
    Some(step)
}

struct Case<'a> {
    trace: &'a Trace,
    nodes: &'a [TreeNode],
    index: usize,
    record: &'a Record,
}

impl Case<'_> {
    fn node(&self) -> &TreeNode {
        &self.nodes[self.index]
    }

    fn in_own_share(&self, share_seconds: f64) -> f64 {
        match self.record.credit.entry.fair_cores {
            fair if fair > 0.0 => share_seconds * self.trace.capacity[CPU] / fair,
            _ => 0.0,
        }
    }

    /// Time that the bank of a node covers while it uses all of its raised weight.
    fn burst_seconds(&self, index: usize) -> Option<f64> {
        let credit = &self.trace.records.get(index)?.credit;
        let extra = credit.entry.extra_cores / self.trace.capacity[CPU].max(f64::MIN_POSITIVE);
        (extra > 0.0 && credit.account.bank > 0.0).then(|| credit.account.bank / extra)
    }

    /// Siblings, of it or of a group above it, that spend credit at its cost.
    fn spenders(&self) -> Vec<usize> {
        let target = &self.record.target;
        let Some(due) = target.cores_after_loans else { return Vec::new() };
        if due >= target.allocation[CPU] * WHOLE_RATIO {
            return Vec::new();
        }
        let up = |index: &usize| self.nodes[*index].parent;
        let path: Vec<usize> = std::iter::successors(Some(self.index), up).collect();
        let spends = |index: &usize| {
            let Some(record) = self.trace.records.get(*index) else { return false };
            let is_beside =
                path.iter().any(|own| self.nodes[*own].parent == self.nodes[*index].parent);
            let has_more = record.target.due_cores() > record.target.allocation[CPU];
            is_beside && !path.contains(index) && record.credit.account.factor > 1.0 && has_more
        };
        (0..self.nodes.len()).filter(spends).collect()
    }

    fn reason(&self, step: &CreditStep, terms: &CreditsPolicy) -> String {
        let (bank, cap) = (step.bank_seconds.max(0.0), step.cap_seconds);
        if let (Some(due), [_, ..]) = (step.due_cores, &step.spenders[..]) {
            let (names, cores) = (step.spenders.join(", "), self.record.target.allocation[CPU]);
            let verb = if step.spenders.len() == 1 { "spends" } else { "spend" };
            let until = step
                .pays_seconds
                .map_or(String::new(), |it| format!(" for at most {it:.0} s more"));
            return format!(
                "{names} {verb} credit: it gets {due:.2} of its {cores:.2} CPUs{until}"
            );
        }
        let has = format!("{bank:.0} s of its share in the bank (of {cap:.0} s)");
        let lasting = match step.burst_seconds {
            Some(seconds) => format!("a burst spends that in {seconds:.0} s"),
            None => "a burst spends that".to_string(),
        };
        let kept = format!("siblings keep {:.0} % of their shares", terms.keep * 100.0);
        let factor = if step.is_on { step.factor } else { step.offered_factor };
        match (step.is_on, factor > 1.0) {
            (true, true) => {
                format!("{has}: its weight is {factor:.1} times as much until {lasting}; {kept}")
            }
            (false, true) => format!(
                "control.credits is off. With it: {has}, and {factor:.1} times the weight until {lasting}; {kept}"
            ),
            (true, false) => format!("{has}; its weight is not raised: {}", self.obstacle(bank)),
            (false, false) => format!(
                "control.credits is off. With it: {has}; its weight would not be raised: {}",
                self.obstacle(bank)
            ),
        }
    }

    /// Reason for a weight that is not raised.
    fn obstacle(&self, bank_seconds: f64) -> &'static str {
        let (node, entry) = (self.node(), &self.record.credit.entry);
        let is_alone = self.nodes.iter().filter(|it| it.parent == node.parent).count() == 1;
        let used = self.trace.usage(self.record).map(|usage| usage.cpu_cores);
        let uses_share = used.is_some_and(|used| used >= WHOLE_RATIO * entry.fair_cores);
        if !node.has_credit {
            "`credits: false` excludes it"
        } else if is_alone {
            "it has no siblings"
        } else if self.record.width.cpus.is_some() {
            "it has CPUs of its own"
        } else if self.record.target.lent_cores != 0.0 || self.record.target.net_lent_cores != 0.0 {
            "its jobs wait for slots, or hold those that others wait for"
        } else if node.is_leaf && used.is_none() {
            "its use is not measured"
        } else if self.is_over() {
            "it holds more memory than its share while another tenant lacks memory"
        } else if bank_seconds >= 1.0 {
            "what it has is too little for a burst, or its siblings have credit, guarantees or a tiny weight and can give nothing"
        } else if entry.fair_cores > 0.0 && uses_share {
            "it uses its share itself"
        } else if !self.is_busy() {
            "credit is earned while at least 90 % of the CPUs are in use"
        } else if entry.earned > 0.0 {
            "it is earning"
        } else {
            "no sibling uses what it leaves, or it has wanted nothing lately"
        }
    }

    fn is_over(&self) -> bool {
        let is_scarce = |record: &Record| record.target.scarce[MEMORY];
        let others = self.trace.records.iter().take(self.nodes.len()).enumerate();
        let mut others = others.filter(|(index, _)| *index != self.index);
        let held = self.trace.usage(self.record).and_then(|usage| usage.held[MEMORY]);
        held.is_some_and(|held| held > self.record.target.burst[MEMORY])
            && others.any(|(_, record)| is_scarce(record))
    }

    fn is_busy(&self) -> bool {
        let used = |(node, record): (&TreeNode, &Record)| {
            if node.is_leaf {
                self.trace.usage(record).map_or(0.0, |usage| usage.cpu_cores)
            } else {
                0.0
            }
        };
        let used: f64 = self.nodes.iter().zip(&self.trace.records).map(used).sum();
        used >= BUSY_RATIO * self.trace.capacity[CPU]
    }
}

/// CPUs that each node would keep during bursts of its siblings; its fair share without such siblings.
pub fn kept_cores<'a>(
    nodes: &[TreeNode],
    credits: impl Iterator<Item = &'a Credit> + Clone,
) -> Vec<f64> {
    let mut levels: Vec<f64> = Vec::with_capacity(nodes.len());
    for (node, credit) in nodes.iter().zip(credits.clone()) {
        let above = node.parent.map_or(1.0, |parent| levels[parent]);
        let is_raised = credit.entry.offered_factor > 1.0;
        levels.push(above * if is_raised { 1.0 } else { credit.entry.others_level.min(1.0) });
    }
    let kept = |((node, credit), level): ((&TreeNode, &Credit), f64)| {
        let fair = credit.entry.fair_cores;
        (fair * level).max(node.guarantee[CPU].unwrap_or(0.0)).min(fair)
    };
    nodes.iter().zip(credits).zip(levels).map(kept).collect()
}
