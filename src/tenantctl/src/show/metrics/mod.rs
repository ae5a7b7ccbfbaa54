//! `tenantctl metrics`: the last tick as metrics.
//!
//! For node_exporter's textfile collector (docs/metrics.md), and behind `/metrics` of `tenantctl serve`.
//! The agent itself opens no port and has no exposition format: scrapers ask a reader of its socket.
//!
//! A daemon that does not answer is a measurement too: `tenantd_up 0` and no other metric, so that no old
//! value outlives it.

mod credits;
mod disks;
mod exposition;
mod metric;
mod table;

use std::io::{self, Write};

use anyhow::Context;

use crate::args::{Format, MetricsArgs};
use crate::common::file;
use tenantd::exit::Exit;
use tenantd_varlink::client::Endpoint;
use tenantd_varlink::interface::{Nothing, method};

pub use exposition::{OPENMETRICS_TYPE, PROMETHEUS_TYPE, openmetrics, prometheus};
pub use metric::{Kind, Metric};
pub use table::{METRICS, UP};

pub(crate) fn run(daemon: &Endpoint, args: &MetricsArgs) -> anyhow::Result<Exit> {
    let asked = daemon.call::<method::GetStatus>(&Nothing {});
    let status = asked.as_ref().ok().map(|reply| &reply.status);
    let text = match args.format {
        Format::Prometheus => prometheus(status),
        Format::Openmetrics => openmetrics(status),
    };
    match &args.output {
        None => io::stdout().lock().write_all(text.as_bytes())?,
        Some(path) => file::replace(path, &text)
            .with_context(|| format!("cannot write the metrics to {}", path.display()))?,
    }
    asked?;
    Ok(Exit::Ok)
}
