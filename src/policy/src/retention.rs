//! Form of the size of history.

use serde_json::{Value, json};

use super::bounds::Absolute;
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
