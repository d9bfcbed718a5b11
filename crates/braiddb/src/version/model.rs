//! Loom models of visibility, with the real types: reuse of a transaction context, begin stamps
//! concurrent with the horizon, and pruning concurrent with workers that act on the horizon.

use std::process::Command;
use std::sync::Arc;

use loom::thread;

use super::{Horizon, Readers, StatusTable, TransactionStatus};
use crate::log::Lsn;
use crate::memory::MemoryCounters;
use crate::planted::{Bug, VARIABLE};
use crate::reclaim::{Domain, MAX_GUESTS};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A reader on another worker queries a transaction whose context has committed a second one
/// concurrently.
#[test]
fn model_a_context_that_commits_twice_never_lends_one_name_the_other_lsn() {
    loom::model(|| {
        let status = Arc::new(StatusTable::new(1, 1));
        let first = status.begin(0, 0);
        let worker = {
            let status = status.clone();
            thread::spawn(move || {
                let committing = status.committing(first);
                committing.drew(Lsn(8));
                committing.committed();
                let second = status.begin(0, 0);
                let committing = status.committing(second);
                committing.drew(Lsn(16));
                committing.committed();
                second
            })
        };
        match status.outcome(first) {
            TransactionStatus::Active
            | TransactionStatus::Committing(None)
            | TransactionStatus::Stale => {}
            TransactionStatus::Committing(Some(lsn)) | TransactionStatus::Committed(lsn) => {
                assert_eq!(lsn, Lsn(8), "the first one's own LSN")
            }
            TransactionStatus::Aborted => panic!("it committed"),
        }
        let second = worker.join().unwrap();
        assert_eq!(status.outcome(first), TransactionStatus::Stale);
        assert_eq!(status.outcome(second), TransactionStatus::Committed(Lsn(16)));
    });
}

/// Checks that the model above detects a context whose LSN is cleared before the name is outdated.
#[test]
fn model_of_a_reused_context_finds_an_lsn_that_is_cleared_early() {
    let model =
        "version::model::model_a_context_that_commits_twice_never_lends_one_name_the_other_lsn";
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", model])
        .env(VARIABLE, (Bug::CommitLsnClearedEarly as usize).to_string())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("running 1 test"), "{told}");
}

/// A worker without a published stamp begins a transaction while another one acts on the horizon.
#[test]
fn model_no_transaction_begins_before_a_horizon_that_somebody_acts_on() {
    loom::model(|| {
        let (horizon, tail) = (Arc::new(Horizon::new(2)), Arc::new(AtomicU64::new(8)));
        let beginner = {
            let (horizon, tail) = (horizon.clone(), tail.clone());
            thread::spawn(move || {
                horizon.wake(1, Lsn(tail.load(Ordering::Acquire)));
                Lsn(tail.load(Ordering::Acquire))
            })
        };
        tail.fetch_add(8, Ordering::AcqRel);
        let acting = horizon.act(0, Lsn(tail.load(Ordering::Acquire))).expect("no worker prunes");
        let oldest = acting.oldest();
        drop(acting);
        assert!(beginner.join().unwrap() >= oldest, "a version it needs may be freed");
    });
}

/// A writer supersedes the newest version of a record, and then acts on the horizon, while a guest
/// reads the newest version.
#[test]
fn model_no_version_is_freed_that_a_guest_found_as_the_newest() {
    loom::model(|| {
        let domain = Arc::new(Domain::new(1, Arc::new(MemoryCounters::new())));
        let (horizon, tail) = (Arc::new(Horizon::new(1)), Arc::new(AtomicU64::new(8)));
        let newest = Arc::new(AtomicU64::new(0));
        let alive = Arc::new([AtomicBool::new(true), AtomicBool::new(true)]);
        let guest = {
            let (horizon, tail) = (horizon.clone(), tail.clone());
            let (newest, alive) = (newest.clone(), alive.clone());
            thread::spawn(move || {
                let announce =
                    |place| horizon.admit_guest(place, Lsn(tail.load(Ordering::Acquire)));
                let operation =
                    domain.enter_as_guest(MAX_GUESTS, announce).expect("a place is free");
                let found = newest.load(Ordering::Acquire) as usize;
                // Relaxed: the model only checks that a version in use is alive.
                assert!(alive[found].load(Ordering::Relaxed), "freed while it is read");
                horizon.release_guest(operation.place());
            })
        };
        newest.store(1, Ordering::Release);
        let superseded = Lsn(tail.fetch_add(8, Ordering::AcqRel));
        let acting = horizon.act(0, Lsn(tail.load(Ordering::Acquire))).expect("no worker prunes");
        if superseded < acting.oldest() {
            alive[0].store(false, Ordering::Relaxed);
        }
        drop(acting);
        guest.join().unwrap();
    });
}

/// A version committed at 16 and superseded at 24 lies between the newest and the one that a reader
/// with begin stamp 10 sees. The reader was listed, and ends. Its worker then acts on the horizon,
/// so that the chain is not complete any more, while another worker prunes.
#[test]
fn model_who_prunes_finds_chains_whole() {
    loom::model(|| {
        let horizon = Arc::new(Horizon::new(2));
        let readers = Arc::new(Readers::new(2));
        let whole = Arc::new(AtomicBool::new(true));
        horizon.publish(0, Lsn(32));
        horizon.publish(1, Lsn(10));
        readers.publish(0, [].into_iter(), Lsn::MAX, Lsn(32));
        readers.publish(1, [Lsn(10)].into_iter(), Lsn::MAX, Lsn(32));
        let other = {
            let (horizon, whole) = (horizon.clone(), whole.clone());
            thread::spawn(move || {
                horizon.publish(1, Lsn(32));
                let Some(acting) = horizon.act(1, Lsn(32)) else { return };
                if Lsn(24) < acting.oldest() {
                    // Relaxed: the model only checks that the two exclude one another.
                    whole.store(false, Ordering::Relaxed);
                }
            })
        };
        if let Some(pruning) = horizon.prune() {
            let stamps = readers.stamps(Lsn(32), &pruning);
            if stamps.is_only_stepped_over(Lsn(16), Lsn(24)) {
                assert!(whole.load(Ordering::Relaxed), "the chain must be complete");
            }
        }
        other.join().unwrap();
    });
}
