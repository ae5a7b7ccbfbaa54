//! Summaries of file formats, at the end of the help of a command.

/// The keys of a scenario of `simulate queue`.
pub const QUEUE: &str = "\
Keys of a scenario (`tenantctl simulate queue --example` explains most of them):
  discipline  fifo, priority, round-robin, fq, sfq, wfq, wf2q, 2dfq, wfq-e,
              wf2q-e, 2dfq-e, drf, multilevel, or gps for the ideal; with ageing,
              quantum, multiplier, virtual_time and estimator
  workers     each does `rate` cost units a second
  horizon     when it ends, in seconds; `warmup` does not count
  tenants     by name, in the order that breaks ties: weight, priority,
              reservation, limit, guarantee, holds, uses, rate, burst, queue_max,
              timeout
  arrivals    [time, tenant, cost] each; `backlogged` maps tenants to costs,
              `generators` draw work at random (with `seed`)
  jobs        sets of equal requests: name, tenant, cost, count, at, after
  capacity    what requests share while they run (drf and fifo), and
              `defaults` of tenants without `holds`
  reserve     `{ workers: 1, below: 5 }`: the last workers take small requests
  charge      end, refresh or timer: when running requests are charged (-e)
  splits      `{ min: 8, min_per_task: 3, max_per_task: 4 }` (multilevel)
  list_dispatches   false leaves them out of the answer";
