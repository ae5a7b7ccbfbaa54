//! A second control loop that is given nothing but the recorded bytes, beside the one of an agent.

use std::cell::Cell;

use tenantd_control::tick::control_loop::ControlLoop;
use tenantd_control::tick::event::{Event, Witness};
use tenantd_host::recording::rows::{Last, Rows};
use tenantd_host::recording::segment::{self, Beginning, Clock};

thread_local! {
    static DECISIONS: Cell<u64> = const { Cell::new(0) };
}

/// Fails at the first event after which the two differ, in any bit of the decision or of the state.
#[derive(Debug, Default)]
pub(crate) struct Twin {
    twin: Option<(ControlLoop, Last, Last)>,
    nr_events: u64,
}

impl Twin {
    pub(crate) fn boxed() -> Option<Box<dyn Witness>> {
        Some(Box::new(Twin::default()))
    }

    /// How many decisions were compared in this thread.
    pub(crate) fn nr_decisions() -> u64 {
        DECISIONS.get()
    }
}

/// The recorded bytes of a loop.
pub(super) fn encode(control: &ControlLoop) -> Vec<u8> {
    Beginning::data("", "", control).unwrap()
}

/// The loop as it comes back from its bytes.
pub(crate) fn copy(control: &ControlLoop) -> ControlLoop {
    Beginning::of(&encode(control)).unwrap().control
}

impl Witness for Twin {
    fn note(&mut self, control: &ControlLoop, event: &Event) {
        self.nr_events += 1;
        // A snapshot now and then, as at the beginning of a segment.
        if self.nr_events.is_multiple_of(500) {
            self.twin = None;
        }
        let (twin, writing, reading) =
            self.twin.get_or_insert_with(|| (copy(control), Last::default(), Last::default()));
        assert_eq!(encode(twin), encode(control), "before event {}", self.nr_events);
        let mut rows = Rows::default();
        segment::put(event, &mut rows).unwrap();
        let data = segment::data(Clock::default(), &rows, writing).unwrap();
        let (_, mut read) = segment::events(&data, reading).unwrap();
        assert_eq!(read.len(), 1);
        let read = read.remove(0);
        assert!(read.fits(twin.tree().len()), "{read:?}");
        let decided = control.clone().apply(event.clone());
        let replayed = twin.apply(read);
        assert_eq!(format!("{decided:?}"), format!("{replayed:?}"), "event {}", self.nr_events);
        DECISIONS.set(DECISIONS.get() + u64::from(decided.is_some()));
    }
}
