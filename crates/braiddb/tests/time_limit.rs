//! The time limit of tests: a test that exceeds it fails and prints its state, a test that ends in
//! time does not.

mod common;

use std::panic::catch_unwind;

use braiddb::{Database, Options};
use common::{Watched, doing, with_limit, working_on};

/// Opens a database in code without access to the limit.
fn of_code_under_test() -> Database {
    Database::in_memory(Options::default().workers(2)).expect("in memory")
}

#[test]
fn a_test_in_time_returns_its_value() {
    assert_eq!(with_limit(60, |_| 7), 7);
}

#[test]
fn a_panic_is_propagated() {
    let panic = catch_unwind(|| with_limit(60, |_| panic!("on purpose"))).unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
}

#[test]
fn a_test_that_hangs_fails_with_its_state() {
    let hang = || {
        with_limit(1, |limit| {
            limit.on_timeout("state", || "waiting for ever".to_owned());
            let _open = Database::in_memory(Options::default().workers(1)).unwrap().watched();
            let dropped = Database::in_memory(Options::default().workers(3)).unwrap().watched();
            drop(dropped);
            let found = of_code_under_test();
            working_on(&found);
            working_on(&found);
            doing("parking");
            loop {
                std::thread::park();
            }
        })
    };
    let panic = catch_unwind(hang).unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(message.contains("state: waiting for ever"), "{message}");
    assert!(message.contains("at work: parking"), "{message}");
    assert_eq!(message.matches("versions_waiting").count(), 2, "{message}");
    // A waiting thread.
    assert!(message.lines().any(|line| line.starts_with("test: S in ")), "{message}");
}

#[test]
fn state_registered_on_another_thread_is_dropped() {
    with_limit(60, |_| {
        let other = std::thread::spawn(|| {
            working_on(&of_code_under_test());
            doing("nothing");
        });
        other.join().unwrap();
    });
}
