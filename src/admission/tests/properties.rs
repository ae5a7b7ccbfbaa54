//! What holds for any course of events.

use proptest::prelude::*;
use tenantd_admission::{Admission, Phase};

use super::course::{Course, Event, TENANTS, all_disciplines, events};

const OVERTAKES_MAX: u32 = 3;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Checks after each event that reservations fit, that no worker idles beside a job that fits, and that widths fill
    /// the slots.
    #[test]
    fn nothing_is_promised_twice_and_nothing_idles(events in events()) {
        for discipline in all_disciplines() {
            let mut course = Course::new(discipline, OVERTAKES_MAX);
            for event in &events {
                let dispatch = course.happen(event);
                course.check(&dispatch);
            }
        }
    }

    #[test]
    fn overtaking_is_bounded(events in events()) {
        for discipline in all_disciplines() {
            let mut course = Course::new(discipline, OVERTAKES_MAX);
            for event in &events {
                course.happen(event);
                for job in course.admission.jobs() {
                    let Phase::Waiting { overtaken } = job.phase else { continue };
                    // Seniors overtake each other, and there is one for each tenant at most at a time.
                    let most = OVERTAKES_MAX + TENANTS.len() as u32;
                    prop_assert!(overtaken <= most, "{job:?}");
                }
            }
        }
    }

    #[test]
    fn a_restored_queue_decides_the_same(before in events(), after in events()) {
        for discipline in all_disciplines() {
            let mut course = Course::new(discipline, OVERTAKES_MAX);
            before.iter().for_each(|event| drop(course.happen(event)));
            let stored = serde_json::to_string(&course.admission).unwrap();
            let admission: Admission = serde_json::from_str(&stored).unwrap();
            let mut restored = Course { admission, ..course.clone() };
            for event in &after {
                prop_assert_eq!(course.happen(event), restored.happen(event));
            }
            let texts = [&course, &restored].map(|it| serde_json::to_string(&it.admission).unwrap());
            prop_assert_eq!(&texts[0], &texts[1]);
        }
    }

    /// Without credit nothing is paid, and orders without tags ignore it.
    #[test]
    fn credit_changes_only_orders_with_tags(events in events()) {
        let without: Vec<&Event> =
            events.iter().filter(|it| !matches!(it, Event::Lend(..))).collect();
        for discipline in all_disciplines() {
            let (mut plain, mut course) =
                (Course::new(discipline, OVERTAKES_MAX), Course::new(discipline, OVERTAKES_MAX));
            let plain_starts: Vec<_> =
                without.iter().flat_map(|event| plain.happen(event).starts).collect();
            prop_assert_eq!(plain.fees, 0.0);
            let starts: Vec<_> = events.iter().flat_map(|event| course.happen(event).starts).collect();
            if !discipline.has_tags() {
                prop_assert_eq!(starts, plain_starts);
                prop_assert_eq!(course.fees, 0.0);
            }
        }
    }

    #[test]
    fn two_runs_are_the_same(events in events()) {
        for discipline in all_disciplines() {
            let run = || -> Vec<_> {
                let mut course = Course::new(discipline, OVERTAKES_MAX);
                events.iter().map(|event| course.happen(event)).collect()
            };
            prop_assert_eq!(run(), run());
        }
    }

    /// What an earlier agent ran counts for this one as if it had started it.
    #[test]
    fn adopted_jobs_hold_what_they_held(events in events()) {
        for discipline in all_disciplines() {
            let mut course = Course::new(discipline, OVERTAKES_MAX);
            events.iter().for_each(|event| drop(course.happen(event)));
            let mut next = Course::new(discipline, OVERTAKES_MAX);
            for job in course.admission.jobs() {
                let (since, lingers) = match job.phase {
                    Phase::Waiting { .. } => continue,
                    Phase::Running { since, .. } => (since, false),
                    Phase::Lingering { since } => (since, true),
                };
                let (times, used) = ((job.submitted, since), (job.cpu_seconds, lingers));
                next.admission.adopt(job.job, job.request.clone(), times, used, course.now);
                next.admission.hold_indices(job.job, job.indices.clone());
            }
            course.admission.resume(course.now);
            let of = |course: &Course| (course.admission.free().slots, course.admission.free().units);
            prop_assert_eq!(of(&course), of(&next));
            let known = |course: &Course| course.admission.jobs().count();
            prop_assert_eq!(known(&course), known(&next));
        }
    }
}
