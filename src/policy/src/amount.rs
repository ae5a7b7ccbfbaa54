//! Amounts in a policy: absolute, or a percentage of the machine.
//!
//! The model keeps the notation, and only [`Amount::on`] converts it. `check` uses the machine of
//! [`super::HostFacts`], the control loop the one of its last sample, so that a percentage follows CPUs and
//! memory that come and go.

use serde::{Deserialize, Serialize};
use tenantd_core::resource::{PerResource, Resource};
use tenantd_core::units::{Percent, QuantityError};

/// An amount of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Amount {
    /// A number of smallest units.
    Absolute(u64),
    /// A percentage of the machine's total.
    Percent(Percent),
}

impl Default for Amount {
    fn default() -> Amount {
        Amount::Absolute(0)
    }
}

impl Amount {
    /// Parses the notation of the policy.
    ///
    /// # Errors
    /// The text is not an amount of this resource.
    pub fn parse(resource: Resource, text: &str) -> Result<Amount, QuantityError> {
        if text.contains('%') {
            text.parse().map(Amount::Percent).map_err(|error| beyond(error, resource))
        } else {
            resource.parse(text).map(Amount::Absolute)
        }
    }

    /// The amount in the notation of the policy.
    pub fn notation(self, resource: Resource) -> String {
        match self {
            Amount::Absolute(smallest) => resource.notation(smallest),
            Amount::Percent(percent) => percent.to_string(),
        }
    }

    /// Amount in smallest units, on a machine with `whole` of the resource; `None` if that is needed but
    /// unknown.
    pub fn on(self, whole: Option<u64>) -> Option<u64> {
        match self {
            Amount::Absolute(smallest) => Some(smallest),
            Amount::Percent(percent) => Some(percent.of(whole?)),
        }
    }

    /// Amount in the unit of the resource, on a machine with `whole` of it.
    pub fn of(self, resource: Resource, whole: f64) -> f64 {
        resource.amount(self.on(Some(resource.smallest(whole))).unwrap_or_default())
    }

    /// True if it depends on the machine.
    pub fn is_percent(self) -> bool {
        matches!(self, Amount::Percent(_))
    }

    /// Amounts of all resources on a machine.
    pub fn of_each(amounts: &PerResource<Amount>, machine: PerResource<f64>) -> PerResource<f64> {
        PerResource::from_fn(|resource| amounts[resource].of(resource, machine[resource]))
    }
}

/// The number of a percentage of any size.
pub(super) fn percentage(text: &str) -> Option<f64> {
    text.strip_suffix('%')?.trim().parse().ok()
}

/// Hint for `150%`, which systemd and others use for 1.5 CPUs.
fn beyond(mut error: QuantityError, resource: Resource) -> QuantityError {
    if let (Some(number), Resource::Cpu) =
        (percentage(&error.text).filter(|it| *it > 100.0), resource)
    {
        let of_one = resource.notation(resource.smallest(number / 100.0));
        error.help += &format!("; {number}% of one CPU is `{of_one}`");
    }
    error
}
