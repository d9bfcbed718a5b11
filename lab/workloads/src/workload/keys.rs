//! `keys`: ten uniform reads a transaction by keys of several lengths and forms. Latency must be
//! hidden for all of them as for keys of eight bytes.

use std::ops::Range;

use braiddb::{Database, Error as EngineError, Table, Transaction};
use clap::Args;

use super::bars;
use super::points::OPERATIONS;
use super::stage::{BRAIDED, SEQUENTIAL, Stage};
use crate::engine::drive::{Driven, Procedure};
use crate::engine::fixture::{Opening, check_memory};
use crate::engine::load::load_in_pieces;
use crate::error::Error;
use crate::harness::number;
use crate::harness::report::Report;
use crate::harness::rounds::Subject;
use crate::random::Uniform;
use crate::scale::arguments::{Defaults, Scale, Settings};
use crate::workload::missing_record;

/// Bytes of a record with a key of 64 bytes, in total; used to check the memory before loading.
const MAX_RECORD_BYTES: u64 = 220;
/// The form that the others are compared with.
const EIGHT: &str = "8 bytes";

#[derive(Clone, Debug)]
pub(crate) struct KeysDefaults;

impl Defaults for KeysDefaults {
    const RECORDS: u64 = bars::KEYS_RECORDS;
}

/// Arguments of `braid-lab bench keys`.
#[derive(Args, Clone, Debug)]
pub(crate) struct KeysArguments {
    #[command(flatten)]
    scale: Scale<KeysDefaults>,

    /// Measure only the forms of keys whose names contain one of these; keys of 8 bytes always.
    #[arg(long, value_name = "TEXT", value_delimiter = ',')]
    forms: Vec<String>,
}

impl KeysArguments {
    /// Runs the workload.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Report, Error> {
        compare(stage, &self.scale.settings(), &self.forms)
    }
}

/// Returns a number whose bits look random; different numbers give different ones.
fn scattered(number: u64) -> u64 {
    // The finalizer of SplitMix64, a bijection.
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

fn random_suffix<const N: usize>(record: u64) -> [u8; N] {
    let mut key = [b'p'; N];
    key[N - 8..].copy_from_slice(&scattered(record).to_be_bytes());
    key
}

fn pair(first: u64, second: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&first.to_be_bytes());
    key[8..].copy_from_slice(&second.to_be_bytes());
    key
}

/// The key `user:0000012345/order:000007`; ten orders a user.
fn text(record: u64) -> [u8; 28] {
    const USERS: u64 = 10_000_000_000;
    let mut key = *b"user:0000000000/order:000000";
    let mut write = |mut number: u64, digits: Range<usize>| {
        for digit in key[digits].iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
    };
    // Different users: the factor and the number of users have no common divisor.
    write((record / 10).wrapping_mul(6_364_136_223) % USERS, 5..15);
    write(record % 10 * 7, 22..28);
    key
}

type KeyOf<const N: usize> = fn(u64) -> [u8; N];

/// Reads of records by one form of keys.
#[derive(Clone)]
struct ReadsByKey<const N: usize> {
    table: Table<[u8; N], u64>,
    key_of: KeyOf<N>,
    uniform: Uniform,
}

impl<const N: usize> Procedure for ReadsByKey<N> {
    type Input = [[u8; N]; OPERATIONS];

    #[inline]
    fn draw(&mut self) -> Self::Input {
        std::array::from_fn(|_| (self.key_of)(self.uniform.record()))
    }

    #[inline]
    async fn run(&self, tx: &Transaction, keys: &Self::Input) -> Result<(), EngineError> {
        for key in keys {
            let value = tx.get(&self.table, key).await?.ok_or_else(missing_record)?;
            std::hint::black_box(value);
        }
        Ok(())
    }
}

/// The databases of the comparison, and what was measured while they were loaded.
struct Comparison<'s> {
    stage: &'s mut Stage,
    settings: &'s Settings,
    databases: [(&'static str, Database); 2],
    subjects: Vec<Box<dyn Subject>>,
    /// The forms, with the bytes of an index entry.
    forms: Vec<(&'static str, f64)>,
}

impl Comparison<'_> {
    /// Loads records with one form of keys in a random order, and adds the subjects that read them.
    fn add<const N: usize>(&mut self, form: &'static str, key_of: KeyOf<N>) -> Result<(), Error> {
        let Settings { records, seed, .. } = *self.settings;
        for (name, database) in &self.databases {
            self.stage.progress.doing(format!("loading keys: {form}"));
            let table: Table<[u8; N], u64> =
                pollster::block_on(database.open_or_create_table(form))?;
            let index_bytes = || {
                let memory = database.stats().memory;
                memory.index_nodes + memory.keys
            };
            let before = index_bytes();
            let loaded = table.clone();
            let insert = async move |tx: &Transaction, records: &Range<u64>| {
                for record in records.clone() {
                    tx.insert(&loaded, &key_of(record), &record).await?;
                }
                Ok(())
            };
            load_in_pieces(database, 1, 0..records, 100, insert)?;
            if *name == BRAIDED {
                let bytes = index_bytes().saturating_sub(before) as f64 / records as f64;
                self.forms.push((form, bytes));
            }
            let make = move |seed| ReadsByKey {
                table: table.clone(),
                key_of,
                uniform: Uniform::below(records, seed),
            };
            let subject = Driven::new(&subject_name(form, name), database, 1, seed, make);
            self.subjects.push(Box::new(subject));
        }
        Ok(())
    }
}

fn subject_name(form: &str, engine: &str) -> String {
    format!("{form}, {engine}")
}

fn compare(stage: &mut Stage, settings: &Settings, wanted: &[String]) -> Result<Report, Error> {
    type Add = fn(&mut Comparison<'_>) -> Result<(), Error>;
    let all: [(&str, Add); 8] = [
        (EIGHT, |comparison| comparison.add(EIGHT, random_suffix::<8>)),
        ("16 bytes, random suffix", |comparison| {
            comparison.add("16 bytes, random suffix", random_suffix::<16>)
        }),
        ("32 bytes, random suffix", |comparison| {
            comparison.add("32 bytes, random suffix", random_suffix::<32>)
        }),
        ("64 bytes, random suffix", |comparison| {
            comparison.add("64 bytes, random suffix", random_suffix::<64>)
        }),
        ("text of 28 bytes", |comparison| comparison.add("text of 28 bytes", text)),
        ("tuple (tenant, id)", |comparison| {
            comparison.add("tuple (tenant, id)", |record| pair(record % 1000, record / 1000))
        }),
        ("index entry (attribute, id)", |comparison| {
            let key_of = |record| pair(scattered(record / 4), record);
            comparison.add("index entry (attribute, id)", key_of)
        }),
        ("UUID", |comparison| {
            comparison.add("UUID", |record| pair(scattered(record), scattered(!record)))
        }),
    ];
    let is_wanted = |form: &str| {
        form == EIGHT || wanted.is_empty() || wanted.iter().any(|text| form.contains(text.as_str()))
    };
    let chosen: Vec<Add> =
        all.into_iter().filter(|(form, _)| is_wanted(form)).map(|(_, add)| add).collect();
    check_memory(settings.records, settings.records * MAX_RECORD_BYTES * 2 * chosen.len() as u64)?;
    stage.beds.clear();
    let braided = Opening { workers: 1, ..Opening::braided(settings) };
    let databases = [(BRAIDED, braided), (SEQUENTIAL, Opening::sequential(settings))];
    let open = |(name, opening): (_, Opening)| -> Result<_, Error> {
        Ok((name, Database::in_memory(opening.options())?))
    };
    let [one, other] = databases.map(open);
    let databases = [one?, other?];
    let (subjects, forms) = (Vec::new(), Vec::new());
    let mut comparison = Comparison { stage, settings, databases, subjects, forms };
    chosen.into_iter().try_for_each(|add| add(&mut comparison))?;
    let Comparison { subjects, forms, .. } = comparison;
    let what = "transactions of 10 uniform point reads by one worker, by the form of the keys";
    let mut report = stage.measure("keys", what, settings, subjects)?;
    let judged = settings.records == bars::KEYS_RECORDS && !settings.quick;
    for (form, bytes) in forms {
        let [braided, sequential] = [BRAIDED, SEQUENTIAL].map(|name| subject_name(form, name));
        let over_sequential = report.ratio(&braided, &sequential);
        let name = format!("{form}: braided over sequential");
        report.bar(&name, bars::KEYS_OVER_SEQUENTIAL, over_sequential, judged);
        if form != EIGHT {
            let over_eight = report.ratio(&braided, &subject_name(EIGHT, BRAIDED));
            let name = format!("{form}: over keys of 8 bytes");
            report.bar(&name, bars::KEYS_OVER_EIGHT, over_eight, judged);
        }
        let text = format!("{} bytes", number::three_digits(bytes));
        report.fact(format!("{form}: index, an entry"), bytes, text);
    }
    Ok(report)
}
