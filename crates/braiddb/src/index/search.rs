//! Search within a node, branch-free: the entry is where the number of heads that are at most the
//! searched one ends. With AVX2, four heads are compared at a time.

use std::cmp::Ordering as Order;

use super::key::{HeldKey, SearchKey};
use super::node::{HeldNode, IndexNode};
use super::shift::GROUP;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Counts the sorted words that are at most `head`. A reader validates before it relies on the
/// count; if the words are being changed, it is any number up to `N`.
pub(super) trait CountAtMost {
    fn count<const N: usize>(words: &[AtomicU64; N], head: u64) -> usize;
}

/// One word at a time, for every processor.
pub(super) struct Scalar;

impl CountAtMost for Scalar {
    #[inline(always)]
    fn count<const N: usize>(words: &[AtomicU64; N], head: u64) -> usize {
        let mut count = 0;
        for word in words {
            // Relaxed: validated by the caller.
            count += usize::from(word.load(Ordering::Relaxed) <= head);
        }
        count
    }
}

/// Four words at a time, with AVX2. Models and simulations control each atomic access, so they use
/// the scalar form.
#[cfg(all(target_arch = "x86_64", not(any(loom, braid_simulation))))]
pub(super) mod wide {
    use std::arch::asm;
    use std::arch::x86_64::{
        __m256i, _mm256_castsi256_pd, _mm256_cmpgt_epi64, _mm256_movemask_pd, _mm256_set1_epi64x,
        _mm256_xor_si256,
    };

    use super::{AtomicU64, CountAtMost};

    const LANES: usize = 4;

    /// Its functions may run only on processors with AVX2.
    pub(in crate::index) struct Avx2;

    impl CountAtMost for Avx2 {
        #[inline(always)]
        fn count<const N: usize>(words: &[AtomicU64; N], head: u64) -> usize {
            const { assert!(LANES <= N && N <= 2 * LANES) }
            // SAFETY: the first and the last four words are within the array, asserted above. Only
            // functions that were entered after `has_avx2` use this type.
            let (low, high) = unsafe {
                (greater(words.as_ptr(), head), greater(words.as_ptr().add(N - LANES), head))
            };
            // Lanes that overlap are of the same words.
            (low | high << (N - LANES) | 1 << N).trailing_zeros() as usize
        }
    }

    /// Returns a bit for each of four words that is greater than `head`.
    ///
    /// # Safety
    /// `words` points to four words that may be read.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn greater(words: *const AtomicU64, head: u64) -> u32 {
        let four: __m256i;
        // SAFETY: reads 32 bytes (the caller's contract). Other threads may store to them
        // concurrently. The processor loads each aligned word of eight bytes at once, so this is
        // four relaxed atomic loads; assembly, because the language has no such vector load.
        unsafe {
            asm!(
                "vmovdqu {four}, ymmword ptr [{words}]",
                four = out(ymm_reg) four,
                words = in(reg) words,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        // AVX2 compares signed numbers: with the sign bits flipped, in the order of unsigned ones.
        let sign = _mm256_set1_epi64x(i64::MIN);
        let head = _mm256_xor_si256(_mm256_set1_epi64x(head.cast_signed()), sign);
        let greater = _mm256_cmpgt_epi64(_mm256_xor_si256(four, sign), head);
        _mm256_movemask_pd(_mm256_castsi256_pd(greater)).cast_unsigned()
    }
}

impl IndexNode {
    /// Returns the group with the last entry whose head is at most `head`.
    #[inline(always)]
    pub(super) fn group<C: CountAtMost>(&self, head: u64) -> usize {
        C::count(&self.hints, head)
    }

    /// Returns the last entry of a group with a head of at most `head`, and that head. Returns
    /// `None` if the group's first head is larger, which is possible only in group 0, or if the
    /// node is being changed.
    #[inline(always)]
    fn place_in<C: CountAtMost>(&self, group: usize, head: u64) -> Option<(usize, u64)> {
        let heads = &self.groups[group].heads;
        let at = C::count(heads, head).checked_sub(1)?;
        // Relaxed: validated by the caller. The remainder is `at` itself, known to be in bounds.
        Some((group * GROUP + at, heads[at % GROUP].load(Ordering::Relaxed)))
    }
}

impl<'n> HeldNode<'n> {
    /// Returns the first entry whose key is at least `key`, or the number of entries. The second
    /// result is `true` if the keys are equal. The results of this and the following functions are
    /// meaningless until validated, unless latched.
    #[inline(always)]
    pub(super) fn lower_bound<C: CountAtMost>(self, key: &SearchKey<'_>) -> (usize, bool) {
        match self.place_in::<C>(self.group::<C>(key.head), key.head) {
            None => (0, false),
            Some((place, head)) if head < key.head => (place + 1, false),
            // A head of all ones is also in the places past the last entry, which have no tag.
            Some((place, _)) if self.key(place).word().tag() == key.tag && !key.is_long() => {
                (place, true)
            }
            Some(_) => self.lower_bound_exact(key),
        }
    }

    /// Does what `lower_bound` does, by comparing whole keys.
    fn lower_bound_exact(self, key: &SearchKey<'_>) -> (usize, bool) {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = (low + high) / 2;
            match self.key(middle).compared_with(key) {
                Order::Greater => low = middle + 1,
                Order::Less => high = middle,
                Order::Equal => return (middle, true),
            }
        }
        (low, false)
    }

    /// Returns the child of an inner node whose range contains `key`, given its head's group.
    #[inline(always)]
    pub(super) fn child_place<C: CountAtMost>(self, key: &SearchKey<'_>, group: usize) -> usize {
        match self.place_in::<C>(group, key.head) {
            Some((place, head)) if head < key.head => place,
            // Equal heads: the separators themselves decide. A copy, so that the key stays in
            // registers otherwise.
            _ => self.child_place_exact(&SearchKey { ..*key }),
        }
    }

    #[cold]
    fn child_place_exact(self, key: &SearchKey<'_>) -> usize {
        match self.lower_bound_exact(key) {
            (place, true) => place,
            // Separator 0 is below every key, so the result is 0 here only for a node that is being
            // changed.
            (place, false) => place.saturating_sub(1),
        }
    }

    /// Returns the entry of `key` in a leaf, given its head's group.
    ///
    /// # Errors
    /// The place where the key would be inserted.
    #[inline(always)]
    pub(super) fn find<C: CountAtMost>(
        self,
        key: &SearchKey<'_>,
        group: usize,
    ) -> Result<HeldKey<'n>, usize> {
        let (place, head) = self.place_in::<C>(group, key.head).ok_or(0_usize)?;
        if head != key.head {
            return Err(place + 1);
        }
        let found = self.entry(place, head);
        if found.word().tag() == key.tag && !key.is_long() {
            return Ok(found);
        }
        // Other keys have the same head, or the place is past the last entry. A copy as above.
        self.find_exact(&SearchKey { ..*key })
    }

    #[cold]
    fn find_exact(self, key: &SearchKey<'_>) -> Result<HeldKey<'n>, usize> {
        match self.lower_bound_exact(key) {
            (place, true) => Ok(self.key(place)),
            (place, false) => Err(place),
        }
    }
}

#[cfg(all(test, not(loom), not(braid_simulation)))]
mod tests {
    use super::*;

    fn check<C: CountAtMost, const N: usize>() {
        let words: [u64; N] = std::array::from_fn(|place| match place {
            0 => 0,
            1 => 1,
            _ if place == N - 1 => u64::MAX,
            _ => (i64::MAX as u64 - 2) + place as u64,
        });
        let stored = words.map(AtomicU64::new);
        let around =
            words.iter().flat_map(|word| [word.saturating_sub(1), *word, word.saturating_add(1)]);
        for head in around {
            let expected = words.iter().filter(|word| **word <= head).count();
            assert_eq!(C::count(&stored, head), expected, "{head:#x} in {words:x?}");
        }
    }

    #[test]
    fn heads_are_counted_in_unsigned_order() {
        check::<Scalar, 6>();
        check::<Scalar, 8>();
        #[cfg(target_arch = "x86_64")]
        if super::super::shift::has_avx2() {
            check::<wide::Avx2, 6>();
            check::<wide::Avx2, 8>();
        }
    }
}
