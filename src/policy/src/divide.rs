//! The form of `host.disks`: a word, or the disks whose settings may be changed, each with its way.

use std::time::Duration;

use serde_json::{Value, json};

use super::durations::{INTERVAL, Lasting};
use super::hint::shortened;
use super::key::{Form, object, rows, section};
use super::reader::Reader;
use super::rules;
use super::tree::{Kind, Node};
use tenantd_core::disk_rate::DiskRate;
use tenantd_core::units::Bytes;

/// Most disks that are divided, because each is looked at in every tick.
const DISKS_MAX: usize = 64;
/// Largest rate of the model of `io.cost` that is taken as one, per second.
const RATE_MOST: u32 = 1_000_000_000;
const EXAMPLE: &str = "disks: { divide: { sda: bfq } }";
const WAYS: &str =
    "write `sda: bfq`, or for io.cost `sda: { cost: { read: 500MiB/s, read_iops: 20000 } }`";
const MEMORY: &str = "it is memory and has no scheduler";
const STACK: &str =
    "it is a stack of devices: name the disks below it, as `lsblk --inverse` shows them";
/// Beginnings of names of devices that have no scheduler of their own, with the reason.
const OTHERS: [(&str, &str); 5] =
    [("ram", MEMORY), ("zram", MEMORY), ("dm-", STACK), ("md", STACK), ("bcache", STACK)];

/// `host.disks:` treatment of disks.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Disks {
    /// Nothing is written for disks.
    #[default]
    Leave,
    /// Weights of tenants on disks whose scheduler obeys them.
    Weigh,
    /// The same, and these disks get a scheduler or a model that obeys.
    Divide(Vec<DividedDisk>),
}

impl Disks {
    /// True if tenants have weights on disks.
    pub fn weighs(&self) -> bool {
        *self != Disks::Leave
    }

    /// Disks whose settings are changed, in the order of the file.
    pub fn divided(&self) -> &[DividedDisk] {
        match self {
            Disks::Divide(disks) => disks,
            Disks::Leave | Disks::Weigh => &[],
        }
    }
}

/// A disk whose settings are changed.
#[derive(Clone, Debug, PartialEq)]
pub struct DividedDisk {
    /// The kernel's name.
    pub name: String,
    /// Way in which it divides its time.
    pub way: DividedBy,
}

/// Way in which a disk divides its time.
#[derive(Clone, Debug, PartialEq)]
pub enum DividedBy {
    /// The scheduler bfq.
    Bfq,
    /// `io.cost` with a measured model.
    Cost(CostModel),
}

section! {
    /// The value of `disks` as a map.
    pub(super) struct Divide, DIVIDE {
        /// Disks whose settings are changed, by the kernel's name.
        "divide" => disks: Vec<DividedDisk>, Each;
    }
}

section! {
    /// The value of a disk as a map.
    pub(super) struct ByCost, BY_COST {
        /// Measured speed of the disk, for io.cost.
        "cost" => cost: Option<CostModel>, Model;
    }
}

section! {
    /// Speed of a disk, measured with nothing else on it, for `io.cost`.
    #[derive(Copy)]
    pub struct CostModel, COST {
        /// Bytes per second of large sequential reads.
        "read" => read: Option<u64>, Speed;
        /// Reads of 4 KiB per second, at random places.
        "read_iops" => read_iops: Option<u64>, Rate;
        /// Bytes per second of large sequential writes. Left out: as for reads.
        "write" => write: Option<u64>, Speed;
        /// Writes of 4 KiB per second, at random places. Left out: as for reads.
        "write_iops" => write_iops: Option<u64>, Rate;
        /// Latency that the disk keeps under load, about 1.6 times that of one request alone, from 50us to 1s. The kernel slows
        /// the disk down until nine in ten requests keep it. Left out: the disk runs at 90 % of its measured speed.
        "latency" => latency: Option<Duration>, Latency;
    }
}

/// `leave`, `weigh`, or `{ divide: … }`.
pub(super) struct DisksForm;

const WORDS: [(&str, Disks); 2] = [("leave", Disks::Leave), ("weigh", Disks::Weigh)];

impl Form<Disks> for DisksForm {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Disks) {
        if let Kind::Scalar { text, .. } = &node.kind {
            let found = WORDS.iter().find(|(word, _)| *word == &**text);
            return match found {
                Some((_, disks)) => *into = disks.clone(),
                None if node.is_word("divide") => nothing_divided(reader, node),
                None => {
                    let words = WORDS.iter().map(|(word, _)| *word);
                    reader.unknown_word(node, text, words, ", or `{ divide: { sda: bfq } }`");
                }
            };
        }
        let before = reader.report.total();
        let Some(fields) = reader.fields(DIVIDE, node) else { return };
        let mut divide = Divide::default();
        reader.values(&fields, &mut divide);
        if reader.report.total() > before {
            return;
        }
        if divide.disks.is_empty() {
            return nothing_divided(reader, node);
        }
        *into = Disks::Divide(divide.disks);
    }

    fn show(&self, value: &Disks) -> Option<String> {
        Some(match value {
            Disks::Leave => "leave".to_string(),
            Disks::Weigh => "weigh".to_string(),
            Disks::Divide(disks) => {
                let each: Vec<String> = disks.iter().map(DividedDisk::shown).collect();
                format!("{{ divide: {{ {} }} }}", each.join(", "))
            }
        })
    }

    fn schema(&self) -> Value {
        let words = WORDS.map(|(word, _)| word);
        let mut divide = object(&rows(DIVIDE));
        divide["type"] = "object".into();
        divide["required"] = json!(["divide"]);
        json!({ "anyOf": [{ "enum": words }, divide] })
    }
}

fn nothing_divided(reader: &mut Reader<'_>, node: &Node) {
    let help = format!("only disks that are named are changed: `{EXAMPLE}`");
    reader.find(&rules::NOT_DIVIDED, node, "`divide` names no disk", help);
}

impl DividedDisk {
    fn shown(&self) -> String {
        let DividedDisk { name, way } = self;
        match way {
            DividedBy::Bfq => format!("{name}: bfq"),
            DividedBy::Cost(model) => {
                let each = COST
                    .iter()
                    .filter_map(|key| Some(format!("{}: {}", key.name, (key.row)(model).default?)));
                format!("{name}: {{ cost: {{ {} }} }}", each.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// Disks by name, each with its way.
struct Each;

impl Form<Vec<DividedDisk>> for Each {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Vec<DividedDisk>) {
        let entries = reader.map(node, "the names of disks, each with its way");
        reader.duplicates(entries);
        if entries.len() > DISKS_MAX {
            let message = format!("{} disks are divided", entries.len());
            let help = format!("name at most {DISKS_MAX}");
            return reader.find(&rules::OUT_OF_RANGE, node, message, help);
        }
        for entry in entries {
            if let Err(help) = vet_name(&entry.key) {
                let message = format!("`{}` cannot be divided", shortened(&entry.key));
                let finding = rules::NOT_DIVIDED.at(&reader.key_place(entry), message, "");
                reader.report.push(finding.help(help));
                continue;
            }
            if let Some(way) = way(reader, &entry.value) {
                into.push(DividedDisk { name: entry.key.to_string(), way });
            }
        }
    }

    fn schema(&self) -> Value {
        let mut by_cost = object(&rows(BY_COST));
        by_cost["type"] = "object".into();
        by_cost["required"] = json!(["cost"]);
        json!({
            "type": "object",
            "minProperties": 1,
            "maxProperties": DISKS_MAX,
            "additionalProperties": { "anyOf": [{ "const": "bfq" }, by_cost] }
        })
    }
}

/// Refuses a name that is none of a disk, with the remedy.
fn vet_name(name: &str) -> Result<(), String> {
    if let Some(bare) = name.strip_prefix("/dev/") {
        return Err(format!("write its name alone: `{}`", shortened(bare)));
    }
    if name.is_empty() || [".", ".."].contains(&name) || name.contains(char::is_control) {
        return Err("write a name of `/sys/block`, such as `sda` or `nvme0n1`".to_string());
    }
    let is_of = |start: &str| {
        let rest = name.strip_prefix(start);
        rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '_'))
    };
    match OTHERS.iter().find(|(start, _)| is_of(start)) {
        Some((_, why)) => Err((*why).to_string()),
        None => Ok(()),
    }
}

fn way(reader: &mut Reader<'_>, node: &Node) -> Option<DividedBy> {
    if let Kind::Scalar { text, .. } = &node.kind {
        if &**text == "bfq" {
            return Some(DividedBy::Bfq);
        }
        let message = format!("`{}` is not a way to divide a disk", shortened(text));
        reader.find(&rules::UNKNOWN_WORD, node, message, WAYS);
        return None;
    }
    let before = reader.report.total();
    let fields = reader.fields(BY_COST, node)?;
    let mut by_cost = ByCost::default();
    reader.values(&fields, &mut by_cost);
    if reader.report.total() > before {
        return None;
    }
    if by_cost.cost.is_none() {
        reader.find(&rules::WRONG_TYPE, node, "the disk has no way to divide it", WAYS);
    }
    by_cost.cost.map(DividedBy::Cost)
}

/// The measured speed.
struct Model;

impl Form<Option<CostModel>> for Model {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Option<CostModel>) {
        let before = reader.report.total();
        let Some(fields) = reader.fields(COST, node) else { return };
        let mut model = CostModel::default();
        reader.values(&fields, &mut model);
        if reader.report.total() > before {
            return;
        }
        if model.read.is_none() || model.read_iops.is_none() {
            let help = "measure both with nothing else on the disk, as docs/disk.md shows: \
                        `cost: { read: 500MiB/s, read_iops: 20000 }`";
            let message = "`cost` needs `read` and `read_iops`";
            return reader.find(&rules::WRONG_TYPE, node, message, help);
        }
        *into = Some(model);
    }

    fn schema(&self) -> Value {
        let mut model = object(&rows(COST));
        model["type"] = "object".into();
        model["required"] = json!(["read", "read_iops"]);
        model
    }
}

/// Bytes per second: `500MiB/s`.
struct Speed;

impl Form<Option<u64>> for Speed {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Option<u64>) {
        const EXPECTED: &str = "bytes per second such as `500MiB/s`";
        let Some(text) = reader.text(node, EXPECTED) else { return };
        match text.strip_suffix("/s").unwrap_or(text).trim_end().parse() {
            Ok(Bytes(0)) => reader.out_of_range(node, "more than 0 bytes per second"),
            Ok(Bytes(rate)) => *into = Some(rate),
            Err(_) => {
                let message = format!("`{}` is not a number of bytes per second", shortened(text));
                reader.find(&rules::WRONG_TYPE, node, message, format!("write {EXPECTED}"));
            }
        }
    }

    fn show(&self, value: &Option<u64>) -> Option<String> {
        value.map(|rate| DiskRate::Read.notation(rate))
    }

    fn schema(&self) -> Value {
        json!({ "anyOf": [
            { "type": "integer", "minimum": 1 },
            { "type": "string", "pattern": "^[0-9]+(\\.[0-9]+)? ?([KMGT]iB?)?(/s)?$" }
        ] })
    }
}

/// Operations per second.
struct Rate;

impl Form<Option<u64>> for Rate {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Option<u64>) {
        let rate = reader.whole(node, RATE_MOST, "operations per second such as `20000`");
        *into = rate.map(u64::from);
    }

    fn show(&self, value: &Option<u64>) -> Option<String> {
        value.map(|rate| rate.to_string())
    }

    fn schema(&self) -> Value {
        json!({ "type": "integer", "minimum": 1, "maximum": RATE_MOST })
    }
}

/// A latency: `6ms`.
struct Latency;

const LATENCY: Lasting = Lasting {
    range: (Duration::from_micros(50), Duration::from_secs(1)),
    noun: "a latency",
    example: "6ms",
    bounds: "the latency lies between `50us` and `1s`",
    written: "write a duration as `500us` or `6ms`",
    pattern: "^[0-9]+ ?(us|ms|s)$",
    ..INTERVAL
};

impl Form<Option<Duration>> for Latency {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Option<Duration>) {
        let mut latency = Duration::ZERO;
        LATENCY.read(reader, node, &mut latency);
        *into = Some(latency).filter(|latency| !latency.is_zero());
    }

    fn show(&self, value: &Option<Duration>) -> Option<String> {
        value.and_then(|latency| LATENCY.show(&latency))
    }

    fn schema(&self) -> Value {
        LATENCY.schema()
    }
}

#[cfg(test)]
mod tests {
    use super::vet_name;

    #[test]
    fn stacks_and_memory_are_no_disks() {
        for name in ["sda", "nvme0n1", "loop3", "vdb", "mmcblk0", "nbd0", "rbd1", "cciss!c0d0"] {
            assert_eq!(vet_name(name), Ok(()), "{name}");
        }
        let others = ["ram0", "zram1", "dm-0", "md127", "md_d0", "bcache0", "/dev/sda", "", ".."];
        for name in others {
            assert!(vet_name(name).is_err(), "{name}");
        }
    }
}
