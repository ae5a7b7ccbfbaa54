//! Beginning and ending to enforce, and the part of a reload that may fail.
//!
//! In observe mode no value on the host is the agent's. The switch to observe restores the host as before the
//! agent started; the switch back works like a start. In observe mode the agent still samples existing cgroups
//! of the policy.
//!
//! New tenants of a reload may need a root, and CPU sets may need controllers that were not enabled before. Both are
//! prepared before any value is restored or exchanged. If one is refused, the preparation is undone and the old
//! policy stays in force.

use std::path::Path;

use tracing::info;

use crate::backend::access::HostAccess;
use crate::backend::location::Location;
use crate::jobs::room::JobRoom;
use crate::recovery::deadline::Deadline;
use crate::recovery::leftover;
use crate::recovery::restore::{self, Extent};
use crate::recovery::restored::Restored;
use crate::start_error::StartError;
use crate::tenants::state::Tenants;
use tenantd_control::state::step::Settings;
use tenantd_control::tick::event::Event;
use tenantd_control::tree::TreeNode;
use tenantd_host::enforce::{SUBTREE_CONTROL, with_causes};
use tenantd_host::journal::{Entry, Mark};
use tenantd_host::kernfs::KernFs;

/// Reason for a refused change; the agent goes on as before.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The agent was started with `--observe`.
    #[error("tenantd was started with --observe: start it without to let it enforce")]
    OnlyObserves,
    /// The change needs a restart.
    #[error("{0} cannot be changed at run time; restart tenantd")]
    NeedsRestart(&'static str),
    /// The agent could not begin to enforce.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// Restores all values and goes on observing.
pub(super) fn observe<K: KernFs>(tenants: &mut Tenants<K>, jobs: &mut JobRoom) -> Restored {
    jobs.thaw_all(&mut tenants.host);
    tenants.backends.close_all(&mut tenants.host.kernel);
    tenants.control.apply(Event::Reset);
    tenants.keeper.end();
    set_enforcing(tenants, false);
    let restored = put_journal_back(tenants);
    tenants.backends.close_root(&mut tenants.host.kernel);
    info!("mode observe: no value is written from now on");
    restored
}

fn put_journal_back<K: KernFs>(tenants: &mut Tenants<K>) -> Restored {
    let Tenants { host, backends, keeper, .. } = tenants;
    let units = backends.take_manager();
    let HostAccess { kernel, machine, journal, notifier, .. } = host;
    let deadline = Deadline::between_ticks(notifier);
    keeper.attachments.gather(kernel, machine.proc(), journal.entries());
    keeper.attachments.set_inside(|_| false);
    let owed = (journal.entries(), keeper.has_stale_units);
    let mut restored = leftover::put_back(kernel, machine, units, owed, deadline);
    keeper.has_stale_units = restored.is_stale;
    backends.restart_units(kernel);
    // A second restoration is harmless, so a journal that stays is only reported as a failure.
    if let Err(error) = leftover::keep_owed(journal, &restored) {
        restored.failures.push(with_causes(&error));
    }
    leftover::report(&restored, keeper);
    restored
}

/// Takes the root for the tenants `nodes` at their `locations`, as at a start. On an error the agent goes on
/// observing.
pub(super) fn enforce<K: KernFs>(
    tenants: &mut Tenants<K>,
    nodes: &[TreeNode],
    locations: &[Location],
    pins: bool,
) -> Result<(), ChangeError> {
    if tenants.options.observe {
        return Err(ChangeError::OnlyObserves);
    }
    let state_dir = tenants.options.state_dir.clone();
    if !tenants.host.journal.is_on_disk() && state_dir.is_some() {
        let HostAccess { kernel, machine, notifier, .. } = &mut tenants.host;
        let deadline = Deadline::between_ticks(notifier);
        let (journal, keeper) =
            leftover::take_up(kernel, machine, state_dir.as_deref(), true, deadline)?;
        tenants.host.journal = journal;
        tenants.keeper = keeper.with_credits_of(&mut tenants.keeper);
    }
    if !tenants.host.journal.entries().is_empty() {
        // As at a start: tries again the values that could not be restored at the switch to observe.
        put_journal_back(tenants);
    }
    if let Err(error) = tenants.take_root_for(nodes, locations, pins) {
        put_journal_back(tenants);
        return Err(error.into());
    }
    tenants.host.pins = pins;
    tenants.keeper.begin(state_dir.as_deref(), pins);
    set_enforcing(tenants, true);
    tenants.open_anew();
    info!("mode enforce: values are written from now on");
    Ok(())
}

fn set_enforcing<K: KernFs>(tenants: &mut Tenants<K>, is_enforcing: bool) {
    let settings = Settings { is_enforcing, ..tenants.control.settings().clone() };
    tenants.set(settings);
    tenants.find_obstacles();
}

/// Prepares the root and the controllers for `nodes`, completely or not at all.
pub(super) fn make_ready<K: KernFs>(
    tenants: &mut Tenants<K>,
    nodes: &[TreeNode],
    locations: &[Location],
    pins: bool,
) -> Result<(), ChangeError> {
    let (mark, had_root) = (tenants.host.journal.mark(), tenants.backends.has_root());
    let controllers = controllers_above(&mut tenants.host);
    let ready = tenants.take_root_for(nodes, locations, pins);
    let begins = pins && !tenants.host.pins;
    let ready = ready.and_then(|()| if begins { begin_pinning(tenants) } else { Ok(()) });
    if let Err(error) = ready {
        put_back_since(tenants, mark, controllers);
        if !had_root {
            tenants.backends.close_root(&mut tenants.host.kernel);
        }
        return Err(error.into());
    }
    Ok(())
}

fn put_back_since<K: KernFs>(tenants: &mut Tenants<K>, mark: Mark, controllers: Vec<Entry>) {
    let host = &mut tenants.host;
    let undone = [&controllers, host.journal.since(mark)].concat();
    let proc = host.proc();
    let mut restored = restore::put_back(&mut host.kernel, proc, &undone, Extent::Part);
    if restored.failures.is_empty()
        && let Err(error) = host.journal.forget_since(mark)
    {
        restored.failures.push(with_causes(&error));
    }
    leftover::report(&restored, &mut tenants.keeper);
}

fn begin_pinning<K: KernFs>(tenants: &mut Tenants<K>) -> Result<(), StartError> {
    tenants.host.pins = true;
    // Units need no root, and systemd enables their cpusets.
    let has_root = tenants.backends.has_root();
    let trees = if has_root { tenants.host.layout.trees.clone() } else { Vec::new() };
    let mut enforcer = tenants.host.enforcer();
    let ready = trees.iter().try_for_each(|tree| {
        let missing = enforcer.make_missing(tree)?;
        enforcer.enable_above(tree, &missing)
    });
    if let Err(error) = ready {
        tenants.host.pins = false;
        return Err(error.into());
    }
    tenants.keeper.begin_placing(tenants.options.state_dir.as_deref());
    tenants.open_anew();
    Ok(())
}

/// Controllers that the agent's cgroups above the root enable for their children, topmost first. The journal
/// only has the state before the first write.
fn controllers_above<K: KernFs>(host: &mut HostAccess<K>) -> Vec<Entry> {
    if !host.layout.is_unified() {
        return Vec::new();
    }
    let (kernel, tree) = (&mut host.kernel, &host.layout.trees[0]);
    let held = |path: &Path| -> Option<Entry> {
        let dir = kernel.open_dir(path).ok()?;
        let inode = kernel.inode(dir).ok();
        let value = kernel.read_once(dir, SUBTREE_CONTROL).ok();
        let value = value.map(|text| String::from_utf8_lossy(text).trim_end().into());
        kernel.close_dir(dir);
        let (path, file) = (path.to_path_buf(), SUBTREE_CONTROL.into());
        Some(Entry::Held { path, inode: inode?, file, value: value? })
    };
    let above = tree.root.ancestors().skip(1).take_while(|up| up.starts_with(&tree.own));
    let mut entries: Vec<Entry> = above.filter_map(held).collect();
    entries.reverse();
    entries
}
