//! Disks of a simulated host: their schedulers.

use tenantd_sim::Divider;

pub(crate) const WEIGH: &str = "host: { disks: weigh }\n";
pub(crate) const BFQ: Divider = Divider {
    is_bfq: true,
    is_none: false,
    has_cost: false,
    is_strict: false,
    is_void: false,
    nr_choices: 0,
};
pub(crate) const COST: Divider = Divider { has_cost: true, is_bfq: false, ..BFQ };
pub(crate) const DEADLINE: Divider = Divider { is_bfq: false, ..BFQ };
