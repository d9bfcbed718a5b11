//! Change token: the resume point of a feed, stored by its user.
//!
//! | offset | bytes | field |
//! |---:|---:|---|
//! | 0 | 1 | layout version: 2 |
//! | 1 | 16 | database id |
//! | 17 | 8 | LSN from which the log is read, little-endian |
//! | 25 | 8 | LSN up to which all commits were returned, little-endian |
//! | 33 | 4 | checksum of the block at that LSN, little-endian; 0 if unknown |
//! | 37 | 4 | CRC-32C of the preceding bytes, little-endian |

use std::fmt;
use std::str::FromStr;

use crate::database::Result;
use crate::log::{LogFiles, Lsn};
use crate::transaction::{OperationError, WorkerTransactions};

const VERSION: u8 = 2;
const SUMMED_BYTES: usize = 37;

/// The resume point of a change feed. Store it as bytes or as text together with the processed
/// changes, best in one transaction.
///
/// It contains two LSNs: the last returned commit, and the position from which the log must be
/// read. The latter may be earlier, because the parts of a large transaction precede its commit. A
/// checksum of the log block at the last commit detects a different log with the same LSNs.
///
/// ```
/// use braiddb::changes::{ChangeToken, ChangesFrom, TokenError};
/// use braiddb::{Database, Options, Table, block_on};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     block_on(async {
///         let directory = tempfile::tempdir()?;
///         let db = Database::open(directory.path(), Options::default())?;
///         let cities: Table<str, u64> = db.create_table("cities").await?;
///         let mut changes = db.changes(ChangesFrom::Now);
///         db.put(&cities, "Maribor", &96_211).await?;
///         let transaction = changes.next().await?.expect("a feed ends with an error");
///         let token = transaction.token.expect("every commit has one");
///         assert_eq!(token.commit_lsn(), transaction.commit_lsn);
///         println!("to go on, the log is needed from {} on", token.resume_lsn());
///
///         assert_eq!(ChangeToken::from_bytes(&token.to_bytes())?, token);
///         assert_eq!(token.to_string().parse::<ChangeToken>()?, token);
///         assert!(matches!("01".parse::<ChangeToken>(), Err(TokenError::Damaged)));
///         Ok(())
///     })
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChangeToken {
    pub(super) database: [u8; 16],
    /// The start of a block, from which the log must be read.
    pub(super) resume: Lsn,
    /// All commits up to this LSN were returned.
    pub(super) given: Lsn,
    /// The checksum of the block that starts at `given`; 0 if unknown.
    pub(super) sum: u32,
}

/// The reason why a token is not usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The bytes or the text are not a token.
    #[error("the change token is damaged; begin with another token, or with a snapshot")]
    Damaged,
    /// The token was created by another database.
    #[error("the change token belongs to another database; use it with that database")]
    OtherDatabase,
    /// The log ends before the token. The database may have been restored from a backup that is
    /// older than the token.
    #[error(
        "the change token is for LSN {token}, but the log ends at {end}; begin with a snapshot if \
         the database was restored from an older backup"
    )]
    AheadOfLog {
        /// The LSN in the token.
        token: u64,
        /// The end of the log.
        end: u64,
    },
    /// No block of the log starts at the token's position. The database may have been restored from
    /// an older backup and written since. Otherwise the log is damaged there; a check of the
    /// database can confirm this.
    #[error(
        "no block of the log begins at LSN {token} of the change token; begin with a snapshot if \
         the database was restored from an older backup, otherwise check the database for damage"
    )]
    NotInLog {
        /// The LSN in the token.
        token: u64,
    },
    /// The log has a different block at the position of the last returned commit. The database was
    /// restored from a backup that is older than the token, and was written since.
    #[error(
        "the log at LSN {token} is not the one that the change token was created from, because the \
         database was restored from an older backup; begin with a snapshot"
    )]
    OtherLog {
        /// The LSN in the token.
        token: u64,
    },
}

impl ChangeToken {
    /// The size of an encoded token, in bytes.
    pub const BYTES: usize = SUMMED_BYTES + 4;

    /// Returns the LSN of the last returned commit, or a later LSN up to which everything was
    /// returned.
    ///
    /// ```
    /// use braiddb::changes::ChangesFrom;
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let directory = tempfile::tempdir().unwrap();
    ///         let db = Database::open(directory.path(), Options::default().workers(1))?;
    ///         let orders: Table<u64, str> = db.create_table("orders").await?;
    ///         let mut changes = db.changes(ChangesFrom::Now).tables([&orders]);
    ///         db.put(&orders, &7, "nails").await?;
    ///         let transaction = changes.next().await?.expect("a feed ends with an error");
    ///         let token = transaction.token.expect("every commit has one");
    ///         assert_eq!(token.commit_lsn(), transaction.commit_lsn);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    #[must_use]
    pub fn commit_lsn(&self) -> u64 {
        self.given.0
    }

    /// Returns the LSN from which the log is needed.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let directory = tempfile::tempdir().unwrap();
    ///         let db = Database::open(directory.path(), Options::default().workers(1))?;
    ///         let token = db.create_change_slot("search", 1 << 30).await?;
    ///         println!("the log is kept from LSN {} on", token.resume_lsn());
    ///         Ok(())
    ///     })
    /// }
    /// ```
    #[must_use]
    pub fn resume_lsn(&self) -> u64 {
        self.resume.0
    }

    /// Returns the token with everything before `lsn` returned. A block starts at `lsn`.
    pub(super) fn given_before(self, lsn: Lsn) -> Self {
        Self { given: Lsn(lsn.0 - 1), sum: 0, ..self }
    }

    /// Returns a token with the later returned LSN and the later log position of the two.
    pub(super) fn further(self, other: &Self) -> Self {
        let (given, sum) = match other.given > self.given {
            true => (other.given, other.sum),
            false => (self.given, self.sum),
        };
        Self { resume: self.resume.max(other.resume), given, sum, ..self }
    }

    /// Returns the token as bytes.
    ///
    /// ```
    /// use braiddb::changes::ChangeToken;
    /// use braiddb::{Database, Error, Options, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let directory = tempfile::tempdir().unwrap();
    ///         let db = Database::open(directory.path(), Options::default().workers(1))?;
    ///         let token = db.create_change_slot("search", 1 << 30).await?;
    ///         let kept: Vec<u8> = token.to_bytes().to_vec();
    ///         assert_eq!(kept.len(), ChangeToken::BYTES);
    ///         assert_eq!(ChangeToken::from_bytes(&kept)?, token);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0] = VERSION;
        bytes[1..17].copy_from_slice(&self.database);
        bytes[17..25].copy_from_slice(&self.resume.0.to_le_bytes());
        bytes[25..33].copy_from_slice(&self.given.0.to_le_bytes());
        bytes[33..SUMMED_BYTES].copy_from_slice(&self.sum.to_le_bytes());
        let sum = crc32c::crc32c(&bytes[..SUMMED_BYTES]);
        bytes[SUMMED_BYTES..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes a token from its bytes.
    ///
    /// ```
    /// use braiddb::changes::{ChangeToken, TokenError};
    /// use braiddb::{Database, Error, Options, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let directory = tempfile::tempdir().unwrap();
    ///         let db = Database::open(directory.path(), Options::default().workers(1))?;
    ///         let token = db.create_change_slot("search", 1 << 30).await?;
    ///         let mut kept = token.to_bytes();
    ///         assert_eq!(ChangeToken::from_bytes(&kept)?, token);
    ///         kept[20] ^= 1;
    ///         assert_eq!(ChangeToken::from_bytes(&kept), Err(TokenError::Damaged));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// [`TokenError::Damaged`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TokenError> {
        let (summed, sum) = bytes.split_at_checked(SUMMED_BYTES).ok_or(TokenError::Damaged)?;
        if sum != crc32c::crc32c(summed).to_le_bytes() || summed[0] != VERSION {
            return Err(TokenError::Damaged);
        }
        let number = |at: usize| {
            let bytes = summed[at..at + 8].try_into().expect("eight bytes");
            Lsn(u64::from_le_bytes(bytes))
        };
        let database = summed[1..17].try_into().expect("sixteen bytes");
        let sum = summed[33..].try_into().expect("four bytes");
        let sum = u32::from_le_bytes(sum);
        Ok(Self { database, resume: number(17), given: number(25), sum })
    }
}

/// Compares the token's last commit with the durable log at that position. It cannot detect a
/// difference if that part of the log was freed. Runs on a worker.
///
/// # Errors
/// [`TokenError::OtherLog`]; errors of the log.
pub(super) async fn check_in_log(files: &LogFiles, token: &ChangeToken) -> Result<()> {
    let worker = WorkerTransactions::current();
    worker.wait_durable(token.given).await?;
    let log = &worker.engine().log;
    let Ok(_held) = files.hold(token.given, u64::MAX) else { return Ok(()) };
    let store = log.cold_store().expect("a followed log has files");
    let sum = async |lsn| store.block_sum(lsn).await.map_err(OperationError::storage);
    // The token has no checksum, so a block must at least start there or directly after.
    let next = Lsn(token.given.0 + 1);
    let is_right = match token.sum {
        0 => {
            next == log.durable() || sum(next).await?.is_some() || sum(token.given).await?.is_some()
        }
        known => sum(token.given).await? == Some(known),
    };
    if is_right { Ok(()) } else { Err(TokenError::OtherLog { token: token.given.0 }.into()) }
}

impl fmt::Display for ChangeToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ChangeToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChangeToken(from {}, returned up to {})", self.resume, self.given)
    }
}

impl FromStr for ChangeToken {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let digits = text.as_bytes().as_chunks::<2>();
        if !digits.1.is_empty() {
            return Err(TokenError::Damaged);
        }
        let digit = |digit: u8| char::from(digit).to_digit(16).ok_or(TokenError::Damaged);
        let byte = |pair: &[u8; 2]| Ok((digit(pair[0])? << 4 | digit(pair[1])?) as u8);
        let bytes: Vec<u8> = digits.0.iter().map(byte).collect::<Result<_, TokenError>>()?;
        Self::from_bytes(&bytes)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn tokens_keep_what_they_say_and_are_told_from_damage() {
        let (resume, given) = (Lsn(4096), Lsn(1 << 40 | 7));
        let token = ChangeToken { database: [7; 16], resume, given, sum: 0x1234_5678 };
        let (bytes, text) = (token.to_bytes(), token.to_string());
        assert_eq!(ChangeToken::from_bytes(&bytes), Ok(token));
        assert_eq!(text.parse(), Ok(token));
        assert_eq!(text.to_uppercase().parse(), Ok(token));
        for bit in 0..8 * bytes.len() {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(ChangeToken::from_bytes(&damaged), Err(TokenError::Damaged), "{bit}");
        }
        for length in 0..text.len() {
            assert_eq!(text[..length].parse::<ChangeToken>(), Err(TokenError::Damaged));
        }
        assert_eq!(format!("{text}0").parse::<ChangeToken>(), Err(TokenError::Damaged));
        assert_eq!("é".parse::<ChangeToken>(), Err(TokenError::Damaged));
    }
}
