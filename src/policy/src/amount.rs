//! Amounts as a policy writes them: absolute, or a percentage of the machine.
//!
//! The model keeps what was written, and [`Amount::on`] is the one place that turns it into an amount. Which
//! machine that is depends on who asks: `check` has the machine of [`super::HostFacts`], and the control loop the
//! one of its last sample, so that a percentage follows CPUs and memory that come and go.

use tenantd_core::codec::coded;
use tenantd_core::resource::{PerResource, Resource};
use tenantd_core::units::{Percent, QuantityError};

/// An amount of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// In smallest units.
    Absolute(u64),
    /// Of all that the machine has.
    Percent(Percent),
}

impl Default for Amount {
    fn default() -> Amount {
        Amount::Absolute(0)
    }
}

impl Amount {
    /// An amount in the notation of the policy.
    ///
    /// # Errors
    /// It is no amount of this resource.
    pub fn parse(resource: Resource, text: &str) -> Result<Amount, QuantityError> {
        match text.contains('%') {
            true => text.parse().map(Amount::Percent).map_err(|error| beyond(error, resource)),
            false => resource.parse(text).map(Amount::Absolute),
        }
    }

    /// What was written.
    pub fn notation(self, resource: Resource) -> String {
        match self {
            Amount::Absolute(smallest) => resource.notation(smallest),
            Amount::Percent(percent) => percent.to_string(),
        }
    }

    /// The amount in smallest units, on a machine that has `whole` of the resource; nothing where that is needed
    /// and not known.
    pub fn on(self, whole: Option<u64>) -> Option<u64> {
        match self {
            Amount::Absolute(smallest) => Some(smallest),
            Amount::Percent(percent) => Some(percent.of(whole?)),
        }
    }

    /// The amount in the unit of the resource, on a machine that has `whole` of it.
    pub fn of(self, resource: Resource, whole: f64) -> f64 {
        resource.amount(self.on(Some(resource.smallest(whole))).unwrap_or_default())
    }

    /// Whether it depends on the machine.
    pub fn is_percent(self) -> bool {
        matches!(self, Amount::Percent(_))
    }

    /// The amounts of all resources on a machine.
    pub fn of_each(amounts: &PerResource<Amount>, machine: PerResource<f64>) -> PerResource<f64> {
        PerResource::from_fn(|resource| amounts[resource].of(resource, machine[resource]))
    }
}

/// Systemd and others write one and a half CPUs as 150%.
fn beyond(mut error: QuantityError, resource: Resource) -> QuantityError {
    let number = error.text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    if let (Some(number), Resource::Cpu) = (number.filter(|it| *it > 100.0), resource) {
        let of_one = resource.notation(resource.smallest(number / 100.0));
        error.help += &format!("; {number}% of one CPU is `{of_one}`");
    }
    error
}

// --- recorded ---

coded!(enum Amount { Absolute { 0: smallest }, Percent { 0: percent } });
