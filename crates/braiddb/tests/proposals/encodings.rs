//! Encodings of key sets and row writes: damaged bytes are refused and never panic, and a set has
//! one encoding.

use std::fmt::Debug;
use std::ops::Bound;

use braiddb::proposals::{DamagedSet, KeySet, KeySpace, Proposal, RowWrites};
use braiddb::{Database, Options};
use pollster::block_on;

use crate::common::{Watched, with_limit};
use crate::expiring::Clock;
use crate::world::{World, act};

const LIMIT_SECONDS: u64 = 120;

/// Reads everything that a set contains.
trait Read: Sized + Debug + PartialEq {
    fn decode_set(bytes: &[u8]) -> Result<Self, DamagedSet>;
    fn bytes(&self) -> &[u8];
    fn read(&self);
}

impl Read for KeySet {
    fn decode_set(bytes: &[u8]) -> Result<Self, DamagedSet> {
        Self::decode(bytes)
    }

    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }

    fn read(&self) {
        let items = self.points().count() + self.ranges().count();
        assert_eq!(self.is_empty(), items == 0);
        assert!(!format!("{self:?}").is_empty());
    }
}

impl Read for RowWrites {
    fn decode_set(bytes: &[u8]) -> Result<Self, DamagedSet> {
        Self::decode(bytes)
    }

    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }

    fn read(&self) {
        assert_eq!(self.is_empty(), self.rows().count() == 0);
        let keys = self.keys();
        assert!(keys.points().count() >= self.rows().count() && keys.ranges().count() == 0);
        keys.read();
        assert!(format!("{self:?} {}", self.time_ms()).len() > 2);
    }
}

/// Checks that a set is read back from its bytes and that damaged bytes are refused.
fn check<S: Read>(set: &S, random: &mut fastrand::Rng) {
    let bytes = set.bytes();
    assert_eq!(&S::decode_set(bytes).unwrap(), set);
    set.read();
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        S::decode_set(&damaged).unwrap_err();
    }
    for length in 0..bytes.len() {
        S::decode_set(&bytes[..length]).unwrap_err();
    }
    S::decode_set(&[bytes, &[0]].concat()).unwrap_err();
    // Changed bytes with a matching checksum: no panic, and what is accepted is the only encoding.
    for _ in 0..200 {
        let mut changed = bytes[..bytes.len() - 4].to_vec();
        for _ in 0..random.usize(1..4) {
            let place = random.usize(..changed.len());
            match random.u8(..4) {
                0 => changed[place] = random.u8(..),
                1 => changed[place] ^= 1,
                2 => changed.truncate(place.max(4)),
                _ => changed.insert(place, random.u8(..3)),
            }
        }
        accept_or_refuse::<S>(changed);
    }
}

/// Decodes contents with their checksum. Reads everything if they are accepted.
fn accept_or_refuse<S: Read>(mut content: Vec<u8>) {
    let sum = crc32c::crc32c(&content);
    content.extend_from_slice(&sum.to_le_bytes());
    if let Ok(set) = S::decode_set(&content) {
        assert_eq!(set.bytes(), content);
        set.read();
    }
}

fn proposals(count: u64) -> Vec<Proposal<Vec<String>>> {
    let world = World::open(None, &Clock::new());
    let mut proposals = Vec::new();
    for seed in 0..count {
        let kinds = world.kinds.clone();
        let executed = world.db.execute(async move |tx| act(tx, &kinds, seed).await);
        let proposal = block_on(executed).unwrap();
        let writes = proposal.writes.clone();
        block_on(world.db.run(async move |tx| tx.apply(&writes).await)).unwrap();
        proposals.push(proposal);
    }
    proposals
}

#[test]
fn damaged_sets_are_refused() {
    with_limit(LIMIT_SECONDS, |_| {
        let mut random = fastrand::Rng::with_seed(7);
        let small = |bytes: &[u8]| bytes.len() < 400;
        let (mut reads, mut writes) = (0, 0);
        for Proposal { reads: read, writes: written, .. } in proposals(400) {
            if small(read.as_bytes()) && reads < 60 {
                check(&read, &mut random);
                reads += 1;
            }
            if small(written.as_bytes()) && writes < 60 {
                check(&written, &mut random);
                check(&written.keys(), &mut random);
                writes += 1;
            }
        }
        assert!(reads > 20 && writes > 20, "{reads} and {writes}");
        check(&KeySet::default(), &mut random);
        check(&RowWrites::default(), &mut random);
        let whole = ["a", "b"].map(|table| KeySpace { table, index: Some("i") });
        check(&KeySet::whole(whole), &mut random);
    });
}

#[test]
fn random_bytes_are_refused() {
    let mut random = fastrand::Rng::with_seed(11);
    with_limit(LIMIT_SECONDS, move |_| {
        for _ in 0..100_000 {
            let bytes: Vec<u8> = (0..random.usize(..60)).map(|_| random.u8(..)).collect();
            KeySet::decode(&bytes).unwrap_err();
            RowWrites::decode(&bytes).unwrap_err();
            // Small numbers, so that many bytes are read as lengths that fit.
            let bytes: Vec<u8> = (0..random.usize(..60)).map(|_| random.u8(..3)).collect();
            for kind in [b'K', b'W'] {
                let content = [&[kind, 1][..], &bytes].concat();
                accept_or_refuse::<KeySet>(content.clone());
                accept_or_refuse::<RowWrites>(content);
            }
        }
    });
}

/// An error names its reason: another kind, another version, or damage.
#[test]
fn refusals_name_their_reason() {
    with_limit(LIMIT_SECONDS, |_| {
        let set = KeySet::default();
        let bytes = set.as_bytes();
        assert!(matches!(RowWrites::decode(bytes), Err(DamagedSet::Kind { .. })));
        let mut later = bytes.to_vec();
        later[1] = 2;
        let refused = KeySet::decode(&later);
        assert_eq!(refused, Err(DamagedSet::Version { found: 2, supported: 1 }));
        assert_eq!(KeySet::decode(&[]), Err(DamagedSet::Checksum));
        let mut content = bytes[..bytes.len() - 4].to_vec();
        content.push(0);
        content.extend_from_slice(&crc32c::crc32c(&content).to_le_bytes());
        assert_eq!(KeySet::decode(&content), Err(DamagedSet::Malformed));
    });
}

/// The encoding depends on what was read and written only, not on the order.
#[test]
fn equal_transactions_have_equal_encodings() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let names: Vec<_> = ["b", "a", "c"]
            .map(|name| block_on(db.create_table::<u64, u64>(name)).unwrap())
            .into_iter()
            .collect();
        let run = |forwards: bool| {
            let names = names.clone();
            let executed = db.execute(async move |tx| {
                let mut keys: Vec<u64> = (0..10).collect();
                let mut tables: Vec<_> = names.iter().collect();
                if !forwards {
                    keys.reverse();
                    tables.reverse();
                }
                for table in tables {
                    for key in &keys {
                        tx.get(table, &(key % 5)).await?;
                        tx.put(table, key, key).await?;
                        tx.put(table, key, key).await?;
                    }
                    tx.count(table, 20..).await?;
                }
                Ok(())
            });
            let proposal = block_on(executed).unwrap();
            (proposal.reads, proposal.writes)
        };
        let (reads, writes) = run(true);
        assert_eq!((&reads, &writes), (&run(false).0, &run(false).1));
        let tables: Vec<_> = writes.rows().map(|row| row.table).collect();
        assert!(tables.is_sorted() && writes.rows().count() == 30);
        // Only what is read before it is written.
        assert_eq!(reads.points().count(), 15);
        let ranges: Vec<_> = reads.ranges().collect();
        let low = 20_u64.to_be_bytes();
        let expected =
            |table| (KeySpace { table, index: None }, Bound::Included(&low[..]), Bound::Unbounded);
        assert_eq!(ranges, ["a", "b", "c"].map(expected));
    });
}
