//! The four specified tables with all their columns, and the index that finds subscribers by
//! number.
//!
//! A table's key columns are in its keys. A subscriber's value repeats its number, because an index
//! function sees only values. Keys have at most eight bytes.

use braiddb::{Database, Index, IndexKeys, IndexOptions, Table};

use crate::error::Error;
use crate::workload::encoding::{View, records};

/// A telephone number: digits.
pub(super) type Number = [u8; 15];

pub(super) type SubscriberKey = u32;
/// Subscriber, `ai_type` or `sf_type`.
pub(super) type TypeKey = (u32, u8);
/// Subscriber, `sf_type`, start time.
pub(super) type ForwardingKey = (u32, u8, u8);

/// The maximum number of access infos, and of special facilities, for a subscriber, each of a
/// different type.
pub(super) const TYPES: u8 = 4;
/// The start hours of call forwardings.
pub(super) const START_TIMES: [u8; 3] = [0, 8, 16];
/// Hours in a day: the latest end of a call forwarding.
pub(super) const HOURS: u8 = 24;

records! {
    Subscriber("tatp subscriber") {
        sub_nbr: Number,
        bit: [u8; 10],
        hex: [u8; 10],
        byte2: [u8; 10],
        msc_location: u32,
        vlr_location: u32,
    }
    AccessInfo("tatp access info") {
        data1: u8,
        data2: u8,
        data3: [u8; 3],
        data4: [u8; 5],
    }
    SpecialFacility("tatp special facility") {
        is_active: u8,
        error_cntrl: u8,
        data_a: u8,
        data_b: [u8; 5],
    }
    CallForwarding("tatp call forwarding") {
        end_time: u8,
        numberx: Number,
    }
}

/// Returns a subscriber's number: its key with leading zeros.
pub(super) fn number_of(subscriber: SubscriberKey) -> Number {
    let mut rest = subscriber;
    let mut number = [b'0'; 15];
    for digit in number.iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    number
}

/// Handles of all tables and of the index of one database.
#[derive(Clone)]
pub(super) struct Tables {
    pub(super) subscribers: Table<SubscriberKey, Subscriber>,
    pub(super) access_infos: Table<TypeKey, AccessInfo>,
    pub(super) facilities: Table<TypeKey, SpecialFacility>,
    pub(super) forwardings: Table<ForwardingKey, CallForwarding>,
    pub(super) by_number: Index<Number, SubscriberKey, Subscriber>,
}

impl Tables {
    /// Opens or creates the tables and attaches the index.
    pub(super) fn open(database: &Database) -> Result<Self, Error> {
        pollster::block_on(async {
            let subscribers = database.open_or_create_table("subscriber").await?;
            let number = |subscriber: View<'_, Subscriber>, keys: &mut IndexKeys<'_, Number>| {
                keys.push(&subscriber.sub_nbr());
            };
            let options = IndexOptions::default().unique(true);
            Ok(Self {
                access_infos: database.open_or_create_table("access-info").await?,
                facilities: database.open_or_create_table("special-facility").await?,
                forwardings: database.open_or_create_table("call-forwarding").await?,
                by_number: database
                    .index(&subscribers, "subscriber-by-number", options, number)
                    .await?,
                subscribers,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_padded_with_zeros() {
        assert_eq!(&number_of(123), b"000000000000123");
        assert_eq!(&number_of(u32::MAX), b"000004294967295");
    }
}
