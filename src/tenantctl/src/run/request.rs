//! Request of a job, from the arguments of `run`.

use std::ffi::OsString;

use crate::args::RunArgs;
use tenantd_lab::text::{shortened, visible};
use tenantd_varlink::jobs::{SubmitParameters, Units};

/// Most characters of a command shown to others.
const SHOWN_WIDTH: usize = 200;
const GPU: &str = "gpu";

pub(super) fn parameters(args: &RunArgs) -> SubmitParameters {
    let gpus = args.gpu.map(|count| Units { name: GPU.to_string(), count });
    let units: Vec<Units> = gpus.into_iter().chain(args.resources.iter().cloned()).collect();
    SubmitParameters {
        tenant: args.tenant.clone(),
        class: args.class.clone(),
        memory_bytes: args.memory.map(|memory| memory.0),
        dop: args.dop,
        max_dop: args.max_dop,
        units: (!units.is_empty()).then_some(units),
        no_wait: args.no_wait.then_some(true),
        command: Some(shown(&args.command)),
        supervised: args.background.then_some(true),
        after: (!args.after.is_empty()).then(|| args.after.clone()),
        requeue_grace_seconds: args.requeue.then(|| args.grace()),
        after_ok: (!args.after_ok.is_empty()).then(|| args.after_ok.clone()),
        ..SubmitParameters::default()
    }
}

/// Command for others: without control characters, and not longer than a line or two.
fn shown(command: &[OsString]) -> String {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    shortened(&visible(&words.join(" ")), SHOWN_WIDTH)
}
