//! The possible errors of a problem file, each with its code. A code never changes its meaning.

use tenantd_policy::reader::Codes;
use tenantd_policy::rules::Rule;

pub(super) const TEXT: Rule = Rule::error("S001", "a text that cannot be read");
pub(super) const MISSING_KEY: Rule = Rule::error("S004", "a missing key");
pub(super) const WRONG_TYPE: Rule = Rule::error("S005", "a value of the wrong type");
pub(super) const BAD_NUMBER: Rule = Rule::error("S006", "a number or quantity out of range");
pub(super) const UNKNOWN_RESOURCE: Rule =
    Rule::error("S007", "a resource that is not in the capacity");
pub(super) const KIND: Rule =
    Rule::error("S008", "not exactly one of task, demand, usage and tenants");
pub(super) const NAME: Rule = Rule::error("S009", "a name that is ambiguous in the answer");
pub(super) const LIMIT_BELOW_GUARANTEE: Rule =
    Rule::error("S010", "a limit below the guarantee, or below the guarantees in the group");
pub(super) const OVERBOOKED: Rule = Rule::error("S011", "guarantees beyond the capacity");
pub(super) const WHOLE_TASKS: Rule =
    Rule::error("S012", "tasks that are not whole, or too many of them to list");
pub(super) const CONFLICT: Rule = Rule::error("S013", "keys that do not go together");
pub(super) const UNAUDITED: Rule =
    Rule::error("S014", "a question that this problem has no answer to");

/// The codes of errors that any file can have.
pub(super) static CODES: Codes = Codes {
    unknown_key: Rule::error("S002", "an unknown key"),
    duplicate_key: Rule::error("S003", "a key given twice"),
    missing_key: Some(MISSING_KEY),
    wrong_type: WRONG_TYPE,
    unknown_word: WRONG_TYPE,
    out_of_range: BAD_NUMBER,
    elsewhere: |_| None,
};
