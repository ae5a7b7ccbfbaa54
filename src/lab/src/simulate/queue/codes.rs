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
    Rule::error("Q007", "a tenant, resource or job that is not defined, or defined twice");
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

/// A whole number of a range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole {
    pub(super) range: (u64, u64),
}

impl Whole {
    /// A seed: a whole number that a 64-bit floating-point number holds exactly.
    pub(super) const SEED: Whole = Whole { range: (0, 9_000_000_000_000_000) };
    pub(super) const COUNT: Whole = Whole { range: (1, 2_000_000) };
    /// Number of splits, which may be 0.
    pub(super) const SPLITS: Whole = Whole { range: (0, 2_000_000) };

    pub(super) fn number(&self, reader: &mut Reader<'_>, node: &Node) -> Option<u64> {
        let number = reader.number(node, "a number", "")?;
        let (low, high) = self.range;
        if number.fract() == 0.0 && (low as f64..=high as f64).contains(&number) {
            return Some(number as u64);
        }
        reader.out_of_range(node, &format!("a whole number from {low} to {high}"));
        None
    }
}

impl Form<u64> for Whole {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut u64) {
        *into = self.number(reader, node).unwrap_or(*into);
    }
}

impl Form<Option<u64>> for Whole {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Option<u64>) {
        *into = self.number(reader, node);
    }
}
