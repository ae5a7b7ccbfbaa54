//! Details of the open tenant: the agent's explanation, and the processes.
//!
//! **Readers.** The page has no password. It shows the part of `/proc` that every user of the host may read: names of programs
//! without arguments, and none at all if `/proc` hides the processes of other users, even if this program may see them.
//!
//! **Bounds.** All readers of one tenant share one explanation per [`super::FRESH`]. There are at most [`OPENED_MAX`] of them
//! in that time; one more is refused.

use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::show::top::inspect::{Inspection, Inspector, homes};
use tenantd_control::report::explanation::Explanation;
use tenantd_core::kernel_text::hidden::hidden;
use tenantd_host::kernfs::RealKernFs;
use tenantd_varlink::client::Endpoint;
use tenantd_varlink::interface::{ExplainParameters, method};

const OPENED_MAX: usize = 8;
/// A process without privileges, as its `/proc/PID/status` describes it.
const READER: &[u8] = b"Gid:\t65534\t65534\t65534\t65534\nGroups:\t\nCapEff:\t0000000000000000\n";

/// Details of a tenant or group.
#[derive(Debug)]
pub(crate) struct Details {
    pub(crate) explanation: Explanation,
    /// Processes of a tenant, the largest first, or the reason why there are none to show.
    pub(crate) inspection: Result<Inspection, String>,
}

#[derive(Debug)]
struct Entry {
    name: String,
    at: Instant,
    inspector: Inspector,
    details: Result<Arc<Details>, String>,
}

#[derive(Debug)]
pub(crate) struct Opened {
    daemon: Endpoint,
    fresh: Duration,
    entries: Mutex<Vec<Entry>>,
}

impl Opened {
    pub(crate) fn new(daemon: Endpoint, fresh: Duration) -> Opened {
        Opened { daemon, fresh, entries: Mutex::default() }
    }

    /// Details of a tenant or group. Concurrent callers wait for each other.
    pub(crate) fn details(&self, name: &str, is_group: bool) -> Result<Arc<Details>, String> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let known = entries.iter().position(|entry| entry.name == name);
        if let Some(entry) = known.and_then(|at| entries.get(at))
            && entry.at.elapsed() < self.fresh
        {
            return entry.details.clone();
        }
        // The earlier look at the same tenant gives rates.
        let mut inspector = match known {
            Some(at) => entries.remove(at).inspector,
            None => Inspector::of_names(),
        };
        if entries.len() >= OPENED_MAX {
            let oldest = entries.iter().enumerate().min_by_key(|(_, entry)| entry.at);
            match oldest.filter(|(_, entry)| entry.at.elapsed() >= self.fresh) {
                Some((at, _)) => drop(entries.remove(at)),
                None => {
                    return Err(format!(
                        "{OPENED_MAX} other tenants are open on this page now: reload it in a moment"
                    ));
                }
            }
        }
        let details = self.ask(name, is_group, &mut inspector).map(Arc::new);
        let at = Instant::now();
        entries.push(Entry { name: name.to_string(), at, inspector, details: details.clone() });
        details
    }

    fn ask(
        &self,
        name: &str,
        is_group: bool,
        inspector: &mut Inspector,
    ) -> Result<Details, String> {
        let parameters = ExplainParameters { tenant: name.to_string() };
        let reply =
            self.daemon.call::<method::Explain>(&parameters).map_err(|error| error.to_string())?;
        let inspection = match hidden_by() {
            _ if is_group => Err("The processes are in the tenants of this group.".to_string()),
            Some(option) => Err(format!(
                "No process is listed: /proc is mounted with {option}, which hides the processes of other users from the \
                 readers of this page. `sudo tenantctl top {name}` shows them."
            )),
            None => {
                let homes = homes(&reply.explanation);
                let kernel = &mut RealKernFs::new();
                let mut found = inspector.look(kernel, (name, &homes), Instant::now());
                found.sort(false);
                Ok(found)
            }
        };
        Ok(Details { explanation: reply.explanation, inspection })
    }
}

/// Option of `/proc` that hides processes from users without privileges.
fn hidden_by() -> Option<String> {
    match fs::read("/proc/self/mountinfo") {
        Ok(mounts) => hidden(&mounts, READER).map(|hidden| hidden.option),
        Err(error) => Some(format!("unknown options ({error})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_tenants_are_asked_for_in_a_time() {
        let nowhere = Endpoint { path: "/nonexistent/socket".into(), timeout: None };
        let error = |opened: &Opened, name: &str| opened.details(name, false).unwrap_err();
        let opened = Opened::new(nowhere.clone(), Duration::MAX);
        for name in 0..OPENED_MAX {
            assert!(error(&opened, &name.to_string()).contains("systemctl start tenantd"));
        }
        assert!(error(&opened, "one more").contains("8 other tenants are open"));
        assert!(error(&opened, "0").contains("systemctl start tenantd"), "it is known");
        let opened = Opened::new(nowhere, Duration::ZERO);
        for name in 0..10 * OPENED_MAX {
            assert!(error(&opened, &name.to_string()).contains("systemctl start tenantd"));
        }
        assert_eq!(opened.entries.lock().unwrap().len(), OPENED_MAX);
    }
}
