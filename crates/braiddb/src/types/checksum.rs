//! CRC-32C of short inputs, such as the parts of a log record: without the calls and the detection
//! of features that the library makes for each input.

/// Longer inputs gain more from the library's interleaved sums.
const MAX_SHORT_BYTES: usize = 256;

/// Continues the CRC-32C `sum` with the bytes of all parts.
#[inline]
pub(crate) fn append<const N: usize>(sum: u32, parts: [&[u8]; N]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has this feature.
        return unsafe { append_sse(sum, parts) };
    }
    parts.into_iter().fold(sum, crc32c::crc32c_append)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn append_sse<const N: usize>(mut sum: u32, parts: [&[u8]; N]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
    for part in parts {
        if part.len() > MAX_SHORT_BYTES {
            sum = crc32c::crc32c_append(sum, part);
            continue;
        }
        let (mut wide, mut rest) = (u64::from(!sum), part);
        while let Some((word, after)) = rest.split_first_chunk() {
            wide = _mm_crc32_u64(wide, u64::from_le_bytes(*word));
            rest = after;
        }
        let mut narrow = wide as u32;
        for byte in rest {
            narrow = _mm_crc32_u8(narrow, *byte);
        }
        sum = !narrow;
    }
    sum
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
                assert_eq!(append(sum, [first, second]), expected, "{length} bytes from {sum}");
            }
        }
    }
}
