//! The structure of the values of one version of a type.

/// The structure of the values of one version of a type, as the catalog lists it. It suffices to
/// decode them without the program.
///
/// ```
/// use braiddb::{Database, Error, Options, Postcard, block_on};
///
/// fn main() -> Result<(), Error> {
///     block_on(async {
///         let db = Database::in_memory(Options::default().workers(1))?;
///         db.create_table::<u64, Postcard<(u8, String)>>("pairs").await?;
///         let tables = db.tables().await?;
///         let shape = &tables[0].shapes[0];
///         assert_eq!((shape.version, &*shape.shape), (1, "(u8, str)"));
///         Ok(())
///     })
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct ValueShape {
    /// The version of the type ([`Schema::VERSION`](crate::Schema::VERSION)).
    pub version: u32,
    /// The structure: types of fields, elements and variants. `docs/format.md` specifies the text.
    pub shape: String,
}

impl ValueShape {
    pub(crate) fn new(version: u32, shape: String) -> Self {
        Self { version, shape }
    }
}
