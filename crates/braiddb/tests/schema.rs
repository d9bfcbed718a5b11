//! Types that are renamed, moved and changed while records of them are stored.

mod common;
#[path = "schema/depth.rs"]
mod depth;
#[path = "schema/named_fields.rs"]
mod named_fields;

use std::collections::{BTreeMap, HashMap};

use braiddb::{Database, DecodeError, Error, Misuse, Options, Postcard, Schema, Table};
use common::{Watched, with_limit};
use pollster::block_on;
use serde::{Deserialize, Serialize};

const LIMIT_SECONDS: u64 = 120;

mod before {
    use super::*;

    #[derive(Serialize, Deserialize, Debug, PartialEq, Clone)]
    pub(crate) struct Account {
        pub(crate) owner: String,
        pub(crate) cents: i64,
    }

    impl Schema for Account {
        const NAME: &'static str = "account";
    }
}

use before::Account;

/// The same type with another name, in another module.
#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Renamed {
    owner: String,
    cents: i64,
}

impl Schema for Renamed {
    const NAME: &'static str = "account";
}

/// One more field, without any annotation.
#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Forgotten {
    owner: String,
    cents: i64,
    limit: i64,
}

impl Schema for Forgotten {
    const NAME: &'static str = "account";
}

/// One more field, and a version that reads only itself.
#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Raised {
    owner: String,
    cents: i64,
    limit: i64,
}

impl Schema for Raised {
    const NAME: &'static str = "account";
    const VERSION: u32 = 2;
}

/// One more field, and a version that also reads the older one.
#[derive(Serialize, Deserialize, Debug, PartialEq, Clone)]
struct Upgraded {
    owner: String,
    cents: i64,
    limit: i64,
}

impl Schema for Upgraded {
    const NAME: &'static str = "account";
    const VERSION: u32 = 2;
    const OLDEST: u32 = 1;

    fn upgrade(version: u32, bytes: &[u8]) -> Result<Self, DecodeError> {
        assert_eq!(version, 1);
        let Account { owner, cents } =
            postcard::from_bytes(bytes).map_err(|_| DecodeError::new("an account of version 1"))?;
        Ok(Self { owner, cents, limit: 5 })
    }
}

fn ada() -> Account {
    Account { owner: "ada".to_owned(), cents: 250 }
}

fn filled() -> Database {
    let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
    let table: Table<u64, Postcard<Account>> = block_on(db.create_table("accounts")).unwrap();
    block_on(db.put(&table, &7, &ada())).unwrap();
    db
}

/// Returns the error of opening the table with another type.
fn refused<T: Schema>(db: &Database) -> String {
    match block_on(db.open_table::<u64, Postcard<T>>("accounts")) {
        Err(error @ Error::Misuse(Misuse::TableType { .. })) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_error_names_only_the_types_that_differ() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = filled();
        let told = |opened: Result<(), Error>| opened.unwrap_err().to_string();
        let keys = "keys of type u64, but was opened with keys of type str; \
                    open it with the types it was created with";
        let values = "account {owner: str, cents: i64}";
        // A newer version of the values makes no difference.
        let wrong_keys = [
            told(block_on(db.open_table::<str, Postcard<Account>>("accounts")).map(drop)),
            told(block_on(db.open_table::<str, Postcard<Upgraded>>("accounts")).map(drop)),
        ];
        assert_eq!(wrong_keys, [(); 2].map(|()| format!("table \"accounts\" holds {keys}")));
        let told_values = told(block_on(db.open_table::<u64, str>("accounts")).map(drop));
        assert_eq!(
            told_values,
            format!(
                "table \"accounts\" holds values of type postcard {values}, but was opened with \
                 values of type str; open it with the types it was created with"
            )
        );
        let both = told(block_on(db.open_table::<str, str>("accounts")).map(drop));
        assert!(both.contains("keys of type u64 and values of type postcard account"), "{both}");
        assert!(both.contains("with keys of type str and values of type str;"), "{both}");
    });
}

#[test]
fn a_renamed_and_moved_type_reads_its_old_records() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = filled();
        let table: Table<u64, Postcard<Renamed>> = block_on(db.open_table("accounts")).unwrap();
        let read = block_on(db.get(&table, &7)).unwrap().unwrap();
        assert_eq!(read, Renamed { owner: "ada".to_owned(), cents: 250 });
    });
}

#[test]
fn opening_reports_a_changed_type_and_the_remedy() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = filled();
        let told = refused::<Forgotten>(&db);
        assert!(told.contains("account {owner: str, cents: i64}"), "{told}");
        assert!(told.contains("account {owner: str, cents: i64, limit: i64}"), "{told}");
        assert!(told.contains("raise its `Schema::VERSION`"), "{told}");
        let told = refused::<Raised>(&db);
        assert!(told.contains("read version 1 of account in `Schema::upgrade`"), "{told}");
        let told = refused::<Vec<Account>>(&db);
        assert!(told.ends_with("open it with the types it was created with"), "{told}");
        let many: Table<u64, Postcard<Vec<Account>>> = block_on(db.create_table("many")).unwrap();
        block_on(db.put(&many, &1, &vec![ada()])).unwrap();
        let told = block_on(db.open_table::<u64, Postcard<Vec<Upgraded>>>("many")).unwrap_err();
        assert!(told.to_string().contains("store a type of your own around it"), "{told}");
        let told = refused::<(u8, u8)>(&db);
        assert!(told.contains("open it with the types it was created with"), "{told}");
    });
}

#[test]
fn an_older_version_is_read_compared_and_replaced() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let open =
            || Database::open(directory.path(), Options::default().workers(1)).unwrap().watched();
        let old = open();
        let table: Table<u64, Postcard<Account>> = block_on(old.create_table("accounts")).unwrap();
        for key in [7, 8] {
            block_on(old.put(&table, &key, &ada())).unwrap();
        }
        old.close().unwrap();

        let new = open();
        // A read-only program can open and read it.
        let read = new.transaction().read_only(true).run(async |tx| {
            let table: Table<u64, Postcard<Upgraded>> = tx.open_table("accounts").await?;
            tx.contains(&table, &8).await
        });
        assert!(pollster::block_on(read).unwrap().value);
        let table: Table<u64, Postcard<Upgraded>> = block_on(new.open_table("accounts")).unwrap();
        let upgraded = Upgraded { owner: "ada".to_owned(), cents: 250, limit: 5 };
        assert_eq!(block_on(new.get(&table, &7)).unwrap(), Some(upgraded.clone()));
        let (accounts, expected) = (table.clone(), upgraded.clone());
        let richer = Upgraded { limit: 9, ..upgraded.clone() };
        let replaced = richer.clone();
        let set = new.run_blocking(async move |tx| {
            assert!(!tx.compare_and_set(&accounts, &7, Some(&richer), None).await?);
            tx.compare_and_set(&accounts, &7, Some(&expected), Some(&richer)).await
        });
        assert!(set.unwrap());
        assert_eq!(block_on(new.get(&table, &7)).unwrap(), Some(replaced.clone()));
        assert_eq!(block_on(new.get(&table, &8)).unwrap(), Some(upgraded));
        // The catalog records permanently that a newer program was here.
        new.close().unwrap();
        let old = open();
        let told = refused::<Account>(&old);
        assert!(told.contains("a newer program wrote version 2 of account"), "{told}");
        let table: Table<u64, Postcard<Upgraded>> = block_on(old.open_table("accounts")).unwrap();
        assert_eq!(block_on(old.get(&table, &7)).unwrap(), Some(replaced));
    });
}

/// An enum that postcard can write but not read.
#[derive(Serialize, Deserialize, Debug, PartialEq)]
#[serde(tag = "kind")]
enum Tagged {
    Circle { radius: u32 },
    Square { side: u32 },
}

impl Schema for Tagged {
    const NAME: &'static str = "shape";
}

/// A type around another: the inner type is compared.
#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Wrapped(Account);

impl Schema for Wrapped {
    const NAME: &'static str = "account";
}

#[test]
fn values_that_could_not_be_decoded_are_rejected() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = filled();
        let created = block_on(db.create_table::<u64, Postcard<Tagged>>("shapes"));
        assert!(matches!(&created, Err(Error::Misuse(Misuse::Encode(_)))), "{created:?}");
        assert!(created.unwrap_err().to_string().contains("store it as Json"));
        assert!(block_on(db.stage_table::<u64, Postcard<Tagged>>("shapes")).is_err());
        let table: Table<u64, Postcard<Wrapped>> = block_on(db.open_table("accounts")).unwrap();
        assert_eq!(block_on(db.get(&table, &7)).unwrap(), Some(Wrapped(ada())));
    });
}

/// The catalog stores names of types on disk, so they must not change.
#[test]
fn names_of_composed_types_are_stable() {
    with_limit(LIMIT_SECONDS, |_| {
        type Many = (Vec<Option<Account>>, BTreeMap<String, u8>, HashMap<u16, (bool, Box<f64>)>);
        let expected = "(Vec<Option<account {owner, cents}>>, Map<str, u8>, Map<u16, (bool, f64)>)";
        assert_eq!(Many::name(), expected);
        assert_eq!(
            <Postcard<Many> as braiddb::Value>::type_name(),
            format!(
                "postcard {expected} = (Vec<Option<{{owner: str, cents: i64}}>>, Map<str, u8>, \
                 Map<u16, (bool, f64)>)"
            )
        );
        assert_eq!(<Vec<Upgraded>>::name(), "Vec<account v2 {owner, cents, limit}>");
    });
}

/// A value of an unknown version is reported; other values are read.
#[test]
fn unknown_versions_and_truncated_values_fail() {
    with_limit(LIMIT_SECONDS, |_| {
        use braiddb::Value;
        let value = Upgraded { owner: "ada".to_owned(), cents: 1, limit: 2 };
        let encoded = <Postcard<Upgraded>>::encode(&value).unwrap();
        assert!(
            <Postcard<Account>>::decode(&encoded).unwrap_err().to_string().contains("but of 2")
        );
        for length in 0..encoded.len() {
            assert!(<Postcard<Upgraded>>::decode(&encoded[..length]).is_err(), "{length}");
        }
        assert!(<Postcard<u8>>::decode(&[1, 2, 3]).is_err());
    });
}
