//! Orders to the simulated systemd, among them transient scopes: started with existing processes, removed after
//! these have ended.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use super::host::MOUNT;
use super::kernel::SimKernel;
use super::systemd::{SimSystemd, UnitFault, cgroup_of, slices_above};
use tenantd_host::systemd::{Answer, Order, Reply, UnitError, UnitManager};
use tenantd_policy::pattern;

impl SimSystemd {
    /// Executes one order.
    ///
    /// # Errors
    /// Errors of the real systemd, or of the failure in force.
    pub fn carry_out(&mut self, kernel: &mut SimKernel, order: &Order) -> Result<Reply, UnitError> {
        let unit = order.unit().to_string();
        match self.fault {
            Some(UnitFault::Away) => return Err(UnitError::Away("Connection refused".into())),
            Some(UnitFault::Denied)
                if !matches!(order, Order::Look { .. } | Order::List { .. }) =>
            {
                let message = "Interactive authentication required.".into();
                return Err(UnitError::Denied { unit, message });
            }
            _ => {}
        }
        if !matches!(order, Order::Watch | Order::List { .. }) {
            self.orders.push(order.clone());
        }
        let outcome = self.done(kernel, order);
        match self.fault {
            Some(UnitFault::Late) => Err(UnitError::Late(Duration::from_secs(30))),
            _ => outcome,
        }
    }

    fn done(&mut self, kernel: &mut SimKernel, order: &Order) -> Result<Reply, UnitError> {
        let drop_ins = |this: &Self| this.units.get(order.unit()).map(|it| it.drop_ins.clone());
        let before = drop_ins(self);
        match order {
            Order::Look { unit } => return Ok(Reply::Unit(self.state(unit))),
            Order::StartSlice { unit, .. } => {
                let cgroup = cgroup_of(unit);
                self.refuse_masked(slices_above(&cgroup).chain([&**unit]))?;
                self.add_above(kernel, &cgroup);
                if !self.units.contains_key(unit) {
                    self.add_transient(unit, &cgroup);
                }
                self.start(kernel, unit);
            }
            Order::StartScope { .. } => return self.ask_for_scope(kernel, order),
            Order::Set { unit, settings } => {
                let unit = self.id(unit).to_string();
                self.refuse_masked([&*unit].into_iter())?;
                if !self.units.contains_key(&unit) {
                    return Err(UnitError::NoSuchUnit(unit));
                }
                match self.fault {
                    Some(UnitFault::Behind) => self.accepted.push_back((unit, settings.clone())),
                    _ => self.set_properties(kernel, &unit, settings),
                }
            }
            Order::SetDevices { unit, .. } if self.units.contains_key(unit) => {}
            Order::SetDevices { unit, .. } => return Err(UnitError::NoSuchUnit(unit.clone())),
            Order::Rewrite { unit, drop_ins } => {
                for (property, text) in drop_ins {
                    let known = self.units.get_mut(unit).and_then(|u| u.drop_ins.get_mut(property));
                    if let (Some(known), Ok(value)) = (known, serde_json::from_str(text)) {
                        *known = value;
                    }
                }
            }
            Order::Forget { unit, properties } => {
                if let Some(known) = self.units.get_mut(unit) {
                    known.drop_ins.retain(|property, _| !properties.contains(property));
                }
            }
            Order::ForgetOurs { unit, ours, before } => {
                let before = before.as_ref().and_then(|text| serde_json::from_str(text).ok());
                if let Some(known) = self.units.get_mut(unit)
                    && known.drop_ins.get(&ours.property) == Some(&ours.value)
                {
                    known.drop_ins.remove(&ours.property);
                    known.drop_ins.extend(before.map(|value| (ours.property, value)));
                }
            }
            Order::List { patterns } => {
                let fits = |name: &String| patterns.iter().any(|it| pattern::fits(it, name));
                let running = self.units.iter().filter(|(name, it)| it.is_active && fits(name));
                return Ok(Reply::Running(running.map(|(name, _)| name.clone()).collect()));
            }
            Order::Watch => return Ok(Reply::Results(std::mem::take(&mut self.results))),
            Order::Reload => self.reload(),
            Order::Stop { unit } => self.stop(kernel, unit),
        }
        let concerns_files = matches!(
            order,
            Order::Rewrite { .. } | Order::Forget { .. } | Order::ForgetOurs { .. }
        );
        if concerns_files && drop_ins(self) == before {
            return Ok(Reply::Unchanged);
        }
        Ok(Reply::Done)
    }

    /// Executes the oldest accepted scope or settings; returns true if there was one.
    pub fn catch_up(&mut self, kernel: &mut SimKernel) -> bool {
        if let Some(order) = self.late_scopes.pop_front() {
            self.start_scope(kernel, &order);
            return true;
        }
        let Some((unit, settings)) = self.accepted.pop_front() else { return false };
        self.set_properties(kernel, &unit, &settings);
        true
    }

    /// Executes [`Order::StartScope`], at once or, while systemd is behind, with [`SimSystemd::catch_up`].
    fn ask_for_scope(&mut self, kernel: &mut SimKernel, order: &Order) -> Result<Reply, UnitError> {
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
    fn start_scope(&mut self, kernel: &mut SimKernel, order: &Order) {
        let Order::StartScope { unit, slice, process, settings, .. } = order else { return };
        let cgroup = format!("{}/{unit}", cgroup_of(slice));
        self.add_above(kernel, &cgroup);
        self.add_transient(unit, &cgroup);
        if let Some(known) = self.units.get_mut(unit) {
            known.file.extend(settings.iter().map(|it| (it.property, it.value.clone())));
            known.properties = known.file.clone();
        }
        self.start(kernel, unit);
        let procs = format!("{MOUNT}{cgroup}/cgroup.procs");
        kernel.write_file(&procs, &process.pid.to_string()).ok();
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

/// A [`UnitManager`] that executes each order at once, and answers when it is polled.
pub struct SimUnits<F> {
    carry_out: F,
    answers: VecDeque<Answer>,
}

impl<F> SimUnits<F>
where
    F: FnMut(&Order) -> Result<Reply, UnitError>,
{
    /// Creates a manager that sends orders to `carry_out`.
    pub fn new(carry_out: F) -> SimUnits<F> {
        SimUnits { carry_out, answers: VecDeque::new() }
    }
}

impl<F> fmt::Debug for SimUnits<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimUnits").field("answers", &self.answers).finish_non_exhaustive()
    }
}

impl<F> UnitManager for SimUnits<F>
where
    F: FnMut(&Order) -> Result<Reply, UnitError>,
{
    fn submit(&mut self, order: Order) {
        let outcome = (self.carry_out)(&order);
        self.answers.push_back(Answer { order, outcome });
    }

    fn nr_unanswered(&self) -> usize {
        self.answers.len()
    }

    fn answer(&mut self, _patience: Duration) -> Option<Answer> {
        self.answers.pop_front()
    }
}
