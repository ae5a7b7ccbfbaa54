//! Account of a tenant's slots (`slots`).

/// Use ahead of the price that an account keeps, in seconds of the slots of the running jobs.
const AHEAD_SECONDS: f64 = 1.0;

/// CPU time that the slots of a tenant were due and that its jobs have not used.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    /// CPUs of one slot, at most 1.
    price: f64,
    /// Negative for use beyond the price.
    unused_seconds: f64,
    /// Time up to which slots, and use beside them, are on the account.
    at: f64,
    /// CPU time that jobs have used since then.
    job_seconds: f64,
    /// Time of the last end of a job since then.
    ended_at: Option<f64>,
    /// CPUs that the tenant used beside its waiting jobs before then.
    pub(super) beside_cores: f64,
}

impl Account {
    /// Adds `slots` that were held up to `now`: by a job that has run since this time.
    pub(super) fn note_slots(&mut self, slots: u64, since: f64, now: f64) {
        let seconds = (now - self.at.max(since)).max(0.0);
        self.unused_seconds += slots as f64 * self.price * seconds;
    }

    /// Takes CPU time off that a job has used.
    pub(super) fn note_use(&mut self, seconds: f64) {
        self.unused_seconds -= seconds;
        self.job_seconds += seconds;
    }

    pub(super) fn note_end(&mut self, now: f64) {
        self.ended_at = Some(now);
    }

    /// True if a job has ended since the price was set.
    pub(super) fn has_ended(&self) -> bool {
        self.ended_at.is_some()
    }

    /// Takes what is due from the account.
    pub(super) fn take_due(&mut self) -> f64 {
        let due = self.unused_seconds.max(0.0);
        self.unused_seconds -= due;
        due
    }

    /// Begins the time up to the next price.
    pub(super) fn begin(&mut self, now: f64) {
        (self.at, self.job_seconds, self.ended_at) = (now, 0.0, None);
    }

    /// Notes that a tenant has used so many CPUs since the price was set. Returns the CPU time of its other processes since its
    /// last job ended.
    pub(super) fn note_beside(&mut self, used_cores: f64, now: f64) -> f64 {
        let elapsed = (now - self.at).max(f64::MIN_POSITIVE);
        let unheld = now - self.ended_at.unwrap_or(self.at);
        self.beside_cores = (used_cores - self.job_seconds / elapsed).max(0.0);
        self.beside_cores * unheld.clamp(0.0, elapsed)
    }

    /// Sets the price while jobs hold this many slots of a tenant that is entitled to these CPUs.
    pub(super) fn set_price(&mut self, held: f64, entitled_cores: f64) {
        self.unused_seconds = self.unused_seconds.max(-AHEAD_SECONDS * held);
        self.price = if held > 0.0 { (entitled_cores / held).min(1.0) } else { 0.0 };
    }
}
