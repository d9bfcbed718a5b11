//! Questions about the records of a table: conditions, columns, counts and orders.
//!
//! The columns of a record are its key, the fields of its value, and parts of fields by their path,
//! such as `address.city`. A value that is no object is one column.

mod condition;
mod names;
mod order;
mod value;

use std::io::Write;

use anyhow::{Result, bail};
use braiddb::InteractiveTransaction;

use self::condition::Condition;
use self::order::{OrderColumn, Sorter};
#[cfg(feature = "parquet")]
pub use self::value::Comparable;
use crate::any_table::{AnyTable, RecordError};
use crate::arguments::Questions;
use crate::codec::json_text::Fields;
use crate::verb::pages::{self, Append, Range};

/// The names of the columns of the key and of a value that is no object.
#[derive(Clone, Debug)]
pub struct ColumnNames {
    /// One, or one for each part of a tuple.
    pub key: Vec<String>,
    pub value: String,
}

impl Default for ColumnNames {
    fn default() -> Self {
        Self { key: vec!["key".to_owned()], value: "value".to_owned() }
    }
}

/// A question about the records of a table.
#[derive(Clone, Debug)]
pub struct Query {
    table: AnyTable,
    names: ColumnNames,
    conditions: Vec<Condition>,
    /// The chosen columns.
    pub columns: Option<Vec<String>>,
    order: Vec<OrderColumn>,
    pub count: bool,
}

impl Query {
    /// The question that the arguments ask.
    ///
    /// # Errors
    /// If a condition or an order is malformed.
    pub fn new(table: AnyTable, names: ColumnNames, asked: &Questions) -> Result<Self> {
        let mut conditions = Vec::new();
        for word in &asked.conditions {
            match Condition::parse(word) {
                Ok(condition) => conditions.push(condition),
                Err(reason) => bail!("--where {word:?}: {reason}"),
            }
        }
        let mut order = Vec::new();
        for word in asked.order.iter().flatten() {
            match OrderColumn::parse(word) {
                Ok(column) => order.push(column),
                Err(reason) => bail!("--order {word:?}: {reason}"),
            }
        }
        let columns = asked.columns.clone();
        Ok(Self { table, names, conditions, columns, order, count: asked.count })
    }

    /// Returns whether it asks for all records in key order.
    fn is_plain(&self) -> bool {
        self.conditions.is_empty() && self.order.is_empty() && !self.count
    }

    /// Reads a record.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn record(&self, key: &[u8], value: &[u8]) -> Result<Record<'_>, RecordError> {
        let json = |append: &dyn Fn(&mut Vec<u8>) -> Result<(), RecordError>| {
            let mut json = Vec::new();
            append(&mut json)?;
            Ok(String::from_utf8(json).expect("the codec appends text"))
        };
        Ok(Record {
            names: &self.names,
            key: json(&|out| self.table.append_key_json(key, out))?,
            value: json(&|out| self.table.append_json(key, value, out))?,
        })
    }

    /// Writes the records of a range that the question asks for, each formatted by `append`, in
    /// their order. Returns their number. A count writes nothing.
    ///
    /// # Errors
    /// If a column does not exist in the table, with a list of those that exist; errors of reading,
    /// of `append` and of the output.
    pub fn write(
        &self,
        transaction: &InteractiveTransaction,
        range: Range,
        append: impl Append,
        mut out: impl Write + Send,
    ) -> Result<u64> {
        self.check_names(transaction)?;
        if self.is_plain() {
            return pages::write(transaction, &self.table, range, append, out);
        }
        let query = self.clone();
        let answer = move |page: &mut Vec<u8>, key: &[u8], value: &[u8]| {
            let record = query.record(key, value)?;
            let is_met = |condition: &Condition| condition.is_met(record.column(&condition.column));
            if !query.conditions.iter().all(is_met) {
                return Ok(false);
            }
            if query.count {
                return Ok(true);
            }
            if query.order.is_empty() {
                return append(page, key, value);
            }
            let columns = query.order.iter().map(|order| record.column(&order.column));
            let columns: Vec<Option<String>> =
                columns.map(|json| json.map(str::to_owned)).collect();
            let mut row = Vec::new();
            if append(&mut row, key, value)? {
                order::append(page, &columns, &row);
            }
            Ok(true)
        };
        if self.order.is_empty() || self.count {
            return pages::write(transaction, &self.table, range, answer, out);
        }
        let mut sorter = Sorter::new(self.order.clone(), range.limit, order::MAX_BYTES);
        let all = Range { limit: u64::MAX, ..range };
        pages::write(transaction, &self.table, all, answer, &mut sorter)?;
        let mut rows = 0;
        for row in sorter.finish() {
            out.write_all(&row)?;
            rows += 1;
        }
        out.flush()?;
        Ok(rows)
    }
}

/// A record as JSON.
pub struct Record<'q> {
    names: &'q ColumnNames,
    pub key: String,
    pub value: String,
}

impl Record<'_> {
    /// The JSON of a column, or `None` if the record does not have it.
    pub fn column(&self, name: &str) -> Option<&str> {
        match &self.names.key[..] {
            [key] if key == name => return Some(&self.key),
            parts => {
                if let Some(number) = parts.iter().position(|part| part == name) {
                    return value::part(&self.key, &number.to_string());
                }
            }
        }
        let in_value = value::part(&self.value, name);
        let in_value = in_value.or_else(|| self.field(name));
        match in_value {
            None if name == self.names.value => Some(&self.value),
            // Parts of a tuple.
            None => {
                let (first, path) = name.split_once('.')?;
                let whole = match first {
                    first if self.names.key[..] == [first] => &self.key,
                    first if first == self.names.value => &self.value,
                    _ => return None,
                };
                value::part(whole, path)
            }
            found => found,
        }
    }

    /// The field whose whole name this is, even if it contains points.
    fn field(&self, name: &str) -> Option<&str> {
        if name.contains('.') { value::field(&self.value, name) } else { None }
    }

    /// The names of the columns.
    pub fn columns(&self) -> Vec<String> {
        let mut names = self.names.key.clone();
        match Fields::parse(&self.value) {
            Ok(fields) => {
                for (name, _) in fields.iter() {
                    if !names.iter().any(|other| other == name) {
                        names.push(name.to_owned());
                    }
                }
            }
            Err(_) => names.push(self.names.value.clone()),
        }
        names
    }

    /// Appends the chosen columns as a JSON object.
    pub fn append_object(&self, columns: &[String], out: &mut Vec<u8>) {
        out.push(b'{');
        for (number, name) in columns.iter().enumerate() {
            if number > 0 {
                out.push(b',');
            }
            crate::codec::append_json(name, out);
            out.push(b':');
            out.extend_from_slice(self.column(name).unwrap_or("null").as_bytes());
        }
        out.push(b'}');
    }
}
