//! CoroBase (He et al., PVLDB 2020; the thesis of 2021), figures 5.1 to 5.8: index probing and
//! YCSB.

use std::rc::Rc;

use braiddb::{Database, Table, Transaction};

use super::steps::{Boxed, Counts, Keys, Steps, Together};
use super::sweep::{self, Axis, Bare, Point, bed, driven, tree};
use super::{Figure, Run};
use crate::engine::drive::Procedure;
use crate::engine::fixture::{Bed, Opening, RECORD_BYTES, check_memory};
use crate::engine::load::load_in_pieces;
use crate::error::Error;
use crate::harness::report::Report;
use crate::random::Uniform;
use crate::reference::hinted_lookup::HintedLookup;
use crate::reference::probing::{Depth, Probing};
use crate::scale::arguments::Settings;
use crate::workload::missing_record;
use crate::workload::points::{Points, Scans};

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "corobase-5.1",
        shows: "index probing by 10 keys at once: one by one, prefetching, AMAC, coroutines; by threads",
        found: "AMAC is up to 2.3 and 2.96 times as fast as Naive and ERMIA (as printed; 2.96 over Naive is meant), \
                flattened coroutines 2.56 and 1.99 times, 17 % ahead of nested ones",
        differs: "a billion records there; the bare tree has the engine's nodes of 64 keys, so fewer levels than Masstree",
        run: probing,
    },
    Figure {
        name: "corobase-5.2",
        shows: "10 reads a transaction: sequential, within and across transactions; by threads",
        found: "CoroBase is 1.8 times as fast as ERMIA, 15 to 18 % behind AMAC; fully nested 1.25 times",
        differs: "Braid's sequential issues no prefetches, so it stands for Naive; the bare variants have no transactions, so \
                  they bound from above more loosely than AMAC within ERMIA does",
        run: reads,
    },
    Figure {
        name: "corobase-5.3",
        shows: "reads by their number in a transaction, over sequential",
        found: "CoroBase gains with 1 to 4 reads too, where batches within a transaction cannot; beyond it is ahead of all \
                but AMAC",
        differs: "as for 5.2",
        run: lengths,
    },
    Figure {
        name: "corobase-5.4",
        shows: "10 blind updates; 8 reads and 2 read-modify-writes; by threads",
        found: "updates up to 1.77 and 1.45 times Naive and ERMIA; mixed less",
        differs: "Braid logs nothing here, CoroBase logs to memory",
        run: writes,
    },
    Figure {
        name: "corobase-5.5",
        shows: "scans by their length",
        found: "the gain of interleaving vanishes as scans grow: Naive, ERMIA and CoroBase converge",
        differs: "Braid fetches a batch of a scan's records side by side even for one transaction",
        run: scans,
    },
    Figure {
        name: "corobase-5.6",
        shows: "10 reads by length of keys and of values",
        found: "CoroBase keeps its lead at every key length; the size of values does not change the order",
        differs: "Braid keeps keys over 8 bytes apart from nodes: a look at the whole key is one more line",
        run: sizes,
    },
    Figure {
        name: "corobase-5.7",
        shows: "10 reads by size of the table, over sequential",
        found: "with 10 k records, all cached, CoroBase is up to 12.6 % behind Naive, nested up to 50 %; with large tables \
                ahead",
        differs: "Braid's width tunes itself down where nothing is gained",
        run: tables,
    },
    Figure {
        name: "corobase-5.8",
        shows: "index probing, reads, updates and read-modify-writes by skew",
        found: "skewed reads are faster for all; highly skewed updates are slow for all, CoroBase then behind ERMIA",
        differs: "Braid interleaves fewer where attempts fail of conflicts",
        run: skew,
    },
];

const THREADS: Axis = Axis { name: "threads", title: "Transactions a second by threads" };
const BRAIDED: &str = "braided (CoroBase)";
const SEQUENTIAL: &str = "sequential (Naive)";
const NESTED: &str = "braided, boxed (CoroBase-FN)";
const TOGETHER: &str = "sequential, multi_get (CORO-MK)";
/// The number of keys in a batch, and of reads in a transaction.
const KEYS: usize = 10;

fn sequential(run: &mut Run<'_>) -> Result<Bed, Error> {
    let workers = run.settings.workers;
    bed(run, Opening { workers, ..Opening::sequential(run.settings) })
}

fn braided(run: &mut Run<'_>) -> Result<Bed, Error> {
    bed(run, Opening::braided(run.settings))
}

/// Returns a subject with these operation counts on a database.
fn steps(
    of: &Bed,
    workers: usize,
    (counts, theta): (Counts, f64),
    settings: &Settings,
) -> Box<dyn crate::harness::rounds::Subject> {
    let (bed, first) = (of.clone(), Keys::of(of.records, theta, settings.seed));
    let make = move |seed| Steps::on(&bed, counts, first.with_seed(seed));
    driven(&of.database, workers, settings.seed, make)
}

/// Returns a subject with the same reads in another form.
fn written<P: Procedure>(
    of: &Bed,
    workers: usize,
    reads: usize,
    settings: &Settings,
    write: fn(Steps) -> P,
) -> Box<dyn crate::harness::rounds::Subject> {
    let bed = of.clone();
    let make =
        move |seed| write(Steps::on(&bed, Counts::reads(reads), Keys::of(bed.records, 0.0, seed)));
    driven(&of.database, workers, settings.seed, make)
}

fn bare(tree: &Rc<HintedLookup>, how: Probing, depth: Depth, run: &Run<'_>) -> Bare {
    let (tree, seed) = (tree.clone(), run.settings.seed);
    Bare { tree, how: (how, depth), keys: KEYS, threads: 1, theta: 0.0, seed }
}

fn probing(run: &mut Run<'_>) -> Result<Vec<Report>, Error> {
    let tree = tree(run, run.settings.records)?;
    let mut points = Vec::new();
    let counts = run.thread_counts();
    for &threads in &counts {
        for how in Probing::ALL {
            let bare = Bare { threads, ..bare(&tree, how, Depth::Index, run) };
            points.push(Point::new(how.name(), threads as f64, bare.boxed()));
        }
    }
    let what = "batches of 10 look-ups in the bare index, uniform keys";
    let mut report = sweep::measure(run, what, THREADS, points)?;
    let most = *counts.last().expect("there is one");
    over(
        &mut report,
        THREADS,
        most,
        &[
            (Probing::Amac.name(), Probing::OneByOne.name(), 2.96),
            (Probing::Amac.name(), Probing::Prefetching.name(), 2.3),
            (Probing::Flattened.name(), Probing::OneByOne.name(), 2.56),
            (Probing::Flattened.name(), Probing::Prefetching.name(), 1.99),
            (Probing::Flattened.name(), Probing::Nested.name(), 1.17),
        ],
    );
    Ok(vec![report])
}

/// Adds published ratios at one value of the axis.
fn over(report: &mut Report, axis: Axis, x: usize, published: &[(&str, &str, f64)]) {
    for (above, below, published) in published {
        let name = |series: &str| axis.subject(series, x as f64);
        let ours = report.over(&name(above), &name(below));
        report.published(format!("{above} over {below}, {x} {}", axis.name), *published, ours, "×");
    }
}

fn reads(run: &mut Run<'_>) -> Result<Vec<Report>, Error> {
    let (braided, sequential) = (braided(run)?, sequential(run)?);
    let tree = tree(run, run.settings.records)?;
    let settings = run.settings;
    let reads = (Counts::reads(KEYS), 0.0);
    let (mut points, counts) = (Vec::new(), run.thread_counts());
    for &threads in &counts {
        let x = threads as f64;
        for how in Probing::ALL {
            let bare = Bare { threads, ..bare(&tree, how, Depth::Records, run) };
            points.push(Point::new(how.name(), x, bare.boxed()));
        }
        let plain = |bed| steps(bed, threads, reads, settings);
        points.push(Point::new(SEQUENTIAL, x, plain(&sequential)));
        points.push(Point::new(BRAIDED, x, plain(&braided)));
        let together = written(&sequential, threads, KEYS, settings, Together);
        points.push(Point::new(TOGETHER, x, together));
        points.push(Point::new(NESTED, x, written(&braided, threads, KEYS, settings, Boxed)));
    }
    let what = "transactions of 10 uniform reads under snapshot isolation, in memory; batches of 10 in the bare tree";
    let mut report = sweep::measure(run, what, THREADS, points)?;
    let most = *counts.last().expect("there is one");
    for (series, published) in [(BRAIDED, 1.8), (NESTED, 1.25)] {
        let name = |series| THREADS.subject(series, most as f64);
        let ours = report.over(&name(series), &name(SEQUENTIAL));
        let what = format!("{series} over sequential (published: over ERMIA), {most} threads");
        report.published(what, published, ours, "×");
    }
    over(
        &mut report,
        THREADS,
        most,
        &[(BRAIDED, Probing::Amac.name(), 0.85), (BRAIDED, TOGETHER, 1.0)],
    );
    Ok(vec![report])
}

fn lengths(run: &mut Run<'_>) -> Result<Vec<Report>, Error> {
    const AXIS: Axis = Axis { name: "reads", title: "Transactions a second by reads in each" };
    const READS: [usize; 5] = [1, 2, 4, 8, 16];
    let (braided, sequential) = (braided(run)?, sequential(run)?);
    let (settings, workers) = (run.settings, run.settings.workers);
    let mut points = Vec::new();
    for reads in READS {
        let x = reads as f64;
        let plain = |bed| steps(bed, workers, (Counts::reads(reads), 0.0), settings);
        points.push(Point::new(SEQUENTIAL, x, plain(&sequential)));
        points.push(Point::new(BRAIDED, x, plain(&braided)));
        let together = written(&sequential, workers, reads, settings, Together);
        points.push(Point::new(TOGETHER, x, together));
    }
    let what = "transactions of uniform reads under snapshot isolation, in memory, all workers";
    let mut report = sweep::measure(run, what, AXIS, points)?;
    for reads in READS {
        let name = |series| AXIS.subject(series, reads as f64);
        report.ratio(&name(BRAIDED), &name(SEQUENTIAL));
        report.ratio(&name(TOGETHER), &name(SEQUENTIAL));
    }
    over(&mut report, AXIS, 1, &[(TOGETHER, SEQUENTIAL, 1.0)]);
    Ok(vec![report])
}

fn writes(run: &mut Run<'_>) -> Result<Vec<Report>, Error> {
    const KINDS: [(&str, Counts); 2] = [
        ("10 updates", Counts { reads: 0, updates: 10, modifies: 0 }),
        ("8 reads, 2 read-modify-writes", Counts { reads: 8, updates: 0, modifies: 2 }),
    ];
    let (braided, sequential) = (braided(run)?, sequential(run)?);
    let (settings, counts) = (run.settings, run.thread_counts());
    let most = *counts.last().expect("there is one");
    let mut reports = Vec::new();
    for (kind, published) in KINDS.into_iter().zip([Some(1.77), None]) {
        let mut points = Vec::new();
        for &threads in &counts {
            let x = threads as f64;
            for (series, bed) in [(SEQUENTIAL, &sequential), (BRAIDED, &braided)] {
                points.push(Point::new(series, x, steps(bed, threads, (kind.1, 0.0), settings)));
            }
        }
        let what = format!("transactions of {}, uniform, snapshot isolation, in memory", kind.0);
        let mut report = sweep::measure(run, &what, THREADS, points)?;
        match published {
            Some(published) => {
                over(&mut report, THREADS, most, &[(BRAIDED, SEQUENTIAL, published)])
            }
            None => {
                let name = |series| THREADS.subject(series, most as f64);
                report.ratio(&name(BRAIDED), &name(SEQUENTIAL));
            }
        }
        reports.push(report);
    }
    Ok(reports)
}

fn scans(run: &mut Run<'_>) -> Result<Vec<Report>, Error> {
    const AXIS: Axis = Axis { name: "records", title: "Scans a second by records of each" };
    let (braided, sequential) = (braided(run)?, sequential(run)?);
    let (workers, seed) = (run.settings.workers, run.settings.seed);
    let mut points = Vec::new();
    macro_rules! scans_of {
        ($($length:literal),*) => {$(
            for (series, bed) in [(SEQUENTIAL, &sequential), (BRAIDED, &braided)] {
                let of = bed.clone();
                let make = move |seed| Scans::<$length>(Points::on(&of, seed));
                let subject = driven(&bed.database, workers, seed, make);
                points.push(Point::new(series, f64::from($length as u32), subject));
            }
        )*};
    }
    scans_of!(1, 5, 10, 50, 100, 500, 1000);
    let what =
        "transactions of one scan from a uniform key, snapshot isolation, in memory, all workers";
    let mut report = sweep::measure(run, what, AXIS, points)?;
    over(&mut report, AXIS, 1_000, &[(BRAIDED, SEQUENTIAL, 1.0)]);
    let name = |series| AXIS.subject(series, 1.0);
    report.ratio(&name(BRAIDED), &name(SEQUENTIAL));
    Ok(vec![report])
}

type ByteTable = Table<[u8], [u8]>;

/// Ten reads of keys and values of fixed lengths.
#[derive(Clone)]
struct ByteReads {
    table: ByteTable,
    uniform: Uniform,
    key_bytes: usize,
}

/// Returns a key of this length: zeros, so that keys differ only at the end, and the record's
/// number.
fn byte_key(record: u64, bytes: usize) -> Vec<u8> {
    let mut key = vec![0; bytes.saturating_sub(8)];
    key.extend_from_slice(&record.to_be_bytes());
    key
}

impl Procedure for ByteReads {
    type Input = [u64; KEYS];

    fn draw(&mut self) -> [u64; KEYS] {
        std::array::from_fn(|_| self.uniform.record())
    }

    async fn run(&self, tx: &Transaction, records: &[u64; KEYS]) -> Result<(), braiddb::Error> {
        for record in records {
            let key = byte_key(*record, self.key_bytes);
            let value = tx.get(&self.table, &key[..]).await?.ok_or_else(missing_record)?;
            std::hint::black_box(value);
        }
        Ok(())
    }
}

/// Creates a database with records of such keys and values.
fn byte_table(
    opening: Opening,
    records: u64,
    (key_bytes, value_bytes): (usize, usize),
) -> Result<(Database, ByteTable), Error> {
    const PIECE: u64 = 500;
    let database = Database::in_memory(opening.options())?;
    let table: ByteTable = pollster::block_on(database.create_table("bytes"))?;
    let kept = table.clone();
    let insert = async move |tx: &Transaction, range: &std::ops::Range<u64>| {
        for record in range.clone() {
            let value = vec![record as u8; value_bytes];
            tx.insert(&kept, &byte_key(record, key_bytes)[..], &value).await?;
        }
        Ok(())
    };
    load_in_pieces(&database, 1, 0..records, PIECE, insert)?;
    Ok((database, table))
}

fn sizes(run: &mut Run<'_>) -> Result<Vec<Report>, Error> {
    const BY_KEY: Axis =
        Axis { name: "bytes of key", title: "10 reads a transaction, by size of keys" };
    const BY_VALUE: Axis =
        Axis { name: "bytes of value", title: "10 reads a transaction, by size of values" };
    let settings = run.settings;
    let (records, workers, seed) = (settings.records, settings.workers, settings.seed);
    let mut reports = Vec::new();
    for (axis, shapes) in [
        (BY_KEY, [(8, 8), (16, 8), (32, 8), (64, 8)]),
        (BY_VALUE, [(8, 8), (8, 64), (8, 256), (8, 1_000)]),
    ] {
        let mut all = Vec::new();
        for (key_bytes, value_bytes) in shapes {
            let of = if axis.name == BY_KEY.name { key_bytes } else { value_bytes };
            check_memory(
                records,
                2 * records * (RECORD_BYTES + 2 * key_bytes as u64 + value_bytes as u64),
            )?;
            run.stage.progress.doing(format!("loading {of} {}", axis.name));
            let mut points = Vec::new();
            let sequential = Opening { workers, ..Opening::sequential(settings) };
            for (series, opening) in
                [(SEQUENTIAL, sequential), (BRAIDED, Opening::braided(settings))]
            {
                let (database, table) = byte_table(opening, records, (key_bytes, value_bytes))?;
                let make = move |seed| ByteReads {
                    table: table.clone(),
                    uniform: Uniform::below(records, seed),
                    key_bytes,
                };
                points.push(Point::new(series, of as f64, driven(&database, workers, seed, make)));
            }
            let what =
                "transactions of 10 uniform reads, snapshot isolation, in memory, all workers";
            let mut report = sweep::measure(run, what, axis, points)?;
            over(&mut report, axis, of, &[(BRAIDED, SEQUENTIAL, 1.8)]);
            all.push(report);
        }
        reports.push(sweep::join(all));
    }
    Ok(reports)
}

fn tables(run: &mut Run<'_>) -> Result<Vec<Report>, Error> {
    const AXIS: Axis =
        Axis { name: "records", title: "10 reads a transaction, by size of the table" };
    let (settings, workers) = (run.settings, run.settings.workers);
    let mut sizes: Vec<u64> = [10_000, 100_000, 1_000_000, 10_000_000]
        .into_iter()
        .filter(|size| *size < settings.records)
        .collect();
    sizes.push(settings.records);
    let mut all = Vec::new();
    for records in sizes {
        let x = records as f64;
        run.stage.progress.doing("loading");
        check_memory(records, 2 * records * RECORD_BYTES)?;
        let opening = Opening { workers, ..Opening::sequential(settings) };
        let sequential = Bed::loaded(opening, records)?;
        let braided = Bed::loaded(Opening::braided(settings), records)?;
        let tree = tree(run, records)?;
        let reads = (Counts::reads(KEYS), 0.0);
        let bare = Bare { threads: workers, ..bare(&tree, Probing::Amac, Depth::Records, run) };
        let points = vec![
            Point::new(SEQUENTIAL, x, steps(&sequential, workers, reads, settings)),
            Point::new(BRAIDED, x, steps(&braided, workers, reads, settings)),
            Point::new(NESTED, x, written(&braided, workers, KEYS, settings, Boxed)),
            Point::new(Probing::Amac.name(), x, bare.boxed()),
        ];
        let what = "transactions of 10 uniform reads, snapshot isolation, in memory, all workers";
        let mut report = sweep::measure(run, what, AXIS, points)?;
        if records <= 10_000 {
            let published = [(BRAIDED, SEQUENTIAL, 0.874), (NESTED, SEQUENTIAL, 0.5)];
            over(&mut report, AXIS, records as usize, &published);
        } else {
            let name = |series| AXIS.subject(series, x);
            report.ratio(&name(BRAIDED), &name(SEQUENTIAL));
            report.ratio(&name(NESTED), &name(SEQUENTIAL));
        }
        all.push(report);
    }
    Ok(vec![sweep::join(all)])
}

fn skew(run: &mut Run<'_>) -> Result<Vec<Report>, Error> {
    const AXIS: Axis = Axis { name: "theta", title: "10 operations, by skew" };
    const THETAS: [f64; 6] = [0.0, 0.2, 0.4, 0.6, 0.8, 0.99];
    let (settings, workers) = (run.settings, run.settings.workers);
    let mut reports = Vec::new();
    let tree = tree(run, settings.records)?;
    let mut points = Vec::new();
    for theta in THETAS {
        for how in Probing::ALL {
            let bare = Bare { threads: workers, theta, ..bare(&tree, how, Depth::Index, run) };
            points.push(Point::new(how.name(), theta, bare.boxed()));
        }
    }
    let what = "batches of 10 look-ups in the bare index, all threads";
    reports.push(sweep::measure(run, what, AXIS, points)?);
    drop(tree);
    let (braided, sequential) = (braided(run)?, sequential(run)?);
    for (kind, counts) in [
        ("reads", Counts::reads(KEYS)),
        ("updates", Counts { updates: KEYS, ..Counts::default() }),
        ("read-modify-writes", Counts { modifies: KEYS, ..Counts::default() }),
    ] {
        let mut points = Vec::new();
        for theta in THETAS {
            for (series, bed) in [(SEQUENTIAL, &sequential), (BRAIDED, &braided)] {
                points.push(Point::new(
                    series,
                    theta,
                    steps(bed, workers, (counts, theta), settings),
                ));
            }
        }
        let what = format!("transactions of 10 {kind}, snapshot isolation, in memory, all workers");
        let mut report = sweep::measure(run, &what, AXIS, points)?;
        for theta in THETAS {
            let name = |series| AXIS.subject(series, theta);
            report.ratio(&name(BRAIDED), &name(SEQUENTIAL));
        }
        reports.push(report);
    }
    Ok(reports)
}
