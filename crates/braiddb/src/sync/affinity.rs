//! Processor affinity: the cores that a thread may run on.

/// Returns the cores that this thread may run on, in order; empty where the system does not tell.
pub(crate) fn cores() -> Vec<usize> {
    #[cfg(target_os = "linux")]
    {
        let mut set = empty();
        // SAFETY: `set` is a valid set of the size given; 0 is the calling thread.
        let result = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
        if result == 0 {
            // SAFETY: each number is below the capacity of the set.
            let allowed = |core: &usize| unsafe { libc::CPU_ISSET(*core, &set) };
            return (0..libc::CPU_SETSIZE as usize).filter(allowed).collect();
        }
    }
    Vec::new()
}

/// Keeps this thread on one core of [`cores`]. Where the system refuses, the thread runs as before.
pub(crate) fn stay_on(core: usize) {
    #[cfg(target_os = "linux")]
    {
        let mut set = empty();
        // SAFETY: `core` comes from `cores`, so it is below the capacity of the set.
        unsafe { libc::CPU_SET(core, &mut set) };
        // SAFETY: `set` is a valid set of the size given; 0 is the calling thread.
        unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = core;
}

#[cfg(target_os = "linux")]
fn empty() -> libc::cpu_set_t {
    // SAFETY: a set of processors is an array of bits, of which zeros are a valid value.
    unsafe { std::mem::zeroed() }
}

#[cfg(all(test, target_os = "linux", not(loom)))]
mod tests {
    #[test]
    fn a_thread_stays_on_the_core_it_is_given() {
        let last = *super::cores().last().expect("a thread may run on some core");
        let after = std::thread::spawn(move || {
            super::stay_on(last);
            super::cores()
        });
        assert_eq!(after.join().expect("the thread ends"), [last]);
    }
}
