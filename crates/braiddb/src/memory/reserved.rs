//! Reserved arrays: address space is reserved for the whole array and costs nothing until it is
//! used. Elements never move, and huge pages save page walks.

#[cfg(loom)]
pub(crate) use modelled::Reserved;
#[cfg(not(loom))]
pub(crate) use ordinary::{HUGE_PAGE_BYTES, Reserved, map, unmap};

/// Types for which zeroed memory is a valid value without a destructor.
///
/// # Safety
/// Zero bytes are a valid value, equal to the one that `zero` (for models) returns, and need no
/// drop.
pub(crate) unsafe trait Zero {
    #[cfg(loom)]
    fn zero() -> Self;
}

// SAFETY: an atomic word has the representation of a word.
unsafe impl Zero for crate::sync::atomic::AtomicU64 {
    #[cfg(loom)]
    fn zero() -> Self {
        Self::new(0)
    }
}

// SAFETY: an atomic number of 32 bits has the representation of the number.
unsafe impl Zero for crate::sync::atomic::AtomicU32 {
    #[cfg(loom)]
    fn zero() -> Self {
        Self::new(0)
    }
}

#[cfg(not(loom))]
mod ordinary {
    use std::io::{Error, Result};
    use std::marker::PhantomData;
    use std::ptr::NonNull;

    use super::Zero;
    use crate::sync::atomic::AtomicU64;

    pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

    /// An array of a fixed number of values, initially zero, in one mapping.
    #[derive(Debug)]
    pub(crate) struct Reserved<T: Zero> {
        start: NonNull<T>,
        count: usize,
        owns: PhantomData<T>,
    }

    // SAFETY: it owns its values, and hands out shared references only.
    unsafe impl<T: Zero + Send> Send for Reserved<T> {}
    // SAFETY: a shared reference hands out only shared references, and its values are `Sync`.
    unsafe impl<T: Zero + Sync> Sync for Reserved<T> {}

    impl<T: Zero> Reserved<T> {
        /// # Errors
        /// Those of the operating system, if it has no such range of addresses.
        pub(crate) fn new(count: usize) -> Result<Self> {
            const { assert!(size_of::<T>() > 0 && align_of::<T>() <= HUGE_PAGE_BYTES) };
            let start = map(Self::bytes(count))?.cast();
            Ok(Self { start, count, owns: PhantomData })
        }

        fn bytes(count: usize) -> usize {
            let bytes = count.checked_mul(size_of::<T>()).expect("far less than all addresses");
            bytes.max(1).next_multiple_of(HUGE_PAGE_BYTES)
        }

        /// The `count` values from `first` on.
        #[inline(always)]
        pub(crate) fn run(&self, first: usize, count: usize) -> &[T] {
            assert!(first <= self.count && count <= self.count - first);
            // SAFETY: within the mapping (asserted), which lives as long as `self`; zeros are
            // values (`Zero`), and only shared references to them exist.
            unsafe { std::slice::from_raw_parts(self.start.add(first).as_ptr(), count) }
        }

        #[inline(always)]
        pub(crate) fn at(&self, number: usize) -> &T {
            assert!(number < self.count);
            // SAFETY: within the mapping (asserted), which lives as long as `self`; zeros are values
            // (`Zero`), and only shared references to them exist.
            unsafe { self.start.add(number).as_ref() }
        }

        pub(crate) fn count(&self) -> usize {
            self.count
        }
    }

    impl Reserved<AtomicU64> {
        /// Returns the memory of a range of unused words to the operating system, as far as it
        /// consists of whole system pages; these words are zero afterwards. The system may allocate
        /// the memory again as part of a huge page, unless [`Self::keep_small`] prevents that.
        pub(crate) fn discard(&self, first: usize, count: usize) {
            let run = self.run(first, count);
            let (start, end) = (run.as_ptr() as usize, run.as_ptr_range().end as usize);
            let page_bytes = page_bytes();
            let (start, end) = (start.next_multiple_of(page_bytes), end & !(page_bytes - 1));
            if start < end {
                // SAFETY: within our own mapping, of words that are accessed only as atomics; zero
                // is a valid value. A failure costs only memory, so the result is ignored.
                unsafe { libc::madvise(start as *mut _, end - start, libc::MADV_DONTNEED) };
            }
        }
    }

    impl<T: Zero> Reserved<T> {
        /// Disables huge pages for the first `count` values, and perhaps some more. The system
        /// would otherwise merge partly used ranges, and so allocate returned memory again. Returns
        /// the number of affected values.
        pub(crate) fn keep_small(&self, count: usize) -> usize {
            let run = self.run(0, count);
            let (start, bytes) = (self.start.as_ptr() as usize, size_of_val(run));
            let bytes = bytes.next_multiple_of(HUGE_PAGE_BYTES);
            // SAFETY: advice about our own mapping, in whole huge pages; it changes no contents. A
            // failure costs only memory, so the result is ignored.
            unsafe { libc::madvise(start as *mut _, bytes, libc::MADV_NOHUGEPAGE) };
            bytes / size_of::<T>()
        }
    }

    #[cfg(all(test, target_os = "linux"))]
    impl<T: Zero> Reserved<T> {
        /// Returns the bytes of the array that are in memory.
        pub(crate) fn resident_bytes(&self) -> usize {
            let (bytes, page_bytes) = (Self::bytes(self.count), page_bytes());
            let mut pages = vec![0_u8; bytes / page_bytes];
            // SAFETY: our own mapping, and a byte for each of its pages.
            let result =
                unsafe { libc::mincore(self.start.as_ptr().cast(), bytes, pages.as_mut_ptr()) };
            assert_eq!(result, 0, "{}", Error::last_os_error());
            pages.into_iter().filter(|page| page & 1 != 0).count() * page_bytes
        }
    }

    /// Size of a system page, the smallest unit of memory that can be returned.
    fn page_bytes() -> usize {
        // SAFETY: reads a system constant.
        let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(bytes)
            .ok()
            .filter(|bytes| bytes.is_power_of_two())
            .unwrap_or(HUGE_PAGE_BYTES)
    }

    impl<T: Zero> Drop for Reserved<T> {
        fn drop(&mut self) {
            unmap(self.start.as_ptr() as usize, Self::bytes(self.count));
        }
    }

    /// Maps zeroed memory that starts at a huge-page boundary; `bytes` is a multiple of the
    /// huge-page size.
    ///
    /// # Errors
    /// Those of the operating system.
    pub(crate) fn map(bytes: usize) -> Result<NonNull<u8>> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let all = bytes + HUGE_PAGE_BYTES;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), all, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        // Unmaps the parts before and after the whole huge pages.
        let start = start as usize;
        let aligned = start.next_multiple_of(HUGE_PAGE_BYTES);
        unmap(start, aligned - start);
        unmap(aligned + bytes, start + all - aligned - bytes);
        // Simulations open many small databases, which would use little of a huge page.
        if !cfg!(braid_simulation) {
            // SAFETY: advice about our own mapping; it changes no contents. A failure costs only
            // speed, so the result is ignored.
            unsafe { libc::madvise(aligned as *mut _, bytes, libc::MADV_HUGEPAGE) };
        }
        Ok(NonNull::new(aligned as *mut u8).expect("the kernel never maps address 0"))
    }

    /// Unmaps an unused part of our own mappings.
    pub(crate) fn unmap(start: usize, bytes: usize) {
        if bytes == 0 {
            return;
        }
        // SAFETY: mapped by `map`, whose caller no longer uses it.
        let result = unsafe { libc::munmap(start as *mut _, bytes) };
        assert_eq!(result, 0, "unmapping our own mapping: {}", Error::last_os_error());
    }
}

#[cfg(loom)]
mod modelled {
    use std::io::Result;

    use super::Zero;

    /// Loom's atomics are created one by one.
    #[derive(Debug)]
    pub(crate) struct Reserved<T: Zero>(Box<[T]>);

    impl<T: Zero> Reserved<T> {
        pub(crate) fn new(count: usize) -> Result<Self> {
            Ok(Self((0..count).map(|_| T::zero()).collect()))
        }

        pub(crate) fn run(&self, first: usize, count: usize) -> &[T] {
            &self.0[first..first + count]
        }

        pub(crate) fn at(&self, number: usize) -> &T {
            &self.0[number]
        }

        pub(crate) fn count(&self) -> usize {
            self.0.len()
        }

        pub(crate) fn discard(&self, _first: usize, _count: usize) {}

        pub(crate) fn keep_small(&self, count: usize) -> usize {
            count
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn far_more_is_reserved_than_there_is_memory_for() {
        let words = Reserved::<AtomicU64>::new(1 << 36).unwrap();
        for place in [0, 1, 1 << 20, (1 << 36) - 1] {
            assert_eq!(words.at(place).swap(7, Ordering::Relaxed), 0);
        }
        let run = words.run((1 << 36) - 2, 2);
        assert_eq!(run.iter().map(|word| word.load(Ordering::Relaxed)).sum::<u64>(), 7);
    }

    #[test]
    fn words_that_were_discarded_are_zero_and_may_be_used_again() {
        let words = Reserved::<AtomicU64>::new(1 << 20).unwrap();
        (0..2048).for_each(|place| words.at(place).store(7, Ordering::Relaxed));
        // Parts of a system page are not returned.
        words.discard(500, 1000);
        let left: Vec<usize> =
            (0..2048).filter(|place| words.at(*place).load(Ordering::Relaxed) == 7).collect();
        let expected: Vec<usize> = (0..512).chain(1024..2048).collect();
        assert_eq!(left, expected);
        words.at(600).store(8, Ordering::Relaxed);
        assert_eq!(words.at(600).load(Ordering::Relaxed), 8);
    }
    /// Reads the flags of the mapping that contains an address from `/proc/self/smaps`.
    #[cfg(target_os = "linux")]
    fn flags_at(address: usize) -> Vec<String> {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_there = false;
        for line in smaps.lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let number = |digits| usize::from_str_radix(digits, 16).ok();
            if let Some((Some(start), Some(end))) = range.map(|(a, b)| (number(a), number(b))) {
                is_there = (start..end).contains(&address);
            }
            if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| is_there) {
                return flags.split_whitespace().map(str::to_owned).collect();
            }
        }
        panic!("no mapping at {address:x}");
    }

    /// Memory returned to the operating system would otherwise be allocated again as part of a huge
    /// page.
    #[cfg(target_os = "linux")]
    #[test]
    fn small_page_mappings_are_not_merged() {
        const HUGE_PAGE_WORDS: usize = HUGE_PAGE_BYTES / 8;
        let words = Reserved::<AtomicU64>::new(8 * HUGE_PAGE_WORDS).unwrap();
        let has = |place: usize, flag: &str| {
            flags_at(std::ptr::from_ref(words.at(place)) as usize).iter().any(|one| one == flag)
        };
        if !has(0, "hg") {
            // The system has no huge pages, or they are not requested in this environment.
            return;
        }
        assert_eq!(words.keep_small(HUGE_PAGE_WORDS + 1), 2 * HUGE_PAGE_WORDS);
        assert!(has(0, "nh") && has(2 * HUGE_PAGE_WORDS - 1, "nh"));
        assert!(has(2 * HUGE_PAGE_WORDS, "hg") && has(8 * HUGE_PAGE_WORDS - 1, "hg"));
    }
}
