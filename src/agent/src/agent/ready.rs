//! The part of a reload that may fail. It is done completely or not at all.
//!
//! New tenants may need a root, and CPU sets may need controllers that were not enabled before. Both are
//! prepared before any value is restored or exchanged. If one is refused, the preparation is undone and the old
//! policy stays in force.

use std::path::Path;

use super::mode::ChangeError;
use super::start::Agent;
use crate::backend::access::HostAccess;
use crate::backend::location::Location;
use crate::recovery::leftover;
use crate::recovery::restore::{self, Extent};
use crate::start_error::StartError;
use tenantd_control::tree::TreeNode;
use tenantd_host::cgroup::Dialect;
use tenantd_host::enforce::{SUBTREE_CONTROL, with_causes};
use tenantd_host::journal::{Entry, Mark};
use tenantd_host::kernfs::KernFs;

impl<K: KernFs> Agent<K> {
    pub(crate) fn make_ready(
        &mut self,
        nodes: &[TreeNode],
        locations: &[Location],
        pins: bool,
    ) -> Result<(), ChangeError> {
        let (mark, had_root) = (self.host.journal.mark(), self.backends.has_root());
        let controllers = controllers_above(&mut self.host);
        let ready = self.take_root_for(nodes, locations, pins).and_then(|()| {
            match pins && !self.host.pins {
                true => self.begin_pinning(),
                false => Ok(()),
            }
        });
        if let Err(error) = ready {
            self.put_back_since(mark, controllers);
            if !had_root {
                self.backends.close_root(&mut self.host.kernel);
            }
            return Err(error.into());
        }
        Ok(())
    }

    fn put_back_since(&mut self, mark: Mark, controllers: Vec<Entry>) {
        let undone = [&controllers, self.host.journal.since(mark)].concat();
        let proc = self.host.proc();
        let mut restored = restore::put_back(&mut self.host.kernel, proc, &undone, Extent::Part);
        if restored.failures.is_empty()
            && let Err(error) = self.host.journal.forget_since(mark)
        {
            restored.failures.push(with_causes(&error));
        }
        leftover::report(&restored, &mut self.keeper);
    }

    fn begin_pinning(&mut self) -> Result<(), StartError> {
        self.host.pins = true;
        // Units need no root, and systemd enables their cpusets.
        let trees = match self.backends.has_root() {
            true => self.host.layout.trees.clone(),
            false => Vec::new(),
        };
        let mut enforcer = self.host.enforcer();
        let ready = trees.iter().try_for_each(|tree| {
            let missing = enforcer.make_missing(tree)?;
            enforcer.enable_above(tree, &missing)
        });
        if let Err(error) = ready {
            self.host.pins = false;
            return Err(error.into());
        }
        self.keeper.begin_placing(self.options.state_dir.as_deref());
        self.open_anew();
        Ok(())
    }
}

/// Controllers that the agent's cgroups above the root enable for their children, topmost first. The journal
/// only has the state before the first write.
fn controllers_above<K: KernFs>(host: &mut HostAccess<K>) -> Vec<Entry> {
    if host.layout.dialect != Dialect::Unified {
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
