//! What the operating system says of this process: resident memory and processor time.
//!
//! Both are `None` where the system does not tell (not Linux); reports then leave the line out.

use std::time::{Duration, Instant};

/// Bytes of this process in physical memory now.
pub fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * page_bytes())
}

/// Bytes of memory the system could still give without swapping.
pub fn available_bytes() -> Option<u64> {
    meminfo("MemAvailable:")
}

/// One line of `/proc/meminfo`, in bytes.
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

/// Binds the calling thread to a core, as workers are bound; without effect where the system
/// refuses.
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

/// Lets the calling thread's sleeps end when they are to, not up to 50 µs later; without effect where
/// the system refuses.
pub fn sleep_exactly() {
    // SAFETY: changes one attribute of the calling thread, and touches no memory.
    #[cfg(target_os = "linux")]
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong);
    }
}

/// Processor time of all threads of this process, user and system.
fn processor_time() -> Option<Duration> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is a place for one rusage, which the call fills.
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

/// Measures how much of one core this process used over a while.
#[derive(Debug)]
pub struct ProcessorMeter {
    started: Instant,
    used: Duration,
}

impl ProcessorMeter {
    /// Starts measuring; `None` where the system keeps no such account.
    pub fn start() -> Option<Self> {
        Some(Self { used: processor_time()?, started: Instant::now() })
    }

    /// Percent of one core used since the start, over all threads (200 = two whole cores).
    pub fn percent_of_a_core(&self) -> Option<f64> {
        let used = processor_time()?.saturating_sub(self.used);
        let elapsed = self.started.elapsed();
        assert!(!elapsed.is_zero(), "time passes between two readings of the clock");
        Some(100.0 * used.as_secs_f64() / elapsed.as_secs_f64())
    }
}

/// Measures how much of the machine others took over a while: other processes, and the host of a
/// virtual machine (stolen time).
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
        // user, nice, system, idle, iowait, irq, softirq, steal; guests count as users already.
        let ticks: Vec<u64> = fields.take(8).map_while(|field| field.parse().ok()).collect();
        let (all, idle) = (ticks.iter().sum::<u64>(), ticks.get(3)? + ticks.get(4)?);
        Some(Self { busy: all - idle, all })
    }
}

impl OthersMeter {
    /// Starts measuring; `None` where the system keeps no such account.
    pub fn start() -> Option<Self> {
        Some(Self { used: processor_time()?, machine: MachineTicks::now()? })
    }

    /// Percent of the machine's processor time that others took since the start.
    pub fn percent(&self) -> Option<f64> {
        const TICKS_PER_SECOND: f64 = 100.0;
        let now = MachineTicks::now()?;
        let own = processor_time()?.saturating_sub(self.used).as_secs_f64() * TICKS_PER_SECOND;
        let all = (now.all - self.machine.all) as f64;
        let busy = now.busy.saturating_sub(self.machine.busy) as f64;
        // Too short a while for ticks of 10 ms tells nothing.
        (all >= TICKS_PER_SECOND).then(|| (100.0 * (busy - own) / all).clamp(0.0, 100.0))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn sees_its_own_memory_and_work() {
        // Other tests of this process give memory back meanwhile, but not every time. Blocks are kept: one
        // that was freed may be handed out again without being more.
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
