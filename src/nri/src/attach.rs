//! Attaching containers by calls of tenantd, apart from the thread that answers containerd.
//!
//! **Failures.** While tenantd is away, all wait with a growing pause. A refusal (no tenant for the pod, a cgroup that another tenant
//! has, mode observe) is tried again after a long pause, because a reload or a change of mode can end it. Meanwhile the container runs as
//! without tenantd. The log has one line for an absence, and one for each namespace and reason.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::table::{Place, Table};
use tenantd_core::kernel_text::cleaned;
use tenantd_varlink::client::{ClientError, Endpoint};
use tenantd_varlink::error::CallError;
use tenantd_varlink::interface::{AttachParameters, method};

/// Namespaces and reasons that are remembered, so that each is logged once. More are not logged.
const LOGGED_MAX: usize = 1024;

/// A failed attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Tenantd does not answer; the cause.
    Away(String),
    /// Tenantd refuses this one; the cause.
    Refused(String),
}

/// The part of tenantd that is called.
pub trait Attach {
    /// Makes a cgroup a member of a tenant; has no effect if it is one already.
    ///
    /// # Errors
    /// [`Failure`]
    fn attach(&mut self, place: &Place) -> Result<(), Failure>;
}

impl Attach for Endpoint {
    fn attach(&mut self, place: &Place) -> Result<(), Failure> {
        let parameters = AttachParameters {
            tenant: place.tenant.clone(),
            cgroup: Some(place.cgroup.clone()),
            pod: Some(place.pod.clone()),
            ..AttachParameters::default()
        };
        match self.call::<method::Attach>(&parameters) {
            Ok(_) => Ok(()),
            Err(ClientError::Refused(CallError::NoSuchTenant { tenant, .. })) => {
                let why = format!("the policy has no tenant `{}`", cleaned(&tenant));
                Err(Failure::Refused(why))
            }
            Err(ClientError::Refused(CallError::Busy {})) => {
                Err(Failure::Away("tenantd has too many calls".to_string()))
            }
            Err(
                error @ (ClientError::NotRunning(_)
                | ClientError::Ended(_)
                | ClientError::Late { .. }),
            ) => Err(Failure::Away(error.to_string())),
            Err(error) => Err(Failure::Refused(error.to_string())),
        }
    }
}

/// Pauses between two calls for the same container.
#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    /// First pause while tenantd is away; each later one is twice as long.
    pub first: Duration,
    /// Longest pause while tenantd is away.
    pub longest: Duration,
    /// Pause after a refusal.
    pub refused: Duration,
}

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses {
            first: Duration::from_secs(1),
            longest: Duration::from_secs(30),
            refused: Duration::from_secs(60),
        }
    }
}

/// Attaches the containers of `table` until it is closed.
pub fn work(table: &Table, tenantd: &mut impl Attach, pauses: Pauses) {
    let mut logged: HashSet<(String, String)> = HashSet::new();
    let mut away: Option<Duration> = None;
    while let Some((id, place)) = table.next_due() {
        match tenantd.attach(&place) {
            Ok(()) => {
                if away.take().is_some() {
                    info!("tenantd answers again");
                }
                table.settle(&id, &place, None);
            }
            Err(Failure::Away(why)) => {
                if away.is_none() {
                    warn!("containers are not attached for now: {why}");
                }
                let pause = away.map_or(pauses.first, |last| (last * 2).min(pauses.longest));
                away = Some(pause);
                table.settle(&id, &place, Some(Instant::now() + pause));
                table.pause(pause);
            }
            Err(Failure::Refused(why)) => {
                away = None;
                let namespace = cleaned(&place.pod.namespace);
                if logged.len() < LOGGED_MAX
                    && logged.insert((namespace.clone(), generic(&why, &place)))
                {
                    warn!(
                        "containers of the namespace `{namespace}` run as without tenantd, {} among them: {why}",
                        place.cgroup
                    );
                }
                table.settle(&id, &place, Some(Instant::now() + pauses.refused));
            }
        }
    }
}

/// Reason without the cgroup, which differs for each container.
fn generic(why: &str, place: &Place) -> String {
    why.replace(&place.cgroup, "")
}
