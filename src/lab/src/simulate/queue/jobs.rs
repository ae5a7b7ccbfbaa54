//! The jobs of a scenario: sets of requests that wait for each other.

use super::codes::{self, Allowed, Whole};
use super::read::Scenarios;
use super::scenario::Job;
use tenantd_policy::forms::Structure;
use tenantd_policy::hint::{nearest, shortened};
use tenantd_policy::key::Flag::Needed;
use tenantd_policy::key::section;
use tenantd_policy::tree::Node;
use tenantd_queue::operations::Plan;

section! {
    /// A job.
    struct JobKeys, JOB {
        /// Its name; its number from 1 where it has none.
        "name" => name: (), Structure;
        /// Its tenant.
        "tenant" => tenant: (), Structure, [Needed("say whose it is: `tenant: A`")];
        /// Cost of each of its requests.
        "cost" => cost: Option<f64>, Allowed::NOT_NEGATIVE, [Needed("say what a request costs: `cost: 1`")];
        /// Number of its requests.
        "count" => count: u64 = 1, Whole::COUNT;
        /// Earliest time at which it is sent.
        "at" => at: f64, Allowed::NOT_NEGATIVE;
        /// The earlier jobs that have to end first.
        "after" => after: (), Structure;
    }
}

impl Scenarios<'_> {
    /// Reads the jobs; each waits for earlier ones only, so none waits for itself.
    pub(super) fn jobs(&mut self, node: &Node, is_open: bool) -> Vec<Job> {
        let mut jobs: Vec<Job> = Vec::new();
        let mut count = 0;
        let expected = "a list such as `[{ name: map, tenant: A, cost: 2, count: 10 }]`";
        for (index, item) in self.reader.list(node, expected).iter().enumerate() {
            let Some(fields) = self.reader.fields(JOB, item) else { continue };
            let mut keys = JobKeys::default();
            self.reader.values(&fields, &mut keys);
            let name = fields.get("name").and_then(|name| {
                let text = self.reader.text(&name.value, "a name")?.to_string();
                if jobs.iter().any(|job| job.name == text) {
                    let message = format!("there are two jobs `{}`", shortened(&text));
                    self.reader.find(&codes::NAME, &name.value, message, "");
                }
                Some(text)
            });
            let tenant =
                fields.get("tenant").and_then(|tenant| self.tenant(&tenant.value, is_open));
            let after = fields.get("after").map_or(Vec::new(), |it| self.earlier(&it.value, &jobs));
            count += keys.count;
            let Some(tenant) = tenant else { continue };
            if self.tenants[tenant.0 as usize].terms.endless {
                let message = "a backlogged tenant has no jobs of its own";
                self.reader.find(&codes::CONFLICT, item, message, "");
            }
            jobs.push(Job {
                name: name.unwrap_or_else(|| (index + 1).to_string()),
                tenant,
                cost: keys.cost.unwrap_or(1.0),
                plan: Plan { count: keys.count, at: keys.at, after },
            });
        }
        if count > Whole::COUNT.range.1 {
            let message = format!("more than {} requests of jobs", Whole::COUNT.range.1);
            self.reader.find(&codes::TOO_LONG, node, message, "smaller counts");
        }
        jobs
    }

    /// The places of the jobs that a list names, each once.
    fn earlier(&mut self, node: &Node, jobs: &[Job]) -> Vec<usize> {
        let mut places = Vec::new();
        for item in self.reader.list(node, "a list of names of jobs") {
            let Some(name) = self.reader.text(item, "the name of a job") else { continue };
            match jobs.iter().position(|job| job.name == name) {
                Some(place) if places.contains(&place) => {}
                Some(place) => places.push(place),
                None => {
                    let near = nearest(name, jobs.iter().map(|job| job.name.as_str()));
                    let help = near.map_or("jobs wait for jobs above them".to_string(), |near| {
                        format!("did you mean `{near}`?")
                    });
                    let message = format!("there is no earlier job `{}`", shortened(name));
                    self.reader.find(&codes::NAME, item, message, help);
                }
            }
        }
        places
    }
}
