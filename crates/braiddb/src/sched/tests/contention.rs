//! Contending tasks run at a smaller width.

use super::*;
use crate::common::{PART_SECONDS, with_limit};

/// The state shared by the tasks, all on one worker, so the orderings do not matter.
#[derive(Default)]
struct Record {
    taken: AtomicU64,
    finished: AtomicU64,
    /// Failed attempts of the second half.
    failed: AtomicU64,
}

const WRITERS: u64 = 20_000;

/// Holds the record during some suspensions. Fails and retries if another task holds it.
async fn write(record: Arc<Record>) {
    let second_half = record.finished.load(Ordering::Relaxed) > WRITERS / 2;
    while record.taken.swap(1, Ordering::Relaxed) == 1 {
        record.failed.fetch_add(u64::from(second_half), Ordering::Relaxed);
        count_failed_attempt();
        yield_now(WaitCause::Undecided).await;
    }
    for _ in 0..8 {
        touch(Arc::as_ptr(&record)).await;
    }
    record.taken.store(0, Ordering::Relaxed);
    record.finished.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn writers_of_one_record_are_hardly_interleaved() {
    with_limit(PART_SECONDS, |_| {
        let executor = start(1, Policy::DualQueue, Width::Auto);
        let record = Arc::new(Record::default());
        let shared = record.clone();
        let source = move || {
            let mut left = WRITERS;
            let draw = move || {
                left = left.checked_sub(1)?;
                Some(shared.clone())
            };
            FromFn(draw, write)
        };
        pollster::block_on(executor.run_source(0, source).unwrap().done()).unwrap();
        assert_eq!(record.finished.load(Ordering::Relaxed), WRITERS);
        let failed = record.failed.load(Ordering::Relaxed);
        assert!(
            failed < WRITERS / 10,
            "{failed} attempts failed beside {} that did not",
            WRITERS / 2
        );
    });
}
