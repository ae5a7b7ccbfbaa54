//! The jobs of a scenario: sets of requests that wait for each other.

use super::codes::{CONFLICT, COUNT_MAX, NAME, TOO_LONG};
use super::hosted;
use super::keys::JobKeys;
use super::reading::{Reading, items};
use super::scenario::Job;
use tenantd_policy::file::Refusal;
use tenantd_policy::hint::{nearest, shortened};
use tenantd_policy::tree::Node;
use tenantd_queue::operations::Plan;

impl Reading {
    /// The jobs; each waits for earlier ones only, so none waits for itself.
    pub(super) fn jobs(&mut self, all: Vec<JobKeys>, tree: &Node) -> Result<Vec<Job>, Refusal> {
        let mut jobs: Vec<Job> = Vec::with_capacity(all.len());
        for ((index, keys), item) in all.into_iter().enumerate().zip(items(tree, "jobs")) {
            let span = |key: &str| item.get(key).map_or(item.span(), |entry| entry.value.span());
            if let Some(name) = &keys.name
                && jobs.iter().any(|job| job.name == *name)
            {
                let message = format!("there are two jobs `{}`", shortened(name));
                return Err(Refusal::new(NAME, span("name"), message));
            }
            let tenant = self.tenant(&keys.tenant, span("tenant"))?;
            if self.tenants[tenant.0 as usize].terms.endless {
                let message = "a backlogged tenant has no jobs of its own";
                return Err(Refusal::new(CONFLICT, item.span(), message));
            }
            let grace = self.tenants[tenant.0 as usize].grace;
            let grace = hosted::grace((keys.requeue, keys.grace), grace, item)?;
            let count = keys.count.map_or(1, |count| count.0);
            let at = keys.at.map_or(0.0, |at| at.0);
            let after = earlier(&keys.after, items(item, "after"), &jobs)?;
            let at_once = keys.at_once.map(|most| u32::try_from(most.0).unwrap_or(u32::MAX));
            let plan = Plan { count, at, after, at_once };
            let name = keys.name.unwrap_or_else(|| (index + 1).to_string());
            jobs.push(Job { name, tenant, cost: keys.cost.0, grace, plan });
        }
        let count: u64 = jobs.iter().map(|job| job.plan.count).sum();
        match tree.get("jobs").filter(|_| count > COUNT_MAX) {
            Some(entry) => {
                let message = format!("more than {COUNT_MAX} requests of jobs");
                Err(Refusal::new(TOO_LONG, entry.value.span(), message).help("smaller counts"))
            }
            None => Ok(jobs),
        }
    }
}

/// The places of the jobs that a list names, each once.
fn earlier(names: &[String], items: &[Node], jobs: &[Job]) -> Result<Vec<usize>, Refusal> {
    let mut places = Vec::new();
    for (name, item) in names.iter().zip(items) {
        let Some(place) = jobs.iter().position(|job| job.name == *name) else {
            let near = nearest(name, jobs.iter().map(|job| job.name.as_str()));
            let near = near.map(|near| format!("did you mean `{near}`?"));
            let message = format!("there is no earlier job `{}`", shortened(name));
            let help = near.unwrap_or("jobs wait for jobs above them".to_string());
            return Err(Refusal::new(NAME, item.span(), message).help(help));
        };
        if !places.contains(&place) {
            places.push(place);
        }
    }
    Ok(places)
}
