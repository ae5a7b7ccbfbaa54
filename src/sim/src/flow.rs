//! Test whether demands with CPU affinities fit on the CPUs, and the bottleneck otherwise.
//!
//! **Problem.** Each *source* has a supply of CPU time and a set of *sinks* that it may use; each sink (a class
//! of CPUs with the same sources) has a capacity. Do all supplies fit, and if not, which sinks are full?
//!
//! **Algorithm.** Maximum flow by augmenting along shortest paths (Edmonds and Karp 1972). The sources that a
//! search from an unmet supply can reach form the minimum cut; their sinks are full, and their supplies
//! together exceed them (Hall's condition fails there and nowhere worse).

use std::collections::VecDeque;

/// Flow below this is rounding: a billionth of a CPU.
pub(super) const EPSILON: f64 = 1e-9;

#[derive(Clone, Debug)]
pub(super) struct Flow {
    amounts: Vec<Vec<f64>>,
    spare: Vec<f64>,
    /// Sources that do not fit, with every source that competes for the same full sinks. Empty if all fit.
    pub(super) bottleneck: Vec<usize>,
}

impl Flow {
    /// Routes `supplies[s]` of each source over the sinks with `allowed[s][k]`, each of `capacities[k]`.
    pub(super) fn route(supplies: &[f64], allowed: &[Vec<bool>], capacities: &[f64]) -> Flow {
        let mut flow = Flow {
            amounts: vec![vec![0.0; capacities.len()]; supplies.len()],
            spare: capacities.to_vec(),
            bottleneck: Vec::new(),
        };
        for (source, &supply) in supplies.iter().enumerate() {
            let mut unmet = supply;
            while unmet > EPSILON {
                match flow.augmenting_path(source, allowed) {
                    Ok(path) => unmet -= flow.augment(&path, unmet),
                    Err(reached) => {
                        flow.bottleneck = reached;
                        return flow;
                    }
                }
            }
        }
        flow
    }

    pub(super) fn used(&self, capacities: &[f64]) -> Vec<f64> {
        capacities.iter().zip(&self.spare).map(|(capacity, spare)| capacity - spare).collect()
    }

    /// A shortest path `source, sink, source, …, sink` to a sink with room; forward over allowed pairs,
    /// backward over movable flow. Otherwise every reached source.
    fn augmenting_path(
        &self,
        start: usize,
        allowed: &[Vec<bool>],
    ) -> Result<Vec<(usize, usize)>, Vec<usize>> {
        let mut came_from_sink: Vec<Option<usize>> = vec![None; allowed.len()];
        let mut came_from_source: Vec<Option<usize>> = vec![None; self.spare.len()];
        let mut reached = vec![start];
        let mut queue = VecDeque::from([start]);
        while let Some(source) = queue.pop_front() {
            for sink in 0..self.spare.len() {
                if !allowed[source][sink] || came_from_source[sink].is_some() {
                    continue;
                }
                came_from_source[sink] = Some(source);
                if self.spare[sink] > EPSILON {
                    return Ok(trace(start, sink, &came_from_source, &came_from_sink));
                }
                for (other, came_from) in came_from_sink.iter_mut().enumerate() {
                    let is_new = other != start && came_from.is_none();
                    if is_new && self.amounts[other][sink] > EPSILON {
                        *came_from = Some(sink);
                        reached.push(other);
                        queue.push_back(other);
                    }
                }
            }
        }
        Err(reached)
    }

    /// Sends as much as fits, at most `amount`, along pairs of (source, sink) from the end backward.
    fn augment(&mut self, path: &[(usize, usize)], amount: f64) -> f64 {
        let mut sent = amount.min(path.first().map_or(0.0, |&(_, sink)| self.spare[sink]));
        for pair in path.windows(2) {
            // The later source releases flow into the sink that the earlier one of the path fills.
            let ((giving, _), (_, sink)) = (pair[0], pair[1]);
            sent = sent.min(self.amounts[giving][sink]);
        }
        for &(source, sink) in path {
            self.amounts[source][sink] += sent;
        }
        for pair in path.windows(2) {
            let ((giving, _), (_, sink)) = (pair[0], pair[1]);
            self.amounts[giving][sink] -= sent;
        }
        if let Some(&(_, sink)) = path.first() {
            self.spare[sink] -= sent;
        }
        sent
    }
}

/// Pairs of the path, from its last sink back to `start`.
fn trace(
    start: usize,
    last: usize,
    came_from_source: &[Option<usize>],
    came_from_sink: &[Option<usize>],
) -> Vec<(usize, usize)> {
    let mut path = Vec::new();
    let mut sink = last;
    while let Some(source) = came_from_source[sink] {
        path.push((source, sink));
        match came_from_sink[source] {
            Some(earlier) if source != start => sink = earlier,
            _ => break,
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_supply_moves_aside_for_one_with_less_choice() {
        let allowed = [vec![true, true], vec![true, false]];
        let flow = Flow::route(&[1.0, 1.0], &allowed, &[1.0, 1.0]);
        assert!(flow.bottleneck.is_empty());
        assert_eq!(flow.used(&[1.0, 1.0]), [1.0, 1.0]);
    }

    #[test]
    fn the_bottleneck_is_the_full_part_only() {
        let allowed = [vec![false, true], vec![true, false], vec![true, false]];
        let flow = Flow::route(&[0.5, 0.7, 0.7], &allowed, &[1.0, 1.0]);
        let mut bottleneck = flow.bottleneck.clone();
        bottleneck.sort_unstable();
        assert_eq!(bottleneck, [1, 2]);
    }

    #[test]
    fn long_chains_are_rerouted() {
        let n = 6;
        let allowed: Vec<Vec<bool>> =
            (0..n).map(|s| (0..n).map(|k| k == s || k == s + 1).collect()).collect();
        let mut last = allowed.clone();
        last.push((0..n).map(|k| k == 0).collect());
        let flow = Flow::route(&vec![1.0; n], &allowed, &vec![1.0; n]);
        assert!(flow.bottleneck.is_empty());
        let overfull = Flow::route(&vec![1.0; n + 1], &last, &vec![1.0; n]);
        assert_eq!(overfull.bottleneck.len(), n + 1);
    }
}
