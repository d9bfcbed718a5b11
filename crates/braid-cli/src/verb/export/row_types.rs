//! The types of the columns of a CSV file whose header names them, determined in a pass over the
//! records.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;

use super::reader::Reader;
use super::row_format::{Content, RowFormat, not_an_object, object_text};
use crate::codec::json_text::Fields;
use crate::column_type::{CellType, ColumnType};
use crate::query::Record;

/// The values that occur in a column.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    kind: Option<CellType>,
    /// A value has other JSON than the key of its record, for which the column is named.
    differs: bool,
}

impl RowFormat {
    /// Determines the types of the columns.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn type_columns(&mut self, reader: &Reader<'_>) -> Result<()> {
        let columns = self.columns();
        let seen = Arc::new(Mutex::new(vec![Seen::default(); columns.len()]));
        let (rows, names, shared) = (self.clone(), columns.clone(), seen.clone());
        reader.each(move |record| {
            rows.see(record, &names, &mut shared.lock().unwrap_or_else(PoisonError::into_inner))
        })?;
        let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        let types = columns.iter().zip(&*seen).map(|(name, seen)| {
            let values = seen.kind.unwrap_or(CellType::Text);
            match self.key.iter().position(|key| key == name) {
                None => ColumnType::Values(values),
                Some(part) if seen.differs => {
                    ColumnType::KeysAs(self.key_types[part].clone(), values)
                }
                Some(part) => ColumnType::Keys(self.key_types[part].clone()),
            }
        });
        self.types = Some(types.collect());
        Ok(())
    }

    /// Adds the values of a record.
    fn see(&self, record: &Record<'_>, columns: &[String], seen: &mut [Seen]) -> Result<()> {
        let object = match &self.content {
            Content::Fields(_) => object_text(&self.table, record),
            Content::Pair(_) | Content::Chosen(_) => String::new(),
        };
        let fields = match &self.content {
            Content::Fields(_) => {
                Some(Fields::parse(&object).map_err(|reason| not_an_object(&reason))?)
            }
            Content::Pair(_) | Content::Chosen(_) => None,
        };
        for (name, seen) in columns.iter().zip(seen) {
            let key = self.key.contains(name).then(|| record.column(name)).flatten();
            let json = match (&fields, &self.content) {
                (Some(fields), _) => fields.get(name).or(key),
                (None, Content::Pair(value)) if value == name => Some(&*record.value),
                (None, _) => record.column(name),
            };
            seen.differs |= key.is_some() && json != key;
            seen.kind = CellType::of_both(seen.kind, json.and_then(CellType::of));
        }
        Ok(())
    }
}
