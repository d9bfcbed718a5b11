//! Growable array of words: chunks that are never moved, each twice as long as the previous one.
//!
//! Word `n` is in chunk `k` where `n + FIRST` has its highest bit at `k` above that of `FIRST`. So
//! a lookup takes a leading-zeros count and one read of the short directory, which stays cached.
//! Small chunks are blocks of the allocator. From 2 MiB on they are mappings: address space costs
//! nothing until it is used, and huge pages save a page walk on every random access.
//!
//! Invariants: a published chunk stays until the whole array is dropped. If word `n` is available,
//! all chunks up to its own are published.

use std::ptr::NonNull;

use crate::sync::atomic::{AtomicU64, Ordering};

/// Number of words in the first chunk; a power of two.
#[cfg(not(loom))]
const FIRST: u64 = 64;
#[cfg(loom)]
const FIRST: u64 = 2;
/// Maximum number of chunks: nearly 2^32 words.
#[cfg(not(loom))]
const CHUNKS: usize = 26;
#[cfg(loom)]
const CHUNKS: usize = 2;

/// The operating system refused memory or addresses for another chunk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the operating system refused {bytes} bytes for record ids: {reason}")]
pub(crate) struct NoMemory {
    pub(crate) bytes: usize,
    pub(crate) reason: String,
}

/// A growable array of words, initially zero.
#[derive(Debug)]
pub(super) struct Chunks {
    /// Addresses of the chunks; 0 for chunks that do not exist yet.
    directory: [AtomicU64; CHUNKS],
}

/// The chunk of a word and the offset in it.
#[inline(always)]
fn place(number: u64) -> (usize, usize) {
    let shifted = number + FIRST;
    let chunk = shifted.ilog2() - FIRST.ilog2();
    (chunk as usize, (shifted - (FIRST << chunk)) as usize)
}

/// Number of words in a chunk.
fn words_of(chunk: usize) -> usize {
    (FIRST << chunk) as usize
}

/// Number of words in all chunks up to and including one.
fn words_up_to(chunk: usize) -> u64 {
    (FIRST << (chunk + 1)) - FIRST
}

impl Default for Chunks {
    fn default() -> Self {
        Self { directory: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl Chunks {
    /// Maximum number of words.
    pub(super) const CAPACITY: u64 = (FIRST << CHUNKS) - FIRST;

    /// The word at an available index.
    ///
    /// # Panics
    /// Panics if the array has no such word yet.
    #[inline(always)]
    pub(super) fn word(&self, number: u64) -> &AtomicU64 {
        let (chunk, offset) = place(number);
        // SAFETY: a published chunk holds `words_of(chunk)` words, of which `place` names one; they
        // are shared only as atomics, and live as long as `self`.
        unsafe { self.start(chunk).add(offset).as_ref() }
    }

    /// The first word of a chunk.
    #[inline(always)]
    fn start(&self, chunk: usize) -> NonNull<AtomicU64> {
        // Acquire pairs with the Release in `publish`: the chunk is zeroed.
        let address = self.directory[chunk].load(Ordering::Acquire);
        let words = NonNull::new(address as *mut AtomicU64);
        words.unwrap_or_else(|| panic!("no room was made for the record ids of chunk {chunk}"))
    }

    /// Returns access to several words, many of which are in the same chunk.
    #[inline(always)]
    pub(super) fn reader(&self) -> ChunkWords<'_> {
        ChunkWords { chunks: self, first: 0, words: &[] }
    }

    /// The chunk of an available index: the number of its first word, and its words.
    #[inline(never)]
    fn words_around(&self, number: u64) -> (u64, &[AtomicU64]) {
        let (chunk, offset) = place(number);
        let words = NonNull::slice_from_raw_parts(self.start(chunk), words_of(chunk));
        // SAFETY: a published chunk holds so many words, which are shared only as atomics and live
        // as long as the array.
        (number - offset as u64, unsafe { words.as_ref() })
    }

    /// Makes the words up to `number` available, and returns a lower bound of the number of
    /// available words.
    ///
    /// # Errors
    /// Those of the operating system, if it has no such range of addresses left.
    pub(super) fn grow(&self, number: u64) -> Result<u64, NoMemory> {
        assert!(number < Self::CAPACITY, "the caller knows the capacity");
        let (last, _) = place(number);
        for chunk in 0..=last {
            // Acquire as in `word`.
            if self.directory[chunk].load(Ordering::Acquire) == 0 {
                self.publish(chunk)?;
            }
        }
        Ok(words_up_to(last))
    }

    fn publish(&self, chunk: usize) -> Result<(), NoMemory> {
        let words = words_of(chunk);
        let new = backing::allocate(words).map_err(|error| NoMemory {
            bytes: words * size_of::<u64>(),
            reason: error.to_string(),
        })?;
        // Release pairs with the Acquire in `word`. On failure another thread's chunk is there,
        // which this thread may use: Acquire.
        let (success, failure) = (Ordering::Release, Ordering::Acquire);
        let address = new.as_ptr() as u64;
        if self.directory[chunk].compare_exchange(0, address, success, failure).is_err() {
            // SAFETY: allocated above with this length, and not shared.
            unsafe { backing::free(new, words) };
        }
        Ok(())
    }
}

/// Access to several words. It finds words of the chunk that it found last by their offset alone.
#[derive(Clone, Debug)]
pub(super) struct ChunkWords<'c> {
    chunks: &'c Chunks,
    /// The number of the chunk's first word, and its words.
    first: u64,
    words: &'c [AtomicU64],
}

impl<'c> ChunkWords<'c> {
    /// The word at an available index, as [`Chunks::word`].
    #[inline(always)]
    pub(super) fn word(&mut self, number: u64) -> &'c AtomicU64 {
        match self.words.get(number.wrapping_sub(self.first) as usize) {
            Some(word) => word,
            None => {
                (self.first, self.words) = self.chunks.words_around(number);
                &self.words[(number - self.first) as usize]
            }
        }
    }
}

impl Drop for Chunks {
    fn drop(&mut self) {
        for (chunk, address) in self.directory.iter().enumerate() {
            // Relaxed: no other thread has access.
            let address = address.load(Ordering::Relaxed) as *mut AtomicU64;
            if let Some(words) = NonNull::new(address) {
                // SAFETY: published with this length; no reference to a word outlives `self`.
                unsafe { backing::free(words, words_of(chunk)) };
            }
        }
    }
}

#[cfg(not(loom))]
mod backing {
    use std::alloc::Layout;
    use std::io::Result;
    use std::ptr::NonNull;

    use crate::memory::{self, HUGE_PAGE_BYTES};
    use crate::sync::atomic::AtomicU64;

    /// Minimum number of words in a chunk that is a mapping.
    const MAPPED: usize = HUGE_PAGE_BYTES / size_of::<AtomicU64>();
    const CACHE_LINE_BYTES: usize = 64;

    fn layout(words: usize) -> Layout {
        Layout::from_size_align(words * size_of::<AtomicU64>(), CACHE_LINE_BYTES)
            .expect("chunks are far shorter than the address space")
    }

    /// Allocates zeroed words.
    pub(super) fn allocate(words: usize) -> Result<NonNull<AtomicU64>> {
        if words < MAPPED {
            return Ok(memory::allocate_uncounted(layout(words)).cast());
        }
        Ok(memory::map(words * size_of::<AtomicU64>())?.cast())
    }

    /// # Safety
    /// `start` came from `allocate` with the same number of words, and is no longer used.
    pub(super) unsafe fn free(start: NonNull<AtomicU64>, words: usize) {
        if words < MAPPED {
            // SAFETY: the caller's contract.
            unsafe { memory::free_uncounted(start.cast(), layout(words)) };
        } else {
            memory::unmap(start.as_ptr() as usize, words * size_of::<AtomicU64>());
        }
    }
}

#[cfg(loom)]
mod backing {
    use std::io::Result;
    use std::ptr::NonNull;

    use crate::sync::atomic::AtomicU64;

    /// Loom's atomics are created one by one.
    pub(super) fn allocate(words: usize) -> Result<NonNull<AtomicU64>> {
        let words: Box<[AtomicU64]> = (0..words).map(|_| AtomicU64::new(0)).collect();
        Ok(NonNull::new(Box::into_raw(words).cast()).expect("a box is somewhere"))
    }

    /// # Safety
    /// `start` came from `allocate` with the same number of words, and is no longer used.
    pub(super) unsafe fn free(start: NonNull<AtomicU64>, words: usize) {
        let words = std::ptr::slice_from_raw_parts_mut(start.as_ptr(), words);
        // SAFETY: made from a box of this length (the caller's contract).
        drop(unsafe { Box::from_raw(words) });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::common::{PART_SECONDS, with_limit};

    #[test]
    fn every_word_has_a_place_of_its_own() {
        with_limit(PART_SECONDS, |_| {
            let ends = (0..CHUNKS).flat_map(|chunk| [words_up_to(chunk) - 1, words_up_to(chunk)]);
            for number in (0..1000).chain(ends).filter(|number| *number < Chunks::CAPACITY) {
                let (chunk, offset) = place(number);
                assert!(chunk < CHUNKS && offset < words_of(chunk), "{number}");
                let before = if chunk == 0 { 0 } else { words_up_to(chunk - 1) };
                assert_eq!(before + offset as u64, number);
            }
            assert_eq!(place(Chunks::CAPACITY).0, CHUNKS);
        });
    }

    #[test]
    fn words_are_zero_and_stay_where_they_are() {
        with_limit(PART_SECONDS, |_| {
            let chunks = Chunks::default();
            // Two chunks that are mappings, and all smaller ones.
            let room = chunks.grow(600_000).unwrap();
            assert!(room > 600_000);
            let first = std::ptr::from_ref(chunks.word(0));
            for number in (0..room).step_by(61) {
                assert_eq!(chunks.word(number).swap(number + 1, Ordering::Relaxed), 0);
            }
            chunks.grow(2_000_000).unwrap();
            assert_eq!(std::ptr::from_ref(chunks.word(0)), first);
            for number in (0..room).step_by(61) {
                assert_eq!(chunks.word(number).load(Ordering::Relaxed), number + 1);
            }
        });
    }
}

#[cfg(all(test, loom))]
mod model {
    use std::sync::Arc;

    use loom::thread;

    use super::*;

    /// Two threads that grow the same array concurrently use the same word, initially zero.
    #[test]
    fn model_of_two_that_grow_at_once_gives_one_chunk() {
        loom::model(|| {
            let chunks = Arc::new(Chunks::default());
            let add = |chunks: &Chunks| {
                chunks.grow(3).unwrap();
                chunks.word(3).fetch_add(1, Ordering::Relaxed)
            };
            let other = {
                let chunks = chunks.clone();
                thread::spawn(move || add(&chunks))
            };
            let mine = add(&chunks);
            let theirs = other.join().unwrap();
            assert_eq!(mine + theirs, 1, "both counted on the same word, from zero");
        });
    }
}
