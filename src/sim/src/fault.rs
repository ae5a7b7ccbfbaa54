//! Errors on demand, and a log of every call, around any [`KernFs`].
//!
//! A test selects failing calls: the n-th of all, or every one that matches. The log proves that nothing
//! was written, the order of writes, or the number of calls per tick.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;

use super::kernel::SimKernel;
use tenantd_host::kernfs::{DirId, FileId, KernError, KernFs, Operation};

/// Calls to which a [`Fault`] applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// Call with this number, counted from 0 since the wrapper was made.
    Call(u64),
    /// Every call of this operation on a path with this end.
    Matching {
        /// Operation; `None` for any.
        operation: Option<Operation>,
        /// End of the path, such as `web/cpu.weight`. Empty matches every path.
        path_suffix: String,
    },
}

/// A rule: these calls fail with this errno, and do nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Affected calls.
    pub when: When,
    /// Returned errno.
    pub errno: Errno,
    /// Remaining number of failures; `None` for no end.
    pub times: Option<u64>,
}

impl Fault {
    /// Creates a rule for the call with number `call`.
    pub fn at_call(call: u64, errno: Errno) -> Fault {
        Fault { when: When::Call(call), errno, times: None }
    }

    /// Creates a rule for every `operation` on a path that ends in `path_suffix`.
    pub fn matching(operation: Operation, path_suffix: &str, errno: Errno) -> Fault {
        let when =
            When::Matching { operation: Some(operation), path_suffix: path_suffix.to_string() };
        Fault { when, errno, times: None }
    }

    /// Limits the rule to its first `times` calls.
    pub fn times(self, times: u64) -> Fault {
        Fault { times: Some(times), ..self }
    }

    fn strikes(&self, number: u64, operation: Operation, path: &Path) -> bool {
        self.times != Some(0)
            && match &self.when {
                When::Call(call) => *call == number,
                When::Matching { operation: wanted, path_suffix } => {
                    wanted.is_none_or(|wanted| wanted == operation)
                        && path.to_string_lossy().ends_with(path_suffix.as_str())
                }
            }
    }
}

/// One call, and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Operation of the call.
    pub operation: Operation,
    /// File or directory.
    pub path: PathBuf,
    /// Value of a write.
    pub value: Option<String>,
    /// Result: success, or this error.
    pub outcome: Result<(), Errno>,
}

/// A [`KernFs`] that fails by rules and logs its calls.
///
/// Closing a directory, asking for a path and advancing time are not calls to the kernel; they are neither
/// counted nor logged.
#[derive(Debug)]
pub struct Faulty<K> {
    inner: K,
    faults: Vec<Fault>,
    calls: Vec<Call>,
    nr_calls: u64,
    /// Path of each kept file, by its number, and the files of each kept directory.
    file_paths: BTreeMap<u32, PathBuf>,
    files_of: BTreeMap<u32, Vec<u32>>,
}

impl<K: KernFs> Faulty<K> {
    /// Wraps `inner` without faults.
    pub fn new(inner: K) -> Self {
        Faulty {
            inner,
            faults: Vec::new(),
            calls: Vec::new(),
            nr_calls: 0,
            file_paths: BTreeMap::new(),
            files_of: BTreeMap::new(),
        }
    }

    /// Adds a rule. The first matching rule decides.
    pub fn inject(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    /// Removes all rules.
    pub fn heal(&mut self) {
        self.faults.clear();
    }

    /// Number of calls since the wrapper was made, including those cleared from the log.
    pub fn nr_calls(&self) -> u64 {
        self.nr_calls
    }

    /// Log since it was last cleared.
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// Clears the log. The numbers of calls continue.
    pub fn clear_calls(&mut self) {
        self.calls.clear();
    }

    /// Calls of the log that would change a host: writes, makes and removes, including refused ones.
    pub fn changes(&self) -> impl Iterator<Item = &Call> {
        let changes = [Operation::Write, Operation::MakeDir, Operation::RemoveDir];
        self.calls.iter().filter(move |call| changes.contains(&call.operation))
    }

    /// Successful writes of the log, as path and value, in order.
    pub fn writes(&self) -> Vec<(&Path, &str)> {
        let accepted =
            self.calls.iter().filter(|c| c.operation == Operation::Write && c.outcome.is_ok());
        accepted.filter_map(|c| Some((c.path.as_path(), c.value.as_deref()?))).collect()
    }

    /// The inner kernel.
    pub fn inner(&self) -> &K {
        &self.inner
    }

    /// The inner kernel, to advance its time.
    pub fn inner_mut(&mut self) -> &mut K {
        &mut self.inner
    }

    /// Unwraps the inner kernel.
    pub fn into_inner(self) -> K {
        self.inner
    }

    fn begin(
        &mut self,
        operation: Operation,
        path: PathBuf,
        value: Option<&str>,
    ) -> Result<(), KernError> {
        let number = self.nr_calls;
        self.nr_calls += 1;
        let struck = self.faults.iter_mut().find(|fault| fault.strikes(number, operation, &path));
        let errno = struck.map(|fault| {
            fault.times = fault.times.map(|times| times - 1);
            fault.errno
        });
        let value = value.map(String::from);
        let outcome = errno.map_or(Ok(()), Err);
        let error = errno.map(|errno| {
            let (path, value) = (path.clone(), value.clone());
            KernError { operation, path, value, errno }
        });
        self.calls.push(Call { operation, path, value, outcome });
        error.map_or(Ok(()), Err)
    }

    fn end<T>(&mut self, outcome: Result<T, KernError>) -> Result<T, KernError> {
        note(&mut self.calls, &outcome);
        outcome
    }
}

impl Faulty<SimKernel> {
    /// Closes every directory and file, as when the caller ends.
    pub fn close_all(&mut self) {
        self.file_paths.clear();
        self.files_of.clear();
        self.inner.close_all();
    }
}

/// Stores the result in the last call of the log. Not a method, because a text just read borrows the kernel.
fn note<T>(calls: &mut [Call], outcome: &Result<T, KernError>) {
    if let (Some(call), Err(error)) = (calls.last_mut(), outcome) {
        call.outcome = Err(error.errno);
    }
}

impl<K: KernFs> KernFs for Faulty<K> {
    fn open_dir(&mut self, path: &Path) -> Result<DirId, KernError> {
        self.begin(Operation::Open, path.to_path_buf(), None)?;
        let outcome = self.inner.open_dir(path);
        self.end(outcome)
    }

    fn close_dir(&mut self, dir: DirId) {
        for file in self.files_of.remove(&dir.0).into_iter().flatten() {
            self.file_paths.remove(&file);
        }
        self.inner.close_dir(dir);
    }

    fn dir_path(&self, dir: DirId) -> PathBuf {
        self.inner.dir_path(dir)
    }

    fn inode(&mut self, dir: DirId) -> Result<u64, KernError> {
        self.begin(Operation::Open, self.inner.dir_path(dir), None)?;
        let outcome = self.inner.inode(dir);
        self.end(outcome)
    }

    fn nr_dirs(&mut self, dir: DirId) -> Result<u64, KernError> {
        self.begin(Operation::Open, self.inner.dir_path(dir), None)?;
        let outcome = self.inner.nr_dirs(dir);
        self.end(outcome)
    }

    fn open_file(&mut self, dir: DirId, name: &str) -> Result<FileId, KernError> {
        let path = self.inner.dir_path(dir).join(name);
        self.begin(Operation::Open, path.clone(), None)?;
        let outcome = self.inner.open_file(dir, name);
        if let Ok(file) = outcome {
            self.file_paths.insert(file.0, path);
            self.files_of.entry(dir.0).or_default().push(file.0);
        }
        self.end(outcome)
    }

    fn read(&mut self, file: FileId) -> Result<&[u8], KernError> {
        let path = self.file_paths.get(&file.0).cloned().unwrap_or_default();
        self.begin(Operation::Read, path, None)?;
        let outcome = self.inner.read(file);
        note(&mut self.calls, &outcome);
        outcome
    }

    fn read_once(&mut self, dir: DirId, name: &str) -> Result<&[u8], KernError> {
        self.begin(Operation::Read, self.inner.dir_path(dir).join(name), None)?;
        let outcome = self.inner.read_once(dir, name);
        note(&mut self.calls, &outcome);
        outcome
    }

    fn write(&mut self, dir: DirId, name: &str, value: &str) -> Result<(), KernError> {
        self.begin(Operation::Write, self.inner.dir_path(dir).join(name), Some(value))?;
        let outcome = self.inner.write(dir, name, value);
        self.end(outcome)
    }

    fn make_dir(&mut self, dir: DirId, name: &str) -> Result<(), KernError> {
        self.begin(Operation::MakeDir, self.inner.dir_path(dir).join(name), None)?;
        let outcome = self.inner.make_dir(dir, name);
        self.end(outcome)
    }

    fn remove_dir(&mut self, dir: DirId, name: &str) -> Result<(), KernError> {
        self.begin(Operation::RemoveDir, self.inner.dir_path(dir).join(name), None)?;
        let outcome = self.inner.remove_dir(dir, name);
        self.end(outcome)
    }

    fn lock_dir(&mut self, dir: DirId) -> Result<(), KernError> {
        self.begin(Operation::Lock, self.inner.dir_path(dir), None)?;
        let outcome = self.inner.lock_dir(dir);
        self.end(outcome)
    }

    fn clock(&self) -> Duration {
        self.inner.clock()
    }

    fn pause(&mut self, time: Duration) {
        self.inner.pause(time);
    }

    fn list_dirs(&mut self, dir: DirId) -> Result<Vec<OsString>, KernError> {
        self.begin(Operation::List, self.inner.dir_path(dir), None)?;
        let outcome = self.inner.list_dirs(dir);
        self.end(outcome)
    }
}
