//! Credit of tenants and groups, kept across a restart of the agent.
//!
//! Credit is a promise: a tenant that left CPU time to others gets it back, also from the next agent. So
//! `credits.json` in the state directory has the credit of each node by its path, with the wall-clock time. It is
//! written once a minute and at a stop. The next agent fades the credit by the time that passed. Credit of another
//! machine, and credit without a path in the policy, is dropped.
//!
//! The file is only a hint: unreadable entries are logged and ignored, and a start never depends on it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tracing::warn;

use tenantd_control::share::credit::{Account, Credit, Entry};
use tenantd_core::node::NodeId;
use tenantd_host::private;

const STORE_PERIOD: Duration = Duration::from_secs(60);
/// Half-lives after which credit is dropped.
const HALF_LIVES_MAX: u32 = 10;
const FILE: &str = "credits.json";
const MACHINE_ID: &str = "/etc/machine-id";

#[derive(Debug)]
pub(crate) struct CreditStore {
    /// File of this agent; `None` if it writes none.
    path: Option<PathBuf>,
    /// Time of the last writing, on the clock of the ticks.
    stored_at: Option<Duration>,
    /// Credit of an earlier agent whose nodes have not been seen yet.
    waiting: BTreeMap<String, Kept>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    machine_id: String,
    /// Seconds since the Unix epoch.
    unix_seconds: f64,
    credits: BTreeMap<String, Kept>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Kept {
    bank: f64,
    bank_seconds: f64,
    peak_cores: f64,
    step: f64,
    factor: f64,
}

impl Kept {
    fn of(credit: &Credit) -> Option<Kept> {
        let Account { bank, peak_cores, step, factor } = credit.account;
        let bank_seconds = credit.entry.bank_seconds;
        let kept = Kept { bank, bank_seconds, peak_cores, step, factor };
        (kept.is_valid() && credit.account != Account::default()).then_some(kept)
    }

    fn is_valid(&self) -> bool {
        let all = [self.bank, self.bank_seconds, self.peak_cores, self.step, self.factor];
        let ranges = self.peak_cores >= 0.0 && (0.0..=1.0).contains(&self.step);
        all.iter().all(|number| number.is_finite()) && ranges && self.factor >= 1.0
    }

    fn credit(&self) -> Credit {
        let Kept { bank, bank_seconds, peak_cores, step, factor } = *self;
        Credit {
            account: Account { bank, peak_cores, step, factor },
            entry: Entry { bank_seconds, ..Entry::default() },
            is_missed: false,
        }
    }
}

impl CreditStore {
    /// A store in `state_dir` with the credit of the earlier agent of that directory, or of `earlier`, faded until
    /// now.
    pub(crate) fn open(
        state_dir: Option<&Path>,
        earlier: Option<&Path>,
        half_life: Duration,
    ) -> CreditStore {
        let file = |dir: &Path| dir.join(FILE);
        let waiting = earlier.or(state_dir).map(|dir| load(&file(dir), half_life));
        let waiting = waiting.unwrap_or_default();
        CreditStore { path: state_dir.map(file), stored_at: None, waiting }
    }

    /// Credit of an earlier agent for these nodes with their paths, once.
    pub(crate) fn take<'a>(
        &mut self,
        nodes: impl Iterator<Item = (NodeId, &'a str)>,
    ) -> Vec<(NodeId, Credit)> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        nodes.filter_map(|(id, path)| Some((id, self.waiting.remove(path)?.credit()))).collect()
    }

    /// Drops the credit of an earlier agent that no node has taken.
    pub(crate) fn drop_waiting(&mut self) {
        self.waiting.clear();
    }

    /// Stores `credits` once a minute; `now` is the time of the tick. Until then tenants that are found late can
    /// take theirs.
    pub(crate) fn keep<'a>(
        &mut self,
        now: Duration,
        credits: impl Iterator<Item = (&'a str, &'a Credit)>,
    ) -> io::Result<()> {
        let begin = *self.stored_at.get_or_insert(now);
        if now.saturating_sub(begin) < STORE_PERIOD {
            return Ok(());
        }
        self.drop_waiting();
        self.stored_at = Some(now);
        self.store(credits)
    }

    /// Stores `credits`. On an error the old file stays.
    pub(crate) fn store<'a>(
        &self,
        credits: impl Iterator<Item = (&'a str, &'a Credit)>,
    ) -> io::Result<()> {
        // In mode observe nothing makes the directory.
        let is_there = |path: &&PathBuf| path.parent().is_some_and(Path::is_dir);
        let Some(path) = self.path.as_ref().filter(is_there) else { return Ok(()) };
        let mut all = self.waiting.clone();
        all.extend(credits.filter_map(|(path, it)| Some((path.to_string(), Kept::of(it)?))));
        let (machine_id, unix_seconds) = (machine_id(), unix_seconds());
        let record = Record { machine_id, unix_seconds, credits: all };
        private::replace(path, &serde_json::to_vec(&record)?)
    }
}

fn load(path: &Path, half_life: Duration) -> BTreeMap<String, Kept> {
    match read(path, half_life) {
        Ok(credits) => credits,
        Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
        Err(error) => {
            warn!("the credit of tenants is lost: {}: {error}", path.display());
            BTreeMap::new()
        }
    }
}

fn read(path: &Path, half_life: Duration) -> io::Result<BTreeMap<String, Kept>> {
    let record: Record = serde_json::from_slice(&fs::read(path)?)?;
    let elapsed = Duration::try_from_secs_f64(unix_seconds() - record.unix_seconds);
    // The clock was set back: nothing fades.
    let elapsed = elapsed.unwrap_or_default();
    if record.machine_id != machine_id() || elapsed > half_life * HALF_LIVES_MAX {
        return Ok(BTreeMap::new());
    }
    let (valid, invalid): (BTreeMap<_, _>, BTreeMap<_, _>) =
        record.credits.into_iter().partition(|(_, kept)| kept.is_valid());
    if !invalid.is_empty() {
        let names: Vec<&str> = invalid.keys().map(String::as_str).collect();
        warn!("the credit of {} is lost: {}", names.join(", "), path.display());
    }
    let fade = |(path, kept): (String, Kept)| {
        let mut credit = kept.credit();
        credit.fade(elapsed, half_life);
        Some((path, Kept::of(&credit)?))
    };
    Ok(valid.into_iter().filter_map(fade).collect())
}

/// Wall-clock time since 1970.
pub(crate) fn unix_seconds() -> f64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs_f64()
}

/// Identity of the machine; empty without one.
fn machine_id() -> String {
    let bytes = fs::read(MACHINE_ID).unwrap_or_default();
    bytes.into_iter().filter(u8::is_ascii_alphanumeric).map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF_LIFE: Duration = Duration::from_secs(600);

    fn credit(bank: f64, factor: f64) -> Credit {
        let account = Account { bank, peak_cores: 2.0, step: 1.0, factor };
        let entry = Entry { bank_seconds: 2.0 * bank, ..Entry::default() };
        Credit { account, entry, is_missed: false }
    }

    fn open(state: &Path) -> CreditStore {
        CreditStore::open(Some(state), None, HALF_LIFE)
    }

    fn loaded(state: &Path, paths: &[&str]) -> Vec<(NodeId, Credit)> {
        open(state).take(NodeId::first().zip(paths.iter().copied()))
    }

    fn aged(state: &Path, seconds: f64) {
        let path = state.join("credits.json");
        let mut record: Record = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        record.unix_seconds -= seconds;
        fs::write(&path, serde_json::to_vec(&record).unwrap()).unwrap();
    }

    #[test]
    fn credit_is_kept_by_path_and_fades_meanwhile() {
        let state = tempfile::tempdir().unwrap();
        let store = open(state.path());
        assert!(loaded(state.path(), &["web"]).is_empty());
        let (rich, poor) = (credit(8.0, 12.0), credit(-1.0, 1.0));
        let all = [("web", rich), ("ci/a", poor), ("new", Credit::default())];
        store.store(all.iter().map(|(path, credit)| (*path, credit))).unwrap();
        let ids: Vec<NodeId> = NodeId::first().take(3).collect();
        let [(first, web), (third, ci)] = loaded(state.path(), &["web", "x", "ci/a", "new"])[..]
        else {
            panic!("{store:?}");
        };
        assert_eq!((first, third), (ids[0], ids[2]));
        assert!((web.account.bank - 8.0).abs() < 0.08 && web.account.factor == 12.0, "{web:?}");
        assert_eq!(ci.account.bank, -1.0);
        for (seconds, bank) in [(600.0, 4.0), (600.0, 2.0), (-9000.0, 8.0)] {
            aged(state.path(), seconds);
            let web = loaded(state.path(), &["web"])[0].1;
            assert!((web.account.bank - bank).abs() < 0.01 * bank, "{web:?}");
            assert!((web.entry.bank_seconds - 2.0 * bank).abs() < 0.02 * bank, "{web:?}");
        }
        aged(state.path(), 16_000.0);
        assert!(loaded(state.path(), &["web"]).is_empty(), "ten half-lives");
    }

    #[test]
    fn credit_waits_for_its_node_until_the_first_writing() {
        let state = tempfile::tempdir().unwrap();
        let store = open(state.path());
        let credit = credit(8.0, 2.0);
        store.store([("late", &credit), ("gone", &credit)].into_iter()).unwrap();
        let mut store = open(state.path());
        let at = Duration::from_secs;
        let none = || std::iter::empty();
        store.keep(at(5), none()).unwrap();
        assert_eq!(store.take(NodeId::first().zip(["a", "late"])).len(), 1);
        assert!(store.take(NodeId::first().zip(["a", "late"])).is_empty());
        store.keep(at(64), none()).unwrap();
        assert_eq!(store.waiting.len(), 1);
        store.keep(at(65), none()).unwrap();
        assert!(loaded(state.path(), &["gone"]).is_empty());
    }

    #[test]
    fn damaged_and_foreign_files_are_passed_over() {
        let state = tempfile::tempdir().unwrap();
        let valid = r#"{"bank":1,"bank_seconds":2,"peak_cores":1,"step":0.5,"factor":2}"#;
        let text = |machine: &str, kept: &str| {
            let now = unix_seconds();
            format!(r#"{{"machine_id":"{machine}","unix_seconds":{now},"credits":{{"a":{kept}}}}}"#)
        };
        let own = machine_id();
        let cases = [
            (String::new(), 0),
            ("{".into(), 0),
            ("[]".into(), 0),
            ("\0\u{1}".into(), 0),
            (text(&own, valid), 1),
            (text("another", valid), 0),
            (text(&own, "{}"), 0),
            (text(&own, &valid.replace(":0.5", ":7")), 0),
            (text(&own, &valid.replace("\"factor\":2", "\"factor\":0.5")), 0),
            (text(&own, &valid.replace("\"peak_cores\":1", "\"peak_cores\":-1")), 0),
            (text(&own, &valid.replace("\"bank\":1", "\"bank\":1e999")), 0),
        ];
        for (text, nr) in cases {
            fs::write(state.path().join("credits.json"), &text).unwrap();
            assert_eq!(loaded(state.path(), &["a"]).len(), nr, "{text}");
        }
    }
}
