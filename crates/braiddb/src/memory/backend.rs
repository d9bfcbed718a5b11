//! The allocator behind the counters: mimalloc, called directly. Models and sanitizers use the
//! system's.

pub(super) use chosen::{allocate, allocate_zeroed, committed, free, prepare, return_free_memory};

#[cfg(not(any(loom, braid_system_allocator)))]
mod chosen {
    use std::alloc::Layout;
    use std::ptr::NonNull;

    use crate::sync::statistic::{AtomicU64, Ordering};

    /// Alignment of every block.
    const MIN_ALIGNMENT: usize = size_of::<usize>();
    /// Minimum size of a block that is a separate mapping. The allocator would keep such a block
    /// after it is freed, for a thread that may never allocate one again.
    const MIN_MAPPED_BYTES: usize = 2 << 20;
    /// Maximum alignment of such a block: the smallest size of a page of the system.
    const MAX_MAPPED_ALIGNMENT: usize = 4 << 10;

    /// Bytes of mapped blocks.
    static MAPPED: AtomicU64 = AtomicU64::new(0);

    /// Returns whether a block is a separate mapping.
    fn is_mapped(layout: Layout) -> bool {
        layout.size() >= MIN_MAPPED_BYTES && layout.align() <= MAX_MAPPED_ALIGNMENT
    }

    /// Maps a block of zeros.
    #[cold]
    fn map(layout: Layout) -> Option<NonNull<u8>> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping affects no existing memory.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), layout.size(), protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        // Relaxed: a statistic, ordered with nothing.
        MAPPED.fetch_add(layout.size() as u64, Ordering::Relaxed);
        NonNull::new(start.cast())
    }

    /// # Safety
    /// `map` returned the block for this layout; it is no longer used, and is unmapped once.
    #[cold]
    unsafe fn unmap(block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's contract.
        let result = unsafe { libc::munmap(block.as_ptr().cast(), layout.size()) };
        assert_eq!(result, 0, "unmapping our own mapping: {}", std::io::Error::last_os_error());
        // Relaxed: a statistic, ordered with nothing.
        MAPPED.fetch_sub(layout.size() as u64, Ordering::Relaxed);
    }

    pub fn allocate(layout: Layout) -> Option<NonNull<u8>> {
        if is_mapped(layout) {
            return map(layout);
        }
        if layout.align() <= MIN_ALIGNMENT {
            // SAFETY: may be called with any size.
            return NonNull::new(unsafe { libmimalloc_sys::mi_malloc(layout.size()) }.cast());
        }
        // SAFETY: size is not zero (asserted by the caller) and `Layout` holds a power of two.
        let block = unsafe { libmimalloc_sys::mi_malloc_aligned(layout.size(), layout.align()) };
        NonNull::new(block.cast())
    }

    pub fn allocate_zeroed(layout: Layout) -> Option<NonNull<u8>> {
        if is_mapped(layout) {
            return map(layout);
        }
        // SAFETY: size is not zero (asserted by the caller) and `Layout` holds a power of two.
        let block = unsafe { libmimalloc_sys::mi_zalloc_aligned(layout.size(), layout.align()) };
        NonNull::new(block.cast())
    }

    /// The option's index in mimalloc's option list, whose length is asserted below.
    const PAGE_RECLAIM_ON_FREE: libmimalloc_sys::mi_option_t = 35;
    const _: () = assert!(libmimalloc_sys::_mi_option_last == 47, "check the option's new index");

    /// Lets any thread reclaim pages in which a block was freed. By default they stay with the
    /// thread that freed it. If work moves to other workers, that thread allocates less than it
    /// frees, and its pages grew to half of the memory in use.
    pub fn prepare() {
        // SAFETY: the option may be set at any time; a setting in the environment has precedence.
        unsafe { libmimalloc_sys::mi_option_set_default(PAGE_RECLAIM_ON_FREE, -1) };
    }

    /// Bytes taken from the operating system.
    pub fn committed(_in_use: u64) -> u64 {
        let mut committed = 0;
        let (mut times, mut sizes, mut faults) = ([0; 3], [0; 3], 0);
        let [elapsed, user, system] = &mut times;
        let [resident, max_resident, max_committed] = &mut sizes;
        // SAFETY: every pointer references one number of the right type.
        unsafe {
            libmimalloc_sys::mi_process_info(
                elapsed,
                user,
                system,
                resident,
                max_resident,
                &mut committed,
                max_committed,
                &mut faults,
            );
        }
        // Relaxed: a statistic, ordered with nothing.
        committed as u64 + MAPPED.load(Ordering::Relaxed)
    }

    pub fn return_free_memory() {
        // SAFETY: may be called at any time.
        unsafe { libmimalloc_sys::mi_collect(true) };
    }

    /// # Safety
    /// The block came from this backend, is no longer used, and is freed once.
    pub unsafe fn free(block: NonNull<u8>, layout: Layout) {
        if is_mapped(layout) {
            // SAFETY: the caller's contract; blocks of this layout are mapped.
            return unsafe { unmap(block, layout) };
        }
        // SAFETY: the block came from mimalloc and is not used again.
        unsafe { libmimalloc_sys::mi_free(block.as_ptr().cast()) }
    }
}

#[cfg(any(loom, braid_system_allocator))]
mod chosen {
    use std::alloc::Layout;
    use std::ptr::NonNull;

    pub fn allocate(layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: size is not zero (asserted by the caller).
        NonNull::new(unsafe { std::alloc::alloc(layout) })
    }

    pub fn allocate_zeroed(layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: size is not zero (asserted by the caller).
        NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })
    }

    pub fn prepare() {}

    pub fn return_free_memory() {}

    /// The system allocator does not report this.
    pub fn committed(in_use: u64) -> u64 {
        in_use
    }

    /// # Safety
    /// The block came from this backend with this layout, is no longer used, and is freed once.
    pub unsafe fn free(block: NonNull<u8>, layout: Layout) {
        // SAFETY: the block came from the system's allocator with this layout and is not used again.
        unsafe { std::alloc::dealloc(block.as_ptr(), layout) }
    }
}
