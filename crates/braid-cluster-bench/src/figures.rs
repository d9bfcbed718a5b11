//! The figures: writes, reads and conflicts; and the goals.

use std::path::{Path, PathBuf};

use anyhow::Result;
use braid_cluster::NodeId;
use clap::ValueEnum;

use crate::nodes::Nodes;
use crate::order::{Kind, Load, Measured, Reads};
use crate::progress::Progress;
use crate::report::{Column, Report};
use crate::{Arguments, Figure, catch_up, failover, goals};

/// Entries that the logs keep, except where a snapshot is measured.
pub const KEPT: u64 = 1 << 20;
/// Part of the time of a load before figures are taken.
const WARM_UP: f64 = 0.2;
const THETAS: [f64; 4] = [0.0, 0.5, 0.9, 0.99];

/// Measures what the arguments ask for, and writes the results.
pub fn run(arguments: &Arguments) -> Result<()> {
    let measure = Measure { arguments, progress: Progress::new() };
    let wants = |figure: Figure| arguments.only.is_empty() || arguments.only.contains(&figure);
    let mut reports = Vec::new();
    for figure in Figure::value_variants().iter().filter(|figure| wants(**figure)) {
        let report = match figure {
            Figure::Writes => measure.writes()?,
            Figure::Reads => measure.reads()?,
            Figure::Conflicts => measure.conflicts()?,
            Figure::Failover => failover::measure(&measure)?,
            Figure::CatchUp => catch_up::measure(&measure)?,
        };
        measure.progress.doing("");
        report.write(arguments.json)?;
        reports.push(report);
    }
    goals::write(&reports, arguments.json)
}

/// The arguments and the progress of a run.
pub struct Measure<'a> {
    pub arguments: &'a Arguments,
    pub progress: Progress,
}

impl Measure<'_> {
    /// Returns the programs to compare, and what their subjects are called.
    pub fn programs(&self) -> Result<Vec<(PathBuf, String)>> {
        let mut programs = vec![(std::env::current_exe()?, String::new())];
        for (number, other) in (2..).zip(&self.arguments.against) {
            programs.push((other.clone(), format!("program {number}: ")));
        }
        Ok(programs)
    }

    pub fn load(&self, transaction: Kind, clients: u64) -> Load {
        let seconds = self.arguments.seconds;
        Load {
            transaction,
            clients,
            records: self.arguments.records,
            warm_up: seconds * WARM_UP,
            seconds,
        }
    }

    /// Starts a cluster with a filled table.
    pub fn cluster(&self, program: &Path, nodes: u64, kept: u64) -> Result<Nodes> {
        let mut nodes = Nodes::cluster(self.arguments, program, nodes, kept)?;
        let leader = nodes.leader()?;
        nodes.fill(leader, self.arguments.records)?;
        Ok(nodes)
    }

    fn writes(&self) -> Result<Report> {
        let mut report = Report::new(goals::WRITES);
        for _ in 0..self.arguments.rounds {
            for (program, label) in &self.programs()? {
                self.write_round(program, label, &mut report)?;
            }
        }
        Ok(report)
    }

    fn write_round(&self, program: &Path, label: &str, report: &mut Report) -> Result<()> {
        let mut alone = Nodes::alone(self.arguments, program)?;
        alone.fill(1, self.arguments.records)?;
        self.write_loads(&mut alone, &format!("{label}one database"), &[1], report)?;
        drop(alone);
        for count in [1, 3, 5] {
            if count > self.arguments.nodes {
                continue;
            }
            let mut nodes = self.cluster(program, count, KEPT)?;
            let all: Vec<NodeId> = (1..=count).collect();
            let name = if count == 1 { "1 node".to_owned() } else { format!("{count} nodes") };
            self.write_loads(&mut nodes, &format!("{label}{name}"), &all, report)?;
            if count > 1 {
                let leader = nodes.leader()?;
                let name = format!("{label}{name}, clients on the leader");
                self.write_loads(&mut nodes, &name, &[leader], report)?;
            }
        }
        Ok(())
    }

    fn write_loads(
        &self,
        nodes: &mut Nodes,
        name: &str,
        on: &[NodeId],
        report: &mut Report,
    ) -> Result<()> {
        for clients in &self.arguments.clients {
            let subject = format!("{name}, {clients} clients");
            self.progress.doing(&subject);
            let measured = nodes.run(&self.load(Kind::Add { theta: 0.0 }, *clients), on)?;
            report.add(subject, write_columns(&measured));
        }
        Ok(())
    }

    fn reads(&self) -> Result<Report> {
        let mut report = Report::new(goals::READS);
        let kinds = [
            ("linearizable", Reads::Linearizable),
            ("session", Reads::Session),
            ("stale", Reads::Stale),
        ];
        for _ in 0..self.arguments.rounds {
            for (program, label) in &self.programs()? {
                let mut nodes = self.cluster(program, 3, KEPT)?;
                for (name, kind) in kinds {
                    for clients in &self.arguments.clients {
                        let subject = format!("{label}{name}, {clients} clients");
                        self.progress.doing(&subject);
                        let load = self.load(Kind::Read(kind), *clients);
                        let measured = nodes.run(&load, &[1, 2, 3])?;
                        report.add(subject, columns(&measured));
                    }
                }
            }
        }
        Ok(report)
    }

    fn conflicts(&self) -> Result<Report> {
        let mut report = Report::new("conflicts, 3 nodes");
        for _ in 0..self.arguments.rounds {
            for (program, label) in &self.programs()? {
                let mut nodes = self.cluster(program, 3, KEPT)?;
                for theta in THETAS {
                    for clients in &self.arguments.clients {
                        let subject = format!("{label}theta {theta}, {clients} clients");
                        self.progress.doing(&subject);
                        let load = self.load(Kind::Add { theta }, *clients);
                        let measured = nodes.run(&load, &[1, 2, 3])?;
                        let conflicts = measured.attempts - measured.times.count();
                        let part = conflicts as f64 / measured.attempts.max(1) as f64;
                        let mut columns = vec![("conflicts %", 100.0 * part, 2)];
                        columns.extend(self::columns(&measured));
                        report.add(subject, columns);
                    }
                }
            }
        }
        Ok(report)
    }
}

/// Returns the rate and the latencies of a load.
fn columns(measured: &Measured) -> Vec<Column> {
    let at = |part| f64::from(measured.times.quantile(part)) / 1000.0;
    vec![
        ("a second", measured.times.count() as f64 / measured.seconds, 0),
        ("p50 ms", at(0.5), 2),
        ("p99 ms", at(0.99), 2),
        ("p99.9 ms", at(0.999), 2),
        ("failed", measured.failed as f64, 0),
    ]
}

fn write_columns(measured: &Measured) -> Vec<Column> {
    let each = |total: u64| total as f64 / measured.times.count().max(1) as f64;
    let mut columns = columns(measured);
    columns.extend([
        ("attempts", each(measured.attempts), 3),
        ("disk bytes", each(measured.usage.disk_bytes), 0),
        ("network bytes", each(measured.usage.network_bytes), 0),
        ("messages", each(measured.usage.messages), 4),
        ("processor µs", 1000.0 * each(measured.usage.processor_ms), 1),
    ]);
    columns
}
