//! A transport that counts what it carries.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use braid_cluster::{CallFuture, GrpcTransport, Service, Transport};
use bytes::Bytes;

use crate::usage::Usage;

/// Counts the messages of a node to others, and their answers.
pub struct Counting {
    transport: GrpcTransport,
    messages: AtomicU64,
    bytes: Arc<AtomicU64>,
}

impl Counting {
    pub fn new(transport: GrpcTransport) -> Self {
        Self { transport, messages: AtomicU64::new(0), bytes: Arc::default() }
    }

    /// Adds the figures of the network to the usage of the process.
    pub fn usage(&self) -> Usage {
        // Relaxed: nothing depends on the counters.
        Usage {
            network_bytes: self.bytes.load(Ordering::Relaxed),
            messages: self.messages.load(Ordering::Relaxed),
            ..Usage::of_process()
        }
    }
}

impl Transport for Counting {
    fn call(&self, address: &str, message: Bytes, timeout: Duration) -> CallFuture {
        // Relaxed: nothing depends on the counters.
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(message.len() as u64, Ordering::Relaxed);
        let (call, bytes) = (self.transport.call(address, message, timeout), self.bytes.clone());
        Box::pin(async move {
            let answer = call.await?;
            bytes.fetch_add(answer.len() as u64, Ordering::Relaxed);
            Ok(answer)
        })
    }

    fn serve(&self, service: Arc<Service>) -> braid_cluster::Result<()> {
        self.transport.serve(service)
    }

    fn stop(&self) {
        self.transport.stop();
    }
}
