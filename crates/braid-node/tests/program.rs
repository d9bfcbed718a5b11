//! Three processes of the program, as a user runs them: they are killed, restarted, replaced.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::Value;
use tempfile::TempDir;

/// Deadline of what must happen at last. Tests that pass never wait for it.
const LIMIT: Duration = Duration::from_secs(120);

/// A process that is killed when it is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// A running node with metrics.
struct Node {
    id: u64,
    /// Name of its cluster.
    name: &'static str,
    process: Process,
    address: String,
    metrics: String,
    directory: TempDir,
}

/// Starts a node. Returns the addresses on which it answers and serves metrics, or `None` if it
/// ends. Its heartbeats are so rare that a loaded machine elects no leader without need.
fn spawn(
    id: u64,
    name: &str,
    directory: &Path,
    address: &str,
    more: &[&str],
) -> Option<(Process, String, String)> {
    let process = Command::new(env!("CARGO_BIN_EXE_braid-node"))
        .args(["node", "--id", &id.to_string(), "--listen", address, "--name", name])
        .args(["--workers", "1", "--memory", "64", "--metrics", "127.0.0.1:0"])
        .args(["--heartbeat", "500", "--dir"])
        .arg(directory)
        .args(more)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut process = Process(process);
    let mut lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
    let mut after = |text: &str| {
        let line = lines.next()?.unwrap();
        Some(line.strip_prefix(&format!("node {id} {text} on ")).unwrap().to_owned())
    };
    let metrics = after("serves metrics")?;
    Some((process, after("answers")?, metrics))
}

impl Node {
    fn start(id: u64) -> Self {
        Self::start_with(id, "test", &[])
    }

    fn start_with(id: u64, name: &'static str, arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (process, address, metrics) =
            spawn(id, name, directory.path(), "127.0.0.1:0", arguments).unwrap();
        Self { id, name, process, address, metrics, directory }
    }

    fn kill(&mut self) {
        self.process.0.kill().unwrap();
        self.process.0.wait().unwrap();
    }

    /// Starts the node again on its port, which another process may have for a moment.
    fn restart(&mut self) {
        let (directory, begun) = (self.directory.path(), Instant::now());
        (self.process, _, self.metrics) = loop {
            if let Some(node) = spawn(self.id, self.name, directory, &self.address, &[]) {
                break node;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "node {} does not start", self.id);
        };
    }

    fn metrics(&self) -> String {
        let mut stream = TcpStream::connect(&self.metrics).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Sends a request through this node.
    fn cluster(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_braid-node"))
            .arg("cluster")
            .args(arguments)
            .envs([("BRAID_CLUSTER", self.name), ("BRAID_TIMEOUT", "60")])
            .env("BRAID_NODE", &self.address)
            .output()
            .unwrap()
    }

    /// Sends a request that succeeds, and returns what it printed.
    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.cluster(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.ok(&["status", "--json"])).unwrap()
    }

    /// Waits for a status.
    fn wait(&self, reached: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let status = self.status();
            if reached(&status) {
                return status;
            }
            assert!(begun.elapsed() < LIMIT, "{status}");
        }
    }
}

/// As `braid top` asks it.
#[test]
fn a_node_describes_itself_at_the_socket_of_its_database() {
    let node = Node::start(1);
    let ask = || {
        let mut socket = UnixStream::connect(node.directory.path().join("braid.socket")).unwrap();
        socket.write_all(b"braid 1 stats\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    };
    let field = |answer: &str, name: &str| -> Value {
        let line = answer.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        serde_json::from_str(&line.replace("\\\\", "\\")).unwrap()
    };
    let before = field(&ask(), "cluster ");
    assert_eq!((&before["role"], &before["leader"]), (&"learner".into(), &Value::Null));
    init(std::slice::from_ref(&node));
    node.ok(&["put", "names", "ada", "Ada"]);
    node.ok(&["rename", "names", "people"]);
    assert_eq!(node.ok(&["get", "people", "ada"]), "Ada");
    node.ok(&["drop", "people"]);
    let gone = node.cluster(&["drop", "people"]);
    assert!(String::from_utf8(gone.stderr).unwrap().contains("no table"));
    let answer = ask();
    let (stats, cluster) = (field(&answer, "stats "), field(&answer, "cluster "));
    assert!(stats["committed"].as_u64() > Some(0), "{answer}");
    assert_eq!((&cluster["role"], &cluster["leader"]), (&"leader".into(), &1.into()));
    assert_eq!(cluster["applied_index"], node.status()["applied_index"]);
    assert!(answer.ends_with("done\n"), "{answer}");
}

fn init(nodes: &[Node]) {
    let members: Vec<String> =
        nodes.iter().map(|node| format!("{}={}", node.id, node.address)).collect();
    let members: Vec<&str> = members.iter().map(String::as_str).collect();
    nodes[0].ok(&[&["init"], &members[..]].concat());
}

fn three() -> Vec<Node> {
    let nodes: Vec<Node> = (1..=3).map(Node::start).collect();
    init(&nodes);
    nodes
}

#[test]
fn three_nodes_survive_a_kill_and_a_replacement() {
    let mut nodes = three();
    nodes[0].ok(&["put", "names", "ada", "Ada Lovelace"]);
    assert_eq!(nodes[2].ok(&["get", "names", "ada"]), "Ada Lovelace");

    // The leader is killed: the others elect another one.
    let leader = nodes[0].wait(|status| !status["leader"].is_null())["leader"].as_u64().unwrap();
    let killed = leader as usize - 1;
    nodes[killed].kill();
    let (one, other) = (&nodes[(killed + 1) % 3], &nodes[(killed + 2) % 3]);
    one.ok(&["put", "names", "ben", "Ben Bitdiddle"]);
    assert_eq!(
        other.ok(&["get", "names", "ben", "--json"]),
        r#"{"key":"ben","value":"Ben Bitdiddle"}"#
    );
    let last = one.status()["applied_index"].as_u64().unwrap();
    nodes[killed].restart();
    nodes[killed].wait(|status| status["applied_index"].as_u64() >= Some(last));
    let stale = ["get", "names", "ben", "--consistency", "stale"];
    assert_eq!(nodes[killed].ok(&stale), "Ben Bitdiddle");

    // The leadership is transferred to the restarted node.
    let target = nodes[killed].id.to_string();
    one_of_others(&nodes, killed).ok(&["transfer", &target]);
    let status = nodes[killed].wait(|status| status["role"] == "leader");
    assert_eq!(status["leader"].as_u64(), Some(leader));
    let text = one_of_others(&nodes, killed).ok(&["status"]);
    assert!(text.contains(&format!("{leader:>6}  leader  ")), "{text}");

    let metrics = nodes[killed].metrics();
    let is_leader = format!("braid_cluster_is_leader{{cluster=\"test\",node=\"{leader}\"}} 1");
    assert!(metrics.contains(&is_leader), "{metrics}");
    assert!(metrics.contains("braid_log_flushes_total{database=\"node\"}"), "{metrics}");

    // A node is lost, and a new one replaces it.
    nodes[(killed + 1) % 3].kill();
    let lost = nodes[(killed + 1) % 3].id.to_string();
    nodes[killed].ok(&["remove", &lost]);
    let new = Node::start(4);
    nodes[killed].ok(&["add", "4", &new.address]);
    // A node is added when it has the log. A linearizable read waits until it is applied.
    assert_eq!(new.ok(&["get", "names", "ben"]), "Ben Bitdiddle");
    assert_eq!(new.ok(&stale), "Ben Bitdiddle");
    new.ok(&["put", "names", "ada", "Countess of Lovelace"]);
    assert_eq!(nodes[killed].ok(&["get", "names", "ada"]), "Countess of Lovelace");
    let voters = nodes[killed].status()["voters"].as_object().unwrap().len();
    assert_eq!(voters, 3);
}

#[test]
fn a_node_recovers_the_contents_of_a_lost_cluster() {
    let mut nodes = three();
    nodes[2].ok(&["put", "names", "ada", "Ada Lovelace"]);
    assert_eq!(nodes[1].ok(&["get", "names", "ada"]), "Ada Lovelace");
    nodes.iter_mut().for_each(Node::kill);
    let node = &mut nodes[1];
    let directory = node.directory.path().to_str().unwrap();
    let recover = ["recover", "--dir", directory, "2", &node.address];
    let refused = node.cluster(&recover);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    assert!(String::from_utf8(refused.stderr).unwrap().contains("another name"));
    node.ok(&[&recover[..], &["--name", "second"]].concat());
    node.name = "second";
    node.restart();
    assert_eq!(node.ok(&["get", "names", "ada"]), "Ada Lovelace");
    node.ok(&["put", "names", "ben", "Ben Bitdiddle"]);
    let new = Node::start_with(5, "second", &[]);
    node.ok(&["add", "5", &new.address]);
    assert_eq!(new.ok(&["get", "names", "ada"]), "Ada Lovelace");
    assert_eq!(new.ok(&["get", "names", "ben"]), "Ben Bitdiddle");
    let voters = new.status()["voters"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(voters, ["2", "5"]);
}

fn one_of_others(nodes: &[Node], node: usize) -> &Node {
    &nodes[(node + 1) % 3]
}

#[test]
fn certificates_protect_nodes_and_commands() {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["braid".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: String| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (authority, key) = (file("ca", authority.pem()), file("key", key.serialize_pem()));
    let certificate = file("certificate", certificate.pem());
    let files = ["--certificate", &certificate, "--key", &key, "--authority", &authority];
    let node = Node::start_with(1, "test", &files);
    let member = format!("1={}", node.address);
    node.ok(&[&["init", &member][..], &files].concat());
    node.ok(&[&["put", "t", "k", "v"][..], &files].concat());
    assert_eq!(node.ok(&[&["get", "t", "k"][..], &files].concat()), "v");
    let refused = node.cluster(&["--timeout", "1", "status"]);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
}

#[test]
fn errors_name_their_remedy() {
    let node = Node::start(1);
    let failed = |arguments: &[&str], code: i32, text: &str| {
        let output = node.cluster(arguments);
        let said = String::from_utf8(output.stderr.clone()).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        assert!(said.contains(text), "{arguments:?}: {said}");
    };
    failed(&["--timeout", "1", "put", "t", "k", "v"], 3, "initialize the cluster or add the node");
    failed(&["init", "2=127.0.0.1:1"], 3, "cluster cannot be opened");
    init(std::slice::from_ref(&node));
    failed(&["get", "missing", "k"], 3, "missing");
    node.ok(&["put", "t", "k", "v"]);
    failed(&["get", "t", "absent"], 1, "has no key \"absent\"");
    failed(&["put", "raft.log", "k", "v"], 3, "cannot be the name of a table");
    failed(&["transfer", "9"], 3, "node 9 is not a voter");
    failed(&["--name", "other", "status"], 3, "another cluster");
    failed(&["--node", "10.0.0.1:7400", "status"], 3, "need TLS");
    failed(&["init", "1"], 2, "NUMBER=ADDRESS");
    failed(&["init", "1=a:1", "1=b:1"], 2, "1=a:1 and 1=b:1");
    failed(&["init", "1=a:1", "2=a:1"], 2, "1=a:1 and 2=a:1");
    for address in ["", "a", ":1", "a:", "a:0", "a:65536", "a b:1", "http://a:1", "::1:7400"] {
        failed(&["init", &format!("1={address}")], 2, "HOST:PORT");
        failed(&["add", "2", address], 2, "HOST:PORT");
        failed(&["recover", "--dir", "missing", "2", address], 2, "HOST:PORT");
    }
    for address in ["[::1]:7400", "node-1.example:7400"] {
        failed(&["recover", "--dir", "missing", "2", address], 3, "missing");
    }
    failed(&["status", "--key", "x"], 2, "--certificate");
}
