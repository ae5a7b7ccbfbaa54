//! The real kernel: kept descriptors, `pread` into one buffer, one `write` per value.
//!
//! On small kernel files a kept descriptor costs 5 to 11 times less than open, read and close, and includes a
//! generation check: once the cgroup is removed it returns ENODEV, even if another one was made in its place.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, mkdirat};
use nix::sys::statfs::{
    CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, PROC_SUPER_MAGIC, SYSFS_MAGIC, fstatfs,
};
use nix::unistd::{UnlinkatFlags, unlinkat, write};

use super::aside::Aside;
use super::log::{KernelLog, Kmsg};
use super::seam::{DirId, FileId, KernError, KernFs, Operation};
use crate::systemd::{self, UnitManager};

/// Initial size of the read buffer; `memory.stat` of a 6.18 kernel needs about 2 KiB.
const BUFFER_BYTES: usize = 16 * 1024;

/// Files in the directory of a disk's queue that are written.
const OF_QUEUES: [&str; 3] = ["scheduler", "nr_requests", "wbt_lat_usec"];

/// The kernel of the running machine.
#[derive(Debug)]
pub struct RealKernFs {
    opened: Instant,
    dirs: Vec<Option<KeptDir>>,
    files: Vec<Option<KeptFile>>,
    free_dirs: Vec<u32>,
    free_files: Vec<u32>,
    buffer: Vec<u8>,
    /// Names of kept files: a dozen, for thousands of files.
    names: Vec<Box<str>>,
    aside: Aside,
}

#[derive(Debug)]
struct KeptDir {
    handle: File,
    path: Box<Path>,
    /// The newest of its files, each of which names the one before: a list would be an allocation for each directory.
    newest: Option<FileId>,
}

#[derive(Debug)]
struct KeptFile {
    handle: File,
    dir: DirId,
    name: u16,
    older: Option<FileId>,
}

impl Default for RealKernFs {
    fn default() -> Self {
        Self::new()
    }
}

impl RealKernFs {
    /// Makes an interface without open descriptors.
    pub fn new() -> Self {
        RealKernFs {
            opened: Instant::now(),
            dirs: Vec::new(),
            files: Vec::new(),
            free_dirs: Vec::new(),
            free_files: Vec::new(),
            buffer: vec![0; BUFFER_BYTES],
            names: Vec::new(),
            aside: Aside::default(),
        }
    }

    fn dir(&self, dir: DirId) -> Result<&KeptDir, KernError> {
        let kept = self.dirs.get(dir.0 as usize).and_then(Option::as_ref);
        kept.ok_or_else(|| KernError::new(Operation::Open, "(closed directory)", Errno::EBADF))
    }

    fn metadata(&self, dir: DirId) -> Result<Metadata, KernError> {
        let kept = self.dir(dir)?;
        let failed = |error| KernError::new(Operation::Open, &*kept.path, errno_of(&error));
        kept.handle.metadata().map_err(failed)
    }

    /// Index of `name` among the names; all that do not fit share the last one.
    fn intern(&mut self, name: &str) -> u16 {
        let known = self.names.iter().position(|known| **known == *name);
        let place = known.unwrap_or_else(|| {
            self.names.push(name.into());
            self.names.len() - 1
        });
        u16::try_from(place).unwrap_or(u16::MAX)
    }

    fn open_in(&self, dir: DirId, name: &str, flags: OFlag) -> Result<File, KernError> {
        let kept = self.dir(dir)?;
        openat(&kept.handle, name, flags | OFlag::O_CLOEXEC, Mode::empty())
            .map(File::from)
            .map_err(|errno| KernError::new(Operation::Open, kept.path.join(name), errno))
    }
}

impl KernFs for RealKernFs {
    fn kernel_log(&self) -> Result<Box<dyn KernelLog>, KernError> {
        match Kmsg::open() {
            Ok(log) => Ok(Box::new(log)),
            Err(error) => Err(KernError::new(Operation::Open, Kmsg::PATH, errno_of(&error))),
        }
    }

    fn open_dir(&mut self, path: &Path) -> Result<DirId, KernError> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let handle = open(path, flags, Mode::empty())
            .map(File::from)
            .map_err(|errno| KernError::new(Operation::Open, path, errno))?;
        let kept = KeptDir { handle, path: path.into(), newest: None };
        Ok(DirId(place(&mut self.dirs, &mut self.free_dirs, kept)))
    }

    fn close_dir(&mut self, dir: DirId) {
        let Some(kept) = self.dirs.get_mut(dir.0 as usize).and_then(Option::take) else { return };
        self.free_dirs.push(dir.0);
        let mut next = kept.newest;
        while let Some(file) = next {
            next = self.files[file.0 as usize].take().and_then(|kept| kept.older);
            self.free_files.push(file.0);
        }
    }

    fn dir_path(&self, dir: DirId) -> PathBuf {
        self.dir(dir).map(|kept| kept.path.to_path_buf()).unwrap_or_else(|error| error.path)
    }

    fn inode(&mut self, dir: DirId) -> Result<u64, KernError> {
        Ok(self.metadata(dir)?.ino())
    }

    fn nr_dirs(&mut self, dir: DirId) -> Result<u64, KernError> {
        // The link count is 2 (name and `.`) plus the `..` of each subdirectory.
        Ok(self.metadata(dir)?.nlink().saturating_sub(2))
    }

    fn open_file(&mut self, dir: DirId, name: &str) -> Result<FileId, KernError> {
        let handle = self.open_in(dir, name, OFlag::O_RDONLY)?;
        let older = self.dir(dir)?.newest;
        let kept = KeptFile { handle, dir, name: self.intern(name), older };
        let file = FileId(place(&mut self.files, &mut self.free_files, kept));
        if let Some(Some(kept)) = self.dirs.get_mut(dir.0 as usize) {
            kept.newest = Some(file);
        }
        Ok(file)
    }

    fn read(&mut self, file: FileId) -> Result<&[u8], KernError> {
        let Some(Some(kept)) = self.files.get(file.0 as usize) else {
            return Err(KernError::new(Operation::Read, "(closed file)", Errno::EBADF));
        };
        match read_whole(&kept.handle, &mut self.buffer) {
            Ok(length) => Ok(&self.buffer[..length]),
            Err(errno) => {
                let path = self.dir_path(kept.dir).join(&*self.names[usize::from(kept.name)]);
                Err(KernError::new(Operation::Read, path, errno))
            }
        }
    }

    fn read_once(&mut self, dir: DirId, name: &str) -> Result<&[u8], KernError> {
        let handle = self.open_in(dir, name, OFlag::O_RDONLY)?;
        match read_whole(&handle, &mut self.buffer) {
            Ok(length) => Ok(&self.buffer[..length]),
            Err(errno) => {
                Err(KernError::new(Operation::Read, self.dir_path(dir).join(name), errno))
            }
        }
    }

    fn read_start(&mut self, dir: DirId, name: &str, max: usize) -> Result<&[u8], KernError> {
        let handle = self.open_in(dir, name, OFlag::O_RDONLY)?;
        if self.buffer.len() < max {
            self.buffer.resize(max, 0);
        }
        let mut length = 0;
        while length < max {
            match handle.read_at(&mut self.buffer[length..max], length as u64) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let path = self.dir_path(dir).join(name);
                    return Err(KernError::new(Operation::Read, path, errno_of(&error)));
                }
            }
        }
        Ok(&self.buffer[..length])
    }

    fn write(&mut self, dir: DirId, name: &str, value: &str) -> Result<(), KernError> {
        let failed = |errno, path: PathBuf| KernError {
            operation: Operation::Write,
            path,
            value: Some(value.to_string()),
            errno,
        };
        // Never O_CREAT: kernfs cannot create files, and elsewhere it would be a mistake.
        let handle = self
            .open_in(dir, name, OFlag::O_WRONLY)
            .map_err(|error| failed(error.errno, error.path))?;
        check_kind(&handle, name).map_err(|errno| failed(errno, self.dir_path(dir).join(name)))?;
        let written = write(&handle, value.as_bytes())
            .map_err(|errno| failed(errno, self.dir_path(dir).join(name)))?;
        if written != value.len() {
            return Err(failed(Errno::EIO, self.dir_path(dir).join(name)));
        }
        Ok(())
    }

    fn write_aside(&mut self, dir: DirId, name: &str, value: &str) -> Result<(), KernError> {
        let handle = self.open_in(dir, name, OFlag::O_WRONLY)?;
        let path = self.dir_path(dir).join(name);
        check_kind(&handle, name)
            .map_err(|errno| KernError::new(Operation::Write, &path, errno))?;
        self.aside.write(handle, path, value)
    }

    fn make_dir(&mut self, dir: DirId, name: &str) -> Result<(), KernError> {
        let kept = self.dir(dir)?;
        mkdirat(&kept.handle, name, Mode::from_bits_truncate(0o755))
            .map_err(|errno| KernError::new(Operation::MakeDir, kept.path.join(name), errno))
    }

    fn remove_dir(&mut self, dir: DirId, name: &str) -> Result<(), KernError> {
        let kept = self.dir(dir)?;
        unlinkat(&kept.handle, name, UnlinkatFlags::RemoveDir)
            .map_err(|errno| KernError::new(Operation::RemoveDir, kept.path.join(name), errno))
    }

    fn lock_dir(&mut self, dir: DirId) -> Result<(), KernError> {
        let kept = self.dir(dir)?;
        kept.handle.try_lock().map_err(|error| {
            let errno = match error {
                TryLockError::WouldBlock => Errno::EAGAIN,
                TryLockError::Error(error) => errno_of(&error),
            };
            KernError::new(Operation::Lock, &*kept.path, errno)
        })
    }

    fn unit_manager(&self) -> Option<Box<dyn UnitManager>> {
        systemd::of_this_host()
    }

    fn clock(&self) -> Duration {
        self.opened.elapsed()
    }

    fn list_dirs(&mut self, dir: DirId) -> Result<Vec<OsString>, KernError> {
        let kept = self.dir(dir)?;
        let failed = |errno| KernError::new(Operation::List, &*kept.path, errno);
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        // A new descriptor, because the position of a directory stream belongs to its descriptor.
        let mut stream = Dir::openat(&kept.handle, ".", flags, Mode::empty()).map_err(failed)?;
        let mut names = Vec::new();
        for entry in stream.iter() {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            if entry.file_type() == Some(Type::Directory) && name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_os_string());
            }
        }
        Ok(names)
    }
}

fn place<T>(slots: &mut Vec<Option<T>>, free: &mut Vec<u32>, item: T) -> u32 {
    match free.pop() {
        Some(index) => {
            slots[index as usize] = Some(item);
            index
        }
        None => {
            slots.push(Some(item));
            (slots.len() - 1) as u32
        }
    }
}

/// A read this short that ends with a whole line has reached the end of its file.
///
/// The kernel's sequence files (`fs/seq_file.c`) return whole records until the next one does not fit into
/// their page. No record of these files is half a page long, so a short read means that there was no next one.
/// Reading again would double the system calls of a tick.
const SHORT_BYTES: usize = 2048;

fn read_whole(handle: &File, buffer: &mut Vec<u8>) -> Result<usize, Errno> {
    let mut length = 0;
    loop {
        if length == buffer.len() {
            buffer.resize(buffer.len() * 2, 0);
        }
        match handle.read_at(&mut buffer[length..], length as u64) {
            Ok(0) => return Ok(length),
            Ok(count) => {
                length += count;
                if length < SHORT_BYTES && buffer[length - 1] == b'\n' {
                    return Ok(length);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(errno_of(&error)),
        }
    }
}

/// Fails for a file that is not in a cgroup hierarchy, so that no journal can cause other writes, but for the
/// `oom_score_adj` of a process and the settings of a disk's queue.
fn check_kind(handle: &File, name: &str) -> Result<(), Errno> {
    match fstatfs(handle)?.filesystem_type() {
        CGROUP_SUPER_MAGIC | CGROUP2_SUPER_MAGIC => Ok(()),
        PROC_SUPER_MAGIC if name.ends_with("/oom_score_adj") => Ok(()),
        SYSFS_MAGIC if OF_QUEUES.contains(&name) || name.starts_with("iosched/") => Ok(()),
        _ => Err(Errno::EXDEV),
    }
}

fn errno_of(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}
