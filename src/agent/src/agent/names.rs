//! Names of users and groups in the policy, whose numbers may arrive while the agent runs.
//!
//! **Problem.** At boot the account service may start after the agent; later it may hang or fail.
//!
//! **Algorithm.** The agent looks up each name without waiting ([`tenantd_policy::accounts`]), and again each
//! minute while the name is unknown. When a number arrives or changes, the agent applies the same policy with
//! it, as in a reload. Until then each name that does not exist or cannot be looked up has a finding, and so
//! has a service that does not answer.
//!
//! Names of `administrators` and `allow` are looked up as well, so that they are known before the first request
//! that needs them. The socket thread checks the permissions themselves.

use std::collections::BTreeMap;
use std::time::Duration;

use tenantd_control::words::finding::{Code, Finding};
use tenantd_policy::accounts::{Accounts, Answer, Need, Question, digits, explicit};
use tenantd_policy::expand::ALL_USERS;
use tenantd_policy::model::{Policy, Tenant};

/// Time between two looks at the names: while an answer is due, and otherwise.
const SOON: Duration = Duration::from_secs(1);
const SELDOM: Duration = Duration::from_secs(20);
const FINDINGS_MAX: usize = 50;

#[derive(Clone, Debug)]
struct Use {
    /// The tenant; `None` for the policy as a whole.
    tenant: Option<String>,
    key: &'static str,
}

#[derive(Debug, Default)]
pub(crate) struct Names {
    uses: BTreeMap<Question, Use>,
    /// Generation of the answers at the last look.
    generation: u64,
    look_at: Duration,
    findings: Vec<Finding>,
    pub(crate) failure: Option<Finding>,
}

impl Names {
    pub(crate) fn of(policy: &Policy) -> Names {
        let mut uses = BTreeMap::new();
        let mut add = |tenant: Option<&str>, key, users: &[String], groups: &[String]| {
            let users = users.iter().filter(|name| *name != ALL_USERS).cloned();
            let users = users.map(Question::User);
            for question in users.chain(groups.iter().cloned().map(Question::Group)) {
                if is_name(&question) {
                    let tenant = tenant.map(str::to_string);
                    uses.entry(question).or_insert(Use { tenant, key });
                }
            }
        };
        walk(&policy.tenants, "", &mut |path, tenant| {
            add(Some(path), "match", &tenant.matches.users, &tenant.matches.groups);
            add(Some(path), "allow", &tenant.allow.users, &tenant.allow.groups);
        });
        let administrators = &policy.administrators;
        add(None, "administrators", &administrators.users, &administrators.groups);
        Names { uses, ..Names::default() }
    }

    /// True if an answer may have changed since the last look.
    pub(crate) fn is_due(&self, accounts: &Accounts) -> bool {
        !self.uses.is_empty()
            && (accounts.generation() != self.generation || accounts.now() >= self.look_at)
    }

    pub(crate) fn look(&mut self, accounts: &Accounts) {
        // Read before the answers: an answer that arrives meanwhile is read again.
        self.generation = accounts.generation();
        self.findings.clear();
        let (mut is_pending, mut nr_more) = (false, 0);
        for (question, at) in &self.uses {
            let answer = match question {
                Question::User(name) => accounts.user(name, Need::Policy),
                Question::Group(name) => accounts.group(name, Need::Policy),
                Question::Owner(_) | Question::GroupName(_) => continue,
            };
            is_pending |= answer == Answer::Pending;
            match finding(question, at, &answer) {
                Some(_) if self.findings.len() >= FINDINGS_MAX => nr_more += 1,
                finding => self.findings.extend(finding),
            }
        }
        if nr_more > 0 {
            let what = format!("{nr_more} further names of users and groups are not known");
            self.findings.push(Finding::of_host(Code::AccountMissing, what));
        }
        self.look_at = accounts.now() + if is_pending { SOON } else { SELDOM };
    }

    pub(crate) fn findings(&self, accounts: &Accounts) -> impl Iterator<Item = Finding> + use<> {
        let stall = accounts.stall().map(|stall| {
            let what = format!(
                "accounts do not answer: the look-up of {} has taken {} s, and {} wait behind it; new users are \
                 shown by number, and names that are not known yet match nothing",
                stall.question,
                stall.age.as_secs(),
                stall.nr_waiting
            );
            Finding::of_host(Code::AccountsAway, what)
                .with_remedy("check the services that /etc/nsswitch.conf names")
        });
        self.findings.clone().into_iter().chain(self.failure.clone()).chain(stall)
    }
}

fn is_name(question: &Question) -> bool {
    match question {
        Question::User(name) | Question::Group(name) => explicit(name).is_none(),
        Question::Owner(_) | Question::GroupName(_) => false,
    }
}

fn walk(tenants: &[Tenant], above: &str, visit: &mut impl FnMut(&str, &Tenant)) {
    for tenant in tenants {
        let path = format!("{above}{}", tenant.name);
        visit(&path, tenant);
        tenant.template().iter().for_each(|template| visit(&path, template));
        walk(&tenant.tenants, &format!("{path}/"), visit);
    }
}

fn finding(question: &Question, at: &Use, answer: &Answer<u32>) -> Option<Finding> {
    let (kind, name) = match question {
        Question::User(name) => ("users", name),
        Question::Group(name) => ("groups", name),
        Question::Owner(_) | Question::GroupName(_) => return None,
    };
    let key = format!("{}.{kind}", at.key);
    let effect = match at.key {
        "match" => "it claims nothing",
        _ => "it permits nothing",
    };
    let (what, remedy) = match answer {
        Answer::Known(_) | Answer::Pending => return None,
        Answer::Missing if digits(name).is_some() => return None,
        Answer::Missing => (
            format!("`{key}`: this host has no {question}, as this daemon sees it: {effect}"),
            "make the account or correct the name, which is looked up again each minute; where getent(1) finds it, \
             the unit keeps an NSS module from its directory: docs/sandbox.md has the drop-in",
        ),
        Answer::Unknown(why) => (
            format!(
                "`{key}`: {question} could not be looked up: {why}: {effect} until it is known"
            ),
            "check the services that /etc/nsswitch.conf names; it is looked up again each minute",
        ),
    };
    let finding = Finding::of_host(Code::AccountMissing, what).with_remedy(remedy);
    Some(Finding { tenant: at.tenant.clone(), ..finding })
}
