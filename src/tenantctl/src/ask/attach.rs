//! `tenantctl attach` and `detach`: hands running work to a tenant, and takes it back.

use std::io::{self, Write};
use std::thread;
use std::time::Instant;

use serde_json::json;

use super::administer::{NOT_RESTORED, print_failures};
use crate::args::{AttachArgs, DetachArgs};
use crate::common::awaited;
use tenantd::exit::Exit;
use tenantd_lab::json;
use tenantd_varlink::client::{Endpoint, RESTART_PAUSE};
use tenantd_varlink::interface::{AttachParameters, AttachReply, DetachParameters, method};

pub(crate) fn attach(daemon: &Endpoint, args: &AttachArgs) -> anyhow::Result<Exit> {
    let parameters = AttachParameters {
        tenant: Some(args.tenant.clone()),
        cgroup: args.cgroup.clone(),
        pids: (!args.pids.is_empty()).then(|| args.pids.clone()),
        leave_unit: Some(args.leave_unit),
        pod: None,
    };
    let began = Instant::now();
    let reply = loop {
        match daemon.call::<method::Attach>(&parameters) {
            Err(error) if awaited::is_early(&error, began) => thread::sleep(RESTART_PAUSE),
            outcome => break outcome?,
        }
    };
    let AttachReply { cgroup, pids, failures } = &reply;
    let mut out = io::stdout().lock();
    match (args.json, &args.cgroup) {
        (true, _) => {
            let object = json!({
                "tenant": args.tenant, "cgroup": cgroup, "pids": pids, "failures": failures,
            });
            json::write_line(&mut out, &object)?;
        }
        (false, Some(_)) => writeln!(out, "{cgroup} is a part of {}", args.tenant)?,
        (false, None) => {
            let named: Vec<String> = pids.iter().map(u32::to_string).collect();
            if named.is_empty() {
                writeln!(out, "{}: moved nothing: all of it was there already", args.tenant)?
            } else {
                writeln!(out, "{}: moved {} into {cgroup}", args.tenant, named.join(", "))?
            }
        }
    }
    Ok(print_failures("", failures, args.json))
}

pub(crate) fn detach(daemon: &Endpoint, args: &DetachArgs) -> anyhow::Result<Exit> {
    let parameters = DetachParameters {
        cgroup: args.cgroup.clone(),
        pids: (!args.pids.is_empty()).then(|| args.pids.clone()),
    };
    let reply = daemon.call::<method::Detach>(&parameters)?;
    let mut out = io::stdout().lock();
    if args.json {
        json::write_line(&mut out, &json!({ "failures": reply.failures }))?
    } else {
        writeln!(out, "detached")?
    }
    Ok(print_failures(NOT_RESTORED, &reply.failures, args.json))
}
