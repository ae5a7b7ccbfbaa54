//! Rights of users by name, cached for a short time.
//!
//! **Problem.** Names of users and groups are looked up in an account database, which may be slow, and a
//! policy may have a thousand lists of them; all clients wait for the asking thread. **Rule.** A user's
//! view and permission to submit are looked up when needed and kept for [`KEPT`], with their policy. The
//! permission to *change* is not kept here: it is as recent as the answer of the account database, at most
//! half a minute ([`super::peers`]).
//! **Bounds.** [`PEERS_MAX`] peers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::peers::{Peer, Permission};
use tenantd_policy::accounts::Accounts;
use tenantd_policy::model::{Policy, Tenant};

const KEPT: Duration = Duration::from_secs(5);
const PEERS_MAX: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Access {
    known: Mutex<HashMap<(u32, u32), (Instant, Rights)>>,
}

#[derive(Clone, Debug)]
pub(super) struct Rights {
    /// True for root and administrators.
    pub(super) sees_all: bool,
    /// Tenants and groups that name the peer in `allow`; tenants in these groups are not listed.
    pub(super) allowed: Arc<[String]>,
}

impl Access {
    /// Rights of `peer` by `policy`; `None` while an account is being looked up.
    pub(super) fn of(&self, peer: &Peer, policy: &Policy, accounts: &Accounts) -> Option<Rights> {
        let (key, now) = ((peer.uid, peer.gid), Instant::now());
        let is_fresh = |made: Instant| now.saturating_duration_since(made) < KEPT;
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((made, rights)) = known().get(&key)
            && is_fresh(*made)
        {
            return Some(rights.clone());
        }
        let mut allowed = Vec::new();
        walk((peer, accounts), "", &policy.tenants, &mut allowed)?;
        let sees_all = match peer.is_among(&policy.administrators, accounts) {
            Permission::Granted => true,
            Permission::Refused => false,
            Permission::Later => return None,
        };
        let rights = Rights { sees_all, allowed: allowed.into() };
        let mut known = known();
        if known.len() >= PEERS_MAX {
            known.retain(|_, (made, _)| is_fresh(*made));
        }
        if known.len() < PEERS_MAX {
            known.insert(key, (now, rights.clone()));
        }
        Some(rights)
    }
}

/// Permission to hand work to a tenant: by its `allow`, by that of a group around it, or by that of its template.
pub(super) fn is_allowed(
    peer: &Peer,
    tenant: &str,
    policy: &Policy,
    accounts: &Accounts,
) -> Permission {
    let (mut level, mut template) = (&*policy.tenants, &[][..]);
    let mut all = Permission::Refused;
    for name in tenant.split('/') {
        let named = level.iter().find(|node| node.name == name);
        let Some(node) = named.or(template.first()) else { break };
        (level, template) = (&node.tenants, node.template());
        match peer.is_among(&node.allow, accounts) {
            Permission::Granted => return Permission::Granted,
            Permission::Later => all = Permission::Later,
            Permission::Refused => {}
        }
    }
    all
}

fn walk(
    (peer, accounts): (&Peer, &Accounts),
    prefix: &str,
    tenants: &[Tenant],
    into: &mut Vec<String>,
) -> Option<()> {
    for tenant in tenants {
        let path = format!("{prefix}{}", tenant.name);
        match peer.is_named(&tenant.allow, accounts) {
            Permission::Granted => into.push(path),
            Permission::Refused => {
                walk((peer, accounts), &format!("{path}/"), &tenant.tenants, into)?;
            }
            Permission::Later => return None,
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_kept_for_a_bounded_number_of_peers() {
        let text = "version: 1\ntenants: { web: { allow: { users: [ 7 ] } }, ci: { allow: { groups: [ 9 ] }, tenants: { a: {} } } }";
        let policy = tenantd_policy::load_text("policy.yaml", text).unwrap().policy;
        let access = Access::default();
        let accounts = Accounts::default();
        let rights = |uid, gid| access.of(&Peer { uid, gid, pid: 1 }, &policy, &accounts).unwrap();
        let of = |uid, gid| rights(uid, gid).allowed.to_vec();
        assert_eq!((of(7, 1), of(8, 9)), (vec!["web".to_string()], vec!["ci".to_string()]));
        assert_eq!(of(7, 9), ["web", "ci"], "by user and by group");
        (100..10_000).for_each(|uid| drop(of(uid, uid)));
        assert!(access.known.lock().unwrap().len() <= PEERS_MAX);
        assert_eq!(of(7, 1), ["web"]);
        assert!(rights(0, 0).sees_all);
    }
}
