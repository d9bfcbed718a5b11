//! Loom model of the places: a worker finds what guests leave, and no place is used once all are
//! closed.

use std::process::Command;
use std::sync::Arc;

use loom::sync::Notify;
use loom::thread;

use super::*;
use crate::planted::VARIABLE;
use crate::sync::atomic::AtomicU64;
use crate::sync::yield_thread;

/// The places of two guests, each with the number of items that were left there.
struct Shared {
    places: GuestPlaces<AtomicU64>,
    /// Wakes the worker.
    doorbell: Notify,
}

impl Shared {
    fn new() -> Arc<Self> {
        let places = GuestPlaces::new((0..2).map(|_| AtomicU64::new(0)));
        Arc::new(Self { places, doorbell: Notify::new() })
    }

    /// Leaves an item in a place. Returns whether the place could be used.
    fn leave_item(&self, place: usize) -> bool {
        // Relaxed, here and below: the lock of the place orders the accesses.
        let add = |state: &mut Option<AtomicU64>| {
            state.as_ref().expect("open").fetch_add(1, Ordering::Relaxed);
        };
        let Some(PlaceUse { must_ring, .. }) = self.places.enter(place, add) else { return false };
        if must_ring {
            self.doorbell.notify();
        }
        true
    }
}

/// Two guests leave items, while a worker that sleeps whenever it knows of no used place finds them.
#[test]
fn model_a_worker_finds_what_guests_leave() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let shared = Shared::new();
        let guest = |place| {
            let shared = shared.clone();
            thread::spawn(move || {
                while !shared.leave_item(place) {
                    // The worker visits the place.
                    yield_thread();
                }
            })
        };
        let guests = [guest(0), guest(1)];
        let mut found = 0;
        while found < 2 {
            shared.doorbell.wait();
            while shared.places.are_used() {
                shared.places.visit(|place| found += place.swap(0, Ordering::Relaxed));
                yield_thread();
            }
        }
        guests.into_iter().for_each(|guest| guest.join().unwrap());
    });
}

/// Checks that the model above detects a worker that lowers the flag after its visit.
#[test]
fn model_of_guest_places_finds_a_flag_that_is_lowered_late() {
    let model = "transaction::context::guest_places::model::model_a_worker_finds_what_guests_leave";
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", model])
        .env(VARIABLE, (Bug::GuestPlacesVisitedEarly as usize).to_string())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("running 1 test"), "{told}");
}

/// A guest uses a place while the places are closed.
#[test]
fn model_no_place_is_used_once_all_are_closed() {
    loom::model(|| {
        let shared = Shared::new();
        let is_closed = Arc::new(AtomicBool::new(false));
        let guest = {
            let (shared, is_closed) = (shared.clone(), is_closed.clone());
            thread::spawn(move || {
                let check = |_: &mut Option<AtomicU64>| {
                    // Relaxed: the lock of the place orders the accesses.
                    assert!(!is_closed.load(Ordering::Relaxed), "used after the close");
                };
                shared.places.enter(0, check).is_some()
            })
        };
        shared.places.close();
        is_closed.store(true, Ordering::Relaxed);
        guest.join().unwrap();
        assert!(!shared.leave_item(0));
    });
}
