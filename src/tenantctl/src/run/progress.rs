//! Progress line with the reason of a job's wait.

use std::io::{self, IsTerminal, Write};

use nix::unistd::getpgrp;
use rustix::termios;

use crate::ask::jobs::reason;
use tenantd_lab::text::{WIDTH, shortened, visible};
use tenantd_varlink::jobs::Waiting;

/// A line on standard error that is redrawn at each change, and removed in the end. Only for a person: on a
/// terminal, and not in the background of a shell.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    is_drawn: bool,
}

impl Progress {
    pub(crate) fn show(&mut self, tenant: &str, waiting: &Waiting) {
        let stderr = io::stderr();
        if !stderr.is_terminal() || !is_in_foreground() {
            return;
        }
        let columns = termios::tcgetwinsize(&stderr).map_or(WIDTH, |size| size.ws_col.into());
        // A character in the last column makes some terminals begin another line.
        let width = if columns > 1 { columns - 1 } else { WIDTH - 1 };
        let line = shortened(&visible(&text(tenant, waiting)), width);
        self.is_drawn = true;
        // An error means that the terminal is gone, and the wait goes on.
        let _ = write!(stderr.lock(), "\r{line}\x1b[K");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_drawn {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

/// True if the shell has this process in the foreground of its terminal.
fn is_in_foreground() -> bool {
    let group = termios::tcgetpgrp(io::stderr());
    group.is_ok_and(|group| group.as_raw_nonzero().get() == getpgrp().as_raw())
}

fn text(tenant: &str, waiting: &Waiting) -> String {
    let Waiting { position, total, .. } = waiting;
    format!("waiting as {position} of {total} in {tenant}: {}", reason(waiting))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenantd_varlink::jobs::WaitReason;

    #[test]
    fn a_line_has_position_reason_and_estimate() {
        let text_of = "needs 8 GiB of memory, 2 GiB of 16 GiB are free".to_string();
        let reason = WaitReason { text: text_of, ..WaitReason::default() };
        let mut waiting =
            Waiting { position: 2, total: 7, reason, estimate_seconds: Some(40.4), starts: None };
        let expected = "waiting as 2 of 7 in ci: needs 8 GiB of memory, 2 GiB of 16 GiB are free";
        assert_eq!(text("ci", &waiting), format!("{expected}; about 40 s"));
        waiting.estimate_seconds = None;
        assert_eq!(text("ci", &waiting), expected);
    }
}
