//! The tables of sysbench's `prepare`: each row has an indexed number and two texts of digits.

use std::ops::Range;
use std::sync::Arc;

use braiddb::{Database, Index, IndexKeys, IndexOptions, Table, Transaction};

use crate::engine::load::load_in_pieces;
use crate::error::Error;
use crate::workload::encoding::{Encoded, Text, View, records};

/// The number of rows that one loading transaction inserts.
const PIECE: u64 = 200;
/// The number of digits in a group, and of groups in each text.
const GROUP: usize = 11;
const C_GROUPS: usize = 10;
const PAD_GROUPS: usize = 5;

records! {
    Row("sysbench row") {
        k: u32,
        c: Text<120>,
        pad: Text<60>,
    }
}

/// A table `sbtest` and its index.
#[derive(Clone)]
pub(super) struct Rows {
    pub(super) table: Table<u32, Row>,
    pub(super) by_k: Index<u32, u32, Row>,
}

/// All tables of a database.
pub(super) type Tables = Arc<[Rows]>;

/// Opens or creates this number of tables and attaches their indexes.
pub(super) fn open(database: &Database, tables: usize) -> Result<Tables, Error> {
    let open = |number: usize| {
        pollster::block_on(async {
            let table = database.open_or_create_table(&format!("sbtest{number}")).await?;
            let of_row = |row: View<'_, Row>, keys: &mut IndexKeys<'_, u32>| keys.push(&row.k());
            let name = format!("k_{number}");
            let by_k = database.index(&table, &name, IndexOptions::default(), of_row).await?;
            Ok(Rows { table, by_k })
        })
    };
    (1..=tables).map(open).collect()
}

/// Inserts this number of rows, from 1 on, into each table. `k` is drawn uniformly.
pub(super) fn fill(
    database: &Database,
    tables: &Tables,
    size: u32,
    seed: u64,
    workers: usize,
) -> Result<(), Error> {
    for (rows, number) in tables.iter().cloned().zip(0_u64..) {
        let insert = async move |tx: &Transaction, piece: &Range<u64>| {
            // A separate generator for each piece, so that any worker inserts the same rows.
            let mixed = (seed ^ (number << 48) ^ (piece.start << 8)).wrapping_mul(MIXER);
            let random = &mut fastrand::Rng::with_seed(mixed);
            for id in piece.clone() {
                let row = Row { k: random.u32(1..=size), c: draw_c(random), pad: draw_pad(random) };
                tx.insert(&rows.table, &(id as u32), &Encoded::of(&row)).await?;
            }
            Ok(())
        };
        load_in_pieces(database, workers, 1..u64::from(size) + 1, PIECE, insert)?;
    }
    Ok(())
}

const MIXER: u64 = 0x9e37_79b9_7f4a_7c15;

pub(super) fn draw_c(random: &mut fastrand::Rng) -> Text<120> {
    draw_groups(C_GROUPS, random)
}

pub(super) fn draw_pad(random: &mut fastrand::Rng) -> Text<60> {
    draw_groups(PAD_GROUPS, random)
}

/// Groups of digits with dashes between them.
fn draw_groups<const N: usize>(groups: usize, random: &mut fastrand::Rng) -> Text<N> {
    let mut bytes = [b'-'; N];
    let length = groups * (GROUP + 1) - 1;
    for group in bytes[..length].chunks_mut(GROUP + 1) {
        let digits = group.len().min(GROUP);
        group[..digits].fill_with(|| random.u8(b'0'..=b'9'));
    }
    Text::of(&bytes[..length])
}

/// Returns true if both texts of a row have the format of drawn texts.
pub(super) fn is_whole(row: View<'_, Row>) -> bool {
    are_groups(row.c(), C_GROUPS) && are_groups(row.pad(), PAD_GROUPS)
}

fn are_groups(text: &[u8], groups: usize) -> bool {
    let is_group = |group: &[u8]| group.len() == GROUP && group.iter().all(u8::is_ascii_digit);
    let mut found = text.split(|byte| *byte == b'-');
    found.by_ref().take(groups).filter(|group| is_group(group)).count() == groups
        && found.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_groups_of_digits() {
        let random = &mut fastrand::Rng::with_seed(1);
        let row = Row { k: 1, c: draw_c(random), pad: draw_pad(random) };
        assert_eq!((row.c.as_bytes().len(), row.pad.as_bytes().len()), (119, 59));
        let is_whole = |row: Row| is_whole(Encoded::of(&row).view());
        assert!(is_whole(row));
        for wrong in [&b""[..], b"-", b"00000000000", &row.c.as_bytes()[..118], &[b'0'; 119]] {
            assert!(!is_whole(Row { c: Text::of(wrong), ..row }), "{wrong:?}");
        }
        let longer = [row.pad.as_bytes(), b"-"].concat();
        assert!(!is_whole(Row { pad: Text::of(&longer), ..row }));
    }
}
