//! The log: to journald with fields if systemd runs the program, else to standard error.

use std::env;
use std::io;
use std::os::unix::fs::MetadataExt;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The variable that sets the filter: `warn`, `tenantd=debug`, ….
const FILTER_VARIABLE: &str = "TENANTD_LOG";

/// Starts logging at `default` and above; the environment may override that.
pub fn start(default: LevelFilter) {
    // The filter that matches values of fields takes a megabyte and is not needed.
    let wanted = env::var(FILTER_VARIABLE).ok().and_then(|wanted| wanted.parse::<Targets>().ok());
    let filter = wanted.unwrap_or_else(|| Targets::new().with_default(default));
    let registry = tracing_subscriber::registry().with(filter);
    let journald = to_journald().then(tracing_journald::layer).and_then(Result::ok);
    // Fails only in tests that run two commands in one process.
    let _ = match journald {
        Some(layer) => registry.with(layer.with_field_prefix(None)).try_init(),
        None => {
            let layer = tracing_subscriber::fmt::layer()
                .with_writer(io::stderr)
                .with_target(false)
                .without_time()
                // Plain on a terminal as well: colours need a build of the library with colours.
                .with_ansi(false);
            registry.with(layer).try_init()
        }
    };
}

/// True if standard error is the journal: systemd then names its device and inode.
fn to_journald() -> bool {
    let Ok(stream) = env::var("JOURNAL_STREAM") else { return false };
    let Ok(stderr) = std::fs::metadata("/proc/self/fd/2") else { return false };
    stream == format!("{}:{}", stderr.dev(), stderr.ino())
}
