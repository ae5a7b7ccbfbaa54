//! Placement of tenants, kept across a restart of the agent.
//!
//! A stop restores every file, and the next start would place all tenants anew, probably far from their warm
//! caches and memory. So `placement.json` in the state directory has the CPU list of each tenant by name. It is
//! only a hint: unreadable entries, and those with a missing CPU, are logged and ignored, and a start never
//! depends on it.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tracing::warn;

use tenantd_dop::CpuSet;
use tenantd_host::private;

#[derive(Debug)]
pub(crate) struct PlacementStore {
    path: PathBuf,
    kept: HashMap<String, CpuSet>,
}

impl PlacementStore {
    pub(crate) fn new(state_dir: &Path) -> PlacementStore {
        PlacementStore { path: state_dir.join("placement.json"), kept: HashMap::new() }
    }

    /// CPU sets of an earlier agent that are within `usable`.
    pub(crate) fn load(&self, usable: &CpuSet) -> BTreeMap<String, CpuSet> {
        match self.read() {
            Ok(lists) => {
                let (fit, unfit): (BTreeMap<_, _>, BTreeMap<_, _>) = lists
                    .into_iter()
                    .partition(|(_, cpus)| !cpus.is_empty() && cpus.is_subset(usable));
                if !unfit.is_empty() {
                    let names: Vec<&str> = unfit.keys().map(String::as_str).collect();
                    warn!(
                        tenants = names.join(" "),
                        "some CPUs of the last placement are not there any more: placed anew"
                    );
                }
                fit
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => {
                warn!("the last placement is ignored: {}: {error}", self.path.display());
                BTreeMap::new()
            }
        }
    }

    fn read(&self) -> io::Result<BTreeMap<String, CpuSet>> {
        let lists: BTreeMap<String, String> = serde_json::from_slice(&fs::read(&self.path)?)?;
        let parse = |(name, list): (String, String)| match list.parse() {
            Ok(cpus) => Ok((name, cpus)),
            Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        };
        lists.into_iter().map(parse).collect()
    }

    /// Writes `placed` (names and their sets), unless the file has the same contents. On an error the old file
    /// stays.
    pub(crate) fn keep<'a>(
        &mut self,
        placed: impl Iterator<Item = (&'a str, &'a CpuSet)> + Clone,
    ) -> io::Result<()> {
        if placed.clone().all(|(name, cpus)| self.kept.get(name) == Some(cpus)) {
            return Ok(());
        }
        let lists: BTreeMap<&str, String> =
            placed.clone().map(|(name, cpus)| (name, cpus.to_string())).collect();
        private::replace(&self.path, &serde_json::to_vec(&lists)?)?;
        self.kept = placed.map(|(name, cpus)| (name.to_string(), cpus.clone())).collect();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    fn keep(store: &mut PlacementStore, placed: &[(&str, CpuSet)]) {
        store.keep(placed.iter().map(|(name, cpus)| (*name, cpus))).unwrap();
    }

    #[test]
    fn kept_cpus_are_restored_as_far_as_they_fit() {
        let state = tempfile::tempdir().unwrap();
        let mut store = PlacementStore::new(state.path());
        assert!(store.load(&set("0-7")).is_empty());
        keep(&mut store, &[("web", set("0-3")), ("ci/nightly", set("4,6"))]);
        let text = fs::read_to_string(state.path().join("placement.json")).unwrap();
        assert_eq!(text, r#"{"ci/nightly":"4,6","web":"0-3"}"#);
        assert_eq!(store.load(&set("0-7")).len(), 2);
        let loaded = store.load(&set("0-5"));
        assert_eq!(loaded.into_iter().collect::<Vec<_>>(), [("web".to_string(), set("0-3"))]);
    }

    #[test]
    fn only_a_change_is_written() {
        let state = tempfile::tempdir().unwrap();
        let mut store = PlacementStore::new(state.path());
        keep(&mut store, &[("web", set("0-3"))]);
        fs::remove_file(state.path().join("placement.json")).unwrap();
        keep(&mut store, &[("web", set("0-3"))]);
        assert!(store.load(&set("0-7")).is_empty());
        keep(&mut store, &[("web", set("0-4"))]);
        assert_eq!(store.load(&set("0-7")).len(), 1);
    }

    #[test]
    fn a_damaged_file_is_passed_over() {
        let state = tempfile::tempdir().unwrap();
        let store = PlacementStore::new(state.path());
        for text in ["", "{", "[]", r#"{"web":"x"}"#, r#"{"web":3}"#, r#"{"web":""}"#, "\u{0}\u{1}"]
        {
            fs::write(state.path().join("placement.json"), text).unwrap();
            assert!(store.load(&set("0-7")).is_empty(), "{text}");
        }
    }
}
