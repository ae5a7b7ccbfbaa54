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
  indices     names of `capacity` whose units are numbered: a request holds the
              lowest free ones from its start to its end
  reserve     `{ workers: 1, below: 5 }`: the last workers take small requests
  charge      end, refresh or timer: when running requests are charged (-e)
  splits      `{ min: 8, min_per_task: 3, max_per_task: 4 }` (multilevel)
  list_dispatches   false leaves them out of the answer";

/// The keys of a problem of `solve`.
pub const SOLVE: &str = "\
Keys of a problem (`tenantctl solve --example` prints one with all of them explained):
  algorithm   max-min, drf, drf-tasks, fifo, slots or yarn divide; mesos-order and
              yarn-order list who is next
  capacity    what there is, `{ cpu: 9, memory: 18GiB }`; or `nodes`, a list of machines
              such as `{ count: 100, cpu: 32, memory: 64 }`, with `placement: spread` or
              pack, `evict: true`, and `slots: N` on each
  order       drf, fifo or a resource: who is next, of the file or of a group
  work_conserving   whether DRF hands out what proportions leave over
  tenants     by name, in the order that breaks ties. Each has one of
              `task` (with `tasks: N`), `demand`, `usage`, or `tenants` of its own; and
              weight, guarantee, limit, work and deadline, running, claim";

/// The keys of a problem of `dop`.
pub const DOP: &str = "\
Keys of a problem (`tenantctl dop --example` prints one with all of them explained):
  algorithm   elastic, or imci as published
  slots       units of parallelism; `max_per_query` bounds one query
  memory, resources   what queries hold beside slots
  running, queue   one round: what runs, and what waits. A query has manual or max,
              weight, memory and memory_per_thread, resources and per_thread, speedup
  queries     instead of these: queries over time, with at, work, count and again;
              `horizon` ends it, `list: false` leaves them out of the answer
  users       how many run or are looked at
  min_gain    what one more slot must add; `feedback: { interval: 1 }` measures it";
