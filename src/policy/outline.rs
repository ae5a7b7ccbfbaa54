//! A policy as a flat list of keys and values, and the difference between two of them.
//!
//! **Problem.** A reload has to say what it changed, in the log and to whoever asked for it, and `diff` has
//! to say it before. Both compare policies that were read at different times, perhaps by programs of
//! different versions. **Answer.** What a policy says is written down as a person would write it, every key
//! with its value, keys at their defaults left out; two such outlines are compared line by line. What two
//! programs write down differently is shown as a change, never passed over.
//!
//! **Properties** (`tests/policy/outline.rs`): a policy has no difference to itself; two policies that differ
//! have one; applying the changes to the one outline gives the other.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::{Deserialize, Serialize};

use super::model::*;

/// A key of a policy and its value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The key, with dots between its parts: `limit.cpu`.
    pub key: String,
    /// Its value, as a person would write it.
    pub value: String,
}

/// A tenant or group of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyTenant {
    /// Its names from the top, joined by slashes.
    pub name: String,
    /// Its keys that are not left at their defaults.
    pub settings: Vec<Setting>,
}

/// A policy, flat and in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outline {
    /// What concerns no single tenant.
    pub settings: Vec<Setting>,
    /// All tenants and groups, in pre-order.
    pub tenants: Vec<PolicyTenant>,
}

/// What happened to a tenant or a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// It has another value.
    Changed,
}

/// A difference between two policies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// What happened.
    pub kind: ChangeKind,
    /// To which tenant or group; absent where it is about the policy as a whole.
    pub tenant: Option<String>,
    /// To which key; absent where it is about the tenant as a whole.
    pub key: Option<String>,
    /// The old value; absent where it was at its default.
    pub from: Option<String>,
    /// The new value; absent where it is at its default.
    pub to: Option<String>,
}

impl Outline {
    /// What `policy` says, as far as it is not what an empty one says.
    pub fn of(policy: &Policy) -> Outline {
        let mut tenants = Vec::new();
        for tenant in &policy.tenants {
            add_tenant(tenant, "", &mut tenants);
        }
        Outline { settings: general(policy), tenants }
    }

    /// What changes from `self` to `new`: first the policy as a whole, then tenants that went, and then those
    /// that came or changed, in the order of `new`.
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

/// The differences between two lists of settings.
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

/// Collects settings that are not at their defaults.
#[derive(Default)]
struct Settings(Vec<Setting>);

impl Settings {
    fn add<T: PartialEq>(
        &mut self,
        key: &str,
        value: &T,
        default: &T,
        show: impl Fn(&T) -> String,
    ) {
        if value != default {
            self.0.push(Setting { key: key.to_string(), value: show(value) });
        }
    }

    fn add_names(&mut self, key: &str, names: &[String]) {
        self.add(key, &names.to_vec(), &Vec::new(), |names| names.join(", "));
    }
}

fn general(policy: &Policy) -> Vec<Setting> {
    let (host, control, admission) = (&policy.host, &policy.control, &policy.admission);
    let plain = Policy::default();
    let mut all = Settings::default();
    all.add("mode", &policy.mode, &plain.mode, |mode| mode.word().to_string());
    let reserve = plain.host.reserve;
    all.add("host.reserve.cpu", &host.reserve.cpu, &reserve.cpu, ToString::to_string);
    all.add("host.reserve.memory", &host.reserve.memory, &reserve.memory, ToString::to_string);
    all.add("host.hierarchy", &host.hierarchy, &plain.host.hierarchy, |choice| {
        match choice {
            HierarchyChoice::Auto => "auto",
            HierarchyChoice::Unified => "unified",
            HierarchyChoice::Legacy => "legacy",
            HierarchyChoice::Simulated => "simulated",
        }
        .to_string()
    });
    all.add("host.root", &host.root, &plain.host.root, |root| match root {
        RootChoice::Auto => "auto".to_string(),
        RootChoice::Path(path) => path.display().to_string(),
    });
    let default = plain.control;
    all.add("control.interval", &control.interval, &default.interval, |interval| {
        humantime::format_duration(*interval).to_string()
    });
    all.add("control.allocation", &control.allocation, &default.allocation, |rule| {
        match rule {
            Allocation::Drf => "drf",
            Allocation::MaxMin => "max-min",
            Allocation::Static => "static",
        }
        .to_string()
    });
    let oversubscription = (&control.oversubscription, &default.oversubscription);
    all.add(
        "control.oversubscription",
        oversubscription.0,
        oversubscription.1,
        ToString::to_string,
    );
    all.add("control.on_exit", &control.on_exit, &default.on_exit, |on_exit| {
        match on_exit {
            OnExit::Restore => "restore",
            OnExit::Keep => "keep",
        }
        .to_string()
    });
    let watches = (&control.watch_policy, &default.watch_policy);
    all.add("control.watch_policy", watches.0, watches.1, ToString::to_string);
    add_admission(admission, &mut all);
    all.add_names("administrators.users", &policy.administrators.users);
    all.add_names("administrators.groups", &policy.administrators.groups);
    all.0
}

fn add_admission(admission: &AdmissionPolicy, all: &mut Settings) {
    let default = AdmissionPolicy::default();
    all.add("admission.discipline", &admission.discipline, &default.discipline, |discipline| {
        match discipline {
            Discipline::Fifo => "fifo",
            Discipline::Priority => "priority",
            Discipline::RoundRobin => "round-robin",
            Discipline::Fq => "fq",
            Discipline::Wfq => "wfq",
            Discipline::Wf2q => "wf2q",
            Discipline::TwoDfq => "2dfq",
            Discipline::TwoDfqE => "2dfq-e",
            Discipline::Drf => "drf",
        }
        .to_string()
    });
    let running = (&admission.max_running, &default.max_running);
    all.add("admission.max_running", running.0, running.1, |most| {
        most.map_or("auto".to_string(), |most| most.to_string())
    });
    all.add("admission.running", &admission.running, &default.running, |running| {
        match running {
            RunningShares::Equal => "equal",
            RunningShares::Multilevel => "multilevel",
        }
        .to_string()
    });
}

fn add_tenant(tenant: &Tenant, above: &str, into: &mut Vec<PolicyTenant>) {
    let name = match above {
        "" => tenant.name.clone(),
        _ => format!("{above}/{}", tenant.name),
    };
    into.push(PolicyTenant { name: name.clone(), settings: tenant_settings(tenant) });
    for below in &tenant.tenants {
        add_tenant(below, &name, into);
    }
}

fn tenant_settings(tenant: &Tenant) -> Vec<Setting> {
    let plain = Tenant::default();
    let mut all = Settings::default();
    let show = |weight: f64| weight.to_string();
    let (cpu, memory) = (tenant.weight.cpu.get(), tenant.weight.memory.get());
    let usual = plain.weight.cpu.get();
    match cpu == memory {
        true => all.add("weight", &cpu, &usual, |weight| show(*weight)),
        false => {
            all.add("weight.cpu", &cpu, &usual, |weight| show(*weight));
            all.add("weight.memory", &memory, &usual, |weight| show(*weight));
        }
    }
    for (name, bound) in [("guarantee", &tenant.guarantee), ("limit", &tenant.limit)] {
        all.add(&format!("{name}.cpu"), &bound.cpu, &None, |cpus| {
            cpus.map(|cpus| cpus.to_string()).unwrap_or_default()
        });
        all.add(&format!("{name}.memory"), &bound.memory, &None, |memory| {
            memory.map(|memory| memory.to_string()).unwrap_or_default()
        });
    }
    all.add_names("match.unit", &tenant.matches.units);
    all.add_names("match.cgroup", &tenant.matches.cgroups);
    all.add_names("match.users", &tenant.matches.users);
    all.add_names("match.groups", &tenant.matches.groups);
    all.add("dop", &tenant.dop, &plain.dop, |dop| match dop {
        DopPolicy::Auto => "auto".to_string(),
        DopPolicy::AtMost(most) => format!("at most {most}"),
        DopPolicy::Manual(dop) => dop.to_string(),
        DopPolicy::Imci => "imci".to_string(),
    });
    all.add("cpus", &tenant.cpus, &plain.cpus, |cpus| match cpus {
        CpusPolicy::Shared => "shared".to_string(),
        CpusPolicy::Dop => "dop".to_string(),
        CpusPolicy::Exclusive => "exclusive".to_string(),
        CpusPolicy::Fixed(list) => super::check::shown_cpus(list),
    });
    all.add_names("allow.users", &tenant.allow.users);
    all.add_names("allow.groups", &tenant.allow.groups);
    all.0
}
