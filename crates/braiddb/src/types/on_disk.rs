//! On-disk structures: little-endian numbers and bytes, without alignment and without padding.

use bytemuck::{Pod, Zeroable};

/// A structure that can be written to disk and read in place.
pub(crate) trait OnDisk: Pod {
    /// Returns the bytes of the structure in their on-disk form.
    fn as_bytes(&self) -> &[u8] {
        bytemuck::bytes_of(self)
    }

    /// As `as_bytes`; `N` must be the structure's size.
    #[inline(always)]
    fn as_array<const N: usize>(&self) -> &[u8; N] {
        self.as_bytes().try_into().expect("the size of the structure")
    }

    /// Splits `bytes` into the structure at their start and the rest; `None` if they are too short.
    fn ref_from_prefix(bytes: &[u8]) -> Option<(&Self, &[u8])> {
        let (head, rest) = bytes.split_at_checked(size_of::<Self>())?;
        Some((bytemuck::from_bytes(head), rest))
    }
}

/// Defines a structure whose fields are [`OnDisk`] types, byte arrays or `u8`.
macro_rules! on_disk {
    ($(#[$attribute:meta])* $access:vis struct $name:ident {
        $($(#[$field_attribute:meta])* $field_access:vis $field:ident: $kind:ty,)*
    }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        $access struct $name {
            $($(#[$field_attribute])* $field_access $field: $kind,)*
        }

        const _: () = {
            const fn is_pod<T: bytemuck::Pod>() {}
            $(is_pod::<$kind>();)*
            // Without alignment, a `repr(C)` structure has no padding.
            assert!(align_of::<$name>() == 1);
        };

        // SAFETY: each field is `Pod`, as checked above, so zeros are a valid value.
        unsafe impl bytemuck::Zeroable for $name {}
        // SAFETY: `repr(C)`, each field is `Pod`, and there is no padding; both are checked above.
        unsafe impl bytemuck::Pod for $name {}
        impl $crate::types::OnDisk for $name {}
    };
}
pub(crate) use on_disk;

macro_rules! little_endian {
    ($($name:ident: $number:ty,)*) => {
        $(
            #[doc = concat!("A `", stringify!($number), "` in little-endian order, at any address.")]
            #[derive(Clone, Copy, PartialEq, Eq)]
            #[repr(transparent)]
            pub(crate) struct $name([u8; size_of::<$number>()]);

            // SAFETY: transparent over an array of bytes, of which zeros are a valid value.
            unsafe impl Zeroable for $name {}
            // SAFETY: transparent over an array of bytes, which is `Pod`.
            unsafe impl Pod for $name {}

            impl $name {
                pub(crate) const fn new(number: $number) -> Self {
                    Self(number.to_le_bytes())
                }

                pub(crate) const fn get(self) -> $number {
                    <$number>::from_le_bytes(self.0)
                }
            }

            impl From<$number> for $name {
                fn from(number: $number) -> Self {
                    Self::new(number)
                }
            }

            impl std::fmt::Debug for $name {
                fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    self.get().fmt(f)
                }
            }
        )*
    };
}

little_endian! {
    U16: u16,
    U32: u32,
    U64: u64,
}
