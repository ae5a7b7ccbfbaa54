//! Definition of a metric: name, unit, meaning, and place in the status.

use std::borrow::Cow;

use tenantd_control::report::status::{FaultStatus, GroupStatus, Status, TenantStatus};
use tenantd_core::resource::{PerResource, Resource};

/// Most tenants of one `each` with series of their own, the first by name, so that the choice does not
/// depend on their activity.
pub(crate) const FOUND_SERIES_MAX: usize = 100;

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value that goes up and down.
    Gauge,
    /// A value that only goes up, from 0 when the agent starts.
    Counter,
    /// The value 1, with a text in the label.
    Info,
}

#[derive(Clone, Debug)]
pub(crate) enum Source {
    Host(Read<Status>),
    /// One value per tenant, with the label `tenant`.
    Tenant(Read<TenantStatus>),
    /// One value per group, with the label `group`.
    Group(Read<GroupStatus>),
    /// Values by the label of this name, of a set that the interface bounds.
    Each(&'static str, fn(&Status) -> Vec<(String, f64)>),
    /// Text, as the value of a label with this name.
    Info(&'static str, fn(&Status) -> &str),
}

/// A value of `T`, one of its resources, or number and length of one of its faults.
#[derive(Clone, Debug)]
pub(crate) enum Read<T> {
    One(fn(&T) -> Option<f64>),
    Of(Resource, fn(&T) -> PerResource<Option<f64>>),
    Episodes(fn(&T) -> Option<FaultStatus>),
    Length(fn(&T) -> Option<FaultStatus>),
}

impl<T> Read<T> {
    /// The value; `None` if it is not finite, because the text has no measurement for that.
    pub(crate) fn from(&self, status: &T) -> Option<f64> {
        let value = match self {
            Read::One(read) => read(status),
            Read::Of(resource, read) => read(status)[*resource],
            Read::Episodes(read) => read(status).and_then(|fault| count(fault.count)),
            Read::Length(read) => read(status).map(|fault| fault.seconds),
        };
        value.filter(|value| value.is_finite())
    }
}

/// A metric.
#[derive(Clone, Debug)]
pub struct Metric {
    /// Name without the prefix `tenantd_`, and without the unit and `_total` or `_info`.
    pub name: Cow<'static, str>,
    /// Unit; empty for a count.
    pub unit: &'static str,
    /// Type of the metric.
    pub kind: Kind,
    /// Meaning in one sentence.
    pub help: Cow<'static, str>,
    pub(crate) source: Source,
}

impl Metric {
    /// Name of the samples.
    pub fn full_name(&self) -> String {
        let mut name = format!("tenantd_{}", self.name);
        if !self.unit.is_empty() {
            name += &format!("_{}", self.unit);
        }
        name += match self.kind {
            Kind::Gauge => "",
            Kind::Counter => "_total",
            Kind::Info => "_info",
        };
        name
    }

    /// Label name of the samples; empty for one sample without a label.
    pub fn label(&self) -> &'static str {
        match self.source {
            Source::Host(_) => "",
            Source::Tenant(_) => "tenant",
            Source::Group(_) => "group",
            Source::Each(label, _) => label,
            Source::Info(label, _) => label,
        }
    }
}

pub(crate) const fn metric(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    source: Source,
) -> Metric {
    let (name, help) = (Cow::Borrowed(name), Cow::Borrowed(help));
    Metric { name, unit, kind: Kind::Gauge, help, source }
}

pub(crate) const fn host(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    read: fn(&Status) -> Option<f64>,
) -> Metric {
    metric(name, unit, help, Source::Host(Read::One(read)))
}

pub(crate) fn tenant(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    read: fn(&TenantStatus) -> Option<f64>,
) -> Metric {
    metric(name, unit, help, Source::Tenant(Read::One(read)))
}

pub(crate) fn group(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    read: fn(&GroupStatus) -> Option<f64>,
) -> Metric {
    metric(name, unit, help, Source::Group(Read::One(read)))
}

pub(crate) fn info(
    name: &'static str,
    label: &'static str,
    help: &'static str,
    read: fn(&Status) -> &str,
) -> Metric {
    Metric { kind: Kind::Info, ..metric(name, "", help, Source::Info(label, read)) }
}

pub(crate) fn counter(metric: Metric) -> Metric {
    Metric { kind: Kind::Counter, ..metric }
}

/// A metric per resource: `{}` is its name in `name`, and its noun in `help`.
pub(crate) fn each(name: &str, help: &str, source: impl Fn(Resource) -> Source) -> Vec<Metric> {
    let metric = |resource: Resource| Metric {
        name: name.replace("{}", resource.name()).into(),
        unit: resource.unit(),
        kind: Kind::Gauge,
        help: help.replace("{}", resource.noun()).into(),
        source: source(resource),
    };
    Resource::ALL.map(metric).into()
}

/// Number and length of a fault; both are counters.
pub(crate) fn fault(
    name: &'static str,
    help: &'static str,
    read: fn(&TenantStatus) -> Option<FaultStatus>,
) -> [Metric; 2] {
    let help_of = |what: &str| Cow::Owned(format!("{what} {help}"));
    let episodes = Source::Tenant(Read::Episodes(read));
    let length = Source::Tenant(Read::Length(read));
    let one = |unit, source| counter(metric(name, unit, "", source));
    let names: Cow<'static, str> = format!("{name}_episodes").into();
    [
        Metric { help: help_of("Time in which"), ..one("seconds", length) },
        Metric { name: names, help: help_of("Runs of ticks in which"), ..one("", episodes) },
    ]
}

pub(crate) fn each_tenant(
    name: &str,
    help: &str,
    read: fn(&TenantStatus) -> PerResource<Option<f64>>,
) -> Vec<Metric> {
    each(name, help, |resource| Source::Tenant(Read::Of(resource, read)))
}

/// A gauge of each group per resource, as [`each`].
pub(crate) fn each_group(
    name: &str,
    help: &str,
    read: fn(&GroupStatus) -> PerResource<Option<f64>>,
) -> Vec<Metric> {
    each(name, help, |resource| Source::Group(Read::Of(resource, read)))
}

pub(crate) fn count(count: u64) -> Option<f64> {
    Some(count as f64)
}

pub(crate) fn flag(flag: bool) -> Option<f64> {
    count(u64::from(flag))
}
