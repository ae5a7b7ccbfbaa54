//! Divided resources, and arrays with one value for each of them.
//!
//! Code that treats all resources alike loops over [`Resource::ALL`] or maps a [`PerResource`], and takes
//! names, units and notation from the row of the resource here. ARCHITECTURE.md ("What a change touches")
//! lists the needs of another resource beside its row.
//!
//! An *amount* is a number in the unit of its resource: CPUs, bytes. The policy has amounts as integers in
//! the *smallest* unit, thousandths of a CPU and bytes, so that its text is kept exactly.

use std::fmt;
use std::ops::{Index, IndexMut};

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::units::{Bytes, MilliCpus, QuantityError};

/// A resource that is divided among the tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Resource {
    /// CPU time.
    Cpu,
    /// Memory.
    Memory,
}

/// Short name for an index.
pub const CPU: Resource = Resource::Cpu;
/// Short name for an index.
pub const MEMORY: Resource = Resource::Memory;

/// Texts and units of a resource.
struct Row {
    name: &'static str,
    title: &'static str,
    noun: &'static str,
    unit: &'static str,
    field: &'static str,
    /// `{name}_{unit}`.
    qualified: &'static str,
    nr_smallest: f64,
    noise: f64,
    parse: fn(&str) -> Result<u64, QuantityError>,
    notation: fn(u64) -> String,
    exact: fn(u64) -> String,
    short: fn(u64) -> String,
    figure: fn(f64) -> String,
}

static ROWS: PerResource<Row> = PerResource([
    Row {
        name: "cpu",
        title: "CPU",
        noun: "CPUs",
        unit: "cores",
        field: "cores",
        qualified: "cpu_cores",
        nr_smallest: 1000.0,
        noise: 1e-6,
        parse: |text| text.parse().map(|cpus: MilliCpus| cpus.0),
        notation: |milli| MilliCpus(milli).to_string(),
        exact: |milli| match milli {
            1000 => "1 CPU".into(),
            _ => format!("{} CPUs", MilliCpus(milli).cores()),
        },
        short: |milli| MilliCpus(milli).to_string(),
        figure: |cores| format!("{cores:.2} CPUs"),
    },
    Row {
        name: "memory",
        title: "memory",
        noun: "Memory",
        unit: "bytes",
        field: "memory_bytes",
        qualified: "memory_bytes",
        nr_smallest: 1.0,
        noise: 1.0,
        parse: |text| text.parse().map(|bytes: Bytes| bytes.0),
        notation: |bytes| Bytes(bytes).to_string(),
        exact: |bytes| match Bytes(bytes).to_string() {
            exact if exact.len() <= 8 => exact,
            _ => Bytes(bytes).rounded(),
        },
        short: |bytes| Bytes(bytes).rounded(),
        figure: |bytes| Bytes(bytes.max(0.0) as u64).rounded(),
    },
]);

impl Resource {
    /// All resources, in the order of every [`PerResource`].
    pub const ALL: [Resource; 2] = [Resource::Cpu, Resource::Memory];

    const fn row(self) -> &'static Row {
        &ROWS.0[self as usize]
    }

    /// Name in files and on the wire.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Name in a sentence.
    pub fn title(self) -> &'static str {
        self.row().title
    }

    /// Noun for an amount, at the beginning of a sentence.
    pub fn noun(self) -> &'static str {
        self.row().noun
    }

    /// Unit of its amounts.
    pub fn unit(self) -> &'static str {
        self.row().unit
    }

    /// Amount below which smoothing noise is not a demand.
    pub fn noise(self) -> f64 {
        self.row().noise
    }

    /// Parses the notation of the policy; returns smallest units.
    ///
    /// # Errors
    /// The text is not such an amount.
    pub fn parse(self, text: &str) -> Result<u64, QuantityError> {
        (self.row().parse)(text)
    }

    /// Notation of the policy for an amount in smallest units.
    pub fn notation(self, smallest: u64) -> String {
        (self.row().notation)(smallest)
    }

    /// Text with the unit for an amount in smallest units.
    pub fn exact(self, smallest: u64) -> String {
        (self.row().exact)(smallest)
    }

    /// Text with the unit for an exact amount.
    pub fn shown(self, amount: f64) -> String {
        self.exact(self.smallest(amount))
    }

    /// Short text for tables and logs for an amount in smallest units.
    pub fn short(self, smallest: u64) -> String {
        (self.row().short)(smallest)
    }

    /// Text with the unit for a measured amount.
    pub fn figure(self, amount: f64) -> String {
        (self.row().figure)(amount)
    }

    /// Converts smallest units to an amount.
    pub fn amount(self, smallest: u64) -> f64 {
        smallest as f64 / self.row().nr_smallest
    }

    /// Converts an amount to smallest units, rounded.
    pub fn smallest(self, amount: f64) -> u64 {
        (amount * self.row().nr_smallest).round() as u64
    }
}

/// One value for each resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerResource<T>(pub [T; Resource::ALL.len()]);

impl<T> PerResource<T> {
    /// Creates the value of each resource with `of`.
    pub fn from_fn(of: impl FnMut(Resource) -> T) -> PerResource<T> {
        PerResource(Resource::ALL.map(of))
    }

    /// Maps each value with `of`.
    pub fn map<U>(self, of: impl FnMut(T) -> U) -> PerResource<U> {
        PerResource(self.0.map(of))
    }

    /// Each resource with its value.
    pub fn iter(&self) -> impl Iterator<Item = (Resource, &T)> {
        Resource::ALL.into_iter().zip(&self.0)
    }
}

impl<T: Clone> PerResource<T> {
    /// Creates the same value for each resource.
    pub fn all(value: T) -> PerResource<T> {
        PerResource::from_fn(|_| value.clone())
    }
}

impl PerResource<f64> {
    /// Creates these amounts, with zero for other resources.
    pub fn only(amounts: &[(Resource, f64)]) -> PerResource<f64> {
        let mut all = PerResource::default();
        amounts.iter().for_each(|(resource, amount)| all[*resource] = *amount);
        all
    }
}

impl<T> Index<Resource> for PerResource<T> {
    type Output = T;

    fn index(&self, resource: Resource) -> &T {
        &self.0[resource as usize]
    }
}

impl<T> IndexMut<Resource> for PerResource<T> {
    fn index_mut(&mut self, resource: Resource) -> &mut T {
        &mut self.0[resource as usize]
    }
}

// --- on the wire ---

/// End of the names of fields in bytes, which are whole numbers on the wire.
const BYTES: &str = "bytes";

/// A value of a field on the wire.
pub trait Figure: Serialize {
    /// Nearest whole number; `None` if there is none.
    fn whole(&self) -> Option<i64>;
}

impl Figure for f64 {
    fn whole(&self) -> Option<i64> {
        self.is_finite().then_some(self.round() as i64)
    }
}

impl<T: Figure> Figure for Option<T> {
    fn whole(&self) -> Option<i64> {
        self.as_ref().and_then(Figure::whole)
    }
}

impl Figure for String {
    fn whole(&self) -> Option<i64> {
        None
    }
}

/// Field name of each resource in an array that is one field per resource on the wire.
#[derive(Clone, Copy)]
struct Field {
    before: &'static str,
    of: fn(Resource) -> &'static str,
    after: &'static str,
}

impl Field {
    fn resource(self, name: &str) -> Option<Resource> {
        let of = name.strip_prefix(self.before)?.strip_suffix(self.after)?;
        Resource::ALL.into_iter().find(|resource| (self.of)(*resource) == of)
    }

    fn put<T: Figure, S: Serializer>(
        self,
        values: &PerResource<T>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(values.0.len()))?;
        for (resource, value) in values.iter() {
            let name = Name(self, resource);
            match value.whole().filter(|_| (self.of)(resource).ends_with(BYTES)) {
                Some(whole) => map.serialize_entry(&name, &whole)?,
                None => map.serialize_entry(&name, value)?,
            }
        }
        map.end()
    }

    fn take<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(
        self,
        from: D,
    ) -> Result<PerResource<T>, D::Error> {
        struct Take<T>(Field, PerResource<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Take<T> {
            type Value = PerResource<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a field for each resource")
            }

            fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self::Value, A::Error> {
                while let Some(name) = map.next_key::<String>()? {
                    match self.0.resource(&name) {
                        Some(resource) => self.1[resource] = map.next_value()?,
                        None => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(self.1)
            }
        }

        from.deserialize_map(Take(self, PerResource::from_fn(|_| T::default())))
    }
}

/// Field name that is written in parts, without an allocation: a status has a dozen for each tenant.
struct Name(Field, Resource);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Name(Field { before, of, after }, resource) = self;
        write!(f, "{before}{}{after}", of(*resource))
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

macro_rules! fields {
    ($($module:ident = $before:literal, $of:ident, $after:literal;)+) => {$(
        #[doc = concat!("`", $before, "{", stringify!($of), "}", $after, "`, for `serde(flatten, with)`.")]
        pub mod $module {
            use super::*;

            const FIELD: Field =
                Field { before: $before, of: |resource| resource.row().$of, after: $after };

            #[allow(missing_docs, reason = "called by serde")]
            pub fn serialize<T: Figure, S: Serializer>(
                values: &PerResource<T>,
                to: S,
            ) -> Result<S::Ok, S::Error> {
                FIELD.put(values, to)
            }

            #[allow(missing_docs, reason = "called by serde")]
            pub fn deserialize<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(
                from: D,
            ) -> Result<PerResource<T>, D::Error> {
                FIELD.take(from)
            }
        }
    )+};
}

/// Field names of arrays on the wire.
pub mod wire {
    use super::*;

    fields! {
        amount = "", field, "";
        qualified = "", qualified, "";
        capacity = "capacity_", field, "";
        guarantee = "guarantee_", field, "";
        limit = "limit_", field, "";
        usage = "usage_", field, "";
        demand = "demand_", field, "";
        allocation = "allocation_", field, "";
        would_get = "would_get_", field, "";
        share_now = "share_now_", field, "";
        share_if_busy = "share_if_busy_", field, "";
        missing = "missing_", field, "";
        last = "last_", field, "";
        max = "max_", field, "";
        reason = "", name, "_reason";
    }

    /// Writes one field in bytes as a whole number, for `serde(serialize_with)`.
    pub fn bytes<T: Figure, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        match value.whole() {
            Some(whole) => to.serialize_i64(whole),
            None => value.serialize(to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    struct Wire {
        name: String,
        #[serde(flatten, with = "wire::limit")]
        limit: PerResource<Option<f64>>,
        #[serde(flatten, with = "wire::demand")]
        demand: PerResource<f64>,
    }

    #[test]
    fn an_array_is_one_field_for_each_resource() {
        let limit = PerResource([Some(1.5), None]);
        let wire = Wire { name: "a".into(), limit, demand: PerResource([0.5, 4096.0]) };
        let text = serde_json::to_string(&wire).unwrap();
        let fields = r#""limit_cores":1.5,"limit_memory_bytes":null,"demand_cores":0.5,"demand_memory_bytes":4096"#;
        assert_eq!(text, format!(r#"{{"name":"a",{fields}}}"#));
        assert_eq!(serde_json::from_str::<Wire>(&text).unwrap(), wire);
        let part = Wire { demand: PerResource([0.5, 4095.7]), ..Wire::default() };
        assert!(serde_json::to_string(&part).unwrap().contains(r#""demand_memory_bytes":4096}"#));
        let partial: Wire = serde_json::from_str(r#"{"demand_cores":2,"later":[]}"#).unwrap();
        assert_eq!(partial, Wire { demand: PerResource([2.0, 0.0]), ..Wire::default() });
    }

    #[test]
    fn each_row_stands_at_the_place_of_its_resource() {
        for (resource, text) in [(CPU, "500m"), (MEMORY, "512MiB")] {
            assert_eq!(Resource::ALL[resource as usize], resource);
            let smallest = resource.parse(text).unwrap();
            assert_eq!(resource.notation(smallest), text);
            assert_eq!(resource.smallest(resource.amount(smallest)), smallest);
        }
        assert_eq!((CPU.name(), MEMORY.name()), ("cpu", "memory"));
    }
}
