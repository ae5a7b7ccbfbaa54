//! Scenario of the demo: three tenants, their demands in each half, and their policy.

use crate::demo::load::Want;
use tenantd_core::resource::{PerResource, Resource};
use tenantd_core::units::{Bytes, Weight};
use tenantd_policy::model::{Amount, Mode, Policy, Tenant};

/// Memory of the demo's tenants; they cannot use the rest of the machine.
pub(crate) const MEMORY: Bytes = Bytes::mib(512);

pub(crate) const TENANTS: [(&str, f64); 3] = [("batch", 1.0), ("cache", 2.0), ("web", 4.0)];

/// Index of the tenant that depends on its file cache, if memory is contended.
pub(crate) const CACHE: usize = 1;

const HOT: Bytes = Bytes::mib(64);

/// Memory limit of the scanning tenant: less than its share of the memory, so that the CPU remains its
/// dominant resource.
const SCAN_LIMIT: Bytes = Bytes::mib(48);

/// File size of the scanning tenant: more than all tenants' memory.
const SCAN: u64 = 2 * MEMORY.0;

/// Memory of a load without competition, within its limit in the policy.
pub(crate) fn wanted_memory(want: &Want) -> u64 {
    let files = want.hot_bytes + want.scan_bytes;
    match want.scan_bytes {
        0 => want.memory_bytes + files,
        _ => (want.memory_bytes + files).min(SCAN_LIMIT.0),
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Half {
    pub(crate) title: &'static str,
    /// Demands in the order of [`TENANTS`].
    pub(crate) wants: [Want; 3],
}

pub(crate) fn halves(cpus: u32, contended: bool) -> [Half; 2] {
    let (hot, scan) = if contended { (HOT.0, SCAN) } else { (0, 0) };
    let hungry = |memory: u64, threads: u32| Want {
        threads: hungry_threads(cpus) * threads,
        memory_bytes: memory,
        ..Want::default()
    };
    let light = |memory: u64| Want {
        threads: 1,
        duty: (0.1 * f64::from(cpus)).min(0.5),
        memory_bytes: memory,
        ..Want::default()
    };
    let (small, some, most) = (8 << 20, MEMORY.0 / 16, MEMORY.0 / 4);
    // Without an agent, twice the threads get twice the CPU time.
    let batch = Want { scan_bytes: scan, ..hungry(small, 2) };
    let cache = |want: Want| Want { hot_bytes: hot, ..want };
    [
        Half {
            title: "batch and web want all CPUs, cache a little",
            wants: [batch, cache(light(most)), hungry(some, 1)],
        },
        Half {
            title: "now cache wants all CPUs too, and web a little",
            wants: [batch, cache(hungry(most, 1)), light(some)],
        },
    ]
}

/// Threads of a tenant that wants every CPU, on a machine with `cpus` of them.
///
/// The kernel balances threads over CPUs by weight, to within a quarter or so, and two threads of one
/// tenant on one CPU leave the other CPU to other tenants. Few CPUs need several threads each, so that the
/// indivisible unit stays small.
fn hungry_threads(cpus: u32) -> u32 {
    cpus.max((4 * cpus).min(32))
}

pub(crate) fn policy(memory_total_bytes: u64, contended: bool) -> Policy {
    let tenant = |(name, weight): (&str, f64)| {
        let weight = Weight::try_new(weight).unwrap_or_default();
        Tenant { name: name.to_string(), weight: PerResource::all(weight), ..Tenant::default() }
    };
    let mut policy =
        Policy { mode: Mode::Enforce, tenants: TENANTS.map(tenant).to_vec(), ..Policy::default() };
    policy.control.trim = true;
    let reserve = memory_total_bytes.saturating_sub(MEMORY.0);
    policy.host.reserve[Resource::Memory] = Amount::Absolute(reserve);
    if contended {
        // On a unified hierarchy the guarantee alone would be enough; a legacy one has no protection below
        // a limit.
        policy.tenants[0].limit[Resource::Memory] = Some(Amount::Absolute(SCAN_LIMIT.0));
        let guarantee = MEMORY.0 / 4 + HOT.0 + HOT.0 / 2;
        policy.tenants[CACHE].guarantee[Resource::Memory] = Some(Amount::Absolute(guarantee));
    }
    policy
}
