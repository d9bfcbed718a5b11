//! The arguments of the command line, and their help.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use braid_cluster::{Consistency, NodeId};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};

/// Run a node of a cluster, or administer a cluster.
///
/// A cluster keeps the databases of three to seven machines identical. Each runs braid node, or a
/// program that uses the crate braid-cluster. docs/cluster.md describes the guarantees.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 success, 1 the key does not exist, 2 wrong usage, 3 failure.\n\n\
Examples, three nodes on one machine:\n  \
braid node --id 1 --dir one --listen 127.0.0.1:7401\n  \
braid node --id 2 --dir two --listen 127.0.0.1:7402\n  \
braid node --id 3 --dir three --listen 127.0.0.1:7403\n  \
braid cluster init 1=127.0.0.1:7401 2=127.0.0.1:7402 3=127.0.0.1:7403\n  \
braid cluster --node 127.0.0.1:7402 put names ada 'Ada Lovelace'\n  \
braid cluster --node 127.0.0.1:7403 get names ada"
)]
pub struct Arguments {
    /// Print JSON, one document per line.
    #[arg(long, global = true)]
    pub json: bool,

    /// Print the messages of Raft too.
    #[arg(long, global = true)]
    pub verbose: bool,

    #[command(subcommand)]
    pub verb: Verb,
}

/// The verb, with its arguments.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run a node until the process is interrupted or terminated.
    ///
    /// Creates the database if it does not exist. A new node waits until braid cluster init or
    /// braid cluster add makes it a member. It prints a line when it answers requests.
    ///
    /// Example: braid node --id 1 --dir /var/lib/braid --listen 10.0.0.1:7400
    /// --certificate one.pem --key one.key --authority ca.pem
    Node(NodeOptions),
    /// Administer a cluster through one of its nodes, and read and write text.
    Cluster {
        /// The node to call.
        #[command(flatten)]
        server: Server,
        /// The request.
        #[command(subcommand)]
        action: Action,
    },
}

/// Arguments of `node`.
#[derive(Args, Debug)]
#[group(skip)]
pub struct NodeOptions {
    /// Number of the node, unique in the cluster for ever: a node that lost its database joins with
    /// a new number.
    #[arg(long, value_name = "NUMBER")]
    pub id: NodeId,
    /// Directory of the database.
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Address for the other nodes and for braid cluster. Without certificates, it must be a
    /// loopback address.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Interval of the leader's heartbeats, in milliseconds. The others elect a new leader after 5
    /// to 10 intervals without one. All nodes should have the same.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 100,
        value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub heartbeat: u64,
    /// Number of log entries to keep. A node that lacks more receives a snapshot.
    #[arg(long, value_name = "ENTRIES", default_value_t = 8192,
        value_parser = clap::value_parser!(u64).range(..=1 << 40))]
    pub kept_entries: u64,
    /// Memory of the database, in MiB. By default half of the machine's.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub memory: Option<u64>,
    /// Worker threads of the database. By default one for each core.
    #[arg(long, value_name = "THREADS")]
    pub workers: Option<usize>,
    /// Serve metrics for Prometheus at this address, by HTTP without protection: /metrics.
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,
    /// The cluster, and the certificates.
    #[command(flatten)]
    pub membership: MembershipOptions,
}

/// Arguments that nodes and clients share.
#[derive(Args, Debug)]
#[group(skip)]
pub struct MembershipOptions {
    /// Name of the cluster. Nodes and commands with another name are refused.
    #[arg(
        long,
        global = true,
        value_name = "CLUSTER",
        env = "BRAID_CLUSTER",
        default_value = "braid"
    )]
    pub name: String,
    /// Certificate of this node or administrator, in PEM format.
    #[arg(long, global = true, value_name = "FILE", env = "BRAID_CERTIFICATE", requires_all = ["private_key", "authority"])]
    pub certificate: Option<PathBuf>,
    /// Private key of the certificate, in PEM format.
    #[arg(long = "key", global = true, value_name = "FILE", env = "BRAID_KEY", requires_all = ["certificate", "authority"])]
    pub private_key: Option<PathBuf>,
    /// Certificate of the authority that signed the certificates of all nodes, in PEM format.
    #[arg(long, global = true, value_name = "FILE", env = "BRAID_AUTHORITY", requires_all = ["certificate", "private_key"])]
    pub authority: Option<PathBuf>,
    /// Host name in the certificates of all nodes.
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "BRAID_TLS_NAME",
        default_value = "braid"
    )]
    pub tls_name: String,
}

/// The node that a command calls.
#[derive(Args, Debug)]
#[group(skip)]
pub struct Server {
    /// Address of any running node. For init, by default the member with the
    /// lowest number, which makes the cluster.
    #[arg(long, global = true, value_name = "ADDRESS", env = "BRAID_NODE")]
    pub node: Option<String>,
    /// Deadline, in seconds.
    #[arg(long, global = true, value_name = "SECONDS", env = "BRAID_TIMEOUT", default_value = "10",
        value_parser = deadline)]
    pub timeout: Duration,
    /// The cluster, and the certificates.
    #[command(flatten)]
    pub membership: MembershipOptions,
}

/// A request to a cluster.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Make running nodes a new cluster, once.
    ///
    /// Has no effect on nodes that are members already.
    ///
    /// Example: braid cluster init 1=10.0.0.1:7400 2=10.0.0.2:7400 3=10.0.0.3:7400
    Init {
        /// The members: their numbers and the addresses by which the others reach them, which
        /// cannot be changed later.
        #[arg(required = true, value_name = "NUMBER=ADDRESS", value_parser = member)]
        members: Vec<(NodeId, String)>,
    },
    /// Add a running node, which copies the contents and then votes.
    ///
    /// If it has not copied them before the deadline, it is not added: raise --timeout.
    Add {
        /// Number of the node.
        number: NodeId,
        /// Address by which the others reach it: HOST:PORT. It cannot be changed later.
        #[arg(value_parser = address)]
        address: String,
    },
    /// Remove a node, which may be down.
    ///
    /// The number is not used again. Stop the node afterwards.
    Remove {
        /// Number of the node.
        number: NodeId,
    },
    /// Print the members, their roles, and how far they are behind.
    ///
    /// The leader knows the positions of all nodes; without --json, this command asks it too.
    Status,
    /// Let another node lead, for example before the leader is stopped.
    ///
    /// Writes wait until it leads, usually for less than a second.
    Transfer {
        /// Number of the node.
        number: NodeId,
    },
    /// Make the database of a stopped node, or a restored backup, the only node of a new cluster.
    ///
    /// Use it only if no majority of the old cluster can run again: transactions that only other
    /// nodes have are lost. The new cluster needs another --name. Then run the node, and add nodes
    /// with empty databases.
    ///
    /// Example: braid cluster recover --dir /var/lib/braid --name shop-2 1 10.0.0.1:7400
    Recover {
        /// Directory of the database. It is not open in a process.
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
        /// Number of the node in the new cluster.
        number: NodeId,
        /// Address by which other nodes will reach it: HOST:PORT. It cannot be changed later.
        #[arg(value_parser = address)]
        address: String,
    },
    /// Set the value of a key, on all nodes.
    ///
    /// Creates the table if it does not exist. Keys and values are text. When the command ends, the
    /// record is on the disks of a majority.
    ///
    /// Example: braid cluster put names ada 'Ada Lovelace'
    Put {
        /// Name of the table.
        table: String,
        /// Key of the record.
        key: String,
        /// New value.
        value: String,
    },
    /// Drop a table with all its records, on all nodes.
    ///
    /// Example: braid cluster drop names
    Drop {
        /// Name of the table.
        table: String,
    },
    /// Rename a table, on all nodes.
    ///
    /// Example: braid cluster rename names people
    Rename {
        /// Name of the table.
        from: String,
        /// New name.
        to: String,
    },
    /// Print the value of a key.
    ///
    /// Exits with code 1 if the key does not exist.
    Get {
        /// Name of the table.
        table: String,
        /// Key of the record.
        key: String,
        /// linearizable: everything committed before the command began is seen. stale: what the
        /// called node has applied, also without a majority.
        #[arg(long, value_name = "CONSISTENCY", default_value = "linearizable",
            value_parser = consistency)]
        consistency: Consistency,
    },
}

fn member(word: &str) -> Result<(NodeId, String), String> {
    let member = word.split_once('=').and_then(|(number, at)| Some((number.parse().ok()?, at)));
    let (number, at) = member.ok_or("write NUMBER=ADDRESS, such as 1=10.0.0.1:7400")?;
    Ok((number, address(at)?))
}

fn address(word: &str) -> Result<String, String> {
    let is_name = |host: &str| {
        let in_names = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        !host.is_empty() && host.bytes().all(in_names)
    };
    let is_valid = match word.parse::<SocketAddr>() {
        Ok(address) => address.port() != 0,
        Err(_) => word.rsplit_once(':').is_some_and(|(host, port)| {
            is_name(host) && port.parse::<u16>().is_ok_and(|port| port != 0)
        }),
    };
    let wrong = || format!("{word:?} is not HOST:PORT, such as 10.0.0.1:7400");
    is_valid.then(|| word.to_owned()).ok_or_else(wrong)
}

/// Returns the members of a new cluster. Ends the process if two have the same number or address.
pub fn distinct(members: &[(NodeId, String)]) -> BTreeMap<NodeId, String> {
    for (position, (number, address)) in members.iter().enumerate() {
        let same =
            members[..position].iter().find(|other| other.0 == *number || other.1 == *address);
        if let Some((other, at)) = same {
            let text = format!(
                "{other}={at} and {number}={address}: each member needs its own number and address"
            );
            Arguments::command().error(ErrorKind::ValueValidation, text).exit();
        }
    }
    members.iter().cloned().collect()
}

fn deadline(word: &str) -> Result<Duration, String> {
    let seconds = word.parse().ok().filter(|seconds| (0.1..=86_400.0).contains(seconds));
    let seconds = seconds.ok_or("give a number of seconds from 0.1 to 86400")?;
    Ok(Duration::from_secs_f64(seconds))
}

fn consistency(word: &str) -> Result<Consistency, String> {
    match word {
        "linearizable" => Ok(Consistency::Linearizable),
        "stale" => Ok(Consistency::Session(braid_cluster::Token::default())),
        _ => Err("choose linearizable or stale".to_owned()),
    }
}
