//! Loom models of eviction and page faults concurrent with readers and writers. They run the
//! engine's code, except for the files, on a tree with one leaf.

use std::process::Command;
use std::sync::Arc;

use loom::model::Builder;
use loom::thread;

use super::layout::{KeySlot, MIN_PAGE_BYTES, SlotFlags};
use super::space::PageSpace;
use super::tree::{LeafRoom, PageTree};
use super::versions::Mapping;
use super::zone::Zones;
use crate::memory::MemoryCounters;
use crate::planted::{Bug, VARIABLE};
use crate::rid::TableId;
use crate::sched::run_now;

const KEY: [u8; 1] = [7];
const TABLE: TableId = TableId(1);
/// One preemption before the page is looked up, and one before it is found.
const PREEMPTIONS: usize = 2;

/// Tree of one leaf with one record, which has the value 1 and a chain.
struct Model {
    tree: PageTree,
    mapping: u64,
    /// Outlives the mapping table.
    _memory: Box<MemoryCounters>,
}

impl Model {
    fn new() -> Arc<Self> {
        let zones = Zones::modelled(MIN_PAGE_BYTES);
        let space = PageSpace::with_zones(MIN_PAGE_BYTES, 2, 2, Some(zones)).unwrap();
        let tree = run_now(PageTree::create(space, TABLE)).unwrap();
        let memory = Box::new(MemoryCounters::new());
        let mapping = {
            let mut leaf = run_now(tree.latch(&KEY, LeafRoom::value(1))).unwrap();
            // SAFETY: the page is latched, and the key gets its slot below.
            let (_, word) = unsafe { Mapping::find_or_make(0, &memory, TABLE, &KEY) };
            leaf.set_mapping(word);
            let versioned = SlotFlags::NONE.with(SlotFlags::VERSIONED);
            leaf.insert(0, &KEY, &[1], versioned);
            word
        };
        Arc::new(Self { tree, mapping, _memory: memory })
    }

    /// Evicts the leaf, if possible now.
    fn evict(&self) {
        run_now(self.tree.space().evict_one()).unwrap();
    }

    /// Returns the value, after checking that the page has its chain.
    fn read(&self) -> u8 {
        let read = self.tree.read(&KEY, |leaf, slot| {
            let KeySlot::At(place) = slot else { return None };
            let mut value = Vec::new();
            leaf.copy_value(place, &mut value);
            let is_versioned = leaf.flags(place).has(SlotFlags::VERSIONED);
            Some((value.first().copied(), leaf.mapping(), is_versioned))
        });
        let (value, mapping, is_versioned) = run_now(read).unwrap().expect("the record is there");
        assert_eq!(mapping, self.mapping, "the page has its mapping table");
        assert!(is_versioned, "the slot says so");
        value.expect("the value has a byte")
    }

    /// Frees the unreachable leaf, if it is not resident, and checks its mapping table.
    fn free(&self) {
        let mut mapping = None;
        if self.tree.space().free_absent(self.tree.root(), |word| mapping = Some(word)) {
            assert_eq!(mapping, Some(self.mapping), "the page has its mapping table");
        }
    }

    fn write(&self, value: u8) {
        let mut leaf = run_now(self.tree.latch(&KEY, LeafRoom::NONE)).unwrap();
        let KeySlot::At(place) = leaf.find(&KEY) else { panic!("the record is there") };
        leaf.overwrite(place, &[value], SlotFlags::NONE.with(SlotFlags::VERSIONED));
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: no thread uses the table any more. A page or the orphans reference it, and
        // neither frees it.
        unsafe { Mapping::free(self.mapping) };
    }
}

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 50_000;
    builder.check(model);
}

fn beside(one: fn(&Model), other: fn(&Model), in_the_end: fn(&Model)) {
    check(PREEMPTIONS, move || {
        let model = Model::new();
        let thread = {
            let model = model.clone();
            thread::spawn(move || one(&model))
        };
        other(&model);
        thread.join().unwrap();
        in_the_end(&model);
    });
}

#[test]
fn model_of_paging_a_reader_beside_an_eviction() {
    let read = |model: &Model| assert_eq!(model.read(), 1);
    beside(Model::evict, read, read);
}

#[test]
fn model_of_paging_a_writer_beside_an_eviction() {
    beside(Model::evict, |model| model.write(2), |model| assert_eq!(model.read(), 2));
}

#[test]
fn model_of_paging_a_page_given_back_beside_an_eviction() {
    beside(Model::evict, Model::free, |_| ());
}

/// One reader loads the page and the other waits for it, or both find it.
#[test]
fn model_of_paging_readers_of_an_absent_page() {
    check(PREEMPTIONS, || {
        let model = Model::new();
        model.evict();
        let thread = {
            let model = model.clone();
            thread::spawn(move || assert_eq!(model.read(), 1))
        };
        assert_eq!(model.read(), 1);
        thread.join().unwrap();
    });
}

/// Each planted bug makes a model fail.
#[test]
fn model_of_paging_each_mistake_is_found() {
    let (read, write) = (
        "model_of_paging_a_reader_beside_an_eviction",
        "model_of_paging_a_writer_beside_an_eviction",
    );
    for (bug, model) in [
        (Bug::OrphanAfterPlace, "model_of_paging_a_page_given_back_beside_an_eviction"),
        (Bug::PlaceBeforeImage, read),
        (Bug::PageLeavesThoughChanged, write),
    ] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("page::model::{model}")])
            .env(VARIABLE, (bug as usize).to_string())
            .output()
            .unwrap();
        let told =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.contains("running 1 test"), "{bug:?}:\n{told}");
    }
}
