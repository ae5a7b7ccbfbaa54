//! `host.resources:` counted resources, in short (`gpu: 2`) or with their devices.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::hint::shortened;
use super::key::Flag::Needed;
use super::key::{Form, Setting, object, rows, section};
use super::names::Names;
use super::reader::Reader;
use super::rules;
use super::tree::{Kind, Node};
use super::values::{NAME_PATTERN, NameKind, safe_name};

/// Text that stands for the index in the path of a device.
const INDEX: &str = "{}";
/// Most units of a resource.
const UNITS_MAX: u32 = 100_000;
/// Most units with devices, because each device is looked up at the start of a job.
const WITH_DEVICES_MAX: u32 = 1024;

static VARIABLES: NameKind =
    NameKind { what: "a variable of the environment", check: variable, has_numbers: false };
static DEVICES: NameKind =
    NameKind { what: "the path of a device", check: device, has_numbers: false };

section! {
    /// `host.resources.NAME:` a counted resource.
    pub struct Counted, COUNTED {
        + name: String, "Name of the resource.";
        /// Number of units; their indices begin with 0.
        "count" => count: u32, NumberOfUnits,
            [Needed("say how many there are: `count: 4`")];
        /// Variables of the environment that get the indices of a job, as in `0,2`, where they are not set.
        "env" => env: Vec<String>, Names(&VARIABLES);
        /// Paths of the devices of a unit, in which `{}` stands for its index, as in `/dev/nvidia{}`. A job can open
        /// those of its own units; those of others are closed to it.
        "devices" => devices: Vec<String>, Names(&DEVICES);
    }
}

impl Counted {
    /// Creates a resource without devices.
    pub fn new(name: impl Into<String>, count: u32) -> Counted {
        Counted { name: name.into(), count, ..Counted::default() }
    }

    /// Paths of the devices of one unit.
    pub fn devices_of(&self, index: u32) -> impl Iterator<Item = PathBuf> {
        let index = index.to_string();
        self.devices.iter().map(move |pattern| pattern.replace(INDEX, &index).into())
    }

    fn is_short(&self) -> bool {
        self.env.is_empty() && self.devices.is_empty()
    }
}

fn variable(name: &str) -> Result<(), String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(is_word) {
        return Err("write a name such as `CUDA_VISIBLE_DEVICES`".to_string());
    }
    Ok(())
}

fn device(path: &str) -> Result<(), String> {
    if path.matches(INDEX).count() != 1 {
        return Err(format!(
            "write `{INDEX}` once, in place of the index, as in `/dev/nvidia{INDEX}`: each unit has devices of its own"
        ));
    }
    let has_step = path.split('/').any(|part| part == "..");
    if !path.starts_with('/') || has_step || path.contains(char::is_control) {
        return Err("write an absolute path without `..`".to_string());
    }
    Ok(())
}

struct NumberOfUnits;

impl Form<u32> for NumberOfUnits {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut u32) {
        *into = reader.whole(node, UNITS_MAX, "a number of units").unwrap_or(0);
    }

    fn schema(&self) -> Value {
        json!({ "type": "integer", "minimum": 1, "maximum": UNITS_MAX })
    }
}

pub(super) struct Counts;

impl Counts {
    const EXPECTED: &'static str = "a number of units for each name, as in `{ gpu: 2 }`";
}

impl Form<Vec<Counted>> for Counts {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Vec<Counted>) {
        let entries = reader.map(node, Counts::EXPECTED);
        for (index, entry) in entries.iter().enumerate() {
            if let Some(first) = entries[..index].iter().find(|first| first.key == entry.key) {
                reader.duplicate(first, entry);
                continue;
            }
            if let Err(help) = safe_name(&entry.key) {
                let message = format!("`{}` is not a name of a resource", shortened(&entry.key));
                reader.find(&rules::BAD_NAME, node, message, help);
                continue;
            }
            let before = reader.report.total();
            let mut counted = Counted { name: entry.key.to_string(), ..Counted::default() };
            if matches!(entry.value.kind, Kind::Map(_)) {
                read_map(reader, &entry.value, &mut counted);
            } else {
                NumberOfUnits.read(reader, &entry.value, &mut counted.count);
            }
            if reader.report.total() == before {
                into.push(counted);
            }
        }
    }

    fn show(&self, value: &Vec<Counted>) -> Option<String> {
        let each = value.iter().map(|it| format!("{}: {}", it.name, it.count));
        Some(each.collect::<Vec<_>>().join(", ")).filter(|all| !all.is_empty())
    }

    fn outline(
        &self,
        value: &Vec<Counted>,
        default: &Vec<Counted>,
        path: &str,
        into: &mut Vec<Setting>,
    ) {
        if value == default {
            return;
        }
        let value_of = self.show(value).unwrap_or_default();
        into.push(Setting { key: path.to_string(), value: value_of });
        for counted in value.iter().filter(|it| !it.is_short()) {
            let lists = [("env", &counted.env), ("devices", &counted.devices)];
            for (key, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
                let key = format!("{path}.{}.{key}", counted.name);
                into.push(Setting { key, value: list.join(", ") });
            }
        }
    }

    fn schema(&self) -> Value {
        let count = NumberOfUnits.schema();
        let mut whole = object(&rows(COUNTED));
        whole["type"] = "object".into();
        json!({
            "type": "object",
            "propertyNames": { "pattern": NAME_PATTERN },
            "additionalProperties": { "anyOf": [count, whole] }
        })
    }
}

fn read_map(reader: &mut Reader<'_>, node: &Node, counted: &mut Counted) {
    let Some(fields) = reader.fields(COUNTED, node) else { return };
    reader.values(&fields, counted);
    match fields.get("count") {
        None => {
            let message = format!("`{}` has no `count`", counted.name);
            reader.find(&rules::WRONG_TYPE, node, message, "say how many there are: `count: 4`");
        }
        Some(entry) if !counted.devices.is_empty() && counted.count > WITH_DEVICES_MAX => {
            let expected = format!("a whole number from 1 to {WITH_DEVICES_MAX} with `devices`");
            reader.out_of_range(&entry.value, &expected);
        }
        Some(_) => {}
    }
}
