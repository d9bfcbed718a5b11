//! Requests at a fixed rate, independent of the completion of earlier ones.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use braiddb::{Database, Table};
use futures_util::stream::{FuturesUnordered, StreamExt};
use hdrhistogram::Histogram;

use crate::error::Error;
use crate::harness::process;
use crate::random::key_of;

/// The client's sleep between two polls.
const LOOK: Duration = Duration::from_micros(20);

/// The latencies of requests at a fixed rate, from their due time to their result.
pub(crate) struct Paced {
    /// Answered requests per second.
    pub(crate) rate: f64,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    pub(crate) p999: Duration,
}

/// Puts `value` at `rate` times a second for `period`.
pub(crate) fn run(
    database: &Database,
    table: &Table<u64, [u8]>,
    value: &Arc<[u8]>,
    rate: f64,
    period: Duration,
) -> Result<Paced, Error> {
    process::sleep_exactly();
    let mut taken = Histogram::<u64>::new(3).expect("three digits are a valid precision");
    let mut pending = FuturesUnordered::new();
    let mut context = Context::from_waker(Waker::noop());
    let (begin, most) = (Instant::now(), (period.as_secs_f64() * rate) as u64);
    let (due, mut asked) = (|number: u64| Duration::from_secs_f64(number as f64 / rate), 0);
    loop {
        while asked < most && due(asked) <= begin.elapsed() {
            let at = begin + due(asked);
            let (table, value, key) = (table.clone(), value.clone(), key_of(asked % 10_000));
            let put = database.run(async move |tx| tx.put(&table, &key, &value).await);
            pending.push(async move { (at, put.await) });
            asked += 1;
        }
        while let Poll::Ready(Some((at, result))) = pending.poll_next_unpin(&mut context) {
            result?;
            taken.record(at.elapsed().as_nanos() as u64).expect("it grows as it must");
        }
        if asked == most && pending.is_empty() {
            break;
        }
        // Not a busy wait, because the kernel's own threads need a core too. Not a wake-up by each
        // result, because that would cost the worker more than the commit.
        std::thread::sleep(LOOK);
    }
    let at = |quantile| Duration::from_nanos(taken.value_at_quantile(quantile));
    let rate = taken.len() as f64 / begin.elapsed().as_secs_f64();
    Ok(Paced { rate, p50: at(0.5), p99: at(0.99), p999: at(0.999) })
}
