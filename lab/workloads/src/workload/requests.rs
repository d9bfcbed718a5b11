//! `requests`: single operations that clients call on their own threads, as the handlers of a service
//! do. Reports their rate and the processor time of each, that of the clients' code included.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use braiddb::{Database, Durability};
use clap::Args;
use futures_util::stream::{FuturesUnordered, StreamExt};
use pollster::block_on;

use super::stage::Stage;
use crate::engine::fixture::{Bed, Opening};
use crate::error::Error;
use crate::harness::number;
use crate::harness::place::{Place, PlaceArguments};
use crate::harness::process::ProcessorMeter;
use crate::harness::report::Report;
use crate::harness::rounds::Effort;
use crate::scale::arguments::{Defaults, Scale, Settings};

/// Each number of clients, with that of their threads.
const CLIENTS: [(u64, u64); 2] = [(1, 1), (64, 2)];

#[derive(Clone, Debug)]
pub(crate) struct RequestDefaults;

impl Defaults for RequestDefaults {
    const RECORDS: u64 = 100_000;
    const SECONDS: f64 = 2.0;
}

/// Arguments of `braid-lab bench requests`. Each kind of request runs for --seconds, once.
#[derive(Args, Clone, Debug)]
pub(crate) struct RequestArguments {
    #[command(flatten)]
    scale: Scale<RequestDefaults>,

    #[command(flatten)]
    place: PlaceArguments,
}

/// A kind of request.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Get,
    Put,
}

impl RequestArguments {
    /// Runs the workload.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Report, Error> {
        measure(stage, &self.scale.settings(), &self.place.make()?)
    }
}

fn measure(stage: &mut Stage, settings: &Settings, place: &Place) -> Result<Report, Error> {
    stage.beds.clear();
    let workers = Opening::braided(settings).workers;
    let what = format!("single operations by clients on their own threads, {workers} workers");
    let mut report = Report::new("requests", what);
    let time = match settings.effort {
        Effort::Seconds(seconds) => Duration::from_secs_f64(seconds),
        Effort::Transactions(_) => Duration::from_secs_f64(RequestDefaults::SECONDS),
    };
    for (name, durability) in [
        ("volatile", Durability::Volatile),
        ("relaxed", Durability::Relaxed),
        ("group", Durability::Group),
    ] {
        let options = Opening::braided(settings).durability(durability).options();
        let bed = Bed::fill(Database::open(place.join(name), options)?, settings.records)?;
        for operation in [Operation::Get, Operation::Put] {
            for (clients, threads) in CLIENTS {
                let label = format!("{operation:?}, {name}, clients: {clients}");
                stage.progress.doing(label.clone());
                let meter = ProcessorMeter::start();
                let begin = Instant::now();
                let requests = run(&bed, operation, clients / threads, threads, time)?;
                let seconds = begin.elapsed().as_secs_f64();
                let rate = requests as f64 / seconds;
                let percent = meter.and_then(|meter| meter.percent_of_a_core()).unwrap_or(0.0);
                let micros = percent / 100.0 * 1e6 / rate;
                let [micros_text, rate_text] = [micros, rate].map(number::three_digits);
                let text = format!("{micros_text} µs of processor time, {rate_text} a second");
                report.fact(label, micros, text);
            }
        }
        bed.database.close()?;
    }
    Ok(report)
}

/// Runs clients on several threads for some time. Returns the number of their requests.
fn run(
    bed: &Bed,
    operation: Operation,
    clients: u64,
    threads: u64,
    time: Duration,
) -> Result<u64, Error> {
    let (requests, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let client = async |number: u64| -> Result<(), braiddb::Error> {
        let mut random = fastrand::Rng::with_seed(number);
        let mut count = 0;
        while !stop.load(Ordering::SeqCst) {
            let key = random.u64(..bed.records);
            match operation {
                Operation::Get => _ = bed.database.get(&bed.table, &key).await?,
                Operation::Put => bed.database.put(&bed.table, &key, &number).await?,
            }
            count += 1;
        }
        requests.fetch_add(count, Ordering::SeqCst);
        Ok(())
    };
    std::thread::scope(|scope| {
        let spawned: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    block_on(async {
                        let numbers = (0..clients).map(|number| thread * clients + number);
                        let mut running: FuturesUnordered<_> = numbers.map(client).collect();
                        while let Some(ended) = running.next().await {
                            ended?;
                        }
                        Ok::<_, braiddb::Error>(())
                    })
                })
            })
            .collect();
        std::thread::sleep(time);
        stop.store(true, Ordering::SeqCst);
        spawned.into_iter().try_for_each(|thread| thread.join().expect("clients do not panic"))
    })?;
    Ok(requests.into_inner())
}
