//! Rules of a policy, each with its code. A code never changes its meaning and is never reused.
//!
//! policies/README.md shows the same table, and a test compares the two.

use super::report::{Diagnostic, Severity, Source};
use super::tree::Place;
use std::sync::Arc;

/// One rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Code of the rule.
    pub code: &'static str,
    /// Severity of a violation.
    pub severity: Severity,
    /// Violation, in a few words.
    pub title: &'static str,
}

impl Rule {
    /// Creates a rule whose violation is an error.
    pub const fn error(code: &'static str, title: &'static str) -> Rule {
        Rule { code, severity: Severity::Error, title }
    }

    /// Creates a finding of this rule at a place.
    pub fn at(
        &self,
        place: &Place,
        message: impl Into<String>,
        label: impl Into<String>,
    ) -> Diagnostic {
        let finding = Diagnostic::new(self.code, self.severity, &place.source, message);
        finding.at(place.span.clone(), label)
    }

    /// Creates a finding of this rule about a whole file.
    pub fn about(&self, source: &Arc<Source>, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(self.code, self.severity, source, message)
    }
}

macro_rules! rules {
    ($($name:ident = $code:literal, $severity:ident, $title:literal;)*) => {
        $(
            #[doc = $title]
            pub const $name: Rule =
                Rule { code: $code, severity: Severity::$severity, title: $title };
        )*

        /// Every rule, in the order of the codes.
        pub const RULES: &[Rule] = &[$($name),*];
    };
}

rules! {
    // Files.
    UNREADABLE = "P001", Error, "a file or directory that cannot be read";
    SYNTAX = "P002", Error, "not YAML";
    ENCODING = "P003", Error, "not UTF-8";
    TOO_LARGE = "P004", Error, "too large, too deeply nested, or aliases that stand for too much";
    EMPTY = "P005", Error, "an empty file";
    DOCUMENTS = "P006", Error, "more than one document in a file";
    ALIAS_CYCLE = "P007", Error, "an alias within its own anchor";
    EMPTY_DIRECTORY = "P008", Error, "a directory without a *.yaml file";
    IGNORED_FILE = "P009", Warning, "a file of the directory that is not read";
    // Keys.
    UNKNOWN_KEY = "P010", Error, "an unknown key";
    DUPLICATE_KEY = "P011", Error, "a key given twice";
    DUPLICATE_TENANT = "P012", Error, "a tenant defined twice";
    NO_VERSION = "P013", Error, "no version";
    UNKNOWN_VERSION = "P014", Error, "a version that is not supported";
    OLD_WORD = "P015", Note, "an old word for a value";
    LEADING_ZERO = "P016", Note, "a number that begins with 0";
    NO_VALUE = "P017", Note, "a key of a tenant without a value";
    // Values.
    WRONG_TYPE = "P020", Error, "a value of the wrong type";
    UNKNOWN_WORD = "P021", Error, "a word that is not one of the choices";
    BAD_CPUS = "P022", Error, "not a number of CPUs";
    BAD_MEMORY = "P023", Error, "not an amount of memory";
    BAD_INTERVAL = "P024", Error, "not a duration, or one out of range";
    BAD_WEIGHT = "P025", Error, "a weight that is 0, negative, not a number or out of range";
    OUT_OF_RANGE = "P026", Error, "a number out of range";
    BAD_NAME = "P027", Error, "a tenant name that is not safe as the name of a cgroup";
    BAD_CPU_LIST = "P028", Error, "not a list of CPUs";
    PARTIAL_WEIGHT = "P029", Note, "a weight that names only some of the resources";
    // Claims of tenants.
    EMPTY_MATCH = "P030", Error, "a match that claims nothing";
    BAD_MATCH = "P031", Error, "a unit, cgroup, account, variable or device that cannot exist";
    PATH_ESCAPE = "P032", Error, "a path that leaves the cgroup hierarchy";
    OVERLAPPING_MATCH = "P033", Error, "two tenants that claim the same processes";
    TOO_MANY_PATTERNS = "P034", Error, "more cgroup patterns than can be compared";
    CLAIMS_BESIDE_UNIT = "P036", Warning, "processes to be moved into a unit, which stay where they are";
    OWNER_CONTRADICTS = "P037", Error, "an owner that contradicts the match or the group";
    MOVE_WITHOUT_CGROUP = "P038", Warning, "a move without the cgroup whose processes are moved";
    HOLDS_AGENT = "P039", Error, "a cgroup that holds the agent's root";
    // The tree.
    NO_TENANTS = "P040", Error, "no tenants";
    GROUP_KEY = "P041", Error, "a key that only a tenant without tenants below it can have";
    TOO_DEEP = "P042", Error, "groups nested more than 16 deep";
    TOO_MANY = "P043", Error, "more than 10000 tenants";
    TEMPLATE_MATCH = "P044", Error, "an each that does not say what to find by one kind of match";
    TEMPLATE_KEY = "P045", Error, "a key or value that a template cannot have";
    CLOSED = "P046", Note, "a tenant that nothing can enter";
    NO_SUBMITTER = "P047", Note, "no tenant to which a user may submit jobs";
    // Values that contradict one another.
    LIMIT_BELOW_GUARANTEE = "P050", Error, "a limit below the guarantee";
    GROUP_LIMIT = "P051", Error, "guarantees beyond the limit of their group";
    DOP_TWICE = "P052", Error, "a DOP both manual and bounded";
    DOP_BEYOND_LIMIT = "P053", Error, "a manual DOP beyond the CPU limit";
    CPUS_OVERLAP = "P054", Error, "fixed sets of CPUs that overlap";
    GROUP_GUARANTEE = "P055", Error, "a guarantee of a group below the guarantees in it";
    CREDITS_IGNORED = "P056", Note, "credits that the discipline of the queue ignores";
    DEFAULT_WEIGHT = "P057", Note, "a default weight beside much smaller ones";
    NOT_DIVIDED = "P058", Error, "a disk that cannot be divided, or none to divide";
    // The machine.
    RESERVE_BEYOND_CAPACITY = "P060", Error, "a reserve that leaves nothing";
    GUARANTEE_BEYOND_CAPACITY = "P061", Error, "guarantees beyond what the machine has";
    DOP_BEYOND_SLOTS = "P062", Error, "a manual DOP beyond the slots of the machine";
    NO_SUCH_CPU = "P063", Error, "a CPU that the machine does not have";
    UNKNOWN_ACCOUNT = "P064", Warning, "a user or group that the machine does not know";
    STAYS_IN_UNIT = "P065", Warning, "processes claimed by owner that stay in units of systemd";
    UNKNOWN_SERVICE = "P066", Warning, "a service that the machine does not have";
    UNKNOWN_CGROUP = "P067", Note, "a cgroup that is not there now";
    MOVED = "P068", Note, "processes that are moved into a cgroup of their tenant";
    FOUND = "P069", Note, "what an each finds, or is left, now";
    FAILED_LOOK_UP = "P070", Warning, "a user or group that could not be looked up";
    NAME_OF_DIGITS = "P071", Warning, "digits that are the name of an account and the number of another";
    LIMIT_BEYOND_MACHINE = "P072", Note, "a limit beyond what the machine has";
    CLAIMED_TWICE = "P073", Note, "a user or pod that fits two matches";
    NO_UNITS = "P074", Note, "a unit on a machine where units cannot be tenants";
    NO_DEVICE = "P075", Note, "a device of a counted resource that is not there now";
    OPEN_DEVICES = "P076", Note, "devices that stay open to every job";
    LIMITED_WRITES = "P077", Note, "a limit of writes, behind which others may wait";
    VOID_DISKS = "P078", Note, "a disk or file system where limits or weights of disks have no effect";
    REPLACED_SETTING = "P079", Note, "a setting in the file of a unit that tenantd replaces";
}
