//! Tests of small databases: population and draws follow the description, runs leave the tables
//! consistent, and the check reports each violated rule.

use braiddb::{Database, Error as Failure, Isolation, Options, Transaction};

use super::client::Client;
use super::consistency::{Sums, check};
use super::population::{LONGEST, fill};
use super::schema::{CallForwarding, Tables, number_of};
use super::{OFF_BY_PERCENT, SUCCESSFUL};
use crate::engine::drive::{Driven, Procedure};
use crate::error::Error;
use crate::harness::rounds::{Effort, KindSample, Sample, Subject};
use crate::limit::{Watched, with_limit};
use crate::workload::book::Book;
use crate::workload::encoding::Encoded;

/// Several times the duration of a test.
const LIMIT_SECONDS: u64 = 600;
const SEED: u64 = 1;

fn filled(subscribers: u64, workers: usize) -> (Database, Tables) {
    let database = Database::in_memory(Options::default().workers(workers)).unwrap().watched();
    let tables = Tables::open(&database).unwrap();
    fill(&database, &tables, subscribers, SEED, workers).unwrap();
    (database, tables)
}

fn client(tables: &Tables, subscribers: u64, seed: u64, book: &Book<Sums>) -> Client {
    let random = fastrand::Rng::with_seed(seed);
    Client { tables: tables.clone(), subscribers, random, book: book.clone() }
}

/// Returns the contents of all tables as text.
fn dump(database: &Database, tables: &Tables) -> Vec<String> {
    let tables = tables.clone();
    let dump = async move |tx: &Transaction| {
        let mut all = Vec::new();
        let mut found = tx.scan(&tables.subscribers, ..)?;
        while let Some(record) = found.next().await? {
            all.push(format!("{record:?}"));
        }
        let mut found = tx.scan(&tables.access_infos, ..)?;
        while let Some(record) = found.next().await? {
            all.push(format!("{record:?}"));
        }
        let mut found = tx.scan(&tables.facilities, ..)?;
        while let Some(record) = found.next().await? {
            all.push(format!("{record:?}"));
        }
        let mut found = tx.scan(&tables.forwardings, ..)?;
        while let Some(((_, _, start_time), forwarding)) = found.next().await? {
            assert!((start_time + 1..=start_time + LONGEST).contains(&forwarding.end_time()));
            all.push(format!("{start_time} {forwarding:?}"));
        }
        Ok::<_, Failure>(all)
    };
    database.run_blocking(dump).unwrap()
}

#[test]
fn subscribers_have_the_specified_rows_and_depend_only_on_the_seed() {
    with_limit(LIMIT_SECONDS, |_| {
        let subscribers = 1_000;
        let (database, tables) = filled(subscribers, 2);
        let sums = check(&database, &tables, subscribers).unwrap();
        let each = |sum: i64| sum as f64 / subscribers as f64;
        assert!((2.3..2.7).contains(&each(sums.access_infos)), "{sums:?}");
        assert!((2.3..2.7).contains(&each(sums.facilities)), "{sums:?}");
        assert!((3.4..4.1).contains(&each(sums.forwardings)), "{sums:?}");
        assert!((0.43..0.57).contains(&each(sums.bits)), "{sums:?}");
        let (again, of_one) = filled(subscribers, 1);
        assert!(dump(&database, &tables) == dump(&again, &of_one), "as one worker fills it");
    });
}

#[test]
fn transactions_have_their_shares_and_subscribers_are_drawn_non_uniformly() {
    with_limit(LIMIT_SECONDS, |_| {
        let (_database, tables) = filled(1, 1);
        let draws = 50_000;
        // A table with one subscriber is enough, because nothing runs.
        let mut client = client(&tables, 100_000, SEED, &Book::default());
        let mut kinds = [0_u32; Client::KINDS.len()];
        for _ in 0..draws {
            kinds[Client::kind(&client.draw())] += 1;
        }
        for (kind, percent) in kinds.into_iter().zip([35.0, 10.0, 35.0, 2.0, 14.0, 2.0, 2.0]) {
            let share = 100.0 * f64::from(kind) / f64::from(draws);
            assert!((share - percent).abs() < 0.1 * percent, "{share} % instead of {percent} %");
        }
        // If the number of subscribers is a power of two with 16 bits, each bit is set in three of
        // four draws. Uniform draws would set it in half of them.
        client.subscribers = 1 << 16;
        let set = (0..draws).filter(|_| (client.subscriber() - 1) & 0x80 != 0).count();
        let share = set as f64 / f64::from(draws);
        assert!((0.73..0.77).contains(&share), "{share}");
        for subscribers in [1, 7, 2_000_000, 20_000_000] {
            client.subscribers = subscribers;
            assert!(
                (0..1_000).all(|_| (1..=subscribers).contains(&u64::from(client.subscriber())))
            );
        }
    });
}

fn run(
    (database, tables): (&Database, &Tables),
    subscribers: u64,
    workers: usize,
    isolation: Isolation,
    book: &Book<Sums>,
    transactions: u64,
) -> Sample {
    let make = |seed| client(tables, subscribers, seed, book);
    let mut driven = Driven::new("", database, workers, SEED, make).isolation(isolation);
    driven.round(Effort::Transactions(transactions)).unwrap()
}

#[test]
fn runs_under_both_levels_leave_it_consistent() {
    with_limit(LIMIT_SECONDS, |_| {
        let (subscribers, workers) = (20, 2);
        let (database, tables) = filled(subscribers, workers);
        let (mut expected, book) =
            (check(&database, &tables, subscribers).unwrap(), Book::default());
        for isolation in [Isolation::Serializable, Isolation::Snapshot] {
            let place = (&database, &tables);
            let sample = run(place, subscribers, workers, isolation, &book, 3_000);
            // Some 20 of the rarest kind: writing kinds did change something.
            let successful = |kind: &KindSample| kind.transactions > kind.unsuccessful;
            assert!(sample.kinds.iter().all(successful), "all kinds were run");
        }
        expected += book.total();
        assert_eq!(check(&database, &tables, subscribers).unwrap(), expected);
    });
}

#[test]
fn success_rates_match_the_specification() {
    with_limit(LIMIT_SECONDS, |_| {
        let subscribers = 2_000;
        let (database, tables) = filled(subscribers, 1);
        let place = (&database, &tables);
        let sample = run(place, subscribers, 1, Isolation::Serializable, &Book::default(), 60_000);
        for (kind, (least, most)) in sample.kinds.iter().zip(SUCCESSFUL) {
            let successful = kind.transactions - kind.unsuccessful;
            let percent = 100.0 * successful as f64 / kind.transactions as f64;
            // Some 1200 draws of the rarest kind: a standard deviation of 1.4 percent.
            let possible = least - 2.0 * OFF_BY_PERCENT..=most + 2.0 * OFF_BY_PERCENT;
            assert!(possible.contains(&percent), "{}: {percent} %, not {least} %", kind.name);
            assert_eq!(kind.unsuccessful == 0, least == 100.0, "{}", kind.name);
        }
    });
}

#[test]
fn an_unsuccessful_update_changes_nothing() {
    with_limit(LIMIT_SECONDS, |_| {
        use super::requests::Request;

        let (database, tables) = filled(50, 1);
        let before = dump(&database, &tables);
        let of = tables.clone();
        let unsuccessful = database
            .run_blocking(async move |tx| {
                let mut unsuccessful = 0;
                for (s_id, sf_type) in (1..=50).flat_map(|s_id| (1..=4).map(move |of| (s_id, of))) {
                    if tx.get(&of.facilities, &(s_id, sf_type)).await?.is_some() {
                        continue;
                    }
                    for bit_1 in [0, 1] {
                        let request =
                            Request::UpdateSubscriberData { s_id, bit_1, sf_type, data_a: 7 };
                        assert_eq!(request.run(tx, &of).await?, None);
                        unsuccessful += 1;
                    }
                }
                Ok::<_, Failure>(unsuccessful)
            })
            .unwrap();
        assert!(unsuccessful > 50, "there are {unsuccessful} facilities too few");
        assert!(dump(&database, &tables) == before);
    });
}

/// A write that violates a rule.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Forwarding(u32, u8, CallForwarding),
    /// Inserts an access info of a subscriber and of a type.
    AccessInfo(u32, u8),
    /// Gives a subscriber the number of another.
    Number(u32, u32),
    /// Deletes a subscriber.
    Gone(u32),
}

impl Damage {
    async fn write(self, tx: &Transaction, tables: &Tables) -> Result<(), Failure> {
        match self {
            Self::Forwarding(s_id, start_time, forwarding) => {
                let mut facilities = tx.scan(&tables.facilities, (s_id, 0)..)?;
                let sf_type = facilities.next().await?.map_or(1, |((_, sf_type), _)| sf_type);
                drop(facilities);
                tx.put(&tables.forwardings, &(s_id, sf_type, start_time), &Encoded::of(&forwarding))
                    .await
            }
            Self::AccessInfo(s_id, ai_type) => {
                let (_, other) = tx.first(&tables.access_infos).await?.expect("there are some");
                tx.insert(&tables.access_infos, &(s_id, ai_type), &other.change()).await
            }
            Self::Number(s_id, other) => {
                let found = tx.get(&tables.subscribers, &s_id).await?;
                let changed = found.expect("it is there").change().sub_nbr(number_of(other));
                tx.update(&tables.subscribers, &s_id, &changed).await
            }
            Self::Gone(s_id) => {
                assert!(tx.delete(&tables.subscribers, &s_id).await?, "it was there");
                Ok(())
            }
        }
    }
}

#[test]
fn broken_rules_are_reported() {
    with_limit(LIMIT_SECONDS, |_| {
        let (subscribers, numberx) = (3, number_of(1));
        for (damage, told) in [
            (
                Damage::Forwarding(9, 0, CallForwarding { end_time: 3, numberx }),
                "no special facility",
            ),
            (Damage::Forwarding(1, 8, CallForwarding { end_time: 25, numberx }), "end_time: 25"),
            (Damage::Forwarding(1, 7, CallForwarding { end_time: 9, numberx }), ", 7: "),
            (Damage::AccessInfo(9, 1), "of no subscriber"),
            (Damage::AccessInfo(1, 5), "of no type"),
            (Damage::Number(2, 9), "subscriber 2 has another one's number"),
            (Damage::Gone(2), "there is no subscriber 2"),
        ] {
            let (database, tables) = filled(subscribers, 1);
            check(&database, &tables, subscribers).unwrap();
            let of = tables.clone();
            database.run_blocking(async move |tx| damage.write(tx, &of).await).unwrap();
            match check(&database, &tables, subscribers) {
                Err(Error::Wrong(found)) => assert!(found.contains(told), "{damage:?}: {found}"),
                other => panic!("{damage:?}: the check said {other:?}"),
            }
        }
    });
}
