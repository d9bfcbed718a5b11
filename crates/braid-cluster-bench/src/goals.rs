//! Goals for the figures of this program's own nodes.

use std::io::Write;

use anyhow::Result;
use serde_json::json;

use crate::report::{Report, number};

/// A bound for a figure.
struct Goal {
    name: &'static str,
    is_least: bool,
    bound: f64,
    /// Group, subjects by the start of their names, and column of the figure. The best is judged.
    figure: (&'static str, &'static str, &'static str),
    /// Subjects of the same group by whose best figure it is divided.
    divisor: Option<&'static str>,
}

const RATE: &str = "a second";
/// Titles of the groups.
pub const WRITES: &str = "durable transactions";
pub const READS: &str = "reads, 3 nodes";
pub const FAILOVER: &str = "failover, 3 nodes";

const GOALS: [Goal; 4] = [
    Goal {
        name: "durable transactions a second of 3 nodes",
        is_least: true,
        bound: 50_000.0,
        figure: (WRITES, "3 nodes", RATE),
        divisor: None,
    },
    Goal {
        name: "the same, divided by those of one database",
        is_least: true,
        bound: 0.25,
        figure: (WRITES, "3 nodes", RATE),
        divisor: Some("one database"),
    },
    Goal {
        name: "linearizable reads a second of 3 nodes",
        is_least: true,
        bound: 100_000.0,
        figure: (READS, "linearizable", RATE),
        divisor: None,
    },
    Goal {
        name: "p99 of the failover in election timeouts",
        is_least: false,
        bound: 3.0,
        figure: (FAILOVER, "", "p99 timeouts"),
        divisor: None,
    },
];

/// Writes which goals the figures reach.
pub fn write(reports: &[Report], is_json: bool) -> Result<()> {
    let mut output = std::io::stdout().lock();
    for goal in &GOALS {
        let (title, subjects, column) = goal.figure;
        let report = reports.iter().find(|report| report.title == title);
        let Some(best) = report.and_then(|report| report.best(subjects, column)) else { continue };
        let divisor = goal.divisor.and_then(|subjects| report?.best(subjects, column));
        let figure = best / divisor.unwrap_or(1.0);
        let reached = if goal.is_least { figure >= goal.bound } else { figure <= goal.bound };
        if is_json {
            let goal = json!({"goal": goal.name, "figure": figure, "bound": goal.bound, "reached": reached});
            writeln!(output, "{goal}")?;
            continue;
        }
        let places = if goal.bound < 10.0 { 2 } else { 0 };
        writeln!(
            output,
            "goal {}: {} {} (at {} {})",
            if reached { "reached" } else { "missed" },
            goal.name,
            number(figure, places),
            if goal.is_least { "least" } else { "most" },
            number(goal.bound, places),
        )?;
    }
    Ok(output.flush()?)
}
