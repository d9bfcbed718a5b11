//! Tables of both kinds, for tests that cover both.

use braiddb::{Database, Key, Table, TableOptions, Value};

/// Creates a table, paged or not.
pub fn create_table<K, V>(db: &Database, name: &'static str, paged: bool) -> Table<K, V>
where
    K: Key + ?Sized + 'static,
    V: Value + ?Sized + 'static,
{
    let options = TableOptions::default();
    let options = if paged { options.paged() } else { options };
    db.run_blocking(async move |tx| tx.create_table_with(name, options).await).unwrap()
}

/// Returns a value that fits on a page of 4 KiB; one in eight spans several pages, and a few have
/// 300 KiB.
#[allow(dead_code, reason = "not all tests have such values")]
pub fn value_of_any_size(random: &mut fastrand::Rng) -> Vec<u8> {
    let bytes = match random.u16(..800) {
        0 => random.usize(290 << 10..310 << 10),
        1..30 => random.usize(1020..1030),
        30..100 => random.usize(1025..20_000),
        _ => random.usize(..1025),
    };
    let seed = random.u8(..);
    // Without repeated parts.
    (0..bytes).map(|byte| seed ^ (byte % 251) as u8).collect()
}
