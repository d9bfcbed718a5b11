//! Planted bugs: the simulation proves itself by finding each of them.

use std::io::Write;
use std::ops::Range;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use braiddb::simulation::{Bug, plant};
use serde::Serialize;

use super::schedules::Campaign;
use super::search;
use super::seed::{self, Plan};

/// The seed that found a bug, and how the bug showed.
#[derive(Debug, Serialize)]
struct Detection {
    bug: String,
    seed: u64,
    shown: String,
    seconds: f64,
}

/// Default number of schedules that look for one bug: at least twice what the rarest bug takes.
pub(super) const MAX_SCHEDULES: u64 = 40_000;

/// How planted bugs are searched for.
pub(super) struct Search {
    /// Seeds of crashes.
    pub(super) seeds: Range<u64>,
    pub(super) plan: Plan,
    pub(super) schedules: Campaign,
    /// When the search must have ended.
    pub(super) end: Option<Instant>,
}

impl Search {
    /// Plants the named bugs one after another, or all of them if no name is given, and searches for a
    /// seed that finds each.
    ///
    /// # Errors
    /// An unknown name, or bugs that nothing found in time.
    pub(super) fn run(&self, names: &[String], json: bool) -> Result<()> {
        let mut unfound = Vec::new();
        for (bug, is_scheduled) in chosen(names)? {
            let start = Instant::now();
            plant(Some(bug));
            let found =
                if is_scheduled { self.schedules.first_finding(self.end) } else { self.crash() };
            plant(None);
            let Some((seed, shown)) = found else {
                unfound.push(bug);
                continue;
            };
            let seconds = start.elapsed().as_secs_f64();
            let found = Detection { bug: format!("{bug:?}"), seed, shown, seconds };
            if json {
                writeln!(std::io::stdout(), "{}", serde_json::to_string(&found)?)?;
            } else {
                let Detection { bug, seed, shown, seconds } = &found;
                writeln!(std::io::stdout(), "{bug}: seed {seed}, {seconds:.1} s: {shown}")?;
            }
        }
        ensure!(unfound.is_empty(), "planted, and found by no seed in time: {unfound:?}");
        Ok(())
    }

    /// Returns the smallest seed whose crashes find the planted bug, and what they find.
    fn crash(&self) -> Option<(u64, String)> {
        let look = |(): &mut (), seed| Some(format!("{:#}", seed::run(seed, self.plan).err()?));
        search::first(self.schedules.jobs, self.seeds.clone(), self.end, |_| (), look)
    }
}

/// Returns the bugs of these names, or all bugs without a name. The flag of a bug is true if
/// schedules find it, and false if crashes do.
fn chosen(names: &[String]) -> Result<Vec<(Bug, bool)>> {
    let crashes = Bug::DURABILITY.into_iter().chain(Bug::ANSWERS).chain(Bug::PAGES);
    let scheduled = Bug::CERTIFICATION.into_iter().chain(Bug::INDEXES).chain(Bug::CONCURRENCY);
    let scheduled = scheduled.chain(Bug::PAGING).chain(Bug::FEEDS).chain(Bug::BULK);
    let all: Vec<_> =
        scheduled.map(|bug| (bug, true)).chain(crashes.map(|bug| (bug, false))).collect();
    if names.is_empty() {
        return Ok(all);
    }
    let called = |name: &String| {
        let bug = all.iter().find(|(bug, _)| format!("{bug:?}").eq_ignore_ascii_case(name));
        match bug {
            Some(bug) => Ok(*bug),
            None => bail!("no bug is called {name:?}"),
        }
    };
    names.iter().map(called).collect()
}
