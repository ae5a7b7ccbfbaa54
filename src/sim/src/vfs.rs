//! Paths and handles: [`KernFs`] for the simulated kernel.
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

use super::handles::{DirPlace, FilePlace, KeptDir, KeptFile};
use super::kernel::{Access, MOUNT, SimKernel};
use super::process::Process;
use super::spec::{File, Mode, Spec};
use super::tree::{CgroupId, Version};

/// Time for which the legacy kernel keeps the list of an open file for the next read
/// (`CGROUP_PIDLIST_DESTROY_DELAY`, `kernel/cgroup/cgroup-v1.c`); each read restarts it.
const LIST_KEPT: Duration = Duration::from_secs(1);

enum Found {
    Dir(DirPlace),
    File(FilePlace),
}

impl SimKernel {
    /// Number of kept directories.
    pub fn nr_kept_dirs(&self) -> usize {
        self.handles.dirs.iter().count()
    }

    pub(super) fn close_all(&mut self) {
        self.handles.dirs.close_all();
        self.handles.files.close_all();
    }

    fn kept_dir(&self, dir: DirId) -> Result<&KeptDir, KernError> {
        self.handles
            .dirs
            .get(dir.0)
            .ok_or_else(|| KernError::new(Operation::Open, "(closed directory)", Errno::EBADF))
    }

    fn step(&self, place: &DirPlace, name: &str) -> Result<Found, Errno> {
        match place {
            DirPlace::Cgroup(id) => {
                let cgroup = self.tree.get(*id).ok_or(Errno::ENOENT)?;
                if let Some(&child) = cgroup.children.get(name) {
                    return Ok(Found::Dir(DirPlace::Cgroup(child)));
                }
                let spec = self.spec(*id, name).ok_or(Errno::ENOENT)?;
                Ok(Found::File(FilePlace::Cgroup(*id, spec, self.epoch(*id, spec))))
            }
            DirPlace::Still(path) => self.step_still(&format!("{path}/{name}")),
            _ => self.step_proc(place, name),
        }
    }

    fn vet_alive(&self, place: &DirPlace) -> Result<(), Errno> {
        match place {
            DirPlace::Process(pid) | DirPlace::Tasks(pid) | DirPlace::Task(pid, _) => {
                self.processes.get(pid).map(|_| ()).ok_or(Errno::ESRCH)
            }
            _ => Ok(()),
        }
    }

    fn step_proc(&self, place: &DirPlace, name: &str) -> Result<Found, Errno> {
        self.vet_alive(place)?;
        let dir = match (place, name) {
            (DirPlace::Proc, "self") => Some(DirPlace::Process(self.caller())),
            (DirPlace::Proc, "pressure") if self.host.psi => Some(DirPlace::ProcPressure),
            (DirPlace::Proc, "sys") => Some(DirPlace::ProcSys),
            (DirPlace::ProcSys, "vm") => Some(DirPlace::ProcVm),
            (DirPlace::Proc, _) => {
                name.parse().ok().and_then(|number| self.process_or_thread(number))
            }
            (DirPlace::Process(pid), "task") => Some(DirPlace::Tasks(*pid)),
            (DirPlace::Tasks(pid), _) => {
                let process = self.processes.get(pid).ok_or(Errno::ESRCH)?;
                let tid = name.parse().ok();
                let tid = tid.filter(|tid| process.threads.iter().any(|t| t.tid == *tid));
                tid.map(|tid| DirPlace::Task(*pid, tid))
            }
            _ => None,
        };
        match dir {
            Some(dir) => Ok(Found::Dir(dir)),
            None => Ok(Found::File(FilePlace::Proc(self.proc_file(place, name)?))),
        }
    }

    /// `/proc/NUMBER`: a process, or one of its threads, which is not listed but can be opened.
    fn process_or_thread(&self, number: u32) -> Option<DirPlace> {
        if self.processes.contains_key(&number) {
            return Some(DirPlace::Process(number));
        }
        let has = |process: &Process| process.threads.iter().any(|thread| thread.tid == number);
        let owner = self.processes.iter().find(|(_, process)| has(process));
        owner.map(|(pid, _)| DirPlace::Task(*pid, number))
    }

    fn step_still(&self, path: &str) -> Result<Found, Errno> {
        if let Some(hierarchy) = self.tree.hierarchies.iter().find(|h| h.mount == path) {
            return Ok(Found::Dir(DirPlace::Cgroup(hierarchy.root)));
        }
        if path == "/proc" {
            return Ok(Found::Dir(DirPlace::Proc));
        }
        if self.sys.contains_key(path) {
            return Ok(Found::File(FilePlace::Sys(path.to_string())));
        }
        let below = format!("{path}/");
        let mut mounts = self.tree.hierarchies.iter().map(|h| h.mount.as_str());
        let first = self.sys.range(below.clone()..).next();
        let has_files = first.is_some_and(|(path, _)| path.starts_with(&below));
        match has_files || mounts.any(|mount| mount.starts_with(&below)) {
            true => Ok(Found::Dir(DirPlace::Still(path.to_string()))),
            false => Err(Errno::ENOENT),
        }
    }

    fn walk_from_root(&self, path: &str) -> Result<Found, Errno> {
        let below = |mount: &str| path.strip_prefix(mount).filter(|rest| rest.starts_with('/'));
        for hierarchy in &self.tree.hierarchies {
            if let Some(rest) = below(&hierarchy.mount) {
                return self.walk(&DirPlace::Cgroup(hierarchy.root), rest);
            }
        }
        self.walk(&DirPlace::Still(String::new()), path)
    }

    fn walk(&self, place: &DirPlace, path: &str) -> Result<Found, Errno> {
        let mut names = path.split('/').filter(|name| !name.is_empty() && *name != ".");
        names.try_fold(Found::Dir(place.clone()), |found, name| match found {
            Found::Dir(place) => self.step(&place, name),
            Found::File(_) => Err(Errno::ENOTDIR),
        })
    }

    fn file_at(&self, dir: DirId, name: &str) -> Result<FilePlace, KernError> {
        let kept = self.kept_dir(dir)?;
        let failed = |errno| KernError::new(Operation::Open, kept.path.join(name), errno);
        match self.walk(&kept.place, name).map_err(failed)? {
            Found::File(FilePlace::Cgroup(_, spec, _)) if self.may_not_read(spec) => {
                Err(failed(Errno::EACCES))
            }
            Found::File(place) => Ok(place),
            Found::Dir(_) => Err(failed(Errno::EISDIR)),
        }
    }

    fn may_not_read(&self, spec: &Spec) -> bool {
        spec.mode == Mode::Write && self.host.access == Access::Unprivileged
    }

    fn epoch(&self, id: CgroupId, spec: &Spec) -> u32 {
        let cgroup = self.tree.get(id);
        cgroup
            .zip(spec.controller)
            .map_or(0, |(cgroup, controller)| cgroup.epochs[controller as usize])
    }

    fn text_of(&self, place: &FilePlace) -> Result<String, Errno> {
        match place {
            FilePlace::Cgroup(id, spec, epoch) => {
                let is_there = self.has_file(*id, spec);
                match is_there && self.epoch(*id, spec) == *epoch {
                    true => self.show(*id, spec.file),
                    false => Err(Errno::ENODEV),
                }
            }
            FilePlace::Proc(file) => self.show_proc(*file),
            FilePlace::Sys(path) => self.sys.get(path).cloned().ok_or(Errno::ENODEV),
        }
    }

    fn is_kept_list(&self, place: &FilePlace) -> bool {
        let FilePlace::Cgroup(id, spec, _) = place else { return false };
        self.tree.version(*id) == Version::V1 && matches!(spec.file, File::Procs | File::Threads)
    }

    fn write_to(&mut self, place: FilePlace, value: &str) -> Result<(), Errno> {
        match (place, self.host.access) {
            (FilePlace::Cgroup(..), Access::ReadOnlyMount) => Err(Errno::EROFS),
            (FilePlace::Cgroup(id, spec, _), Access::Root) => self.store(id, spec, value),
            (FilePlace::Proc(_), Access::Root | Access::ReadOnlyMount) => Err(Errno::EIO),
            _ => Err(Errno::EACCES),
        }
    }

    /// Cgroup of a directory of cgroupfs, if the caller may change it.
    ///
    /// A lost cgroup is reported as missing before any permission is checked.
    fn changeable(&self, place: &DirPlace) -> Result<CgroupId, Errno> {
        let DirPlace::Cgroup(id) = place else { return Err(Errno::EPERM) };
        match (self.tree.get(*id), self.host.access) {
            (None, _) => Err(Errno::ENOENT),
            (Some(_), Access::Root) => Ok(*id),
            (Some(_), Access::Unprivileged) => Err(Errno::EACCES),
            (Some(_), Access::ReadOnlyMount) => Err(Errno::EROFS),
        }
    }

    fn make(&mut self, place: &DirPlace, name: &str) -> Result<(), Errno> {
        if !name.is_empty() && self.walk(place, name).is_ok() {
            return Err(Errno::EEXIST);
        }
        let (place, name) = self.parent_of(place, name)?;
        let id = self.changeable(&place)?;
        self.add_cgroup(id, &name).map(|_| ())
    }

    fn unmake(&mut self, place: &DirPlace, name: &str) -> Result<(), Errno> {
        let (place, name) = self.parent_of(place, name)?;
        let parent = self.changeable(&place)?;
        match self.step(&DirPlace::Cgroup(parent), &name)? {
            Found::Dir(DirPlace::Cgroup(id)) => self.remove_cgroup(id),
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn parent_of(&self, place: &DirPlace, name: &str) -> Result<(DirPlace, String), Errno> {
        let (above, last) = name.rsplit_once('/').unwrap_or(("", name));
        match self.walk(place, above)? {
            Found::Dir(place) if !last.is_empty() => Ok((place, last.to_string())),
            Found::Dir(_) => Err(Errno::ENOENT),
            Found::File(_) => Err(Errno::ENOTDIR),
        }
    }

    fn names_in(&self, place: &DirPlace) -> Result<Vec<String>, Errno> {
        self.vet_alive(place)?;
        let numbers =
            |numbers: &mut dyn Iterator<Item = u32>| numbers.map(|n| n.to_string()).collect();
        Ok(match place {
            DirPlace::Cgroup(id) => match self.tree.get(*id) {
                Some(cgroup) => cgroup.children.keys().cloned().collect(),
                None => Vec::new(),
            },
            DirPlace::Proc => numbers(&mut self.processes.keys().copied()),
            DirPlace::Process(_) => vec!["task".into()],
            DirPlace::Tasks(pid) => {
                let process = self.processes.get(pid).ok_or(Errno::ESRCH)?;
                numbers(&mut process.threads.iter().map(|thread| thread.tid))
            }
            DirPlace::Task(..) | DirPlace::ProcPressure | DirPlace::ProcSys | DirPlace::ProcVm => {
                Vec::new()
            }
            DirPlace::Still(path) => self.names_below(path),
        })
    }

    fn names_below(&self, path: &str) -> Vec<String> {
        let below = format!("{path}/");
        let mounts = self.tree.hierarchies.iter().map(|h| h.mount.as_str());
        let paths = self.sys.keys().map(String::as_str).chain(mounts).chain(["/proc/self"]);
        let names = paths.filter_map(|path| path.strip_prefix(&below));
        let mut dirs: Vec<String> =
            names.filter_map(|rest| rest.split_once('/')).map(|(name, _)| name.into()).collect();
        let roots = self.tree.hierarchies.iter().filter_map(|h| h.mount.strip_prefix(&below));
        dirs.extend(roots.filter(|name| !name.contains('/')).map(String::from));
        dirs.sort_unstable();
        dirs.dedup();
        dirs
    }

    // --- short cuts for tests and reports ---

    /// Text of the file at an absolute path, for a reader with all permissions.
    ///
    /// # Errors
    /// Errors of opening and reading it.
    pub fn file(&self, path: &str) -> Result<String, Errno> {
        match self.walk_from_root(path)? {
            Found::File(place) => self.text_of(&place),
            Found::Dir(_) => Err(Errno::EISDIR),
        }
    }

    /// Writes the file at an absolute path, as another administrator would, whatever the caller may do.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn write_file(&mut self, path: &str, value: &str) -> Result<(), Errno> {
        match self.walk_from_root(path)? {
            Found::File(FilePlace::Cgroup(id, spec, _)) => self.store(id, spec, value),
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
        let roots: Vec<CgroupId> = self.tree.hierarchies.iter().map(|h| h.root).collect();
        let found: Vec<CgroupId> = roots.iter().filter_map(|&root| self.find(root, path)).collect();
        if found.is_empty() {
            return Err(Errno::ENOENT);
        }
        found.into_iter().try_for_each(|id| self.remove_cgroup(id))
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
        let place = match self.walk_from_root(&text).map_err(failed)? {
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
        self.kept_dir(dir).map(|kept| kept.path.clone()).unwrap_or_else(|error| error.path)
    }

    fn inode(&mut self, dir: DirId) -> Result<u64, KernError> {
        let kept = self.kept_dir(dir)?;
        Ok(match &kept.place {
            // A removed cgroup keeps its number.
            DirPlace::Cgroup(id) => self.tree.inode(*id),
            DirPlace::Process(pid) | DirPlace::Tasks(pid) | DirPlace::Task(pid, _) => (*pid).into(),
            DirPlace::Proc
            | DirPlace::ProcPressure
            | DirPlace::ProcSys
            | DirPlace::ProcVm
            | DirPlace::Still(_) => 1,
        })
    }

    fn nr_dirs(&mut self, dir: DirId) -> Result<u64, KernError> {
        let place = self.kept_dir(dir)?.place.clone();
        let failed = |errno| KernError::new(Operation::Open, self.dir_path(dir), errno);
        Ok(self.names_in(&place).map_err(failed)?.len() as u64)
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
        let kept = self.kept_dir(dir);
        let path = kept.as_ref().map_or_else(|error| error.path.clone(), |k| k.path.join(name));
        let found = kept.map_err(|error| error.errno).and_then(|k| self.walk(&k.place, name));
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
        let KeptDir { place, path, .. } = self.kept_dir(dir)?.clone();
        self.make(&place, name)
            .map_err(|errno| KernError::new(Operation::MakeDir, path.join(name), errno))
    }

    fn remove_dir(&mut self, dir: DirId, name: &str) -> Result<(), KernError> {
        let KeptDir { place, path, .. } = self.kept_dir(dir)?.clone();
        self.unmake(&place, name)
            .map_err(|errno| KernError::new(Operation::RemoveDir, path.join(name), errno))
    }

    fn lock_dir(&mut self, dir: DirId) -> Result<(), KernError> {
        let KeptDir { place, path, .. } = self.kept_dir(dir)?.clone();
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
        let kept = self.kept_dir(dir)?;
        self.names_in(&kept.place)
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
