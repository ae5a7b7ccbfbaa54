//! The scheduler that is loaded through sched_ext, if any, and the effect of CPU weights under it.
//!
//! It can be loaded and unloaded at any time, so its state is read in each tick. A kernel without sched_ext never gets it.
//! The first interval of a scheduler belongs in part to the one before, and is no evidence.

use std::path::Path;

use tenantd_control::share::engine::{Evidence, Meaning, contenders};
use tenantd_control::tick::control_loop::ControlLoop;
use tenantd_control::words::finding::{Code, Finding, Severity};
use tenantd_core::kernel_text::text_of;
use tenantd_host::kernfs::{DirId, KernFs};

const SCHED_EXT: &str = "/sys/kernel/sched_ext";
const REMEDY: &str = "unload it, or use one that weighs cgroups";

#[derive(Debug, Default)]
pub(super) struct Engine {
    dir: Dir,
    loaded: Option<Loaded>,
}

#[derive(Debug, Default)]
enum Dir {
    #[default]
    Unknown,
    Absent,
    Open(DirId),
}

#[derive(Debug)]
struct Loaded {
    name: String,
    /// False in the tick in which it was found.
    has_interval: bool,
    evidence: Evidence,
    finding: Finding,
}

impl Engine {
    /// Reads the name of the loaded scheduler. Under another one than before, weights may have another effect.
    pub(super) fn refresh(&mut self, kernel: &mut impl KernFs) {
        if matches!(self.dir, Dir::Unknown) {
            self.dir = kernel.open_dir(Path::new(SCHED_EXT)).map_or(Dir::Absent, Dir::Open);
        }
        let Dir::Open(dir) = self.dir else { return };
        let is_enabled = match kernel.read_once(dir, "state") {
            Ok(text) => text.starts_with(b"enabled"),
            // The state of the last tick stays.
            Err(_) => return,
        };
        if !is_enabled {
            self.loaded = None;
            return;
        }
        let name = kernel.read_once(dir, "root/ops");
        let name =
            name.map_or_else(|_| "of unknown name".to_string(), |text| text_of(text.trim_ascii()));
        match &mut self.loaded {
            Some(loaded) if loaded.name == name => loaded.has_interval = true,
            loaded => *loaded = Some(Loaded::new(name)),
        }
    }

    /// Judges the interval of the last decision, in which weights were in force.
    pub(super) fn judge(&mut self, control: &ControlLoop) {
        if let Some(loaded) = self.loaded.as_mut().filter(|loaded| loaded.has_interval) {
            loaded.evidence.add(&contenders(control));
            loaded.finding = finding(&loaded.name, loaded.evidence.verdict());
        }
    }

    /// Finding on the loaded scheduler.
    pub(super) fn finding(&self) -> Option<&Finding> {
        self.loaded.as_ref().map(|loaded| &loaded.finding)
    }

    /// The finding, unless weights have their usual effect.
    pub(super) fn void_weight(&self) -> Option<&Finding> {
        self.finding().filter(|finding| finding.severity != Severity::Note)
    }

    /// Drops what is known of a loaded scheduler.
    pub(super) fn forget(&mut self) {
        self.loaded = None;
    }
}

impl Loaded {
    fn new(name: String) -> Loaded {
        let finding = finding(&name, None);
        Loaded { name, has_interval: false, evidence: Evidence::default(), finding }
    }
}

fn finding(name: &str, meaning: Option<Meaning>) -> Finding {
    let engine = format!("the sched_ext scheduler {name}");
    let warn = |message: String| Finding::of_host(Code::Ineffective, message).with_remedy(REMEDY);
    match meaning {
        None => warn(format!(
            "cpu weights may be ineffective: {engine} is loaded, and no tenants have competed in a way that shows its use \
             of weights"
        )),
        Some(Meaning::Nothing) => {
            warn(format!("cpu weights are ineffective: {engine} gives each thread the same"))
        }
        Some(Meaning::Thread) => warn(format!(
            "cpu weights are ineffective between tenants: {engine} applies them to each thread, so a tenant with twice the \
             threads gets twice the CPU time"
        )),
        Some(Meaning::Group) => Finding {
            severity: Severity::Note,
            ..Finding::of_host(
                Code::Ineffective,
                format!("{engine} applies cpu weights to tenants, as measured"),
            )
        },
    }
}
