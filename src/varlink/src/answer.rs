//! Answer to a call: a function of the call, of the caller, and of the last tick.
//!
//! **Properties** (the tests below): by the types, no request of a reading method reaches the agent; a
//! caller without permission gets `PermissionDenied` from every changing method, whatever its parameters.
//! Requests about a user's own work reach the agent with the user's number. A client that may not read gets
//! `PermissionDenied` from every method that shows others, and no data of others from the rest.

use std::sync::Arc;

use super::access::is_allowed;
use super::bridge::{
    self, Allowed, Caller, Command, Governance, JobCall, Published, Submission, Viewer, Work,
};
use super::error::CallError;
use super::interface::*;
use super::jobs::{CancelParameters, FinishedParameters, ReportParameters, WaitParameters};
use super::peers::{Membership, Peer, Permission};
use super::view::own_view;
use super::wire::{self, Call};
use tenantd_control::why::explain;

const NAMES_MAX: usize = 10;
/// Largest signal of Linux.
const SIGNAL_MAX: u8 = 64;
/// Most processes attached by one call: they are moved between two ticks.
const PIDS_MAX: usize = 256;

/// Message in pieces. Pieces shared by many clients exist once.
pub(super) type Message = Vec<Arc<str>>;

#[derive(Debug)]
pub(super) enum Reply {
    None,
    Once(Message),
    Watch,
    WatchJobs(Viewer),
    Ask(Command),
    Submit(Box<Submission>),
    /// A call about a job with one reply.
    Job(JobCall),
    /// Keeps the call, and answers it when an account is known.
    Later,
}

/// Action for a reading call: no variant reaches the agent.
enum ReadReply {
    Once(Message),
    Watch,
    WatchJobs(Viewer),
    Later,
}

/// Answers `call` of `peer` from the last published tick.
pub(super) fn answer(
    call: &Call,
    peer: &Peer,
    membership: Membership,
    newest: &Published,
) -> Reply {
    let reply = match try_answer(call, (peer, membership), newest) {
        Ok(reply) => reply,
        Err(error) => Reply::Once(refusal(&error)),
    };
    match reply {
        Reply::Once(_) | Reply::Watch | Reply::WatchJobs(_) if call.oneway => Reply::None,
        reply => reply,
    }
}

fn try_answer(
    call: &Call,
    (peer, membership): (&Peer, Membership),
    newest: &Published,
) -> Result<Reply, CallError> {
    let method = Method::find(&call.method)?;
    if call.upgrade {
        // There is no other protocol to upgrade to.
        return Err(CallError::MethodNotImplemented { method: call.method.clone() });
    }
    let Governance { policy, accounts, .. } = &*newest.governance;
    let permission = match method.access() {
        // The request decides.
        Access::Open => Permission::Refused,
        Access::Read => peer.may_read(membership, &policy.administrators, accounts),
        Access::Change | Access::Own => peer.is_among(&policy.administrators, accounts),
    };
    match (permission, method.access()) {
        (Permission::Later, _) => return Ok(Reply::Later),
        (Permission::Refused, Access::Read | Access::Change) => {
            return Err(CallError::PermissionDenied {});
        }
        _ => {}
    }
    let is_administrator = permission == Permission::Granted;
    Ok(match method.request(call)? {
        Request::Read(request) => match read(request, call.more, (peer, membership), newest)? {
            ReadReply::Once(message) => Reply::Once(message),
            ReadReply::Watch => Reply::Watch,
            ReadReply::WatchJobs(viewer) => Reply::WatchJobs(viewer),
            ReadReply::Later => Reply::Later,
        },
        Request::Change(Change::Submit(_)) if !call.more || call.oneway => {
            return Err(CallError::ExpectedMore {});
        }
        Request::Change(Change::Submit(parameters)) => {
            let tenant = parameters.tenant.as_deref();
            let all = is_administrator.then_some(Allowed::All);
            let Some(allowed) = all.or_else(|| allowed(peer, tenant, newest)) else {
                return Ok(Reply::Later);
            };
            let (uid, pid) = (peer.uid, u32::try_from(peer.pid).unwrap_or(0));
            let submission = Submission { parameters, uid, pid, process: None, allowed };
            Reply::Submit(Box::new(submission))
        }
        Request::Change(request) => {
            let user = match &request {
                _ if is_administrator => None,
                Change::Attach(parameters) => match may_attach(peer, parameters, newest) {
                    Permission::Granted => Some(peer.uid),
                    Permission::Refused => return Err(CallError::PermissionDenied {}),
                    Permission::Later => return Ok(Reply::Later),
                },
                Change::Cancel(CancelParameters { id })
                | Change::Wait(WaitParameters { id })
                | Change::Report(ReportParameters { id, .. })
                    if is_of_another(*id, peer, newest) =>
                {
                    return Err(CallError::PermissionDenied {});
                }
                // The agent refuses the job of another user.
                _ => Some(peer.uid),
            };
            let pid = u32::try_from(peer.pid).unwrap_or(0);
            change(request, Caller { user, pid })?
        }
    })
}

fn read(
    request: Read,
    more: bool,
    (peer, membership): (&Peer, Membership),
    newest: &Published,
) -> Result<ReadReply, CallError> {
    let viewer = || viewer(peer, membership, newest);
    Ok(ReadReply::Once(match request {
        Read::GetInfo(Nothing {}) => serialised(&InfoReply::of_this_program()),
        Read::GetInterfaceDescription(DescriptionParameters { interface }) => {
            let Some(text) = definition(&interface) else {
                return Err(CallError::InterfaceNotFound { interface });
            };
            serialised(&DescriptionReply { description: text.to_string() })
        }
        Read::GetStatus(Nothing {}) => status_reply(newest),
        Read::Watch(Nothing {}) => {
            return if more { Ok(ReadReply::Watch) } else { Err(CallError::ExpectedMore {}) };
        }
        Read::Explain(ExplainParameters { tenant }) => {
            let Some(explanation) = explain::explain(&newest.trace, &newest.status, &tenant) else {
                let tenants = explain::names_near(&newest.trace, &tenant, NAMES_MAX);
                return Err(CallError::NoSuchTenant { tenant, tenants, awaited: None });
            };
            serialised(&ExplainReply { explanation })
        }
        Read::GetPlan(Nothing {}) => once(newest.plan_json()),
        Read::GetPolicy(Nothing {}) => once(newest.governance.outline_json()),
        Read::GetOwnView(Nothing {}) => serialised(&OwnViewReply { view: own_view(peer, newest) }),
        Read::Finished(FinishedParameters { id }) => {
            let Some(viewer) = viewer() else { return Ok(ReadReply::Later) };
            let reply = newest.finished.json(viewer, id);
            once(&reply.ok_or(CallError::NoSuchJob { id: id.unwrap_or(0) })?)
        }
        Read::List(Nothing {}) => {
            let Some(viewer) = viewer() else { return Ok(ReadReply::Later) };
            once(&newest.jobs.json(viewer))
        }
        Read::WatchJobs(Nothing {}) => {
            if !more {
                return Err(CallError::ExpectedMore {});
            }
            return Ok(viewer().map_or(ReadReply::Later, ReadReply::WatchJobs));
        }
    }))
}

fn may_attach(peer: &Peer, parameters: &AttachParameters, newest: &Published) -> Permission {
    // The facts about a pod are those of its runtime, which runs as root.
    let (Some(tenant), None) = (&parameters.tenant, &parameters.pod) else {
        return Permission::Refused;
    };
    is_allowed(peer, tenant, &newest.governance.policy, &newest.governance.accounts)
}

/// True if the last list has a job with this number of another user. Numbers are not reused, so the call
/// need not reach the agent.
fn is_of_another(id: u64, peer: &Peer, newest: &Published) -> bool {
    newest.jobs.owner(id).is_some_and(|uid| uid != peer.uid)
}

/// Jobs that the peer may see; `None` while the account that decides is being looked up.
fn viewer(peer: &Peer, membership: Membership, newest: &Published) -> Option<Viewer> {
    let Governance { policy, accounts, access, .. } = &*newest.governance;
    // During this look-up a reader sees own commands only.
    if access.of(peer, policy, accounts).is_some_and(|rights| rights.sees_all) {
        return Some(Viewer::All);
    }
    match peer.may_read(membership, &policy.administrators, accounts) {
        Permission::Granted => Some(Viewer::User(peer.uid)),
        Permission::Refused => Some(Viewer::Own(peer.uid)),
        Permission::Later => None,
    }
}

/// Tenants and groups that the peer may submit to by `allow`: `tenant` alone if it is named. `None` while
/// an account is being looked up.
fn allowed(peer: &Peer, tenant: Option<&str>, newest: &Published) -> Option<Allowed> {
    let governance = &newest.governance;
    let allowed = match tenant {
        Some(tenant) => {
            match is_allowed(peer, tenant, &newest.governance.policy, &newest.governance.accounts) {
                Permission::Granted => vec![tenant.to_string()],
                Permission::Refused => Vec::new(),
                Permission::Later => return None,
            }
        }
        None => {
            let (policy, accounts) = (&governance.policy, &governance.accounts);
            governance.access.of(peer, policy, accounts)?.allowed.to_vec()
        }
    };
    Some(Allowed::These(allowed))
}

fn change(request: Change, caller: Caller) -> Result<Reply, CallError> {
    Ok(Reply::Ask(match request {
        Change::Reload(Nothing {}) => Command::Reload,
        Change::SetMode(SetModeParameters { mode }) => Command::SetMode(mode),
        Change::Restore(Nothing {}) => Command::Restore,
        Change::Attach(attachment) => attach(attachment, caller)?,
        Change::Detach(DetachParameters { cgroup, pids }) => {
            Command::Detach(work(cgroup, pids)?, caller)
        }
        Change::Cancel(CancelParameters { id }) => {
            return Ok(Reply::Job(JobCall::Cancel(id, caller)));
        }
        Change::Wait(WaitParameters { id }) => return Ok(Reply::Job(JobCall::Wait(id, caller))),
        Change::Report(report) => {
            let is_signal = |signal| (1..=SIGNAL_MAX).contains(&signal);
            let is_whole = match (report.exit_code, report.exit_signal) {
                (Some(_), None) => true,
                (None, Some(signal)) => is_signal(signal),
                (None, None) => report.tasks.is_some(),
                (Some(_), Some(_)) => false,
            };
            if !is_whole {
                return Err(CallError::InvalidParameter { parameter: "exit_code".into() });
            }
            return Ok(Reply::Job(JobCall::Report(report, caller)));
        }
        // It has several replies, so it is not a command.
        Change::Submit(_) => return Err(CallError::ExpectedMore {}),
    }))
}

fn attach(attachment: AttachParameters, caller: Caller) -> Result<Command, CallError> {
    let AttachParameters { tenant, cgroup, pids, leave_unit, pod } = attachment;
    let invalid = |parameter: &str| CallError::InvalidParameter { parameter: parameter.into() };
    if !pod.as_ref().is_none_or(Pod::is_bounded) {
        return Err(invalid("pod"));
    }
    match (tenant, pod, work(cgroup, pids)?) {
        (_, Some(_), Work::Processes(_)) => Err(invalid("pids")),
        (Some(tenant), _, work) => {
            Ok(Command::Attach(tenant, work, leave_unit.unwrap_or_default(), caller))
        }
        (None, Some(pod), Work::Cgroup(cgroup)) => {
            Ok(Command::AttachPod(Box::new(pod), cgroup, caller))
        }
        (None, None, _) => Err(invalid("tenant")),
    }
}

fn work(cgroup: Option<String>, pids: Option<Vec<u32>>) -> Result<Work, CallError> {
    match (cgroup, pids) {
        (Some(cgroup), None) => Ok(Work::Cgroup(cgroup)),
        (None, Some(pids)) if !pids.is_empty() && pids.len() <= PIDS_MAX => {
            Ok(Work::Processes(pids))
        }
        (None, _) => Err(CallError::InvalidParameter { parameter: "pids".into() }),
        (Some(_), Some(_)) => Err(CallError::InvalidParameter { parameter: "cgroup".into() }),
    }
}

const OPENING: &str = "{\"parameters\":";

fn serialised(reply: &impl serde::Serialize) -> Message {
    once(&bridge::json(reply))
}

/// The text of the parameters is not copied: clients that take theirs slowly share it.
pub(super) fn once(parameters: &Arc<str>) -> Message {
    vec![OPENING.into(), Arc::clone(parameters), "}\0".into()]
}

/// A reply with these parameters that others follow.
pub(super) fn several(parameters: &Arc<str>) -> Message {
    vec![OPENING.into(), Arc::clone(parameters), ",\"continues\":true}\0".into()]
}

pub(super) fn refusal(error: &CallError) -> Message {
    vec![wire::refusal(error).into()]
}

fn status_reply(newest: &Published) -> Message {
    vec!["{\"parameters\":{\"status\":".into(), Arc::clone(newest.status_json()), "}}\0".into()]
}

pub(super) fn frame(newest: &Published, nr_lost: u64) -> Message {
    let tail = format!(",\"lost\":{nr_lost}}},\"continues\":true}}\0");
    vec!["{\"parameters\":{\"status\":".into(), Arc::clone(newest.status_json()), tail.into()]
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tenantd_control::report::reason::{Outsider, Reason, ReasonKind};
    use tenantd_control::report::status::{ReasonStatus, Status, TenantStatus};
    use tenantd_core::resource::CPU;

    use super::*;
    use crate::jobs::{FinishedJob, Job, ListReply};
    use crate::own_view::{Claimants, OwnBasis};

    const STRANGER: Peer = Peer { uid: 54321, gid: 54321, pid: 1 };
    const ROOT: Peer = Peer { uid: 0, gid: 0, pid: 1 };

    /// Possible calls of `method`: without parameters, and with those of any method.
    fn calls(method: Method) -> Vec<Call> {
        let parameters = [
            json!({}),
            json!({ "interface": MANAGER }),
            json!({ "tenant": "web" }),
            json!({ "mode": "enforce" }),
            json!({ "tenant": "web", "cgroup": "/jobs" }),
            json!({ "cgroup": "/jobs" }),
            json!({ "id": 7 }),
            json!({ "id": 7, "exit_code": 3 }),
        ];
        let call = |parameters: Value| Call {
            method: method.full_name(),
            parameters: parameters.as_object().cloned(),
            more: true,
            ..Call::default()
        };
        parameters.map(call).into()
    }

    /// A client that may only connect cannot change anything: no call reaches the agent.
    #[test]
    fn a_reader_cannot_change_the_agent() {
        let newest = Published::default();
        let denied: Message = refusal(&CallError::PermissionDenied {});
        for method in Method::ALL {
            for call in calls(*method) {
                match (method.access(), answer(&call, &STRANGER, Membership::None, &newest)) {
                    // The agent checks that it belongs to the caller.
                    (
                        Access::Own,
                        Reply::Ask(Command::Detach(_, Caller { user: Some(54321), .. })),
                    ) => {}
                    (
                        Access::Own,
                        Reply::Job(
                            JobCall::Cancel(7, Caller { user: Some(54321), .. })
                            | JobCall::Wait(7, Caller { user: Some(54321), .. })
                            | JobCall::Report(
                                ReportParameters { id: 7, .. },
                                Caller { user: Some(54321), .. },
                            ),
                        ),
                    ) => {}
                    (Access::Own, Reply::Submit(submission)) => {
                        let nothing = Allowed::These(Vec::new());
                        assert_eq!((submission.uid, submission.allowed), (54321, nothing));
                    }
                    (_, reply @ (Reply::Ask(_) | Reply::Job(_) | Reply::Submit(_))) => {
                        panic!("{call:?} reaches the agent: {reply:?}")
                    }
                    (Access::Change, Reply::Once(message)) => {
                        assert_eq!(message, denied, "{call:?}")
                    }
                    (Access::Change, reply) => panic!("{call:?}: {reply:?}"),
                    (Access::Read, Reply::Once(message)) => assert_eq!(message, denied, "{call:?}"),
                    (Access::Read, reply) => panic!("{call:?}: {reply:?}"),
                    (Access::Open | Access::Own, _) => {}
                }
            }
        }
    }

    /// Requests about a user's own work reach the agent with the user's number, and no other call does.
    #[test]
    fn a_user_reaches_the_agent_with_own_work_alone() {
        let text = "version: 1\ntenants: { web: { allow: { users: [ 54321 ] } }, db: {}, \
                    ci: { each: { match: { unit: \"ci-*.service\" }, allow: { users: [ 54321 ] } }, tenants: { x: {} } } }";
        let policy = tenantd_policy::load_text("policy.yaml", text).unwrap().policy;
        let governance = Governance { policy: Arc::new(policy), ..Governance::default() };
        let status = tenantd_control::report::status::Status::default();
        let newest = Published::new(status, Arc::default(), Arc::new(governance));
        let denied: Message = refusal(&CallError::PermissionDenied {});
        let reply_to = |method: Method, parameters: &Value, peer: &Peer| {
            let (method, parameters) = (method.full_name(), parameters.as_object().cloned());
            let call = Call { method, parameters, ..Call::default() };
            answer(&call, peer, Membership::Member, &newest)
        };
        for (peer, tenant, user) in [
            (STRANGER, "web", Some(Some(54321))),
            (STRANGER, "db", None),
            (ROOT, "db", Some(None)),
            (STRANGER, "ci/a", Some(Some(54321))),
            (STRANGER, "ci/x", None),
            (STRANGER, "ci", None),
        ] {
            let parameters = json!({ "tenant": tenant, "pids": [ 7 ] });
            match (reply_to(Method::Attach, &parameters, &peer), user) {
                (Reply::Ask(Command::Attach(_, work, false, caller)), Some(user)) => {
                    assert_eq!((work, caller), (Work::Processes(vec![7]), Caller { user, pid: 1 }));
                }
                (Reply::Once(message), None) => assert_eq!(message, denied),
                (reply, _) => panic!("{tenant}: {reply:?}"),
            }
        }
        // Facts about a pod, and a choice by them, are an administrator's: a user would choose the tenant.
        let pod = json!({ "name": "a", "namespace": "web" });
        for (tenant, is_whole) in [(None, true), (Some("web"), true), (None, false)] {
            let whole = json!({ "tenant": tenant, "cgroup": "/a", "pod": pod });
            let without = json!({ "cgroup": "/a" });
            let parameters = if is_whole { whole } else { without };
            let reply = reply_to(Method::Attach, &parameters, &STRANGER);
            assert!(matches!(&reply, Reply::Once(message) if *message == denied), "{parameters}");
            match reply_to(Method::Attach, &parameters, &ROOT) {
                Reply::Ask(Command::AttachPod(pod, cgroup, _)) => {
                    assert_eq!((tenant, &*pod.namespace, &*cgroup), (None, "web", "/a"));
                }
                Reply::Ask(Command::Attach(name, ..)) => assert_eq!(Some(&*name), tenant),
                reply => assert!(!is_whole && matches!(reply, Reply::Once(_)), "{parameters}"),
            }
        }
        let many: std::collections::BTreeMap<String, &str> =
            (0..129).map(|nr| (nr.to_string(), "x")).collect();
        for pod in [
            json!({ "name": "a", "namespace": "web", "labels": many }),
            json!({ "name": "a", "namespace": "x".repeat(16 << 10) }),
        ] {
            let parameters = json!({ "cgroup": "/a", "pod": pod });
            let reply = reply_to(Method::Attach, &parameters, &ROOT);
            let refused: Message =
                refusal(&CallError::InvalidParameter { parameter: "pod".into() });
            assert!(matches!(reply, Reply::Once(message) if message == refused));
        }
        for parameters in
            [json!({}), json!({ "pids": [] }), json!({ "pids": [ 7 ], "cgroup": "/a" })]
        {
            let reply = reply_to(Method::Detach, &parameters, &ROOT);
            assert!(matches!(reply, Reply::Once(_)), "{parameters}");
        }
    }

    #[test]
    fn root_reaches_the_agent_with_each_changing_method_and_no_other() {
        let newest = Published::default();
        for method in Method::ALL {
            let asks = |call: &Call| {
                let reply = answer(call, &ROOT, Membership::Member, &newest);
                matches!(reply, Reply::Ask(_) | Reply::Job(_) | Reply::Submit(_))
            };
            let reaches_agent = calls(*method).iter().any(asks);
            let reads = matches!(method.access(), Access::Open | Access::Read);
            assert_eq!(reaches_agent, !reads, "{method:?}");
        }
    }

    /// A valid call of each method.
    fn call_of(method: Method) -> Call {
        let parameters = match method {
            Method::GetInterfaceDescription => json!({ "interface": MANAGER }),
            Method::Explain => json!({ "tenant": "web" }),
            Method::SetMode => json!({ "mode": "enforce" }),
            Method::Attach => json!({ "tenant": "web", "pids": [ 7 ] }),
            Method::Detach => json!({ "pids": [ 7 ] }),
            Method::Cancel | Method::Wait => json!({ "id": 7 }),
            Method::Report => json!({ "id": 7, "exit_code": 3 }),
            Method::GetInfo
            | Method::GetOwnView
            | Method::List
            | Method::WatchJobs
            | Method::Finished
            | Method::GetStatus
            | Method::Watch
            | Method::GetPlan
            | Method::GetPolicy
            | Method::Reload
            | Method::Restore
            | Method::Submit => json!({}),
        };
        let parameters = parameters.as_object().cloned();
        Call { method: method.full_name(), parameters, more: true, ..Call::default() }
    }

    /// Effect of a call: it is refused, shows something, changes the agent, or acts on own or on any work.
    fn effect(reply: &Reply) -> &'static str {
        let of = |caller: &Caller| if caller.user.is_some() { "own" } else { "any" };
        match reply {
            Reply::Once(message) if *message == refusal(&CallError::PermissionDenied {}) => "-",
            // The trace of these tests has no tenant.
            Reply::Once(_) | Reply::Watch => "all",
            Reply::WatchJobs(Viewer::All) => "all",
            Reply::WatchJobs(Viewer::User(_)) => "programs",
            Reply::WatchJobs(Viewer::Own(_)) => "own",
            Reply::Ask(
                Command::Attach(.., caller)
                | Command::AttachPod(.., caller)
                | Command::Detach(_, caller),
            ) => of(caller),
            Reply::Ask(Command::Reload | Command::SetMode(_) | Command::Restore) => "any",
            Reply::Job(JobCall::Submit(_)) | Reply::None | Reply::Later => "?",
            Reply::Job(
                JobCall::Cancel(_, caller) | JobCall::Wait(_, caller) | JobCall::Report(_, caller),
            ) => of(caller),
            Reply::Submit(submission) => match submission.allowed {
                Allowed::All => "any",
                Allowed::These(_) => "own",
            },
        }
    }

    const MEMBER: Peer = Peer { uid: 60, gid: 60, pid: 0 };

    /// Clients of each kind: root, an administrator, a member of the group, and any other user.
    fn kinds() -> [(Peer, Membership); 4] {
        let administrator = Peer { uid: 50, gid: 50, pid: 0 };
        let stranger = Peer { uid: 70, gid: 70, pid: 0 };
        [
            (ROOT, Membership::Member),
            (administrator, Membership::Unproven(777)),
            (MEMBER, Membership::Member),
            (stranger, Membership::Unproven(777)),
        ]
    }

    /// A tick in which everything of other users is called `hidden`.
    fn populated() -> Published {
        let text = "version: 1\nadministrators: { users: [ 50 ] }\n\
                    tenants: { web: { allow: { users: [ 60, 70 ] } }, hidden: {} }";
        let policy = tenantd_policy::load_text("policy.yaml", text).unwrap().policy;
        let governance = Governance { policy: Arc::new(policy), ..Governance::default() };
        let outsider = Outsider {
            cgroup: "/hidden.slice".into(),
            command: Some("hidden".into()),
            ..Outsider::default()
        };
        let reason = |kind, text: &str, outsiders: &[Outsider]| ReasonStatus {
            kind,
            text: text.into(),
            outsiders: outsiders.to_vec(),
            ..ReasonStatus::default()
        };
        let outside =
            Reason::Outside { resource: CPU, amount: 1.0, largest: vec![outsider.clone()].into() };
        let reasons = vec![
            reason(ReasonKind::OutsideWork, &outside.to_string(), &[outsider]),
            reason(ReasonKind::OtherTenants, "hidden has 1 CPU more than allocated", &[]),
        ];
        let tenant = |name: &str| TenantStatus {
            name: name.into(),
            reasons: reasons.clone(),
            ..TenantStatus::default()
        };
        let status = Status {
            tenants: vec![tenant("web"), tenant("hidden")],
            findings: vec!["hidden".into()],
            ..Status::default()
        };
        let job = |id, uid, tenant: &str| Job {
            id,
            uid,
            tenant: tenant.into(),
            command: Some(format!("{tenant} --{tenant}")),
            ..Job::default()
        };
        let jobs = vec![job(1, 70, "web"), job(2, 80, "hidden")];
        let finished = |id, uid, tenant: &str| {
            let (tenant, command) = (tenant.to_string(), Some(format!("{tenant} --{tenant}")));
            Arc::new(FinishedJob { id, uid, tenant, command, ..FinishedJob::default() })
        };
        let list = ListReply { jobs, ..ListReply::default() };
        let newest = Published::new(status, Arc::default(), Arc::new(governance));
        let (agent, socket) = bridge::bridge(newest).unwrap();
        agent.publish_jobs(list);
        agent.publish_finished(vec![finished(3, 70, "web"), finished(4, 80, "hidden")]);
        Published::clone(&socket.newest())
    }

    /// Every method against every kind of client. A new method needs a row.
    #[test]
    fn each_kind_of_client_may_call_these_methods() {
        let newest = populated();
        for method in Method::ALL {
            let expected = match method {
                Method::GetInfo
                | Method::GetInterfaceDescription
                | Method::GetOwnView
                | Method::List
                | Method::Finished => ["all", "all", "all", "all"],
                Method::WatchJobs => ["all", "all", "programs", "own"],
                Method::GetStatus
                | Method::Watch
                | Method::Explain
                | Method::GetPlan
                | Method::GetPolicy => ["all", "all", "all", "-"],
                Method::Reload | Method::SetMode | Method::Restore => ["any", "any", "-", "-"],
                Method::Attach
                | Method::Detach
                | Method::Submit
                | Method::Cancel
                | Method::Wait
                | Method::Report => ["any", "any", "own", "own"],
            };
            let of = |(peer, membership): (Peer, Membership)| {
                effect(&answer(&call_of(*method), &peer, membership, &newest))
            };
            assert_eq!(kinds().map(of), expected, "{method:?}");
        }
    }

    /// Text of the reply to a call; that of a watch is the first.
    fn text_of(call: &Call, (peer, membership): (Peer, Membership), newest: &Published) -> String {
        match answer(call, &peer, membership, newest) {
            Reply::Once(message) => message.concat(),
            Reply::WatchJobs(viewer) => newest.jobs.json(viewer).to_string(),
            _ => String::new(),
        }
    }

    #[test]
    fn a_client_outside_the_group_reads_nothing_of_others() {
        let newest = populated();
        let [root, administrator, member, stranger] = kinds();
        for method in Method::ALL {
            for call in calls(*method).into_iter().chain([call_of(*method)]) {
                let text = text_of(&call, stranger, &newest);
                assert!(!text.contains("hidden"), "{call:?}: {text}");
            }
        }
        let of_other = Call {
            parameters: json!({ "id": 4 }).as_object().cloned(),
            ..call_of(Method::Finished)
        };
        let text = text_of(&of_other, stranger, &newest);
        assert!(text.contains("NoSuchJob"), "{text}");
        for method in [Method::List, Method::WatchJobs, Method::Finished] {
            let text = text_of(&call_of(method), stranger, &newest);
            assert!(text.contains("web --web"), "{method:?}: {text}");
        }
        // Members see programs of others, and no arguments.
        for call in [call_of(Method::List), call_of(Method::WatchJobs), of_other] {
            let text = text_of(&call, member, &newest);
            assert!(text.contains("\"hidden\"") && !text.contains("--hidden"), "{text}");
            for kind in [root, administrator] {
                assert!(text_of(&call, kind, &newest).contains("hidden --hidden"), "{call:?}");
            }
        }
    }

    #[test]
    fn a_view_has_the_tenants_of_the_caller_with_their_basis() {
        let claimants = Claimants {
            users: [(60, "hidden".to_string())].into(),
            groups: [(70, "hidden".to_string())].into(),
        };
        let newest = populated().claimed_by(Arc::new(claimants));
        let [.., member, stranger] = kinds();
        let view = |(peer, _): (Peer, Membership)| {
            let tenants = own_view(&peer, &newest).tenants.into_iter();
            tenants.map(|it| (it.name, it.basis)).collect::<Vec<_>>()
        };
        assert_eq!(view(member), [("hidden".to_string(), vec![OwnBasis::User])]);
        let expected = [
            ("web".to_string(), vec![OwnBasis::Job]),
            ("hidden".to_string(), vec![OwnBasis::Group]),
        ];
        assert_eq!(view(stranger), expected);
        assert_eq!(view((ROOT, Membership::Member)), []);
    }
}
