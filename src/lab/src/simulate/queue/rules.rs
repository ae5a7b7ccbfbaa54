//! Rules about keys together: each key of a scenario is obeyed or refused, never ignored.

use super::codes;
use super::read::{Charging, File, Scenarios};
use super::scenario::Named;
use tenantd_policy::key::Fields;
use tenantd_policy::tree::Node;
use tenantd_queue::discipline::Name;
use tenantd_queue::simulation::Charge;
use tenantd_queue::virtual_time::Method;

impl Named {
    /// True if it keeps running requests within a capacity.
    pub(super) fn has_capacity(self) -> bool {
        matches!(self, Named::Queue(Name::Drf | Name::Fifo))
    }

    fn estimates(self) -> bool {
        matches!(self, Named::Queue(Name::WfqE | Name::Wf2qE | Name::TwoDfqE))
    }

    fn can_reserve(self) -> bool {
        !matches!(self, Named::Gps | Named::Queue(Name::Drf | Name::Multilevel))
    }
}

impl Scenarios<'_> {
    /// Refuses keys that the discipline ignores.
    pub(super) fn check_keys(&mut self, file: &File, fields: &Fields<'_, File>) {
        let Some(named) = file.discipline else { return };
        let is_gps = named == Named::Gps;
        let rules = [
            ("capacity", named.has_capacity(), "only `drf` and `fifo` obey a capacity"),
            ("defaults", fields.get("capacity").is_some(), "there is no `capacity` to hold of"),
            ("charge", named.estimates(), "only disciplines that estimate costs charge later"),
            ("reserve", named.can_reserve(), "`gps`, `drf` and `multilevel` reserve no workers"),
            (
                "splits",
                named == Named::Queue(Name::Multilevel),
                "only `multilevel` has splits of tasks",
            ),
            ("jobs", !is_gps, "`gps` is the ideal of single requests"),
        ];
        for (key, is_obeyed, message) in rules {
            self.unless(is_obeyed, fields, key, message);
        }
        let is_estimated_gps = file.virtual_time == Some(Method::Gps) && named.estimates();
        let message = "GPS cannot be followed without knowing costs";
        self.unless(!is_estimated_gps, fields, "virtual_time", message);
        let workers = file.workers.unwrap_or(u32::MAX);
        let is_more = file.reserve.workers.is_some_and(|reserved| reserved > u64::from(workers));
        self.unless(!is_more, fields, "reserve", "more workers are reserved than there are");
    }

    /// Reports a key that is given unless `is_right`.
    pub(super) fn unless<M>(
        &mut self,
        is_right: bool,
        fields: &Fields<'_, M>,
        key: &str,
        message: &str,
    ) {
        if let Some(entry) = fields.get(key).filter(|_| !is_right) {
            let help = format!("leave `{key}` out");
            self.reader.find(&codes::CONFLICT, &entry.value, message, help);
        }
    }

    /// Times at which running requests are charged.
    pub(super) fn charge(&mut self, file: &File, fields: &Fields<'_, File>) -> Charge {
        let is_refreshed = file.charge.is_none_or(|charging| charging == Charging::Refresh);
        self.unless(is_refreshed, fields, "refresh", "`charge` says not to refresh");
        match (file.charge, file.refresh) {
            (Some(Charging::Timer), _) => Charge::Timer,
            (Some(Charging::End), _) | (None, None) => Charge::End,
            (_, Some(period)) => Charge::Refresh(period),
            (Some(Charging::Refresh), None) => {
                self.unless(false, fields, "charge", "`refresh` does not say how often");
                Charge::End
            }
        }
    }

    /// Checks that periods are long enough, and that there are tenants.
    pub(super) fn check_work(&mut self, file: &File, fields: &Fields<'_, File>, tree: &Node) {
        if self.tenants.is_empty() && !self.reader.report.has_errors() {
            let help = "name them under `tenants`, `backlogged` or `generators`";
            let start = tree.start as usize;
            let mut place = self.reader.place(tree);
            place.span = start..start + 1;
            let finding = codes::MISSING_KEY.at(&place, "there are no tenants", "");
            self.reader.report.push(finding.help(help));
        }
        for (key, period) in
            [("refresh", file.refresh), ("sample", file.sample), ("quantum", file.quantum)]
        {
            if let (Some(period), Some(entry)) = (period, fields.get(key))
                && file.horizon / period > 1e7
            {
                let help = "at most ten million times before the horizon";
                let message = format!("`{key}` is too short");
                self.reader.find(&codes::TOO_LONG, &entry.value, message, help);
            }
        }
    }
}
