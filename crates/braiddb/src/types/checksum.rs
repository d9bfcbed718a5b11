//! CRC-32C of short inputs, such as the parts of a log record: without the calls and the detection
//! of features that the library makes for each input.

/// Longer inputs gain more from the library's interleaved sums.
#[cfg(target_arch = "x86_64")]
const MAX_SHORT_BYTES: usize = 256;

/// Proof that the processor computes the sums, with its feature SSE4.2.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "no value exists"))]
pub(crate) struct SumInstructions(());

impl SumInstructions {
    /// Returns the proof, if the processor has the feature.
    #[inline(always)]
    pub(crate) fn detect() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        return is_x86_feature_detected!("sse4.2").then_some(Self(()));
        #[cfg(not(target_arch = "x86_64"))]
        None
    }
}

/// Continues the CRC-32C `sum` with the bytes of `head`, such as a header, and of all parts.
#[inline(always)]
pub(crate) fn append<const H: usize, const N: usize>(
    sum: u32,
    head: &[u8; H],
    parts: [&[u8]; N],
) -> u32 {
    append_detected(SumInstructions::detect(), sum, head, parts)
}

/// Does what `append` does, for a caller that has detected the instructions.
#[inline(always)]
#[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables, reason = "no value exists"))]
pub(crate) fn append_detected<const H: usize, const N: usize>(
    instructions: Option<SumInstructions>,
    sum: u32,
    head: &[u8; H],
    parts: [&[u8]; N],
) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if instructions.is_some() {
        let are_short = parts.iter().all(|part| part.len() <= MAX_SHORT_BYTES);
        // SAFETY: the processor has this feature.
        return unsafe {
            if are_short { append_short(sum, head, parts) } else { append_long(sum, head, parts) }
        };
    }
    parts.into_iter().fold(crc32c::crc32c_append(sum, head), crc32c::crc32c_append)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn append_short<const H: usize, const N: usize>(
    sum: u32,
    head: &[u8; H],
    parts: [&[u8]; N],
) -> u32 {
    !parts.into_iter().fold(append_part(!sum, head), |sum, part| append_part(sum, part))
}

/// Separate, because its calls of the library would make short inputs expensive, too.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
#[inline(never)]
fn append_long<const N: usize>(sum: u32, head: &[u8], parts: [&[u8]; N]) -> u32 {
    parts.into_iter().fold(!append_part(!sum, head), |sum, part| match part.len() {
        0..=MAX_SHORT_BYTES => !append_part(!sum, part),
        _ => crc32c::crc32c_append(sum, part),
    })
}

/// Continues an inverted sum.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
#[inline]
fn append_part(sum: u32, part: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
    if let Ok(word) = <[u8; 8]>::try_from(part) {
        // A short key or value.
        return _mm_crc32_u64(sum.into(), u64::from_le_bytes(word)) as u32;
    }
    let (words, rest) = part.as_chunks();
    let wide = words
        .iter()
        .fold(u64::from(sum), |sum, word| _mm_crc32_u64(sum, u64::from_le_bytes(*word)));
    rest.iter().fold(wide as u32, |sum, byte| _mm_crc32_u8(sum, *byte))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn sums_equal_those_of_the_library() {
        let bytes: Vec<u8> = (0..700_u32).map(|byte| (byte * 31 % 251) as u8).collect();
        for length in (0..40).chain([255, 256, 257, 700]) {
            for sum in [0, 1, u32::MAX] {
                let (first, second) = bytes[..length].split_at(length / 3);
                let expected = crc32c::crc32c_append(sum, &bytes[..length]);
                assert_eq!(append(sum, &[], [first, second]), expected, "{length} from {sum}");
                let head: &[u8; 27] = bytes.last_chunk().unwrap();
                let expected = crc32c::crc32c_append(crc32c::crc32c_append(sum, head), first);
                assert_eq!(append(sum, head, [first]), expected, "27 and {length} from {sum}");
            }
        }
    }
}
