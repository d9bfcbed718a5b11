//! Isolation levels and certifiers.

/// Isolation level: the effects of concurrent transactions that a transaction may observe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Isolation {
    /// Strict serializability. All transactions appear to run one after the other, each at a point
    /// between its call and its result. A transaction that wrote is certified at commit: if what it
    /// read has changed since it began, it is aborted and may be retried. A read-only transaction
    /// is never aborted for this reason.
    #[default]
    Serializable,
    /// Snapshot isolation. Each transaction reads the database as of its begin. Of two that write
    /// the same record, one is aborted. Two transactions may each write what the other has read
    /// (write skew), so invariants that span several records are not protected.
    Snapshot,
}

/// Certifier of serializable transactions; fixed while a database is open.
#[cfg(feature = "experiment")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Certifier {
    /// Everything that a writing transaction read must be unchanged at its commit. The serial order
    /// is the order of commit LSNs, and reads leave no trace.
    #[default]
    ReadValidation,
    /// Serial safety net (SSN), for comparison. A transaction may commit although its reads have
    /// changed, if it precedes the writers in the serial order. Fewer transactions fail, but each
    /// read writes a stamp. Read-only transactions also draw an LSN and may fail. No snapshot is
    /// extended. The serial order differs from LSN order and is not reported. Each record takes 8
    /// more bytes. Reads under [`Isolation::Snapshot`] are not considered.
    SerialSafetyNet,
}

/// Internal mode of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum TransactionMode {
    /// Reads are noted, and certified if it writes.
    Serializable,
    /// Reads are noted, and certified by the serial safety net.
    #[cfg(feature = "experiment")]
    SafetyNet,
    /// As `SafetyNet`, and writes are refused.
    #[cfg(feature = "experiment")]
    SafetyNetReadOnly,
    /// Reads are not noted.
    Snapshot,
    /// Writes are refused, so reads need not be noted.
    ReadOnly,
    /// As `ReadOnly`, because the database accepts writes from another caller only.
    Restricted,
}

impl TransactionMode {
    /// Returns whether reads are noted.
    #[inline(always)]
    pub(in crate::transaction) fn notes(self) -> bool {
        (self as u8) < TransactionMode::Snapshot as u8
    }

    pub(in crate::transaction) fn is_read_only(self) -> bool {
        match self {
            #[cfg(feature = "experiment")]
            TransactionMode::SafetyNetReadOnly => true,
            mode => matches!(mode, TransactionMode::ReadOnly | TransactionMode::Restricted),
        }
    }

    /// Returns whether the serial safety net certifies it.
    #[inline(always)]
    pub(in crate::transaction) fn is_safety_net(self) -> bool {
        #[cfg(feature = "experiment")]
        return matches!(self, TransactionMode::SafetyNet | TransactionMode::SafetyNetReadOnly);
        #[cfg(not(feature = "experiment"))]
        false
    }

    /// The corresponding mode in a database that uses the serial safety net.
    #[cfg(feature = "experiment")]
    #[cold]
    pub(super) fn under_safety_net(self) -> Self {
        match self {
            TransactionMode::Serializable => TransactionMode::SafetyNet,
            TransactionMode::ReadOnly | TransactionMode::Restricted => {
                TransactionMode::SafetyNetReadOnly
            }
            other => other,
        }
    }
}

impl From<Isolation> for TransactionMode {
    fn from(isolation: Isolation) -> Self {
        match isolation {
            Isolation::Serializable => TransactionMode::Serializable,
            Isolation::Snapshot => TransactionMode::Snapshot,
        }
    }
}
