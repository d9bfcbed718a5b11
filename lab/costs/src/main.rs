//! Counts the instructions, those that lock memory, and the simulated cache misses of each
//! operation of the engine, and compares them with a table (`docs/costs.md`). Noise of the machine does not affect these counts.
//!
//! `cargo costs` prints the counts. `--check` fails if a count is outside its tolerance, `--update`
//! writes the table. The program runs itself under callgrind (valgrind must be installed), and must
//! be built with optimisations.

mod callgrind;
mod counts;
mod items;
mod locks;
mod table;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use braiddb::Isolation;

use crate::counts::{Costs, Counts};
use crate::items::{ITEMS, Item};

/// The argument for the measured process.
const MEASURED: &str = "measured";
/// The simulated caches, the same on every machine: bytes, associativity, bytes of a line.
const CACHES: [&str; 3] = ["--I1=32768,8,64", "--D1=49152,12,64", "--LL=33554432,16,64"];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [MEASURED] => run_all(),
        [] => show(&count(None)?),
        ["--keep", directory] => show(&count(Some(Path::new(directory)))?),
        ["--update"] => table::write(&table_file(), &count(None)?),
        ["--check"] => check(&count(None)?),
        _ => bail!("usage: braid-costs [--check | --update | --keep DIRECTORY]"),
    }
}

/// Returns the path of the table.
fn table_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/costs.md")
}

/// Returns the name of an item's counts in callgrind.
fn label(item: &Item, isolation: Isolation) -> String {
    format!("{}, {isolation:?}", item.name)
}

const ISOLATIONS: [Isolation; 2] = [Isolation::Snapshot, Isolation::Serializable];

/// Runs the items in the measured process.
fn run_all() -> Result<()> {
    for item in &ITEMS {
        for isolation in ISOLATIONS {
            item.count(isolation, &label(item, isolation))?;
        }
    }
    Ok(())
}

/// Runs the measured process and reads the counts.
fn count(keep: Option<&Path>) -> Result<Vec<Costs>> {
    ensure!(!cfg!(debug_assertions), "build with optimisations: use `cargo costs`");
    let directory = tempfile::tempdir()?;
    let directory = keep.unwrap_or(directory.path());
    std::fs::create_dir_all(directory)?;
    let output = directory.join("counts");
    let status = Command::new("valgrind")
        .args(["--quiet", "--tool=callgrind", "--instr-atstart=no", "--cache-sim=yes"])
        .args(["--dump-instr=yes", "--compress-pos=no", "--compress-strings=no"])
        .args(CACHES)
        .arg(format!("--callgrind-out-file={}", output.display()))
        .arg(std::env::current_exe()?)
        .arg(MEASURED)
        .stdout(Stdio::null())
        .status()
        .context("valgrind could not be run; install it")?;
    ensure!(status.success(), "the measured process failed: {status}");
    let counted = counts::read_all(directory)?;
    let find = |item: &str, isolation: Isolation| -> Result<Counts> {
        let item = ITEMS.iter().find(|one| one.name == item).expect("an item of the list");
        let counts = counted.get(&label(item, isolation));
        counts.copied().with_context(|| format!("{} was not counted", item.name))
    };
    let costs = |item: &Item| {
        let each = |isolation| -> Result<Counts> {
            let transactions = find(item.name, isolation)?.scaled(items::COUNTED);
            Ok(match item.per {
                items::Per::Transaction => transactions,
                items::Per::Operation(operations) => {
                    let empty = find(item.empty(), isolation)?.scaled(items::COUNTED);
                    transactions.without(empty).scaled(operations)
                }
            })
        };
        let [snapshot, serializable] = ISOLATIONS.map(each);
        Ok(Costs { name: item.name.to_owned(), snapshot: snapshot?, serializable: serializable? })
    };
    ITEMS.iter().map(costs).collect()
}

fn show(costs: &[Costs]) -> Result<()> {
    print!("{}", table::text(costs));
    Ok(())
}

fn check(costs: &[Costs]) -> Result<()> {
    let file = table_file();
    let wrong = table::differences(&table::read(&file)?, costs);
    print!("{}", table::text(costs));
    if !wrong.is_empty() {
        bail!(
            "costs differ from {}; if this is intended, update it with --update:\n{}",
            file.display(),
            wrong.join("\n")
        );
    }
    Ok(())
}
