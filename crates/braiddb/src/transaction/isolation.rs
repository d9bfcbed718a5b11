//! What a transaction is protected from.

use super::engine::Engine;

/// What transactions that run side by side may notice of one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Isolation {
    /// Nothing: all is as if they had run one after the other, in an order in which each stands between
    /// the moments it was called and answered (strict serializability). A transaction that wrote is
    /// certified when it commits: if what it read has changed since it began, it is aborted, and may be
    /// tried again. One that wrote nothing never is.
    #[default]
    Serializable,
    /// Each reads the database as it was when it began, and of two that write the same record one is
    /// aborted (snapshot isolation). But two may each write what the other has read (write skew), so that
    /// what holds over several records is not protected.
    Snapshot,
}

/// Certifier of serializable transactions, fixed while a database is open.
#[cfg(feature = "experiment")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Certifier {
    /// What a transaction that wrote had read must still be so at its commit. Transactions are serial in the
    /// order of their commit LSNs, and reading leaves no trace.
    #[default]
    ReadValidation,
    /// SSN, for comparison: what was read may have changed, as long as the transaction comes in the serial order
    /// before those who changed it. Fewer transactions fail; but each read leaves a stamp, those that only read
    /// draw an LSN too and may fail, none is extended, and the serial order is not that of LSNs, nor
    /// told. It takes 8 bytes more for each record. It does not reckon with what transactions
    /// under [`Isolation::Snapshot`] read.
    SerialSafetyNet,
}

/// How a transaction takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mode {
    /// What it reads is noted, and certified if it writes.
    Serializable,
    /// What it reads is noted, and certified by the serial safety net.
    #[cfg(feature = "experiment")]
    SafetyNet,
    /// As `SafetyNet`, and it refuses to write.
    #[cfg(feature = "experiment")]
    SafetyNetReadOnly,
    /// What it reads is not noted.
    Snapshot,
    /// It refuses to write, so that what it reads need not be noted.
    ReadOnly,
}

impl Mode {
    /// Whether what the transaction reads is noted.
    #[inline(always)]
    pub(super) fn notes(self) -> bool {
        (self as u8) < Mode::Snapshot as u8
    }

    pub(super) fn is_read_only(self) -> bool {
        match self {
            #[cfg(feature = "experiment")]
            Mode::SafetyNetReadOnly => true,
            mode => mode == Mode::ReadOnly,
        }
    }

    /// Whether the serial safety net certifies it.
    #[inline(always)]
    pub(super) fn is_safety_net(self) -> bool {
        #[cfg(feature = "experiment")]
        return matches!(self, Mode::SafetyNet | Mode::SafetyNetReadOnly);
        #[cfg(not(feature = "experiment"))]
        false
    }

    /// The same in a database that certifies by the serial safety net.
    #[cfg(feature = "experiment")]
    #[cold]
    pub(super) fn under_safety_net(self) -> Self {
        match self {
            Mode::Serializable => Mode::SafetyNet,
            Mode::ReadOnly => Mode::SafetyNetReadOnly,
            other => other,
        }
    }
}

impl Engine {
    /// Whether the serial safety net certifies transactions.
    pub(crate) fn certifies_by_safety_net(&self) -> bool {
        #[cfg(feature = "experiment")]
        return self.safety_net.is_some();
        #[cfg(not(feature = "experiment"))]
        false
    }
}

impl From<Isolation> for Mode {
    fn from(isolation: Isolation) -> Self {
        match isolation {
            Isolation::Serializable => Mode::Serializable,
            Isolation::Snapshot => Mode::Snapshot,
        }
    }
}
