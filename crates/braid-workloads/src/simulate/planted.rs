//! Planted bugs: whether the simulation finds each of them, and with which seed.

use std::io::Write;
use std::ops::Range;

use anyhow::{Result, bail};
use braiddb::simulation::{Bug, plant};
use serde::Serialize;

use super::seed::{self, Plan};

/// The seed that found a bug, and how it showed.
#[derive(Debug, Serialize)]
struct Found {
    bug: String,
    seed: u64,
    shown: String,
}

/// Plants one bug after another and runs seeds until one finds it.
///
/// # Errors
/// A bug that no seed finds.
pub(super) fn run(seeds: Range<u64>, plan: Plan, json: bool) -> Result<()> {
    for bug in Bug::ALL {
        plant(Some(bug));
        let found = seeds.clone().find_map(|seed| Some((seed, seed::run(seed, plan).err()?)));
        plant(None);
        let Some((seed, error)) = found else {
            bail!("{bug:?} was planted, and none of {} seeds found it", seeds.end - seeds.start);
        };
        let found = Found { bug: format!("{bug:?}"), seed, shown: format!("{error:#}") };
        if json {
            writeln!(std::io::stdout(), "{}", serde_json::to_string(&found)?)?;
        } else {
            writeln!(std::io::stdout(), "{}: seed {}: {}", found.bug, found.seed, found.shown)?;
        }
    }
    Ok(())
}
