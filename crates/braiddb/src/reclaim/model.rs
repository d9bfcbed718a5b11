//! Loom model of reclamation: a reader never holds a block that a writer has freed.

use loom::thread;

use super::*;
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
    assert!(domain.enter_as_guest(|_| ()).is_none(), "a participant is no guest");
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
        let other = domain.enter_as_guest(|_| ()).expect("a place is free");
        let read = |domain: &Arc<Domain>, shared: &Shared| {
            let operation = domain.enter_as_guest(|_| ()).expect("a place is free");
            shared.read();
            drop(operation);
        };
        retire_beside(&domain, read, || drop(other));
    });
}
