//! openraft's storage test suite on tables of a database on disk.

use std::sync::Arc;

use braiddb::{Database, Options};
use openraft::StorageError;
use openraft::testing::{StoreBuilder, Suite};
use tempfile::TempDir;

use crate::identity::{Identity, LocalNode, NEWEST_VERSION, OLDEST_VERSION};
use crate::log_store::LogStore;
use crate::raft::{NodeId, TypeConfig, storage_error};
use crate::replica::Replica;
use crate::state_machine::StateMachine;
use crate::storage::Storage;

struct Builder;

impl StoreBuilder<TypeConfig, LogStore, StateMachine, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, LogStore, StateMachine), StorageError<NodeId>> {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::default().workers(1).socket(false);
        let db = Database::open(directory.path(), options).map_err(storage_error)?;
        let storage = Arc::new(Storage::open(&db).await.map_err(storage_error)?);
        let identity = Identity { cluster: "test".to_owned(), node: 1, id: None };
        let local = Arc::new(LocalNode::new(identity, OLDEST_VERSION..=NEWEST_VERSION));
        let replica = Replica::new(storage.clone(), local);
        let machine = StateMachine::open(replica).await.map_err(storage_error)?;
        Ok((directory, LogStore::new(storage, Arc::default()), machine))
    }
}

#[test]
fn openraft_storage_suite() {
    Suite::test_all(Builder).unwrap();
}
