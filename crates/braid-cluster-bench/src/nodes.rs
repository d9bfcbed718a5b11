//! The processes of one cluster, or of one database without a cluster.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use braid_cluster::{NodeId, Status};

use crate::Arguments;
use crate::histogram::Histogram;
use crate::order::{Load, Measured, Order, Reply, Setting};
use crate::process::CHILD;
use crate::usage::Usage;

/// Pause before the state of a node is asked for again.
const PAUSE: Duration = Duration::from_millis(5);

/// Process of a node. It ends when this is dropped.
pub struct Process {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts a process, and waits until its node runs.
    fn start(program: &Path, setting: &Setting) -> Result<Self> {
        let mut child = Command::new(program)
            .arg(CHILD)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{} cannot be started", program.display()))?;
        let mut input = child.stdin.take().context("no input")?;
        let output = BufReader::new(child.stdout.take().context("no output")?).lines();
        writeln!(input, "{}", serde_json::to_string(setting)?)?;
        let mut process = Self { child, input, output };
        process.reply()?;
        Ok(process)
    }

    /// Sends an order. Its reply is read later.
    pub fn send(&mut self, order: &Order) -> Result<()> {
        Ok(writeln!(self.input, "{}", serde_json::to_string(order)?)?)
    }

    /// Waits for the next reply.
    pub fn reply(&mut self) -> Result<Reply> {
        let line = self.output.next().context("a node ended")??;
        Ok(serde_json::from_str(&line)?)
    }

    /// Executes an order.
    pub fn execute(&mut self, order: &Order) -> Result<Reply> {
        self.send(order)?;
        self.reply()
    }

    pub fn status(&mut self) -> Result<Status> {
        match self.execute(&Order::Status)? {
            Reply::Status(status) => Ok(*status),
            other => bail!("a node answered {other:?}"),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Processes by number of the node. A node that is down has none.
pub struct Nodes {
    program: PathBuf,
    settings: BTreeMap<NodeId, Setting>,
    pub running: BTreeMap<NodeId, Process>,
    _directory: tempfile::TempDir,
}

impl Nodes {
    /// Starts a database without a cluster.
    pub fn alone(arguments: &Arguments, program: &Path) -> Result<Self> {
        let mut nodes = Self::prepare(arguments, program, 1, 0)?;
        nodes.settings.values_mut().for_each(|setting| setting.node = None);
        nodes.start(1)?;
        Ok(nodes)
    }

    /// Starts a cluster.
    pub fn cluster(arguments: &Arguments, program: &Path, count: u64, kept: u64) -> Result<Self> {
        let mut nodes = Self::prepare(arguments, program, count, kept)?;
        (1..=count).try_for_each(|node| nodes.start(node))?;
        let members = nodes.settings.iter().map(|(node, setting)| (*node, setting.address.clone()));
        let members = Order::Init(members.collect());
        nodes.node(1)?.execute(&members)?;
        Ok(nodes)
    }

    fn prepare(arguments: &Arguments, program: &Path, count: u64, kept: u64) -> Result<Self> {
        let directory = match &arguments.dir {
            Some(dir) => tempfile::tempdir_in(dir)?,
            None => tempfile::tempdir()?,
        };
        // Bound at the same time, so that all are different.
        let listeners: Vec<TcpListener> =
            (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
        let mut settings = BTreeMap::new();
        for (node, listener) in (1..).zip(&listeners) {
            let setting = Setting {
                node: Some(node),
                directory: directory.path().join(node.to_string()),
                address: listener.local_addr()?.to_string(),
                heartbeat_ms: arguments.heartbeat,
                kept_entries: kept,
            };
            settings.insert(node, setting);
        }
        let (program, running) = (program.to_owned(), BTreeMap::new());
        Ok(Self { program, settings, running, _directory: directory })
    }

    /// Fills the table of the loads from a node.
    pub fn fill(&mut self, node: NodeId, records: u64) -> Result<()> {
        self.node(node)?.execute(&Order::Fill(records)).map(drop)
    }

    /// Starts a node.
    pub fn start(&mut self, node: NodeId) -> Result<()> {
        let process = Process::start(&self.program, &self.settings[&node])?;
        self.running.insert(node, process);
        Ok(())
    }

    /// Kills a node, as a power failure would, except for the page cache.
    pub fn kill(&mut self, node: NodeId) {
        self.running.remove(&node);
    }

    pub fn node(&mut self, node: NodeId) -> Result<&mut Process> {
        self.running.get_mut(&node).context("the node is down")
    }

    /// Waits until the running nodes agree on a leader that runs, and returns it.
    pub fn leader(&mut self) -> Result<NodeId> {
        loop {
            let mut leaders = Vec::new();
            for process in self.running.values_mut() {
                leaders.push(process.status()?.leader);
            }
            match leaders[0] {
                Some(leader)
                    if self.running.contains_key(&leader)
                        && leaders.iter().all(|other| *other == Some(leader)) =>
                {
                    return Ok(leader);
                }
                _ => std::thread::sleep(PAUSE),
            }
        }
    }

    /// Waits until a node has applied all that the leader has.
    pub fn catch_up(&mut self, node: NodeId) -> Result<()> {
        let leader = self.leader()?;
        let index = self.node(leader)?.status()?.applied_index;
        self.node(node)?.execute(&Order::Await(index)).map(drop)
    }

    /// Runs a load with its clients on these nodes, and joins the results. The usage is that of
    /// all nodes.
    pub fn run(&mut self, load: &Load, on: &[NodeId]) -> Result<Measured> {
        let number = on.len() as u64;
        for (place, process) in &mut self.running {
            let position = on.iter().position(|node| node == place);
            // The first nodes run the clients that remain.
            let clients = position.map_or(0, |position| {
                load.clients / number + u64::from((position as u64) < load.clients % number)
            });
            process.send(&Order::Run(Load { clients, ..load.clone() }))?;
        }
        let mut joined = Measured {
            attempts: 0,
            failed: 0,
            times: Histogram::default(),
            usage: Usage::default(),
            seconds: load.seconds,
        };
        for process in self.running.values_mut() {
            let Reply::Measured(measured) = process.reply()? else { bail!("a load has no result") };
            joined.attempts += measured.attempts;
            joined.failed += measured.failed;
            joined.times.merge(&measured.times);
            joined.usage.add(&measured.usage);
        }
        Ok(joined)
    }
}
