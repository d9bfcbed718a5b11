//! Loom model of reclamation: a reader never holds a block that a writer has freed.

use loom::thread;

use super::*;
use crate::sync::ModelMutex;
use crate::sync::atomic::AtomicU64;

/// One cell in use, linked from `link`; `alive` is set for the cells that are not freed.
struct Shared {
    link: AtomicU64,
    alive: [AtomicBool; 2],
}

impl Shared {
    /// Follows the link, under the caller's guard.
    fn read(&self) {
        let cell = self.link.load(Ordering::Acquire) as usize;
        assert!(self.alive[cell].load(Ordering::Relaxed), "freed while held");
    }
}

/// Unlinks and retires the first cell, while another thread reads it by `read`.
fn retire_beside(domain: &Arc<Domain>, read: fn(&Arc<Domain>, &Shared), before: impl FnOnce()) {
    let alive = [AtomicBool::new(true), AtomicBool::new(true)];
    let shared = Arc::new(Shared { link: AtomicU64::new(0), alive });
    let reader = {
        let (domain, shared) = (domain.clone(), shared.clone());
        thread::spawn(move || read(&domain, &shared))
    };
    before();
    let me = domain.participate();
    assert!(domain.enter_as_guest(MAX_GUESTS, |_| ()).is_none(), "a participant is no guest");
    shared.link.store(1, Ordering::Release);
    let freed = shared.clone();
    retire_with(move || freed.alive[0].store(false, Ordering::Relaxed));
    me.turn();
    me.turn();
    drop(me);
    reader.join().unwrap();
}

#[test]
fn model_of_reclamation_never_frees_what_is_held() {
    loom::model(|| {
        let domain = Arc::new(Domain::new(2, Arc::new(MemoryCounters::new())));
        let read = |domain: &Arc<Domain>, shared: &Shared| {
            let me = domain.participate();
            me.turn();
            let guard = enter();
            shared.read();
            drop((guard, me));
        };
        retire_beside(&domain, read, || {});
    });
}

/// The model above with a reader that is a guest. A second guest, which may leave earlier, makes the
/// reader use either place.
#[test]
fn model_of_reclamation_never_frees_what_a_guest_holds() {
    loom::model(|| {
        let domain = Arc::new(Domain::new(1, Arc::new(MemoryCounters::new())));
        let other = domain.enter_as_guest(MAX_GUESTS, |_| ()).expect("a place is free");
        let read = |domain: &Arc<Domain>, shared: &Shared| {
            let operation = domain.enter_as_guest(MAX_GUESTS, |_| ()).expect("a place is free");
            shared.read();
            drop(operation);
        };
        retire_beside(&domain, read, || drop(other));
    });
}

/// A guest that writes follows the link, while another writer unlinks the cell.
#[test]
fn model_of_reclamation_never_frees_what_a_writing_guest_holds() {
    loom::model(|| {
        let domain = Arc::new(Domain::new(1, Arc::new(MemoryCounters::new())));
        let read = |domain: &Arc<Domain>, shared: &Shared| {
            let participant = GuestParticipant::new(domain.clone());
            let operation = domain.enter_as_guest(MAX_GUESTS, |_| ()).expect("a place is free");
            let entered = participant.enter(&operation);
            let guard = enter();
            shared.read();
            drop(guard);
            drop(entered);
        };
        retire_beside(&domain, read, || {});
    });
}

/// A guest unlinks and retires a cell while a participant reads it. The participant then adopts the
/// cell from the guest, and frees it, while another guest reads it.
#[test]
fn model_of_reclamation_adopts_what_a_guest_retires() {
    loom::model(|| {
        let domain = Arc::new(Domain::new(1, Arc::new(MemoryCounters::new())));
        let alive = [AtomicBool::new(true), AtomicBool::new(true)];
        let shared = Arc::new(Shared { link: AtomicU64::new(0), alive });
        let retired = Arc::new(ModelMutex::new(GuestParticipant::new(domain.clone())));
        let writer = {
            let (domain, shared, retired) = (domain.clone(), shared.clone(), retired.clone());
            thread::spawn(move || {
                let operation = domain.enter_as_guest(MAX_GUESTS, |_| ()).expect("a place is free");
                let participant = retired.lock();
                let entered = participant.enter(&operation);
                shared.link.store(1, Ordering::Release);
                retire_with(move || shared.alive[0].store(false, Ordering::Relaxed));
                drop(entered);
            })
        };
        let reader = {
            let (domain, shared) = (domain.clone(), shared.clone());
            thread::spawn(move || {
                let operation = domain.enter_as_guest(MAX_GUESTS, |_| ()).expect("a place is free");
                shared.read();
                drop(operation);
            })
        };
        let me = domain.participate();
        retired.lock().pass_garbage();
        me.turn();
        me.turn();
        writer.join().unwrap();
        reader.join().unwrap();
        retired.lock().pass_garbage();
        while me.turn() {}
        assert!(!shared.alive[0].load(Ordering::Relaxed), "the cell is freed");
        drop(me);
    });
}
