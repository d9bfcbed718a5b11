//! Tables of any key and value type, and errors of their records.

use std::fmt;

use braiddb::{Error, Table, Transaction};

use crate::codec::{KeyType, Malformed, ValueType, to_hex};

/// A table of any key and value type.
#[derive(Clone, Debug)]
pub struct AnyTable {
    pub name: String,
    /// The table with encoded keys and values.
    pub records: Table<[u8], [u8]>,
    pub key: KeyType,
    pub value: ValueType,
    /// The table is paged.
    pub paged: bool,
}

impl AnyTable {
    /// Opens an existing table.
    pub async fn open(tx: &Transaction, name: &str) -> Result<Self, Error> {
        let (records, description) = tx.open_encoded_table(name).await?;
        let key = KeyType::named(&description.key_type);
        let value = ValueType::named(&description.value_type, &description.shapes);
        Ok(Self { name: name.to_owned(), records, key, value, paged: description.options.paged })
    }

    /// Opens a table, or creates one with text keys and values.
    pub async fn open_or_create(tx: &Transaction, name: &str) -> Result<Self, Error> {
        match Self::open(tx, name).await {
            Err(Error::TableNotFound(_)) => {
                let _: Table<str, str> = tx.open_or_create_table(name).await?;
                Self::open(tx, name).await
            }
            opened => opened,
        }
    }

    /// Returns the encoded value of an encoded key.
    pub async fn get(&self, tx: &Transaction, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(tx.get(&self.records, key).await?.map(<[u8]>::to_vec))
    }

    /// Appends a key as text.
    ///
    /// # Errors
    /// If it is not of the table's type.
    pub fn append_key_text(&self, key: &[u8], out: &mut Vec<u8>) -> Result<(), RecordError> {
        self.key.append_text(key, out).map_err(|error| self.wrong_key(key, error))
    }

    /// Appends a key as JSON.
    ///
    /// # Errors
    /// If it is not of the table's type.
    pub fn append_key_json(&self, key: &[u8], out: &mut Vec<u8>) -> Result<(), RecordError> {
        self.key.append_json(key, out).map_err(|error| self.wrong_key(key, error))
    }

    /// Appends the value of a key as text.
    ///
    /// # Errors
    /// If it is not of the table's type.
    pub fn append_text(
        &self,
        key: &[u8],
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), RecordError> {
        self.value.append_text(value, out).map_err(|error| self.wrong_value(key, error))
    }

    /// Appends the value of a key as JSON on one line.
    ///
    /// # Errors
    /// If it is not of the table's type.
    pub fn append_json(
        &self,
        key: &[u8],
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), RecordError> {
        self.value.append_json(value, out).map_err(|error| self.wrong_value(key, error))
    }

    fn wrong_key(&self, key: &[u8], malformed: Malformed) -> RecordError {
        RecordError { table: self.name.clone(), key: to_hex(key), of_key: true, malformed }
    }

    fn wrong_value(&self, key: &[u8], malformed: Malformed) -> RecordError {
        let mut shown = Vec::new();
        let key = match self.key.append_text(key, &mut shown) {
            Ok(()) => String::from_utf8_lossy(&shown).into_owned(),
            Err(_) => to_hex(key),
        };
        RecordError { table: self.name.clone(), key, of_key: false, malformed }
    }
}

/// A record whose key or value is not of its table's type.
#[derive(Debug)]
pub struct RecordError {
    table: String,
    key: String,
    /// The key is malformed, not the value.
    of_key: bool,
    malformed: Malformed,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, key, of_key, malformed } = self;
        let part = if *of_key { "the key" } else { "the value of key" };
        write!(
            f,
            "{part} {key:?} in table {table:?} is malformed {malformed}; a program wrote it with \
             another type, or the database is damaged: run braid check"
        )
    }
}

impl std::error::Error for RecordError {}
