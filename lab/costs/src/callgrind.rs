//! Client requests of the measured process to callgrind. Callgrind counts only the instructions
//! between two requests. Without callgrind the requests have no effect.
//!
//! A request is a sequence of instructions that changes nothing and that valgrind recognises
//! (`valgrind.h`, `callgrind.h`).

use std::ffi::CString;

const TOOL: u64 = (b'C' as u64) << 24 | (b'T' as u64) << 16;
const ZERO_STATS: u64 = TOOL + 1;
const DUMP_STATS_AT: u64 = TOOL + 3;
const START_INSTRUMENTATION: u64 = TOOL + 4;
const STOP_INSTRUMENTATION: u64 = TOOL + 5;

#[cfg(target_arch = "x86_64")]
fn request(number: u64, argument: u64) {
    let arguments = [number, argument, 0, 0, 0, 0];
    // SAFETY: the rotations add up to none and the exchange is of a register with itself, so the
    // processor state does not change. Valgrind reads the six words that `rax` points to, and
    // writes its answer to `rdx`.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") arguments.as_ptr(),
            inout("rdx") 0u64 => _,
        );
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn request(_number: u64, _argument: u64) {
    panic!("costs are counted on x86-64 only")
}

/// Starts the instrumentation; without it the process runs many times faster.
pub(crate) fn start() {
    request(START_INSTRUMENTATION, 0);
}

/// Stops the instrumentation.
pub(crate) fn stop() {
    request(STOP_INSTRUMENTATION, 0);
}

/// Resets the counters.
pub(crate) fn zero() {
    request(ZERO_STATS, 0);
}

/// Writes the counters to a file under this name.
pub(crate) fn dump(name: &str) {
    let name = CString::new(name).expect("names have no zero bytes");
    request(DUMP_STATS_AT, name.as_ptr() as u64);
}
