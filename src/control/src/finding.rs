//! A problem as a value: one type from the control loop and the backends to the log, the status and the wire.
//!
//! A finding has a kind ([`Code`]), a severity ([`Severity`]), the tenant that it concerns, the fact, and
//! where there is one the remedy. Its text is made in one place ([`fmt::Display`]).

use std::fmt;

use serde::{Deserialize, Serialize};

/// How much a finding matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A notice: the host is as the policy asks.
    Note,
    /// A part of the policy has no effect, or not yet.
    #[default]
    Warning,
    /// A part of the policy could not be done.
    Error,
}

/// What kind of finding it is; stable, so that alerts can be written against it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// A kernel file could not be read or understood.
    Unreadable,
    /// A value could not be written, and is tried again.
    NotWritten,
    /// A cgroup could not be made or opened.
    NotAttached,
    /// A cgroup went away.
    CgroupGone,
    /// A cgroup that the policy names is not there.
    CgroupMissing,
    /// A unit of systemd is missing, or does not run.
    UnitMissing,
    /// Systemd does not answer.
    BusAway,
    /// A process could not be moved into its tenant.
    NotClaimed,
    /// Processes have lost their tenant.
    Displaced,
    /// A value is set and cannot take effect.
    Ineffective,
    /// The kernel lacks something that is needed.
    KernelLacks,
    /// A foreign value is left in place.
    LeftToOthers,
    /// Another program keeps overwriting a value, and it is left alone for a time.
    Contested,
    /// No CPU could be given, or no exclusive one.
    NotPlaced,
    /// A limit keeps a tenant from something that it tried.
    LimitReached,
    /// A guarantee of the policy does not fit into the capacity.
    Unkeepable,
    /// The policy on disk was not loaded.
    PolicyRefused,
    /// State could not be saved for the next start, or a notification could not be sent.
    NotKept,
    /// A user or group that the policy names is not known to the daemon.
    AccountMissing,
    /// Accounts cannot be looked up: the service does not answer.
    AccountsAway,
    /// A finding of another version of tenantd, whose kind is not known to this one.
    #[default]
    #[serde(other)]
    Unknown,
}

/// One finding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Finding {
    /// Its kind.
    pub code: Code,
    /// How much it matters.
    pub severity: Severity,
    /// The tenant, group or slice that it concerns; absent where it concerns the host.
    pub tenant: Option<String>,
    /// What is the case.
    pub message: String,
    /// What to do about it; absent where the message says it, or there is nothing to do.
    pub remedy: Option<String>,
}

impl Finding {
    /// A warning about the host.
    pub fn of_host(code: Code, message: impl Into<String>) -> Finding {
        let message = message.into();
        Finding { code, severity: Severity::Warning, tenant: None, message, remedy: None }
    }

    /// A warning about one tenant, group or slice.
    pub fn of(tenant: &str, code: Code, message: impl Into<String>) -> Finding {
        Finding { tenant: Some(tenant.to_string()), ..Finding::of_host(code, message) }
    }

    /// The same as an error.
    pub fn as_error(self) -> Finding {
        Finding { severity: Severity::Error, ..self }
    }

    /// The same with a remedy.
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
