//! What a metric is: name, unit, meaning, and place in the status.

use std::borrow::Cow;

use tenantd_control::status::{FaultStatus, GroupStatus, Status, TenantStatus};
use tenantd_core::resource::{PerResource, Resource};

/// Of the tenants that one `each` found so many have series of their own, the first by name: which of them has some
/// does not depend on what they do.
pub(super) const FOUND_SERIES_MAX: usize = 100;

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The value goes up and down.
    Gauge,
    /// The value only goes up, from 0 when the agent starts.
    Counter,
    /// The value is 1, and the label holds a text.
    Info,
}

/// The place of a value in the status.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// One value.
    Host(Read<Status>),
    /// One value for each tenant, with the label `tenant`.
    Tenant(Read<TenantStatus>),
    /// One value for each group, with the label `group`.
    Group(Read<GroupStatus>),
    /// Values by the label of this name, of a set that the interface bounds.
    Each(&'static str, fn(&Status) -> Vec<(String, f64)>),
    /// A text, as the value of a label with this name.
    Info(&'static str, fn(&Status) -> &str),
}

/// A value of `T`, or of one resource of it, or how often and for how long a fault of it was.
#[derive(Clone, Debug)]
pub(super) enum Read<T> {
    One(fn(&T) -> Option<f64>),
    Of(Resource, fn(&T) -> PerResource<Option<f64>>),
    Episodes(fn(&T) -> Option<FaultStatus>),
    Length(fn(&T) -> Option<FaultStatus>),
}

impl<T> Read<T> {
    /// The value; none where it is not finite: that is no measurement, and the text spells it otherwise.
    pub(super) fn from(&self, status: &T) -> Option<f64> {
        let value = match self {
            Read::One(read) => read(status),
            Read::Of(resource, read) => read(status)[*resource],
            Read::Episodes(read) => read(status).and_then(|fault| count(fault.count)),
            Read::Length(read) => read(status).map(|fault| fault.seconds),
        };
        value.filter(|value| value.is_finite())
    }
}

/// One metric.
#[derive(Clone, Debug)]
pub struct Metric {
    /// The name without the prefix `tenantd_`, and without the unit and `_total` or `_info`.
    pub name: Cow<'static, str>,
    /// The unit; empty for a count.
    pub unit: &'static str,
    /// The type.
    pub kind: Kind,
    /// The meaning, in one sentence.
    pub help: Cow<'static, str>,
    pub(super) source: Source,
}

impl Metric {
    /// The name of the samples.
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

    /// The name of the label of the samples; empty where there is one sample without a label.
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

/// A gauge.
pub(super) const fn metric(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    source: Source,
) -> Metric {
    let (name, help) = (Cow::Borrowed(name), Cow::Borrowed(help));
    Metric { name, unit, kind: Kind::Gauge, help, source }
}

/// A gauge of the machine or the agent.
pub(super) const fn host(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    read: fn(&Status) -> Option<f64>,
) -> Metric {
    metric(name, unit, help, Source::Host(Read::One(read)))
}

/// A gauge of each tenant.
pub(super) fn tenant(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    read: fn(&TenantStatus) -> Option<f64>,
) -> Metric {
    metric(name, unit, help, Source::Tenant(Read::One(read)))
}

/// A gauge of each group.
pub(super) fn group(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    read: fn(&GroupStatus) -> Option<f64>,
) -> Metric {
    metric(name, unit, help, Source::Group(Read::One(read)))
}

/// A text as a label.
pub(super) fn info(
    name: &'static str,
    label: &'static str,
    help: &'static str,
    read: fn(&Status) -> &str,
) -> Metric {
    Metric { kind: Kind::Info, ..metric(name, "", help, Source::Info(label, read)) }
}

/// The same as a counter.
pub(super) fn counter(metric: Metric) -> Metric {
    Metric { kind: Kind::Counter, ..metric }
}

/// A metric for each resource: `{}` is its name in `name`, and its noun in `help`.
pub(super) fn each(name: &str, help: &str, source: impl Fn(Resource) -> Source) -> Vec<Metric> {
    let metric = |resource: Resource| Metric {
        name: name.replace("{}", resource.name()).into(),
        unit: resource.unit(),
        kind: Kind::Gauge,
        help: help.replace("{}", resource.noun()).into(),
        source: source(resource),
    };
    Resource::ALL.map(metric).into()
}

/// How often a fault was, and for how long; both are counters.
pub(super) fn fault(
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

pub(super) fn each_tenant(
    name: &str,
    help: &str,
    read: fn(&TenantStatus) -> PerResource<Option<f64>>,
) -> Vec<Metric> {
    each(name, help, |resource| Source::Tenant(Read::Of(resource, read)))
}

/// A gauge of each group for each resource, as [`each`].
pub(super) fn each_group(
    name: &str,
    help: &str,
    read: fn(&GroupStatus) -> PerResource<Option<f64>>,
) -> Vec<Metric> {
    each(name, help, |resource| Source::Group(Read::Of(resource, read)))
}

pub(super) fn count(count: u64) -> Option<f64> {
    Some(count as f64)
}

pub(super) fn flag(flag: bool) -> Option<f64> {
    count(u64::from(flag))
}
