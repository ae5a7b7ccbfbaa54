//! Applies late numbers of names in the policy, as a reload of the same policy.

use super::start::Agent;
use crate::backend::claims;
use tenantd_control::words::finding::{Code, Finding};
use tenantd_host::enforce::with_causes;
use tenantd_host::kernfs::KernFs;
use tenantd_policy::model::Policy;

impl<K: KernFs> Agent<K> {
    pub(crate) fn take_names(&mut self) {
        let accounts = self.options.accounts.clone();
        if !self.names.is_due(&accounts) {
            return;
        }
        self.names.look(&accounts);
        let policy = &self.base.written;
        let numbers = claims::numbers(policy, &accounts);
        if numbers == self.base.numbers {
            self.names.failure = None;
            return;
        }
        let rules = claims::rules_of(policy, &numbers);
        let outcome = self.take_policy(Policy::clone(policy), numbers, rules);
        self.names.failure = match outcome {
            Ok(failures) => {
                let not_kept = |why: &String| Finding::of_host(Code::NotKept, why.as_str());
                self.reporter.note_late_findings(failures.iter().map(not_kept).collect());
                None
            }
            Err(error) => {
                let what = format!(
                    "accounts that are known now are not in force: {}",
                    with_causes(&error)
                );
                Some(Finding::of_host(Code::NotAttached, what).as_error())
            }
        };
    }
}
