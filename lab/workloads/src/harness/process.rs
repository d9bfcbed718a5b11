//! Operating system statistics of this process: resident memory and processor time.
//!
//! Both are `None` on systems other than Linux; reports then omit the line.

use std::time::{Duration, Instant};

/// Returns the bytes of physical memory that this process uses.
pub fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * page_bytes())
}

/// Returns the bytes of memory that the system can provide without swapping.
pub fn available_bytes() -> Option<u64> {
    meminfo("MemAvailable:")
}

/// Returns one line of `/proc/meminfo`, in bytes.
pub fn meminfo(name: &str) -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find(|line| line.starts_with(name))?;
    let kibibytes: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024)
}

fn page_bytes() -> u64 {
    // SAFETY: `sysconf` reads a constant of the system and touches no memory of ours.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).expect("the page size is known on every Unix")
}

/// Binds the calling thread to a core, like workers. Has no effect if the system refuses.
pub fn stay_on_core(core: usize) {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: an all-zero set is the empty set; the call reads it and touches nothing else.
        unsafe {
            let mut set = std::mem::zeroed::<libc::cpu_set_t>();
            libc::CPU_SET(core, &mut set);
            libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = core;
}

/// Makes the calling thread's sleeps end on time, instead of up to 50 µs later. Has no effect if
/// the system refuses.
pub fn sleep_exactly() {
    // SAFETY: changes one attribute of the calling thread, and touches no memory.
    #[cfg(target_os = "linux")]
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong);
    }
}

/// Returns the processor time of all threads of this process, user and system.
fn processor_time() -> Option<Duration> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` has room for one `rusage`, which the call fills.
    let status = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    if status != 0 {
        return None;
    }
    // SAFETY: the call succeeded, so it filled the struct; all zeros would be valid as well.
    let usage = unsafe { usage.assume_init() };
    let duration = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    Some(duration(usage.ru_utime) + duration(usage.ru_stime))
}

/// Measures the share of one core that this process uses over a period.
#[derive(Debug)]
pub struct ProcessorMeter {
    started: Instant,
    used: Duration,
}

impl ProcessorMeter {
    /// Starts the measurement; `None` if the system has no such statistics.
    pub fn start() -> Option<Self> {
        Some(Self { used: processor_time()?, started: Instant::now() })
    }

    /// Returns the percent of one core used since the start, over all threads (200 = two whole
    /// cores).
    pub fn percent_of_a_core(&self) -> Option<f64> {
        let used = processor_time()?.saturating_sub(self.used);
        let elapsed = self.started.elapsed();
        assert!(!elapsed.is_zero(), "time passes between two readings of the clock");
        Some(100.0 * used.as_secs_f64() / elapsed.as_secs_f64())
    }
}

/// Measures the share of the machine that others use over a period: other processes, and the host
/// of a virtual machine (stolen time).
#[derive(Debug)]
pub struct OthersMeter {
    used: Duration,
    machine: MachineTicks,
}

/// Clock ticks of all cores since the system started.
#[derive(Clone, Copy, Debug)]
struct MachineTicks {
    busy: u64,
    all: u64,
}

impl MachineTicks {
    fn now() -> Option<Self> {
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
        // user, nice, system, idle, iowait, irq, softirq, steal; user already includes guests.
        let ticks: Vec<u64> = fields.take(8).map_while(|field| field.parse().ok()).collect();
        let (all, idle) = (ticks.iter().sum::<u64>(), ticks.get(3)? + ticks.get(4)?);
        Some(Self { busy: all - idle, all })
    }
}

impl OthersMeter {
    /// Starts the measurement; `None` if the system has no such statistics.
    pub fn start() -> Option<Self> {
        Some(Self { used: processor_time()?, machine: MachineTicks::now()? })
    }

    /// Returns the percent of the machine's processor time that others used since the start.
    pub fn percent(&self) -> Option<f64> {
        const TICKS_PER_SECOND: f64 = 100.0;
        let now = MachineTicks::now()?;
        let own = processor_time()?.saturating_sub(self.used).as_secs_f64() * TICKS_PER_SECOND;
        let all = (now.all - self.machine.all) as f64;
        let busy = now.busy.saturating_sub(self.machine.busy) as f64;
        // A period shorter than a second is too short for ticks of 10 ms.
        (all >= TICKS_PER_SECOND).then(|| (100.0 * (busy - own) / all).clamp(0.0, 100.0))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn memory_and_processor_time_of_the_own_process_are_measured() {
        // Other tests of this process may free memory at the same time, but not in every attempt.
        // The blocks are kept, because the allocator may reuse a freed block without more memory.
        let mut blocks = Vec::new();
        let mut sees_a_block = || {
            let before = resident_bytes().unwrap();
            blocks.push(std::hint::black_box(vec![1u8; 32 << 20]));
            resident_bytes().unwrap() >= before + (16 << 20)
        };
        assert!((0..20).any(|_| sees_a_block()));
        let meter = ProcessorMeter::start().unwrap();
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(50) {
            std::hint::spin_loop();
        }
        assert!(meter.percent_of_a_core().unwrap() > 10.0);
    }
}
