//! The possible errors of a scenario, each with its code, and the ranges of its numbers. A code never changes
//! its meaning.

use tenantd_policy::key::Form;
use tenantd_policy::reader::{Codes, Reader};
use tenantd_policy::rules::Rule;
use tenantd_policy::tree::Node;

pub(super) const TEXT: Rule = Rule::error("Q001", "a text that cannot be read");
pub(super) const MISSING_KEY: Rule = Rule::error("Q004", "a missing key");
const WRONG_TYPE: Rule = Rule::error("Q005", "a value of the wrong type");
pub(super) const BAD_NUMBER: Rule = Rule::error("Q006", "a number out of its range");
pub(super) const NAME: Rule =
    Rule::error("Q007", "a tenant or a resource that is not defined, or defined twice");
pub(super) const CONFLICT: Rule = Rule::error("Q008", "keys that exclude each other");
pub(super) const TOO_LONG: Rule = Rule::error("Q009", "a simulation without an end in sight");

/// The codes of errors that any file can have.
pub(super) static CODES: Codes = Codes {
    unknown_key: Rule::error("Q002", "an unknown key"),
    duplicate_key: Rule::error("Q003", "a key given twice"),
    missing_key: Some(MISSING_KEY),
    wrong_type: WRONG_TYPE,
    unknown_word: WRONG_TYPE,
    out_of_range: BAD_NUMBER,
    elsewhere: |_| None,
};

/// The form of numbers in a range, with the range in words.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowed {
    pub(super) range: (f64, f64),
    pub(super) words: &'static str,
}

impl Allowed {
    pub(super) const POSITIVE: Allowed =
        Allowed { range: (f64::MIN_POSITIVE, 1e15), words: "a number above 0 and at most 1e15" };
    pub(super) const NOT_NEGATIVE: Allowed =
        Allowed { range: (0.0, 1e15), words: "a number from 0 to 1e15" };
    pub(super) const PART: Allowed = Allowed { range: (0.0, 1.0), words: "a number from 0 to 1" };
    pub(super) const ANY: Allowed =
        Allowed { range: (-1e15, 1e15), words: "a number from -1e15 to 1e15" };

    /// A number in the range.
    pub(super) fn number(&self, reader: &mut Reader<'_>, node: &Node) -> Option<f64> {
        let number = reader.number(node, "a number", "")?;
        let (low, high) = self.range;
        if (low..=high).contains(&number) {
            return Some(number);
        }
        reader.out_of_range(node, self.words);
        None
    }
}

impl Form<Option<f64>> for Allowed {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Option<f64>) {
        *into = self.number(reader, node);
    }
}

impl Form<f64> for Allowed {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut f64) {
        *into = self.number(reader, node).unwrap_or(*into);
    }
}

/// A seed: a whole number that a 64-bit floating-point number holds.
pub(super) struct Seed;

impl Form<u64> for Seed {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut u64) {
        let Some(number) = reader.number(node, "a number", "") else { return };
        match number.fract() == 0.0 && (0.0..=9e15).contains(&number) {
            true => *into = number as u64,
            false => reader.out_of_range(node, "a whole number from 0 to 9e15"),
        }
    }
}
