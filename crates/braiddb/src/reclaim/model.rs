//! Loom model of reclamation: a reader never holds a block that a writer has freed.

use loom::thread;

use super::*;
use crate::sync::atomic::AtomicU64;

/// One cell in use, linked from `link`; `alive` is set for the cells that are not freed.
struct Shared {
    link: AtomicU64,
    alive: [AtomicBool; 2],
}

#[test]
fn model_of_reclamation_never_frees_what_is_held() {
    loom::model(|| {
        let domain = Arc::new(Domain::new(2, Arc::new(MemoryCounters::new())));
        let alive = [AtomicBool::new(true), AtomicBool::new(true)];
        let shared = Arc::new(Shared { link: AtomicU64::new(0), alive });
        let reader = {
            let (domain, shared) = (domain.clone(), shared.clone());
            thread::spawn(move || {
                let me = domain.participate();
                me.turn();
                let guard = enter();
                let cell = shared.link.load(Ordering::Acquire) as usize;
                assert!(shared.alive[cell].load(Ordering::Relaxed), "freed while held");
                drop(guard);
            })
        };
        let me = domain.participate();
        shared.link.store(1, Ordering::Release);
        let freed = shared.clone();
        retire_with(move || freed.alive[0].store(false, Ordering::Relaxed));
        me.turn();
        me.turn();
        drop(me);
        reader.join().unwrap();
    });
}

/// The model above with a reader that is a guest. A second guest, which may leave earlier, makes the
/// reader use either place.
#[test]
fn model_of_reclamation_never_frees_what_a_guest_holds() {
    loom::model(|| {
        let domain = Arc::new(Domain::new(1, Arc::new(MemoryCounters::new())));
        let alive = [AtomicBool::new(true), AtomicBool::new(true)];
        let shared = Arc::new(Shared { link: AtomicU64::new(0), alive });
        let other = domain.enter_as_guest(|_| ()).expect("a place is free");
        let reader = {
            let (domain, shared) = (domain.clone(), shared.clone());
            thread::spawn(move || {
                let operation = domain.enter_as_guest(|_| ()).expect("a place is free");
                let cell = shared.link.load(Ordering::Acquire) as usize;
                assert!(shared.alive[cell].load(Ordering::Relaxed), "freed while held");
                drop(operation);
            })
        };
        drop(other);
        let me = domain.participate();
        assert!(domain.enter_as_guest(|_| ()).is_none(), "a participant is no guest");
        shared.link.store(1, Ordering::Release);
        let freed = shared.clone();
        retire_with(move || freed.alive[0].store(false, Ordering::Relaxed));
        me.turn();
        me.turn();
        drop(me);
        reader.join().unwrap();
    });
}
