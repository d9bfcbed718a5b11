//! Tests of versions against a simple model: the list of commits defines what each snapshot must
//! see.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::chain::WriteRefusal;
use super::change::ChangeRef;
use super::mapping::{Mapping, merge_mappings, reserved_bytes, split_mapping};
use super::test_page::{FoundRecord, TABLE, TestPage};
use crate::common::{PART_SECONDS, with_limit};
use crate::log::Lsn;
use crate::memory::{MemoryCounters, MemoryKind};
use crate::page::value::SlotValue;
use crate::reclaim::{self, OperationGuard, Participation};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::version::{Horizon, Readers, Stamp, TransactionName, View};

/// Creates a page with one worker, which participates in reclamation.
fn page(slots: &[Option<u64>]) -> (TestPage, Participation) {
    let page = TestPage::new(slots, 1, 8);
    let me = page.domain.participate();
    (page, me)
}

fn read(page: &TestPage, key: u8, begin: Lsn, me: TransactionName) -> Option<u64> {
    page.read(key, page.view(begin, me), &reclaim::enter()).unwrap().value
}

/// Frees everything that was retired, and checks that nothing is left.
fn assert_all_freed(page: &TestPage, me: &Participation) {
    page.prune();
    while me.turn() {}
    assert_eq!(page.word(), 0, "no chain is left");
    assert_eq!(page.memory.bytes(MemoryKind::Change), 0);
}

#[test]
fn each_snapshot_sees_its_own_time() {
    with_limit(PART_SECONDS, |_| {
        let (page, me) = page(&[Some(1), None]);
        let reader = page.status.begin(0, 7);
        let (mut begins, mut expected, mut changes) = (vec![], vec![], vec![]);
        for round in 0..5 {
            begins.push(page.tail());
            expected.push(if round == 0 {
                (Some(1), None)
            } else {
                (Some(round), Some(round * 10))
            });
            let name = page.status.begin(0, 0);
            let view = page.view(page.tail(), name);
            let value = round + 1;
            let one = page.write(0, Some(value), view, false).unwrap().unwrap();
            let two = page.write(1, Some(77), view, false).unwrap().unwrap();
            assert!(page.write(1, Some(value * 10), view, false).unwrap().is_none(), "its own");
            assert_eq!(read(&page, 1, page.tail(), name), Some(value * 10), "its own");
            let made = [(0, one), (1, two)];
            let lsn = page.commit(name, &made);
            changes.push((lsn, made));
            for (begin, expected) in begins.iter().zip(&expected) {
                let seen = (read(&page, 0, *begin, reader), read(&page, 1, *begin, reader));
                assert_eq!(seen, *expected, "as of {begin:?}");
            }
        }
        // Snapshots from the third on may still be read; older versions are collected.
        let horizon = begins[2];
        for (lsn, made) in &changes[..2] {
            assert!(*lsn < horizon);
            // SAFETY: committed before the horizon, collected once.
            made.iter().for_each(|(_, change)| unsafe {
                change.collect(horizon, &page.memory).release(&page.memory)
            });
        }
        assert_eq!(page.prune(), 0);
        for (begin, expected) in begins.iter().zip(&expected).skip(2) {
            let seen = (read(&page, 0, *begin, reader), read(&page, 1, *begin, reader));
            assert_eq!(seen, *expected, "as of {begin:?}");
        }
        let horizon = page.tail();
        // Newest first: the first cut unlinks all, and each change is still retired.
        for (_, made) in changes[2..].iter().rev() {
            // SAFETY: committed before the horizon, which is the tail now, and collected once.
            made.iter().for_each(|(_, change)| unsafe {
                change.collect(horizon, &page.memory).release(&page.memory)
            });
        }
        assert_all_freed(&page, &me);
        assert_eq!((page.slot(0), page.slot(1)), (Some(5), Some(50)));
    });
}

#[test]
fn an_abort_rolls_back_writes() {
    with_limit(PART_SECONDS, |_| {
        let (page, me) = page(&[Some(1), None]);
        let (name, other) = (page.status.begin(0, 0), page.status.begin(0, 1));
        let view = page.view(page.tail(), name);
        // The second write has a separate change, as after a savepoint.
        let first = page.write(0, Some(2), view, false).unwrap().unwrap();
        let second = page.write(0, None, view, true).unwrap().unwrap();
        let born = page.write(1, Some(5), view, false).unwrap().unwrap();
        assert_eq!(read(&page, 0, page.tail(), name), None);
        assert_eq!(read(&page, 0, page.tail(), other), Some(1));
        page.abort(&[(0, second)]);
        assert_eq!(read(&page, 0, page.tail(), name), Some(2));
        // Aborted, but not rolled back yet: readers undo the changes, and the next writer rolls
        // them back.
        for change in [first, born] {
            // SAFETY: retired below.
            unsafe { change.get() }.set_stamp(Stamp::ABORTED);
        }
        page.status.aborted(name);
        assert_eq!((page.slot(0), page.slot(1)), (Some(2), Some(5)));
        assert_eq!(read(&page, 0, page.tail(), other), Some(1));
        assert_eq!(read(&page, 1, page.tail(), other), None);
        let view = page.view(page.tail(), other);
        let next = page.write(1, Some(6), view, false).unwrap().unwrap();
        assert_eq!(read(&page, 1, page.tail(), other), Some(6));
        page.abort(&[(0, first), (1, born)]);
        assert_eq!((page.slot(0), page.slot(1)), (Some(1), Some(6)));
        page.status.aborted(other);
        page.abort(&[(1, next)]);
        assert_eq!((page.slot(0), page.slot(1)), (Some(1), None));
        assert_all_freed(&page, &me);
    });
}

#[test]
fn first_updater_wins() {
    with_limit(PART_SECONDS, |_| {
        let (page, me) = page(&[Some(1)]);
        let (name, late) = (page.status.begin(0, 0), page.status.begin(0, 1));
        let begin = page.tail();
        let change = page.write(0, Some(2), page.view(begin, name), false).unwrap().unwrap();
        let refused = page.write(0, Some(3), page.view(begin, late), false);
        assert!(matches!(refused, Err(WriteRefusal::Conflict)), "{refused:?}");
        let lsn = page.commit(name, &[(0, change)]);
        let refused = page.write(0, Some(3), page.view(begin, late), false);
        assert!(matches!(refused, Err(WriteRefusal::Newer)), "{refused:?}");
        let operation = reclaim::enter();
        let seen = page.read(0, page.view(begin, late), &operation).unwrap();
        assert_eq!(seen, FoundRecord { value: Some(1), committed: None, below_newer: true });
        let seen = page.read(0, page.view(page.tail(), late), &operation).unwrap();
        assert_eq!(seen, FoundRecord { value: Some(2), committed: Some(lsn), below_newer: false });
        drop(operation);
        let again = page.write(0, Some(3), page.view(page.tail(), late), false).unwrap().unwrap();
        page.status.aborted(late);
        page.abort(&[(0, again)]);
        // SAFETY: committed before the tail, collected once; no reader is left.
        unsafe { change.collect(page.tail(), &page.memory).release(&page.memory) };
        assert_all_freed(&page, &me);
    });
}

/// Chains of many keys move with their keys when pages are split and merged, and each is found on
/// the right page.
#[test]
fn mapping_tables_are_split_and_merged() {
    with_limit(PART_SECONDS, |_| {
        let (page, me) = page(&[]);
        let (name, status) = (page.status.begin(0, 0), &page.status);
        let memory: &MemoryCounters = &page.memory;
        let keys: Vec<Vec<u8>> = (0..200_u32).map(|n| format!("key {n:05}").into_bytes()).collect();
        let mut words = (0, 0);
        let mut changes = vec![];
        for key in keys.iter().rev() {
            // SAFETY: this test alone has the word, as if its page were latched.
            let (chain, word) = unsafe { Mapping::find_or_make(words.0, memory, TABLE, key) };
            words.0 = word;
            // SAFETY: this test alone has the chain, as if its page were latched.
            changes.push(unsafe {
                chain.push(memory, Stamp::in_flight(name), Some(SlotValue::Here(&[9; 100])), 0)
            });
            chain.note_on_page(40);
        }
        // SAFETY: this test alone has the word, as if its page were latched.
        let found = |word, key: &[u8]| unsafe { Mapping::find(word, key) }.is_some();
        for separator in [0, 1, 57, 150, 199, 200] {
            let by = keys.get(separator).map_or(&b"l"[..], |key| key);
            // SAFETY: this test alone has the word, as if both pages were latched.
            words = unsafe { split_mapping(words.0, by) };
            for (place, key) in keys.iter().enumerate() {
                let where_it_is = (found(words.0, key), found(words.1, key));
                assert_eq!(where_it_is, (place < separator, place >= separator));
            }
            assert_eq!((words.0 == 0, words.1 == 0), (separator == 0, separator == 200));
            // SAFETY: this test alone has the words, as if their pages were latched.
            let bytes = unsafe { [words.0, words.1].map(|word| reserved_bytes(word)) };
            let expected = [separator, keys.len() - separator].map(|keys| keys * 68);
            assert_eq!(bytes, expected, "60 bytes for each, which has shrunk, and rounding");
            // SAFETY: this test alone has the words, as if their pages were latched.
            words = (unsafe { merge_mappings(words.0, words.1) }, 0);
            me.turn();
        }
        assert!(keys.iter().all(|key| found(words.0, key)) && !found(words.0, b"key"));
        status.aborted(name);
        for (key, change) in keys.iter().rev().zip(changes) {
            // SAFETY: retired below.
            unsafe { change.get() }.set_stamp(Stamp::ABORTED);
            let mut restored = 0;
            // SAFETY: this test alone has the word, as if its page were latched; the change,
            // stamped aborted, is rolled back here, and retired once.
            unsafe {
                let chain = Mapping::find(words.0, key).unwrap();
                chain.roll_back(status, |before| restored += before.unwrap().cell_bytes());
                assert_eq!(change.record(), (TABLE, &key[..]));
                change.retire_aborted(memory);
            }
            assert_eq!(restored, 100);
        }
        let mut gone = vec![];
        // SAFETY: this test alone has the word, as if its page were latched.
        let word = unsafe { Mapping::prune(words.0, |key| gone.push(key.to_vec())) };
        gone.sort();
        assert_eq!((word, gone), (0, keys));
        assert_all_freed(&page, &me);
    });
}

#[test]
fn a_page_that_is_given_up_takes_its_chains_with_it() {
    with_limit(PART_SECONDS, |_| {
        let (page, _me) = page(&[Some(1), Some(2)]);
        let name = page.status.begin(0, 0);
        for key in [0, 1, 1] {
            page.write(key, Some(5), page.view(page.tail(), name), true).unwrap().unwrap();
        }
        assert!(page.memory.bytes(MemoryKind::Change) > 0);
        // SAFETY: the page is no longer used.
        unsafe { Mapping::free(page.word()) };
        assert_eq!(page.memory.bytes(MemoryKind::Change), 0);
    });
}

/// Between two snapshots only one before-image is kept, and every snapshot keeps its answer.
#[test]
fn pruning_keeps_one_change_for_each_snapshot() {
    with_limit(PART_SECONDS, |_| {
        let (page, me) = page(&[Some(0), None]);
        let (readers, reader) = (Readers::new(1), page.status.begin(0, 7));
        let (mut snapshots, mut changes) = (Vec::new(), Vec::new());
        for round in 1..=1000_u64 {
            if round % 250 == 10 {
                snapshots.push((page.tail(), Some(round - 1)));
            }
            let name = page.status.begin(0, 0);
            for key in 0..2 {
                let view = page.view(page.tail(), name);
                changes.push((key, page.write(key, Some(round), view, true).unwrap().unwrap()));
            }
            let made: Vec<_> = changes[changes.len() - 2..].to_vec();
            page.commit(name, &made);
        }
        let begins = snapshots.iter().map(|(begin, _)| *begin);
        readers.publish(0, begins, Lsn::MAX, page.tail());
        let stamps = readers.all_stamps(page.tail());
        // SAFETY: listed here, so not retired.
        unsafe {
            // The changes of each key are visited once.
            assert_eq!(changes[0].1.prune_chain(&stamps, Lsn::MAX), 1000);
            assert_eq!(changes[1].1.prune_chain(&stamps, Lsn::MAX), 1000);
        }
        changes.retain(|(_, change)| {
            // SAFETY: listed here, so not retired; pruned, and then off the list.
            unsafe {
                let is_pruned = change.is_pruned();
                if is_pruned {
                    change.collect_pruned(&page.memory).release(&page.memory);
                }
                !is_pruned
            }
        });
        assert_eq!(changes.len(), 2 * snapshots.len());
        for (begin, value) in &snapshots {
            let seen = [0, 1].map(|key| read(&page, key, *begin, reader));
            assert_eq!(seen, [*value; 2], "as of {begin:?}");
        }
        assert_eq!(read(&page, 0, page.tail(), reader), Some(1000));
        // A writer that began before the last commits still meets a newer version.
        let late = page.view(snapshots[3].0, reader);
        assert!(matches!(page.write(0, Some(1), late, true), Err(WriteRefusal::Newer)));
        for (_, change) in changes {
            // SAFETY: committed before the tail, collected once; no reader is left.
            unsafe { change.collect(page.tail(), &page.memory).release(&page.memory) };
        }
        page.status.aborted(reader);
        assert_all_freed(&page, &me);
    });
}

const KEYS: u8 = 5;
const WORKERS: usize = 4;

/// State shared by the workers of the stress test.
struct Stress {
    page: TestPage,
    horizon: Horizon,
    readers: Readers,
    /// Committed values: commit LSN, key, value.
    commits: Mutex<Vec<(Lsn, u8, Option<u64>)>>,
    /// Values read by snapshots: begin stamp, key, value.
    reads: Mutex<Vec<(Lsn, u8, Option<u64>)>>,
    done: AtomicBool,
    counts: [AtomicU64; 6],
}

/// Events that the stress test counts, to show that each occurred often enough.
#[derive(Clone, Copy)]
enum Count {
    Committed,
    Aborted,
    Conflicts,
    ReadBelow,
    Removed,
    Pruned,
}

impl Stress {
    fn count(&self, what: Count, number: u64) {
        self.counts[what as usize].fetch_add(number, Ordering::Relaxed);
    }

    fn counted(&self) -> [u64; 6] {
        self.counts.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Runs one worker: transactions in sequence, most of which read all records and write some.
    fn work(&self, worker: usize) {
        let (page, me) = (&self.page, self.page.domain.participate());
        let mut random = fastrand::Rng::with_seed(worker as u64 + 1);
        let mut garbage = VecDeque::<(Lsn, ChangeRef)>::new();
        let mut value = worker as u64;
        // A snapshot that is open for many transactions of this worker, like that of a long reader.
        let reader = page.status.begin(worker, 1);
        let mut old = page.tail();
        self.readers.wake(worker, old);
        self.horizon.wake(worker, old);
        while !self.done.load(Ordering::Relaxed) {
            let begin = page.tail();
            let name = page.status.begin(worker, 0);
            let view = page.view(begin, name);
            let operation = reclaim::enter();
            for _ in 0..2 {
                self.read_all(&mut random, view, &operation);
                if random.u8(..4) == 0 {
                    std::thread::yield_now();
                }
            }
            self.read_all(&mut random, page.view(old, reader), &operation);
            drop(operation);
            self.write_some(&mut random, view, &mut value, &mut garbage);
            let recent = page.tail();
            // From time to time no snapshot is open for long, so that chains become empty.
            let holds = recent.0 >> 14 & 1 == 0;
            if !holds || random.u8(..64) == 0 {
                old = if holds { begin } else { recent };
            }
            self.readers.publish(worker, [old].into_iter(), Lsn::MAX, recent);
            self.horizon.publish(worker, old);
            self.collect(worker, &mut garbage);
            if random.u8(..4) == 0 {
                self.prune(&mut garbage);
            }
            if random.u8(..16) == 0 {
                self.count(Count::Removed, page.prune() as u64);
            }
            me.turn();
        }
        self.horizon.publish(worker, Lsn::MAX);
        while !garbage.is_empty() {
            self.collect(worker, &mut garbage);
            std::thread::yield_now();
        }
    }

    /// Reads all records for a view, and keeps some of the results.
    fn read_all(&self, random: &mut fastrand::Rng, view: View<'_>, operation: &OperationGuard) {
        for key in 0..KEYS {
            let Ok(found) = self.page.read(key, view, operation) else { continue };
            self.count(Count::ReadBelow, u64::from(found.below_newer));
            if random.u8(..8) == 0 {
                self.reads.lock().push((view.begin, key, found.value));
            }
        }
    }

    /// Prunes the chains of this worker's changes, and retires those that it or others pruned.
    fn prune(&self, garbage: &mut VecDeque<(Lsn, ChangeRef)>) {
        let stamps = self.readers.all_stamps(self.page.tail());
        garbage.retain(|(_, change)| {
            // SAFETY: listed, so not retired; then off the list.
            unsafe {
                if !change.is_pruned() {
                    change.prune_chain(&stamps, Lsn::MAX);
                }
                if change.is_pruned() {
                    change.collect_pruned(&self.page.memory).release(&self.page.memory);
                    self.count(Count::Pruned, 1);
                    return false;
                }
            }
            true
        });
    }

    /// Writes some records, then commits or aborts.
    fn write_some(
        &self,
        random: &mut fastrand::Rng,
        view: View<'_>,
        value: &mut u64,
        garbage: &mut VecDeque<(Lsn, ChangeRef)>,
    ) {
        let (page, mut changes) = (&self.page, Vec::new());
        let mut written = Vec::<(u8, Option<u64>)>::new();
        let mut conflict = false;
        for _ in 0..random.u8(..4) {
            let key = random.u8(..KEYS);
            *value += WORKERS as u64;
            let new = (random.u8(..4) > 0).then_some(*value);
            match page.write(key, new, view, random.bool()) {
                Ok(change) => changes.extend(change.map(|change| (key, change))),
                Err(_) => {
                    conflict = true;
                    break;
                }
            }
            written.retain(|(other, _)| *other != key);
            written.push((key, new));
        }
        if !conflict && random.u8(..4) == 0 && changes.len() > 1 {
            // Like a rollback to a savepoint before all writes; the order need not be newest first.
            page.abort(&std::mem::take(&mut changes));
            written.clear();
        }
        if conflict || random.u8(..4) == 0 {
            page.status.aborted(view.me);
            page.abort(&changes);
            self.count(Count::Aborted, 1);
            self.count(Count::Conflicts, u64::from(conflict));
        } else {
            let lsn = page.commit(view.me, &changes);
            let mut commits = self.commits.lock();
            commits.extend(written.into_iter().map(|(key, value)| (lsn, key, value)));
            drop(commits);
            garbage.extend(changes.into_iter().map(|(_, change)| (lsn, change)));
            self.count(Count::Committed, 1);
        }
    }

    fn collect(&self, worker: usize, garbage: &mut VecDeque<(Lsn, ChangeRef)>) {
        let Some(acting) = self.horizon.act(worker, self.page.tail()) else { return };
        let horizon = acting.oldest();
        while let Some((_, change)) = garbage.pop_front_if(|(lsn, _)| *lsn < horizon) {
            // SAFETY: committed before the horizon, and taken off the list.
            unsafe { change.collect(horizon, &self.page.memory).release(&self.page.memory) };
        }
    }
}

/// Several workers write, abort, read, collect and prune a few records of one page, until each
/// event has occurred often enough. Then every read is compared with the list of commits.
#[test]
fn stress_every_snapshot_sees_what_was_committed_before_it() {
    with_limit(PART_SECONDS, |_| {
        const ENOUGH: [u64; 6] = [3000, 1000, 200, 500, 100, 3000];
        let most = Duration::from_secs(60);
        let slots: Vec<_> = (0..KEYS).map(|key| Some(u64::from(key) + (1 << 40))).collect();
        let stress = Stress {
            page: TestPage::new(&slots, WORKERS, 2),
            horizon: Horizon::new(WORKERS),
            readers: Readers::new(WORKERS),
            commits: Mutex::default(),
            reads: Mutex::default(),
            done: AtomicBool::new(false),
            counts: Default::default(),
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..WORKERS)
                .map(|worker| {
                    let stress = &stress;
                    scope.spawn(move || stress.work(worker))
                })
                .collect();
            let started = Instant::now();
            let enough = || stress.counted().iter().zip(ENOUGH).all(|(now, least)| *now >= least);
            while !enough() && workers.iter().all(|worker| !worker.is_finished()) {
                if started.elapsed() > most {
                    stress.done.store(true, Ordering::Relaxed);
                    panic!("not enough has happened: {:?} of {ENOUGH:?}", stress.counted());
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            stress.done.store(true, Ordering::Relaxed);
        });
        let mut commits = std::mem::take(&mut *stress.commits.lock());
        commits.sort_unstable_by_key(|(lsn, ..)| *lsn);
        let reads = std::mem::take(&mut *stress.reads.lock());
        assert!(!reads.is_empty());
        for (begin, key, value) in reads {
            let before = commits.iter().rev().find(|(lsn, of, _)| *lsn < begin && *of == key);
            let expected = before.map_or(slots[usize::from(key)], |(.., value)| *value);
            assert_eq!(value, expected, "key {key} as of {begin:?}");
        }
        let page = stress.page;
        for key in 0..KEYS {
            let last = commits.iter().rev().find(|(_, of, _)| *of == key);
            let expected = last.map_or(slots[usize::from(key)], |(.., value)| *value);
            assert_eq!(page.slot(key), expected, "key {key} at the end");
        }
        let me = page.domain.participate();
        page.prune();
        assert_eq!(page.word(), 0);
        drop(me);
        page.domain.drain();
        assert_eq!(page.memory.bytes(MemoryKind::Change), 0);
    });
}
