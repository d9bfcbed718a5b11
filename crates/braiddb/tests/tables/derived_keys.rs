//! Derived keys: the contract of `Key`, and the allowed changes of a type.

use std::fmt::Debug;

use crate::common::{Watched, with_limit};
use braiddb::{Database, DecodeError, Error, Key, KeyBuffer, Misuse, Options, Table};
use pollster::block_on;
use proptest::collection::vec;
use proptest::prelude::*;

const LIMIT_SECONDS: u64 = 120;

#[derive(Key, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[key(name = "test.queue")]
enum Queue {
    Urgent,
    Normal = 7,
    Idle,
}

#[derive(Key, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[key(name = "test.job")]
enum Job {
    Swept,
    Of(String, Queue, Vec<u8>),
    Due { at: i64, by: Option<String> },
    Nested((String, u8)),
}

#[derive(Key, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[key(name = "test.order")]
struct Order {
    region: String,
    job: Job,
    number: u32,
}

#[derive(Key, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[key(name = "test.name")]
struct Name(String);

#[derive(Key, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[key(name = "test.nothing")]
struct Nothing;

fn encode(key: &impl Key) -> KeyBuffer {
    let mut buffer = KeyBuffer::new();
    key.encode(&mut buffer);
    buffer
}

fn part(key: &impl Key) -> KeyBuffer {
    let mut buffer = KeyBuffer::new();
    key.encode_part(&mut buffer);
    buffer
}

/// Checks the contract: order, round trip, and the detectable end of a part.
fn check<K: Key<Owned = K> + Ord + Debug>(a: &K, b: &K) -> Result<(), TestCaseError> {
    let (left, right) = (encode(a), encode(b));
    prop_assert_eq!(a.cmp(b), left.cmp(&right), "{:?} {:?}", a, b);
    prop_assert_eq!(&K::decode(&left).unwrap(), a);
    let (left, right) = (part(a), part(b));
    prop_assert_eq!(a.cmp(b), left.cmp(&right), "{:?} {:?}", a, b);
    prop_assert_eq!(a == b, left.starts_with(&right), "{:?} {:?}", a, b);
    let mut followed = left.clone();
    followed.extend_from_slice(&right);
    prop_assert_eq!(
        K::decode_part(&followed).unwrap(),
        (K::decode(&encode(a)).unwrap(), &right[..])
    );
    Ok(())
}

/// Checks that bytes which encode no key are refused, and that accepted bytes are a key's encoding.
fn damaged<K: Key<Owned = K> + Ord + Debug>(bytes: &[u8]) -> Result<(), TestCaseError> {
    if let Ok(key) = K::decode(bytes) {
        prop_assert_eq!(&encode(&key)[..], bytes);
    }
    if let Ok((key, rest)) = K::decode_part(bytes) {
        let mut whole = part(&key);
        whole.extend_from_slice(rest);
        prop_assert_eq!(&whole[..], bytes);
    }
    Ok(())
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![Just(0u8), Just(1), Just(7), Just(0xff), any::<u8>()], 0..4)
}

fn text() -> impl Strategy<Value = String> {
    "[a\0b]{0,3}"
}

fn queue() -> impl Strategy<Value = Queue> {
    prop_oneof![Just(Queue::Urgent), Just(Queue::Normal), Just(Queue::Idle)]
}

fn job() -> impl Strategy<Value = Job> {
    prop_oneof![
        Just(Job::Swept),
        (text(), queue(), bytes()).prop_map(|(name, queue, rest)| Job::Of(name, queue, rest)),
        (-2i64..2, prop::option::of(text())).prop_map(|(at, by)| Job::Due { at, by }),
        (text(), 0u8..3).prop_map(Job::Nested),
    ]
}

fn order() -> impl Strategy<Value = Order> {
    (text(), job(), 0u32..3).prop_map(|(region, job, number)| Order { region, job, number })
}

#[test]
fn derived_keys_keep_the_contract_of_keys() {
    with_limit(LIMIT_SECONDS, |_| {
        proptest!(|(a in order(), b in order(), c in queue(), d in queue())| {
            check(&a, &b)?;
            check(&a.job, &b.job)?;
            check(&Order { region: a.region.clone(), ..b.clone() }, &a)?;
            check(&c, &d)?;
            check(&Name(a.region.clone()), &Name(b.region.clone()))?;
            check(&Nothing, &Nothing)?;
            check(&(a.job.clone(), c), &(b.job.clone(), d))?;
            check(&(Some(c), Name(a.region)), &(None, Name(b.region)))?;
        });
    });
}

#[test]
fn damaged_key_bytes_fail_or_decode_to_another_key() {
    let place = any::<prop::sample::Index>;
    with_limit(LIMIT_SECONDS, move |_| {
        proptest!(|(key in order(), garbage in bytes(), at in place(), byte in any::<u8>())| {
            let mut bytes = encode(&key).to_vec();
            let place = at.index(bytes.len());
            bytes[place] = byte;
            damaged::<Order>(&bytes)?;
            damaged::<Order>(&bytes[..place])?;
            damaged::<Job>(&encode(&key.job)[..at.index(encode(&key.job).len())])?;
            damaged::<Job>(&garbage)?;
            damaged::<Queue>(&garbage)?;
            damaged::<Name>(&garbage)?;
            damaged::<Nothing>(&garbage)?;
        });
    });
}

#[test]
fn the_stored_encoding_is_as_documented() {
    with_limit(LIMIT_SECONDS, |_| {
        assert_eq!(encode(&Queue::Normal)[..], [7]);
        assert_eq!(encode(&Queue::Idle)[..], [8]);
        let order = Order { region: "eu".to_owned(), job: Job::Due { at: 1, by: None }, number: 3 };
        let expected = [&b"eu\0\0"[..], &[2, 0x80, 0, 0, 0, 0, 0, 0, 1, 0], &[0, 0, 0, 3]].concat();
        assert_eq!(encode(&order)[..], expected);
        assert_eq!(Queue::type_name(), "test.queue");
        assert_eq!(Order::type_name(), "test.order(str, test.job, u32)");
        assert_eq!(encode(&Name("é".to_owned()))[..], *"é".as_bytes());
        let unknown = Queue::decode(&[9]).unwrap_err();
        let expected =
            "the bytes are not test.queue as this program knows it, with a variant of number 9";
        assert_eq!(unknown.to_string(), expected);
        assert_eq!(Queue::decode(&[]), Err(DecodeError::new("test.queue")));
        assert_eq!(Queue::decode(&[7, 7]), Err(DecodeError::new("test.queue")));
    });
}

/// The same keys in a later program: types and variants have other names, and one variant is new.
mod later {
    use super::*;

    #[derive(Key, Clone, Copy, Debug, PartialEq, Eq)]
    #[key(name = "test.queue")]
    pub(super) enum Line {
        First,
        Between = 3,
        Usual = 7,
        Last = 8,
    }

    #[derive(Key)]
    #[key(name = "test.order")]
    pub(super) struct Order {
        _region: String,
        _number: u64,
    }
}

#[test]
fn key_types_may_be_renamed_and_gain_variants() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let queues: Table<Queue, str> = block_on(db.create_table("queues")).unwrap();
        block_on(db.put(&queues, &Queue::Normal, "sweep")).unwrap();
        let lines: Table<later::Line, str> = block_on(db.open_table("queues")).unwrap();
        assert_eq!(
            block_on(db.get(&lines, &later::Line::Usual)).unwrap().as_deref(),
            Some("sweep")
        );
        for line in [later::Line::First, later::Line::Between, later::Line::Last] {
            block_on(db.put(&lines, &line, "mend")).unwrap();
        }
        let met = db.run_blocking(async move |tx| {
            let mut scan = tx.scan(&queues, ..)?;
            let urgent = scan.next().await?.map(|(key, _)| key);
            Ok((urgent, scan.next().await.map(|record| record.is_some())))
        });
        let (urgent, unknown) = met.unwrap();
        assert_eq!(urgent, Some(Queue::Urgent));
        assert!(matches!(unknown, Err(Error::Decode(_))), "{unknown:?}");
        let _orders: Table<Order, str> = block_on(db.create_table("orders")).unwrap();
        let changed = block_on(db.open_table::<later::Order, str>("orders"));
        assert!(matches!(changed, Err(Error::Misuse(Misuse::TableType { .. }))), "{changed:?}");
    });
}
