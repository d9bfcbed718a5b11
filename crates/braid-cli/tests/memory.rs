//! Files and tables larger than memory: what `--memory` says holds, and is no limit of what is written.

mod common;

use std::fmt::Write as _;

use braiddb::{Database, Options, Table, TableOptions};
use common::limit::{Watched, with_limit};
use common::{Braid, LIMIT};
use pollster::block_on;

/// Many runs, and more than a transaction may have on paged tables; or a row twice, far from the first.
#[test]
fn a_paged_table_that_is_there_takes_more_than_a_transaction_may_have() {
    const ROWS: u64 = 40;
    with_limit(LIMIT.as_secs(), |_| {
        let braid = Braid::new();
        let open =
            || Database::open(braid.directory(), Options::default().workers(1)).unwrap().watched();
        let db = open();
        // Numbers have another order than their texts.
        let paged = TableOptions::default().paged();
        let table: Table<u64, str> = block_on(db.create_table_with("t", paged)).unwrap();
        block_on(db.put(&table, &3, "goes")).unwrap();
        block_on(db.put(&table, &ROWS, "stays")).unwrap();
        drop(table);
        db.close().unwrap();
        drop(db);
        let value = |key: u64| char::from(b'a' + (key % 26) as u8).to_string().repeat(1 << 20);
        let text = (0..ROWS).fold("id,n\n".to_owned(), |mut text, row| {
            let key = row * 7 % ROWS;
            writeln!(text, "{key},{}", value(key)).unwrap();
            text
        });
        let bad = braid.file("bad.csv", text.clone() + "00,again\n");
        let more = ["--value", "n", "--memory", "68"];
        let (_, said) = braid.import(&bad, &more, 4);
        assert!(said.contains(&format!("line {}", ROWS + 2)), "{said}");
        let (scanned, _) = braid.run(&["scan", "t"], 0);
        assert_eq!(scanned, "3\tgoes\n40\tstays\n");
        let good = braid.file("good.csv", text);
        let (said, _) = braid.import(&good, &more, 0);
        assert!(said.contains("imported 40 rows"), "{said}");
        let db = open();
        let table: Table<u64, str> = block_on(db.open_table("t")).unwrap();
        for key in 0..ROWS {
            let found = block_on(db.get(&table, &key)).unwrap();
            assert!(found.is_some_and(|found| found == value(key)), "{key}");
        }
        assert_eq!(block_on(db.get(&table, &ROWS)).unwrap().as_deref(), Some("stays"));
        assert_eq!(block_on(db.len(&table)).unwrap(), ROWS + 1);
        db.close().unwrap();
    });
}
