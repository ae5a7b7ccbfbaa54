//! A policy as a flat list of keys and values, and the difference between two of them.
//!
//! **Problem.** A reload reports its changes in the log and in its answer, and `diff` reports them
//! beforehand. Both compare policies read at different times, possibly by programs of different versions.
//! **Answer.** A policy becomes a list of keys and values in the notation of the file, without defaults;
//! two such outlines are compared key by key. The keys come from the table ([`super::keys`]).
//!
//! **Properties** (`tests/policy/outline.rs`, `tests/policy/keys.rs`): a policy has no difference to
//! itself; changing any key is one difference.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::{Deserialize, Serialize};

use super::key;
pub use super::key::Setting;
use super::keys::{POLICY, Policy, TENANT, Tenant};

/// A tenant or group of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyTenant {
    /// Names from the top, joined by slashes.
    pub name: String,
    /// Keys that differ from their defaults.
    pub settings: Vec<Setting>,
}

/// A policy, flat and in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outline {
    /// Keys outside tenants.
    pub settings: Vec<Setting>,
    /// All tenants and groups, in pre-order.
    pub tenants: Vec<PolicyTenant>,
}

/// Kind of a change of a tenant or a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// The tenant or key is new.
    Added,
    /// The tenant or key was removed.
    Removed,
    /// The value changed.
    Changed,
}

/// A difference between two policies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Kind of the change.
    pub kind: ChangeKind,
    /// Tenant or group; absent for a change of the whole policy.
    pub tenant: Option<String>,
    /// Key; absent for a change of the whole tenant.
    pub key: Option<String>,
    /// Old value; absent if it was the default.
    pub from: Option<String>,
    /// New value; absent if it is the default.
    pub to: Option<String>,
}

impl Outline {
    /// Outline of `policy`.
    pub fn of(policy: &Policy) -> Outline {
        let mut tenants = Vec::new();
        for tenant in &policy.tenants {
            add_tenant(tenant, "", &mut tenants);
        }
        Outline { settings: general(policy), tenants }
    }

    /// Changes from `self` to `new`: first the policy as a whole, then removed tenants, then added and
    /// changed ones, in the order of `new`.
    pub fn changes_to(&self, new: &Outline) -> Vec<Change> {
        let mut changes = Vec::new();
        compare(None, &self.settings, &new.settings, &mut changes);
        let old_by_name: BTreeMap<&str, &PolicyTenant> =
            self.tenants.iter().map(|tenant| (tenant.name.as_str(), tenant)).collect();
        let new_by_name: BTreeMap<&str, &PolicyTenant> =
            new.tenants.iter().map(|tenant| (tenant.name.as_str(), tenant)).collect();
        let whole = |kind, tenant: &PolicyTenant, from, to| Change {
            kind,
            tenant: Some(tenant.name.clone()),
            key: None,
            from,
            to,
        };
        for gone in self.tenants.iter().filter(|t| !new_by_name.contains_key(t.name.as_str())) {
            changes.push(whole(ChangeKind::Removed, gone, Some(gone.to_string()), None));
        }
        for tenant in &new.tenants {
            match old_by_name.get(tenant.name.as_str()) {
                None => {
                    changes.push(whole(ChangeKind::Added, tenant, None, Some(tenant.to_string())));
                }
                Some(old) => {
                    let name = Some(tenant.name.as_str());
                    compare(name, &old.settings, &tenant.settings, &mut changes);
                }
            }
        }
        changes
    }
}

/// Its keys in one line: `weight: 300, limit.cpu: 8`.
impl Display for PolicyTenant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, Setting { key, value }) in self.settings.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{key}: {value}")?;
        }
        Ok(())
    }
}

/// One line for a log: `web: weight: 100 -> 300`.
impl Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(tenant) = &self.tenant {
            write!(f, "{tenant}: ")?;
        }
        let or_default = |value: &Option<String>| value.clone().unwrap_or("default".into());
        match (self.kind, &self.key) {
            (ChangeKind::Added, None) => match self.to.as_deref() {
                None | Some("") => f.write_str("added"),
                Some(settings) => write!(f, "added ({settings})"),
            },
            (ChangeKind::Removed, None) => f.write_str("removed"),
            (_, key) => {
                let key = key.as_deref().unwrap_or("all of it");
                write!(f, "{key}: {} -> {}", or_default(&self.from), or_default(&self.to))
            }
        }
    }
}

fn compare(tenant: Option<&str>, old: &[Setting], new: &[Setting], changes: &mut Vec<Change>) {
    let value = |settings: &[Setting], key: &str| {
        settings.iter().find(|setting| setting.key == key).map(|setting| setting.value.clone())
    };
    let gone = old.iter().filter(|setting| value(new, &setting.key).is_none());
    for key in gone.chain(new).map(|setting| setting.key.as_str()) {
        let (from, to) = (value(old, key), value(new, key));
        if from != to {
            let kind = match (&from, &to) {
                (None, _) => ChangeKind::Added,
                (_, None) => ChangeKind::Removed,
                _ => ChangeKind::Changed,
            };
            let (tenant, key) = (tenant.map(str::to_string), Some(key.to_string()));
            changes.push(Change { kind, tenant, key, from, to });
        }
    }
}

fn general(policy: &Policy) -> Vec<Setting> {
    let mut settings = Vec::new();
    key::outline(POLICY, policy, &Policy::default(), "", &mut settings);
    settings
}

fn add_tenant(tenant: &Tenant, above: &str, into: &mut Vec<PolicyTenant>) {
    let name = format!("{above}{}", tenant.name);
    let mut settings = Vec::new();
    key::outline(TENANT, tenant, &Tenant::default(), "", &mut settings);
    let below = format!("{name}/");
    into.push(PolicyTenant { name, settings });
    for tenant in &tenant.tenants {
        add_tenant(tenant, &below, into);
    }
}
