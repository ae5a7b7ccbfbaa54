//! Accounts that are known late, change, or cannot be looked up: ticks go on, and identities stay.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenantd_control::report::status::Status;
use tenantd_control::words::finding::Code;
use tenantd_core::resource::CPU;
use tenantd_host::systemd::Order;
use tenantd_policy::accounts::{Accounts, Desk, Directory, Outcome, Question, Record, User};
use tenantd_sim::Load;

use super::each::{log_in, log_out, people};
use super::world::World;

/// A database that answers at once.
#[derive(Clone, Copy)]
pub(super) struct Fake {
    pub(super) user: fn(&str) -> Option<u32>,
    pub(super) group: fn(&str) -> Option<u32>,
    pub(super) owner: fn(u32) -> Option<User>,
}

impl Fake {
    /// A database without accounts.
    pub(super) fn empty() -> Fake {
        Fake { user: |_| None, group: |_| None, owner: |_| None }
    }

    /// It, asked by the caller.
    pub(super) fn direct(self) -> Accounts {
        Accounts::direct(self)
    }
}

impl Directory for Fake {
    fn user(&mut self, name: &str) -> Outcome<u32> {
        Ok((self.user)(name))
    }

    fn group(&mut self, name: &str) -> Outcome<u32> {
        Ok((self.group)(name))
    }

    fn owner(&mut self, uid: u32) -> Outcome<User> {
        Ok((self.owner)(uid))
    }
}

/// A host whose accounts are answered by the test.
struct Late {
    world: World,
    desk: Desk,
    seconds: Arc<AtomicU64>,
    /// Questions that were asked and have no answer yet.
    open: Vec<Question>,
}

impl Late {
    fn new(yaml: &str) -> Late {
        let seconds = Arc::new(AtomicU64::new(0));
        let clock = Arc::clone(&seconds);
        let now = move || Duration::from_secs(clock.load(Ordering::Relaxed));
        let (accounts, desk) = Accounts::with_desk(now);
        let mut world = super::each::world(yaml);
        world.options.accounts = accounts;
        world.start().unwrap();
        Late { world, desk, seconds, open: Vec::new() }
    }

    /// Ticks, a second each.
    fn ticks(&mut self, nr: u64) -> Status {
        for _ in 1..nr {
            self.tick();
        }
        self.tick()
    }

    fn tick(&mut self) -> Status {
        self.seconds.fetch_add(1, Ordering::Relaxed);
        self.world.tick()
    }

    /// Answers all questions that are asked now.
    fn answer(&mut self, outcome: impl Fn(&Question) -> Outcome<Record>) -> usize {
        self.open.extend(std::iter::from_fn(|| self.desk.next()));
        let open = std::mem::take(&mut self.open);
        open.iter().for_each(|question| self.desk.answer(question, outcome(question)));
        open.len()
    }

    /// Takes one question, as a service that hangs does.
    fn hang(&mut self) {
        self.open.extend(self.desk.next());
    }
}

const EVERYBODY: &str = "tenants:\n  people: { each: { match: { users: '*' } } }\n";
const STUDENTS: &str = "tenants:\n  students: { each: { match: { groups: [students] } } }\n";

fn user(name: &str, groups: &[u32]) -> Outcome<Record> {
    Ok(Some(Record::User(User { name: name.into(), groups: groups.to_vec() })))
}

fn names(status: &Status) -> Vec<&str> {
    status.tenants.iter().map(|tenant| &*tenant.name).collect()
}

fn nr_findings(status: &Status, of: Code) -> usize {
    status.finding_records.iter().filter(|finding| finding.code == of).count()
}

#[test]
fn a_user_is_a_tenant_under_the_number_while_a_look_up_hangs() {
    let mut late = Late::new(EVERYBODY);
    late.ticks(3);
    log_in(&late.world, 1002, Load::busy(1));
    late.tick();
    late.hang();
    assert_eq!(people(&late.tick()), ["people/1002"], "in the tick after the user");
    log_in(&late.world, 1003, Load::busy(1));
    let status = late.ticks(8);
    assert_eq!(people(&status), ["people/1002", "people/1003"]);
    let [stall] = &status
        .finding_records
        .iter()
        .filter(|it| it.code == Code::AccountsAway)
        .collect::<Vec<_>>()[..]
    else {
        panic!("{:?}", status.findings)
    };
    assert!(stall.message.contains("UID 1002") && stall.remedy.is_some(), "{stall}");
    late.ticks(20);
    late.world.host.systemd(|systemd, _| systemd.orders.clear());
    late.world.host.take_changes();
    late.answer(|question| match question {
        Question::Owner(1002) => user("ana", &[]),
        _ => user("ben", &[]),
    });
    let status = late.ticks(2);
    assert_eq!(
        (people(&status), nr_findings(&status, Code::AccountsAway)),
        (vec!["people/ana", "people/ben"], 0)
    );
    let orders = late.world.host.systemd(|systemd, _| systemd.orders.clone());
    let settings: Vec<_> =
        orders.iter().filter(|order| !matches!(order, Order::List { .. })).collect();
    assert_eq!(
        (settings, late.world.host.take_changes()),
        (vec![], vec![]),
        "the names alone have changed"
    );
    late.world.stop();
}

#[test]
fn an_account_that_is_known_in_time_is_never_a_number() {
    let mut late = Late::new(EVERYBODY);
    late.ticks(3);
    let pid = log_in(&late.world, 1002, Load::idle());
    assert!(people(&late.tick()).is_empty());
    late.answer(|_| user("ana", &[]));
    assert_eq!(people(&late.tick()), ["people/ana"]);
    // The database says something else later: an error, nothing, and another name.
    for outcome in [Err("down".to_string()), Ok(None), Ok(None), user("eva", &[])] {
        while late.answer(|_| outcome.clone()) == 0 {
            assert_eq!(people(&late.tick()), ["people/ana"], "{outcome:?}");
        }
    }
    assert_eq!(people(&late.ticks(3)), ["people/ana"]);
    log_out(&late.world, 1002, pid);
    // A slice stays a tenant for thirty ticks.
    assert!(people(&late.ticks(40)).is_empty());
    late.world.stop();
}

#[test]
fn a_failed_look_up_takes_nobody_out_of_a_group() {
    let mut late = Late::new(STUDENTS);
    let is_down = |question: &Question| match question {
        Question::Group(_) => Ok(Some(Record::Number(70))),
        _ => Err("no route to host".to_string()),
    };
    late.tick();
    late.answer(is_down);
    log_in(&late.world, 1500, Load::idle());
    late.ticks(3);
    late.answer(is_down);
    assert!(names(&late.ticks(2)).is_empty());
    // The account is back, and is asked for again by itself.
    let known = |question: &Question| match question {
        Question::Group(_) => Ok(Some(Record::Number(70))),
        _ => user("ana", &[70]),
    };
    let after = (0..60).find(|_| {
        late.answer(known);
        names(&late.tick()) == ["students/ana"]
    });
    assert!(after.is_some_and(|seconds| seconds <= 60), "{after:?}");
    // Five minutes later it fails again, and once says that there is no such account.
    for outcome in [Err("no route to host".to_string()), Ok(None)] {
        while late.answer(|question| match question {
            Question::Group(_) => Ok(Some(Record::Number(70))),
            _ => outcome.clone(),
        }) == 0
        {
            late.tick();
        }
        assert_eq!(names(&late.ticks(3)), ["students/ana"]);
    }
    late.world.stop();
}

#[test]
fn an_unknown_name_of_the_policy_is_taken_up_when_it_is_there() {
    let yaml =
        "administrators: { users: [eva] }\ntenants:\n  a: { weight: 3, match: { users: [ana] } }\n";
    let mut late = Late::new(yaml);
    log_in(&late.world, 1500, Load::busy(1));
    late.tick();
    late.answer(|_| Ok(None));
    let status = late.ticks(2);
    assert_eq!(nr_findings(&status, Code::AccountMissing), 2, "{:?}", status.findings);
    assert!(
        status
            .findings
            .iter()
            .any(|it| it.contains("a: `match.users`: this host has no user `ana`"))
    );
    let mut asked_after = 0;
    while late.answer(|question| match question {
        Question::User(name) if name == "ana" => Ok(Some(Record::Number(1500))),
        _ => Err("no route to host".to_string()),
    }) == 0
    {
        late.tick();
        asked_after += 1;
    }
    assert!((25..=60).contains(&asked_after), "{asked_after} s");
    let status = late.ticks(3);
    assert_eq!(nr_findings(&status, Code::AccountMissing), 1, "{:?}", status.findings);
    assert!(status.tenants[0].usage[CPU] > Some(0.5), "the slice of the user is the tenant");
    late.world.stop();
}
