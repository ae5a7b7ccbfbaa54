//! Exposition text of a status, in two formats. The only file that names prometheus-client.
//!
//! **OpenMetrics 1.0** for scrapers that ask for it: `# UNIT`, `_total` on the samples of a counter and not on
//! its family, `# EOF`. **Prometheus 0.0.4** for everything else: node_exporter's textfile collector and
//! `promtool check metrics` read no other. There a family has the name of its samples. No text satisfies both
//! with typed counters, so the second is derived from the first, which has the escapes and the numbers.
//!
//! **Properties** (`tests/face/metrics.rs`): a strict reader of OpenMetrics takes the first, `promtool` has no
//! remark about the second, and both have the same samples.

use std::collections::HashMap;
use std::fmt::{self, Write};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use super::metric::{FOUND_SERIES_MAX, Kind, Metric, Source};
use super::table::{METRICS, UP};
use tenantd_control::report::status::{Status, TenantStatus, group_of};

/// Media type of [`openmetrics`].
pub const OPENMETRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Media type of [`prometheus`].
pub const PROMETHEUS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Metrics of a tick as OpenMetrics; without a tick, only that the daemon does not answer.
///
/// An absent value has no sample, and a metric without samples is left out.
pub fn openmetrics(status: Option<&Status>) -> String {
    let up = f64::from(u8::from(status.is_some()));
    let tenants = status.map(with_series).unwrap_or_default();
    let known =
        METRICS.iter().filter_map(|metric| Some((metric, samples(metric, status?, &tenants)?)));
    let tick = Tick([(&UP, Samples::One(up))].into_iter().chain(known).collect());
    let mut registry = Registry::with_prefix("tenantd");
    registry.register_collector(Box::new(tick));
    let mut text = String::new();
    match text::encode(&mut text, &registry) {
        Ok(()) => text,
        Err(fmt::Error) => String::new(),
    }
}

/// Metrics of a tick in the text format of Prometheus.
pub fn prometheus(status: Option<&Status>) -> String {
    let source = openmetrics(status);
    let mut text = String::with_capacity(source.len());
    // The descriptors of a family are adjacent, and the name of its samples follows from its type.
    let (mut help, mut family) = ("", "");
    for line in source.lines() {
        let Some(descriptor) = line.strip_prefix("# ") else {
            text.push_str(line);
            text.push('\n');
            continue;
        };
        let mut words = descriptor.splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("HELP"), Some(name), Some(words)) => (family, help) = (name, words),
            (Some("TYPE"), Some(_), Some(kind)) => {
                let (kind, suffix) = match kind {
                    "counter" => ("counter", "_total"),
                    "info" => ("gauge", "_info"),
                    other => (other, ""),
                };
                let _ = writeln!(text, "# HELP {family}{suffix} {help}");
                let _ = writeln!(text, "# TYPE {family}{suffix} {kind}");
            }
            // Units and the end are not part of this format.
            _ => {}
        }
    }
    text
}

#[derive(Debug)]
enum Samples {
    One(f64),
    /// Values by the label of this name.
    Each(&'static str, Vec<(String, f64)>),
    Info(&'static str, String),
}

/// Tenants with series of their own: all named ones, and some of the found ones.
fn with_series(status: &Status) -> Vec<&TenantStatus> {
    let mut nr_found: HashMap<&str, usize> = HashMap::new();
    let mut tenants = Vec::with_capacity(status.tenants.len());
    for tenant in &status.tenants {
        let group = group_of(&tenant.name);
        let nr = nr_found.entry(group).or_default();
        *nr += usize::from(tenant.found);
        if !tenant.found || *nr <= FOUND_SERIES_MAX {
            tenants.push(tenant);
        }
    }
    tenants
}

fn samples(metric: &Metric, status: &Status, tenants: &[&TenantStatus]) -> Option<Samples> {
    let label = metric.label();
    let values: Vec<(String, f64)> = match &metric.source {
        Source::Host(read) => return read.from(status).map(Samples::One),
        Source::Info(_, read) => {
            let text = read(status);
            return (!text.is_empty()).then(|| Samples::Info(label, text.to_string()));
        }
        Source::Each(_, read) => read(status),
        Source::Tenant(read) => tenants
            .iter()
            .filter_map(|tenant| Some((tenant.name.to_string(), read.from(tenant)?)))
            .collect(),
        Source::Group(read) => status
            .groups
            .iter()
            .filter_map(|group| Some((group.name.to_string(), read.from(group)?)))
            .collect(),
    };
    (!values.is_empty()).then_some(Samples::Each(label, values))
}

#[derive(Debug)]
struct Tick(Vec<(&'static Metric, Samples)>);

impl Collector for Tick {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for (metric, samples) in &self.0 {
            let unit = (!metric.unit.is_empty()).then(|| Unit::Other(metric.unit.to_string()));
            let kind = match metric.kind {
                Kind::Gauge => MetricType::Gauge,
                Kind::Counter => MetricType::Counter,
                Kind::Info => MetricType::Info,
            };
            let mut family =
                encoder.encode_descriptor(&metric.name, &metric.help, unit.as_ref(), kind)?;
            match samples {
                Samples::One(value) => encode(metric.kind, *value, family)?,
                Samples::Each(label, values) => {
                    for (name, value) in values {
                        let labels = [(*label, name.as_str())];
                        encode(metric.kind, *value, family.encode_family(&labels)?)?;
                    }
                }
                Samples::Info(label, text) => family.encode_info(&[(*label, text.as_str())])?,
            }
        }
        Ok(())
    }
}

fn encode(kind: Kind, value: f64, encoder: MetricEncoder) -> fmt::Result {
    match kind {
        Kind::Counter => ConstCounter::new(value).encode(encoder),
        Kind::Gauge | Kind::Info => ConstGauge::new(value).encode(encoder),
    }
}
