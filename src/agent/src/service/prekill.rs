//! The hook of systemd-oomd: a socket on a thread of its own, while the policy has `memory: { victims: share }`.
//!
//! The directory comes and goes with systemd-oomd, so it is looked for once in [`PERIOD_TICKS`]. A failure costs the notices
//! alone: the ends of units are reported without them.

use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use tracing::{debug, info, warn};

use tenantd_varlink::listen::ListenError;
use tenantd_varlink::prekill::{Hook, Notice, Notices};

/// Ticks from one attempt to the next.
const PERIOD_TICKS: u64 = 10;

/// The hook of a service.
#[derive(Debug, Default)]
pub(super) struct OomdHook {
    /// Directory of the sockets; `None` in a simulation.
    directory: Option<PathBuf>,
    notices: Option<Notices>,
    has_failed: bool,
}

impl OomdHook {
    pub(super) fn in_directory(directory: &Path) -> OomdHook {
        OomdHook { directory: Some(directory.to_path_buf()), ..OomdHook::default() }
    }

    /// Notices since the last call.
    pub(super) fn take(&self) -> Vec<Notice> {
        let notices: Vec<Notice> = self.notices.iter().flat_map(Notices::take).collect();
        for Notice { cgroup, .. } in &notices {
            info!(action = "notice", "systemd-oomd is about to end {cgroup}");
        }
        notices
    }

    /// Opens the socket, where notices of the cgroups below `mount` are wanted, or closes it.
    pub(super) fn tend(&mut self, mount: Option<&Path>, tick: u64) {
        let (Some(directory), Some(mount)) = (&self.directory, mount) else {
            self.notices = None;
            return;
        };
        if !directory.is_dir() {
            self.notices = None;
        } else if self.notices.is_none() && tick % PERIOD_TICKS == 1 {
            match open(directory, mount) {
                Ok(notices) => (self.notices, self.has_failed) = (Some(notices), false),
                Err(error) if self.has_failed => debug!("{error}"),
                Err(error) => {
                    self.has_failed = true;
                    warn!("ends by systemd-oomd are reported without its notices: {error}");
                }
            }
        }
    }
}

fn open(directory: &Path, mount: &Path) -> Result<Notices, ListenError> {
    let (hook, notices) = Hook::listen(directory, mount)?;
    let run = move || {
        if let Err(error) = hook.run() {
            warn!("notices of systemd-oomd are no longer taken: {error}");
        }
    };
    let failed = |source: io::Error| ListenError::Io { path: directory.to_path_buf(), source };
    thread::Builder::new().name("oomd".into()).spawn(run).map_err(failed)?;
    Ok(notices)
}
