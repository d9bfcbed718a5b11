//! Zones: which places are taken, and whose.

use std::collections::BTreeSet;

use super::*;
use crate::common::{PART_SECONDS, with_limit};
use crate::io::SimulatedDisk;
use crate::log::{Log, LogOptions};

fn log(disk: &SimulatedDisk) -> Log {
    let options =
        LogOptions { disk: Some(disk.clone()), ..LogOptions::new(std::path::Path::new("x"), 1) };
    Log::open(options).unwrap().0
}

/// Places are those of one holder each, whatever is taken, kept and freed; runs are rows of one file; and no zone is
/// made as long as there is much that is free.
#[test]
fn places_are_one_holders_each() {
    with_limit(PART_SECONDS, |_| {
        let disk = SimulatedDisk::new(1);
        let log = log(&disk);
        let zones = Zones::new(log.cold_store().unwrap().files(), 4096);
        let mut random = fastrand::Rng::with_seed(1);
        let (mut kept, mut runs) = (BTreeSet::new(), Vec::new());
        for step in 0..60_000 {
            if random.u8(..3) > 0 {
                let run = zones.take(random.usize(1..=RUN_SLOTS)).unwrap();
                for number in (0..run.len()).filter(|_| step % 7 > 0) {
                    if random.bool() {
                        assert!(kept.insert(run.keep(number)), "it was free");
                    }
                }
                if random.u8(..4) == 0 {
                    runs.push(run);
                }
            } else if random.u8(..8) == 0 {
                runs.clear();
            } else if let Some(slot) = kept.pop_first() {
                zones.free(slot);
            }
        }
        runs.clear();
        assert_eq!(zones.bytes(), kept.len() as u64 * 4096);
        let zones_made = zones.state.lock().len() as u64;
        assert!(zones_made * SLOTS < 4 * kept.len() as u64 + 2 * SLOTS, "{zones_made}");
        for slot in std::mem::take(&mut kept) {
            zones.free(slot);
        }
        assert_eq!(zones.bytes(), 0);
        zones.remove();
        assert!(!log.files().unwrap().list().unwrap().iter().any(|name| is_zone(name)));
    });
}
