//! Counters of callgrind, read from its files.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::locks::ObjectFiles;

/// The counts of one item, or of a part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    pub(crate) instructions: f64,
    /// Instructions that lock memory.
    pub(crate) locked: f64,
    /// Misses of the first-level data cache.
    pub(crate) near_misses: f64,
    /// Misses of the last-level cache: data loaded from memory.
    pub(crate) far_misses: f64,
}

impl Counts {
    /// Divides the counts by `count`.
    pub(crate) fn scaled(self, count: u64) -> Self {
        let share = |total: f64| total / count as f64;
        Self {
            instructions: share(self.instructions),
            locked: share(self.locked),
            near_misses: share(self.near_misses),
            far_misses: share(self.far_misses),
        }
    }

    /// Subtracts other counts.
    pub(crate) fn without(self, other: Self) -> Self {
        Self {
            instructions: self.instructions - other.instructions,
            locked: (self.locked - other.locked).max(0.0),
            near_misses: (self.near_misses - other.near_misses).max(0.0),
            far_misses: (self.far_misses - other.far_misses).max(0.0),
        }
    }
}

/// The cost of an item at each isolation level.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Costs {
    pub(crate) name: String,
    pub(crate) snapshot: Counts,
    pub(crate) serializable: Counts,
}

/// Reads the counts in all files of a directory, by name.
pub(crate) fn read_all(directory: &Path) -> Result<HashMap<String, Counts>> {
    let mut all = HashMap::new();
    let mut objects = ObjectFiles::default();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
        let named = || path.display().to_string();
        if let Some((name, mut counts)) = parse(&text).with_context(named)? {
            counts.locked = objects.locked(&text).with_context(named)?;
            let before = all.insert(name, counts);
            ensure!(before.is_none(), "{}: counted twice", path.display());
        }
    }
    Ok(all)
}

/// Returns the name of a file and its counts, without locked instructions; `None` if no client
/// request wrote it.
fn parse(text: &str) -> Result<Option<(String, Counts)>> {
    let line = |start: &str| text.lines().find_map(|line| line.strip_prefix(start));
    let Some(name) = line("desc: Trigger: Client Request: ") else { return Ok(None) };
    let events = line("events: ").context("a counts file names its events")?;
    let totals = line("totals: ").context("a counts file ends with totals")?;
    let totals: Vec<f64> = totals.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    // Callgrind omits zeros at the end.
    let of = |event: &str| {
        let place = events.split_whitespace().position(|one| one == event);
        place.and_then(|place| totals.get(place)).copied().unwrap_or(0.0)
    };
    let counts = Counts {
        instructions: of("Ir"),
        locked: 0.0,
        near_misses: of("D1mr") + of("D1mw"),
        far_misses: of("DLmr") + of("DLmw"),
    };
    Ok(Some((name.to_owned(), counts)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_without_their_last_zeros_are_read() {
        let text = "desc: Trigger: Client Request: read\nevents: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr \
                    DLmw\nfn=(1)\ntotals: 500 9 9 9 20 5\n";
        let counts = Counts { instructions: 500.0, near_misses: 25.0, ..Counts::default() };
        assert_eq!(parse(text).unwrap(), Some(("read".to_owned(), counts)));
        assert_eq!(parse("desc: Trigger: Program termination\n").unwrap(), None);
    }
}
