//! Reading and writing the cgroup files of units.
//!
//! Systemd writes them a moment after it has accepted a setting; this file reads them. It knows nothing of
//! debts, and does not talk to systemd.

use std::path::{Path, PathBuf};

use tracing::info;

use super::all_cpus::all_cpus;
use tenantd_control::words::knob::{Knob, Value};
use tenantd_core::units::{Bytes, Limit};
use tenantd_host::cgroup::{self, Layout, Tree};
use tenantd_host::enforce::{EnforceError, taken};
use tenantd_host::kernfs::{DirId, KernError, KernFs};
use tenantd_host::knobs::{Hazard, row_of};
use tenantd_host::systemd::{Property, Setting, UnitState};
use tenantd_policy::model::{HierarchyChoice, RootChoice};

/// A unit that was set, with the settings not seen in its files yet.
pub(super) struct Waiting {
    pub(super) unit: String,
    pub(super) dir: DirId,
    pub(super) settings: Vec<Setting>,
    /// True if its CPU set was widened, and is to be emptied then.
    pub(super) is_widened: bool,
}

pub(super) struct UnitFiles<'a, K> {
    pub(super) kernel: &'a mut K,
    tree: Option<Tree>,
}

impl<'a, K: KernFs> UnitFiles<'a, K> {
    pub(super) fn of(kernel: &'a mut K, proc: DirId) -> Result<UnitFiles<'a, K>, KernError> {
        let tree = tree(kernel, proc)?;
        Ok(UnitFiles { kernel, tree })
    }

    pub(super) fn path_of(&self, state: &UnitState) -> Option<PathBuf> {
        let cgroup = Some(&state.cgroup).filter(|cgroup| !cgroup.is_empty())?;
        Some(self.tree.as_ref()?.dir_of(cgroup))
    }

    /// Opens the cgroup of a unit; `None` if it has none, or the hierarchy is unknown.
    pub(super) fn open(&mut self, state: &UnitState) -> Option<Result<DirId, KernError>> {
        let path = self.path_of(state)?;
        Some(self.kernel.open_dir(&path))
    }

    pub(super) fn dir_of(&mut self, state: &UnitState) -> Option<DirId> {
        self.open(state)?.ok()
    }

    /// Replaces a CPU set that is to be emptied by all possible CPUs; returns true if there was one.
    pub(super) fn widen_sets(&mut self, dir: DirId, settings: &mut [Setting]) -> bool {
        let is_emptied = |setting: &&mut Setting| {
            setting.property == Property::AllowedCpus && setting.value == setting.property.unset()
        };
        let Some(setting) = settings.iter_mut().find(is_emptied) else { return false };
        let Some(cpus) = all_cpus(self.kernel, dir).filter(|_| self.is_confined(dir)) else {
            return false;
        };
        *setting = Setting::of(Knob::Cpus, &Value::CpuList(cpus));
        true
    }

    pub(super) fn is_confined(&mut self, dir: DirId) -> bool {
        let text = self.kernel.read_once(dir, row_of(Knob::Cpus).unified);
        text.is_ok_and(|text| !text.trim_ascii().is_empty())
    }

    pub(super) fn tell_set(&mut self, unit: &Waiting) {
        if unit.is_widened && self.is_confined(unit.dir) {
            info!(
                unit = unit.unit,
                "its cpuset.cpus names every possible CPU instead of none, which is the same: the kernel \
                 empties no set that processes live under"
            );
        }
    }

    pub(super) fn kill(&mut self, unit: &str, dir: DirId, setting: &Setting) -> Option<String> {
        let hazard = row_of(setting.property.knob()).hazard;
        let (Hazard::Kills, Some(Value::Amount(_, Limit::Finite(limit)))) =
            (hazard, setting.expected())
        else {
            return None;
        };
        let memory = cgroup::memory_sample_of_unit(self.kernel, dir).ok()?;
        (!memory.fits(limit)).then(|| {
            format!(
                "{unit}: MemoryMax not put back to {} yet: {} cannot be reclaimed, and the kernel would kill \
                 for it; end some of its processes, then run tenantd --restore",
                Bytes(limit).rounded(),
                Bytes(memory.unreclaimable_bytes()).rounded()
            )
        })
    }

    pub(super) fn not_arrived(&mut self, unit: &Waiting, setting: &Setting) -> EnforceError {
        let file = row_of(setting.property.knob()).unified;
        let found = self.kernel.read_once(unit.dir, file);
        let found = found.map(|text| String::from_utf8_lossy(text.trim_ascii()).into_owned());
        EnforceError::NotArrived {
            unit: unit.unit.clone(),
            property: setting.property.name(),
            written: setting.expected().map(|value| value.to_string()).unwrap_or_default(),
            file,
            found: found.unwrap_or_default(),
        }
    }

    pub(super) fn has_arrived(&mut self, dir: DirId, setting: &Setting) -> bool {
        let (knob, Some(expected)) = (setting.property.knob(), setting.expected()) else {
            return true;
        };
        match self.kernel.read_once(dir, row_of(knob).unified) {
            Ok(text) => {
                cgroup::read_unified(knob, text).is_ok_and(|found| taken(&found, &expected))
            }
            // The controller went with the last property that wanted it.
            Err(_) => true,
        }
    }

    /// True if neither a process nor a unit is in the cgroup at `path`; a missing one is empty.
    pub(super) fn is_empty(&mut self, path: &Path) -> Result<bool, KernError> {
        let mut look = || -> Result<bool, KernError> {
            let dir = self.kernel.open_dir(path)?;
            let events = self.kernel.read_once(dir, "cgroup.events").map(|text| text.to_vec());
            let children = self.kernel.list_dirs(dir);
            self.kernel.close_dir(dir);
            let is_populated = events?.split(|byte| *byte == b'\n').any(|l| l == b"populated 1");
            Ok(!is_populated && children?.is_empty())
        };
        match look() {
            Err(error) if error.is_gone() => Ok(true),
            outcome => outcome,
        }
    }
}

fn tree(kernel: &mut impl KernFs, proc: DirId) -> Result<Option<Tree>, KernError> {
    let mountinfo = kernel.read_once(proc, "self/mountinfo")?.to_vec();
    let own = kernel.read_once(proc, "self/cgroup")?.to_vec();
    let layout = Layout::detect(&mountinfo, &own, HierarchyChoice::Unified, &RootChoice::Auto);
    Ok(layout.ok().and_then(|layout| layout.trees.into_iter().next()))
}
