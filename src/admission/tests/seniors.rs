//! A job that needs two things which others take in turn starts all the same.

use tenantd_admission::{
    Admission, Capacity, JobId, Measured, Phase, Request, Rules, Start, Terms,
};
use tenantd_dop::target::Width;
use tenantd_queue::discipline::Name;

use super::course::{GIB, all_disciplines};

const OVERTAKES_MAX: u32 = 3;

/// Two streams of jobs that end in turn: each has one that runs and one that waits.
struct Streams {
    admission: Admission,
    running: [JobId; 2],
    of: [Request; 2],
    now: f64,
}

fn units(tenant: &str, names: &[&str]) -> Request {
    let units = names.iter().map(|name| (name.to_string(), 1)).collect();
    Request { units, ..Request::new(tenant, 1) }
}

impl Streams {
    fn begin(discipline: Name, tenants: Vec<Terms>, of: [Request; 2]) -> Streams {
        let rules = Rules { discipline, overtakes_max: OVERTAKES_MAX, ..Rules::default() };
        let units = vec![("gpu".into(), 1), ("licence".into(), 1)];
        let capacity = Capacity { slots: 8, memory_bytes: Some(64 * GIB), units };
        let mut admission = Admission::new(rules, capacity);
        admission.policy(rules, tenants, 0.0);
        let running = [0, 1].map(|which: usize| admission.submit(of[which].clone(), 0.0).unwrap());
        let started = admission.dispatch(Measured::default(), 0.0).starts;
        assert_eq!(started.len(), 2, "{discipline:?}");
        let mut streams = Streams { admission, running, of, now: 0.0 };
        [0, 1].into_iter().for_each(|which| streams.submit(which));
        streams
    }

    fn submit(&mut self, which: usize) {
        self.admission.submit(self.of[which].clone(), self.now).unwrap();
    }

    /// The running job of one stream ends; returns those that start.
    fn end(&mut self, which: usize) -> Vec<JobId> {
        self.now += 1.0;
        self.admission.charge(self.running[which], self.now, None, self.now);
        assert!(self.admission.ended(self.running[which], self.now));
        let starts = self.admission.dispatch(Measured::default(), self.now).starts;
        starts.into_iter().map(|Start { job, .. }| job).collect()
    }

    /// The same, and the job that starts is the next one of its stream.
    fn end_and_go_on(&mut self, which: usize) {
        let started = self.end(which);
        let &[next] = &started[..] else { panic!("{started:?} start in the place of {which}") };
        self.running[which] = next;
        self.submit(which);
    }

    /// Jobs of these streams end in turn until a job was overtaken as often as allowed.
    fn go_on_until_senior(&mut self, job: JobId, which: &[usize]) {
        let is_senior = |streams: &Streams| {
            let phase = streams.admission.job(job).unwrap().phase;
            phase == Phase::Waiting { overtaken: OVERTAKES_MAX }
        };
        let mut which = which.iter().cycle().take(20);
        while !is_senior(self) {
            let which = which.next().unwrap_or_else(|| panic!("{:?}", self.admission.job(job)));
            self.end_and_go_on(*which);
        }
    }

    /// How many jobs of the streams end before `request` starts.
    fn nr_before(mut self, request: Request) -> usize {
        let wanted = self.admission.submit(request, 0.0).unwrap();
        let mut runs = [true; 2];
        for step in 1..100 {
            let which = step % 2;
            if !std::mem::take(&mut runs[which]) {
                continue;
            }
            for job in self.end(which) {
                if job == wanted {
                    return step;
                }
                self.running[which] = job;
                runs[which] = true;
                self.submit(which);
            }
        }
        let discipline = self.admission.rules().discipline;
        panic!("{discipline:?}: {:?} waits for ever", self.admission.job(wanted));
    }
}

/// Both that wait may be before it, it is overtaken as often as allowed, at least once in two ends, and what it needs is free
/// once both have ended.
const MOST_BEFORE: usize = 2 * (OVERTAKES_MAX as usize + 2) + 1;

/// In each discipline `request` starts in time beside streams of these jobs.
#[track_caller]
fn assert_starts(tenants: &[Terms], of: &[Request; 2], request: &Request) {
    for discipline in all_disciplines() {
        let streams = Streams::begin(discipline, tenants.to_vec(), of.clone());
        let nr_before = streams.nr_before(request.clone());
        assert!(nr_before <= MOST_BEFORE, "{discipline:?}: {nr_before}");
    }
}

/// A GPU and a licence, never free at the same time: each time that the one is, the other is taken. The tenant that needs both
/// is the first one of the policy, which a tie goes to at first.
#[test]
fn two_counted_resources_that_are_free_in_turn() {
    let tenants = ["c", "a", "b"].map(|name| Terms::new(name, 1.0));
    let of = [units("a", &["gpu"]), units("b", &["licence"])];
    assert_starts(&tenants, &of, &units("c", &["gpu", "licence"]));
}

/// A GPU, and the one job that its tenant may run.
#[test]
fn a_counted_resource_and_a_limit_of_the_tenant_that_are_free_in_turn() {
    let one = Terms { max_running: Some(1), ..Terms::new("c", 1.0) };
    let of = [units("a", &["gpu"]), Request::new("c", 1)];
    assert_starts(&[Terms::new("a", 1.0), one], &of, &units("c", &["gpu"]));
}

/// A GPU, and the one job that a user may run in its tenant.
#[test]
fn a_counted_resource_and_a_limit_of_the_user_that_are_free_in_turn() {
    let one = Terms { max_running_per_user: Some(1), ..Terms::new("c", 1.0) };
    let of = [units("a", &["gpu"]), Request::new("c", 1)];
    assert_starts(&[Terms::new("a", 1.0), one], &of, &units("c", &["gpu"]));
}

/// A GPU, and memory of its tenant's limit.
#[test]
fn a_counted_resource_and_memory_of_the_tenant_that_are_free_in_turn() {
    let small = Terms { memory_max_bytes: Some(8 * GIB), ..Terms::new("c", 1.0) };
    let memory = |request| Request { memory_bytes: 6 * GIB, ..request };
    let of = [units("a", &["gpu"]), memory(Request::new("c", 1))];
    assert_starts(&[Terms::new("a", 1.0), small], &of, &memory(units("c", &["gpu"])));
}

/// While a unit is held elsewhere, other jobs of the senior's tenant run: one that is held for hours would keep the tenant's
/// only place free as long. Once the unit is free it is kept, and the senior is the next one of its tenant.
#[test]
fn a_limit_of_the_tenant_is_not_kept() {
    for discipline in all_disciplines() {
        let one = Terms { max_running: Some(1), ..Terms::new("c", 1.0) };
        let of = [units("a", &["gpu"]), Request::new("c", 1)];
        let mut streams = Streams::begin(discipline, vec![Terms::new("a", 1.0), one], of);
        let wanted = streams.admission.submit(units("c", &["gpu"]), 0.0).unwrap();
        streams.go_on_until_senior(wanted, &[1, 0]);
        (0..20).for_each(|_| streams.end_and_go_on(1));
        assert_eq!(streams.end(0), [], "{discipline:?}");
        assert_eq!(streams.end(1)[0], wanted, "{discipline:?}");
    }
}

/// The daemon of an ended job holds the GPU, and no end of a job brings it: others go first, and are not counted beyond
/// the bound. Once the daemon has ended, slots are kept for the senior.
#[test]
fn a_unit_that_a_daemon_holds() {
    let width = |request, dop| Request { width: Width::Manual(dop), ..request };
    for discipline in all_disciplines() {
        let tenants = ["a", "b", "c"].map(|path| Terms::new(path, 1.0));
        let of = [units("a", &["gpu"]), Request::new("b", 1)];
        let mut streams = Streams::begin(discipline, tenants.to_vec(), of);
        let long = streams.admission.submit(width(Request::new("b", 1), 4), 0.0).unwrap();
        let started = streams.admission.dispatch(Measured::default(), 0.0).starts;
        // The waiting job of the second stream starts as well.
        assert_eq!(started.len(), 2, "{discipline:?}");
        streams.submit(1);
        let wanted = streams.admission.submit(width(units("c", &["gpu"]), 7), 0.0).unwrap();
        streams.admission.left_daemons(streams.running[0], streams.now);
        streams.go_on_until_senior(wanted, &[1]);
        (0..20).for_each(|_| streams.end_and_go_on(1));
        let phase = streams.admission.job(wanted).unwrap().phase;
        assert_eq!(phase, Phase::Waiting { overtaken: OVERTAKES_MAX }, "{discipline:?}");
        assert_eq!(streams.end(0), [], "{discipline:?}");
        streams.running[0] = long;
        assert_eq!(streams.end(1), [], "{discipline:?}");
        assert_eq!(streams.end(0), [wanted], "{discipline:?}");
    }
}
