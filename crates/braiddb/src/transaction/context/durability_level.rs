//! Durability levels.

/// Determines when a transaction's result is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Durability {
    /// After everything it depends on is durable: its writes, its reads, and the absence of
    /// records. This holds for every result: a value, the transaction's own error, an engine error
    /// such as [`KeyExists`](crate::Error::KeyExists), or a step of an interactive transaction. If
    /// the log fails first, the log's error is returned instead. Commits share flushes.
    #[default]
    Group,
    /// Immediately after the commit decision. Its log is written without waiting, within
    /// milliseconds unless closures block all workers. A crash may lose the latest commits, but never
    /// reorders commits. Lost commits may include some whose results (a value, an absence or an
    /// error) were already returned.
    Relaxed,
    /// Immediately after the commit decision. Nothing is logged.
    Volatile,
}
