//! Tests of reclamation: garbage is freed when allowed, and not before.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use super::*;
use crate::common::{PART_SECONDS, with_limit};

fn counting(freed: &Arc<AtomicUsize>) -> impl FnOnce() + Send + 'static {
    let freed = freed.clone();
    move || _ = freed.fetch_add(1, Ordering::Relaxed)
}

#[test]
fn an_operation_in_flight_holds_garbage_back() {
    with_limit(PART_SECONDS, |_| {
        let domain = Arc::new(Domain::new(2, Arc::new(MemoryCounters::new())));
        let freed = Arc::new(AtomicUsize::new(0));
        let me = domain.participate();
        let early = enter();
        retire_with(counting(&freed));
        for _ in 0..3 {
            assert!(me.turn());
        }
        assert_eq!(freed.load(Ordering::Relaxed), 0);
        // An operation that began after the unlinking does not delay it.
        let late = enter();
        drop(early);
        me.turn();
        me.turn();
        assert_eq!(freed.load(Ordering::Relaxed), 1);
        drop(late);
    });
}

#[test]
fn another_thread_holds_garbage_back_until_it_sleeps() {
    with_limit(PART_SECONDS, |_| {
        let domain = Arc::new(Domain::new(2, Arc::new(MemoryCounters::new())));
        let freed = Arc::new(AtomicUsize::new(0));
        let (to_other, from_main) = mpsc::channel::<()>();
        let (to_main, from_other) = mpsc::channel::<()>();
        let other = std::thread::spawn({
            let domain = domain.clone();
            move || {
                let me = domain.participate();
                let guard = enter();
                to_main.send(()).unwrap();
                from_main.recv().unwrap();
                drop(guard);
                me.sleep();
                to_main.send(()).unwrap();
                from_main.recv().unwrap();
            }
        });
        from_other.recv().unwrap();
        let me = domain.participate();
        retire_with(counting(&freed));
        me.turn();
        me.turn();
        assert_eq!(freed.load(Ordering::Relaxed), 0);
        to_other.send(()).unwrap();
        from_other.recv().unwrap();
        me.turn();
        me.turn();
        assert_eq!(freed.load(Ordering::Relaxed), 1);
        to_other.send(()).unwrap();
        other.join().unwrap();
    });
}

#[test]
fn leftovers_are_freed_with_the_domain() {
    with_limit(PART_SECONDS, |_| {
        let domain = Arc::new(Domain::new(1, Arc::new(MemoryCounters::new())));
        let freed = Arc::new(AtomicUsize::new(0));
        let me = domain.participate();
        retire_with(counting(&freed));
        drop(me);
        drop(domain);
        assert_eq!(freed.load(Ordering::Relaxed), 1);
    });
}
