//! The measured items: transactions of one kind, which a worker runs from a source like those of a
//! stored procedure. The source's iterator starts and stops the counting on the worker's thread.
//! Therefore the counts contain only the worker's instructions, and nothing else runs in the
//! process during that time.

use std::ops::ControlFlow;

use anyhow::Result;
use braiddb::{
    Database, DeviceKind, Durability, Error, Isolation, Options, Policy, Table, TableOptions,
    Transaction, Tuning, Width,
};

use crate::callgrind;

/// The number of transactions before counting begins, which warm the caches and allocate reused
/// memory.
const WARM_UP: u64 = 400;
/// The number of counted transactions.
pub(crate) const COUNTED: u64 = 1000;
/// The number of operations in a transaction.
const OPERATIONS: u64 = 10;
/// The number of records in a scan.
const SCANNED: u64 = 100;
/// The number of updates that are rolled back together.
const UNDONE: u64 = 300;
/// A number of records that fits the caches, so that no operation suspends; and a number so large
/// that operations suspend on every level.
const FEW: u64 = 20_000;
const MANY: u64 = 300_000;
/// Page frames for a paged table. Callgrind refuses the addresses of the default number.
const FRAMES: u32 = 1 << 14;
/// The number of interleaved transactions.
const WIDTH: usize = 8;

/// How the engine runs the transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    /// One transaction at a time, on few records.
    Sequential,
    /// Interleaved, on many records.
    Braided,
    /// One transaction at a time, on few records, logged without waiting for the disk.
    Logged,
    /// As `Logged`, on a paged table in memory.
    Paged,
}

/// A kind of transaction.
trait Procedure: Copy + Default + Send + 'static {
    async fn run(self, tx: &Transaction, table: &Table<u64, u64>, keys: Keys) -> Result<(), Error>;
}

/// Keys of one transaction. Even keys have a record; odd keys have none until one is inserted.
#[derive(Clone, Copy, Debug)]
struct Keys {
    number: u64,
    records: u64,
}

impl Keys {
    fn present(self) -> impl Iterator<Item = u64> {
        let records = self.records;
        let mut state = self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        (0..OPERATIONS).map(move |_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % records * 2
        })
    }

    /// Neighbouring keys in an order that visits each leaf many times.
    fn scattered_neighbours(self) -> impl Iterator<Item = u64> {
        const SPREAD: u64 = 101;
        let first = self.number * UNDONE % (self.records - UNDONE);
        (0..UNDONE).map(move |place| (first + place * SPREAD % UNDONE) * 2)
    }

    /// Distinct keys: the factor is prime and does not divide the number of records.
    fn absent(self) -> impl Iterator<Item = u64> {
        const SPREAD: u64 = 7919;
        let (first, records) = (self.number * OPERATIONS, self.records);
        (first..first + OPERATIONS).map(move |place| place * SPREAD % records * 2 + 1)
    }
}

macro_rules! procedures {
    ($($name:ident = |$tx:ident, $table:ident, $keys:ident| $body:block)*) => {
        $(
            #[derive(Clone, Copy, Default)]
            struct $name;

            impl Procedure for $name {
                async fn run(
                    self,
                    $tx: &Transaction,
                    $table: &Table<u64, u64>,
                    $keys: Keys,
                ) -> Result<(), Error> {
                    $body
                    Ok(())
                }
            }
        )*
    };
}

procedures! {
    Nothing = |_tx, _table, _keys| {}
    Reads = |tx, table, keys| {
        for key in keys.present() {
            std::hint::black_box(tx.get(table, &key).await?.ok_or_else(|| table.key_not_found(&key))?);
        }
    }
    Misses = |tx, table, keys| {
        for key in keys.absent() {
            assert!(tx.get(table, &key).await?.is_none());
        }
    }
    Updates = |tx, table, keys| {
        for key in keys.present() {
            tx.update(table, &key, &!key).await?;
        }
    }
    ReadModifyWrites = |tx, table, keys| {
        for key in keys.present() {
            let value = tx.get(table, &key).await?.ok_or_else(|| table.key_not_found(&key))?;
            tx.update(table, &key, &value.wrapping_add(1)).await?;
        }
    }
    Inserts = |tx, table, keys| {
        for key in keys.absent() {
            tx.insert(table, &key, &key).await?;
        }
    }
    Scan = |tx, table, keys| {
        let from = keys.present().next().expect("there are some") / 2;
        let mut scan = tx.scan(table, from..)?.limit(SCANNED);
        let mut seen = 0;
        while let Some((_, value)) = scan.next().await? {
            std::hint::black_box(value);
            seen += 1;
        }
        assert_eq!(seen, SCANNED);
    }
    Visit = |tx, table, keys| {
        let from = keys.present().next().expect("there are some") / 2;
        let mut seen = 0;
        let visited = tx.scan(table, from..)?.limit(SCANNED).visit(|_, value| {
            std::hint::black_box(value);
            seen += 1;
            ControlFlow::<()>::Continue(())
        });
        visited.await?;
        assert_eq!(seen, SCANNED);
    }
    Rollback = |tx, table, keys| {
        let savepoint = tx.savepoint();
        for key in keys.scattered_neighbours() {
            tx.update(table, &key, &!key).await?;
        }
        tx.rollback_to(&savepoint).await?;
    }
    OneUpdate = |tx, table, keys| {
        let key = keys.present().next().expect("there are some");
        tx.update(table, &key, &!key).await?;
    }
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Per {
    /// A whole transaction.
    Transaction,
    /// One of this number of operations, without the cost of an empty transaction.
    Operation(u64),
}

/// A kind of transaction, its setting, and the unit of its figure.
pub(crate) struct Item {
    pub(crate) name: &'static str,
    pub(crate) per: Per,
    setting: Setting,
    run: fn(&Item, Isolation, &str) -> Result<()>,
}

const ONE: Per = Per::Operation(OPERATIONS);

/// All items, each measured at both isolation levels.
pub(crate) const ITEMS: [Item; 21] = {
    use Setting::{Braided, Logged, Paged, Sequential};
    [
        item::<Nothing>(EMPTY, Sequential, Per::Transaction),
        item::<Reads>("read", Sequential, ONE),
        item::<Misses>("read of a key without a record", Sequential, ONE),
        item::<Updates>("update", Sequential, ONE),
        item::<ReadModifyWrites>("read and update", Sequential, ONE),
        item::<Inserts>("insert", Sequential, ONE),
        item::<Scan>("scan of 100, a record", Sequential, Per::Operation(SCANNED)),
        item::<Visit>("visit of 100, a record", Sequential, Per::Operation(SCANNED)),
        item::<Visit>("visit of 100, logged table, a record", Logged, Per::Operation(SCANNED)),
        item::<Visit>("visit of 100, paged table, a record", Paged, Per::Operation(SCANNED)),
        item::<Rollback>("update that is rolled back", Sequential, Per::Operation(UNDONE)),
        item::<Rollback>("update that is rolled back, paged table", Paged, Per::Operation(UNDONE)),
        item::<OneUpdate>("transaction of one update", Sequential, Per::Transaction),
        item::<OneUpdate>("transaction of one update, logged", Logged, Per::Transaction),
        item::<Updates>("transaction of 10 updates, logged", Logged, Per::Transaction),
        item::<Nothing>(EMPTY_BRAIDED, Braided, Per::Transaction),
        item::<Reads>("read, braided", Braided, ONE),
        item::<Updates>("update, braided", Braided, ONE),
        item::<ReadModifyWrites>("read and update, braided", Braided, ONE),
        item::<Inserts>("insert, braided", Braided, ONE),
        item::<Scan>("scan of 100, a record, braided", Braided, Per::Operation(SCANNED)),
    ]
};

const EMPTY: &str = "empty transaction";
const EMPTY_BRAIDED: &str = "empty transaction, braided";

const fn item<P: Procedure>(name: &'static str, setting: Setting, per: Per) -> Item {
    Item { name, per, setting, run: run::<P> }
}

impl Item {
    /// Returns the name of the empty transaction with the same setting.
    pub(crate) fn empty(&self) -> &'static str {
        if self.setting == Setting::Braided { EMPTY_BRAIDED } else { EMPTY }
    }

    /// Counts the item and makes callgrind write the counts under a name.
    pub(crate) fn count(&self, isolation: Isolation, name: &str) -> Result<()> {
        (self.run)(self, isolation, name)
    }
}

fn run<P: Procedure>(item: &Item, isolation: Isolation, name: &str) -> Result<()> {
    let options = Options::default()
        .workers(1)
        .memory_budget(None)
        .durability(Durability::Relaxed)
        .tuning(Tuning::default().device(DeviceKind::Blocking).hot_width(Width::Fixed(WIDTH)));
    let (options, records) = match item.setting {
        Setting::Braided => (options, MANY),
        Setting::Paged => (
            options.tune(|tuning| tuning.policy(Policy::Sequential).page_frames(Some(FRAMES))),
            FEW,
        ),
        Setting::Sequential | Setting::Logged => {
            (options.tune(|tuning| tuning.policy(Policy::Sequential)), FEW)
        }
    };
    let directory = tempfile::tempdir()?;
    let database = match item.setting {
        Setting::Logged | Setting::Paged => Database::open(directory.path(), options)?,
        Setting::Sequential | Setting::Braided => {
            Database::in_memory(options.durability(Durability::Volatile))?
        }
    };
    let kind = match item.setting {
        Setting::Paged => TableOptions::default().paged(),
        _ => TableOptions::default(),
    };
    let table: Table<u64, u64> =
        database.run_blocking(async move |tx| tx.create_table_with("records", kind).await)?;
    let loaded = table.clone();
    let load = database.run_source(0, 0..records / 100, async move |tx, number| {
        for key in number * 100..(number + 1) * 100 {
            tx.insert(&loaded, &(key * 2), &key).await?;
        }
        Ok(())
    })?;
    load.wait()?;
    let numbers = counted(name.to_owned());
    let procedure = P::default();
    let body = async move |tx: &Transaction, number: &_| {
        procedure.run(tx, &table, Keys { number: *number, records }).await
    };
    let source =
        database
            .transaction()
            .isolation(isolation)
            .run_source(0, numbers, body, |_, result| result.map(drop))?;
    source.wait()?;
    database.close()?;
    Ok(())
}

/// Returns numbers of transactions. Drawing them starts and stops the counting.
fn counted(name: String) -> impl Iterator<Item = u64> {
    (0..WARM_UP + COUNTED + WARM_UP / 10).inspect(move |number| match *number {
        0 => callgrind::start(),
        WARM_UP => callgrind::zero(),
        number if number == WARM_UP + COUNTED => {
            callgrind::dump(&name);
            callgrind::stop();
        }
        _ => {}
    })
}
