//! Wake-up event of a sleeping device.
//!
//! An eventfd is a counter, so a wait also detects a notification that preceded it.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::Notify;

/// An eventfd.
#[derive(Debug)]
pub(super) struct EventFd(OwnedFd);

impl EventFd {
    /// Creates an event; reads of it block unless `nonblocking` is true.
    pub(super) fn new(nonblocking: bool) -> std::io::Result<Self> {
        let flags = libc::EFD_CLOEXEC | if nonblocking { libc::EFD_NONBLOCK } else { 0 };
        // SAFETY: takes no pointers.
        let descriptor = unsafe { libc::eventfd(0, flags) };
        if descriptor < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: just created, and has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Consumes the notifications so far. Returns whether any existed.
    pub(super) fn take(&self) -> bool {
        let mut count = 0u64;
        // SAFETY: reads 8 bytes into `count`.
        let read = unsafe { libc::read(self.descriptor(), (&raw mut count).cast(), 8) };
        read == 8
    }
}

impl Notify for EventFd {
    fn notify(&self) {
        let one = 1u64;
        // SAFETY: writes 8 bytes of `one`. It can only fail when the counter is full, and then the
        // reader is due to wake anyway.
        unsafe { libc::write(self.descriptor(), (&raw const one).cast(), 8) };
    }
}
