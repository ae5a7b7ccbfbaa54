//! Queries over time: round after round of admission, from the first arrival to the last end.
//!
//! **Problem.** A round shows who starts; what it costs to wait, and what a width that is kept costs those who come later,
//! only shows over time.
//!
//! **Rule.** Work is in slot-seconds, and a query that is `d` wide does S(d) of it a second ([`Speedup`]). At each instant come,
//! in this order: ends, by number; arrivals, in the order of the text, and then clients that send their query again, at the
//! tail; the [feedback](Feedback), at multiples of its interval; and one round, of what runs and the head of the queue. At
//! most `users` run or are looked at, the slots by default.
//! - *imci*: a query keeps the width with which it started.
//! - *elastic*: all that runs is divided again at each round, in the order of start, floors first.
//!
//! **Feedback.** The world does not say how a query speeds up, but its speed can be measured. At each multiple of the interval
//! a query without a manual DOP is narrowed by one; at the next, if it still has that width, the loss is known. A loss of less
//! than `min_gain` keeps the narrower width and narrows it again; else the query goes back and rests. So each of them ends at
//! the width that the rule with a known speed-up would give it, and what it does not need goes to the others.
//!
//! **Properties** (`tests/dop/rounds.rs`): the vectors `seeds_dop`; all work is done, never faster than the slots allow; under
//! both rules never more than the slots; feedback ends at the widths that a known speed-up gives.

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
    /// When, in seconds.
    pub at: f64,
    /// Its work, in slot-seconds.
    pub work: f64,
    /// How many of them arrive.
    pub count: u64,
    /// Whether its client sends it again as soon as it has ended.
    pub again: bool,
    /// What it needs and how wide it may be.
    pub query: Query,
}

/// A run of queries over time.
#[derive(Clone, Debug)]
pub struct Course {
    /// The rule.
    pub rule: Rule,
    /// When it is broken off; without it when all have ended, or none can start any more.
    pub horizon: Option<f64>,
    /// Seconds between two looks at measured speeds.
    pub feedback: Option<f64>,
    /// Slots, memory and queries that run or wait at the begin.
    pub problem: Problem,
    /// Queries that come later.
    pub arrivals: Vec<Arrival>,
}

/// A query that has arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// When it arrived.
    pub arrived: f64,
    /// When it started, if it did.
    pub started: Option<f64>,
    /// When it ended, if it did.
    pub ended: Option<f64>,
    /// Its widths, each with the time from which it had it.
    pub dop: Vec<(f64, u64)>,
}

/// What became of the queries.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// In the order of arrival.
    pub queries: Vec<Record>,
    /// The most that ran at once.
    pub most_running: usize,
    /// Slot-seconds that were given.
    pub slot_seconds: f64,
    /// When it ended.
    pub end: f64,
}

/// More queries than are run: when there were so many.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TooMany(pub f64);

/// Queries of a run, at most, and rounds.
const MOST: usize = 2_000_000;

/// Times and work that differ by less than this part are equal.
const EQUAL: f64 = 1e-9;

/// What is measured of a query.
#[derive(Clone, Copy, Debug, Default)]
struct Feedback {
    /// The width to which it was narrowed last.
    trial: Option<u64>,
    /// The widest that it may be.
    ceiling: Option<u64>,
    /// Whether any narrowing was kept.
    has_kept: bool,
    rests: bool,
}

impl Feedback {
    /// Looks at a query that is `width` wide.
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
    /// A run of these queries; `users` default to the slots.
    ///
    /// # Errors
    /// Everything that makes no sense, as [`Problem::try_new`] finds it in them.
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

    /// What there is.
    pub fn supply(&self) -> &Supply {
        self.problem.supply()
    }

    /// Runs it.
    ///
    /// # Errors
    /// There are more queries or rounds than anyone waits for.
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

/// A query that runs.
#[derive(Debug)]
struct Active {
    record: usize,
    left: f64,
    dop: u64,
    feedback: Feedback,
}

/// A run, up to a time.
struct State<'a> {
    course: &'a Course,
    now: f64,
    /// The arrivals to come, in order, as their place in the list.
    coming: VecDeque<usize>,
    records: Vec<Record>,
    /// Which arrival each record is of.
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

    /// Lets what runs do its work until a time.
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

    /// What happens now: ends, arrivals, feedback, and a round.
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

    /// One round: starts what the rule starts, and under the elastic one divides again what runs.
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
            // The published average is 0 where more wait than there are slots: none of them starts.
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

    /// A query as a round sees it: what speeds up is measured where there is feedback, and not known.
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

    /// What a query holds that keeps its width.
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
