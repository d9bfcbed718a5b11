//! Fills the tables as specified. A seed determines the data of each subscriber.

use std::ops::Range;

use braiddb::{Database, Error as Failure, Transaction};

use super::schema::{
    AccessInfo, CallForwarding, Number, START_TIMES, SpecialFacility, Subscriber, SubscriberKey,
    TYPES, Tables, number_of,
};
use crate::engine::load::load_in_pieces;
use crate::error::Error;
use crate::workload::encoding::Encoded;

/// The number of subscribers that one transaction inserts.
const PIECE: u64 = 100;
/// Percent of special facilities that are active.
const ACTIVE_PERCENT: u32 = 85;
/// The maximum hours of a loaded forwarding.
pub(super) const LONGEST: u8 = 8;

/// Inserts this number of subscribers, from 1 on, with all their records.
pub(super) fn fill(
    database: &Database,
    tables: &Tables,
    subscribers: u64,
    seed: u64,
    workers: usize,
) -> Result<(), Error> {
    let tables = tables.clone();
    let insert = async move |tx: &Transaction, piece: &Range<u64>| {
        for subscriber in piece.clone() {
            // A separate generator for each subscriber, so that any worker inserts the same
            // records.
            let mixed = (seed ^ (subscriber << 20)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let random = &mut fastrand::Rng::with_seed(mixed);
            insert_one(tx, &tables, subscriber as SubscriberKey, random).await?;
        }
        Ok(())
    };
    load_in_pieces(database, workers, 1..subscribers + 1, PIECE, insert)
}

async fn insert_one(
    tx: &Transaction,
    tables: &Tables,
    s_id: SubscriberKey,
    random: &mut fastrand::Rng,
) -> Result<(), Failure> {
    let subscriber = Subscriber {
        sub_nbr: number_of(s_id),
        bit: std::array::from_fn(|_| random.u8(0..=1)),
        hex: std::array::from_fn(|_| random.u8(0..=15)),
        byte2: std::array::from_fn(|_| random.u8(..)),
        msc_location: random.u32(1..),
        vlr_location: random.u32(1..),
    };
    tx.insert(&tables.subscribers, &s_id, &Encoded::of(&subscriber)).await?;
    for ai_type in some_types(random) {
        let access_info = AccessInfo {
            data1: random.u8(..),
            data2: random.u8(..),
            data3: capitals(random),
            data4: capitals(random),
        };
        tx.insert(&tables.access_infos, &(s_id, ai_type), &Encoded::of(&access_info)).await?;
    }
    for sf_type in some_types(random) {
        let facility = SpecialFacility {
            is_active: u8::from(random.u32(0..100) < ACTIVE_PERCENT),
            error_cntrl: random.u8(..),
            data_a: random.u8(..),
            data_b: capitals(random),
        };
        tx.insert(&tables.facilities, &(s_id, sf_type), &Encoded::of(&facility)).await?;
        let count = random.usize(0..=START_TIMES.len());
        for start_time in random.choose_multiple(START_TIMES, count) {
            let forwarding = CallForwarding {
                end_time: start_time + random.u8(1..=LONGEST),
                numberx: digits(random),
            };
            tx.insert(&tables.forwardings, &(s_id, sf_type, start_time), &Encoded::of(&forwarding))
                .await?;
        }
    }
    Ok(())
}

/// Returns one to four types, each number equally likely.
fn some_types(random: &mut fastrand::Rng) -> Vec<u8> {
    let count = random.usize(1..=usize::from(TYPES));
    random.choose_multiple(1..=TYPES, count)
}

fn capitals<const N: usize>(random: &mut fastrand::Rng) -> [u8; N] {
    std::array::from_fn(|_| random.u8(b'A'..=b'Z'))
}

/// Returns a random number of digits.
pub(super) fn digits(random: &mut fastrand::Rng) -> Number {
    std::array::from_fn(|_| random.u8(b'0'..=b'9'))
}
