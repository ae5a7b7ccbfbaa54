//! A file of the state directory for later agents of the same boot.
//!
//! It is only a hint: unreadable contents, and those of another boot, are ignored.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tracing::warn;

use tenantd_host::private;

#[derive(Debug)]
pub(crate) struct BootFile {
    path: PathBuf,
    boot_id: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Record<T> {
    boot_id: String,
    #[serde(flatten)]
    content: T,
}

impl BootFile {
    pub(crate) fn new(state_dir: &Path, name: &str, boot_id: &str) -> BootFile {
        BootFile { path: state_dir.join(name), boot_id: boot_id.to_string() }
    }

    /// Returns its contents if they are of this boot.
    pub(crate) fn load<T: DeserializeOwned + Default>(&self) -> T {
        let content = self.try_load().unwrap_or_else(|error| {
            warn!("{} is ignored: {error}", self.path.display());
            None
        });
        content.unwrap_or_default()
    }

    /// Returns its contents, or `None` if there is no such file of this boot. Fails if it is unreadable.
    pub(crate) fn try_load<T: DeserializeOwned>(&self) -> io::Result<Option<T>> {
        match self.read::<T>() {
            Ok(record) if record.boot_id == self.boot_id => Ok(Some(record.content)),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read<T: DeserializeOwned>(&self) -> io::Result<Record<T>> {
        Ok(serde_json::from_slice(&fs::read(&self.path)?)?)
    }

    pub(crate) fn write(&self, content: &impl Serialize) -> io::Result<()> {
        let record = Record { boot_id: self.boot_id.clone(), content };
        private::replace(&self.path, &serde_json::to_vec(&record)?)
    }

    pub(crate) fn remove(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}
