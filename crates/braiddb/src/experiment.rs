//! Parts of the engine by themselves, to be measured.
//!
//! ```
//! use braiddb::HoleTracker;
//! use braiddb::experiment::TrackerDrive;
//!
//! let drive = TrackerDrive::new(HoleTracker::Grasshopper).threads(2).blocks(1000);
//! assert_eq!(drive.run()?.bytes, 2 * 1000 * 128);
//! # Ok::<_, std::io::Error>(())
//! ```

pub use crate::log::{TrackerDrive, TrackerDriven};
