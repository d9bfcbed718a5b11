//! Nodes on loopback addresses, with certificates and without.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use braid_cluster::{
    Cluster, ClusterOptions, Consistency, Error, GrpcTransport, Security, TlsFiles, Transport,
};
use braiddb::{Database, Options, Table, Transaction};
use bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;

const LOOPBACK: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

struct Node {
    cluster: Cluster,
    address: String,
    _directory: TempDir,
}

async fn node(name: &str, id: u64, security: Security) -> Node {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::default().workers(1).socket(false);
    let db = Database::open(directory.path(), options).unwrap();
    let transport = Arc::new(GrpcTransport::bind(LOOPBACK, security).unwrap());
    let address = transport.address().unwrap().to_string();
    let options = ClusterOptions::new(name, id).timeout(Duration::from_secs(60));
    let cluster = Cluster::start(db, options, transport).await.unwrap();
    Node { cluster, address, _directory: directory }
}

async fn three(security: impl Fn() -> Security) -> Vec<Node> {
    let mut nodes = Vec::new();
    for id in 1..=3 {
        nodes.push(node("grpc", id, security()).await);
    }
    let members: BTreeMap<u64, String> =
        (1..).zip(nodes.iter().map(|node| node.address.clone())).collect();
    nodes[0].cluster.init(members).await.unwrap();
    nodes
}

/// Writes on one node, and reads on all.
async fn write_and_read(nodes: &[Node]) {
    let table: Table<u64, [u8]> = nodes[1].cluster.open_or_create_table("blobs").await.unwrap();
    let blob = vec![7; 2 << 20];
    let expected = blob.clone();
    let write = async move |tx: &Transaction| tx.put(&table, &1, &blob).await;
    nodes[1].cluster.run(write).await.unwrap();
    for node in nodes {
        let read = async |tx: &Transaction| {
            let table: Table<u64, [u8]> = tx.open_table("blobs").await?;
            Ok(tx.get(&table, &1).await?.map(<[u8]>::to_vec))
        };
        let read = node.cluster.read(Consistency::Linearizable, read).await.unwrap();
        assert!(read.as_ref() == Some(&expected));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_certificates_on_loopback() {
    let nodes = three(|| Security::PlainLoopback).await;
    write_and_read(&nodes).await;
    let refused = GrpcTransport::bind("0.0.0.0:0".parse().unwrap(), Security::PlainLoopback);
    assert!(matches!(refused, Err(Error::Options(_))), "{refused:?}");
}

/// An authority, which signs certificates for nodes.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn node(&self) -> TlsFiles {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["braid.test".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        TlsFiles {
            authority: self.0.pem().into_bytes(),
            certificate: certificate.pem().into_bytes(),
            key: key.serialize_pem().into_bytes(),
            name: "braid.test".to_owned(),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_required() {
    let (authority, other) = (Authority::new(), Authority::new());
    let nodes = three(|| Security::Tls(authority.node())).await;
    write_and_read(&nodes).await;
    let call = async |security: Security| {
        let client = GrpcTransport::client(security);
        let message = Bytes::from_static(b"hello");
        client.call(&nodes[0].address, message, Duration::from_secs(10)).await
    };
    // A message that is none is answered, so the connection was accepted.
    call(Security::Tls(authority.node())).await.unwrap();
    call(Security::PlainLoopback).await.unwrap_err();
    // The stranger trusts the cluster's authority, and has a certificate of another.
    let mut stranger = other.node();
    stranger.authority = authority.node().authority;
    call(Security::Tls(stranger)).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cause_of_a_refused_certificate_is_named() {
    let broken = TlsFiles { key: b"no key".to_vec(), ..Authority::new().node() };
    let client = GrpcTransport::client(Security::Tls(broken.clone()));
    let called = client.call("127.0.0.1:1", Bytes::new(), Duration::from_secs(10)).await;
    let directory = tempfile::tempdir().unwrap();
    let options = Options::default().workers(1).socket(false);
    let db = Database::open(directory.path(), options).unwrap();
    let transport = Arc::new(GrpcTransport::bind(LOOPBACK, Security::Tls(broken)).unwrap());
    let started = Cluster::start(db, ClusterOptions::new("grpc", 1), transport).await;
    for said in [called.unwrap_err().to_string(), started.unwrap_err().to_string()] {
        assert!(!said.contains("transport error"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_other_clusters_are_refused() {
    let nodes = three(|| Security::PlainLoopback).await;
    write_and_read(&nodes).await;
    let stranger = node("other", 4, Security::PlainLoopback).await;
    let adding = nodes[0].cluster.with_timeout(Duration::from_secs(2));
    let added = adding.add_node(4, stranger.address.clone()).await;
    assert!(added.is_err());
    assert_eq!(stranger.cluster.status().applied_index, 0);
    assert_eq!(nodes[0].cluster.status().voters.len(), 3);
}
