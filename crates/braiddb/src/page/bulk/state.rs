//! State of a table for bulk operations.

use super::epoch::BulkEpochs;
use super::gate::BulkGate;

/// State of a table for bulk operations.
#[derive(Debug, Default)]
pub(crate) struct BulkState {
    pub(crate) gate: BulkGate,
    pub(crate) epochs: BulkEpochs,
}
