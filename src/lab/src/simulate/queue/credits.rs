//! Credit of the tenants of a scenario: the rule of the host, with workers in place of CPUs.
//!
//! A request that waits is a thread that waits for a CPU, so a tenant wants as many workers as it has requests. Weights
//! are never raised; a bank is spent on early starts only, and by use beyond the fair share while others wait.

use tenantd_control::share::credit::{self, Account, Conduct, Standing, Tick};
use tenantd_policy::model::CreditsPolicy;
use tenantd_queue::simulation::State;
use tenantd_queue::{Machine, TenantId};

/// Seconds between two settlements, as on a host by default.
const INTERVAL: f64 = 1.0;
/// Most settlements of a run; a longer one settles less often.
const SETTLEMENTS_MAX: f64 = 100_000.0;

/// Credit of one tenant at the end, in seconds of the whole machine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Credit {
    pub(super) bank: f64,
    /// All fees for early starts.
    pub(super) fees: f64,
}

/// The accounts of all tenants.
#[derive(Debug)]
pub(super) struct Accounts {
    terms: CreditsPolicy,
    machine: Machine,
    interval: f64,
    standings: Vec<Standing>,
    is_endless: Vec<bool>,
    accounts: Vec<Account>,
    fees: Vec<f64>,
    /// Service at the last settlement.
    served: Vec<f64>,
    /// Since the last settlement: seconds of waiting, and workers wanted, times seconds.
    waited: Vec<f64>,
    wanted: Vec<f64>,
    settled: f64,
    seen: f64,
}

impl Accounts {
    /// Accounts of tenants that are always backlogged or not, with these rates of cost units if all are.
    pub(super) fn new(
        terms: CreditsPolicy,
        machine: Machine,
        rates: &[f64],
        is_endless: Vec<bool>,
        horizon: f64,
    ) -> Accounts {
        let standing = |rate: &f64| Standing {
            parent: None,
            share_cores: rate / machine.rate,
            promise_cores: 0.0,
            limit_cores: f64::INFINITY,
        };
        let nothing = vec![0.0; rates.len()];
        Accounts {
            terms,
            machine,
            interval: INTERVAL.max(horizon / SETTLEMENTS_MAX),
            standings: rates.iter().map(standing).collect(),
            is_endless,
            accounts: vec![Account::default(); rates.len()],
            fees: nothing.clone(),
            served: nothing.clone(),
            waited: nothing.clone(),
            wanted: nothing,
            settled: 0.0,
            seen: 0.0,
        }
    }

    pub(super) fn next(&self) -> f64 {
        self.settled + self.interval
    }

    /// Adds the time since the last call, in which `state` did not change.
    pub(super) fn pass(&mut self, time: f64, state: &State) {
        let (elapsed, workers) = (time - self.seen, f64::from(self.machine.workers));
        self.seen = time;
        for tenant in 0..self.standings.len() {
            let (waiting, running) = state.requests(TenantId(tenant as u32));
            let (waits, requests) = (waiting > 0, f64::from(waiting) + f64::from(running));
            let has_more = waits && self.is_endless[tenant];
            let wanted = if has_more { workers } else { requests.min(workers) };
            self.waited[tenant] += if waits { elapsed } else { 0.0 };
            self.wanted[tenant] += wanted * elapsed;
        }
    }

    /// Settles all accounts by the `services` so far. Returns the banks in cost units.
    pub(super) fn settle(&mut self, time: f64, services: &[f64]) -> Vec<f64> {
        let seconds = time - self.settled;
        let conduct = |tenant: usize| Conduct {
            used_cores: (services[tenant] - self.served[tenant]) / self.machine.rate / seconds,
            wanted_cores: self.wanted[tenant] / seconds,
            waited: (self.waited[tenant] / seconds).min(1.0),
            ..Conduct::default()
        };
        let conducts: Vec<Conduct> = (0..self.standings.len()).map(conduct).collect();
        let cores = f64::from(self.machine.workers);
        let tick = Tick { cores, seconds, earning_seconds: seconds };
        credit::tick(&self.standings, &conducts, &tick, &self.terms, &mut self.accounts);
        for account in &mut self.accounts {
            (account.step, account.factor) = (0.0, 1.0);
        }
        self.waited.fill(0.0);
        self.wanted.fill(0.0);
        self.served.copy_from_slice(services);
        self.settled = time;
        let speed = self.machine.speed();
        self.accounts.iter().map(|account| account.bank.max(0.0) * speed).collect()
    }

    /// Takes a fee in cost units.
    pub(super) fn pay(&mut self, tenant: TenantId, fee: f64) {
        let (at, seconds) = (tenant.0 as usize, fee / self.machine.speed());
        self.accounts[at].bank = (self.accounts[at].bank - seconds).max(0.0);
        self.fees[at] += seconds;
    }

    pub(super) fn credits(&self) -> impl Iterator<Item = Credit> {
        let each = self.accounts.iter().zip(&self.fees);
        each.map(|(account, fees)| Credit { bank: account.bank, fees: *fees })
    }
}
