//! Interruption by a signal: the demonstration ends early and removes its database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, ensure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// Remembers that a signal arrived.
#[derive(Clone, Debug, Default)]
pub struct Interruption(Arc<AtomicBool>);

impl Interruption {
    /// Handles Ctrl-C, requests to terminate, and the loss of the terminal. A second signal ends
    /// the process immediately.
    pub fn watch() -> Result<Self> {
        let interruption = Self::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // Runs before the action that sets the flag.
            flag::register_conditional_default(signal, interruption.0.clone())?;
            flag::register(signal, interruption.0.clone())?;
        }
        Ok(interruption)
    }

    pub fn has_arrived(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// # Errors
    /// Fails if a signal arrived.
    pub fn check(&self) -> Result<()> {
        ensure!(!self.has_arrived(), "interrupted; the temporary database is removed");
        Ok(())
    }
}
