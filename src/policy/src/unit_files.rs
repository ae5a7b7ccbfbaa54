//! Settings in the files of units: in the unit's own file, and in drop-ins of its administrator.
//!
//! Files that `systemctl set-property` made are left out, because tenantd makes such files itself.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::installed::UNIT_DIRS;
use tenantd_core::kernel_text::{text_of, text_of_path};

/// Most bytes of a file, and most drop-ins of a unit that are read.
const BYTES_MAX: u64 = 64 << 10;
const DROP_INS_MAX: usize = 64;
/// Directories of `systemctl set-property`.
const OF_PROPERTIES: &str = "system.control";

/// A setting in a file of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitSetting {
    /// Path of the file.
    pub file: String,
    /// Key, as in `CPUWeight`.
    pub key: String,
    /// Value.
    pub value: String,
}

/// Settings of a unit on this machine that are not empty, of the unit's file first.
pub(super) fn settings(unit: &str) -> Vec<UnitSetting> {
    let dirs = UNIT_DIRS.iter().map(Path::new);
    settings_in(dirs.filter(|dir| !dir.ends_with(OF_PROPERTIES)), unit)
}

fn settings_in<'p>(dirs: impl Iterator<Item = &'p Path> + Clone, unit: &str) -> Vec<UnitSetting> {
    let fragment = dirs.clone().map(|dir| dir.join(unit)).find(|path| path.is_file());
    let drop_ins = dirs.map(|dir| dir.join(format!("{unit}.d")));
    let drop_ins = drop_ins.flat_map(fs::read_dir).flatten().flatten().map(|entry| entry.path());
    let is_conf = |path: &PathBuf| path.extension().is_some_and(|it| it == "conf");
    let files = fragment.into_iter().chain(drop_ins.filter(is_conf).take(DROP_INS_MAX));
    files.flat_map(|path| settings_of(&path)).collect()
}

fn settings_of(path: &Path) -> Vec<UnitSetting> {
    let mut bytes = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(BYTES_MAX).read_to_end(&mut bytes));
    if read.is_err() {
        return Vec::new();
    }
    let setting = |line: &[u8]| {
        let text = text_of(line.trim_ascii());
        let (key, value) = text.split_once('=')?;
        let (key, value) = (key.trim_end(), value.trim_start());
        let is_key = key.bytes().all(|byte| byte.is_ascii_alphanumeric()) && !value.is_empty();
        is_key.then(|| UnitSetting {
            file: text_of_path(path),
            key: key.to_string(),
            value: value.to_string(),
        })
    };
    bytes.split(|byte| *byte == b'\n').filter_map(setting).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_come_from_the_file_of_a_unit_and_its_drop_ins() {
        let dir = tempfile::tempdir().unwrap();
        let (etc, lib) = (dir.path().join("etc"), dir.path().join("lib"));
        fs::create_dir_all(etc.join("web.service.d")).unwrap();
        fs::create_dir(&lib).unwrap();
        fs::write(lib.join("web.service"), "[Service]\nExecStart=/bin/true\nCPUWeight = 50\n")
            .unwrap();
        let drop_in = "# IOWeight=1\n[Service]\nIOWeight=500\nIOReadBandwidthMax=\n";
        fs::write(etc.join("web.service.d/io.conf"), drop_in).unwrap();
        fs::write(etc.join("web.service.d/io.conf~"), "IOWeight=7\n").unwrap();
        let found = settings_in([etc.as_path(), &lib].into_iter(), "web.service");
        let of = |it: &UnitSetting| format!("{}={}", it.key, it.value);
        let found: Vec<String> = found.iter().map(of).collect();
        assert_eq!(found, ["ExecStart=/bin/true", "CPUWeight=50", "IOWeight=500"]);
        // The first directory that has a unit decides.
        fs::write(etc.join("web.service"), "CPUWeight=20\n").unwrap();
        let found = settings_in([etc.as_path(), &lib].into_iter(), "web.service");
        assert_eq!(found.iter().map(of).next().as_deref(), Some("CPUWeight=20"));
        assert_eq!(settings_in([etc.as_path()].into_iter(), "none.service"), []);
    }
}
