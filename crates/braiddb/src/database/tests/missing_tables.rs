//! Errors about tables that do not exist name those that exist.

use pollster::block_on;

use super::super::{Database, Error, IndexKeys, IndexOptions, MissingTable, Options, Table};
use crate::common::{Watched, with_limit};

const LIMIT_SECONDS: u64 = 300;

fn missing<T: std::fmt::Debug>(result: Result<T, Error>) -> MissingTable {
    match result {
        Err(Error::TableNotFound(missing)) => *missing,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_error_names_at_most_eight_existing_tables() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let open = || missing(block_on(db.open_table::<u64, u64>("drafts")));
        let none = open();
        assert_eq!((&*none.name, none.existing, none.has_more), ("drafts", Some(vec![]), false));
        let mut names = Vec::new();
        for number in 0..8 {
            names.push(format!("t{number}"));
            let table: Table<u64, u64> = block_on(db.create_table(&names[number])).unwrap();
            // Rows of indexes are no tables.
            let key = |value: u64, keys: &mut IndexKeys<'_, u64>| keys.push(&value);
            block_on(db.index(&table, "by_value", IndexOptions::default(), key)).unwrap();
        }
        let eight = open();
        assert_eq!((&eight.existing, eight.has_more), (&Some(names.clone()), false));
        let said = Error::from(eight.clone()).to_string();
        let expected = "table \"drafts\" does not exist; create it first, or use one of the existing \
                        tables, \"t0\", \"t1\", \"t2\", \"t3\", \"t4\", \"t5\", \"t6\", \"t7\"";
        assert_eq!(said, expected);
        let _: Table<u64, u64> = block_on(db.create_table("t8")).unwrap();
        let nine = open();
        assert_eq!((&nine.existing, nine.has_more), (&Some(names), true));
        assert_eq!(Error::from(nine.clone()).to_string(), format!("{expected} and more"));
        // Other operations that search a table by its name.
        let encoded = db.run_blocking(async |tx| tx.open_encoded_table("drafts").await.map(drop));
        assert_eq!(missing(encoded), nine);
        assert_eq!(missing(block_on(db.drop_table("drafts"))), nine);
        assert_eq!(missing(block_on(db.rename_table("drafts", "t9"))), nine);
        // A table that does not exist yet is created without an error.
        let created = block_on(db.open_or_create_table::<u64, u64>("drafts")).unwrap();
        block_on(db.drop_table("drafts")).unwrap();
        // The handle of a dropped table names only that table.
        assert_eq!(missing(block_on(db.put(&created, &1, &1))), MissingTable::new("drafts"));
        db.close().unwrap();
    });
}
