//! A key of a file as a row of a table, and everything derived from the table.
//!
//! **Problem.** A key has to be read, compared by `diff`, described in the schema and in the manual, and
//! given a default. With a declaration in each of these places, one of them is forgotten. **Answer.** A
//! file format is a table of [`Key`]s. A row has the key's name, its documentation, its flags, the field
//! that it sets, and its [`Form`], which reads, shows and describes values.
//!
//! **Properties** (`tests/policy/keys.rs`): each key of the policy's table is read, shows as a difference
//! when it changes, and is described in the schema and the manual.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::reader::Reader;
use super::tree::{Entry, Kind, Node};

/// Properties of a key beside its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    /// A required key; the text is the help for a missing one.
    Needed(&'static str),
    /// A key that a running agent cannot change: `reload` refuses.
    Restart,
    /// A key only for a tenant without tenants below it.
    Leaf,
    /// A key that makes a tenant a group: not for a template.
    Group,
}

/// A row of a table: a key of a map that is read into an `M`.
#[derive(Debug)]
pub struct Key<M: 'static> {
    /// Name of the key.
    pub name: &'static str,
    /// Documentation, in a sentence or a few.
    pub doc: &'static str,
    /// Flags of the key.
    pub flags: &'static [Flag],
    /// Reads its value into the model; a wrong value becomes a finding and leaves the default.
    pub read: fn(&mut Reader<'_>, &Node, &mut M),
    /// Lists the differences from the default (the second model) as settings below a path.
    pub outline: fn(&M, &M, &str, &mut Vec<Setting>),
    /// Row without types, for a default model.
    pub row: fn(&M) -> Row,
}

impl<M> Key<M> {
    /// Help for a missing key; `None` if the key is optional.
    pub fn needed(&self) -> Option<&'static str> {
        self.flags.iter().find_map(|flag| match flag {
            Flag::Needed(help) => Some(*help),
            _ => None,
        })
    }
}

/// Form of a key's values.
pub trait Form<T: PartialEq> {
    /// Reads a value; a wrong one becomes a finding and leaves `into` unchanged.
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut T);

    /// The value in the notation of the file; `None` if it is not set.
    fn show(&self, _value: &T) -> Option<String> {
        None
    }

    /// JSON schema of the form; null for files without one.
    fn schema(&self) -> Value {
        Value::Null
    }

    /// Keys of a value that is a map.
    fn rows(&self) -> Vec<Row> {
        Vec::new()
    }

    /// Lists the differences from the default.
    fn outline(&self, value: &T, default: &T, path: &str, into: &mut Vec<Setting>) {
        if value != default {
            let value = self.show(value).unwrap_or_default();
            into.push(Setting { key: path.to_string(), value });
        }
    }
}

/// Entries of a map: those with known keys, each key at most once, and the others.
#[derive(Debug)]
pub struct Fields<'n, M: 'static> {
    /// Entries with known keys.
    pub known: Vec<(&'static Key<M>, &'n Entry)>,
    /// Entries with other keys, each with the entry above it.
    pub unknown: Vec<(&'n Entry, Option<&'n Entry>)>,
}

impl<'n, M> Fields<'n, M> {
    /// Entry of a key.
    pub fn get(&self, name: &str) -> Option<&'n Entry> {
        self.known.iter().find(|(key, _)| key.name == name).map(|(_, entry)| *entry)
    }
}

impl Reader<'_> {
    /// Reads a map into `into`, key by key.
    pub fn keys<M>(&mut self, table: &'static [Key<M>], node: &Node, into: &mut M) {
        if let Some(fields) = self.fields(table, node) {
            self.values(&fields, into);
        }
    }

    /// Entries of a map; reports the unknown ones.
    pub fn fields<'n, M>(
        &mut self,
        table: &'static [Key<M>],
        node: &'n Node,
    ) -> Option<Fields<'n, M>> {
        let fields = self.entries(table, node)?;
        for (entry, above) in &fields.unknown {
            self.unknown_key(&names(table), entry, *above);
        }
        Some(fields)
    }

    /// Entries of a map. Nothing counts as an empty map (`host:` with every line below it commented out).
    pub fn entries<'n, M>(
        &mut self,
        table: &'static [Key<M>],
        node: &'n Node,
    ) -> Option<Fields<'n, M>> {
        let entries = match &node.kind {
            Kind::Map(entries) => entries.as_slice(),
            Kind::Null => &[],
            _ => {
                self.not_a_map(node, &names(table));
                return None;
            }
        };
        let mut fields = Fields { known: Vec::with_capacity(entries.len()), unknown: Vec::new() };
        for (index, entry) in entries.iter().enumerate() {
            let Some(key) = table.iter().find(|key| *key.name == *entry.key) else {
                let above = index.checked_sub(1).map(|above| &entries[above]);
                fields.unknown.push((entry, above));
                if let Some(above) = above.filter(|_| entry.is_decimals()) {
                    // Half of a value has no finding of its own.
                    fields.known.retain(|(_, known)| !std::ptr::eq(*known, above));
                }
                continue;
            };
            match fields.get(key.name) {
                Some(first) => self.duplicate(first, entry),
                None => fields.known.push((key, entry)),
            }
        }
        Some(fields)
    }

    /// Reads the value of each field into `into`.
    pub fn values<M>(&mut self, fields: &Fields<'_, M>, into: &mut M) {
        for (key, entry) in &fields.known {
            self.enter(key.name, entry);
            (key.read)(self, &entry.value, into);
            self.leave(entry);
        }
    }
}

/// Names of the keys of a table.
pub fn names<M>(table: &'static [Key<M>]) -> Vec<&'static str> {
    table.iter().map(|key| key.name).collect()
}

/// A key of a policy and its value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Key, with dots between its parts: `limit.cpu`.
    pub key: String,
    /// Value in the notation of the file.
    pub value: String,
}

/// A key without the types of its model.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the key.
    pub name: &'static str,
    /// Documentation.
    pub doc: &'static str,
    /// Flags of the key.
    pub flags: &'static [Flag],
    /// Default in the notation of the file.
    pub default: Option<String>,
    /// JSON schema of its values.
    pub schema: Value,
    /// Keys of a value that is a map.
    pub rows: Vec<Row>,
}

impl Row {
    /// Possible words, if only words are allowed.
    pub fn words(&self) -> Vec<String> {
        let words = self.schema["enum"].as_array().into_iter().flatten();
        words.filter_map(|word| word.as_str().map(str::to_string)).collect()
    }

    fn described(&self) -> Value {
        let mut schema = self.schema.clone();
        schema["description"] = self.doc.into();
        if let Some(default) = &self.default {
            let list = default.strip_prefix('[').and_then(|items| items.strip_suffix(']'));
            let number_or_truth = || serde_json::from_str(default);
            schema["default"] = match list {
                Some(items) => items.split(", ").collect::<Vec<_>>().into(),
                None => number_or_truth().unwrap_or_else(|_| default.as_str().into()),
            };
        }
        schema
    }
}

/// Rows of a table, without types.
pub fn rows<M: Default>(table: &[Key<M>]) -> Vec<Row> {
    let default = M::default();
    table.iter().map(|key| (key.row)(&default)).collect()
}

/// Schema of a map with the keys of `rows`.
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

/// Lists a model's differences from the default, as settings below a path that ends with a dot or is empty.
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

/// Default of a field: its own, or that of its type.
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
