//! A status as exposition text. The only file that names prometheus-client.
//!
//! The text is OpenMetrics 1.0 (`# UNIT`, counters end in `_total`, `# EOF`) of a kind that a parser of the
//! older Prometheus text format takes as well, as node_exporter's textfile collector has no other: only
//! gauges and counters, no timestamps, no exemplars.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use super::table::{Kind, METRICS, Metric, Source, UP};
use crate::control::status::Status;

/// The media type of the text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metrics of a tick; without one, only that the daemon is away.
///
/// What is absent from the status has no sample, and a metric without samples is left out altogether.
pub fn exposition(status: Option<&Status>) -> String {
    let up = f64::from(u8::from(status.is_some()));
    let told = METRICS.iter().filter_map(|metric| Some((metric, samples(metric, status?)?)));
    let tick = Tick([(&UP, Samples::One(up))].into_iter().chain(told).collect());
    let mut registry = Registry::with_prefix("tenantd");
    registry.register_collector(Box::new(tick));
    let mut text = String::new();
    match text::encode(&mut text, &registry) {
        Ok(()) => text,
        // Writing to a String does not fail, and nothing else here can.
        Err(fmt::Error) => String::new(),
    }
}

/// What a metric says in one tick.
#[derive(Debug)]
enum Samples {
    One(f64),
    /// The tenant and its value.
    Each(Vec<(String, f64)>),
}

/// `None` where the tick has nothing to say.
fn samples(metric: &Metric, status: &Status) -> Option<Samples> {
    // What is not finite is not a measurement, and is spelt otherwise in this text than in Rust.
    let finite = |value: Option<f64>| value.filter(|value| value.is_finite());
    match metric.source {
        Source::Host(read) => finite(read(status)).map(Samples::One),
        Source::Tenant(read) => {
            let told = status.tenants.iter();
            let told = told.filter_map(|tenant| Some((tenant.name.clone(), finite(read(tenant))?)));
            let told: Vec<(String, f64)> = told.collect();
            (!told.is_empty()).then_some(Samples::Each(told))
        }
    }
}

/// What one tick has to say.
#[derive(Debug)]
struct Tick(Vec<(&'static Metric, Samples)>);

impl Collector for Tick {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for (metric, samples) in &self.0 {
            let unit = (!metric.unit.is_empty()).then(|| Unit::Other(metric.unit.to_string()));
            let kind = match metric.kind {
                Kind::Gauge => MetricType::Gauge,
                Kind::Counter => MetricType::Counter,
            };
            let mut family =
                encoder.encode_descriptor(metric.name, metric.help, unit.as_ref(), kind)?;
            match samples {
                Samples::One(value) => encode(metric.kind, *value, family)?,
                Samples::Each(told) => {
                    for (tenant, value) in told {
                        let labels = [("tenant", tenant.as_str())];
                        encode(metric.kind, *value, family.encode_family(&labels)?)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn encode(kind: Kind, value: f64, encoder: MetricEncoder) -> fmt::Result {
    match kind {
        Kind::Gauge => ConstGauge::new(value).encode(encoder),
        Kind::Counter => ConstCounter::new(value).encode(encoder),
    }
}
