//! Queries over time: round after round of admission, from the first arrival to the last end.
//!
//! **Problem.** A round shows the queries that start. The cost of waiting, and the cost of a kept width for
//! later queries, only show over time.
//!
//! **Rule.** Work is in slot-seconds, and a query that is `d` wide does S(d) of it a second ([`Speedup`]).
//! The order within an instant is: ends, by number; arrivals, in the order of the text, and then clients
//! that send their query again, at the tail; the feedback, at multiples of its interval; and
//! one round over the running queries and the head of the queue. At most `users` run or are considered, the
//! slots by default.
//! - *imci*: a query keeps the width with which it started.
//! - *elastic*: the slots are divided again among all running queries at each round, in the order of start,
//!   floors first.
//!
//! **Feedback.** The speed-up of a query is not known in advance, but its speed can be measured. At each
//! multiple of the interval a query without a manual DOP is narrowed by one; at the next, if it still has
//! that width, the loss is known. A loss of less than `min_gain` keeps the narrower width and narrows it
//! again; else the query goes back and rests. So each query ends at the width that the rule with a known
//! speed-up would give it, and the others get the rest.
//!
//! **Properties** (`tests/dop/rounds.rs`): the vectors `seeds_dop`; all work is done, never faster than the
//! slots allow; neither rule exceeds the slots; feedback ends at the widths that a known speed-up gives.

use std::collections::VecDeque;

use super::imci;
use super::target::{
    self, Admission, Problem, ProblemError, Query, Running, Speedup, Supply, Width,
};

/// The rule of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The elastic rule: widths change.
    Elastic,
    /// The published rule: widths stay.
    Imci,
}

impl Rule {
    /// Decides a round.
    pub fn admit(self, problem: &Problem) -> Admission {
        match self {
            Rule::Elastic => target::admit(problem),
            Rule::Imci => imci::admit(problem),
        }
    }
}

/// A query that arrives.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrival {
    /// Arrival time, in seconds.
    pub at: f64,
    /// Its work, in slot-seconds.
    pub work: f64,
    /// Number of queries that arrive.
    pub count: u64,
    /// True if its client sends it again as soon as it has ended.
    pub again: bool,
    /// Its memory, resources and width.
    pub query: Query,
}

/// A run of queries over time.
#[derive(Clone, Debug)]
pub struct Course {
    /// Rule of the rounds.
    pub rule: Rule,
    /// End of the run in seconds; without it the run ends when all queries have ended, or none can start
    /// any more.
    pub horizon: Option<f64>,
    /// Seconds between two measurements of speed.
    pub feedback: Option<f64>,
    /// Slots, memory, and the queries that run or wait at the beginning.
    pub problem: Problem,
    /// Later queries.
    pub arrivals: Vec<Arrival>,
}

/// A query that has arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Arrival time, in seconds.
    pub arrived: f64,
    /// Start time, if it started.
    pub started: Option<f64>,
    /// End time, if it ended.
    pub ended: Option<f64>,
    /// Its widths, each with the time of the change.
    pub dop: Vec<(f64, u64)>,
}

/// Result of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// In the order of arrival.
    pub queries: Vec<Record>,
    /// Largest number of queries that ran at once.
    pub most_running: usize,
    /// Slot-seconds used.
    pub slot_seconds: f64,
    /// End of the run.
    pub end: f64,
}

/// Error of a run with too many queries or rounds: the time at which the bound was reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TooMany(pub f64);

/// Largest number of queries, and of rounds, in a run.
const MOST: usize = 2_000_000;

/// Times and work that differ by less than this part are equal.
const EQUAL: f64 = 1e-9;

/// Measurements of a query.
#[derive(Clone, Copy, Debug, Default)]
struct Feedback {
    /// The width of the last trial.
    trial: Option<u64>,
    /// The largest width that is useful.
    ceiling: Option<u64>,
    /// True if any narrowing was kept.
    has_kept: bool,
    rests: bool,
}

impl Feedback {
    /// Measures a query that is `width` wide.
    fn look(&mut self, width: u64, speedup: Speedup, min_gain: f64) {
        if self.rests {
            return;
        }
        let kept_before = self.has_kept.then_some(self.trial.map_or(width, |trial| trial + 1));
        let mut narrowed = false;
        if self.trial == Some(width) {
            if speedup.is_worth(width + 1, min_gain) {
                (self.ceiling, self.rests) = (kept_before, true);
                return;
            }
            (self.has_kept, narrowed) = (true, true);
        }
        if width == 1 {
            self.ceiling = if narrowed { Some(1) } else { kept_before };
            self.rests = true;
            return;
        }
        self.trial = Some(width - 1);
        self.ceiling = self.trial;
    }
}

impl Course {
    /// Checks and creates a run of these queries; `users` default to the slots.
    ///
    /// # Errors
    /// Every invalid value, with the places of [`Problem::try_new`].
    pub fn try_new(
        rule: Rule,
        supply: Supply,
        arrivals: Vec<Arrival>,
    ) -> Result<Course, Vec<ProblemError>> {
        let users = supply.users.or(Some(supply.slots));
        let queries = arrivals.iter().map(|arrival| arrival.query.clone()).collect();
        let problem = Problem::try_new_with(Supply { users, ..supply }, Vec::new(), queries)?;
        Ok(Course { rule, horizon: None, feedback: None, problem, arrivals })
    }

    /// Slots, memory and further resources.
    pub fn supply(&self) -> &Supply {
        self.problem.supply()
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// The run has more queries or rounds than the bound.
    pub fn run(&self) -> Result<Outcome, TooMany> {
        let mut queries: u64 = 0;
        for arrival in &self.arrivals {
            queries = queries.saturating_add(arrival.count);
        }
        if queries > MOST as u64 {
            return Err(TooMany(0.0));
        }
        let mut state = State::new(self);
        for _ in 0..MOST {
            let Some(next) = state.next() else { return Ok(state.outcome()) };
            if self.horizon.is_some_and(|horizon| next >= horizon * (1.0 - EQUAL)) {
                state.advance(self.horizon.unwrap_or(next));
                return Ok(state.outcome());
            }
            state.advance(next);
            state.instant();
            if state.records.len() > MOST {
                return Err(TooMany(next));
            }
        }
        Err(TooMany(state.now))
    }
}

#[derive(Debug)]
struct Active {
    record: usize,
    left: f64,
    dop: u64,
    feedback: Feedback,
}

/// State of a run at a time.
struct State<'a> {
    course: &'a Course,
    now: f64,
    /// Indices of the arrivals to come, in order.
    coming: VecDeque<usize>,
    records: Vec<Record>,
    /// Index of the arrival of each record.
    of: Vec<usize>,
    waiting: VecDeque<usize>,
    /// In the order of start.
    running: Vec<Active>,
    ticks: u64,
    most_running: usize,
    slot_seconds: f64,
}

impl<'a> State<'a> {
    fn new(course: &'a Course) -> Self {
        let mut coming: Vec<usize> = (0..course.arrivals.len()).collect();
        coming.sort_by(|&a, &b| course.arrivals[a].at.total_cmp(&course.arrivals[b].at));
        State {
            course,
            now: 0.0,
            coming: coming.into(),
            records: Vec::new(),
            of: Vec::new(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            ticks: 0,
            most_running: 0,
            slot_seconds: 0.0,
        }
    }

    fn query(&self, record: usize) -> &'a Query {
        &self.course.arrivals[self.of[record]].query
    }

    fn speed(&self, active: &Active) -> f64 {
        self.query(active.record).speedup.at(active.dop)
    }

    /// The time of the next event.
    fn next(&self) -> Option<f64> {
        let end = |active: &Active| self.now + active.left / self.speed(active);
        let ends = self.running.iter().map(end);
        let arrives = self.coming.front().map(|&index| self.course.arrivals[index].at);
        let is_open = |active: &&Active| !active.feedback.rests && self.is_elastic(active);
        let is_measured = self.running.iter().any(|active| is_open(&active));
        let look = self.course.feedback.filter(|_| is_measured);
        let looks = look.map(|interval| (self.ticks + 1) as f64 * interval);
        ends.chain(arrives).chain(looks).min_by(f64::total_cmp)
    }

    fn is_elastic(&self, active: &Active) -> bool {
        !matches!(self.query(active.record).width, Width::Manual(_))
    }

    /// Advances the work of running queries until a time.
    fn advance(&mut self, time: f64) {
        let seconds = (time - self.now).max(0.0);
        for index in 0..self.running.len() {
            let speed = self.speed(&self.running[index]);
            let active = &mut self.running[index];
            active.left -= speed * seconds;
            self.slot_seconds += active.dop as f64 * seconds;
        }
        self.now = self.now.max(time);
    }

    /// Handles one instant: ends, arrivals, feedback, and a round.
    fn instant(&mut self) {
        let mut ended: Vec<usize> = Vec::new();
        let (records, of, arrivals) = (&mut self.records, &self.of, &self.course.arrivals);
        self.running.retain(|active| {
            let is_done = active.left <= arrivals[of[active.record]].work * EQUAL;
            if is_done {
                ended.push(active.record);
            }
            !is_done
        });
        ended.sort_unstable();
        for &record in &ended {
            records[record].ended = Some(self.now);
        }
        while let Some(&index) = self.coming.front()
            && self.course.arrivals[index].at <= self.now + self.now.abs() * EQUAL
        {
            self.coming.pop_front();
            (0..self.course.arrivals[index].count).for_each(|_| self.arrive(index));
        }
        for record in ended {
            if self.course.arrivals[self.of[record]].again {
                self.arrive(self.of[record]);
            }
        }
        if let Some(interval) = self.course.feedback {
            let due = (self.now / interval * (1.0 + EQUAL)).floor() as u64;
            if due > self.ticks {
                self.ticks = due;
                let is_exact = self.now - due as f64 * interval <= self.now * EQUAL;
                (0..if is_exact { self.running.len() } else { 0 }).for_each(|it| self.look(it));
            }
        }
        self.round();
        self.most_running = self.most_running.max(self.running.len());
    }

    fn arrive(&mut self, index: usize) {
        self.waiting.push_back(self.records.len());
        self.of.push(index);
        let (started, ended, dop) = (None, None, Vec::new());
        self.records.push(Record { arrived: self.now, started, ended, dop });
    }

    fn look(&mut self, index: usize) {
        let min_gain = self.course.supply().min_gain;
        let active = &self.running[index];
        if self.is_elastic(active) {
            let (dop, speedup) = (active.dop, self.query(active.record).speedup);
            self.running[index].feedback.look(dop, speedup, min_gain);
        }
    }

    /// Runs one round: starts queries, and under the elastic rule divides the slots again.
    fn round(&mut self) {
        let users = self.course.supply().users.unwrap_or(u64::MAX);
        let looked = users.saturating_sub(self.running.len() as u64).min(self.waiting.len() as u64);
        let looked = self.waiting.iter().take(looked as usize);
        let mut queue: Vec<Query> = looked.map(|&record| self.bounded(record, None)).collect();
        let problem = &self.course.problem;
        let dop = match self.course.rule {
            Rule::Imci => {
                let running = self.running.iter().map(|active| self.held(active)).collect();
                imci::admit(&problem.round(running, queue)).dop
            }
            Rule::Elastic => {
                let running = self.running.iter();
                let running =
                    running.map(|it| self.bounded(it.record, it.feedback.ceiling)).collect();
                let waiting = std::mem::replace(&mut queue, running);
                queue.extend(waiting);
                let mut dop = target::admit(&problem.round(Vec::new(), queue)).dop;
                let starts = dop.split_off(self.running.len());
                for (index, dop) in dop.into_iter().enumerate() {
                    self.widen(index, dop);
                }
                starts
            }
        };
        for dop in dop {
            // The published average is 0 if more queries wait than there are slots: none of them starts.
            if dop == 0 {
                break;
            }
            let Some(record) = self.waiting.pop_front() else { break };
            self.records[record].started = Some(self.now);
            let left = self.course.arrivals[self.of[record]].work;
            self.running.push(Active { record, left, dop: 0, feedback: Feedback::default() });
            self.widen(self.running.len() - 1, dop);
        }
    }

    fn widen(&mut self, index: usize, dop: u64) {
        let active = &mut self.running[index];
        if active.dop != dop {
            active.dop = dop;
            self.records[active.record].dop.push((self.now, dop));
        }
    }

    /// A query as a round sees it: with feedback its speed-up is measured, not known.
    fn bounded(&self, record: usize, ceiling: Option<u64>) -> Query {
        let query = self.query(record).clone();
        let width = match (query.width, ceiling) {
            (Width::Auto, Some(ceiling)) => Width::AtMost(ceiling),
            (Width::AtMost(max), Some(ceiling)) => Width::AtMost(max.min(ceiling)),
            (width, _) => width,
        };
        let is_known = self.course.feedback.is_none();
        let speedup = if is_known { query.speedup } else { Speedup::default() };
        Query { width, speedup, ..query }
    }

    /// Slots and memory of a query that keeps its width.
    fn held(&self, active: &Active) -> Running {
        let query = self.query(active.record);
        let further = 1..=self.course.supply().resources.len();
        Running {
            dop: active.dop,
            memory: query.needs(0, active.dop),
            resources: further.map(|pool| query.needs(pool, active.dop)).collect(),
        }
    }

    fn outcome(self) -> Outcome {
        Outcome {
            queries: self.records,
            most_running: self.most_running,
            slot_seconds: self.slot_seconds,
            end: self.now,
        }
    }
}
