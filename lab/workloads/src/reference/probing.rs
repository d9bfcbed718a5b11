//! Look-ups of batches of keys in the bare tree, as in engines that interleave within a transaction
//! (CoroBase §5.1): one after the other with and without prefetches, a hand-written state machine
//! (AMAC), flattened coroutines, and nested coroutines. They are an upper bound for the gain of
//! interleaving.
//!
//! All variants find the same values; a test compares them.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::hinted_lookup::{GROUP, HintedLookup, SNAPSHOT, UNCACHED_LEVELS};
use super::interleave::prefetch;
use crate::harness::latency::Latencies;
use crate::harness::rounds::{Effort, Sample};

/// The maximum number of keys in a batch.
pub(crate) const MOST: usize = 16;

/// The way in which a batch is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probing {
    /// Key by key.
    OneByOne,
    /// Key by key, with a prefetch of each line as soon as its address is known.
    Prefetching,
    /// All keys interleaved, in a hand-written state machine.
    Amac,
    /// All keys interleaved, each in a coroutine with one state machine.
    Flattened,
    /// All keys interleaved, each level of calls in a coroutine on the heap.
    Nested,
}

impl Probing {
    /// Returns the name in tables, with CoroBase's name in brackets.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::OneByOne => "bare, one by one (Naive)",
            Self::Prefetching => "bare, prefetching (ERMIA)",
            Self::Amac => "bare, state machine (AMAC-MK)",
            Self::Flattened => "bare, flattened (CORO-MK)",
            Self::Nested => "bare, nested (CORO-FN-MK)",
        }
    }

    pub(crate) const ALL: [Self; 5] =
        [Self::OneByOne, Self::Prefetching, Self::Amac, Self::Flattened, Self::Nested];
}

/// The depth of a look-up: only the index, or also the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    Index,
    Records,
}

/// The state of one look-up in the hand-written state machine.
#[derive(Clone, Copy)]
enum Stage {
    /// The hint line of the node was prefetched.
    Hints,
    /// The lines of keys and of values of this group were prefetched.
    Slot(usize),
    /// The entry of the indirection array was prefetched.
    Entry,
    /// The version was prefetched.
    Version,
    Done,
}

#[derive(Clone, Copy)]
struct State {
    key: u64,
    /// The number of a node, then of a record, then of a version.
    number: u64,
    level: usize,
    stage: Stage,
}

impl HintedLookup {
    /// Looks `keys` up and passes each value to `found`, or the record id if only the index is
    /// searched.
    #[inline(always)]
    pub(crate) fn look_up(
        &self,
        keys: &[u64],
        how: Probing,
        depth: Depth,
        mut found: impl FnMut(Option<u64>),
    ) {
        match how {
            Probing::OneByOne => keys.iter().for_each(|key| found(self.now(*key, depth, false))),
            Probing::Prefetching => keys.iter().for_each(|key| found(self.now(*key, depth, true))),
            Probing::Amac => self.amac(keys, depth, &mut found),
            Probing::Flattened => match depth {
                Depth::Index => side_by_side(keys, |key| self.find(key), &mut found),
                Depth::Records => side_by_side(keys, |key| self.get(key), &mut found),
            },
            Probing::Nested => side_by_side(keys, |key| self.nested(key, depth), &mut found),
        }
    }

    /// Looks a key up without suspending.
    #[inline(always)]
    fn now(&self, key: u64, depth: Depth, prefetching: bool) -> Option<u64> {
        let (mut number, mut level) = (self.root, self.height);
        loop {
            level -= 1;
            let node = &self.nodes[number as usize];
            if prefetching && level < UNCACHED_LEVELS {
                prefetch(&raw const node.hints);
            }
            let group = node.group_of(key);
            if prefetching && level < UNCACHED_LEVELS {
                prefetch(&raw const node.keys[group * GROUP]);
                prefetch(&raw const node.values[group * GROUP]);
            }
            let slot = node.slot_in(group, key);
            number = node.values[slot];
            if level == 0 {
                if node.keys[slot] != key {
                    return None;
                }
                break;
            }
        }
        if depth == Depth::Index {
            return Some(number);
        }
        if prefetching {
            prefetch(&raw const self.indirection[number as usize]);
        }
        let version = &self.versions[self.indirection[number as usize] as usize];
        if prefetching {
            prefetch(&raw const *version);
        }
        (version.stamp < SNAPSHOT).then_some(version.value)
    }

    /// Asynchronous memory access chaining (Kocberber et al., VLDB 2015): each turn runs the next
    /// step of one key.
    #[inline(always)]
    fn amac(&self, keys: &[u64], depth: Depth, found: &mut impl FnMut(Option<u64>)) {
        let idle = State { key: 0, number: 0, level: 0, stage: Stage::Done };
        let mut states = [idle; MOST];
        let states = &mut states[..keys.len()];
        for (state, key) in states.iter_mut().zip(keys) {
            *state = State { key: *key, number: self.root, level: self.height, stage: Stage::Done };
            self.enter(state);
        }
        let mut left = keys.len();
        while left > 0 {
            for state in &mut *states {
                if let Some(value) = self.step(state, depth) {
                    state.stage = Stage::Done;
                    found(value);
                    left -= 1;
                }
            }
        }
    }

    /// Descends from node to node while nodes are in the cache.
    #[inline(always)]
    fn enter(&self, state: &mut State) {
        loop {
            state.level -= 1;
            let node = &self.nodes[state.number as usize];
            if state.level < UNCACHED_LEVELS {
                prefetch(&raw const node.hints);
                state.stage = Stage::Hints;
                return;
            }
            let slot = node.slot_in(node.group_of(state.key), state.key);
            state.number = node.values[slot];
        }
    }

    /// Runs the next step of one key. Returns the result after the last step.
    #[inline(always)]
    fn step(&self, state: &mut State, depth: Depth) -> Option<Option<u64>> {
        match state.stage {
            Stage::Hints => {
                let node = &self.nodes[state.number as usize];
                let group = node.group_of(state.key);
                prefetch(&raw const node.keys[group * GROUP]);
                prefetch(&raw const node.values[group * GROUP]);
                state.stage = Stage::Slot(group);
                None
            }
            Stage::Slot(group) => {
                let node = &self.nodes[state.number as usize];
                let slot = node.slot_in(group, state.key);
                state.number = node.values[slot];
                if state.level > 0 {
                    self.enter(state);
                    return None;
                }
                if node.keys[slot] != state.key {
                    return Some(None);
                }
                if depth == Depth::Index {
                    return Some(Some(state.number));
                }
                prefetch(&raw const self.indirection[state.number as usize]);
                state.stage = Stage::Entry;
                None
            }
            Stage::Entry => {
                state.number = self.indirection[state.number as usize];
                prefetch(&raw const self.versions[state.number as usize]);
                state.stage = Stage::Version;
                None
            }
            Stage::Version => {
                let version = &self.versions[state.number as usize];
                Some((version.stamp < SNAPSHOT).then_some(version.value))
            }
            Stage::Done => None,
        }
    }

    /// Looks a key up with one coroutine on the heap for the index and one for the record, inside a
    /// third one.
    async fn nested(&self, key: u64, depth: Depth) -> Option<u64> {
        type Boxed<'f> = Pin<Box<dyn Future<Output = Option<u64>> + 'f>>;
        let inner: Boxed<'_> = match depth {
            Depth::Index => Box::pin(self.find(key)),
            Depth::Records => Box::pin(self.get(key)),
        };
        let outer: Boxed<'_> = Box::pin(inner);
        outer.await
    }

    /// Runs batches on several threads. Each batch has as many keys as `draw` writes.
    pub(crate) fn probe<D>(
        &self,
        (how, depth): (Probing, Depth),
        threads: usize,
        effort: Effort,
        make: impl Fn(usize) -> D,
    ) -> Sample
    where
        D: FnMut(&mut [u64; MOST]) -> usize + Send,
    {
        assert!(threads > 0, "at least one thread is required");
        let begin = Instant::now();
        let run = |mut draw: D| {
            let (mut batches, mut missing, mut keys) = (0, 0, [0; MOST]);
            let mut latencies = Latencies::one_in(64);
            let share = match effort {
                Effort::Transactions(count) => Some(count.div_ceil(threads as u64)),
                Effort::Seconds(_) => None,
            };
            loop {
                let enough = match (effort, share) {
                    (Effort::Seconds(seconds), _) => {
                        // Even a thread that begins late runs at least one batch.
                        batches > 0
                            && batches % 256 == 0
                            && begin.elapsed().as_secs_f64() >= seconds
                    }
                    (_, share) => Some(batches) == share,
                };
                if enough {
                    break;
                }
                let count = draw(&mut keys);
                let start = latencies.start();
                self.look_up(&keys[..count], how, depth, |value| {
                    missing += u64::from(std::hint::black_box(value).is_none());
                });
                latencies.finish(start);
                batches += 1;
            }
            assert_eq!(missing, 0, "every drawn key is in the tree");
            (batches, latencies)
        };
        let results: Vec<_> = std::thread::scope(|scope| {
            let draws: Vec<D> = (0..threads).map(&make).collect();
            let threads: Vec<_> = draws.into_iter().map(|draw| scope.spawn(|| run(draw))).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect()
        });
        let mut all = Latencies::one_in(1);
        results.iter().for_each(|(_, latencies)| all.merge(latencies));
        let batches = results.iter().map(|(batches, _)| batches).sum();
        Sample::plain(batches, begin.elapsed(), all)
    }
}

/// Runs one coroutine for each key, in turn, until all complete.
#[inline(always)]
fn side_by_side<F: Future<Output = Option<u64>>>(
    keys: &[u64],
    look_up: impl Fn(u64) -> F,
    found: &mut impl FnMut(Option<u64>),
) {
    let mut context = Context::from_waker(Waker::noop());
    let mut tasks: [Option<F>; MOST] =
        std::array::from_fn(|place| keys.get(place).map(|key| look_up(*key)));
    let mut left = keys.len();
    while left > 0 {
        for slot in &mut tasks[..keys.len()] {
            let Some(task) = slot else { continue };
            // SAFETY: the array is not moved, so tasks stay in place. They are dropped in place, by
            // the assignment below or with the array.
            let task = unsafe { Pin::new_unchecked(task) };
            if let Poll::Ready(value) = task.poll(&mut context) {
                found(value);
                *slot = None;
                left -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Uniform, key_of};

    #[test]
    fn all_variants_find_the_same_records() {
        for records in [1, 46, 3_000, 100_003] {
            let tree = HintedLookup::build(records).unwrap();
            let mut draw = Uniform::below(records, 7);
            for count in [1, 2, 10, MOST] {
                // Some of the keys are missing.
                let keys: Vec<u64> =
                    (0..count as u64).map(|place| draw.key() + u64::from(place % 5 == 4)).collect();
                for depth in [Depth::Index, Depth::Records] {
                    let found = |how| {
                        let mut found = Vec::new();
                        tree.look_up(&keys, how, depth, |value| found.push(value));
                        found.sort_unstable();
                        found
                    };
                    let expected = found(Probing::OneByOne);
                    assert_eq!(expected.iter().flatten().count(), count - count / 5);
                    for how in Probing::ALL {
                        assert_eq!(found(how), expected, "{how:?}, {depth:?}, {count} keys");
                    }
                }
            }
            let mut value = None;
            let key = key_of(records - 1);
            tree.look_up(&[key], Probing::Amac, Depth::Records, |found| value = found);
            assert_eq!(value, Some(records - 1));
        }
    }

    #[test]
    fn probing_runs_on_several_threads() {
        let tree = HintedLookup::build(5_000).unwrap();
        let make = |thread| {
            let mut draw = Uniform::below(5_000, thread as u64);
            move |keys: &mut [u64; MOST]| {
                keys[..10].copy_from_slice(&draw.keys::<10>());
                10
            }
        };
        for how in Probing::ALL {
            let effort = Effort::Transactions(1_000);
            let sample = tree.probe((how, Depth::Records), 2, effort, make);
            assert_eq!(sample.transactions, 1_000);
            let sample = tree.probe((how, Depth::Index), 2, Effort::Seconds(0.005), make);
            assert!(sample.transactions > 0);
        }
    }
}
