//! Forms of the bounds of history: size and age.

use std::time::Duration;

use serde_json::{Value, json};

use super::bounds::Absolute;
use super::hint::shortened;
use super::key::Form;
use super::reader::Reader;
use super::rules;
use super::tree::Node;
use tenantd_core::resource::MEMORY;

const SIZE_MIN: u64 = 1 << 20;

pub(super) struct Size;

impl Form<u64> for Size {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut u64) {
        let mut size = *into;
        Absolute(MEMORY).read(reader, node, &mut size);
        if size == 0 || size >= SIZE_MIN {
            *into = size;
            return;
        }
        let message = format!("{} is too small to keep anything", MEMORY.notation(size));
        reader.find(&rules::OUT_OF_RANGE, node, message, "keep `1MiB` or more, or `0` for nothing");
    }

    fn show(&self, value: &u64) -> Option<String> {
        Some(MEMORY.notation(*value))
    }

    fn schema(&self) -> Value {
        json!({ "anyOf": [
            { "type": "integer", "minimum": 0 },
            { "type": "string", "pattern": "^[0-9]+(\\.[0-9]+)? ?([KMGT]iB?)?$" }
        ] })
    }
}

pub(super) struct Age;

impl Form<Duration> for Age {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Duration) {
        let range = Duration::from_secs(60)..=Duration::from_secs(366 * 24 * 3600);
        let Some(text) = reader.text(node, "a duration such as `24h`") else { return };
        let help = match humantime::parse_duration(text) {
            Ok(age) if range.contains(&age) => return *into = age,
            Ok(_) => "the age lies between `1m` and `366d`".to_string(),
            Err(_) => "write a duration as `24h` or `7d`".to_string(),
        };
        let message = format!("`{}` is not an age", shortened(text));
        reader.find(&rules::BAD_INTERVAL, node, message, help);
    }

    fn show(&self, value: &Duration) -> Option<String> {
        // Whole hours are shown as hours: `24h`, not `1day`.
        let hours = value.as_secs() / 3600;
        Some(if *value == Duration::from_secs(hours * 3600) {
            format!("{hours}h")
        } else {
            humantime::format_duration(*value).to_string()
        })
    }

    fn schema(&self) -> Value {
        json!({ "type": "string", "pattern": "^[0-9]+ ?(s|m|min|h|d|days?|weeks?)$" })
    }
}
