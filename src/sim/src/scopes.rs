//! Transient scopes of the simulated systemd: started with existing processes, removed after these have ended.

use super::kernel::{MOUNT, SimKernel};
use super::systemd::{SimSystemd, UnitFault, cgroup_of, slices_above};
use tenantd_host::systemd::{Order, Reply, UnitError};

impl SimSystemd {
    /// Executes [`Order::StartScope`], at once or, while systemd is behind, with [`SimSystemd::catch_up`].
    pub(super) fn ask_for_scope(
        &mut self,
        kernel: &mut SimKernel,
        order: &Order,
    ) -> Result<Reply, UnitError> {
        let Order::StartScope { unit, slice, .. } = order else { return Ok(Reply::Done) };
        self.collect(kernel);
        self.refuse_masked(slices_above(&format!("{}/", cgroup_of(slice))))?;
        if self.units.contains_key(unit) {
            let message = format!("Unit {unit} was already loaded or has a fragment file.");
            return Err(UnitError::Refused { unit: unit.clone(), message });
        }
        match self.fault {
            Some(UnitFault::Behind) => self.late_scopes.push_back(order.clone()),
            _ => self.start_scope(kernel, order),
        }
        Ok(Reply::Done)
    }

    /// Starts an accepted scope. Without living processes nothing remains of it.
    pub(super) fn start_scope(&mut self, kernel: &mut SimKernel, order: &Order) {
        let Order::StartScope { unit, slice, pids, settings, .. } = order else { return };
        let cgroup = format!("{}/{unit}", cgroup_of(slice));
        self.add_above(kernel, &cgroup);
        self.add_transient(unit, &cgroup);
        if let Some(known) = self.units.get_mut(unit) {
            known.file.extend(settings.iter().map(|it| (it.property, it.value.clone())));
            known.properties = known.file.clone();
        }
        self.start(kernel, unit);
        for pid in pids {
            kernel.write_file(&format!("{MOUNT}{cgroup}/cgroup.procs"), &pid.to_string()).ok();
        }
        self.collect(kernel);
    }

    /// Ends and unloads empty scopes, as systemd does when the kernel reports their cgroups empty.
    pub fn collect(&mut self, kernel: &mut SimKernel) {
        let is_over = |(name, cgroup): (&String, &str)| {
            let events = kernel.file(&format!("{MOUNT}{cgroup}/cgroup.events"));
            let is_empty = events.is_ok_and(|events| events.contains("populated 0"));
            (name.ends_with(".scope") && is_empty).then(|| name.clone())
        };
        let transient = self.units.iter().filter(|(_, known)| known.is_transient);
        let over: Vec<String> =
            transient.filter_map(|(name, known)| is_over((name, &known.cgroup))).collect();
        over.iter().for_each(|unit| self.stop(kernel, unit));
    }
}
