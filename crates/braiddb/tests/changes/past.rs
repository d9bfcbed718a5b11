//! Past transactions: the same as those of a feed, also in a read-only database.

use std::time::Duration;

use braiddb::changes::{ChangeToken, ChangeTransaction, ChangesFrom, TokenError};
use braiddb::{ChangesError, Database, Durability, Error, Options, Table, TableOptions};
use pollster::block_on;

use crate::common::{Watched, with_limit};

const LIMIT_SECONDS: u64 = 300;

fn past(db: &Database, from: Option<ChangeToken>) -> Vec<ChangeTransaction> {
    db.past_changes(from).unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn past_transactions_equal_those_of_a_feed() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let open = |read_only| {
            let options = Options::default().workers(2).read_only(read_only);
            Database::open(directory.path(), options).unwrap().watched()
        };
        let db = open(false);
        let mut feed = db.changes(ChangesFrom::Now);
        let table: Table<u64, [u8]> = block_on(db.create_table("t")).unwrap();
        let options = TableOptions::default().paged().ttl(Duration::from_hours(1));
        let paged: Table<u64, str> = block_on(db.create_table_with("paged", options)).unwrap();
        block_on(db.put(&table, &1, b"one")).unwrap();
        block_on(db.put(&paged, &1, "one")).unwrap();
        // Large enough to be logged in parts.
        let large = table.clone();
        let body = async move |tx: &braiddb::Transaction| {
            for key in 0..40 {
                tx.put(&large, &key, &[7; 1 << 20]).await?;
            }
            Ok(())
        };
        block_on(db.run(body)).unwrap();
        block_on(db.rename_table("t", "renamed")).unwrap();
        block_on(db.delete(&table, &1)).unwrap();
        block_on(db.drop_table("paged")).unwrap();
        let mut fed = Vec::new();
        while fed.len() < 8 {
            fed.push(block_on(feed.next()).unwrap().expect("a feed ends with an error"));
        }
        drop(feed);
        let found = past(&db, None);
        assert_eq!(found.len(), fed.len());
        for (found, fed) in found.iter().zip(&fed) {
            assert_eq!(found.commit_lsn, fed.commit_lsn);
            assert_eq!(found.changes, fed.changes);
        }
        // Each token continues after its transaction, also that of a feed.
        for (at, (one, other)) in found.iter().zip(&fed).enumerate() {
            for token in [one.token, other.token] {
                assert_eq!(past(&db, token)[..], found[at + 1..], "{at}");
            }
        }
        db.close().unwrap();
        drop((db, table, paged));
        let db = open(true);
        assert_eq!(past(&db, None), found);
        assert_eq!(past(&db, found[2].token)[..], found[3..]);
        db.close().unwrap();
    });
}

#[test]
fn tokens_of_other_databases_are_errors() {
    with_limit(LIMIT_SECONDS, |_| {
        let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let open = |directory: &tempfile::TempDir| {
            Database::open(directory.path(), Options::default().workers(1)).unwrap().watched()
        };
        let [one, other] = [0, 1].map(|number| open(&directories[number]));
        for db in [&one, &other] {
            let _: Table<u64, str> = block_on(db.create_table("t")).unwrap();
        }
        let token = past(&one, None)[0].token;
        let error = other.past_changes(token).unwrap_err();
        let is_other =
            matches!(&error, Error::Changes(ChangesError::Token(TokenError::OtherDatabase)));
        assert!(is_other, "{error}");
        one.close().unwrap();
        assert!(matches!(one.past_changes(token), Err(Error::Closed)));
        other.close().unwrap();
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        assert!(matches!(db.past_changes(None), Err(Error::Misuse(_))));
        db.close().unwrap();
    });
}

/// The log is read up to the state whose tables are known, also if it is not durable yet.
#[test]
fn relaxed_transactions_are_found_with_the_names_of_their_tables() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::default().workers(2).durability(Durability::Relaxed);
        let db = Database::open(directory.path(), options).unwrap().watched();
        let mut token = None;
        for round in 0..20 {
            let table: Table<u64, u64> = block_on(db.create_table("t")).unwrap();
            block_on(db.put(&table, &1, &round)).unwrap();
            block_on(db.rename_table("t", "renamed")).unwrap();
            block_on(db.put(&table, &2, &round)).unwrap();
            block_on(db.drop_table("renamed")).unwrap();
            let found = past(&db, token);
            let names: Vec<_> = found.iter().map(|one| &*one.changes[0].table).collect();
            assert_eq!(names, ["t", "t", "t", "renamed", "renamed"]);
            assert_eq!(found[1].changes[0].value, round.to_le_bytes());
            token = found[4].token;
        }
        db.close().unwrap();
    });
}
