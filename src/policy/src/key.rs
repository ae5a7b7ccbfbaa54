//! A key of a file, as a row of a table; and everything that derives from the table.
//!
//! **Problem.** A key has to be read, compared by `diff`, described in the schema and in the manual, and
//! given a default. With a declaration in each of these places, one of them is forgotten. **Answer.** A file
//! format is a table of [`Key`]s. A row has the key's name, its one sentence of documentation, its flags, the
//! field of the model that it sets, and its [`Form`]: the form reads, shows and describes values of the key.
//!
//! **Properties** (`tests/policy/keys.rs`): each key of the policy's table is read, shows as a difference when
//! it is changed, and is described in the schema and the manual.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::hint::{listed, shortened};
use super::reader::Reader;
use super::tree::{Entry, Kind, Node};

/// Properties of a key beside its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    /// It is required; the text says what to write.
    Needed(&'static str),
    /// A running agent cannot change it: `reload` refuses.
    Restart,
    /// Only a tenant without tenants below it can have it.
    Leaf,
    /// It makes a tenant a group: not for a template.
    Group,
}

/// A row of a table: a key of a map that is read into an `M`.
#[derive(Debug)]
pub struct Key<M: 'static> {
    /// Its name.
    pub name: &'static str,
    /// What it means, in one sentence or a few.
    pub doc: &'static str,
    /// Its flags.
    pub flags: &'static [Flag],
    /// Reads its value into the model; a value that is wrong becomes a finding and leaves the default.
    pub read: fn(&mut Reader<'_>, &Node, &mut M),
    /// Lists what differs from the default (the second model) as settings below a path.
    pub outline: fn(&M, &M, &str, &mut Vec<Setting>),
    /// Its row without the types, for a default model.
    pub row: fn(&M) -> Row,
}

impl<M> Key<M> {
    /// What to write where the key is missing; nothing where it may be left out.
    pub fn needed(&self) -> Option<&'static str> {
        self.flags.iter().find_map(|flag| match flag {
            Flag::Needed(help) => Some(*help),
            _ => None,
        })
    }
}

/// How the values of a key look.
pub trait Form<T: PartialEq> {
    /// Reads a value; one that is wrong becomes a finding and leaves `into` as it is.
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut T);

    /// The value in the notation of the file; nothing where it is not set.
    fn show(&self, _value: &T) -> Option<String> {
        None
    }

    /// The form as a JSON schema; nothing for files that have none.
    fn schema(&self) -> Value {
        Value::Null
    }

    /// The keys of a value that is a map.
    fn rows(&self) -> Vec<Row> {
        Vec::new()
    }

    /// Lists what differs from the default.
    fn outline(&self, value: &T, default: &T, path: &str, into: &mut Vec<Setting>) {
        if value != default {
            let value = self.show(value).unwrap_or_default();
            into.push(Setting { key: path.to_string(), value });
        }
    }
}

/// The entries of a map whose keys are known, each key at most once.
#[derive(Debug)]
pub struct Fields<'n, M: 'static>(pub Vec<(&'static Key<M>, &'n Entry)>);

impl<'n, M> Fields<'n, M> {
    /// The entry of a key.
    pub fn get(&self, name: &str) -> Option<&'n Entry> {
        self.0.iter().find(|(key, _)| key.name == name).map(|(_, entry)| *entry)
    }
}

impl Reader<'_> {
    /// Reads a map into `into`, key by key.
    pub fn keys<M>(&mut self, table: &'static [Key<M>], node: &Node, into: &mut M) {
        if let Some(fields) = self.fields(table, node) {
            self.values(&fields, into);
        }
    }

    /// The known entries of a map; nothing (`host:` with every line below it commented out) is an empty one.
    pub fn fields<'n, M>(
        &mut self,
        table: &'static [Key<M>],
        node: &'n Node,
    ) -> Option<Fields<'n, M>> {
        let names = || table.iter().map(|key| key.name);
        let entries = match &node.kind {
            Kind::Map(entries) => entries.as_slice(),
            Kind::Null => &[],
            kind => {
                let help = match (kind, table.first()) {
                    (Kind::Scalar { text, .. }, Some(first)) => {
                        format!("name the key, as in `{{ {}: {} }}`", first.name, shortened(text))
                    }
                    (Kind::List(_), Some(first)) => {
                        let value = node.only_item().map_or("…".into(), shortened);
                        format!("name the keys instead, as in `{{ {}: {value} }}`", first.name)
                    }
                    _ => String::new(),
                };
                self.wrong_type(node, &format!("a map with {}", listed(names())), &help);
                return None;
            }
        };
        let mut fields: Vec<(&'static Key<M>, &Entry)> = Vec::with_capacity(entries.len());
        for entry in entries {
            let Some(key) = table.iter().find(|key| *key.name == *entry.key) else {
                self.unknown_key(&names().collect::<Vec<_>>(), entry);
                continue;
            };
            match fields.iter().find(|(seen, _)| seen.name == key.name) {
                Some((_, first)) => self.duplicate(first, entry),
                None => fields.push((key, entry)),
            }
        }
        for (key, help) in table.iter().filter_map(|key| Some((key, key.needed()?))) {
            if !fields.iter().any(|(given, _)| given.name == key.name) {
                self.missing_key(node, key.name, help);
            }
        }
        Some(Fields(fields))
    }

    /// Reads the value of each field into `into`.
    pub fn values<M>(&mut self, fields: &Fields<'_, M>, into: &mut M) {
        for (key, entry) in &fields.0 {
            self.enter(key.name, entry);
            (key.read)(self, &entry.value, into);
            self.leave(entry);
        }
    }
}

/// A key of a policy and its value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The key, with dots between its parts: `limit.cpu`.
    pub key: String,
    /// Its value, in the notation of the file.
    pub value: String,
}

/// A key without the types of its model.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// What it means.
    pub doc: &'static str,
    /// Its flags.
    pub flags: &'static [Flag],
    /// Its default, in the notation of the file.
    pub default: Option<String>,
    /// The form of its values as a JSON schema.
    pub schema: Value,
    /// The keys of its value, where that is a map.
    pub rows: Vec<Row>,
}

impl Row {
    /// The words that a value can be, where only words are allowed.
    pub fn words(&self) -> Vec<String> {
        let words = self.schema["enum"].as_array().into_iter().flatten();
        words.filter_map(|word| word.as_str().map(str::to_string)).collect()
    }

    /// The whole schema of the key.
    fn described(&self) -> Value {
        let mut schema = self.schema.clone();
        schema["description"] = self.doc.into();
        if let Some(default) = &self.default {
            let number_or_truth = serde_json::from_str(default);
            schema["default"] = number_or_truth.unwrap_or_else(|_| default.as_str().into());
        }
        schema
    }
}

/// The rows of a table, without types.
pub fn rows<M: Default>(table: &[Key<M>]) -> Vec<Row> {
    let default = M::default();
    table.iter().map(|key| (key.row)(&default)).collect()
}

/// The schema of a map with the keys of `rows`.
pub fn object(rows: &[Row]) -> Value {
    let properties: Map<String, Value> =
        rows.iter().map(|row| (row.name.to_string(), row.described())).collect();
    let mut schema = json!({
        "type": ["object", "null"], "additionalProperties": false, "properties": properties
    });
    let needed = rows.iter().filter(|row| row.flags.iter().any(|f| matches!(f, Flag::Needed(_))));
    let needed: Vec<&str> = needed.map(|row| row.name).collect();
    if !needed.is_empty() {
        schema["required"] = needed.into();
    }
    schema
}

/// Lists what of a model differs from the default, as settings below a path that ends with a dot or is empty.
pub fn outline<M>(table: &[Key<M>], model: &M, default: &M, path: &str, into: &mut Vec<Setting>) {
    for key in table {
        (key.outline)(model, default, &format!("{path}{}", key.name), into);
    }
}

/// Declares a table: `"key" => field: Type, form, [flags];`, each with its documentation. The field of an array
/// is its index in brackets.
#[macro_export]
macro_rules! table {
    ($(#[$meta:meta])* $visibility:vis $table:ident: $model:ty {
        $(
            $(#[doc = $doc:literal])+
            $key:literal => $field:tt: $type:ty, $form:expr $(, [$($flag:expr),+])?;
        )*
    }) => {
        $(#[$meta])*
        $visibility static $table: &[$crate::key::Key<$model>] = &[$(
            $crate::key::Key {
                name: $key,
                doc: concat!($($doc),+).trim_ascii(),
                flags: &[$($($flag),+)?],
                read: |reader, node, model| {
                    let value = &mut $crate::key::place!(model, $field);
                    $crate::key::Form::<$type>::read(&$form, reader, node, value)
                },
                outline: |model, default, path, into| {
                    let value = &$crate::key::place!(model, $field);
                    let default = &$crate::key::place!(default, $field);
                    $crate::key::Form::<$type>::outline(&$form, value, default, path, into)
                },
                row: |default| {
                    use $crate::key::{Form, place};
                    $crate::key::Row {
                        name: $key,
                        doc: concat!($($doc),+).trim_ascii(),
                        flags: &[$($($flag),+)?],
                        default: Form::<$type>::show(&$form, &place!(default, $field)),
                        schema: Form::<$type>::schema(&$form),
                        rows: Form::<$type>::rows(&$form),
                    }
                },
            }
        ),*];
    };
}

/// Declares a section: a struct with its defaults, and the table of its keys.
#[macro_export]
macro_rules! section {
    ($(#[$meta:meta])* $visibility:vis struct $name:ident, $table:ident {
        $( + $plain:ident: $plain_type:ty, $of_plain:literal; )*
        $(
            $(#[doc = $doc:literal])+
            $key:literal => $field:ident: $type:ty $(= $default:expr)?, $form:expr $(, [$($flag:expr),+])?;
        )*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        $visibility struct $name {
            $( #[doc = $of_plain] pub $plain: $plain_type, )*
            $( $(#[doc = $doc])+ pub $field: $type, )*
        }

        impl Default for $name {
            fn default() -> Self {
                $name {
                    $( $plain: Default::default(), )*
                    $( $field: $crate::key::or_default!($($default)?), )*
                }
            }
        }

        $crate::key::table! {
            #[doc = concat!("The keys of [`", stringify!($name), "`].")]
            $visibility $table: $name {
                $( $(#[doc = $doc])+ $key => $field: $type, $form $(, [$($flag),+])?; )*
            }
        }
    };
}

/// The default of a field: its own, or that of its type.
#[macro_export]
macro_rules! or_default {
    () => {
        Default::default()
    };
    ($default:expr) => {
        $default
    };
}

/// A field of a model, or an element of one that is an array.
#[macro_export]
macro_rules! place {
    ($model:ident, [$index:expr]) => {
        $model[$index]
    };
    ($model:ident, $field:ident) => {
        $model.$field
    };
}

pub use crate::{or_default, place, section, table};
