//! Tests of schedules: each is fair, and replays.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::atomic::AtomicBool;
use super::{
    Runner, ScheduleOptions, ScheduleReport, ScheduleResult, pause, spawn, switch_threads,
};

/// Runs a schedule that ends without a finding.
fn run(runner: &Runner, seed: u64, body: fn()) -> ScheduleReport {
    let options = ScheduleOptions { seed, max_steps: 1_000_000, trace: false };
    match runner.run(options, body) {
        ScheduleResult::Over((), report) => report,
        ScheduleResult::Found(finding) => panic!("seed {seed}: {finding}"),
    }
}

/// Two threads spin for each other: one until the other has continued, the other until the first
/// has begun.
fn spin_for_one_another() {
    let flags = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
    switch_threads(true);
    let threads = [0, 1].map(|me| {
        let flags = flags.clone();
        spawn("spins", move || {
            flags[me].store(true, Ordering::SeqCst);
            while !flags[1 - me].load(Ordering::SeqCst) {}
        })
    });
    threads.into_iter().for_each(super::Client::join);
}

/// With every strategy, a spinning thread is preempted for the threads it waits for.
#[test]
fn a_thread_that_spins_does_not_keep_the_others_from_going_on() {
    let runner = Runner::default();
    for seed in 0..300 {
        let report = run(&runner, seed, spin_for_one_another);
        assert!(report.steps < 100_000, "seed {seed}: {report:?}");
    }
}

fn take_turns() {
    let flag = Arc::new(AtomicBool::new(false));
    switch_threads(true);
    let threads = [0, 1, 2].map(|number| {
        let flag = flag.clone();
        spawn("changes", move || {
            for _ in 0..200 {
                flag.swap(number == 0, Ordering::SeqCst);
            }
            pause(100 * number);
        })
    });
    threads.into_iter().for_each(super::Client::join);
}

#[test]
fn a_seed_does_the_same_each_time_and_another_one_something_else() {
    let runner = Runner::default();
    let reports: Vec<_> = (0..50).map(|seed| run(&runner, seed, take_turns)).collect();
    let again: Vec<_> = (0..50).map(|seed| run(&runner, seed, take_turns)).collect();
    assert_eq!(reports, again);
    let switches: u64 = reports.iter().map(|report| report.switches).sum();
    assert!(switches > 300, "they take turns: {switches}");
    let mut hashes: Vec<_> = reports.iter().map(|report| report.hash).collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert!(hashes.len() > 20, "{} of 50 differ", hashes.len());
}
