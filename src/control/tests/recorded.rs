//! Test of the recorded types against `recorded.txt`, which is their fingerprint.
//!
//! A deserialiser without data: it asks each type for its fields, and gives every enumeration another variant at
//! each visit, until all were visited.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::de::value::{Error, U32Deserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, SeqAccess, VariantAccess, Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};

use tenantd_control::state::step::NodeInput;
use tenantd_control::tick::control_loop::ControlLoop;
use tenantd_control::tick::event::{Event, RECORDED};

/// Visits of the whole: enough for each variant of each enumeration below each variant of others.
const NR_PASSES: usize = 500;

#[derive(Default)]
struct Tracer {
    /// One for each struct and each variant.
    lines: BTreeSet<String>,
    nr_visits: BTreeMap<&'static str, usize>,
    /// Kind of the value that was asked for last.
    kind: String,
}

impl Tracer {
    fn several<'de, V: Visitor<'de>>(
        &mut self,
        count: usize,
        visitor: V,
    ) -> Result<(V::Value, Vec<String>), Error> {
        let mut kinds = Vec::new();
        let items = Items { tracer: self, left: count, kinds: &mut kinds };
        Ok((visitor.visit_seq(items)?, kinds))
    }
}

macro_rules! plain {
    ($($method:ident $visit:ident $value:expr, $kind:literal;)+) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.kind = $kind.into();
            visitor.$visit($value)
        }
    )+};
}

impl<'de> Deserializer<'de> for &mut Tracer {
    type Error = Error;

    plain! {
        deserialize_bool visit_bool false, "bool";
        deserialize_u8 visit_u8 0, "u8";
        deserialize_u16 visit_u16 0, "u16";
        deserialize_u32 visit_u32 0, "u32";
        deserialize_u64 visit_u64 0, "u64";
        deserialize_i64 visit_i64 0, "i64";
        deserialize_f64 visit_f64 0.0, "f64";
        deserialize_str visit_str "", "text";
        deserialize_string visit_str "", "text";
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let value = visitor.visit_some(&mut *self)?;
        self.kind = format!("{}?", self.kind);
        Ok(value)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let (value, kinds) = self.several(1, visitor)?;
        self.kind = format!("[{}]", kinds.join(", "));
        Ok(value)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, n: usize, visitor: V) -> Result<V::Value, Error> {
        let (value, kinds) = self.several(n, visitor)?;
        self.kind = format!("({})", kinds.join(", "));
        Ok(value)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        let value = visitor.visit_newtype_struct(&mut *self)?;
        self.kind = format!("{name}({})", self.kind);
        Ok(value)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let (value, kinds) = self.several(fields.len(), visitor)?;
        let fields = fields.iter().zip(kinds).map(|(field, kind)| format!("{field}: {kind}"));
        self.kind = format!("{{ {} }}", fields.collect::<Vec<_>>().join(", "));
        if !name.is_empty() {
            self.lines.insert(format!("{name} {}", self.kind));
            self.kind = name.into();
        }
        Ok(value)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let nr_visits = self.nr_visits.entry(name).or_default();
        let index = *nr_visits % variants.len();
        *nr_visits += 1;
        self.kind.clear();
        let value = visitor.visit_enum(Variant { tracer: self, index: index as u32 })?;
        self.lines.insert(format!("{name} {index} {} {}", variants[index], self.kind));
        self.kind = name.into();
        Ok(value)
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Error> {
        Err(serde::de::Error::custom("a kind that the recording does not have yet: add it here"))
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i128 u128 f32 char bytes byte_buf unit unit_struct tuple_struct map identifier ignored_any
    }
}

struct Items<'a> {
    tracer: &'a mut Tracer,
    left: usize,
    kinds: &'a mut Vec<String>,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let value = seed.deserialize(&mut *self.tracer)?;
        self.kinds.push(self.tracer.kind.clone());
        Ok(Some(value))
    }
}

struct Variant<'a> {
    tracer: &'a mut Tracer,
    index: u32,
}

impl<'de> EnumAccess<'de> for Variant<'_> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Error> {
        let index: U32Deserializer<Error> = self.index.into_deserializer();
        Ok((seed.deserialize(index)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(self.tracer)
    }

    fn tuple_variant<V: Visitor<'de>>(self, n: usize, visitor: V) -> Result<V::Value, Error> {
        self.tracer.deserialize_tuple(n, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.tracer.deserialize_struct("", fields, visitor)
    }
}

#[test]
fn the_recorded_types_are_those_of_the_file() {
    let mut tracer = Tracer::default();
    for _ in 0..NR_PASSES {
        ControlLoop::deserialize(&mut tracer).unwrap();
        NodeInput::deserialize(&mut tracer).unwrap();
        Event::deserialize(&mut tracer).unwrap();
    }
    let now: String = tracer.lines.iter().map(|line| format!("{}\n", line.trim_end())).collect();
    if std::env::var_os("UPDATE").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tick/recorded.txt");
        std::fs::write(path, &now).unwrap();
        return;
    }
    let differing = now.lines().zip(RECORDED.lines()).find(|(now, before)| now != before);
    assert!(
        now == RECORDED,
        "recorded types changed, so this version cannot read earlier recordings; run the test with UPDATE=1 if that is \
         meant: {differing:?}"
    );
}
