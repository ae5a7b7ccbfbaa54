//! What a call is answered: a function of the call, of who calls, and of the last tick.

use std::sync::Arc;

use super::bridge::{Command, Published};
use super::interface::*;
use super::peers::Peer;
use super::wire::{self, Call};
use crate::control::explain;

/// As many names are told to whoever asked for one that is not there.
const NAMES_MAX: usize = 10;

/// A message in pieces; what is the same for many is kept once.
pub(super) type Message = Vec<Arc<str>>;

/// What is to be done with a call.
#[derive(Debug)]
pub(super) enum Reply {
    /// Nothing is sent.
    None,
    /// One message.
    Once(Message),
    /// A frame now, and one for each tick.
    Watch,
    /// The agent has to do something first.
    Ask(Command),
}

/// Answers `call` of `peer` from what was published last.
pub(super) fn answer(call: &Call, peer: &Peer, newest: &Published) -> Reply {
    let reply = answer_or_refuse(call, peer, newest).unwrap_or_else(Reply::from);
    match reply {
        Reply::Once(_) | Reply::Watch if call.oneway => Reply::None,
        reply => reply,
    }
}

fn answer_or_refuse(call: &Call, peer: &Peer, newest: &Published) -> Result<Reply, CallError> {
    let method = Method::find(&call.method)?;
    if call.upgrade {
        // Nothing else is spoken here.
        return Err(CallError::MethodNotImplemented { method: call.method.clone() });
    }
    if method.changes() && !peer.may_change(newest.governance.administrators()) {
        return Err(CallError::PermissionDenied {});
    }
    let status = &newest.status;
    let reply = match method {
        Method::GetInterfaceDescription => {
            let DescriptionParameters { interface } = call.parameters()?;
            let Some(text) = definition(&interface) else {
                return Err(CallError::InterfaceNotFound { interface });
            };
            serialised(&DescriptionReply { description: text.to_string() })
        }
        Method::Explain => {
            let ExplainParameters { tenant } = call.parameters()?;
            let Some(explanation) = explain::explain(&newest.trace, status, &tenant) else {
                let tenants = explain::names_near(&newest.trace, &tenant, NAMES_MAX);
                return Err(CallError::NoSuchTenant { tenant, tenants });
            };
            serialised(&ExplainReply { explanation })
        }
        Method::SetMode => {
            let SetModeParameters { mode } = call.parameters()?;
            return Ok(Reply::Ask(Command::SetMode(mode)));
        }
        _ => {
            let Nothing {} = call.parameters()?;
            match method {
                Method::GetInfo => serialised(&InfoReply::of_this_program()),
                Method::GetStatus => status_reply(newest),
                Method::GetPlan => once(newest.plan_json()),
                Method::GetPolicy => serialised(&newest.governance.outline()),
                Method::Watch if call.more => return Ok(Reply::Watch),
                Method::Watch => return Err(CallError::ExpectedMore {}),
                Method::Reload => return Ok(Reply::Ask(Command::Reload)),
                _ => return Ok(Reply::Ask(Command::Restore)),
            }
        }
    };
    Ok(Reply::Once(reply))
}

fn serialised(reply: &impl serde::Serialize) -> Message {
    once(&super::bridge::json(reply))
}

/// A message whose parameters are `parameters`.
pub(super) fn once(parameters: &str) -> Message {
    vec![wire::reply(parameters, false).into()]
}

/// A message that says what was wrong.
pub(super) fn refusal(error: &CallError) -> Message {
    vec![wire::refusal(error).into()]
}

fn status_reply(newest: &Published) -> Message {
    vec!["{\"parameters\":{\"status\":".into(), Arc::clone(newest.status_json()), "}}\0".into()]
}

/// A frame for a watcher.
pub(super) fn frame(newest: &Published, nr_lost: u64) -> Message {
    let tail = format!(",\"lost\":{nr_lost}}},\"continues\":true}}\0");
    vec!["{\"parameters\":{\"status\":".into(), Arc::clone(newest.status_json()), tail.into()]
}
