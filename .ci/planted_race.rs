//! Data races made on purpose. The sanitizers' stage must report each of them, or it could not fail. It
//! must report nothing for the program without a race (`ordered`). Called with a name, the program makes one
//! race; without, it lists them.

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

fn main() {
    let all: [(&str, fn()); 4] = [
        ("in_a_spawned_thread", in_a_spawned_thread),
        ("in_scoped_threads", in_scoped_threads),
        ("through_a_flag_that_orders_nothing", through_a_flag_that_orders_nothing),
        ("ordered", ordered),
    ];
    let asked = std::env::args().nth(1);
    for (name, race) in all {
        match &asked {
            None => println!("{name}"),
            Some(asked) if asked == name => race(),
            Some(_) => {}
        }
    }
}

fn in_a_spawned_thread() {
    static NUMBER: Unordered = Unordered(UnsafeCell::new(0));
    let thread = std::thread::spawn(|| NUMBER.change());
    NUMBER.change();
    thread.join().unwrap();
}

fn in_scoped_threads() {
    let number = Unordered(UnsafeCell::new(0));
    std::thread::scope(|scope| {
        // Joined, so that nothing but the race is there to be reported.
        let threads = [(); 2].map(|()| scope.spawn(|| number.change()));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

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
