//! The part of a reload that may fail: all of it is done, or nothing.
//!
//! Tenants that come may need a root where there was none, and sets of CPUs may need controllers that nobody
//! needed before. Both are had before anything is put back or exchanged; where one of them is refused, what was
//! done for it is put back at once, and the policy in force has what it had.

use std::path::Path;

use super::agent::{Agent, StartError};
use super::enforce::{SUBTREE_CONTROL, with_causes};
use super::handover;
use super::placement_store::PlacementStore;
use super::restore;
use super::seats::Seat;
use super::switch::ChangeError;
use crate::control::tree::TreeNode;
use crate::host::cgroup::Dialect;
use crate::host::journal::{Entry, Mark};
use crate::host::kernfs::KernFs;

impl<K: KernFs> Agent<K> {
    /// Does all of taking up `nodes` that may fail, or else nothing.
    pub(super) fn make_ready(
        &mut self,
        nodes: &[TreeNode],
        seats: &[Seat],
        pins: bool,
    ) -> Result<(), ChangeError> {
        let (mark, had_root) = (self.journal.mark(), self.root.is_some());
        let controllers = self.controllers_above();
        let ready =
            self.take_root_for(nodes, seats, pins).and_then(|()| match pins && !self.pins {
                true => self.begin_pinning(),
                false => Ok(()),
            });
        if let Err(error) = ready {
            self.put_back_since(mark, controllers);
            if !had_root && let Some(root) = self.root.take() {
                self.kernel.close_dir(root);
            }
            return Err(error.into());
        }
        if !had_root
            && self.root.is_some()
            && let Some(residents) = &self.residents
        {
            residents.forget();
        }
        Ok(())
    }

    /// What the cgroups above the root that are ours give their children now, the topmost first: the journal has it
    /// as it was before the first write.
    fn controllers_above(&mut self) -> Vec<Entry> {
        if self.layout.dialect != Dialect::Unified {
            return Vec::new();
        }
        let (kernel, tree) = (&mut self.kernel, &self.layout.trees[0]);
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

    /// Puts back what was recorded since `mark`, and the `controllers` that there were.
    fn put_back_since(&mut self, mark: Mark, controllers: Vec<Entry>) {
        let undone = [&controllers, self.journal.since(mark)].concat();
        let mut restored = restore::put_back(&mut self.kernel, self.machine.proc(), &undone);
        if restored.failures.is_empty()
            && let Err(error) = self.journal.forget_since(mark)
        {
            restored.failures.push(with_causes(&error));
        }
        handover::report(&restored, self.residents.as_ref());
    }

    /// Sees to it that tenants can be given CPU sets, which none of them had until now.
    fn begin_pinning(&mut self) -> Result<(), StartError> {
        self.pins = true;
        // Units need no root, and their cpusets are systemd's to enable.
        let trees = match self.root {
            Some(_) => self.layout.trees.clone(),
            None => Vec::new(),
        };
        let mut enforcer = self.enforcer();
        let ready = trees.iter().try_for_each(|tree| {
            let missing = enforcer.make_missing(tree)?;
            enforcer.enable_above(tree, &missing)
        });
        if let Err(error) = ready {
            self.pins = false;
            return Err(error.into());
        }
        self.placements = self.options.state_dir.as_deref().map(PlacementStore::new);
        self.attach_anew();
        Ok(())
    }
}
