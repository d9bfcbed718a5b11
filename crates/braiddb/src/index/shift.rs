//! Moves of the entries of a latched node. With AVX2, each group of a node is moved by a few
//! instructions, of which each stores two words at once.

use super::node::{GROUP, IndexNode};
use crate::sync::atomic::{AtomicU64, Ordering};

/// Returns whether the processor has AVX2.
#[cfg(all(target_arch = "x86_64", not(any(loom, braid_simulation))))]
#[inline(always)]
pub(super) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
}

/// Moves the words of a group one place up. The last one is lost, and the first one stays. The group
/// is a cache line.
pub(super) trait ShiftUp {
    fn shift_up(words: &[AtomicU64; GROUP]);
}

/// One word at a time, for every processor.
pub(super) struct ScalarShift;

impl ShiftUp for ScalarShift {
    #[inline(always)]
    fn shift_up(words: &[AtomicU64; GROUP]) {
        for to in (1..GROUP).rev() {
            // Relaxed: the node is latched. Release pairs with the Acquire in `IndexNode::word`.
            words[to].store(words[to - 1].load(Ordering::Relaxed), Ordering::Release);
        }
    }
}

/// Two words at a time, with AVX2. Models and simulations control each atomic access, and sanitizers
/// do not see accesses in assembly, so they use the scalar form.
#[cfg(all(target_arch = "x86_64", not(any(loom, braid_simulation, braid_system_allocator))))]
pub(super) mod wide {
    use std::arch::asm;

    use super::{AtomicU64, GROUP, ShiftUp};

    /// Its functions may run only on processors with AVX2.
    pub(in crate::index) struct Avx2Shift;

    impl ShiftUp for Avx2Shift {
        #[inline(always)]
        fn shift_up(words: &[AtomicU64; GROUP]) {
            const { assert!(GROUP == 8) }
            // SAFETY: the eight words may be read and written, and are a cache line. Only functions
            // that were entered after `has_avx2` use this type.
            unsafe { shift_up(words.as_ptr()) }
        }
    }

    /// Moves seven words one place up.
    ///
    /// # Safety
    /// `words` points to eight words, of which only this thread writes any, at an address that is a
    /// multiple of 16.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn shift_up(words: *const AtomicU64) {
        // SAFETY: reads and writes the eight words (the caller's contract). Other threads may load
        // them concurrently. Processors with AVX access 16 aligned bytes at once, and store in
        // program order, so these are relaxed loads and Release stores; the first word is stored
        // with its own value. Assembly, because the language has no such vector access.
        unsafe {
            asm!(
                "vmovdqa {a}, xmmword ptr [{words}]",
                "vmovdqa {b}, xmmword ptr [{words} + 16]",
                "vmovdqa {c}, xmmword ptr [{words} + 32]",
                "vmovdqa {d}, xmmword ptr [{words} + 48]",
                "vpalignr {d}, {d}, {c}, 8",
                "vpalignr {c}, {c}, {b}, 8",
                "vpalignr {b}, {b}, {a}, 8",
                "vpunpcklqdq {a}, {a}, {a}",
                "vmovdqa xmmword ptr [{words} + 48], {d}",
                "vmovdqa xmmword ptr [{words} + 32], {c}",
                "vmovdqa xmmword ptr [{words} + 16], {b}",
                "vmovdqa xmmword ptr [{words}], {a}",
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                words = in(reg) words,
                options(nostack, preserves_flags),
            );
        }
    }
}

impl IndexNode {
    /// Moves the heads and words from `place` upwards, of `count` entries, one place up.
    pub(super) fn open_place(&self, place: usize, count: usize) {
        #[cfg(all(
            target_arch = "x86_64",
            not(any(loom, braid_simulation, braid_system_allocator))
        ))]
        if has_avx2() {
            #[target_feature(enable = "avx2")]
            fn open_place(node: &IndexNode, place: usize, count: usize) {
                node.open_place_with::<wide::Avx2Shift>(place, count);
            }
            // SAFETY: the processor has this feature.
            return unsafe { open_place(self, place, count) };
        }
        self.open_place_with::<ScalarShift>(place, count);
    }

    #[inline(always)]
    fn open_place_with<S: ShiftUp>(&self, place: usize, count: usize) {
        let (first, last) = (place / GROUP, count / GROUP);
        // Whole groups: places past the last entry all have the same contents.
        let mut number = last;
        while number > first {
            let (group, before) = (&self.groups[number], &self.groups[number - 1]);
            S::shift_up(&group.heads);
            S::shift_up(&group.words);
            group.set(0, before.get(GROUP - 1));
            number -= 1;
        }
        let group = &self.groups[first];
        let begin = place % GROUP;
        let mut to = if first == last { count % GROUP } else { GROUP - 1 };
        while to > begin {
            group.set(to, group.get(to - 1));
            to -= 1;
        }
    }

    /// Moves the heads and words after `place`, of `count` entries, one place down.
    pub(super) fn close_place(&self, place: usize, count: usize) {
        let (first, last) = (place / GROUP, (count - 1) / GROUP);
        for number in first..=last {
            let group = &self.groups[number];
            let begin = if number == first { place % GROUP } else { 0 };
            let end = if number == last { (count - 1) % GROUP } else { GROUP - 1 };
            for to in begin..end {
                group.set(to, group.get(to + 1));
            }
            let next = match number == last {
                true => (u64::MAX, 0),
                false => self.groups[number + 1].get(0),
            };
            group.set(end, next);
        }
    }
}

#[cfg(all(test, not(loom), not(braid_simulation)))]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Line([AtomicU64; GROUP]);

    fn check<S: ShiftUp>() {
        let line = Line(std::array::from_fn(|place| AtomicU64::new(place as u64)));
        S::shift_up(&line.0);
        for (place, word) in line.0.iter().enumerate() {
            assert_eq!(word.load(Ordering::Relaxed), place.saturating_sub(1) as u64);
        }
    }

    #[test]
    fn words_move_one_place_up() {
        check::<ScalarShift>();
        #[cfg(all(target_arch = "x86_64", not(braid_system_allocator)))]
        if has_avx2() {
            check::<wide::Avx2Shift>();
        }
    }
}
