//! A closure that blocks its worker's thread is reported as a `tracing` warning, once for each
//! worker.

mod common;

use std::fmt::Debug;
use std::sync::Mutex;
use std::thread::{sleep, yield_now};
use std::time::Duration;

use braiddb::{Database, Options};
use common::{Watched, with_limit};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

const LIMIT_SECONDS: u64 = 120;
/// Longer than the threshold for the warning.
const BLOCKED: Duration = Duration::from_millis(600);
const BLOCKED_LONGER: Duration = Duration::from_millis(900);

static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Records the messages of warnings.
struct Listener;

struct Message<'m>(&'m mut String);

impl Visit for Message<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        *self.0 += &format!("{}={value:?} ", field.name());
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut message = String::new();
        event.record(&mut Message(&mut message));
        WARNINGS.lock().unwrap().push(message);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn warnings() -> Vec<String> {
    let warnings = WARNINGS.lock().unwrap();
    warnings.iter().filter(|warning| warning.contains("blocks its thread")).cloned().collect()
}

#[test]
fn a_closure_that_blocks_its_thread_is_logged_once() {
    with_limit(LIMIT_SECONDS, |_| {
        tracing::subscriber::set_global_default(Listener).unwrap();
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let block = |time: Duration| {
            db.run_blocking(async move |_| {
                sleep(time);
                Ok(())
            })
            .unwrap();
        };
        block(BLOCKED);
        // The worker warns in its next housekeeping.
        while warnings().is_empty() {
            yield_now();
        }
        assert!(warnings()[0].contains("stretch="), "{:?}", warnings());
        assert!(db.stats().workers[0].longest_stretch >= BLOCKED, "{:#?}", db.stats());

        block(BLOCKED_LONGER);
        while db.stats().workers[0].longest_stretch < BLOCKED_LONGER {
            yield_now();
        }
        // The workers have ended, so all warnings were recorded.
        db.close().unwrap();
        assert_eq!(warnings().len(), 1, "{:?}", warnings());
    });
}
