//! A network inside one process, for tests: it loses, delays, duplicates and cuts off messages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::service::Service;
use crate::transport::{CallError, CallFuture, Transport};

/// Nodes of one process that call each other. Clones are the same network.
#[derive(Clone, Debug, Default)]
pub struct MemoryNetwork(Arc<Mutex<Links>>);

#[derive(Debug)]
struct Links {
    services: BTreeMap<String, Arc<Service>>,
    /// Pairs of addresses: nothing passes from the first to the second.
    cut: BTreeSet<(String, String)>,
    /// Addresses of nodes that have failed: they neither send nor receive anything.
    failed: BTreeSet<String>,
    /// Replies until a node fails, and the receiver of its address.
    failing: Option<(u64, oneshot::Sender<String>)>,
    /// Probability that a message is lost. Requests and answers are lost alike.
    loss: f64,
    /// Probability that a request is executed twice.
    duplication: f64,
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
            failed: BTreeSet::new(),
            failing: None,
            loss: 0.0,
            duplication: 0.0,
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
        let (network, address) = (self.clone(), address.into());
        Arc::new(MemoryTransport { network, address, is_stopped: Arc::default() })
    }

    /// Loses messages with a probability, and delays the others.
    pub fn set_faults(&self, loss: f64, max_delay: Duration) {
        let mut links = self.links();
        (links.loss, links.max_delay) = (loss, max_delay);
    }

    /// Executes requests twice with a probability, the second time up to the delay of a message
    /// later.
    pub fn set_duplication(&self, duplication: f64) {
        self.links().duplication = duplication;
    }

    /// Cuts the network between each node of one group and each of the other.
    pub fn cut(&self, some: &[&str], others: &[&str]) {
        self.cut_one_way(some, others);
        self.cut_one_way(others, some);
    }

    /// Loses all messages from nodes of one group to nodes of the other.
    pub fn cut_one_way(&self, from: &[&str], to: &[&str]) {
        let mut links = self.links();
        for one in from {
            for other in to {
                links.cut.insert(((*one).to_owned(), (*other).to_owned()));
            }
        }
    }

    /// Lets a node fail before it sends a reply, after this many other replies of all nodes. From
    /// then on it neither sends nor receives anything, until a node is started at its address.
    /// Returns the address when it fails; `None` if this is called again before.
    pub fn fail_before_reply(&self, replies: u64) -> impl Future<Output = Option<String>> + use<> {
        let (sender, failed) = oneshot::channel();
        self.links().failing = Some((replies, sender));
        async move { failed.await.ok() }
    }

    /// Counts a reply. Returns whether its node fails before it sends it.
    fn fails_before_reply(&self, address: &str) -> bool {
        let mut links = self.links();
        match links.failing.take() {
            None => false,
            Some((0, failed)) => {
                links.failed.insert(address.to_owned());
                // The test may have ended.
                _ = failed.send(address.to_owned());
                true
            }
            Some((replies, failed)) => {
                links.failing = Some((replies - 1, failed));
                false
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
        {
            let mut links = self.links();
            links.messages += 1;
            links.bytes += bytes as u64;
            let is_lost = links.random.f64() < links.loss
                || links.failed.contains(from)
                || links.failed.contains(to);
            if is_lost || links.cut.contains(&(from.to_owned(), to.to_owned())) {
                return None;
            }
        }
        self.delay().await;
        Some(())
    }

    /// Waits as long as a message takes.
    async fn delay(&self) {
        let delay = {
            let mut links = self.links();
            links.max_delay.mul_f64(links.random.f64())
        };
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }

    /// Returns the running node at an address.
    fn service(&self, address: &str) -> Option<Arc<Service>> {
        self.links().services.get(address).cloned()
    }

    fn is_duplicated(&self) -> bool {
        let mut links = self.links();
        links.duplication > 0.0 && links.random.f64() < links.duplication
    }
}

#[derive(Debug)]
struct MemoryTransport {
    network: MemoryNetwork,
    address: String,
    /// The node has stopped: it neither sends requests nor answers.
    is_stopped: Arc<AtomicBool>,
}

impl Transport for MemoryTransport {
    fn call(&self, address: &str, message: Bytes, timeout: Duration) -> CallFuture {
        let (network, from, to) = (self.network.clone(), self.address.clone(), address.to_owned());
        let is_stopped = self.is_stopped.clone();
        Box::pin(async move {
            let failed =
                |reason: &str| CallError { address: to.clone(), reason: reason.to_owned() };
            let call = async {
                // SeqCst, like the partner in `stop`: no access depends on the order.
                if is_stopped.load(Ordering::SeqCst) {
                    return None;
                }
                network.carry(&from, &to, message.len()).await?;
                let service = network.service(&to)?;
                if network.is_duplicated() {
                    let (network, service, message) =
                        (network.clone(), service.clone(), message.clone());
                    tokio::spawn(async move {
                        network.delay().await;
                        service.handle(message).await
                    });
                }
                // A request that arrived is executed, even if the caller gives up.
                let executing = service.clone();
                let answer = tokio::spawn(async move { executing.handle(message).await });
                let answer = answer.await.ok()?;
                // A node that has stopped since then does not answer.
                network.service(&to).filter(|running| Arc::ptr_eq(running, &service))?;
                if network.fails_before_reply(&to) {
                    return None;
                }
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
        let mut links = self.network.links();
        links.failed.remove(&self.address);
        links.services.insert(self.address.clone(), service);
        Ok(())
    }

    fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        // Dropped after the lock is released: a service may be the last user of its node.
        let stopped = self.network.links().services.remove(&self.address);
        drop(stopped);
    }
}
