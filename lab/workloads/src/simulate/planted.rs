//! Planted bugs: checks that the simulation finds each of them, and with which seed.

use std::io::Write;
use std::ops::Range;

use anyhow::{Result, ensure};
use braiddb::simulation::{Bug, plant};
use serde::Serialize;

use super::schedules::Campaign;
use super::seed::{self, Plan};

/// The seed that found a bug, and the symptom.
#[derive(Debug, Serialize)]
struct Found {
    bug: String,
    seed: u64,
    shown: String,
}

/// The maximum number of schedules for one bug: at least twice the number that the rarest bug
/// needs.
pub(super) const MAX_SCHEDULES: u64 = 40_000;

/// Plants one bug after another, or only the bug `name`, and runs crashes or schedules until one
/// finds it.
///
/// # Errors
/// Fails if no seed finds a bug, or if no bug has this name.
pub(super) fn run(
    name: &str,
    seeds: Range<u64>,
    plan: Plan,
    schedules: &Campaign,
    json: bool,
) -> Result<()> {
    let crash = |seed| Some((seed, format!("{:#}", seed::run(seed, plan).err()?)));
    let crashes =
        Bug::DURABILITY.into_iter().chain(Bug::ANSWERS).chain(Bug::PAGES).map(|bug| (bug, false));
    let scheduled = Bug::CERTIFICATION.into_iter().chain(Bug::INDEXES).chain(Bug::CONCURRENCY);
    let scheduled = scheduled.chain(Bug::PAGING).chain(Bug::FEEDS).chain(Bug::BULK);
    let all = scheduled.map(|bug| (bug, true)).chain(crashes);
    let called = |bug: &Bug| name.is_empty() || format!("{bug:?}").eq_ignore_ascii_case(name);
    let chosen: Vec<_> = all.filter(|(bug, _)| called(bug)).collect();
    ensure!(!chosen.is_empty(), "no bug has the name {name:?}");
    let mut unfound = Vec::new();
    for (bug, scheduled) in chosen {
        plant(Some(bug));
        let found =
            if scheduled { schedules.first_finding() } else { seeds.clone().find_map(crash) };
        plant(None);
        let Some((seed, shown)) = found else {
            unfound.push(bug);
            continue;
        };
        let found = Found { bug: format!("{bug:?}"), seed, shown };
        if json {
            writeln!(std::io::stdout(), "{}", serde_json::to_string(&found)?)?;
        } else {
            writeln!(std::io::stdout(), "{}: seed {}: {}", found.bug, found.seed, found.shown)?;
        }
    }
    ensure!(unfound.is_empty(), "planted, but not found: {unfound:?}");
    Ok(())
}
