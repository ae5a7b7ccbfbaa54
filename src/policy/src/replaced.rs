//! Notes on settings in the files of units that tenantd replaces.
//!
//! `CPUWeight=` in the file of a unit is the value from before tenantd. While tenantd runs, the policy decides, and the line
//! still reads as if it counted.

use super::facts::HostFacts;
use super::hint::shortened;
use super::nodes::Node;
use super::notes::note;
use super::read::Draft;
use super::report::Report;
use super::rules;
use super::tree::Place;
use super::unit_files::UnitSetting;
use tenantd_core::disk_rate::DiskRate;

/// Notes on settings of units that are tenants.
pub(super) fn check(draft: &Draft, nodes: &[Node<'_>], host: &HostFacts, report: &mut Report) {
    let mut found: Vec<(&Place, String)> = Vec::new();
    for node in nodes.iter().filter(|node| !node.is_template()) {
        let units = node.tenant.matches.units.iter().zip(node.given.items("match.unit"));
        for (unit, place) in units {
            let settings = (host.unit_settings)(unit).into_iter();
            for setting in settings.filter(|it| is_replaced(draft, node, &it.key)) {
                let UnitSetting { file, key, value } = setting;
                let what = if key.ends_with("Weight") { "weight" } else { "limit" };
                let message = format!(
                    "`{}` has {}={} in {}, and the {what} of `{}` in this policy replaces it",
                    shortened(unit),
                    shortened(&key),
                    shortened(&value),
                    file,
                    node.path
                );
                found.push((place, message));
            }
        }
    }
    let help = "remove the line if the policy decides; it counts again when tenantd stops";
    note(&rules::REPLACED_SETTING, &found, help, report);
}

/// True if tenantd writes the property of this key for a tenant.
fn is_replaced(draft: &Draft, node: &Node<'_>, key: &str) -> bool {
    let limits = |rate| node.tenant.limit.disk[rate].is_some();
    match key {
        "CPUWeight" => true,
        "IOWeight" => draft.policy.host.disks.weighs(),
        "IOReadBandwidthMax" => limits(DiskRate::Read),
        "IOWriteBandwidthMax" => limits(DiskRate::Write),
        "IOReadIOPSMax" => limits(DiskRate::ReadIops),
        "IOWriteIOPSMax" => limits(DiskRate::WriteIops),
        _ => false,
    }
}
