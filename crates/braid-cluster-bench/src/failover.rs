//! Time from the death of the leader to the first write that another node acknowledges.

use std::sync::mpsc::channel;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::figures::{KEPT, Measure};
use crate::goals;
use crate::histogram::Histogram;
use crate::nodes::Nodes;
use crate::order::Order;
use crate::report::Report;

/// Heartbeats of the longest election timeout.
const TIMEOUT_HEARTBEATS: f64 = 10.0;

/// Kills the leader of three nodes again and again.
pub fn measure(measure: &Measure) -> Result<Report> {
    let mut report = Report::new(goals::FAILOVER);
    let arguments = measure.arguments;
    for (program, label) in &measure.programs()? {
        let (mut nodes, mut times) = (measure.cluster(program, 3, KEPT)?, Histogram::default());
        for kill in 1..=arguments.kills {
            measure.progress.doing(&format!("kill {kill} of {}", arguments.kills));
            times.add(u32::try_from(fail_over(&mut nodes)?).unwrap_or(u32::MAX));
        }
        let plural = if arguments.kills == 1 { "" } else { "s" };
        let at = |part| f64::from(times.quantile(part)) / 1000.0;
        let timeout = TIMEOUT_HEARTBEATS * arguments.heartbeat as f64;
        report.add(
            format!("{label}{} kill{plural}", arguments.kills),
            vec![
                ("p50 ms", at(0.5), 0),
                ("p99 ms", at(0.99), 0),
                ("highest ms", at(1.0), 0),
                ("p50 timeouts", at(0.5) / timeout, 2),
                ("p99 timeouts", at(0.99) / timeout, 2),
            ],
        );
    }
    Ok(report)
}

/// Kills the leader. Returns the microseconds until another node acknowledged a write that began
/// after the kill, and restarts the node.
fn fail_over(nodes: &mut Nodes) -> Result<u128> {
    let leader = nodes.leader()?;
    let killed = Instant::now();
    nodes.kill(leader);
    let time = std::thread::scope(|scope| {
        let (acknowledge, acknowledged) = channel();
        for process in nodes.running.values_mut() {
            let acknowledge = acknowledge.clone();
            scope.spawn(move || {
                if process.execute(&Order::Commit).is_ok() {
                    // The other node may have been faster.
                    _ = acknowledge.send(killed.elapsed().as_micros());
                }
            });
        }
        drop(acknowledge);
        acknowledged.recv().context("no node commits")
    })?;
    nodes.start(leader)?;
    nodes.catch_up(leader)?;
    Ok(time)
}
