//! Atomics for controlled schedules: every access may switch threads, and detects use after free.

pub(crate) use std::sync::atomic::{Ordering, fence};

use super::finding::SwitchPoint;
use super::schedule::{point, takes_part};
use crate::sync::quarantine::{FREED, FREED_WORD};

const FREED_HALF: u32 = u32::from_ne_bytes([FREED; 4]);

macro_rules! wrappers {
    ($($name:ident: $value:ty $(, freed $freed:expr)?);* $(;)?) => { $(
        /// The standard library's type; each access is a switch point.
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub(crate) struct $name(std::sync::atomic::$name);

        #[allow(dead_code, reason = "the same for every type, whichever of it is used")]
        impl $name {
            pub(crate) const fn new(value: $value) -> Self {
                Self(std::sync::atomic::$name::new(value))
            }

            /// Passes the switch point before an access. Memory that was freed in the meantime is
            /// detected.
            #[inline]
            #[track_caller]
            fn pass(&self, kind: SwitchPoint) {
                point(kind);
                $(if takes_part() {
                    // Relaxed: only the holder of the baton runs.
                    assert!(self.0.load(Ordering::Relaxed) != $freed, "used after it was freed");
                })?
            }

            #[inline]
            #[track_caller]
            pub(crate) fn load(&self, order: Ordering) -> $value {
                self.pass(SwitchPoint::Load);
                self.0.load(order)
            }

            #[inline]
            #[track_caller]
            pub(crate) fn store(&self, value: $value, order: Ordering) {
                self.pass(SwitchPoint::Store);
                self.0.store(value, order);
            }

            #[inline]
            #[track_caller]
            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                self.pass(SwitchPoint::Update);
                self.0.swap(value, order)
            }

            #[inline]
            #[track_caller]
            pub(crate) fn compare_exchange(
                &self,
                from: $value,
                to: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.pass(SwitchPoint::Update);
                self.0.compare_exchange(from, to, success, failure)
            }

            /// Fails only if the value differs, so that a seed replays.
            #[inline]
            #[track_caller]
            pub(crate) fn compare_exchange_weak(
                &self,
                from: $value,
                to: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(from, to, success, failure)
            }

            pub(crate) fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }
        }
    )* };
}

macro_rules! arithmetic {
    ($($name:ident: $value:ty),* $(,)?) => { $(
        #[allow(dead_code, reason = "the same for every type, whichever of it is used")]
        impl $name {
            #[inline]
            #[track_caller]
            pub(crate) fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.pass(SwitchPoint::Update);
                self.0.fetch_add(value, order)
            }

            #[inline]
            #[track_caller]
            pub(crate) fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                self.pass(SwitchPoint::Update);
                self.0.fetch_sub(value, order)
            }

            #[inline]
            #[track_caller]
            pub(crate) fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                self.pass(SwitchPoint::Update);
                self.0.fetch_max(value, order)
            }

            #[inline]
            #[track_caller]
            pub(crate) fn fetch_min(&self, value: $value, order: Ordering) -> $value {
                self.pass(SwitchPoint::Update);
                self.0.fetch_min(value, order)
            }

            #[inline]
            #[track_caller]
            pub(crate) fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                self.pass(SwitchPoint::Update);
                self.0.fetch_or(value, order)
            }

            #[inline]
            #[track_caller]
            pub(crate) fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                self.pass(SwitchPoint::Update);
                self.0.fetch_and(value, order)
            }
        }
    )* };
}

wrappers! {
    AtomicBool: bool;
    AtomicU32: u32, freed FREED_HALF;
    AtomicU64: u64, freed FREED_WORD;
}
arithmetic! { AtomicU32: u32, AtomicU64: u64 }
