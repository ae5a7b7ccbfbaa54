//! Choice of the tenant of a pod, by facts that its runtime reports.
//!
//! **Rules.** A pod fits a match if it has one of the namespaces and one of the labels; a kind that is not given fits every
//! pod. The first tenant in the policy that fits counts. Templates come after all tenants, in the order in which they find.
//! With labels a template finds the values of the first of its labels that the pod has, otherwise namespaces.
//!
//! The choice depends on the policy as written and on the facts of this pod alone, so it is the same after a restart.
//! [`super::expand`] names the tenants of templates.
//!
//! **Properties** (`tests/policy/pods.rs`): the order of the policy decides; no template takes a pod that fits a tenant; a
//! found value is a name without wildcards and not empty.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::keys::{PodMatch, Tenant};
use super::pattern::{fits, has_wildcard};

/// Most labels of a pod.
pub const LABELS_MAX: usize = 128;
/// Longest facts about a pod together, in bytes.
pub const FACTS_MAX: usize = 16 << 10;

/// Facts about a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pod {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// Labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

impl Pod {
    /// Length of all facts, in bytes.
    pub fn size(&self) -> usize {
        let labels = self.labels.iter().map(|(key, value)| key.len() + value.len());
        self.name.len() + self.namespace.len() + labels.sum::<usize>()
    }

    /// True within [`LABELS_MAX`] and [`FACTS_MAX`].
    pub fn is_bounded(&self) -> bool {
        self.labels.len() <= LABELS_MAX && self.size() <= FACTS_MAX
    }
}

/// The tenant of a pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Choice<'p> {
    /// The path of a tenant.
    Named(String),
    /// The group whose template finds it, the namespace or value that it finds, and the key of the label, if any.
    Found(String, &'p str, Option<&'p str>),
}

/// Chooses the tenant of a pod; `None` if it fits no match.
pub(super) fn choice<'p>(tenants: &'p [Tenant], pod: &'p Pod) -> Option<Choice<'p>> {
    named(tenants, "", pod).map(Choice::Named).or_else(|| found(tenants, "", pod))
}

fn named(tenants: &[Tenant], above: &str, pod: &Pod) -> Option<String> {
    tenants.iter().find_map(|tenant| {
        let path = || format!("{above}{}", tenant.name);
        if tenant.matches.pods.has(pod) {
            return Some(path());
        }
        let below = Some(&tenant.tenants).filter(|below| !below.is_empty());
        below.and_then(|below| named(below, &(path() + "/"), pod))
    })
}

fn found<'p>(tenants: &'p [Tenant], above: &str, pod: &'p Pod) -> Option<Choice<'p>> {
    tenants.iter().filter(|tenant| tenant.is_group()).find_map(|tenant| {
        let path = format!("{above}{}", tenant.name);
        found(&tenant.tenants, &format!("{path}/"), pod).or_else(|| {
            let matches = &tenant.each.as_ref()?.matches.pods;
            let (name, label) =
                Some(pod).filter(|pod| matches.has(pod)).map(|pod| matches.name(pod))?;
            let is_name = !name.is_empty() && !has_wildcard(name);
            is_name.then_some(Choice::Found(path, name, label))
        })
    })
}

impl PodMatch {
    /// True if no rule is given.
    pub fn is_empty(&self) -> bool {
        self.namespaces.is_empty() && self.labels.is_empty()
    }

    fn has(&self, pod: &Pod) -> bool {
        let in_namespace = || self.namespaces.iter().any(|it| fits_one(it, &pod.namespace));
        !self.is_empty()
            && (self.namespaces.is_empty() || in_namespace())
            && (self.labels.is_empty() || self.label(pod).is_some())
    }

    /// Key and value of the first label in the match that a pod has.
    fn label<'p>(&'p self, pod: &'p Pod) -> Option<(&'p str, &'p str)> {
        self.labels.iter().find_map(|label| {
            let (key, pattern) = label.split_once('=')?;
            let value = pod.labels.get(key)?;
            fits_one(pattern, value).then_some((key, value.as_str()))
        })
    }

    /// The name that a template finds in a pod that fits, with the key of the label that has it.
    fn name<'p>(&'p self, pod: &'p Pod) -> (&'p str, Option<&'p str>) {
        match self.label(pod) {
            Some((key, value)) => (value, Some(key)),
            None => (&pod.namespace, None),
        }
    }

    /// The match of the tenant that this template makes for a name.
    pub(super) fn of_found(&self, name: &str, keys: impl IntoIterator<Item = String>) -> PodMatch {
        let labels: Vec<String> = keys.into_iter().map(|key| format!("{key}={name}")).collect();
        let namespaces =
            if labels.is_empty() { vec![name.to_string()] } else { self.namespaces.clone() };
        PodMatch { namespaces, labels }
    }
}

/// Like [`fits`], without its work for a pattern that is a name.
fn fits_one(pattern: &str, name: &str) -> bool {
    if has_wildcard(pattern) { fits(pattern, name) } else { pattern == name }
}
