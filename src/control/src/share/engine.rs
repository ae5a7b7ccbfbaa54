//! Effect of CPU weights under a scheduler that is loaded through sched_ext.
//!
//! **Problem.** Such a scheduler decides itself about the meaning of `cpu.weight`, and no file contains its decision. So the
//! meaning is inferred from the CPU time that competing tenants get.
//!
//! **Terms.** *Contenders* are sibling cgroups whose tasks wait for CPU time throughout an interval. The *part* of one is its CPU
//! time over that of all contenders. Each [`Meaning`] predicts the parts: in proportion to the weight, to weight × threads, or to
//! threads, and no more CPUs than threads.
//!
//! **Rule.** An interval speaks for a meaning if its prediction is off by at most [`FIT_MAX`], and every other one by
//! [`APART_MIN`] more. Two such intervals in a row make a verdict. Others, in which tenants do not compete or all meanings predict
//! the same, change nothing.
//!
//! **Properties** (below, and `tests/agent/engine.rs` on simulated schedulers): a verdict comes with the second interval, and
//! noise of less than half of [`APART_MIN`] never makes a false one.

use crate::share::govern;
use crate::tick::control_loop::ControlLoop;
use crate::words::knob::{Knob, Value};

/// Largest error of a prediction that fits: the sum of the differences of all parts, halved.
const FIT_MAX: f64 = 0.08;
/// Smallest distance of the other predictions.
const APART_MIN: f64 = 0.08;
/// Intervals that agree before there is a verdict.
const AGREEING: u32 = 2;

/// The object that a CPU weight applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The cgroup, as in the kernel's own scheduler.
    Group,
    /// Each thread of the cgroup: twice the threads get twice the CPU time.
    Thread,
    /// No object: each thread gets the same.
    Nothing,
}

const ALL: [Meaning; 3] = [Meaning::Group, Meaning::Thread, Meaning::Nothing];

/// A cgroup that waited for CPU time throughout an interval.
#[derive(Clone, Copy, Debug)]
pub struct Contender {
    /// Weight in its file.
    pub weight: f64,
    /// Runnable threads, on average.
    pub threads: f64,
    /// CPUs used.
    pub used_cores: f64,
}

/// Evidence about one loaded scheduler.
#[derive(Clone, Copy, Debug, Default)]
pub struct Evidence {
    last: Option<Meaning>,
    nr_agreeing: u32,
    verdict: Option<Meaning>,
}

impl Evidence {
    /// Adds the contenders of an interval, in sets of siblings.
    pub fn add(&mut self, sets: &[Vec<Contender>]) {
        let Some(meaning) = sets.iter().find_map(|set| fitting(set)) else { return };
        self.nr_agreeing = if self.last == Some(meaning) { self.nr_agreeing + 1 } else { 1 };
        self.last = Some(meaning);
        if self.nr_agreeing >= AGREEING {
            self.verdict = Some(meaning);
        }
    }

    /// The meaning of weights, once it is known.
    pub fn verdict(&self) -> Option<Meaning> {
        self.verdict
    }
}

/// Contenders of the last interval, by set of siblings. A set has at least two.
pub fn contenders(control: &ControlLoop) -> Vec<Vec<Contender>> {
    let (tree, states) = (control.tree(), control.states());
    let contender = |at: &usize| {
        let state = &states[*at];
        let usage = state.usage.as_ref().filter(|usage| !usage.throttled)?;
        let Some(Value::Weight(weight)) = state.observed(Knob::CpuWeight) else { return None };
        let threads = usage.wanted_cores.filter(|threads| *threads > usage.cpu_cores)?;
        let takes_part = state.is_governed && state.is_pressed() && usage.cpu_cores > 0.0;
        takes_part.then_some(Contender { weight: *weight, threads, used_cores: usage.cpu_cores })
    };
    let sets = govern::sets_of_siblings(tree).into_iter();
    let sets = sets.map(|(_, members)| members.iter().filter_map(contender).collect::<Vec<_>>());
    sets.filter(|set| set.len() > 1).collect()
}

/// The meaning that an interval speaks for.
fn fitting(set: &[Contender]) -> Option<Meaning> {
    let mut errors = ALL.map(|meaning| (error(set, meaning), meaning));
    errors.sort_by(|a, b| a.0.total_cmp(&b.0));
    let [(least, meaning), (next, _), _] = errors;
    (least <= FIT_MAX && next >= least + APART_MIN).then_some(meaning)
}

/// Error of a prediction, 0 ..= 1.
fn error(set: &[Contender], meaning: Meaning) -> f64 {
    let all: f64 = set.iter().map(|it| it.used_cores).sum();
    let predicted = predicted(set, meaning, all);
    let differences = set.iter().zip(predicted).map(|(it, cores)| (it.used_cores - cores).abs());
    differences.sum::<f64>() / (2.0 * all)
}

/// CPUs of each contender if all `cores` are divided with this meaning, and none has more than one per thread.
fn predicted(set: &[Contender], meaning: Meaning, cores: f64) -> Vec<f64> {
    let claim = |it: &Contender| match meaning {
        Meaning::Group => it.weight,
        Meaning::Thread => it.weight * it.threads,
        Meaning::Nothing => it.threads,
    };
    // Those whose threads are all on a CPU come first.
    let mut order: Vec<usize> = (0..set.len()).collect();
    let need = |at: &usize| set[*at].threads / claim(&set[*at]);
    order.sort_by(|a, b| need(a).total_cmp(&need(b)));
    let (mut left, mut claims) = (cores, set.iter().map(claim).sum::<f64>());
    let mut predicted = vec![0.0; set.len()];
    for at in order {
        predicted[at] = (left * claim(&set[at]) / claims).min(set[at].threads);
        left -= predicted[at];
        claims -= claim(&set[at]);
    }
    predicted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Contenders with these weights and threads on four CPUs that are divided with this meaning.
    fn set(meaning: Meaning, contenders: &[(f64, f64)]) -> Vec<Contender> {
        let contender = |&(weight, threads)| Contender { weight, threads, used_cores: 0.0 };
        let set: Vec<Contender> = contenders.iter().map(contender).collect();
        let used = predicted(&set, meaning, 4.0);
        set.into_iter().zip(used).map(|(it, used_cores)| Contender { used_cores, ..it }).collect()
    }

    #[test]
    fn the_second_interval_makes_the_verdict() {
        for meaning in ALL {
            let mut evidence = Evidence::default();
            let sets = [set(meaning, &[(100.0, 8.0), (300.0, 16.0), (100.0, 4.0)])];
            evidence.add(&sets);
            assert_eq!(evidence.verdict(), None);
            evidence.add(&[]);
            evidence.add(&sets);
            assert_eq!(evidence.verdict(), Some(meaning));
        }
    }

    #[test]
    fn equal_predictions_prove_nothing() {
        let mut evidence = Evidence::default();
        for meaning in ALL {
            // The same weight and the same threads, and few threads that all run.
            let sets = [
                set(meaning, &[(100.0, 8.0), (100.0, 8.0)]),
                set(meaning, &[(100.0, 1.0), (300.0, 1.0)]),
            ];
            (0..5).for_each(|_| evidence.add(&sets));
        }
        assert_eq!(evidence.verdict(), None);
    }

    #[test]
    fn noise_makes_no_false_verdict() {
        for meaning in ALL {
            for (noise, step) in [(0.1, 1.0_f64), (-0.1, 0.5)] {
                let mut evidence = Evidence::default();
                for (weight, threads) in [(300.0, 8.0), (100.0, 24.0), (200.0, 12.0), (400.0, 4.0)]
                {
                    let mut set = set(meaning, &[(100.0, 8.0), (weight, threads)]);
                    let moved = noise * step;
                    set[0].used_cores += moved;
                    set[1].used_cores -= moved;
                    evidence.add(&[set]);
                    assert!(evidence.last.is_none_or(|it| it == meaning));
                }
            }
        }
    }

    #[test]
    fn another_scheduler_changes_the_verdict() {
        let mut evidence = Evidence::default();
        let contenders = [(100.0, 8.0), (300.0, 16.0)];
        (0..9).for_each(|_| evidence.add(&[set(Meaning::Nothing, &contenders)]));
        (0..2).for_each(|_| evidence.add(&[set(Meaning::Group, &contenders)]));
        assert_eq!(evidence.verdict(), Some(Meaning::Group));
    }
}
