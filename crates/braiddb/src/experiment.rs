//! Parts of the engine to be measured separately; only in builds with `feature = "experiment"`.
//!
//! ```
//! use braiddb::HoleTracker;
//! use braiddb::experiment::TrackerDrive;
//!
//! fn main() -> Result<(), std::io::Error> {
//!     let driven = TrackerDrive::new(HoleTracker::Grasshopper).threads(2).run()?;
//!     println!("{:?} a block", driven.elapsed / driven.blocks as u32);
//!     Ok(())
//! }
//! ```

pub use crate::database::load_onto_pages;
pub use crate::log::{TrackerDrive, TrackerDriveResult};
