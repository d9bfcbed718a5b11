//! Data races made on purpose. The sanitizers' stage must report each of them with the suppressions that
//! it uses for everything else, or it could not fail; and nothing where there is none (`ordered`).

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// A number that threads change without any order between them.
struct Unordered(UnsafeCell<u64>);

// SAFETY: there is none; this is the mistake.
unsafe impl Sync for Unordered {}

impl Unordered {
    #[inline(never)]
    fn change(&self) {
        // SAFETY: as above.
        unsafe { *self.0.get() += 1 };
    }
}

#[test]
fn in_a_spawned_thread() {
    static NUMBER: Unordered = Unordered(UnsafeCell::new(0));
    let thread = std::thread::spawn(|| NUMBER.change());
    NUMBER.change();
    thread.join().unwrap();
}

#[test]
fn in_scoped_threads() {
    let number = Unordered(UnsafeCell::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| number.change());
        }
    });
}

#[test]
fn through_a_flag_that_orders_nothing() {
    static READY: AtomicBool = AtomicBool::new(false);
    static NUMBER: Unordered = Unordered(UnsafeCell::new(0));
    let thread = std::thread::spawn(|| {
        NUMBER.change();
        READY.store(true, Ordering::Relaxed);
    });
    while !READY.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
    NUMBER.change();
    thread.join().unwrap();
}

#[test]
fn ordered() {
    static READY: AtomicBool = AtomicBool::new(false);
    static NUMBER: Unordered = Unordered(UnsafeCell::new(0));
    let thread = std::thread::spawn(|| {
        NUMBER.change();
        READY.store(true, Ordering::Release);
    });
    while !READY.load(Ordering::Acquire) {
        std::hint::spin_loop();
    }
    NUMBER.change();
    thread.join().unwrap();
}
