//! Handles: [`KernFs`] for the simulated kernel.
//!
//! A handle refers to a place, and a cgroup's place has its id, so a kept handle always refers to its own
//! cgroup. Results of dead places are those of a real kernel: a kept file ENODEV; an open, a mkdir and an
//! rmdir ENOENT; an empty listing; ESRCH below the directory of a process that ended.
//!
//! Names of processes and cgroups are stored as texts ([`text_of_path`]) and become bytes here.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;

use tenantd_core::kernel_text::{bytes_of, path_of, text_of_path};
use tenantd_host::kernfs::{DirId, FileId, KernError, KernFs, Operation};

use super::disk::{QUEUE, SETTINGS};
use super::handles::{DirPlace, FilePlace, KeptDir, KeptFile, ProcFile};
use super::host::{Access, MOUNT};
use super::kernel::SimKernel;
use super::parse;
use super::paths::{Found, names_in, parent_of, step, walk, walk_from_root};
use super::proc_files::show_proc;
use super::show::show;
use super::spec::{File, Mode};
use super::store::store;
use super::tree::{CgroupId, Version};

/// Time for which the legacy kernel keeps the list of an open file for the next read
/// (`CGROUP_PIDLIST_DESTROY_DELAY`, `kernel/cgroup/cgroup-v1.c`); each read restarts it.
const LIST_KEPT: Duration = Duration::from_secs(1);

impl SimKernel {
    /// Number of kept directories.
    pub fn nr_kept_dirs(&self) -> usize {
        self.handles.dirs.iter().count()
    }

    pub(super) fn close_all(&mut self) {
        self.handles.dirs.close_all();
        self.handles.files.close_all();
    }

    fn file_at(&self, dir: DirId, name: &str) -> Result<FilePlace, KernError> {
        let kept = self.handles.dir(dir)?;
        let failed = |errno| KernError::new(Operation::Open, kept.path.join(name), errno);
        match walk(self, &kept.place, name).map_err(failed)? {
            Found::File(FilePlace::Cgroup(_, spec, _))
                if spec.mode == Mode::Write && self.host.access == Access::Unprivileged =>
            {
                Err(failed(Errno::EACCES))
            }
            Found::File(place) => Ok(place),
            Found::Dir(_) => Err(failed(Errno::EISDIR)),
        }
    }

    fn text_of(&self, place: &FilePlace) -> Result<String, Errno> {
        match place {
            FilePlace::Cgroup(id, spec, epoch) => {
                let tree = &self.live.tree;
                let is_same = tree.has_file(*id, spec) && tree.epoch(*id, spec) == *epoch;
                if is_same { show(self, *id, spec.file) } else { Err(Errno::ENODEV) }
            }
            FilePlace::Proc(file) => show_proc(self, *file),
            FilePlace::Sys(path) => self.sys.get(path).cloned().ok_or(Errno::ENODEV),
        }
    }

    fn is_kept_list(&self, place: &FilePlace) -> bool {
        let FilePlace::Cgroup(id, spec, _) = place else { return false };
        self.live.tree.version(*id) == Version::V1
            && matches!(spec.file, File::Procs | File::Threads)
    }

    fn write_to(&mut self, place: FilePlace, value: &str) -> Result<(), Errno> {
        match (place, self.host.access) {
            (FilePlace::Cgroup(..), Access::ReadOnlyMount) => Err(Errno::EROFS),
            (FilePlace::Cgroup(id, spec, _), Access::Root) => store(self, id, spec, value),
            (FilePlace::Proc(ProcFile::OomScoreAdj(pid)), Access::Root | Access::ReadOnlyMount) => {
                self.set_oom_score_adj(pid, value)
            }
            (FilePlace::Sys(path), Access::Root) => self.write_queue(&path, value),
            (FilePlace::Proc(_), Access::Root | Access::ReadOnlyMount) => Err(Errno::EIO),
            _ => Err(Errno::EACCES),
        }
    }

    fn set_oom_score_adj(&mut self, pid: u32, value: &str) -> Result<(), Errno> {
        let score = parse::signed(value.trim())?;
        let score = i16::try_from(score).ok().filter(|score| (-1000..=1000).contains(score));
        let process = self.live.processes.get_mut(&pid).ok_or(Errno::ESRCH)?;
        process.oom_score_adj = score.ok_or(Errno::EINVAL)?;
        Ok(())
    }

    /// Cgroup of a directory of cgroupfs, if the caller may change it.
    ///
    /// A lost cgroup is reported as missing before any permission is checked.
    fn changeable(&self, place: &DirPlace) -> Result<CgroupId, Errno> {
        let DirPlace::Cgroup(id) = place else { return Err(Errno::EPERM) };
        match (self.live.tree.get(*id), self.host.access) {
            (None, _) => Err(Errno::ENOENT),
            (Some(_), Access::Root) => Ok(*id),
            (Some(_), Access::Unprivileged) => Err(Errno::EACCES),
            (Some(_), Access::ReadOnlyMount) => Err(Errno::EROFS),
        }
    }

    fn make(&mut self, place: &DirPlace, name: &str) -> Result<(), Errno> {
        if !name.is_empty() && walk(self, place, name).is_ok() {
            return Err(Errno::EEXIST);
        }
        let (place, name) = parent_of(self, place, name)?;
        let id = self.changeable(&place)?;
        self.live.add_cgroup(id, &name).map(|_| ())
    }

    fn unmake(&mut self, place: &DirPlace, name: &str) -> Result<(), Errno> {
        let (place, name) = parent_of(self, place, name)?;
        let parent = self.changeable(&place)?;
        match step(self, &DirPlace::Cgroup(parent), &name)? {
            Found::Dir(DirPlace::Cgroup(id)) => self.live.remove_cgroup(id),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// Text of the file at an absolute path, for a reader with all permissions.
    ///
    /// # Errors
    /// Errors of opening and reading it.
    pub fn file(&self, path: &str) -> Result<String, Errno> {
        match walk_from_root(self, path)? {
            Found::File(place) => self.text_of(&place),
            Found::Dir(_) => Err(Errno::EISDIR),
        }
    }

    /// Writes the file at an absolute path, as another administrator would, whatever the caller may do.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn write_file(&mut self, path: &str, value: &str) -> Result<(), Errno> {
        match walk_from_root(self, path)? {
            Found::File(FilePlace::Cgroup(id, spec, _)) => store(self, id, spec, value),
            Found::File(FilePlace::Proc(ProcFile::OomScoreAdj(pid))) => {
                self.set_oom_score_adj(pid, value)
            }
            Found::File(FilePlace::Sys(path)) => self.write_queue(&path, value),
            Found::File(_) => Err(Errno::EACCES),
            Found::Dir(_) => Err(Errno::EISDIR),
        }
    }

    /// Removes the cgroup at `path` below the root of every hierarchy with such a cgroup, as another
    /// administrator would.
    ///
    /// # Errors
    /// ENOENT, EBUSY.
    pub fn remove_cgroup_at(&mut self, path: &str) -> Result<(), Errno> {
        let tree = &self.live.tree;
        let found: Vec<CgroupId> = tree.roots().filter_map(|root| tree.find(root, path)).collect();
        if found.is_empty() {
            return Err(Errno::ENOENT);
        }
        found.into_iter().try_for_each(|id| self.live.remove_cgroup(id))
    }

    /// Mount point of the unified hierarchy, or directory of the legacy ones.
    pub fn cgroup_mount(&self) -> &'static Path {
        Path::new(MOUNT)
    }
}

impl KernFs for SimKernel {
    fn open_dir(&mut self, path: &Path) -> Result<DirId, KernError> {
        let failed = |errno| KernError::new(Operation::Open, path, errno);
        let text = text_of_path(path);
        let place = match walk_from_root(self, &text).map_err(failed)? {
            Found::Dir(place) => place,
            Found::File(_) => return Err(failed(Errno::ENOTDIR)),
        };
        let path = path.to_path_buf();
        let kept = KeptDir { place, path, files: Vec::new(), is_locked: false };
        Ok(DirId(self.handles.dirs.open(kept)))
    }

    fn close_dir(&mut self, dir: DirId) {
        let Some(kept) = self.handles.dirs.close(dir.0) else { return };
        kept.files.iter().for_each(|file| drop(self.handles.files.close(file.0)));
    }

    fn dir_path(&self, dir: DirId) -> PathBuf {
        self.handles.dir(dir).map(|kept| kept.path.clone()).unwrap_or_else(|error| error.path)
    }

    fn inode(&mut self, dir: DirId) -> Result<u64, KernError> {
        let kept = self.handles.dir(dir)?;
        Ok(match &kept.place {
            // A removed cgroup keeps its number.
            DirPlace::Cgroup(id) => self.live.tree.inode(*id),
            DirPlace::Process(pid) | DirPlace::Tasks(pid) | DirPlace::Task(pid, _) => (*pid).into(),
            DirPlace::Still(path) if path == QUEUE => self.host.queue.life + 1,
            DirPlace::Still(path) if path == SETTINGS => self.host.divider.nr_choices + 1,
            _ => 1,
        })
    }

    fn nr_dirs(&mut self, dir: DirId) -> Result<u64, KernError> {
        let place = self.handles.dir(dir)?.place.clone();
        let failed = |errno| KernError::new(Operation::Open, self.dir_path(dir), errno);
        Ok(names_in(self, &place).map_err(failed)?.len() as u64)
    }

    fn open_file(&mut self, dir: DirId, name: &str) -> Result<FileId, KernError> {
        let place = self.file_at(dir, name)?;
        let path = self.dir_path(dir).join(name);
        let file = FileId(self.handles.files.open(KeptFile { place, path, listed: None }));
        if let Some(kept) = self.handles.dirs.get_mut(dir.0) {
            kept.files.push(file);
        }
        Ok(file)
    }

    fn read(&mut self, file: FileId) -> Result<&[u8], KernError> {
        let Some(kept) = self.handles.files.get(file.0) else {
            return Err(KernError::new(Operation::Read, "(closed file)", Errno::EBADF));
        };
        let failed = |errno| KernError::new(Operation::Read, &kept.path, errno);
        let mut text = self.text_of(&kept.place).map_err(failed)?;
        if self.is_kept_list(&kept.place) {
            let now = self.now();
            let known = kept.listed.clone().filter(|(at, _)| now - *at <= LIST_KEPT);
            text = known.map_or(text, |(_, text)| text);
            if let Some(kept) = self.handles.files.get_mut(file.0) {
                kept.listed = Some((now, text.clone()));
            }
        }
        self.handles.text = kernel_bytes(text);
        Ok(&self.handles.text)
    }

    fn read_once(&mut self, dir: DirId, name: &str) -> Result<&[u8], KernError> {
        let place = self.file_at(dir, name)?;
        let failed = |errno| KernError::new(Operation::Read, self.dir_path(dir).join(name), errno);
        self.handles.text = kernel_bytes(self.text_of(&place).map_err(failed)?);
        Ok(&self.handles.text)
    }

    fn write(&mut self, dir: DirId, name: &str, value: &str) -> Result<(), KernError> {
        let kept = self.handles.dir(dir);
        let path = kept.as_ref().map_or_else(|error| error.path.clone(), |k| k.path.join(name));
        let found = kept.map_err(|error| error.errno).and_then(|k| walk(self, &k.place, name));
        let outcome = match found {
            Ok(Found::File(place)) => self.write_to(place, value),
            Ok(Found::Dir(_)) => Err(Errno::EISDIR),
            Err(errno) => Err(errno),
        };
        outcome.map_err(|errno| KernError {
            operation: Operation::Write,
            path,
            value: Some(value.to_string()),
            errno,
        })
    }

    fn make_dir(&mut self, dir: DirId, name: &str) -> Result<(), KernError> {
        let KeptDir { place, path, .. } = self.handles.dir(dir)?.clone();
        self.make(&place, name)
            .map_err(|errno| KernError::new(Operation::MakeDir, path.join(name), errno))
    }

    fn remove_dir(&mut self, dir: DirId, name: &str) -> Result<(), KernError> {
        let KeptDir { place, path, .. } = self.handles.dir(dir)?.clone();
        self.unmake(&place, name)
            .map_err(|errno| KernError::new(Operation::RemoveDir, path.join(name), errno))
    }

    fn lock_dir(&mut self, dir: DirId) -> Result<(), KernError> {
        let KeptDir { place, path, .. } = self.handles.dir(dir)?.clone();
        // A lock belongs to the open file description, not to the process; opening the directory again
        // creates another one.
        let is_other = |(number, other): (u32, &KeptDir)| {
            number != dir.0 && other.is_locked && other.place == place
        };
        if self.handles.dirs.iter().any(is_other) {
            return Err(KernError::new(Operation::Lock, path, Errno::EAGAIN));
        }
        if let Some(kept) = self.handles.dirs.get_mut(dir.0) {
            kept.is_locked = true;
        }
        Ok(())
    }

    fn clock(&self) -> Duration {
        self.now()
    }

    fn pause(&mut self, time: Duration) {
        self.advance(time);
    }

    fn list_dirs(&mut self, dir: DirId) -> Result<Vec<OsString>, KernError> {
        let kept = self.handles.dir(dir)?;
        names_in(self, &kept.place)
            .map(|names| names.iter().map(|name| path_of(name).into_os_string()).collect())
            .map_err(|errno| KernError::new(Operation::List, &kept.path, errno))
    }
}

/// Converts a text to the kernel's bytes: names may contain any bytes there.
fn kernel_bytes(text: String) -> Vec<u8> {
    if !text.contains('\\') {
        return text.into_bytes();
    }
    text.split('\n').map(bytes_of).collect::<Vec<_>>().join(&b'\n')
}
