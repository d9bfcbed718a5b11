//! A network inside one process, for tests: it loses, delays and cuts off messages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use crate::service::Service;
use crate::transport::{CallError, CallFuture, Transport};

/// Nodes of one process that call each other. Clones are the same network.
#[derive(Clone, Debug, Default)]
pub struct MemoryNetwork(Arc<Mutex<Links>>);

#[derive(Debug)]
struct Links {
    services: BTreeMap<String, Arc<Service>>,
    /// Pairs of addresses, in both orders, between which nothing passes.
    cut: BTreeSet<(String, String)>,
    /// Probability that a message is lost. Requests and answers are lost alike.
    loss: f64,
    /// A message takes up to this long.
    max_delay: Duration,
    random: fastrand::Rng,
    messages: u64,
    bytes: u64,
}

impl Default for Links {
    fn default() -> Self {
        Self {
            services: BTreeMap::new(),
            cut: BTreeSet::new(),
            loss: 0.0,
            max_delay: Duration::ZERO,
            random: fastrand::Rng::with_seed(0),
            messages: 0,
            bytes: 0,
        }
    }
}

impl MemoryNetwork {
    /// Returns a network without faults. The seed determines later ones.
    ///
    /// ```
    /// let network = braid_cluster::MemoryNetwork::with_seed(7);
    /// let transport = network.transport("first");
    /// # _ = transport;
    /// ```
    #[must_use]
    pub fn with_seed(seed: u64) -> Self {
        let network = Self::default();
        network.links().random = fastrand::Rng::with_seed(seed);
        network
    }

    /// Returns the transport of a node at an address, which is any text.
    #[must_use]
    pub fn transport(&self, address: impl Into<String>) -> Arc<dyn Transport> {
        Arc::new(MemoryTransport { network: self.clone(), address: address.into() })
    }

    /// Loses messages with a probability, and delays the others.
    pub fn set_faults(&self, loss: f64, max_delay: Duration) {
        let mut links = self.links();
        (links.loss, links.max_delay) = (loss, max_delay);
    }

    /// Cuts the network between each node of one group and each of the other.
    pub fn cut(&self, some: &[&str], others: &[&str]) {
        let mut links = self.links();
        for one in some {
            for other in others {
                links.cut.insert(((*one).to_owned(), (*other).to_owned()));
                links.cut.insert(((*other).to_owned(), (*one).to_owned()));
            }
        }
    }

    /// Reconnects all nodes.
    pub fn heal(&self) {
        self.links().cut.clear();
    }

    /// Returns the number of messages and bytes that nodes have sent.
    #[must_use]
    pub fn sent(&self) -> (u64, u64) {
        let links = self.links();
        (links.messages, links.bytes)
    }

    fn links(&self) -> MutexGuard<'_, Links> {
        // No code that holds the lock can leave the links half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries a message; `None` if it is lost.
    async fn carry(&self, from: &str, to: &str, bytes: usize) -> Option<()> {
        let delay = {
            let mut links = self.links();
            links.messages += 1;
            links.bytes += bytes as u64;
            let is_lost = links.random.f64() < links.loss;
            if is_lost || links.cut.contains(&(from.to_owned(), to.to_owned())) {
                return None;
            }
            links.max_delay.mul_f64(links.random.f64())
        };
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        Some(())
    }
}

#[derive(Debug)]
struct MemoryTransport {
    network: MemoryNetwork,
    address: String,
}

impl Transport for MemoryTransport {
    fn call(&self, address: &str, message: Bytes, timeout: Duration) -> CallFuture {
        let (network, from, to) = (self.network.clone(), self.address.clone(), address.to_owned());
        Box::pin(async move {
            let failed =
                |reason: &str| CallError { address: to.clone(), reason: reason.to_owned() };
            let call = async {
                network.carry(&from, &to, message.len()).await?;
                let service = network.links().services.get(&to).cloned()?;
                // A request that arrived is executed, even if the caller gives up.
                let answer = tokio::spawn(async move { service.handle(message).await });
                let answer = answer.await.ok()?;
                network.carry(&to, &from, answer.len()).await?;
                Some(answer)
            };
            match tokio::time::timeout(timeout, call).await {
                Ok(Some(answer)) => Ok(answer),
                Ok(None) => Err(failed("a message was lost")),
                Err(_) => Err(failed("the deadline passed")),
            }
        })
    }

    fn serve(&self, service: Arc<Service>) -> crate::Result<()> {
        self.network.links().services.insert(self.address.clone(), service);
        Ok(())
    }

    fn stop(&self) {
        // Dropped after the lock is released: a service may be the last user of its node.
        let stopped = self.network.links().services.remove(&self.address);
        drop(stopped);
    }
}
