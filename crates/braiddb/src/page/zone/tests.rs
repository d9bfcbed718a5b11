//! Tests of zones: which places are taken, and by what.

use std::collections::BTreeSet;

use super::super::write_back::Images;
use super::*;
use crate::common::{PART_SECONDS, with_limit};
use crate::io::{Faults, SimulatedDisk};
use crate::log::{Log, LogOptions};

fn log(disk: &SimulatedDisk) -> Log {
    let options =
        LogOptions { disk: Some(disk.clone()), ..LogOptions::new(std::path::Path::new("x"), 1) };
    Log::open(options).unwrap().0
}

/// Each place has one holder through any sequence of taking, keeping and freeing. Runs are adjacent
/// places of one file, and no zone is created while many places are free.
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
        assert_eq!(zones.bytes().0, kept.len() as u64 * 4096);
        let zones_made = zones.state.lock().len() as u64;
        assert!(zones_made * SLOTS < 4 * kept.len() as u64 + 2 * SLOTS, "{zones_made}");
        for slot in std::mem::take(&mut kept) {
            zones.free(slot);
        }
        assert_eq!(zones.bytes().0, 0);
        zones.remove();
        assert!(!log.files().unwrap().list().unwrap().iter().any(|name| is_zone(name)));
    });
}

/// Takes a run of places as a write that succeeds does, and returns its slots.
fn take_written(zones: &Arc<Zones>) -> Vec<u64> {
    let run = zones.take(RUN_SLOTS).unwrap();
    run.is_written.store(true, Ordering::Relaxed);
    (0..run.len()).map(|number| run.keep(number)).collect()
}

/// The file of a zone grows only while few of its blocks are free, also if no region is.
#[test]
fn a_zone_grows_only_while_few_of_its_blocks_are_free() {
    with_limit(PART_SECONDS, |_| {
        let disk = SimulatedDisk::new(1);
        let log = log(&disk);
        let zones = Zones::new(log.cold_store().unwrap().files(), 4096);
        let take = || take_written(&zones);
        let end = || zones.state.lock()[0].places.ends().1;
        let kept: Vec<u64> = std::iter::repeat_with(take).take(64).flatten().collect();
        let full = end();
        assert_eq!(full, 64 * RUN_SLOTS as u64);
        kept.iter().skip(1).step_by(2).for_each(|slot| zones.free(*slot));
        let mut reused = 0;
        while end() == full {
            reused += take().len() as u64;
        }
        let grown = RUN_SLOTS as u64;
        let free = full / 2 - (reused - grown);
        assert!(free <= full / MAX_FREE_SHARE, "it grew with {free} of {full} blocks free");
        assert!(free >= full / MAX_FREE_SHARE - grown, "it grew late: {free} of {full} are free");
        for slot in kept.iter().step_by(2) {
            zones.free(*slot);
        }
    });
}

/// Free blocks of a later zone are used before an earlier one grows again.
#[test]
fn free_blocks_of_all_zones_are_used_before_files_grow() {
    with_limit(PART_SECONDS, |_| {
        let disk = SimulatedDisk::new(1);
        let log = log(&disk);
        let zones = Zones::new(log.cold_store().unwrap().files(), 4096);
        let take = || take_written(&zones);
        let mut kept = BTreeSet::new();
        while kept.len() < SLOTS as usize + 64 * RUN_SLOTS {
            kept.extend(take());
        }
        let second = kept.split_off(&SLOTS);
        kept.iter().for_each(|slot| zones.free(*slot));
        zones.release();
        second.iter().step_by(2).for_each(|slot| zones.free(*slot));
        assert!(take().iter().all(|slot| *slot >= SLOTS));
    });
}

/// Returns places of a random word whose blocks may be freed; an empty range if too few are
/// adjacent.
fn find_spare(
    places: &Places,
    random: &mut fastrand::Rng,
    is_spare: impl Fn(u64) -> bool,
) -> std::ops::Range<u64> {
    let (word, least) = (random.usize(..5), random.u32(1..6));
    let Some(found) = places.backed_in_word(word, least) else {
        let of_word: Vec<_> = (word as u64 * 64..).take(64).map(&is_spare).collect();
        let longest = of_word.split(|is| !is).map(<[bool]>::len).max();
        assert!(longest < Some(least as usize), "{longest:?} {least}");
        return 0..0;
    };
    assert!(found.clone().all(is_spare) && found.end - found.start >= u64::from(least));
    found
}

/// A place is free if neither a page nor a checkpoint uses it, through any sequence of operations.
/// The numbers of free places, and of those with disk blocks, are correct.
#[test]
fn places_are_kept_for_whoever_they_are_taken_by() {
    use places::PlaceUser::{Live, Next, Published};
    with_limit(PART_SECONDS, |_| {
        // Few places, so that operations meet the same ones repeatedly.
        const SOME: u64 = 300;
        let mut random = fastrand::Rng::with_seed(1);
        let (mut places, mut backed) = (Places::new(), BTreeSet::new());
        let [mut live, mut published, mut next] = [(); 3].map(|()| BTreeSet::new());
        for step in 0..20_000 {
            let place = random.u64(..SOME);
            match random.u8(..100) {
                0 => {
                    let keeps = random.u8(..4) == 0;
                    places.publish(keeps);
                    let before = std::mem::replace(&mut published, std::mem::take(&mut next));
                    published.extend(before.into_iter().filter(|_| keeps));
                }
                1 => {
                    places.abandon();
                    next.clear();
                }
                2 => {
                    let (end, backed_end) = places.ends();
                    let taken = live.iter().chain(&published).chain(&next);
                    assert_eq!(end, taken.max().map_or(0, |last| last + 1));
                    assert_eq!(backed_end, backed.last().map_or(0, |last| last + 1));
                    places.note_released(end..SLOTS);
                    backed.retain(|place| *place < end);
                }
                3 => {
                    let taken = [&live, &published, &next];
                    let is_taken = |place| taken.iter().any(|set| set.contains(&place));
                    let is_spare = |place| backed.contains(&place) && !is_taken(place);
                    let found = find_spare(&places, &mut random, is_spare);
                    places.note_released(found.clone());
                    backed.retain(|place| !found.contains(place));
                }
                kind => {
                    let by = if kind % 2 == 0 { Live } else { Next };
                    let set = if kind % 2 == 0 { &mut live } else { &mut next };
                    let is = random.bool();
                    places.set(place, by, is);
                    if is {
                        set.insert(place);
                        backed.insert(place);
                    } else {
                        set.remove(&place);
                    }
                }
            }
            let all = [(&live, Live), (&published, Published), (&next, Next)];
            assert!(all.iter().all(|(set, by)| set.contains(&place) == places.is(place, *by)));
            if step % 16 == 0 {
                let taken: BTreeSet<_> = live.iter().chain(&published).chain(&next).collect();
                assert_eq!(places.free(), SLOTS - taken.len() as u64);
                let free = backed.iter().filter(|place| !taken.contains(place));
                assert_eq!(places.backed(), free.count() as u64);
                let runs = places.runs_of(Published).into_iter().flatten();
                assert!(runs.eq(published.iter().copied()));
                let (first, count) = places.free_run(4).expect("there are many");
                assert!((first..first + count).all(|place| !taken.contains(&place)));
                if let Some((first, count)) = places.backed_run(4) {
                    let fits = |place| backed.contains(&place) && !taken.contains(&place);
                    assert!((first..first + count).all(fits));
                } else {
                    assert_eq!(places.backed(), 0);
                }
            }
        }
    });
}

/// A run that is taken while blocks of other places are deallocated contains none of these places.
#[test]
fn a_place_is_taken_while_its_room_is_given_back() {
    const PLACES: u64 = 640;
    with_limit(PART_SECONDS, |_| {
        let disk = SimulatedDisk::new(1);
        let log = log(&disk);
        let zones = Zones::new(log.cold_store().unwrap().files(), 4096);
        let runs: Vec<_> = (0..PLACES / 16).map(|_| zones.take(16).unwrap()).collect();
        let file = runs[0].file.clone();
        file.write_all_at(&vec![1; PLACES as usize * 4096], 0).unwrap();
        runs.iter().for_each(|run| run.is_written.store(true, Ordering::Relaxed));
        drop(runs);
        // Places with disk blocks are preferred.
        zones.is_tight.store(true, Ordering::Relaxed);
        let taken = Arc::new(Mutex::new(Vec::new()));
        let (noted, inner) = (taken.clone(), zones.clone());
        disk.watch(move |_| noted.lock().push(inner.take(16).unwrap()));
        let (mut from, mut freed) = (HoleSearch::default(), 0);
        while let Some(bytes) = zones.release_holes(&mut from, 0) {
            freed += bytes;
            let parts = file.parts_with_space().unwrap();
            for run in taken.lock().drain(..) {
                let place = zones.offset(run.first);
                assert!(parts.iter().any(|part| part.contains(&place)), "{place} {parts:?}");
            }
        }
        disk.unwatch();
        assert!(freed > PLACES / 2 * 4096, "{freed}");
    });
}

/// The disk reserve covers free places without disk blocks, so a place counts as such if the disk
/// had no space for it.
#[test]
fn a_place_for_which_the_disk_had_no_space_has_no_blocks() {
    with_limit(PART_SECONDS, |_| {
        let disk = SimulatedDisk::new(1);
        let log = log(&disk);
        let zones = Zones::new(log.cold_store().unwrap().files(), 4096);
        let write = |count: usize| {
            let run = zones.take(count).unwrap();
            let images = Arc::new(Images::new(AlignedBuffer::zeroed(count * 4096), run));
            let result = Arc::new(Mutex::new(None));
            let noted = result.clone();
            images.run().write_then(images.clone(), move |written| *noted.lock() = Some(written));
            result.lock().take().expect("it blocks")
        };
        write(8).unwrap();
        assert_eq!(zones.places(), [0, 8]);
        disk.set_faults(Faults { capacity: 1, ..Faults::default() });
        write(16).unwrap_err();
        assert_eq!(zones.places(), [0, 8]);
        // The same applies to places that were taken and not written.
        let backed = zones.take(16).unwrap();
        drop(zones.take(16).unwrap());
        drop(backed);
        assert_eq!(zones.places(), [0, 8]);
    });
}
