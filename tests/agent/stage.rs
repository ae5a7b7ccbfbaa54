//! A whole service on a simulated kernel, on a thread of its own: what a command of a document asks.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tenantd::agent::{Agent, Options};
use tenantd::backend::claims;
use tenantd::service::{PolicySource, Service};
use tenantd_core::units::Bytes;
use tenantd_host::notify::Notifier;
use tenantd_host::recording::recorder::Recorder;
use tenantd_host::recording::ring::Bounds;
use tenantd_policy::HostFacts;
use tenantd_sim::{Load, SimHost, SimKernel};
use tenantd_varlink::listen::Listener;
use tenantd_varlink::server::Limits;

use super::history::Patient;
use super::world::Host;

/// Ticks before the first question, five minutes apart: each time of the last day is in the recording.
const TICKS: u64 = 25 * 12;
const STEP: Duration = Duration::from_secs(300);
/// Looks at the socket between two later ticks.
const LOOKS: usize = 20;
const DAY: Duration = Duration::from_secs(25 * 3600);

/// The service, until it is dropped.
pub(crate) struct Stage {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Stage {
    /// Serves on `socket` in `dir` with the policy `dir/policy.yaml` and records in `dir/history`.
    pub(crate) fn start(dir: &Path) -> Stage {
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, dir) = (Arc::clone(&is_over), dir.to_path_buf());
        let thread = std::thread::spawn(move || serve(&dir, &over));
        Stage { is_over, thread: Some(thread) }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there has failed the test already.
            let _ = thread.join();
        }
    }
}

fn serve(dir: &Path, is_over: &AtomicBool) {
    let facts = HostFacts::of_size(8, Bytes::gib(16));
    let source = PolicySource { path: dir.join("policy.yaml"), facts: Some(facts) };
    let policy = source.load().unwrap().policy;
    let kernel = SimKernel::new(SimHost::default());
    let host = Host::new(kernel);
    let options = Options { state_dir: Some(dir.join("state")), ..Options::default() };
    let bounds = Bounds::of(&policy.history);
    let mut agent =
        Agent::start(host.clone(), policy.clone(), claims::rules(&policy), &options).unwrap();
    let nr_ticks = Arc::new(AtomicU64::new(0));
    let recorder = recorder(&dir.join("history"), bounds, Arc::clone(&nr_ticks));
    agent.record(Some(Box::new(Patient(recorder))));
    let mut service = Service::new(agent, source, Notifier::default());
    let tick = |service: &mut Service<Host>, number: u64| {
        nr_ticks.store(number, Ordering::Relaxed);
        host.with(|kernel| kernel.advance(Duration::from_secs(1)));
        service.tick(Duration::from_secs(number), Duration::ZERO);
    };
    tick(&mut service, 0);
    host.with(|kernel| kernel.spawn("/web", Load::busy(4))).unwrap();
    (1..=TICKS).for_each(|number| tick(&mut service, number));
    service.serve(Listener::make(&dir.join("socket")).unwrap(), Limits::default()).unwrap();
    for number in TICKS + 1.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        tick(&mut service, number);
        // The pause between two looks at the socket; questions wait no longer than this.
        for _ in 0..LOOKS {
            service.serve_socket();
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A recorder whose clock goes from a day ago to now in [`TICKS`] ticks.
fn recorder(dir: &Path, bounds: Bounds, nr_ticks: Arc<AtomicU64>) -> Recorder {
    let begin = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() - DAY;
    let clock = move || {
        let number = nr_ticks.load(Ordering::Relaxed);
        let seconds = Duration::from_secs(number.saturating_sub(TICKS));
        begin + STEP * u32::try_from(number.min(TICKS)).unwrap() + seconds
    };
    Recorder::start(dir, bounds, "stage".into(), clock).unwrap()
}
