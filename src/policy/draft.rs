//! A policy between text and model: typed values that still know where they were written.

use super::model::*;
use super::tree::{At, Place};
use crate::units::{Bytes, MilliCpus};

/// A policy whose values still know their places.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) version: Option<Place>,
    pub(super) mode: Mode,
    pub(super) reserve: BoundDraft,
    pub(super) hierarchy: HierarchyChoice,
    pub(super) root: RootChoice,
    pub(super) control: ControlPolicy,
    pub(super) admission: AdmissionPolicy,
    pub(super) administrators: AccountsDraft,
    /// Where `tenants` was given.
    pub(super) tenants_at: Option<Place>,
    pub(super) tenants: Vec<TenantDraft>,
    /// Where each of [`super::rules::NOT_YET_EFFECTIVE_KEYS`] was given.
    pub(super) not_yet: Vec<Vec<Place>>,
}

/// A tenant whose values still know their places.
#[derive(Debug)]
pub(super) struct TenantDraft {
    /// Its names from the top, joined by `/`.
    pub(super) path: String,
    pub(super) name: At<String>,
    pub(super) weight: Weights,
    pub(super) guarantee: BoundDraft,
    pub(super) limit: BoundDraft,
    pub(super) matches: MatchDraft,
    pub(super) owner: Option<At<OwnerChoice>>,
    pub(super) dop: Option<At<DopPolicy>>,
    pub(super) cpus: Option<At<CpusPolicy>>,
    pub(super) allow: AccountsDraft,
    pub(super) tenants: Vec<TenantDraft>,
}

#[derive(Debug, Default)]
pub(super) struct BoundDraft {
    pub(super) cpu: Option<At<MilliCpus>>,
    pub(super) memory: Option<At<Bytes>>,
}

#[derive(Debug, Default)]
pub(super) struct MatchDraft {
    pub(super) units: Vec<At<String>>,
    pub(super) cgroups: Vec<At<String>>,
    pub(super) users: Vec<At<String>>,
    pub(super) groups: Vec<At<String>>,
}

#[derive(Debug, Default)]
pub(super) struct AccountsDraft {
    pub(super) users: Vec<At<String>>,
    pub(super) groups: Vec<At<String>>,
}

impl TenantDraft {
    /// Whether tenants stand below it.
    pub(super) fn is_group(&self) -> bool {
        !self.tenants.is_empty()
    }
}

/// Every tenant of the tree, a group before what is below it.
pub(super) fn all(tenants: &[TenantDraft]) -> Vec<&TenantDraft> {
    tenants.iter().flat_map(|tenant| std::iter::once(tenant).chain(all(&tenant.tenants))).collect()
}

/// Every leaf of the tree.
pub(super) fn leaves(tenants: &[TenantDraft]) -> Vec<&TenantDraft> {
    all(tenants).into_iter().filter(|tenant| !tenant.is_group()).collect()
}

impl Draft {
    /// The model, without the places. Only a draft without errors may become one.
    pub(super) fn into_policy(self) -> Policy {
        let reserve = Reserve {
            cpu: self.reserve.cpu.map(|at| at.value).unwrap_or_default(),
            memory: self.reserve.memory.map(|at| at.value).unwrap_or_default(),
        };
        Policy {
            mode: self.mode,
            host: HostPolicy { reserve, hierarchy: self.hierarchy, root: self.root },
            control: self.control,
            admission: self.admission,
            administrators: self.administrators.into_accounts(),
            tenants: into_tenants(self.tenants),
        }
    }
}

fn into_tenants(drafts: Vec<TenantDraft>) -> Vec<Tenant> {
    let mut tenants: Vec<Tenant> = drafts.into_iter().map(TenantDraft::into_tenant).collect();
    // They take up the drafts' own room, which is half as large again, and stay for as long as the agent runs.
    tenants.shrink_to_fit();
    tenants
}

impl TenantDraft {
    fn into_tenant(self) -> Tenant {
        Tenant {
            name: self.name.value,
            weight: self.weight,
            guarantee: self.guarantee.into_bound(),
            limit: self.limit.into_bound(),
            matches: Matches {
                units: values(self.matches.units),
                cgroups: values(self.matches.cgroups),
                users: values(self.matches.users),
                groups: values(self.matches.groups),
            },
            owner: self.owner.map(|at| at.value).unwrap_or_default(),
            dop: self.dop.map(|at| at.value).unwrap_or_default(),
            cpus: self.cpus.map(|at| at.value).unwrap_or_default(),
            allow: self.allow.into_accounts(),
            tenants: into_tenants(self.tenants),
        }
    }
}

impl AccountsDraft {
    fn into_accounts(self) -> Accounts {
        Accounts { users: values(self.users), groups: values(self.groups) }
    }
}

impl BoundDraft {
    fn into_bound(self) -> Bound {
        Bound { cpu: self.cpu.map(|at| at.value), memory: self.memory.map(|at| at.value) }
    }
}

fn values(texts: Vec<At<String>>) -> Vec<String> {
    texts.into_iter().map(|text| text.value).collect()
}
