//! Tables and indexes that a closure borrows.

use crate::common::{PART_SECONDS, Watched, with_limit};
use braiddb::{Database, IndexKeys, IndexOptions, Options, Table};
use pollster::block_on;

/// Indexes, arrays and large tuples of tables of any types.
#[test]
fn closures_can_borrow_all_kinds_of_handles() {
    with_limit(PART_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(2)).unwrap().watched();
        let names: Table<u64, str> = block_on(db.create_table("names")).unwrap();
        let options = IndexOptions::default().unique(true);
        let whole = |name: &str, keys: &mut IndexKeys<'_, str>| keys.push(name);
        let by_name = block_on(db.index(&names, "by_name", options, whole)).unwrap();
        let [a, b, c] = ["a", "b", "c"]
            .map(|name| -> Table<u64, u64> { block_on(db.create_table(name)).unwrap() });
        block_on(db.run_on((&names, &by_name), async |tx, (names, by_name)| {
            tx.put(names, &7, "ada").await?;
            let found = tx.get_by(by_name, "ada").await?;
            assert!(found.is_some_and(|(key, name)| key == 7 && name == "ada"));
            Ok(())
        }))
        .unwrap();
        block_on(db.run_on([&a, &b, &c], async |tx, tables| {
            for (table, number) in tables.iter().zip(1..) {
                tx.put(table, &0, &number).await?;
            }
            Ok(())
        }))
        .unwrap();
        let lent = (&a, &b, &c, &names, &by_name, [&a, &b], (&c,));
        let sum = db.run_on(lent, async |tx, (a, b, c, names, by_name, pair, (single,))| {
            let found = tx.get_by(by_name, "ada").await?.is_some();
            let found = (found, tx.count(names, ..).await?);
            let mut sum = 0;
            for table in [a, b, c, &pair[0], &pair[1], single] {
                sum += tx.get(table, &0).await?.unwrap();
            }
            Ok((sum, found))
        });
        assert_eq!(block_on(sum).unwrap(), (1 + 2 + 3 + 1 + 2 + 3, (true, 1)));
    });
}
