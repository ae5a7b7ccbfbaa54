//! The possible errors of a scenario of a host, each with its code. A code never changes its meaning.

use tenantd_policy::reader::Codes;
use tenantd_policy::rules::Rule;

pub(super) const TEXT: Rule = Rule::error("H001", "a text that cannot be read");
pub(super) const MISSING_KEY: Rule = Rule::error("H004", "a missing key");
pub(super) const WRONG_TYPE: Rule = Rule::error("H005", "a value of the wrong type");
pub(super) const BAD_NUMBER: Rule = Rule::error("H006", "a number out of range");
pub(super) const NAME: Rule = Rule::error("H007", "a tenant that the policy does not have");
pub(super) const CONFLICT: Rule = Rule::error("H008", "values that contradict one another");
pub(super) const TOO_LONG: Rule = Rule::error("H009", "a simulation that would take too long");

/// The codes of errors that any file can have.
pub(super) static CODES: Codes = Codes {
    unknown_key: Rule::error("H002", "an unknown key"),
    duplicate_key: Rule::error("H003", "a key given twice"),
    missing_key: Some(MISSING_KEY),
    wrong_type: WRONG_TYPE,
    unknown_word: WRONG_TYPE,
    out_of_range: BAD_NUMBER,
    elsewhere: |_| None,
};
