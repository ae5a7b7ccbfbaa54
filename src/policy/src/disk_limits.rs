//! Forms of limits of requests to disks, and of guaranteed parts of disks.

use serde_json::{Value, json};

use super::hint::shortened;
use super::key::Form;
use super::reader::Reader;
use super::rules;
use super::tree::Node;
use tenantd_core::disk_rate::DiskRate;
use tenantd_core::units::{Bytes, Percent};

/// Least bytes per second: less would stall the start of every program.
const BYTES_LEAST: u64 = 64 << 10;
/// Least operations per second, likewise.
const OPERATIONS_LEAST: u32 = 10;
/// Largest number of operations that the kernel counts, less one that means no limit.
const OPERATIONS_MOST: u32 = u32::MAX - 1;

/// Bytes per second: `100MiB/s`, or `max`.
pub(super) struct Throughput;

impl Throughput {
    const EXPECTED: &'static str = "`max` or bytes per second such as `100MiB/s`";
}

impl Form<Option<u64>> for Throughput {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Option<u64>) {
        if node.is_word("max") {
            return;
        }
        let Some(text) = reader.text(node, Throughput::EXPECTED) else { return };
        match text.strip_suffix("/s").unwrap_or(text).trim_end().parse() {
            Ok(Bytes(rate)) if rate < BYTES_LEAST => {
                let message =
                    format!("a limit of {} would stall the tenant", DiskRate::Read.notation(rate));
                let help = format!(
                    "the smallest limit is {}: programs are read from disks, too",
                    DiskRate::Read.notation(BYTES_LEAST)
                );
                reader.find(&rules::OUT_OF_RANGE, node, message, help);
            }
            Ok(Bytes(rate)) => *into = Some(rate),
            Err(_) => {
                let message = format!("`{}` is not a number of bytes per second", shortened(text));
                let help = format!("write {}", Throughput::EXPECTED);
                reader.find(&rules::WRONG_TYPE, node, message, help);
            }
        }
    }

    fn show(&self, value: &Option<u64>) -> Option<String> {
        value.map(|rate| DiskRate::Read.notation(rate))
    }

    fn schema(&self) -> Value {
        json!({ "anyOf": [
            { "type": "integer", "minimum": BYTES_LEAST },
            { "type": "string", "pattern": "^[0-9]+(\\.[0-9]+)? ?([KMGT]iB?)?(/s)?$" },
            { "const": "max" }
        ] })
    }
}

/// Operations per second, or `max`.
pub(super) struct Operations;

impl Form<Option<u64>> for Operations {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Option<u64>) {
        if node.is_word("max") {
            return;
        }
        let expected = "`max` or a number of operations per second such as `500`";
        match reader.whole(node, OPERATIONS_MOST, expected) {
            Some(rate) if rate < OPERATIONS_LEAST => {
                let message =
                    format!("a limit of {rate} operations per second would stall the tenant");
                let help = format!(
                    "the smallest limit is {OPERATIONS_LEAST}: programs are read from disks, too"
                );
                reader.find(&rules::OUT_OF_RANGE, node, message, help);
            }
            rate => *into = rate.map(u64::from),
        }
    }

    fn show(&self, value: &Option<u64>) -> Option<String> {
        value.map(|rate| rate.to_string())
    }

    fn schema(&self) -> Value {
        let number =
            json!({ "type": "integer", "minimum": OPERATIONS_LEAST, "maximum": OPERATIONS_MOST });
        json!({ "anyOf": [number, { "const": "max" }] })
    }
}

/// Thousandths of a percent of the whole.
pub(super) const DISKS_WHOLE: u64 = 100_000;
/// Most of it that is guaranteed, likewise: the rest is for work outside tenants and for those without a guarantee.
pub(super) const DISKS_MOST: u64 = 80_000;

/// A percentage of the time of each disk.
pub(super) struct PartOfDisks;

impl Form<Option<Percent>> for PartOfDisks {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Option<Percent>) {
        const EXPECTED: &str = "a percentage of the time of each disk such as `20%`";
        let Some(text) = reader.text(node, EXPECTED) else { return };
        match text.parse::<Percent>() {
            Ok(part) if part.of(DISKS_WHOLE) <= DISKS_MOST => *into = Some(part),
            Ok(_) => reader.out_of_range(node, "above 0% and at most 80% of a disk"),
            Err(_) => {
                let message = format!("`{}` is not a part of a disk", shortened(text));
                let help = format!("write {EXPECTED}, at most 80%");
                reader.find(&rules::OUT_OF_RANGE, node, message, help);
            }
        }
    }

    fn show(&self, value: &Option<Percent>) -> Option<String> {
        value.map(|part| part.to_string())
    }

    fn schema(&self) -> Value {
        json!({ "type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?%$" })
    }
}
