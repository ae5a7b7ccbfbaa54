//! An agent on one host: its parts, and what others read of them.
//!
//! An [`Agent`] owns a kernel (real or simulated), a policy and a journal. It reads no clock: [`Agent::tick`]
//! takes the time as an argument. The control loop decides, the backends find the cgroups of tenants, and the
//! reporter writes for readers. The agent passes values between them.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::deaths::Deaths;
use super::divide::DividedDisks;
use super::names::Names;
use super::victims::Victims;
use crate::jobs::outcome;
use crate::jobs::reply::JobAnswer;
use crate::jobs::room::JobRoom;
use crate::jobs::summary;
use crate::jobs::watch::Watch;
use crate::tenants::state::Tenants;
use tenantd_control::report::status::{AgentStatus, Status};
use tenantd_control::report::trace::Trace;
use tenantd_control::tick::event::Witness;
use tenantd_control::tree::TreeNode;
use tenantd_control::words::finding::Finding;
use tenantd_control::words::jobs::reason_of_slots;
use tenantd_core::resource::CPU;
use tenantd_dop::Topology;
use tenantd_host::cgroup::{Facet, Layout};
use tenantd_host::kernfs::KernFs;
use tenantd_host::notify::Notifier;
use tenantd_policy::accounts::Accounts;
use tenantd_policy::model::{Amount, Mode, Policy, Victims as VictimsRule};
use tenantd_varlink::bridge::{Caller, Submission, Ticket};
use tenantd_varlink::jobs::{FinishedJob, ListReply, ReportParameters};
use tenantd_varlink::own_view::Claimants;
use tenantd_varlink::prekill::Notice;

/// The agent of one host.
#[derive(Debug)]
pub struct Agent<K> {
    pub(super) tenants: Tenants<K>,
    pub(super) names: Names,
    pub(super) jobs: JobRoom,
    pub(super) victims: Victims,
    pub(super) deaths: Deaths,
    pub(super) disks: DividedDisks,
}

impl<K: KernFs> Agent<K> {
    /// Reports every change of the control loop to `witness`; `None` stops that.
    pub fn record(&mut self, witness: Option<Box<dyn Witness>>) {
        self.tenants.control.record(witness);
    }

    /// Directory of the recording, as an absolute path; `None` if nothing is recorded.
    pub fn history(&self) -> Option<&str> {
        self.tenants.control.place()
    }

    /// Mount of the cgroups of which systemd-oomd gives notice; `None` if these are not wanted, or there is no such mount.
    pub fn wants_notices(&self) -> Option<&Path> {
        let layout = &self.tenants.host.layout;
        let rule = self.tenants.base.written.memory.victims;
        let is_wanted = rule == VictimsRule::Share && layout.is_unified();
        layout.tree(Facet::Memory).filter(|_| is_wanted).map(|at| &*layout.trees[at].mount)
    }

    /// Takes a notice of systemd-oomd before a kill.
    pub fn note_kill(&mut self, notice: Notice) {
        self.deaths.note(&mut self.tenants, &self.jobs, notice);
    }

    /// The status of the last tick.
    pub fn status(&self) -> &Status {
        self.tenants.reporter.status()
    }

    /// The status of the last tick, shared.
    pub fn shared_status(&self) -> Arc<Status> {
        Arc::clone(self.tenants.reporter.status())
    }

    /// Sets the wall-clock time (RFC 3339 in UTC) and the host name in the status of the last tick.
    pub fn stamp(&mut self, time: String, host_name: &str) {
        self.tenants.reporter.amend(|status| {
            status.time = Some(time);
            host_name.clone_into(&mut status.host.name);
        });
    }

    /// Inputs and steps of the last tick, enough to explain any of its values.
    pub fn trace(&self) -> &Arc<Trace> {
        self.tenants.reporter.trace()
    }

    /// Records the agent's own cost, published with the status of the last tick.
    pub fn note_cost(&mut self, cost: AgentStatus) {
        self.tenants.reporter.note_cost(cost);
    }

    /// The accounts of the host.
    pub fn accounts(&self) -> &Accounts {
        &self.tenants.options.accounts
    }

    /// The kernel, for a simulation that moves its time.
    pub fn kernel_mut(&mut self) -> &mut K {
        &mut self.tenants.host.kernel
    }

    pub(crate) fn set_notice(&mut self, notice: Option<Finding>) {
        self.tenants.reporter.set_notice(notice);
    }

    /// Sends watchdog notifications through `notifier` during long restorations.
    pub fn supervised_by(&mut self, notifier: Arc<Notifier>) {
        self.tenants.host.notifier = notifier;
    }

    /// Mounts and roots of the cgroup trees.
    pub fn layout(&self) -> &Layout {
        &self.tenants.host.layout
    }

    /// The nodes of the policy, in pre-order.
    pub fn nodes(&self) -> &[TreeNode] {
        self.tenants.nodes()
    }

    /// The machine's CPUs; `None` if they could not be read.
    pub fn topology(&self) -> Option<&Topology> {
        self.tenants.control.topology()
    }

    /// `Enforce` if values are written.
    pub fn mode(&self) -> Mode {
        self.tenants.mode()
    }

    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        &self.tenants.base.written
    }

    /// The policy in force, shared.
    pub fn shared_policy(&self) -> Arc<Policy> {
        Arc::clone(&self.tenants.base.written)
    }

    /// First tenant that claims each user and each group.
    pub fn claimants(&self) -> Arc<Claimants> {
        Arc::clone(&self.tenants.base.claimants)
    }

    /// Submits the calling client as a job. `now` is in seconds of a clock that keeps running between two
    /// agents. The job may start at [`Agent::settle_job_calls`]; [`Agent::take_job_answers`] returns its
    /// answers.
    pub fn submit_job(&mut self, ticket: Ticket, submission: &Submission, now: f64) {
        self.jobs.submit(&mut self.tenants, ticket, submission, now);
    }

    /// Starts the jobs that may start after a batch of calls, and answers the waiting jobs of that batch.
    pub fn settle_job_calls(&mut self, now: f64) {
        self.jobs.settle_calls(&mut self.tenants, now);
    }

    /// Handles a closed connection. Clients of started jobs close theirs too: they execute the command.
    pub fn job_client_left(&mut self, ticket: Ticket, now: f64) {
        self.jobs.client_left(ticket, now);
    }

    /// Answers a request to end a job.
    pub fn cancel_job(&mut self, ticket: Ticket, id: u64, caller: Caller, now: f64) {
        self.jobs.cancel(&mut self.tenants.host, ticket, id, caller, now);
    }

    /// Answers at the end of a job.
    pub fn wait_for_job(&mut self, ticket: Ticket, id: u64, caller: Caller) {
        outcome::wait(&mut self.jobs, ticket, id, caller);
    }

    /// Records the exit status of a supervised job.
    pub fn report_job(&mut self, ticket: Ticket, report: ReportParameters, caller: Caller) {
        outcome::report(&mut self.jobs, ticket, report, caller);
    }

    /// Returns the finished jobs, oldest first, if they have changed since the last call.
    pub fn take_finished_jobs(&mut self) -> Option<Vec<Arc<FinishedJob>>> {
        outcome::take_finished(&mut self.jobs)
    }

    /// Makes the kernel wake the agent for its jobs; `add` registers the descriptor to poll.
    pub(crate) fn watch_jobs(
        &mut self,
        add: impl FnOnce(&Watch) -> io::Result<()>,
    ) -> io::Result<()> {
        self.jobs.begin_watch(add)
    }

    /// Returns the pending answers to clients.
    pub fn take_job_answers(&mut self) -> Vec<(Ticket, JobAnswer)> {
        std::mem::take(&mut self.jobs.outbox)
    }

    /// Adds the jobs to the status of the last tick.
    pub fn note_jobs(&mut self, now: f64) {
        let Agent { tenants, jobs, .. } = self;
        if jobs.admission.is_unused() {
            return;
        }
        let (settings, machine) = (tenants.control.settings(), tenants.reporter.trace().machine);
        let nr_usable = |topology: &Topology| topology.usable().len() as f64;
        let cpus = tenants.control.topology().map_or(machine[CPU], nr_usable);
        let reserve = Amount::of_each(&tenants.base.written.host.reserve, machine);
        let slots = jobs.admission.slots();
        let reason = reason_of_slots(slots, cpus, reserve[CPU], settings.oversubscription);
        tenants.reporter.amend(|status| summary::tell(jobs, reason, status, now));
    }

    /// Returns all jobs if a job changed since the last list and that list is old enough.
    pub fn take_job_list(&mut self, now: f64) -> Option<ListReply> {
        self.jobs.take_list(now)
    }

    /// Charges running jobs, records ended ones and starts others. With a tick it measures the machine as well.
    pub fn tend_jobs(&mut self, is_tick: bool, now: f64) {
        self.deaths.collect(&mut self.tenants, &mut self.jobs);
        self.jobs.tend(&mut self.tenants, is_tick, now);
    }
}
