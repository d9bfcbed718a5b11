//! The seven transactions. A transaction is unsuccessful if a record that it reads or changes is
//! missing, or a record that it inserts exists. It then changes nothing and commits.

use braiddb::{Error as Failure, Transaction};

use super::consistency::Sums;
use super::schema::{CallForwarding, Number, SubscriberKey, Tables};
use crate::workload::encoding::{Encoded, View};
use crate::workload::missing_record;

/// A transaction with its inputs.
#[derive(Clone, Debug)]
pub(super) enum Request {
    GetSubscriberData {
        s_id: SubscriberKey,
    },
    GetNewDestination {
        s_id: SubscriberKey,
        sf_type: u8,
        start_time: u8,
        end_time: u8,
    },
    GetAccessData {
        s_id: SubscriberKey,
        ai_type: u8,
    },
    UpdateSubscriberData {
        s_id: SubscriberKey,
        bit_1: u8,
        sf_type: u8,
        data_a: u8,
    },
    UpdateLocation {
        sub_nbr: Number,
        vlr_location: u32,
    },
    InsertCallForwarding {
        sub_nbr: Number,
        sf_type: u8,
        start_time: u8,
        end_time: u8,
        numberx: Number,
    },
    DeleteCallForwarding {
        sub_nbr: Number,
        sf_type: u8,
        start_time: u8,
    },
}

impl Request {
    /// Runs the transaction. Returns its changes, or `None` if it is unsuccessful.
    pub(super) async fn run(
        &self,
        tx: &Transaction,
        tables: &Tables,
    ) -> Result<Option<Sums>, Failure> {
        match *self {
            Self::GetSubscriberData { s_id } => {
                let subscriber = existing(tx.get(&tables.subscribers, &s_id).await?)?;
                std::hint::black_box(subscriber.record());
                Ok(Some(Sums::default()))
            }
            Self::GetNewDestination { s_id, sf_type, start_time, end_time } => {
                let found = tables.destinations(tx, (s_id, sf_type), start_time, end_time).await?;
                Ok((!std::hint::black_box(found).is_empty()).then(Sums::default))
            }
            Self::GetAccessData { s_id, ai_type } => {
                let found = tx.get(&tables.access_infos, &(s_id, ai_type)).await?;
                Ok(std::hint::black_box(found.map(View::record)).map(|_| Sums::default()))
            }
            Self::UpdateSubscriberData { s_id, bit_1, sf_type, data_a } => {
                tables.update_subscriber(tx, s_id, bit_1, (sf_type, data_a)).await
            }
            Self::UpdateLocation { sub_nbr, vlr_location } => {
                let found = tx.get_by(&tables.by_number, &sub_nbr).await?;
                let (s_id, subscriber) = existing(found)?;
                let locations = i64::from(vlr_location) - i64::from(subscriber.vlr_location());
                let changed = subscriber.change().vlr_location(vlr_location);
                tx.update(&tables.subscribers, &s_id, &changed).await?;
                Ok(Some(Sums { locations, ..Sums::default() }))
            }
            Self::InsertCallForwarding { sub_nbr, sf_type, start_time, end_time, numberx } => {
                let forwarding = CallForwarding { end_time, numberx };
                tables.insert_forwarding(tx, sub_nbr, (sf_type, start_time), &forwarding).await
            }
            Self::DeleteCallForwarding { sub_nbr, sf_type, start_time } => {
                tables.delete_forwarding(tx, sub_nbr, (sf_type, start_time)).await
            }
        }
    }
}

impl Tables {
    /// Returns the destinations of calls at that time if the facility exists and is active.
    async fn destinations(
        &self,
        tx: &Transaction,
        (s_id, sf_type): (SubscriberKey, u8),
        start_time: u8,
        end_time: u8,
    ) -> Result<Vec<Number>, Failure> {
        let facility = tx.get(&self.facilities, &(s_id, sf_type)).await?;
        if facility.is_none_or(|facility| facility.is_active() == 0) {
            return Ok(Vec::new());
        }
        let range = (s_id, sf_type, 0)..=(s_id, sf_type, start_time);
        let (mut forwardings, mut found) = (tx.scan(&self.forwardings, range)?, Vec::new());
        while let Some((_, forwarding)) = forwardings.next().await? {
            if end_time < forwarding.end_time() {
                found.push(forwarding.numberx());
            }
        }
        Ok(found)
    }

    async fn update_subscriber(
        &self,
        tx: &Transaction,
        s_id: SubscriberKey,
        bit_1: u8,
        (sf_type, data_a): (u8, u8),
    ) -> Result<Option<Sums>, Failure> {
        let begin = tx.savepoint();
        let subscriber = existing(tx.get(&self.subscribers, &s_id).await?)?;
        let mut bit = subscriber.bit();
        let bits = i64::from(bit_1) - i64::from(bit[0]);
        bit[0] = bit_1;
        tx.update(&self.subscribers, &s_id, &subscriber.change().bit(bit)).await?;
        let Some(facility) = tx.get(&self.facilities, &(s_id, sf_type)).await? else {
            // A source ends when its caller receives an error. Therefore the transaction rolls back
            // its writes and commits nothing.
            tx.rollback_to(&begin).await?;
            return Ok(None);
        };
        let data = i64::from(data_a) - i64::from(facility.data_a());
        let changed = facility.change().data_a(data_a);
        tx.update(&self.facilities, &(s_id, sf_type), &changed).await?;
        Ok(Some(Sums { bits, data, ..Sums::default() }))
    }

    async fn subscriber_of(
        &self,
        tx: &Transaction,
        number: Number,
    ) -> Result<SubscriberKey, Failure> {
        let mut entries = tx.entries_by(&self.by_number, number..=number)?.limit(1);
        Ok(existing(entries.next().await?)?.1)
    }

    async fn insert_forwarding(
        &self,
        tx: &Transaction,
        number: Number,
        (sf_type, start_time): (u8, u8),
        forwarding: &CallForwarding,
    ) -> Result<Option<Sums>, Failure> {
        let s_id = self.subscriber_of(tx, number).await?;
        // All facilities of the subscriber, as specified; one must have the type that the
        // forwarding refers to.
        let mut facilities = tx.scan(&self.facilities, (s_id, 0)..=(s_id, u8::MAX))?;
        let mut referred = false;
        while let Some(((_, of_type), _)) = facilities.next().await? {
            referred |= of_type == sf_type;
        }
        drop(facilities);
        if !referred {
            return Ok(None);
        }
        let key = (s_id, sf_type, start_time);
        match tx.insert(&self.forwardings, &key, &Encoded::of(forwarding)).await {
            Ok(()) => {
                let end_times = i64::from(forwarding.end_time);
                Ok(Some(Sums { forwardings: 1, end_times, ..Sums::default() }))
            }
            Err(Failure::KeyExists(_)) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    async fn delete_forwarding(
        &self,
        tx: &Transaction,
        number: Number,
        (sf_type, start_time): (u8, u8),
    ) -> Result<Option<Sums>, Failure> {
        let s_id = self.subscriber_of(tx, number).await?;
        let key = (s_id, sf_type, start_time);
        // Reads the record only for the sums that are checked at the end.
        let Some(forwarding) = tx.get(&self.forwardings, &key).await? else { return Ok(None) };
        tx.delete(&self.forwardings, &key).await?;
        let end_times = -i64::from(forwarding.end_time());
        Ok(Some(Sums { forwardings: -1, end_times, ..Sums::default() }))
    }
}

fn existing<T>(found: Option<T>) -> Result<T, Failure> {
    found.ok_or_else(missing_record)
}
