//! Rate at which a node that was down copies what it lacks.

use std::time::Instant;

use anyhow::{Result, ensure};

use crate::figures::{KEPT, Measure};
use crate::order::Order;
use crate::report::Report;

/// Writes while one of three nodes is down, and measures until it has applied all.
pub fn measure(measure: &Measure) -> Result<Report> {
    let mut report = Report::new("catch-up of a node");
    let megabytes = measure.arguments.megabytes;
    for _ in 0..measure.arguments.rounds {
        for (program, label) in &measure.programs()? {
            // With few kept entries, the others have purged what it lacks.
            for (name, kept) in [("from the log", KEPT), ("by a snapshot", 1)] {
                measure.progress.doing(&format!("{label}catch-up {name}"));
                let mut nodes = measure.cluster(program, 3, kept)?;
                let leader = nodes.leader()?;
                let node = leader % 3 + 1;
                let last = nodes.node(node)?.status()?.last_log_index;
                nodes.kill(node);
                nodes.node(leader)?.execute(&Order::Write { megabytes })?;
                // openraft purges while the leader does not send these entries, between attempts.
                while kept == 1 && nodes.node(leader)?.status()?.purged_index <= last {
                    nodes.node(leader)?.execute(&Order::Commit)?;
                }
                nodes.start(node)?;
                let begun = Instant::now();
                nodes.catch_up(node)?;
                let seconds = begun.elapsed().as_secs_f64();
                let installed = nodes.node(node)?.status()?.counts.snapshots_installed;
                ensure!(kept == 1 || installed == 0, "{installed} snapshots were installed");
                report.add(
                    format!("{label}{megabytes} MiB {name}"),
                    vec![("MiB a second", megabytes as f64 / seconds, 1), ("seconds", seconds, 2)],
                );
            }
        }
    }
    Ok(report)
}
