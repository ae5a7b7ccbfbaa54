//! One tick: sample, decide, act, publish.
//!
//! All that is decided is decided by the pure functions of [`crate::control`]; this file carries values from
//! the host to them and their actions back. One bad tenant never stops the tick: what went wrong with it
//! becomes a finding, and its last decision stands.

use std::sync::Arc;
use std::time::Duration;

use tracing::debug;

use super::agent::{Agent, Retry, Slot};
use super::effect;
use super::enforce::EnforceError;
use super::record::Moment;
use crate::control::demand::{self, Context, Demand};
use crate::control::fairness::Measured;
use crate::control::plan::{Action, Knob, Value};
use crate::control::sample::HostSample;
use crate::control::status::Status;
use crate::control::target;
use crate::control::tree::{CPU, MEMORY};
use crate::control::usage;
use crate::host::cgroup;
use crate::host::kernfs::KernFs;
use crate::host::process;

/// Every so many ticks the files are read again, to see whether someone else wrote there.
pub(super) const VERIFY_TICKS: u64 = 10;
/// Every so many ticks new processes are looked for.
const CLAIM_TICKS: u64 = 5;
/// Tenants with more threads than this are judged by their pressure alone.
const THREADS_MAX: usize = 256;
/// A failed write is tried again after 1, 2, 4 … at most this many ticks.
const RETRY_TICKS_MAX: u64 = 64;
/// ... and for sets of CPUs.
const RETRY_CPUS_TICKS_MAX: u64 = 4;
/// When this many processes have been moved, records of those that ended are dropped.
const MOVED_MAX: usize = 1024;

impl<K: KernFs> Agent<K> {
    /// One tick at time `now` (since any fixed instant); returns what was decided and done.
    pub fn tick(&mut self, now: Duration) -> &Status {
        let mut findings = self.standing.clone();
        findings.extend(self.notice.clone());
        let tick = self.status.tick + 1;
        self.hear(tick, &mut findings);
        self.attach(tick, &mut findings);
        if self.enforcing {
            self.check_effect(tick, now, &mut findings);
            if tick % CLAIM_TICKS == 1 {
                self.claim(&mut findings);
            }
        }
        let host = match self.machine.sample(&mut self.kernel) {
            Ok(host) => host,
            Err(error) => {
                // Without the size of the machine nothing can be divided: all decisions stand.
                findings.push(error.to_string());
                self.say(&findings, now);
                let status = Arc::make_mut(&mut self.status);
                (status.tick, status.findings) = (tick, findings);
                status.actions.clear();
                return &self.status;
            }
        };
        let before = self.last.replace((now, host));
        let elapsed = before.map(|(then, _)| now.saturating_sub(then));
        self.sample(tick, elapsed, &mut findings);
        let (capacity, outside) = self.capacity(host, before.map(|(_, host)| host), elapsed);
        self.estimate(host, elapsed);
        self.decide(capacity);
        self.judge(capacity, elapsed);
        self.watch_topology(&mut findings);
        self.widen(host.nr_cpus, now, &mut findings);
        if self.enforcing {
            self.follow(&mut findings);
            self.tell(&mut findings);
            self.keep_placement(&mut findings);
        }
        let nr_drift = self.status.nr_drift + self.observe(tick, &mut findings);
        let (knobs, actions, top) = self.plan();
        self.name_units();
        let shown = self.show(&actions);
        if self.enforcing {
            self.apply(tick, &actions, top, &mut findings);
        }
        let moment = Moment { tick, now, elapsed, capacity, host };
        self.record(&moment, knobs, &actions);
        self.say(&findings, now);
        self.status = Arc::new(Status {
            tick,
            mode: self.mode(),
            interval_seconds: self.policy.control.interval.as_secs_f64(),
            host: self.host_status(host, capacity, outside),
            tenants: self.tenant_statuses(),
            actions: shown,
            jain_index: self.jain_index(),
            max_share_error: self.max_share_error(),
            convergence_seconds: self.spell.length().map(|length| length.as_secs_f64()),
            nr_drift,
            nr_ineffective: self.nr_ineffective(),
            nr_reloads: self.nr_reloads,
            agent: self.status.agent,
            findings,
        });
        &self.status
    }

    /// What is written and cannot take effect.
    fn check_effect(&mut self, tick: u64, now: Duration, findings: &mut Vec<String>) {
        if tick % VERIFY_TICKS == 1 {
            self.look_above(now);
        }
        findings.extend(self.above.findings());
        findings.extend(self.foreign_scheduler.clone());
        for (node, slot) in self.nodes.iter().zip(&self.slots) {
            let missing = slot.cgroup.as_ref().and_then(effect::missing_files);
            findings.extend(missing.map(|missing| format!("{}: {missing}", node.path)));
        }
    }

    /// Moves the processes that the policy gives to a tenant into its cgroup.
    fn claim(&mut self, findings: &mut Vec<String>) {
        let proc = self.machine.proc();
        let claims = process::own_pid(&mut self.kernel, proc).and_then(|own| {
            process::claims(&mut self.kernel, proc, &self.layout, &self.claim_rules, own)
        });
        let claims = match claims {
            Ok(claims) => claims,
            Err(error) => return findings.push(error.to_string()),
        };
        for claim in &claims {
            let Some(cgroup) = self.slots[claim.node].cgroup.take() else { continue };
            let outcome = self.enforcer().claim(claim, &cgroup);
            self.slots[claim.node].cgroup = Some(cgroup);
            if let Err(error) = outcome {
                let tenant = &self.nodes[claim.node].path;
                findings.push(format!("{tenant}: process {} not claimed: {error}", claim.pid));
            }
        }
        if self.journal.nr_moved() > MOVED_MAX
            && let Err(error) = self.enforcer().forget_ended(proc)
        {
            findings.push(error.to_string());
        }
    }

    /// Samples every leaf and turns its last two samples into rates.
    fn sample(&mut self, tick: u64, elapsed: Option<Duration>, findings: &mut Vec<String>) {
        for index in 0..self.nodes.len() {
            if !self.nodes[index].is_leaf {
                continue;
            }
            let Some(cgroup) = self.slots[index].cgroup.take() else { continue };
            let mut gaps = Vec::new();
            let before = self.slots[index].sample.as_ref();
            // Whoever was the last one there may have been killed; and somebody may have come and been killed
            // between two ticks.
            let asks_for_kills = before.is_none_or(|before| before.populated != Some(false))
                || (tick + index as u64).is_multiple_of(VERIFY_TICKS);
            let sample = cgroup.sample(&mut self.kernel, &mut gaps).and_then(|mut sample| {
                if sample.populated != Some(false) && self.slots[index].looks_pressed() {
                    let proc = self.machine.proc();
                    let (kernel, layout) = (&mut self.kernel, &self.layout);
                    let tids = cgroup.threads(kernel, layout, THREADS_MAX, &mut gaps)?;
                    sample.threads = tids.map(|tids| cgroup::thread_samples(kernel, proc, &tids));
                }
                let kills = match sample.populated {
                    Some(false) if asks_for_kills => {
                        cgroup.oom_kills(&mut self.kernel, &mut gaps)?
                    }
                    Some(false) => None,
                    _ => sample.memory.and_then(|memory| memory.nr_oom_kills),
                };
                if let Some(kills) = kills {
                    self.slots[index].oom_kills.note(sample.generation, kills);
                }
                Ok(sample)
            });
            let path = &self.nodes[index].path;
            findings.extend(gaps.iter().map(|gap| format!("{path}: {gap}")));
            let slot = &mut self.slots[index];
            slot.cgroup = Some(cgroup);
            match sample {
                Ok(sample) => {
                    slot.retire_sample();
                    let before = slot.sample.replace(sample);
                    slot.usage =
                        before.as_ref().zip(slot.sample.as_ref()).zip(elapsed).and_then(
                            |((before, now), elapsed)| usage::usage(before, now, elapsed),
                        );
                }
                Err(error) => self.lose(index, &format!("it went away: {error}"), findings),
            }
        }
    }

    /// What can be divided, and what processes outside every tenant use of the CPUs.
    fn capacity(
        &self,
        host: HostSample,
        before: Option<HostSample>,
        elapsed: Option<Duration>,
    ) -> ([f64; 2], Option<f64>) {
        let usages = || self.slots.iter().filter_map(|slot| slot.usage.as_ref());
        let used: f64 = usages().map(|usage| usage.cpu_cores).sum();
        let outside = before
            .zip(elapsed)
            .and_then(|(before, elapsed)| usage::outside_cores(&before, &host, elapsed, used));
        let tenants_memory: f64 = usages().filter_map(|usage| usage.working_set_bytes).sum();
        let total = host.memory_total_bytes as f64;
        let outside_memory = host
            .memory_available_bytes
            .map_or(0.0, |available| (total - available as f64 - tenants_memory).max(0.0));
        let reserve = self.policy.host.reserve;
        let reserve = [reserve.cpu.cores(), reserve.memory.0 as f64];
        // What the reserve already covers is not taken off twice.
        let outside_vector = [
            (outside.unwrap_or(0.0) - reserve[CPU]).max(0.0),
            (outside_memory - reserve[MEMORY]).max(0.0),
        ];
        let machine = [f64::from(host.nr_cpus), total];
        (target::capacity(machine, reserve, outside_vector, &self.nodes), outside)
    }

    /// Estimates every leaf's demand; one without rates keeps its last.
    fn estimate(&mut self, host: HostSample, elapsed: Option<Duration>) {
        self.slots.iter_mut().for_each(|slot| slot.context = None);
        let Some(elapsed) = elapsed else { return };
        for (node, slot) in self.nodes.iter().zip(&mut self.slots) {
            let (true, Some(usage)) = (node.is_leaf, &slot.usage) else { continue };
            let max = |resource: usize, machine: f64| {
                node.limit[resource].unwrap_or(f64::INFINITY).min(machine)
            };
            let context = Context {
                allocation_cores: slot.target.allocation[CPU],
                guarantee_cores: node.guarantee[CPU].unwrap_or(0.0),
                max_cores: max(CPU, f64::from(host.nr_cpus)),
                max_memory_bytes: max(MEMORY, host.memory_total_bytes as f64),
                last: slot.demand,
            };
            slot.demand = Some(demand::estimate(usage, &context, elapsed));
            slot.context = Some(context);
        }
    }

    /// Divides the machine.
    fn decide(&mut self, capacity: [f64; 2]) {
        let demands: Vec<Demand> =
            self.slots.iter().map(|slot| slot.demand.unwrap_or_default()).collect();
        let rule = self.policy.control.allocation;
        let targets = target::targets(&self.nodes, &demands, capacity, rule);
        for (slot, target) in self.slots.iter_mut().zip(targets) {
            slot.target = target;
        }
    }

    /// Measures how far what the tenants got is from what they were entitled to.
    fn judge(&mut self, capacity: [f64; 2], elapsed: Option<Duration>) {
        let Some(elapsed) = elapsed else { return };
        let mut worst: f64 = 0.0;
        for slot in &mut self.slots {
            let Some(measured) = slot.measured() else {
                slot.share_error = None;
                continue;
            };
            let error = measured.share_error(capacity[CPU]);
            slot.share_error = Some(error);
            worst = worst.max(error);
            if measured.is_starved() {
                slot.starved += elapsed;
            }
        }
        self.spell.step(worst, elapsed);
    }

    /// Executes the plan; a failed action is retried with growing pauses, and stops nothing else.
    fn apply(
        &mut self,
        tick: u64,
        actions: &[Action],
        top: Option<Action>,
        findings: &mut Vec<String>,
    ) {
        // Protection grows from above and shrinks from below.
        let (first, last): (Vec<Action>, Vec<Action>) =
            top.into_iter().partition(|top| !top.shrinks());
        self.order(tick, &[&first[..], actions, &last[..]].concat());
        for action in actions {
            if self.units.owns(action.node) {
                continue;
            }
            let slot = &mut self.slots[action.node];
            if slot.retries.iter().any(|r| r.knob == action.knob && r.at_tick > tick) {
                continue;
            }
            let Some(cgroup) = slot.cgroup.take() else { continue };
            if !cgroup.has(&self.layout, action.knob) {
                slot.cgroup = Some(cgroup);
                continue;
            }
            let outcome = self.enforcer().apply(action, &cgroup);
            let slot = &mut self.slots[action.node];
            slot.cgroup = Some(cgroup);
            slot.settle(action, tick, &outcome);
            let tenant = &self.nodes[action.node].path;
            match outcome {
                Ok(_) => {
                    let (resource, reason) = (action.knob.resource(), &action.reason);
                    let file = self.layout.dialect.file(action.knob);
                    debug!(tenant, resource, action = "write", "{file}: {}: {reason}", action.to);
                }
                Err(error) if error.is_gone() => self.lose_if_gone(action.node, findings),
                // Said with the others that wait.
                Err(_) => {}
            }
        }
        for (name, slot) in self.named_slots() {
            let mut messages: Vec<&String> =
                slot.retries.iter().filter_map(|retry| retry.message.as_ref()).collect();
            // What systemd says of a unit it says of each of its values.
            messages.dedup();
            findings.extend(messages.iter().map(|message| format!("{name}: {message}")));
        }
    }

    /// Tells every tenant its width.
    fn tell(&mut self, findings: &mut Vec<String>) {
        let Some(publisher) = &mut self.publisher else { return };
        for (node, slot) in self.nodes.iter().zip(&self.slots) {
            if let Some(dop) = slot.breadth.dop()
                && let Err(error) = publisher.tell(&node.path, dop)
            {
                findings.push(format!("{}: cannot tell it its width: {error}", node.path));
            }
        }
    }

    /// Logs findings that are new, and those that are gone.
    fn say(&mut self, findings: &[String], now: Duration) {
        self.said.tell(findings, now, self.nodes.iter().map(|node| node.path.as_str()));
    }
}

impl Slot {
    /// Whether the threads are worth a look: some task waited in the last interval, or nobody can tell.
    pub(super) fn looks_pressed(&self) -> bool {
        self.usage
            .as_ref()
            .is_some_and(|usage| demand::is_pressed(usage, self.target.allocation[CPU]))
    }

    /// What the last interval came to for it; `None` without rates.
    pub(super) fn measured(&self) -> Option<Measured> {
        let (usage, demand) = (self.usage.as_ref()?, self.demand?);
        Some(Measured {
            used_cores: usage.cpu_cores,
            pressed: self.looks_pressed(),
            demand_cores: demand.cpu_cores,
            allocation_cores: self.target.allocation[CPU],
            fair_share_cores: self.target.burst_cores,
        })
    }

    /// Remembers what an action came to.
    pub(super) fn settle(
        &mut self,
        action: &Action,
        tick: u64,
        outcome: &Result<Value, EnforceError>,
    ) {
        let failures = self.retries.iter().find(|r| r.knob == action.knob).map(|r| r.nr_failures);
        self.retries.retain(|retry| retry.knob != action.knob);
        self.observed.retain(|(knob, _)| *knob != action.knob);
        match outcome {
            Ok(found) => self.observed.push((action.knob, found.clone())),
            Err(error) => {
                self.observed.extend(action.from.clone().map(|from| (action.knob, from)));
                let nr_failures = failures.unwrap_or(0).saturating_add(1);
                let pause_max = match action.knob {
                    // Not a value but a place to run: it is wrong again whenever a CPU goes away.
                    Knob::Cpus => RETRY_CPUS_TICKS_MAX,
                    _ => RETRY_TICKS_MAX,
                };
                let pause = (1_u64 << nr_failures.min(7).saturating_sub(1)).min(pause_max);
                // A file that is not there was said when the cgroup was opened.
                let message = (!error.is_gone()).then(|| error.to_string());
                let deferred = matches!(error, EnforceError::Deferred(_));
                let retry = Retry {
                    knob: action.knob,
                    nr_failures,
                    at_tick: tick + pause,
                    deferred,
                    message,
                };
                self.retries.push(retry);
            }
        }
    }
}
