//! Search within a node, branch-free: the entry is where the number of heads that are at most the
//! searched one ends. With AVX2, four heads are compared at a time.

use std::cmp::Ordering as Order;

use super::key::{HeldKey, SearchKey, rank};
use super::node::{GROUP, HeldNode, IndexNode};
use crate::rid::Rid;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Counts the sorted words that are at most `head`. A reader validates before it relies on the
/// count; if the words are being changed, it is any number up to `N`.
pub(super) trait CountAtMost {
    fn count<const N: usize>(words: &[AtomicU64; N], head: u64) -> usize;

    /// Does what `HeldNode::child_place` does in a node with a prefix; out of line.
    fn child_place_with_prefix(node: HeldNode<'_>, key: &SearchKey<'_>) -> usize;

    /// Does what `HeldNode::find` does in a node with a prefix; out of line.
    fn find_with_prefix(node: HeldNode<'_>, key: &SearchKey<'_>) -> Result<Rid, usize>;
}

/// The form for every processor of this architecture.
#[cfg(not(all(target_arch = "aarch64", not(any(loom, braid_simulation)))))]
pub(super) use self::Scalar as Baseline;
#[cfg(all(target_arch = "aarch64", not(any(loom, braid_simulation))))]
pub(super) use self::neon::Neon as Baseline;

/// One word at a time.
#[cfg_attr(
    all(target_arch = "aarch64", not(any(loom, braid_simulation))),
    allow(dead_code, reason = "tested, and used by models and simulations")
)]
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

    #[inline(never)]
    fn child_place_with_prefix(node: HeldNode<'_>, key: &SearchKey<'_>) -> usize {
        node.child_place_with_prefix::<Self>(key)
    }

    #[inline(never)]
    fn find_with_prefix(node: HeldNode<'_>, key: &SearchKey<'_>) -> Result<Rid, usize> {
        node.find_with_prefix::<Self>(key)
    }
}

/// Two words at a time, with NEON, which all these processors have.
#[cfg(all(target_arch = "aarch64", not(any(loom, braid_simulation))))]
pub(super) mod neon {
    use std::arch::aarch64::{uint64x2_t, vaddvq_u64, vcleq_u64, vdupq_n_u64, vsubq_u64};
    use std::arch::asm;

    use super::{AtomicU64, CountAtMost, HeldNode, Rid, SearchKey};

    pub(in crate::index) struct Neon;

    impl CountAtMost for Neon {
        #[inline(always)]
        fn count<const N: usize>(words: &[AtomicU64; N], head: u64) -> usize {
            const { assert!(N.is_multiple_of(2)) }
            // SAFETY: every processor of this architecture has NEON.
            unsafe { count(words.as_chunks().0, head) }
        }

        #[inline(never)]
        fn child_place_with_prefix(node: HeldNode<'_>, key: &SearchKey<'_>) -> usize {
            node.child_place_with_prefix::<Self>(key)
        }

        #[inline(never)]
        fn find_with_prefix(node: HeldNode<'_>, key: &SearchKey<'_>) -> Result<Rid, usize> {
            node.find_with_prefix::<Self>(key)
        }
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn count(pairs: &[[AtomicU64; 2]], head: u64) -> usize {
        let (head, mut count) = (vdupq_n_u64(head), vdupq_n_u64(0));
        for pair in pairs {
            // A lane with a word of at most `head` is minus one.
            count = vsubq_u64(count, vcleq_u64(load(pair), head));
        }
        vaddvq_u64(count) as usize
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn load(pair: &[AtomicU64; 2]) -> uint64x2_t {
        let two: uint64x2_t;
        // SAFETY: reads the two words. Other threads may store to them concurrently. The processor
        // loads each aligned element of eight bytes at once, so these are relaxed atomic loads;
        // assembly, because the language has no such vector load.
        unsafe {
            asm!(
                "ld1 {{{two:v}.2d}}, [{pair}]",
                two = out(vreg) two,
                pair = in(reg) pair,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        two
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

    use super::{AtomicU64, CountAtMost, HeldNode, Rid, SearchKey};

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

        #[inline(always)]
        fn child_place_with_prefix(node: HeldNode<'_>, key: &SearchKey<'_>) -> usize {
            #[inline(never)]
            #[target_feature(enable = "avx2")]
            fn child_place(node: HeldNode<'_>, key: &SearchKey<'_>) -> usize {
                node.child_place_with_prefix::<Avx2>(key)
            }
            // SAFETY: only functions that were entered after `has_avx2` use this type.
            unsafe { child_place(node, key) }
        }

        #[inline(always)]
        fn find_with_prefix(node: HeldNode<'_>, key: &SearchKey<'_>) -> Result<Rid, usize> {
            #[inline(never)]
            #[target_feature(enable = "avx2")]
            fn find(node: HeldNode<'_>, key: &SearchKey<'_>) -> Result<Rid, usize> {
                node.find_with_prefix::<Avx2>(key)
            }
            // SAFETY: only functions that were entered after `has_avx2` use this type.
            unsafe { find(node, key) }
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

/// The results of searches are meaningless until validated, unless the node is latched. Each search
/// has two forms, so that keys of nodes without a prefix stay in registers.
impl<'n> HeldNode<'n> {
    /// Returns the first entry whose key is at least `key`, or the number of entries. The second
    /// result is `true` if the keys are equal.
    #[inline(always)]
    pub(super) fn lower_bound<C: CountAtMost>(self, key: &SearchKey<'_>) -> (usize, bool) {
        if !self.has_prefix() {
            return self.lower_bound_behind_prefix::<C>(key);
        }
        match self.behind_prefix(key) {
            Ok(key) => self.lower_bound_behind_prefix::<C>(&key),
            Err(order) => (if order.is_lt() { 0 } else { self.count() }, false),
        }
    }

    #[inline(always)]
    fn lower_bound_behind_prefix<C: CountAtMost>(self, key: &SearchKey<'_>) -> (usize, bool) {
        match self.place_in::<C>(self.group::<C>(key.head), key.head) {
            None => (0, false),
            Some((place, head)) if head < key.head => (place + 1, false),
            // A head of all ones is also in the places past the last entry, which have no tag.
            Some((place, _)) if self.key_word(place).tag() == key.tag && !key.is_long() => {
                (place, true)
            }
            Some(_) => self.lower_bound_exact(key),
        }
    }

    /// Does what `lower_bound_behind_prefix` does, by comparing whole keys.
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

    /// Returns the child of an inner node whose range contains `key`, which is in the node's range.
    #[inline(always)]
    pub(super) fn child_place<C: CountAtMost>(self, key: &SearchKey<'_>) -> usize {
        if self.has_prefix() {
            return C::child_place_with_prefix(self, &SearchKey { ..*key });
        }
        self.child_place_behind_prefix::<C>(key)
    }

    #[inline(always)]
    fn child_place_with_prefix<C: CountAtMost>(self, key: &SearchKey<'_>) -> usize {
        match self.behind_prefix_of_range(key) {
            Ok(key) => self.child_place_behind_prefix::<C>(&key),
            Err(order) if order.is_lt() => 0,
            Err(_) => self.count().saturating_sub(1),
        }
    }

    #[inline(always)]
    fn child_place_behind_prefix<C: CountAtMost>(self, key: &SearchKey<'_>) -> usize {
        match self.place_in::<C>(self.group::<C>(key.head), key.head) {
            Some((place, head)) if head < key.head => place,
            // Equal heads: the separators themselves decide. A copy, so that the key stays in
            // registers otherwise.
            Some((place, _)) => self.child_place_exact(&SearchKey { ..*key }, place),
            None => 0,
        }
    }

    #[cold]
    fn child_place_exact(self, key: &SearchKey<'_>, last: usize) -> usize {
        // The last separator with this head; places past the last one have rank 0.
        let last_rank = rank(self.key_word(last).tag());
        if last_rank > 0 && last_rank < rank(key.tag) {
            return last;
        }
        match self.lower_bound_exact(key) {
            (place, true) => place,
            // Separator 0 is below every key, so the result is 0 here only for a node that is being
            // changed.
            (place, false) => place.saturating_sub(1),
        }
    }

    /// Returns the record id of `key` in the leaf whose range contains it.
    ///
    /// # Errors
    /// The place where the key would be inserted.
    #[inline(always)]
    pub(super) fn find<C: CountAtMost>(self, key: &SearchKey<'_>) -> Result<Rid, usize> {
        if self.has_prefix() {
            return C::find_with_prefix(self, &SearchKey { ..*key });
        }
        self.find_behind_prefix::<C>(key)
    }

    #[inline(always)]
    fn find_with_prefix<C: CountAtMost>(self, key: &SearchKey<'_>) -> Result<Rid, usize> {
        match self.behind_prefix_of_range(key) {
            Ok(key) => self.find_behind_prefix::<C>(&key),
            Err(order) => Err(if order.is_lt() { 0 } else { self.count() }),
        }
    }

    #[inline(always)]
    fn find_behind_prefix<C: CountAtMost>(self, key: &SearchKey<'_>) -> Result<Rid, usize> {
        let group = self.group::<C>(key.head);
        let (place, head) = self.place_in::<C>(group, key.head).ok_or(0_usize)?;
        if head != key.head {
            return Err(place + 1);
        }
        let word = self.key_word(place);
        if word.tag() == key.tag && !key.is_long() {
            return Ok(word.inline_rid());
        }
        // A long key, another key with the same head, or a place past the last entry. A copy as
        // above.
        self.find_exact(&SearchKey { ..*key }, place)
    }

    #[inline(never)]
    fn find_exact(self, key: &SearchKey<'_>, last: usize) -> Result<Rid, usize> {
        if let Some(found) = self.with_fingerprint(key, last).filter(|found| found.is(key)) {
            return Ok(found.rid());
        }
        match self.lower_bound_exact(key) {
            (place, true) => Ok(self.key(place).rid()),
            (place, false) => Err(place),
        }
    }

    /// Returns the last entry up to `last` that has the head and the tag of a key.
    fn with_fingerprint(self, key: &SearchKey<'_>, last: usize) -> Option<HeldKey<'n>> {
        let places = (0..=last).rev().take_while(|place| self.head(*place) == key.head);
        let mut places = places.filter(|place| self.key_word(*place).tag() == key.tag);
        places.next().map(|place| self.key(place))
    }

    /// Returns the entry of a leaf that is probably the one of `key`, if that has a cell.
    #[inline(always)]
    pub(super) fn probable_cell<C: CountAtMost>(self, key: &SearchKey<'_>) -> Option<HeldKey<'n>> {
        let prefix_bytes = self.prefix_bytes();
        if key.bytes.len() <= prefix_bytes + 8 {
            return None;
        }
        let key = key.behind(prefix_bytes);
        let (last, head) = self.place_in::<C>(self.group::<C>(key.head), key.head)?;
        if head == key.head { self.with_fingerprint(&key, last) } else { None }
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
        check::<Baseline, 6>();
        check::<Baseline, 8>();
        #[cfg(target_arch = "x86_64")]
        if super::super::shift::has_avx2() {
            check::<wide::Avx2, 6>();
            check::<wide::Avx2, 8>();
        }
    }
}
