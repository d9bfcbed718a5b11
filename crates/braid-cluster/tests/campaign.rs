//! Three processes over gRPC, for a given time: processes are killed and paused and their ports
//! closed while clients of all nodes work; each round ends with a check of its history.
//!
//! `SECONDS=600 cargo test --release --test campaign -- --ignored campaign --nocapture`

mod common;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use braid_cluster::{Cluster, ClusterOptions, Consistency, Error, GrpcTransport, Security};
use braiddb::{Database, Options, Postcard, Table, Transaction};
use common::history::{self, End, Record};
use common::process::{Process, commands, say};

const CLIENTS: u64 = 4;
const LISTS: u64 = 8;
const ACCOUNTS: u64 = 4;
const MONEY: u64 = 400;

type Lists = Table<u64, Postcard<Vec<u64>>>;
/// A list as a client saw it: its length, its last value, and the sum of all.
type Seen = (u64, usize, u64, u64);

/// Nanoseconds of a clock that all processes share.
fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64
}

fn seen(key: u64, list: &[u64]) -> Seen {
    let sum = list.iter().fold(0_u64, |sum, value| sum.wrapping_add(*value));
    (key, list.len(), list.last().copied().unwrap_or(0), sum)
}

/// Runs one random transaction on lists of a round, and prints what it is about to append, and what
/// it saw.
async fn append(cluster: &Cluster, round: u64, unique: u64) {
    let lists: Lists = cluster.open_or_create_table("lists").await.unwrap();
    let keys: Vec<u64> = (0..LISTS).filter(|_| fastrand::u8(..4) == 0).collect();
    let keys: Vec<u64> = keys.into_iter().map(|key| round * LISTS + key).collect();
    let appends: Vec<u64> = keys.iter().copied().filter(|_| fastrand::u8(..3) > 0).collect();
    let printed = appends.iter().map(|key| format!(" {key}")).collect::<String>();
    say(&format!("begin {unique} {}{printed}", now()));
    let is_read = appends.is_empty() && fastrand::bool();
    let body = async move |tx: &Transaction| {
        let mut all = Vec::new();
        for key in &keys {
            let mut list = tx.get(&lists, key).await?.unwrap_or_default();
            all.push(seen(*key, &list));
            if appends.contains(key) {
                list.push(unique);
                tx.put(&lists, key, &list).await?;
            }
        }
        Ok(all)
    };
    let result = match is_read {
        true => cluster.read(Consistency::Linearizable, body).await,
        false => cluster.run(body).await.map(|outcome| outcome.value),
    };
    let (end, all) = match result {
        Ok(all) => ("committed", all),
        Err(Error::CommitUnknown { .. }) => ("unknown", Vec::new()),
        Err(_) => ("failed", Vec::new()),
    };
    let seen = |(key, length, last, sum): Seen| format!(" {key}:{length}:{last}:{sum}");
    let all: String = all.into_iter().map(seen).collect();
    say(&format!("end {unique} {} {end}{all}", now()));
}

/// Moves money, or checks its sum.
async fn bank(cluster: &Cluster) {
    let accounts: Table<u64, u64> = cluster.open_or_create_table("accounts").await.unwrap();
    let (from, to, sum) =
        (fastrand::u64(..ACCOUNTS), fastrand::u64(..ACCOUNTS), fastrand::u64(..9));
    let checks = fastrand::bool();
    let body = async move |tx: &Transaction| {
        let mut all = Vec::new();
        for account in 0..ACCOUNTS {
            all.push(tx.get(&accounts, &account).await?.unwrap_or(MONEY / ACCOUNTS));
        }
        if !checks && from != to && all[from as usize] >= sum {
            tx.put(&accounts, &from, &(all[from as usize] - sum)).await?;
            tx.put(&accounts, &to, &(all[to as usize] + sum)).await?;
        }
        Ok(all.iter().sum::<u64>())
    };
    let result = cluster.run(body).await;
    if let Ok(outcome) = result
        && outcome.value != MONEY
    {
        say(&format!("wrong sum {}", outcome.value));
    }
}

/// Works until the flag is cleared.
async fn work(cluster: Cluster, round: u64, first: u64, works: Arc<AtomicBool>) {
    for unique in first.. {
        if !works.load(Ordering::SeqCst) {
            return;
        }
        match fastrand::u8(..4) {
            0 => bank(&cluster).await,
            _ => append(&cluster, round, unique).await,
        }
    }
}

/// Prints the lists of a round, and the money.
async fn dump(cluster: &Cluster, round: u64) {
    let body = async move |tx: &Transaction| {
        let lists: Lists = tx.open_table("lists").await?;
        let mut all = String::new();
        for key in round * LISTS..(round + 1) * LISTS {
            let list = tx.get(&lists, &key).await?.unwrap_or_default();
            let list: Vec<String> = list.iter().map(u64::to_string).collect();
            all.push_str(&format!("{key}:{} ", list.join(",")));
        }
        let accounts: Table<u64, u64> = tx.open_table("accounts").await?;
        let mut scan = tx.scan(&accounts, ..)?;
        while let Some(account) = scan.next().await? {
            all.push_str(&format!("{account:?} "));
        }
        Ok(all)
    };
    let all = cluster.read(Consistency::Linearizable, body).await;
    say(&all.unwrap_or_else(|error| format!("error {error}")));
}

/// A node, if the parent test started this program; otherwise nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "is a part of the other test"]
async fn child() {
    let Ok(node) = std::env::var("BRAID_NODE") else { return };
    let node: u64 = node.parse().unwrap();
    let variable = |name| std::env::var(name).unwrap();
    let own: SocketAddr = variable("BRAID_ADDRESS").parse().unwrap();
    let options = Options::default().workers(1).socket(false);
    let db = Database::open(PathBuf::from(variable("BRAID_DIRECTORY")), options).unwrap();
    let options = ClusterOptions::new("campaign", node).timeout(Duration::from_secs(8));
    let transport = Arc::new(GrpcTransport::bind(own, Security::PlainLoopback).unwrap());
    let cluster = Cluster::start(db, options, transport).await.unwrap();
    say("ready");
    let (mut commands, mut clients) = (commands(), tokio::task::JoinSet::new());
    let works = Arc::new(AtomicBool::new(true));
    let mut first = fastrand::u64(..1 << 40) << 20;
    while let Some(command) = commands.recv().await {
        let words: Vec<&str> = command.split(' ').collect();
        match words[..] {
            ["init", ..] => {
                let members = words[1..].iter().map(|address| (*address).to_owned());
                cluster.init((1..).zip(members).collect()).await.unwrap();
                cluster.open_or_create_table::<u64, u64>("accounts").await.unwrap();
                let _: Lists = cluster.open_or_create_table("lists").await.unwrap();
                say("initialized");
            }
            ["work", round] => {
                works.store(true, Ordering::SeqCst);
                for _ in 0..CLIENTS {
                    let round = round.parse().unwrap();
                    clients.spawn(work(cluster.clone(), round, first, works.clone()));
                    first += 1 << 20;
                }
            }
            ["rest"] => {
                works.store(false, Ordering::SeqCst);
                while clients.join_next().await.is_some() {}
                say("rests");
            }
            ["dump", round] => dump(&cluster, round.parse().unwrap()).await,
            _ => panic!("{command}"),
        }
    }
}

/// A port in front of a node. Other nodes reach it only through the port, which can be closed.
struct Port {
    address: String,
    is_open: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Port {
    fn new(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (is_open, streams) = (Arc::new(AtomicBool::new(true)), Arc::default());
        let (opens, all): (_, Arc<Mutex<Vec<TcpStream>>>) = (is_open.clone(), Arc::clone(&streams));
        std::thread::spawn(move || {
            for accepted in listener.incoming().map_while(Result::ok) {
                if !opens.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(target) = TcpStream::connect(target) else { continue };
                let pair = [accepted, target];
                all.lock().unwrap().extend(pair.iter().map(|one| one.try_clone().unwrap()));
                for (from, to) in [(0, 1), (1, 0)] {
                    let [from, to] = [from, to].map(|at: usize| pair[at].try_clone().unwrap());
                    std::thread::spawn(move || pass(from, to));
                }
            }
        });
        Self { address, is_open, streams }
    }

    fn close(&self) {
        self.is_open.store(false, Ordering::SeqCst);
        for stream in self.streams.lock().unwrap().drain(..) {
            _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn open(&self) {
        self.is_open.store(true, Ordering::SeqCst);
    }
}

/// Passes bytes until one side ends.
fn pass(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    _ = from.shutdown(Shutdown::Both);
    _ = to.shutdown(Shutdown::Both);
}

/// A transaction of a client, before its reads are compared with the final lists.
#[derive(Clone, Debug)]
struct Noted {
    record: Record,
    seen: Vec<Seen>,
}

type Notes = Arc<Mutex<BTreeMap<u64, Noted>>>;

/// Notes a line of a client; `false` if it is none.
fn note(notes: &Notes, line: &str) -> bool {
    let words: Vec<&str> = line.split(' ').collect();
    assert_ne!(words[0], "wrong", "{line}");
    let number = |word: &str| -> u64 { word.parse().unwrap() };
    let mut notes = notes.lock().unwrap();
    match words[..] {
        ["begin", unique, begin, ..] => {
            let appends = words[3..].iter().map(|key| (number(key), number(unique))).collect();
            let (end, ended, reads) = (End::Unknown, u64::MAX, Vec::new());
            let record = Record { begin: number(begin), ended, end, reads, appends };
            notes.insert(number(unique), Noted { record, seen: Vec::new() });
        }
        ["end", unique, ended, end, ..] => {
            let noted = notes.get_mut(&number(unique)).unwrap();
            noted.record.ended = number(ended);
            noted.record.end = match end {
                "committed" => End::Committed,
                "unknown" => End::Unknown,
                _ => End::Failed,
            };
            let seen = |word: &&str| match word.split(':').map(number).collect::<Vec<_>>()[..] {
                [key, length, last, sum] => (key, length as usize, last, sum),
                _ => panic!("{line}"),
            };
            noted.seen = words[4..].iter().map(seen).collect();
        }
        _ => return false,
    }
    true
}

/// Checks the notes of a round against the final lists. Returns the numbers of records and of those
/// with unknown results.
fn check(notes: &Notes, finally: &BTreeMap<u64, Vec<u64>>) -> (usize, usize) {
    let mut history = Vec::new();
    for noted in std::mem::take(&mut *notes.lock().unwrap()).into_values() {
        let Noted { mut record, seen: all } = noted;
        for of in all {
            let list = finally.get(&of.0).map_or(&[][..], Vec::as_slice);
            let read = list.get(..of.1).unwrap_or_else(|| panic!("{record:?} read {of:?}"));
            assert_eq!(seen(of.0, read), of, "{record:?} read no prefix");
            record.reads.push((of.0, read.to_vec()));
        }
        history.push(record);
    }
    history::check(&history, finally).unwrap();
    let unknown = history.iter().filter(|record| record.end == End::Unknown).count();
    (history.len(), unknown)
}

struct Campaign {
    directories: Vec<tempfile::TempDir>,
    addresses: Vec<SocketAddr>,
    ports: Vec<Port>,
    notes: Notes,
}

impl Campaign {
    fn new() -> Self {
        let listeners: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses: Vec<_> = listeners.iter().map(|one| one.local_addr().unwrap()).collect();
        let directories = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
        let ports = addresses.iter().map(|address| Port::new(*address)).collect();
        Self { directories, addresses, ports, notes: Notes::default() }
    }

    fn start(&self, node: usize) -> Process {
        let environment = [
            ("BRAID_NODE", (node + 1).to_string()),
            ("BRAID_DIRECTORY", self.directories[node].path().display().to_string()),
            ("BRAID_ADDRESS", self.addresses[node].to_string()),
        ];
        let notes = self.notes.clone();
        Process::start(&environment, move |line| note(&notes, line))
    }

    /// Returns the lists of a round, which are equal on all nodes.
    fn finally(&self, processes: &mut [Process], round: u64) -> BTreeMap<u64, Vec<u64>> {
        let begun = Instant::now();
        loop {
            let mut dumps = Vec::new();
            for process in &mut *processes {
                process.command(&format!("dump {round}"));
                dumps.push(process.answer());
            }
            let is_equal = dumps.iter().all(|dump| *dump == dumps[0] && !dump.starts_with("error"));
            if is_equal {
                let lists = dumps[0].split(' ').filter_map(|list| list.split_once(':'));
                let values =
                    |list: &str| list.split(',').filter_map(|value| value.parse().ok()).collect();
                return lists.map(|(key, list)| (key.parse().unwrap(), values(list))).collect();
            }
            // Transactions with unknown results may commit between two dumps.
            assert!(begun.elapsed() < common::LIMIT, "the nodes do not become equal: {dumps:?}");
        }
    }
}

#[test]
#[ignore = "takes as long as it is told"]
fn campaign() {
    let number = |name: &str, default| {
        std::env::var(name).map_or(default, |value| value.parse::<u64>().unwrap())
    };
    let (seconds, seed) = (number("SECONDS", 60), number("SEED", 1));
    let (campaign, begun) = (Campaign::new(), Instant::now());
    let mut random = fastrand::Rng::with_seed(seed);
    let mut processes: Vec<Process> = (0..3).map(|node| campaign.start(node)).collect();
    let addresses: Vec<&str> = campaign.ports.iter().map(|port| &*port.address).collect();
    processes[0].command(&format!("init {}", addresses.join(" ")));
    assert_eq!(processes[0].answer(), "initialized");
    let (mut all, mut all_unknown) = (0, 0);
    let mut faults: BTreeMap<&str, u64> = BTreeMap::new();
    for round in 1.. {
        let work = format!("work {round}");
        processes.iter_mut().for_each(|process| process.command(&work));
        for _ in 0..4 {
            let pause = Duration::from_millis(random.u64(200..2500));
            let kind = ["kill one", "kill two", "kill all", "stop", "close"][random.usize(..5)];
            *faults.entry(kind).or_default() += 1;
            let victims: Vec<usize> = match kind {
                "kill all" => vec![0, 1, 2],
                "kill two" => vec![0, 2],
                _ => vec![random.usize(..3)],
            };
            match kind {
                "stop" => {
                    processes[victims[0]].signal("-STOP");
                    std::thread::sleep(pause);
                    processes[victims[0]].signal("-CONT");
                }
                "close" => {
                    campaign.ports[victims[0]].close();
                    std::thread::sleep(pause);
                    campaign.ports[victims[0]].open();
                }
                _ => {
                    for victim in victims.iter().rev() {
                        processes.remove(*victim).kill();
                    }
                    std::thread::sleep(pause);
                    for victim in victims {
                        processes.insert(victim, campaign.start(victim));
                        processes[victim].command(&work);
                    }
                }
            }
            std::thread::sleep(Duration::from_millis(random.u64(100..1500)));
        }
        for process in &mut processes {
            process.command("rest");
        }
        for process in &processes {
            assert_eq!(process.answer(), "rests");
        }
        let finally = campaign.finally(&mut processes, round);
        let (records, unknown) = check(&campaign.notes, &finally);
        all += records;
        all_unknown += unknown;
        println!("{:?}: round {round}, {records} records, {unknown} unknown", begun.elapsed());
        if begun.elapsed().as_secs() >= seconds {
            println!("{all} records, {all_unknown} unknown, {faults:?}, {:?}", begun.elapsed());
            break;
        }
    }
    processes.into_iter().for_each(Process::kill);
}
