//! The bare lookup loop: only index, indirection array and version. It has no concurrency control
//! and no transactions, and uses one thread and huge pages. It is an upper bound for point reads of
//! an engine with the same nodes, so `reads` shows the cost of everything that an engine adds.
//!
//! A B+tree of 64-key nodes with one line of hints: searching a node touches the hint line, then
//! one line of keys and one of values. Leaves, record ids and versions are shuffled in memory, as
//! in a table after long use. The tree is read-only once built.

use std::io;
use std::pin::Pin;
use std::time::Instant;

use super::interleave::{Suspend, interleave, prefetch, touch};
use super::region::{Plain, Region};
use crate::harness::latency::Latencies;
use crate::harness::rounds::{Effort, Sample};
use crate::random::{Uniform, key_of};

/// The capacity of a node in keys: 8 groups of 8, a cache line each.
const FANOUT: usize = 64;
pub(super) const GROUP: usize = 8;
/// The number of keys in a built node: 70 % full, as random inserts leave nodes.
const FILL: usize = 45;
/// The number of levels, counted from the leaves, that do not stay in the cache, so that look-ups
/// suspend there. The third level has one node for every 91 000 records: under 1 MiB at 50 M
/// records.
pub(super) const UNCACHED_LEVELS: usize = 2;
/// The commit stamp of all versions, before every snapshot that a look-up uses.
const STAMP: u64 = 5;
pub(super) const SNAPSHOT: u64 = 1000;
/// The number of keys that a transaction reads.
pub(crate) const READS: usize = 10;

/// A node. Unused keys are `u64::MAX`; hint `g` is the key at `g * 8`.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Node {
    pub(super) hints: [u64; FANOUT / GROUP],
    pub(super) keys: [u64; FANOUT],
    /// Node numbers of children, or record ids in a leaf.
    pub(super) values: [u64; FANOUT],
}

const _: () = assert!(size_of::<Node>() == 17 * 64, "a hint line, 8 of keys, 8 of values");

// SAFETY: integers only, without padding.
unsafe impl Plain for Node {}

/// A version of a record: half a cache line, never across two.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub(super) struct Version {
    pub(super) stamp: u64,
    older: u64,
    length: u64,
    pub(super) value: u64,
}

// SAFETY: integers only, without padding.
unsafe impl Plain for Version {}

/// The built tree with its records.
pub(crate) struct HintedLookup {
    pub(super) nodes: Region<Node>,
    /// The number of the newest version, by record id.
    pub(super) indirection: Region<u64>,
    pub(super) versions: Region<Version>,
    pub(super) root: u64,
    pub(super) height: usize,
    records: u64,
}

impl HintedLookup {
    /// Returns the bytes that `records` records take.
    pub(crate) fn bytes(records: u64) -> u64 {
        let leaves = records.div_ceil(FILL as u64);
        let nodes = leaves + leaves / (FILL as u64 - 1) + 2;
        nodes * size_of::<Node>() as u64 + records * (8 + size_of::<Version>() as u64)
    }

    /// Builds a tree of records 0 to `records`, each with its number as value.
    pub(crate) fn build(records: u64) -> io::Result<Self> {
        assert!(records > 0, "an empty tree has no root");
        let count = usize::try_from(records).expect("records fit the address space");
        let leaves = count.div_ceil(FILL);
        let mut nodes = Region::<Node>::zeroed(node_count(leaves))?;
        let mut indirection = Region::<u64>::zeroed(count)?;
        let mut versions = Region::<Version>::zeroed(count)?;

        let mut places: Vec<u32> = (0..u32::try_from(leaves).expect("fewer leaves")).collect();
        fastrand::Rng::with_seed(1).shuffle(&mut places);
        let stride = coprime_stride(records);
        for (leaf, &place) in places.iter().enumerate() {
            let node = &mut nodes[place as usize];
            node.keys = [u64::MAX; FANOUT];
            for (slot, record) in (leaf * FILL..count.min((leaf + 1) * FILL)).enumerate() {
                let scatter = |offset| (record as u128 * stride + offset) % u128::from(records);
                let (rid, version) = (scatter(0) as usize, scatter(12_345) as usize);
                node.keys[slot] = key_of(record as u64);
                node.values[slot] = rid as u64;
                indirection[rid] = version as u64;
                versions[version] =
                    Version { stamp: STAMP, older: 0, length: 8, value: record as u64 };
            }
            node.set_hints();
        }
        let bottom = places.iter().enumerate();
        let bottom = bottom.map(|(leaf, &place)| (key_of((leaf * FILL) as u64), u64::from(place)));
        let (root, height) = build_inner(&mut nodes, bottom.collect(), leaves);
        Ok(Self { nodes, indirection, versions, root, height, records })
    }

    /// Returns the number of records.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// Returns the value of `key` without suspending, as in a sequential engine.
    #[cfg(test)]
    fn get_now(&self, key: u64) -> Option<u64> {
        let mut found = None;
        let mut once = Some(self.get(key));
        interleave(1, || once.take(), |value| found = value);
        found
    }

    /// Returns the value of `key` with two suspensions for each of the lower nodes and two for the
    /// record.
    #[inline(always)]
    pub(super) async fn get(&self, key: u64) -> Option<u64> {
        let rid = self.find(key).await?;
        let entry = &raw const self.indirection[rid as usize];
        touch(entry).await;
        let version = &self.versions[self.indirection[rid as usize] as usize];
        touch(&raw const *version).await;
        (version.stamp < SNAPSHOT).then_some(version.value)
    }

    #[inline(always)]
    pub(super) async fn find(&self, key: u64) -> Option<u64> {
        let mut number = self.root;
        for level in (0..self.height).rev() {
            // SAFETY: `root` and the values of inner nodes are numbers of built nodes.
            let node = unsafe { self.nodes.get_unchecked(number as usize) };
            if level < UNCACHED_LEVELS {
                touch(&raw const node.hints).await;
            }
            let group = node.group_of(key);
            if level < UNCACHED_LEVELS {
                prefetch(&raw const node.keys[group * GROUP]);
                touch(&raw const node.values[group * GROUP]).await;
            }
            let slot = node.slot_in(group, key);
            if level == 0 {
                return (node.keys[slot] == key).then_some(node.values[slot]);
            }
            number = node.values[slot];
        }
        unreachable!("the loop returns at the leaf")
    }

    /// Does the same as `get`, flattened by hand into one function with one state machine.
    #[inline(always)]
    async fn get_flat(&self, key: u64) -> Option<u64> {
        let (mut number, mut level) = (self.root, self.height);
        let rid = loop {
            level -= 1;
            // SAFETY: `root` and the values of inner nodes are numbers of built nodes.
            let node = unsafe { self.nodes.get_unchecked(number as usize) };
            if level < UNCACHED_LEVELS {
                prefetch(&raw const node.hints);
                Suspend::default().await;
            }
            let group = node.group_of(key);
            if level < UNCACHED_LEVELS {
                prefetch(&raw const node.keys[group * GROUP]);
                prefetch(&raw const node.values[group * GROUP]);
                Suspend::default().await;
            }
            let slot = node.slot_in(group, key);
            if level > 0 {
                number = node.values[slot];
                continue;
            }
            if node.keys[slot] != key {
                return None;
            }
            break node.values[slot] as usize;
        };
        prefetch(&raw const self.indirection[rid]);
        Suspend::default().await;
        let version = &self.versions[self.indirection[rid] as usize];
        prefetch(&raw const *version);
        Suspend::default().await;
        (version.stamp < SNAPSHOT).then_some(version.value)
    }

    /// Does the same as `get`, through two boxed futures.
    async fn get_boxed(&self, key: u64) -> Option<u64> {
        type Boxed<'f> = Pin<Box<dyn Future<Output = Option<u64>> + 'f>>;
        let inner: Boxed<'_> = Box::pin(self.get(key));
        let outer: Boxed<'_> = Box::pin(inner);
        outer.await
    }

    /// Runs transactions of ten uniform reads, `width` at a time, on the calling thread.
    pub(crate) fn run(&self, path: Path, width: usize, effort: Effort, seed: u64) -> Sample {
        match path {
            Path::Nested => self.run_with(async |key| self.get(key).await, width, effort, seed),
            Path::Flat => self.run_with(async |key| self.get_flat(key).await, width, effort, seed),
            Path::Boxed => {
                self.run_with(async |key| self.get_boxed(key).await, width, effort, seed)
            }
        }
    }

    fn run_with(
        &self,
        get: impl AsyncFn(u64) -> Option<u64>,
        width: usize,
        effort: Effort,
        seed: u64,
    ) -> Sample {
        let get = &get;
        let mut draw = Uniform::below(self.records, seed);
        let mut latencies = Latencies::one_in(64);
        let (mut started, mut found, mut transactions) = (0u64, 0u64, 0u64);
        let begin = Instant::now();
        let next = || {
            if effort.is_over(started, begin) {
                return None;
            }
            started += 1;
            let (keys, start) = (draw.keys::<READS>(), latencies.start());
            Some(async move {
                let mut hits = 0;
                for key in keys {
                    hits += u64::from(std::hint::black_box(get(key).await).is_some());
                }
                (hits, start)
            })
        };
        let mut timed = Latencies::one_in(1);
        interleave(width, next, |(hits, start)| {
            timed.finish(start);
            found += hits;
            transactions += 1;
        });
        let elapsed = begin.elapsed();
        assert_eq!(found, transactions * READS as u64, "every drawn key is in the tree");
        Sample::plain(transactions, elapsed, timed)
    }
}

/// The way in which the look-up is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// Small nested `async fn`s.
    Nested,
    /// One `async fn`.
    Flat,
    /// Behind two boxed futures.
    Boxed,
}

impl Node {
    fn set_hints(&mut self) {
        self.hints = std::array::from_fn(|group| self.keys[group * GROUP]);
    }

    /// Returns the group whose first key is the last one not above `key` (the first group if none
    /// is).
    #[inline(always)]
    pub(super) fn group_of(&self, key: u64) -> usize {
        let not_above: usize = self.hints.iter().map(|hint| usize::from(*hint <= key)).sum();
        not_above.saturating_sub(1)
    }

    /// Returns the slot of the last key of `group` not above `key` (its first slot if none is).
    #[inline(always)]
    pub(super) fn slot_in(&self, group: usize, key: u64) -> usize {
        let keys = &self.keys[group * GROUP..(group + 1) * GROUP];
        let not_above: usize = keys.iter().map(|other| usize::from(*other <= key)).sum();
        group * GROUP + not_above.saturating_sub(1)
    }
}

/// Returns the number of nodes on all levels of a tree with `leaves` leaves.
fn node_count(leaves: usize) -> usize {
    let (mut count, mut level) = (leaves, leaves);
    while level > 1 {
        level = level.div_ceil(FILL);
        count += level;
    }
    count
}

/// Builds the levels over `level` (first key and number of each node) behind the first `next`
/// nodes; returns the root's number and the height.
fn build_inner(nodes: &mut [Node], mut level: Vec<(u64, u64)>, mut next: usize) -> (u64, usize) {
    let mut height = 1;
    while level.len() > 1 {
        let mut above = Vec::with_capacity(level.len().div_ceil(FILL));
        for children in level.chunks(FILL) {
            let node = &mut nodes[next];
            node.keys = [u64::MAX; FANOUT];
            for (slot, &(key, child)) in children.iter().enumerate() {
                node.keys[slot] = key;
                node.values[slot] = child;
            }
            node.set_hints();
            above.push((children[0].0, next as u64));
            next += 1;
        }
        level = above;
        height += 1;
    }
    assert_eq!(next, nodes.len(), "every node is built");
    (level[0].1, height)
}

/// Returns a stride that visits every number below `records` once, each far from the one before.
fn coprime_stride(records: u64) -> u128 {
    let gcd = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let mut stride = (0x9E37_79B9_7F4A_7C15 % records) | 1;
    while gcd(stride, records) != 1 {
        stride += 2;
    }
    u128::from(stride)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hinted_lookups_find_exactly_the_existing_records() {
        for records in [1, 44, 45, 46, 2_025, 2_026, 10_000, 100_003] {
            let tree = HintedLookup::build(records).unwrap();
            for record in (0..records).step_by(1 + records as usize / 997) {
                assert_eq!(tree.get_now(key_of(record)), Some(record));
                assert_eq!(tree.get_now(key_of(record) + 1), None);
            }
            assert_eq!(tree.get_now(key_of(records - 1)), Some(records - 1));
            assert_eq!(tree.get_now(0), None);
            assert_eq!(tree.get_now(key_of(records)), None);
        }
    }

    #[test]
    fn the_requested_number_of_transactions_runs() {
        let tree = HintedLookup::build(5_000).unwrap();
        let sample = tree.run(Path::Flat, 8, Effort::Transactions(1_000), 7);
        assert_eq!(sample.transactions, 1_000);
        let sample = tree.run(Path::Boxed, 3, Effort::Seconds(0.01), 7);
        assert!(sample.transactions > 0);
    }
}
