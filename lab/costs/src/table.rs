//! The table of costs, a page of the documentation that only this program writes.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::counts::{Costs, Counts};

/// The tolerance for instruction counts, as a share.
const INSTRUCTIONS_OFF: f64 = 0.03;
/// The tolerance for cache misses, which depend on memory addresses; and an absolute number of
/// misses that is always tolerated.
const MISSES_OFF: f64 = 0.25;
const FEW_MISSES: f64 = 2.0;
/// The tolerance for instructions that lock memory, an absolute number.
const LOCKED_OFF: f64 = 0.2;

const HEAD: &str = "# What operations cost

Instructions and simulated cache misses of each operation, counted by callgrind on one worker. Noise
of the machine does not affect these figures. `cargo costs --update` writes this page. `.ci/run` runs
`cargo costs --check`, which fails if an item needs 3 % more or fewer instructions than stated here,
or 0.2 more or fewer locked ones: instructions with the prefix `lock`, and exchanges with memory.
Every change of the cost of an operation is therefore a change of this page. The figures are explained in
[benchmarks.md](benchmarks.md#what-a-transaction-costs).

";

/// Returns the text of the table.
pub(crate) fn text(costs: &[Costs]) -> String {
    let mut text = String::from(
        "| operation | instructions, snapshot | instructions, serializable \
         | locked, snapshot | locked, serializable | near misses, snapshot | near misses, serializable | far misses, snapshot \
         | far misses, serializable |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for Costs { name, snapshot, serializable } in costs {
        let (one, other) = (snapshot, serializable);
        writeln!(
            text,
            "| {name} | {:.0} | {:.0} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} |",
            one.instructions,
            other.instructions,
            one.locked,
            other.locked,
            one.near_misses,
            other.near_misses,
            one.far_misses,
            other.far_misses
        )
        .expect("a string takes any text");
    }
    text
}

/// Writes the page.
pub(crate) fn write(file: &Path, costs: &[Costs]) -> Result<()> {
    fs::write(file, format!("{HEAD}{}", text(costs)))?;
    print!("{}", text(costs));
    Ok(())
}

/// Reads the page.
pub(crate) fn read(file: &Path) -> Result<Vec<Costs>> {
    let page = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    parse(&page).with_context(|| file.display().to_string())
}

fn parse(page: &str) -> Result<Vec<Costs>> {
    let rows = page.lines().filter(|line| line.starts_with("| ")).skip(1);
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        ensure!(cells.len() == 9, "not a row of the table: {line}");
        let figures = cells[1..].iter().map(|cell| cell.parse());
        let figures: Vec<f64> =
            figures.collect::<Result<_, _>>().with_context(|| line.to_owned())?;
        let counts = |column: usize| Counts {
            instructions: figures[column],
            locked: figures[2 + column],
            near_misses: figures[4 + column],
            far_misses: figures[6 + column],
        };
        Ok(Costs { name: cells[0].to_owned(), snapshot: counts(0), serializable: counts(1) })
    };
    rows.map(row).collect()
}

/// Returns a line for each count outside its tolerance.
pub(crate) fn differences(table: &[Costs], now: &[Costs]) -> Vec<String> {
    let names = |costs: &[Costs]| costs.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
    if names(table) != names(now) {
        return vec!["the table has other rows".to_owned()];
    }
    let mut wrong = Vec::new();
    for (Costs { name, snapshot, serializable }, now) in table.iter().zip(now) {
        let pairs = [
            ("snapshot", snapshot, now.snapshot),
            ("serializable", serializable, now.serializable),
        ];
        for (isolation, before, now) in pairs {
            let mut compare = |what: &str, before: f64, now: f64, off: f64, few: f64| {
                if (now - before).abs() > (off * before).max(few) {
                    wrong.push(format!(
                        "{name}, {isolation}: {now:.1} {what}, the table says {before:.1}"
                    ));
                }
            };
            compare("instructions", before.instructions, now.instructions, INSTRUCTIONS_OFF, 1.0);
            compare("locked instructions", before.locked, now.locked, 0.0, LOCKED_OFF);
            compare("near misses", before.near_misses, now.near_misses, MISSES_OFF, FEW_MISSES);
            compare("far misses", before.far_misses, now.far_misses, MISSES_OFF, FEW_MISSES);
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(instructions: f64, near_misses: f64) -> Vec<Costs> {
        let counts = Counts { instructions, locked: 1.5, near_misses, far_misses: 0.0 };
        vec![Costs { name: "read".to_owned(), snapshot: counts, serializable: counts }]
    }

    #[test]
    fn costs_outside_the_table_are_reported() {
        let table = parse(&format!("{HEAD}{}", text(&costs(1000.0, 20.0)))).unwrap();
        assert_eq!(table, costs(1000.0, 20.0));
        assert!(differences(&table, &costs(1029.0, 24.0)).is_empty());
        assert_eq!(differences(&table, &costs(1031.0, 20.0)).len(), 2);
        assert_eq!(
            differences(&table, &costs(969.0, 20.0)).len(),
            2,
            "a gain must be recorded too"
        );
        assert_eq!(differences(&table, &costs(1000.0, 26.0)).len(), 2);
        assert_eq!(differences(&table, &[]).len(), 1);
    }
}
