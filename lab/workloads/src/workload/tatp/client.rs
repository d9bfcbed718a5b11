//! Chooses the next transaction and its subscriber, and sums the changes of committed transactions.

use std::cell::Cell;

use braiddb::{Error as Failure, Transaction};

use super::consistency::Sums;
use super::population::digits;
use super::requests::Request;
use super::schema::{HOURS, START_TIMES, SubscriberKey, TYPES, Tables, number_of};
use crate::engine::drive::Procedure;
use crate::workload::book::Book;

/// Draws and runs transactions.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) tables: Tables,
    pub(super) subscribers: u64,
    pub(super) random: fastrand::Rng,
    pub(super) book: Book<Sums>,
}

/// A transaction in progress. The engine drops it at commit; a failure ends the measurement.
pub(super) struct Call {
    request: Request,
    /// The changes of the latest attempt; none if it is unsuccessful.
    change: Cell<Option<Sums>>,
    book: Book<Sums>,
}

impl Drop for Call {
    fn drop(&mut self) {
        self.book.add(self.change.get().unwrap_or_default());
    }
}

/// Returns the bits that make draws of this number of subscribers non-uniform.
fn bits(subscribers: u64) -> u32 {
    match subscribers {
        ..=1_000_000 => 65_535,
        1_000_001..=10_000_000 => 1_048_575,
        _ => 2_097_151,
    }
}

impl Client {
    /// Returns a subscriber with non-uniform probability, from 1 on.
    pub(super) fn subscriber(&mut self) -> SubscriberKey {
        let most = self.subscribers as SubscriberKey;
        let drawn = self.random.u32(0..=bits(self.subscribers)) | self.random.u32(1..=most);
        drawn % most + 1
    }

    fn of_type(&mut self) -> u8 {
        self.random.u8(1..=TYPES)
    }

    fn start_time(&mut self) -> u8 {
        START_TIMES[self.random.usize(0..START_TIMES.len())]
    }

    fn end_time(&mut self) -> u8 {
        self.random.u8(1..=HOURS)
    }
}

impl Procedure for Client {
    type Input = Call;

    const KINDS: &'static [&'static str] = &[
        "GET_SUBSCRIBER_DATA",
        "GET_NEW_DESTINATION",
        "GET_ACCESS_DATA",
        "UPDATE_SUBSCRIBER_DATA",
        "UPDATE_LOCATION",
        "INSERT_CALL_FORWARDING",
        "DELETE_CALL_FORWARDING",
    ];

    fn draw(&mut self) -> Call {
        let percent = self.random.u32(0..100);
        let s_id = self.subscriber();
        let request = match percent {
            0..35 => Request::GetSubscriberData { s_id },
            35..45 => Request::GetNewDestination {
                s_id,
                sf_type: self.of_type(),
                start_time: self.start_time(),
                end_time: self.end_time(),
            },
            45..80 => Request::GetAccessData { s_id, ai_type: self.of_type() },
            80..82 => Request::UpdateSubscriberData {
                s_id,
                bit_1: self.random.u8(0..=1),
                sf_type: self.of_type(),
                data_a: self.random.u8(..),
            },
            82..96 => Request::UpdateLocation {
                sub_nbr: number_of(s_id),
                vlr_location: self.random.u32(1..),
            },
            96..98 => Request::InsertCallForwarding {
                sub_nbr: number_of(s_id),
                sf_type: self.of_type(),
                start_time: self.start_time(),
                end_time: self.end_time(),
                numberx: digits(&mut self.random),
            },
            _ => Request::DeleteCallForwarding {
                sub_nbr: number_of(s_id),
                sf_type: self.of_type(),
                start_time: self.start_time(),
            },
        };
        Call { request, change: Cell::new(None), book: self.book.clone() }
    }

    fn kind(call: &Call) -> usize {
        match call.request {
            Request::GetSubscriberData { .. } => 0,
            Request::GetNewDestination { .. } => 1,
            Request::GetAccessData { .. } => 2,
            Request::UpdateSubscriberData { .. } => 3,
            Request::UpdateLocation { .. } => 4,
            Request::InsertCallForwarding { .. } => 5,
            Request::DeleteCallForwarding { .. } => 6,
        }
    }

    fn is_unsuccessful(call: &Call) -> bool {
        call.change.get().is_none()
    }

    async fn run(&self, tx: &Transaction, call: &Call) -> Result<(), Failure> {
        call.change.set(None);
        call.change.set(call.request.run(tx, &self.tables).await?);
        Ok(())
    }
}
