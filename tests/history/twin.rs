//! A second control loop that is given nothing but the recorded bytes, beside the one of an agent.

use std::cell::Cell;

use tenantd_control::tick::control_loop::ControlLoop;
use tenantd_control::tick::event::{Event, Memory, Witness};
use tenantd_core::codec::{In, Out, decode, encode};

thread_local! {
    static DECISIONS: Cell<u64> = const { Cell::new(0) };
}

/// Fails at the first event after which the two differ, in any bit of the decision or of the state.
#[derive(Debug, Default)]
pub(crate) struct Twin {
    twin: Option<(ControlLoop, Memory, Memory)>,
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

/// The loop as it comes back from its bytes.
pub(crate) fn copy(control: &ControlLoop) -> ControlLoop {
    decode(&encode(control)).unwrap()
}

impl Witness for Twin {
    fn note(&mut self, control: &ControlLoop, event: &Event) {
        self.nr_events += 1;
        // A snapshot now and then, as at the beginning of a segment.
        if self.nr_events.is_multiple_of(500) {
            self.twin = None;
        }
        let (twin, writing, reading) = self
            .twin
            .get_or_insert_with(|| (copy(control), Memory::of(control), Memory::of(control)));
        assert_eq!(encode(twin), encode(control), "before event {}", self.nr_events);
        let mut out = Out::default();
        event.put(writing, &mut out);
        let (tokens, bits) = out.split();
        let mut from = In::new(&tokens, &bits);
        let read = Event::take(reading, &mut from).unwrap();
        assert_eq!(from.left(), 0);
        assert!(read.fits(twin.tree().len()), "{read:?}");
        let decided = event.clone().happen(&mut control.clone());
        let replayed = read.happen(twin);
        assert_eq!(format!("{decided:?}"), format!("{replayed:?}"), "event {}", self.nr_events);
        DECISIONS.set(DECISIONS.get() + u64::from(decided.is_some()));
    }
}
