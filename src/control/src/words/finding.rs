//! A problem as a value: one type from the control loop and the backends to the log, the status and the wire.
//!
//! A finding has a kind ([`Code`]), a severity ([`Severity`]), the affected tenant, the fact, and possibly a
//! remedy. [`fmt::Display`] makes its text.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Severity of a finding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The host is as the policy asks.
    Note,
    /// A part of the policy has no effect, or not yet.
    #[default]
    Warning,
    /// A part of the policy could not be done.
    Error,
}

/// Kind of a finding; stable, so that alerts can match it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// A kernel file could not be read or understood.
    Unreadable,
    /// A value could not be written; the write is retried.
    NotWritten,
    /// A cgroup could not be made or opened.
    NotAttached,
    /// A cgroup went away.
    CgroupGone,
    /// A cgroup named in the policy does not exist.
    CgroupMissing,
    /// A systemd unit is missing, or does not run.
    UnitMissing,
    /// Systemd does not answer.
    BusAway,
    /// A process could not be moved into its tenant.
    NotClaimed,
    /// Processes have left their tenant's cgroup.
    Displaced,
    /// A value is set but cannot take effect.
    Ineffective,
    /// The kernel lacks a needed feature.
    KernelLacks,
    /// A foreign value is left in place.
    LeftToOthers,
    /// Another program keeps overwriting a value; the agent leaves it alone for a time.
    Contested,
    /// No CPU, or no exclusive CPU, is available.
    NotPlaced,
    /// A limit stops a tenant.
    LimitReached,
    /// A guarantee of the policy does not fit into the capacity.
    Unkeepable,
    /// The policy on disk was not loaded.
    PolicyRefused,
    /// State could not be saved for the next start, or a notification could not be sent.
    NotKept,
    /// The daemon cannot find a user or group of the policy.
    AccountMissing,
    /// The account service does not answer.
    AccountsAway,
    /// A kind from another version of tenantd.
    #[default]
    #[serde(other)]
    Unknown,
}

/// A finding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Finding {
    /// Kind of the finding.
    pub code: Code,
    /// Severity of the finding.
    pub severity: Severity,
    /// Affected tenant, group or slice; absent for the host.
    pub tenant: Option<String>,
    /// The fact.
    pub message: String,
    /// Remedy; absent if the message contains it or there is none.
    pub remedy: Option<String>,
}

impl Finding {
    /// Creates a warning about the host.
    pub fn of_host(code: Code, message: impl Into<String>) -> Finding {
        let message = message.into();
        Finding { code, severity: Severity::Warning, tenant: None, message, remedy: None }
    }

    /// Creates a warning about one tenant, group or slice.
    pub fn of(tenant: &str, code: Code, message: impl Into<String>) -> Finding {
        Finding { tenant: Some(tenant.to_string()), ..Finding::of_host(code, message) }
    }

    /// Returns the finding as an error.
    pub fn as_error(self) -> Finding {
        Finding { severity: Severity::Error, ..self }
    }

    /// Returns the finding with a remedy.
    pub fn with_remedy(self, remedy: impl Into<String>) -> Finding {
        Finding { remedy: Some(remedy.into()), ..self }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(tenant) = &self.tenant {
            write!(f, "{tenant}: ")?;
        }
        f.write_str(&self.message)?;
        match &self.remedy {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_names_tenant_message_and_remedy() {
        let finding = Finding::of("web", Code::Ineffective, "no effect").with_remedy("write less");
        assert_eq!(finding.to_string(), "web: no effect; write less");
        assert_eq!(Finding::of_host(Code::BusAway, "away").to_string(), "away");
    }

    #[test]
    fn codes_of_a_newer_version_are_read_as_unknown() {
        let text = r#"{"code":"from_tomorrow","severity":"note","message":"x"}"#;
        let finding: Finding = serde_json::from_str(text).unwrap();
        assert_eq!((finding.code, finding.severity), (Code::Unknown, Severity::Note));
    }
}
