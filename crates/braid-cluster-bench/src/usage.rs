//! Resources that a process used, from `/proc`.

use std::fs::read_to_string;

use serde::{Deserialize, Serialize};

/// Resources that a process used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Bytes that the process caused to be written to disks.
    pub disk_bytes: u64,
    /// Bytes of messages that the node sent to others, and of their answers, without frames.
    pub network_bytes: u64,
    /// Messages that the node sent to others.
    pub messages: u64,
    /// Processor time in milliseconds.
    pub processor_ms: u64,
}

impl Usage {
    /// Returns what this process used until now, without the network.
    pub fn of_process() -> Self {
        let io = read_to_string("/proc/self/io").unwrap_or_default();
        let written = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
        let stat = read_to_string("/proc/self/stat").unwrap_or_default();
        // The name of the program is in brackets and may contain spaces.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
        // User and system time, in ticks of 10 ms.
        let ticks: u64 =
            fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        Self {
            disk_bytes: written.and_then(|bytes| bytes.parse().ok()).unwrap_or(0),
            processor_ms: ticks * 10,
            ..Self::default()
        }
    }

    /// Returns what was used since an earlier moment.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            disk_bytes: self.disk_bytes - earlier.disk_bytes,
            network_bytes: self.network_bytes - earlier.network_bytes,
            messages: self.messages - earlier.messages,
            processor_ms: self.processor_ms - earlier.processor_ms,
        }
    }

    /// Adds what another process used.
    pub fn add(&mut self, other: &Self) {
        self.disk_bytes += other.disk_bytes;
        self.network_bytes += other.network_bytes;
        self.messages += other.messages;
        self.processor_ms += other.processor_ms;
    }
}

#[cfg(test)]
mod tests {
    use super::Usage;

    #[test]
    fn the_processor_time_of_the_process_grows() {
        let before = Usage::of_process();
        let mut sum = 0u64;
        while Usage::of_process().since(&before).processor_ms == 0 {
            sum = (0..1_000_000).fold(sum, |sum, number| sum.rotate_left(1) ^ number);
        }
        assert_ne!(sum, 1);
    }
}
