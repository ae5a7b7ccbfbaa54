//! The work of a scenario, in the order of its arrival.
//!
//! Each tenant has a stream of random numbers of its own, so that its requests are the same under every
//! discipline, in spite of different orders of dispatches.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::iter::Peekable;
use std::vec::IntoIter;

use super::distribution::{Costs, Dice};
use super::scenario::{Pace, Scenario, Tenant};
use tenantd_queue::TenantId;
use tenantd_queue::simulation::{Arrival, Source, Work};
use tenantd_queue::tag::Tag;

#[derive(Debug)]
pub(super) struct Generator {
    listed: Peekable<IntoIter<Arrival>>,
    streams: Vec<Option<Stream>>,
    /// The next arrival of each tenant with generated work, by time.
    next: BinaryHeap<Reverse<(Tag, TenantId)>>,
}

#[derive(Debug)]
struct Stream {
    dice: Dice,
    costs: Costs,
    pace: Pace,
    from: f64,
    until: f64,
    /// Its requests, without their costs.
    request: Work,
}

impl Stream {
    fn new(seed: u64, index: usize, tenant: &Tenant, fair_rate: f64) -> Option<Stream> {
        let made = tenant.work.as_ref()?;
        let mut dice = Dice::new(seed, index as u64);
        let costs = Costs::new(made.cost, &mut dice);
        let pace = match made.pace {
            Pace::Load(part) => Pace::Poisson(part * fair_rate / costs.mean()),
            other => other,
        };
        let (from, until) = (made.from, made.until);
        Some(Stream { dice, costs, pace, from, until, request: tenant.request(0.0) })
    }

    /// Time of the first request of a tenant that is not backlogged.
    fn first(&mut self) -> Option<f64> {
        match self.pace {
            Pace::Backlogged => None,
            Pace::Every(_) | Pace::Once => Some(self.from),
            Pace::Poisson(rate) | Pace::Load(rate) => Some(self.from + self.dice.pause(rate)),
        }
    }

    fn after(&mut self, time: f64) -> f64 {
        match self.pace {
            Pace::Backlogged | Pace::Once => f64::INFINITY,
            Pace::Every(seconds) => time + seconds,
            Pace::Poisson(rate) | Pace::Load(rate) => time + self.dice.pause(rate),
        }
    }

    fn work(&mut self) -> Work {
        Work { cost: self.costs.next(&mut self.dice), ..self.request.clone() }
    }
}

impl Generator {
    pub(super) fn new(scenario: &Scenario) -> Generator {
        let rates = scenario.fair_rates();
        let tenants = scenario.tenants.iter().enumerate();
        let streams =
            tenants.map(|(index, tenant)| Stream::new(scenario.seed, index, tenant, rates[index]));
        let mut generator = Generator {
            listed: scenario.arrivals.clone().into_iter().peekable(),
            streams: streams.collect(),
            next: BinaryHeap::new(),
        };
        for (tenant, stream) in (0..).map(TenantId).zip(&mut generator.streams) {
            let first = stream.as_mut().and_then(Stream::first);
            generator.next.extend(first.map(|time| Reverse((Tag::exact(time), tenant))));
        }
        generator
    }

    fn made(&mut self) -> Option<Arrival> {
        while let Some(Reverse((time, tenant))) = self.next.pop() {
            let Some(stream) = self.streams[tenant.0 as usize].as_mut() else { continue };
            let time = time.value();
            if time < stream.until {
                self.next.push(Reverse((Tag::exact(stream.after(time)), tenant)));
                return Some(Arrival { time, tenant, work: stream.work() });
            }
        }
        None
    }
}

impl Source for Generator {
    fn next_arrival(&mut self) -> Option<Arrival> {
        let made = self.next.peek().map_or(f64::INFINITY, |Reverse((time, _))| time.value());
        match self.listed.next_if(|arrival| arrival.time <= made) {
            Some(listed) => Some(listed),
            None => self.made().or_else(|| self.listed.next()),
        }
    }

    fn next_of(&mut self, tenant: TenantId, now: f64) -> Option<Work> {
        let stream = self.streams[tenant.0 as usize].as_mut()?;
        (now < stream.until).then(|| stream.work())
    }

    fn endless(&self) -> Vec<(f64, TenantId)> {
        let streams = (0..).map(TenantId).zip(&self.streams);
        let endless = streams.filter_map(|(tenant, stream)| {
            let stream = stream.as_ref()?;
            (stream.pace == Pace::Backlogged).then_some((stream.from, tenant))
        });
        let mut endless: Vec<(f64, TenantId)> = endless.collect();
        endless.sort_by(|a, b| a.0.total_cmp(&b.0));
        endless
    }
}
