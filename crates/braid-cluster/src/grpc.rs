//! Transport by gRPC over HTTP/2, with TLS and certificates on both sides.
//!
//! All requests are one method, `/braid.cluster.Node/Call`, whose request and answer are bytes
//! (`google.protobuf.BytesValue`): the messages of `message.rs`.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, http};
use tonic::server::{NamedService, UnaryService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{
    Certificate, Channel, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig,
};
use tonic_prost::ProstCodec;

use crate::error::{Error, Result};
use crate::service::Service;
use crate::transport::{CallError, CallFuture, Transport};

const PATH: &str = "/braid.cluster.Node/Call";
/// Largest message: entries of the log up to their limit, or a snapshot chunk with one large row.
const MAX_MESSAGE_BYTES: usize = 40 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// A connection without an answer to a ping for this long is closed.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Protection of the connections between nodes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Security {
    /// TLS. Every node has a certificate that the cluster's authority signed.
    Tls(TlsFiles),
    /// None. Only for nodes on one machine: the address must be a loopback address.
    PlainLoopback,
}

/// Certificates in PEM format.
#[derive(Clone)]
pub struct TlsFiles {
    /// Certificate of the authority that signs the certificates of all nodes.
    pub authority: Vec<u8>,
    /// Certificate of this node.
    pub certificate: Vec<u8>,
    /// Private key of this node.
    pub key: Vec<u8>,
    /// Host name that is in the certificates of all nodes.
    pub name: String,
}

impl std::fmt::Debug for TlsFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key must not get into logs.
        write!(f, "TlsFiles({:?})", self.name)
    }
}

/// A node's end of the network.
#[derive(Debug)]
pub struct GrpcTransport {
    security: Security,
    listener: Mutex<Option<TcpListener>>,
    channels: Mutex<BTreeMap<String, Channel>>,
    stopped: watch::Sender<bool>,
}

impl GrpcTransport {
    /// Listens on an address.
    ///
    /// # Errors
    /// [`Error::Options`] if the address is in use, or not a loopback address without TLS.
    pub fn bind(address: SocketAddr, security: Security) -> Result<Self> {
        if matches!(security, Security::PlainLoopback) && !address.ip().is_loopback() {
            return Err(Error::Options(format!(
                "{address} is no loopback address, and nodes on other machines need TLS"
            )));
        }
        let listen = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok::<_, std::io::Error>(listener)
        };
        let refused = |error| Error::Options(format!("cannot listen on {address}: {error}"));
        let listener = Mutex::new(Some(listen().map_err(refused)?));
        let stopped = watch::Sender::new(false);
        Ok(Self { security, listener, channels: Mutex::default(), stopped })
    }

    /// Returns a transport that only calls other nodes, for programs that administer a cluster.
    pub fn client(security: Security) -> Self {
        let stopped = watch::Sender::new(false);
        let (listener, channels) = (Mutex::default(), Mutex::default());
        Self { security, listener, channels, stopped }
    }

    /// Returns the address on which the transport listens, until a node serves on it.
    pub fn address(&self) -> Option<SocketAddr> {
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        listener.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Returns the connection to an address, which is opened when it is used first.
    fn channel(&self, address: &str) -> Result<Channel, String> {
        if matches!(self.security, Security::PlainLoopback) && !is_loopback(address) {
            return Err("it is no loopback address, and nodes on other machines need TLS".into());
        }
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = channels.get(address) {
            return Ok(channel.clone());
        }
        let channel = self.connect(address).map_err(|error| innermost(&error))?;
        channels.insert(address.to_owned(), channel.clone());
        Ok(channel)
    }

    fn connect(&self, address: &str) -> Result<Channel, tonic::transport::Error> {
        let scheme = if matches!(self.security, Security::Tls(_)) { "https" } else { "http" };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))?
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true);
        if let Security::Tls(files) = &self.security {
            let tls = ClientTlsConfig::new()
                .ca_certificate(Certificate::from_pem(&files.authority))
                .identity(Identity::from_pem(&files.certificate, &files.key))
                .domain_name(&files.name);
            endpoint = endpoint.tls_config(tls)?;
        }
        Ok(endpoint.connect_lazy())
    }

    fn server(&self) -> Result<Server, tonic::transport::Error> {
        let server = Server::builder()
            .http2_keepalive_interval(Some(KEEP_ALIVE))
            .http2_keepalive_timeout(Some(KEEP_ALIVE));
        match &self.security {
            Security::PlainLoopback => Ok(server),
            Security::Tls(files) => server.tls_config(
                ServerTlsConfig::new()
                    .identity(Identity::from_pem(&files.certificate, &files.key))
                    .client_ca_root(Certificate::from_pem(&files.authority)),
            ),
        }
    }
}

impl Transport for GrpcTransport {
    fn call(&self, address: &str, message: Bytes, timeout: Duration) -> CallFuture {
        let channel = self.channel(address);
        let address = address.to_owned();
        Box::pin(async move {
            let failed = |reason: String| CallError { address: address.clone(), reason };
            let channel = channel.map_err(failed)?;
            let call = async {
                let mut client = tonic::client::Grpc::new(channel)
                    .max_decoding_message_size(MAX_MESSAGE_BYTES)
                    .max_encoding_message_size(MAX_MESSAGE_BYTES);
                client.ready().await.map_err(|error| failed(innermost(&error)))?;
                let (path, codec) = (http::uri::PathAndQuery::from_static(PATH), codec());
                let answer = client.unary(tonic::Request::new(message), path, codec).await;
                answer.map(tonic::Response::into_inner).map_err(|status| failed(innermost(&status)))
            };
            let late = |_| failed(format!("the deadline of {timeout:?} passed"));
            tokio::time::timeout(timeout, call).await.map_err(late)?
        })
    }

    fn serve(&self, service: Arc<Service>) -> Result<()> {
        let taken = self.listener.lock().unwrap_or_else(PoisonError::into_inner).take();
        let refused = |reason: String| Error::Options(format!("cannot serve: {reason}"));
        let listener = taken.ok_or_else(|| refused("the transport does not listen".to_owned()))?;
        let listener = tokio::net::TcpListener::from_std(listener);
        let listener = listener.map_err(|error| refused(error.to_string()))?;
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let server = self.server().map_err(|error| refused(innermost(&error)))?;
        let mut stopped = self.stopped.subscribe();
        tokio::spawn(async move {
            // The transport was dropped: that ends the service too.
            let stop = async { _ = stopped.wait_for(|stopped| *stopped).await };
            let serve = server.serve_with_incoming_shutdown(
                NodeService(service),
                incoming,
                std::future::pending(),
            );
            tokio::select! {
                () = stop => {}
                ended = serve => {
                    if let Err(error) = ended {
                        tracing::error!("the node answers no more requests: {}", innermost(&error));
                    }
                }
            }
        });
        Ok(())
    }

    fn stop(&self) {
        self.stopped.send_replace(true);
        self.channels.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Returns whether messages to an address stay on this machine.
fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    match address.parse::<SocketAddr>() {
        Ok(address) => address.ip().is_loopback(),
        Err(_) => host == "localhost",
    }
}

fn codec() -> ProstCodec<Bytes, Bytes> {
    ProstCodec::default()
}

/// The node as a service of tonic.
#[derive(Clone)]
struct NodeService(Arc<Service>);

impl NamedService for NodeService {
    const NAME: &'static str = "braid.cluster.Node";
}

impl tonic::codegen::Service<http::Request<Body>> for NodeService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            if request.uri().path() != PATH {
                return Ok(tonic::Status::unimplemented("the node has one method").into_http());
            }
            let mut server = tonic::server::Grpc::new(codec())
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES);
            Ok(server.unary(service, request).await)
        })
    }
}

impl UnaryService<Bytes> for NodeService {
    type Response = Bytes;
    type Future = BoxFuture<tonic::Response<Bytes>, tonic::Status>;

    fn call(&mut self, request: tonic::Request<Bytes>) -> Self::Future {
        let service = self.0.clone();
        // A request that arrived is executed, even if the connection ends.
        let answer = tokio::spawn(async move { service.handle(request.into_inner()).await });
        Box::pin(async move {
            let failed = |_| tonic::Status::internal("the node failed at the request");
            Ok(tonic::Response::new(answer.await.map_err(failed)?))
        })
    }
}

/// Returns the text of the first cause of an error.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    std::iter::successors(Some(error), |error| error.source()).last().unwrap_or(error).to_string()
}
