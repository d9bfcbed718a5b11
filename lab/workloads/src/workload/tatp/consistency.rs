//! The invariants of the tables, and the sums that committed transactions account for.

use std::ops::AddAssign;

use braiddb::{Database, Transaction};

use super::schema::{HOURS, START_TIMES, SubscriberKey, TYPES, Tables, TypeKey, number_of};
use crate::error::Error;

/// Sums over the data that transactions change or must not change, or the changes of such sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) access_infos: i64,
    pub(super) facilities: i64,
    pub(super) forwardings: i64,
    /// Of all `end_time`.
    pub(super) end_times: i64,
    /// Of all `bit_1`.
    pub(super) bits: i64,
    /// Of all `data_a`.
    pub(super) data: i64,
    /// Of all `vlr_location`.
    pub(super) locations: i64,
}

impl AddAssign for Sums {
    fn add_assign(&mut self, other: Self) {
        self.access_infos += other.access_infos;
        self.facilities += other.facilities;
        self.forwardings += other.forwardings;
        self.end_times += other.end_times;
        self.bits += other.bits;
        self.data += other.data;
        self.locations += other.locations;
    }
}

/// Checks all tables and the index in one transaction. Returns the sums.
///
/// # Errors
/// Returns [`Error::Wrong`] with the first violation.
pub(super) fn check(database: &Database, tables: &Tables, subscribers: u64) -> Result<Sums, Error> {
    let tables = tables.clone();
    let check = async move |tx: &Transaction| {
        let mut sums = Sums::default();
        check_subscribers(tx, &tables, subscribers, &mut sums).await?;
        check_access_infos(tx, &tables, subscribers, &mut sums).await?;
        check_facilities(tx, &tables, subscribers, &mut sums).await?;
        Ok::<_, Error>(sums)
    };
    Ok(pollster::block_on(database.transaction().read_only(true).try_run(check))?.value)
}

fn wrong<T>(told: String) -> Result<T, Error> {
    Err(Error::Wrong(told))
}

/// Subscribers exist from 1 on, each with its number in the table and in the index.
async fn check_subscribers(
    tx: &Transaction,
    tables: &Tables,
    subscribers: u64,
    sums: &mut Sums,
) -> Result<(), Error> {
    let mut found = tx.scan(&tables.subscribers, ..)?;
    let mut entries = tx.entries_by(&tables.by_number, ..)?;
    for expected in 1..=subscribers as SubscriberKey {
        let Some((s_id, subscriber)) = found.next().await?.filter(|(s_id, _)| *s_id == expected)
        else {
            return wrong(format!("there is no subscriber {expected}"));
        };
        if subscriber.sub_nbr() != number_of(s_id) {
            return wrong(format!("subscriber {s_id} has another one's number"));
        }
        // Numbers have the order of keys.
        if entries.next().await? != Some((subscriber.sub_nbr(), s_id)) {
            return wrong(format!("subscriber {s_id} is not found by its number alone"));
        }
        if subscriber.bit().iter().any(|bit| *bit > 1)
            || subscriber.hex().iter().any(|hex| *hex > 15)
        {
            return wrong(format!("subscriber {s_id} has a bit or a digit that is none"));
        }
        sums.bits += i64::from(subscriber.bit()[0]);
        sums.locations += i64::from(subscriber.vlr_location());
    }
    match found.next().await? {
        Some((s_id, _)) => wrong(format!("there is a subscriber {s_id}, which is one too many")),
        None => Ok(()),
    }
}

/// Fails if the key does not name a subscriber and a type.
fn expect_referred(what: &str, key: TypeKey, subscribers: u64) -> Result<(), Error> {
    let (s_id, of_type) = key;
    match (1..=subscribers).contains(&u64::from(s_id)) && (1..=TYPES).contains(&of_type) {
        true => Ok(()),
        false => wrong(format!("{what} {key:?} is of no subscriber, or of no type")),
    }
}

async fn check_access_infos(
    tx: &Transaction,
    tables: &Tables,
    subscribers: u64,
    sums: &mut Sums,
) -> Result<(), Error> {
    let mut found = tx.scan(&tables.access_infos, ..)?;
    while let Some((key, _)) = found.next().await? {
        expect_referred("access info", key, subscribers)?;
        sums.access_infos += 1;
    }
    Ok(())
}

/// Each facility belongs to a subscriber, and each forwarding to a facility.
async fn check_facilities(
    tx: &Transaction,
    tables: &Tables,
    subscribers: u64,
    sums: &mut Sums,
) -> Result<(), Error> {
    let mut found = tx.scan(&tables.facilities, ..)?;
    let mut forwardings = tx.scan(&tables.forwardings, ..)?;
    let mut next = forwardings.next().await?;
    while let Some((key, facility)) = found.next().await? {
        expect_referred("special facility", key, subscribers)?;
        sums.facilities += 1;
        sums.data += i64::from(facility.data_a());
        while let Some(((s_id, sf_type, start_time), forwarding)) = next {
            if (s_id, sf_type) != key {
                break;
            }
            let right = START_TIMES.contains(&start_time)
                && (1..=HOURS).contains(&forwarding.end_time())
                && forwarding.numberx().iter().all(u8::is_ascii_digit);
            if !right {
                return wrong(format!("call forwarding {key:?}, {start_time}: {forwarding:?}"));
            }
            sums.forwardings += 1;
            sums.end_times += i64::from(forwarding.end_time());
            next = forwardings.next().await?;
        }
    }
    match next {
        Some((key, _)) => wrong(format!("call forwarding {key:?} is of no special facility")),
        None => Ok(()),
    }
}
