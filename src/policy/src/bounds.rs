//! Forms of amounts and limits: reading, showing, describing.

use serde_json::{Value, json};

use super::amount::Amount;
use super::hint::shortened;
use super::key::Form;
use super::reader::Reader;
use super::rules::{self, Rule};
use super::tree::Node;
use tenantd_core::resource::{PerResource, Resource};
use tenantd_core::units::QuantityError;

/// Per resource: the rule for a text that is not an amount, and the JSON type and pattern of amounts.
static AMOUNTS: PerResource<(Rule, &str, &str)> = PerResource([
    (rules::BAD_CPUS, "number", "^[0-9]+(\\.[0-9]+)?m?$"),
    (rules::BAD_MEMORY, "integer", "^[0-9]+(\\.[0-9]+)? ?([KMGT]iB?)?$"),
]);

static LEAST_LIMITS: PerResource<(u64, &str)> = PerResource([
    (10, "10m, the kernel's smallest quota"),
    (1 << 20, "1MiB: no process fits into less"),
]);

/// Message and remedy for a limit that is too small to run at all.
pub(super) fn too_small(limit: u64, of: Resource) -> Option<(String, String)> {
    let (least, because) = LEAST_LIMITS[of];
    let message = format!("a limit of {} would stop the tenant", of.notation(limit));
    (limit < least).then(|| (message, format!("the smallest limit is {because}")))
}

/// Reads an amount with `parse`; `further` names other allowed words.
fn quantity<T>(
    reader: &mut Reader<'_>,
    node: &Node,
    of: Resource,
    parse: impl Fn(&str) -> Result<T, QuantityError>,
    further: &str,
) -> Option<T> {
    let rule = &AMOUNTS[of].0;
    let what = rule.title.trim_start_matches("not ");
    let text = reader.text(node, what)?;
    match parse(text) {
        Ok(value) => Some(value),
        Err(error) => {
            let message = format!("`{}` is not {what}", shortened(text));
            // A text without a digit is a word, and `-1` is one in other programs, so `further` applies.
            let is_amount = text.contains(|c: char| c.is_ascii_digit()) && !text.starts_with('-');
            let further = if is_amount { "" } else { further };
            let bounds = text.split_once('-').map(|(least, most)| (least.trim(), most.trim()));
            let is_range =
                |(least, most): &(&str, &str)| parse(least).is_ok() && parse(most).is_ok();
            let help = match bounds.filter(is_range) {
                Some((least, most)) => format!(
                    "an amount is one number: `{least}` in `guarantee` and `{most}` in `limit` are both"
                ),
                None => error.help + further,
            };
            reader.find(rule, node, message, help);
            None
        }
    }
}

/// An amount of a resource: CPUs as `2`, `1.5` or `500m`; memory as bytes or `8GiB`.
#[derive(Debug)]
pub struct Absolute(pub Resource);

impl Form<u64> for Absolute {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut u64) {
        let amount = quantity(reader, node, self.0, |text| self.0.parse(text), "");
        *into = amount.unwrap_or(*into);
    }
}

impl Form<Option<u64>> for Absolute {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Option<u64>) {
        *into = quantity(reader, node, self.0, |text| self.0.parse(text), "");
    }
}

pub(super) struct AmountOf(pub(super) Resource);

impl AmountOf {
    fn amount(&self, reader: &mut Reader<'_>, node: &Node, further: &str) -> Option<Amount> {
        quantity(reader, node, self.0, |text| Amount::parse(self.0, text), further)
    }
}

impl Form<Amount> for AmountOf {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Amount) {
        *into = self.amount(reader, node, "").unwrap_or(*into);
    }

    fn show(&self, value: &Amount) -> Option<String> {
        Some(value.notation(self.0))
    }

    fn schema(&self) -> Value {
        let (_, number, pattern) = AMOUNTS[self.0];
        json!({ "anyOf": [
            { "type": number, "minimum": 0 },
            { "type": "string", "pattern": pattern },
            { "type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?%$" }
        ] })
    }
}

impl Form<Option<Amount>> for AmountOf {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Option<Amount>) {
        *into = self.amount(reader, node, "");
    }

    fn show(&self, value: &Option<Amount>) -> Option<String> {
        value.map(|amount| amount.notation(self.0))
    }

    fn schema(&self) -> Value {
        Form::<Amount>::schema(self)
    }
}

pub(super) struct UpTo(pub(super) Resource);

impl Form<Option<Amount>> for UpTo {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Option<Amount>) {
        if node.is_word("max") {
            return;
        }
        *into = AmountOf(self.0).amount(reader, node, "; `max` is no limit");
        let known = into.and_then(|amount| amount.on(None));
        if let Some((message, help)) = known.and_then(|limit| too_small(limit, self.0)) {
            reader.find(&rules::OUT_OF_RANGE, node, message, help);
        }
    }

    fn show(&self, value: &Option<Amount>) -> Option<String> {
        value.map(|amount| amount.notation(self.0))
    }

    fn schema(&self) -> Value {
        json!({ "anyOf": [Form::<Amount>::schema(&AmountOf(self.0)), { "const": "max" }] })
    }
}

pub(super) struct Processes;

impl Processes {
    /// Kernel's bound on 64-bit machines (`PID_MAX_LIMIT`).
    const MOST: u32 = 1 << 22;
}

impl Form<Option<u32>> for Processes {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Option<u32>) {
        if !node.is_word("max") {
            *into = reader.whole(
                node,
                Processes::MOST,
                "`max` or a number of processes such as `4096`",
            );
        }
    }

    fn show(&self, value: &Option<u32>) -> Option<String> {
        value.map(|count| count.to_string())
    }

    fn schema(&self) -> Value {
        let number = json!({ "type": "integer", "minimum": 1, "maximum": Processes::MOST });
        json!({ "anyOf": [number, { "const": "max" }] })
    }
}
