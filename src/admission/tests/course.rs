//! A course of events in a queue of jobs, and what is checked after each.

use proptest::prelude::*;
use tenantd_admission::{
    Admission, Capacity, Dispatch, JobId, Measured, Phase, Reason, Request, Rules, Terms,
};
use tenantd_dop::target::Width;
use tenantd_queue::discipline::Name;

pub(super) const GIB: u64 = 1 << 30;
pub(super) const TENANTS: [&str; 4] = ["a", "b", "c/d", "c/e"];

/// Something that happens. Jobs are named by their place among those that are there.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Submit(Request),
    Cancel(usize),
    End(usize),
    LeaveDaemons(usize),
    Charge(usize, f64, u64),
    Pass(f64),
    Outside(u64),
    /// Credit of a tenant, in seconds of the whole machine.
    Lend(usize, f64),
}

pub(super) fn events() -> impl Strategy<Value = Vec<Event>> {
    let width = prop_oneof![
        4 => Just(Width::Auto),
        2 => (1_u64..6).prop_map(Width::AtMost),
        2 => (1_u64..9).prop_map(Width::Manual),
    ];
    let submit = (0..TENANTS.len(), 0_u32..3, 0_u64..12, width, 0_u32..3).prop_map(
        |(tenant, user, gib, width, gpus)| {
            let units = if gpus > 0 { vec![("gpu".to_string(), gpus)] } else { Vec::new() };
            let memory_bytes = gib * GIB;
            Event::Submit(Request {
                memory_bytes,
                width,
                units,
                ..Request::new(TENANTS[tenant], user)
            })
        },
    );
    let event = prop_oneof![
        8 => submit,
        1 => (0_usize..50).prop_map(Event::Cancel),
        5 => (0_usize..50).prop_map(Event::End),
        1 => (0_usize..50).prop_map(Event::LeaveDaemons),
        3 => (0_usize..50, 0.0..20.0, 0_u64..8).prop_map(|(job, cpu, gib)| Event::Charge(job, cpu, gib * GIB)),
        3 => (0.0..5.0).prop_map(Event::Pass),
        1 => (0_u64..6).prop_map(|gib| Event::Outside(gib * GIB)),
        3 => (0..TENANTS.len(), 0.0..20.0).prop_map(|(tenant, seconds)| Event::Lend(tenant, seconds)),
    ];
    prop::collection::vec(event, 1..120)
}

pub(super) fn all_disciplines() -> impl Iterator<Item = Name> {
    Name::ALL.iter().map(|(_, name)| *name)
}

pub(super) fn terms() -> Vec<Terms> {
    let mut terms: Vec<Terms> = TENANTS
        .iter()
        .zip([3.0, 1.0, 0.5, 0.5])
        .map(|(path, weight)| Terms::new(*path, weight))
        .collect();
    terms[0].max_running = Some(3);
    terms[1].max_running_per_user = Some(2);
    terms[2].memory_max_bytes = Some(12 * GIB);
    terms[3].dop_max = Some(2);
    terms
}

pub(super) fn capacity() -> Capacity {
    Capacity { slots: 8, memory_bytes: Some(16 * GIB), units: vec![("gpu".to_string(), 3)] }
}

/// A queue in the middle of a course.
#[derive(Clone, Debug)]
pub(super) struct Course {
    pub(super) admission: Admission,
    pub(super) now: f64,
    pub(super) measured: Measured,
    /// Credit that is left of each tenant.
    pub lent: [f64; TENANTS.len()],
    /// All fees.
    pub(super) fees: f64,
}

impl Course {
    pub(super) fn new(discipline: Name, overtakes_max: u32) -> Course {
        Course::within(Rules { discipline, overtakes_max, ..Rules::default() })
    }

    pub(super) fn within(rules: Rules) -> Course {
        let rules = Rules { max_waiting: 40, ..rules };
        let mut admission = Admission::new(rules, capacity());
        assert_eq!(admission.policy(rules, terms(), 0.0), []);
        let (now, measured, lent) = (0.0, Measured::default(), [0.0; TENANTS.len()]);
        Course { admission, now, measured, lent, fees: 0.0 }
    }

    fn nth(&self, place: usize, is_wanted: impl Fn(Phase) -> bool) -> Option<JobId> {
        let wanted: Vec<JobId> =
            self.admission.jobs().filter(|it| is_wanted(it.phase)).map(|it| it.job).collect();
        wanted.get(place % wanted.len().max(1)).copied()
    }

    /// Lets it happen, and starts what may start.
    pub(super) fn happen(&mut self, event: &Event) -> Dispatch {
        let runs = |phase| matches!(phase, Phase::Running { .. });
        let waits = |phase| matches!(phase, Phase::Waiting { .. });
        let now = self.now;
        match event {
            Event::Submit(request) => drop(self.admission.submit(request.clone(), now)),
            Event::Cancel(place) => {
                if let Some(job) = self.nth(*place, waits) {
                    assert!(self.admission.cancel(job, now));
                }
            }
            Event::End(place) => {
                if let Some(job) = self.nth(*place, |phase| !waits(phase)) {
                    assert!(self.admission.ended(job, now));
                }
            }
            Event::LeaveDaemons(place) => {
                if let Some(job) = self.nth(*place, runs) {
                    self.admission.left_daemons(job, now);
                }
            }
            Event::Charge(place, cpu, bytes) => {
                let job = self.nth(*place, runs);
                if let Some(job) = job {
                    let used = self.admission.job(job).unwrap().cpu_seconds + cpu;
                    self.admission.charge(job, used, Some(*bytes), now);
                }
            }
            Event::Pass(seconds) => self.now += seconds,
            Event::Outside(bytes) => self.measured = Measured { outside_bytes: *bytes },
            Event::Lend(tenant, seconds) => {
                self.admission.lend(TENANTS[*tenant], *seconds);
                self.lent[*tenant] = *seconds;
            }
        }
        let dispatch = self.admission.dispatch(self.measured, self.now);
        for (tenant, fee) in self.admission.take_fees() {
            let lent = &mut self.lent[TENANTS.iter().position(|it| *it == tenant).unwrap()];
            *lent -= fee;
            self.fees += fee;
            assert!(fee >= 0.0 && *lent >= -1e-9, "{tenant} paid {fee}, which leaves {lent}");
        }
        dispatch
    }

    /// What all running jobs hold together, as far as it may not exceed what there is.
    fn held(&self) -> (u64, u64, u32) {
        let (mut floors, mut bytes, mut gpus) = (0, 0, 0);
        for job in self.admission.jobs().filter(|it| matches!(it.phase, Phase::Running { .. })) {
            floors += floor(job.request.width);
            bytes += job.request.memory_bytes.max(job.used_bytes.unwrap_or(0));
            gpus += job.request.units.iter().map(|(_, count)| count).sum::<u32>();
        }
        (floors, bytes, gpus)
    }

    /// Checks what holds after each dispatch.
    pub(super) fn check(&self, dispatch: &Dispatch) {
        let is_active =
            |job: &tenantd_admission::JobView<'_>| !matches!(job.phase, Phase::Waiting { .. });
        let active: Vec<JobId> = self.admission.jobs().filter(is_active).map(|it| it.job).collect();
        let told: Vec<JobId> = self.admission.active().map(|it| it.job).collect();
        assert_eq!(active, told);
        let (floors, bytes, gpus) = self.held();
        assert!(floors <= 8, "{floors} slots");
        assert!(gpus <= 3, "{gpus} gpus");
        let declares = |job: JobId| self.admission.job(job).unwrap().request.memory_bytes > 0;
        if dispatch.starts.iter().any(|start| declares(start.job)) {
            let outside = self.measured.outside_bytes;
            assert!(bytes + outside <= 16 * GIB, "{bytes} bytes beside {outside}");
        }
        self.check_indices();
        self.check_tenants();
        self.check_widths();
        let running = self.admission.jobs().filter(|it| matches!(it.phase, Phase::Running { .. }));
        let has_worker = running.count() < self.admission.workers() as usize;
        for job in self.admission.jobs() {
            let why = self.admission.why(job.job);
            assert_eq!(why.is_some(), matches!(job.phase, Phase::Waiting { .. }));
            assert!(why != Some(Reason::Turn) || !has_worker, "{job:?} could start");
        }
    }

    /// Each index is held once, and a running job has as many as it asked for.
    fn check_indices(&self) {
        let mut held = Vec::new();
        for job in self.admission.jobs() {
            let indices: Vec<u32> = job.indices.of("gpu").collect();
            match job.phase {
                Phase::Waiting { .. } => assert_eq!(indices, [0; 0], "{job:?}"),
                Phase::Running { .. } => {
                    let wanted: u32 = job.request.units.iter().map(|(_, count)| count).sum();
                    assert_eq!(indices.len(), wanted as usize, "{job:?}");
                }
                Phase::Lingering { .. } => {}
            }
            held.extend(indices);
        }
        let nr_held = held.len();
        held.sort_unstable();
        held.dedup();
        assert_eq!(held.len(), nr_held, "an index is held twice");
        assert!(held.iter().all(|index| *index < 3), "{held:?}");
        assert!(self.admission.free().units[0].1 as usize + nr_held <= 3);
    }

    fn check_tenants(&self) {
        for terms in terms() {
            let of_tenant = || {
                let running =
                    self.admission.jobs().filter(|it| matches!(it.phase, Phase::Running { .. }));
                running.filter(|it| it.request.tenant == terms.path)
            };
            assert!(of_tenant().count() <= terms.max_running.unwrap_or(u32::MAX) as usize);
            let declared: u64 = of_tenant().map(|it| it.request.memory_bytes).sum();
            assert!(declared <= terms.memory_max_bytes.unwrap_or(u64::MAX));
            for user in 0..3 {
                let of_user = of_tenant().filter(|it| it.request.user == user).count();
                assert!(of_user <= terms.max_running_per_user.unwrap_or(u32::MAX) as usize);
            }
        }
    }

    fn check_widths(&self) {
        let (mut sum, mut all_are_widest) = (0, true);
        for job in self.admission.jobs() {
            let Phase::Running { dop, .. } = job.phase else { continue };
            let (dop, widest) = (u64::from(dop), ceiling(job.request));
            assert!((floor(job.request.width)..=widest).contains(&dop), "{job:?}");
            sum += dop;
            all_are_widest &= dop == widest;
        }
        assert!(sum == 8 || sum < 8 && all_are_widest, "{sum} slots of 8 are given");
    }
}

fn floor(width: Width) -> u64 {
    if let Width::Manual(dop) = width { dop } else { 1 }
}

fn ceiling(request: &Request) -> u64 {
    let widest = if request.tenant == "c/e" { 2 } else { 8 };
    match request.width {
        Width::Auto => widest,
        Width::AtMost(max) => max.min(widest),
        Width::Manual(dop) => dop,
    }
}
