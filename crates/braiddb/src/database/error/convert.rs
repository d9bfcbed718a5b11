//! Conversions from the errors of lower layers.

use std::sync::Arc;

use super::{BusyWith, ChangesError, Error, IndexError, MemoryLimit, Misuse};
use crate::database::changes::TokenError;
use crate::log::LogError;
use crate::page::PageError;
use crate::record::TableFull;
use crate::transaction::{NamedKeys, OperationError, RestrictedWrite, TooLong};
use crate::types::EncodeError;

impl Error {
    pub(in crate::database) fn conflict(attempts: u32, record: Option<Box<NamedKeys>>) -> Self {
        Error::Conflict { attempts, record: record.map(|record| Box::new((*record).into())) }
    }
}

impl From<OperationError> for Error {
    fn from(error: OperationError) -> Self {
        match error {
            OperationError::Conflict(record) => Error::conflict(1, record),
            OperationError::YieldedToPriority => Error::conflict(1, None),
            OperationError::NotSerializable(changed) => {
                Error::NotSerializable { attempts: 1, read: Box::new((*changed).into()) }
            }
            OperationError::BulkUnderWay(table, _) => {
                BusyWith::BulkOperation { table: table.to_string() }.into()
            }
            OperationError::BulkGivenUp => Misuse::IncompleteBulkWrite.into(),
            OperationError::RollbackGivenUp => Misuse::IncompleteRollback.into(),
            OperationError::ApplyGivenUp => Misuse::IncompleteApply.into(),
            OperationError::BulkSavepoint => Misuse::BulkSavepoint.into(),
            OperationError::VersionBytes(long) => {
                let TooLong { bytes, limit } = *long;
                MemoryLimit::Versions { bytes: bytes as u64, limit: limit as u64 }.into()
            }
            OperationError::ReadOnly => Misuse::ReadOnlyTransaction.into(),
            OperationError::ReadOnlyDatabase => Misuse::ReadOnlyDatabase.into(),
            OperationError::RestrictedWrite(refused) => {
                let RestrictedWrite { table, writer } = *refused;
                Misuse::RestrictedWrite { table: table.into(), writer: writer.into() }.into()
            }
            OperationError::SavepointOver => Misuse::SavepointEnded.into(),
            OperationError::ScanBegun => Misuse::ScanBegun.into(),
            OperationError::WouldBlock => Misuse::WouldBlock.into(),
            OperationError::KeyExists(record) => Error::KeyExists(record),
            OperationError::KeyNotFound(record) => Error::KeyNotFound(record),
            OperationError::KeyTooLong(bytes) => {
                Misuse::KeyTooLong { bytes, limit: crate::index::MAX_KEY_BYTES }.into()
            }
            OperationError::ValueTooLong(bytes) => {
                Misuse::ValueTooLong { bytes, limit: crate::version::MAX_VALUE_BYTES }.into()
            }
            OperationError::TooLongForPage(long) => {
                let TooLong { bytes, limit } = *long;
                Misuse::KeyTooLong { bytes, limit }.into()
            }
            OperationError::Pages(error) => Error::from(*error),
            OperationError::TableFull(full) => Error::from(*full),
            OperationError::UniqueViolation(violation) => Error::UniqueViolation(violation),
            OperationError::Index(error) => Error::Index(error),
            OperationError::Panicked(message) => Error::Panicked(message.into()),
            OperationError::Decode(error) => Error::Decode(*error),
            OperationError::Unlogged => Misuse::NoLog.into(),
            OperationError::CheckpointUnderWay => BusyWith::Checkpoint.into(),
            OperationError::Overloaded => Error::Overloaded,
            OperationError::CommitUnknown { lsn, cause } => {
                Error::CommitUnknown { lsn: lsn.0, cause }
            }
            OperationError::Refused(error)
            | OperationError::NoRoomToDelete(error)
            | OperationError::Storage(error) => Error::from_running(error),
            OperationError::Log(error) => Error::from(error),
        }
    }
}

impl Error {
    /// Converts a failure after which the database continues.
    pub(in crate::database) fn from_running(error: Arc<LogError>) -> Self {
        if error.is_full() { Error::DiskFull(error) } else { Error::from(error) }
    }
}

impl From<PageError> for Error {
    fn from(error: PageError) -> Self {
        match error {
            PageError::OutOfFrames { frames, page_bytes } => {
                MemoryLimit::PageFrames { frames, page_bytes }.into()
            }
            PageError::Contended { frames, page_bytes } => {
                MemoryLimit::PageFramesContended { frames, page_bytes }.into()
            }
            PageError::NoMemory { frames, page_bytes, reason } => {
                let bytes = u64::from(frames) * page_bytes as u64;
                MemoryLimit::Allocation { purpose: "page frames", bytes, reason }.into()
            }
            PageError::OutOfPageIds => Misuse::OutOfPageIds.into(),
            PageError::Storage(error) => Error::from_running(error),
        }
    }
}

impl From<TableFull> for Error {
    fn from(error: TableFull) -> Self {
        match error {
            TableFull::Capacity { records } => Misuse::TableFull { records }.into(),
            TableFull::Memory(no_memory) => {
                let (bytes, reason) = (no_memory.bytes as u64, no_memory.reason);
                MemoryLimit::Allocation { purpose: "record ids", bytes, reason }.into()
            }
        }
    }
}

impl From<MemoryLimit> for Error {
    fn from(limit: MemoryLimit) -> Self {
        Error::MemoryFull(Box::new(limit))
    }
}

impl From<IndexError> for Error {
    fn from(error: IndexError) -> Self {
        Error::Index(Box::new(error))
    }
}

impl From<EncodeError> for Error {
    fn from(error: EncodeError) -> Self {
        Error::Misuse(Misuse::Encode(error))
    }
}

impl From<TokenError> for Error {
    fn from(error: TokenError) -> Self {
        Error::Changes(ChangesError::Token(error))
    }
}

impl From<LogError> for Error {
    fn from(error: LogError) -> Self {
        Error::from(Arc::new(error))
    }
}

impl From<Arc<LogError>> for Error {
    fn from(error: Arc<LogError>) -> Self {
        match &*error {
            LogError::Outdated { .. } => Error::Outdated(error),
            LogError::Corrupt { .. }
            | LogError::DamagedPage { .. }
            | LogError::ValueNotWhole { .. } => Error::Corrupt(error),
            LogError::NotADatabase { .. }
            | LogError::BackupTarget { .. }
            | LogError::WrongVersion { .. }
            | LogError::Locked { .. } => Error::Directory(error),
            LogError::Size { .. } => Error::Options(error.to_string()),
            LogError::Io { .. }
            | LogError::IncompleteBackup { .. }
            | LogError::CannotGrow { .. }
            | LogError::NoRoomForCheckpoint { .. } => Error::Io(error),
        }
    }
}
