//! Storage formats that name the fields of structs.

use braiddb::{Misuse, Value};

use super::*;

#[derive(Serialize, Deserialize, Debug, PartialEq, Clone)]
struct Wider {
    owner: String,
    #[serde(default)]
    limit: i64,
}

impl Schema for Wider {
    const NAME: &'static str = "account";
}

/// Fields are added and removed without any annotation.
fn fields_come_and_go<Old, New>()
where
    Old: Value<Input = Account>,
    New: Value<Input = Wider, Owned = Wider>,
{
    let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
    let old: Table<u64, Old> = block_on(db.create_table("t")).unwrap();
    block_on(db.put(&old, &7, &ada())).unwrap();
    let new: Table<u64, New> = block_on(db.open_table("t")).unwrap();
    let read = block_on(db.get(&new, &7)).unwrap().unwrap();
    assert_eq!(read, Wider { owner: "ada".to_owned(), limit: 0 });
    let set = db.run_blocking(async move |tx| {
        let other = Wider { limit: 1, ..read.clone() };
        assert!(!tx.compare_and_set(&new, &7, Some(&other), None).await?);
        tx.compare_and_set(&new, &7, Some(&read), None).await
    });
    assert!(set.unwrap(), "it is what was read");
    assert!(New::decode(&Old::encode(&ada()).unwrap()[1..]).is_err());
}

#[test]
fn formats_that_name_fields_accept_new_fields() {
    with_limit(LIMIT_SECONDS, |_| {
        fields_come_and_go::<braiddb::Json<Account>, braiddb::Json<Wider>>();
        fields_come_and_go::<braiddb::MessagePack<Account>, braiddb::MessagePack<Wider>>();
    });
}

/// Declares several types named `account`, as at different times.
macro_rules! accounts {
    ($($(#[$attribute:meta])* $name:ident { $($(#[$of_field:meta])* $field:ident: $kind:ty),* })*) => {$(
        #[derive(Serialize, Deserialize, Debug, PartialEq, Clone)]
        $(#[$attribute])*
        struct $name {
            $($(#[$of_field])* $field: $kind),*
        }

        impl Schema for $name {
            const NAME: &'static str = "account";
        }
    )*};
}

accounts! {
    Optional { owner: String, note: Option<String>, limit: Limit, #[serde(default)] cents: i64 }
    Needing { owner: String, note: String, limit: Limit }
    OwnerOnly { owner: String }
    #[serde(deny_unknown_fields)]
    StrictOwner { owner: String }
    OtherName { #[serde(alias = "owner")] holder: String, cents: i64 }
    Unreadable { owner: String, limit: Never, cents: i64 }
    #[serde(default)]
    #[derive(Default)]
    AllOptional { owner: String, cents: i64 }
    Flat { owner: String, #[serde(flatten)] others: BTreeMap<String, i64> }
    Nothing {}
    OddName { #[serde(rename = "sold?")] sold: bool, left: u8 }
}

#[derive(Serialize, Deserialize, Debug, PartialEq, Clone)]
enum Limit {
    Cents { cents: u32 },
    Nothing,
}

#[derive(Serialize, Deserialize, Debug, PartialEq, Clone)]
#[serde(try_from = "i64")]
struct Never(i64);

impl TryFrom<i64> for Never {
    type Error = &'static str;

    fn try_from(number: i64) -> Result<Self, &'static str> {
        if number == 77 { Ok(Self(number)) } else { Err("not 77") }
    }
}

/// A type that does not describe its fields.
#[derive(Serialize, Debug)]
struct ByHand {
    owner: String,
}

impl<'de> Deserialize<'de> for ByHand {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> serde::de::Visitor<'de> for Fields {
            type Value = ByHand;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<ByHand, A::Error> {
                match map.next_entry::<String, String>()? {
                    Some((_, owner)) => Ok(ByHand { owner }),
                    None => Err(serde::de::Error::missing_field("owner")),
                }
            }
        }

        deserializer.deserialize_struct("ByHand", &[], Fields)
    }
}

impl Schema for ByHand {
    const NAME: &'static str = "account";
}

fn told<Format: Value>(stored: &str) -> String {
    let format = Format::type_name();
    let format = format.split(' ').next().unwrap();
    Format::reads(&format!("{format} {stored}")).err().unwrap_or_default()
}

/// The same type in JSON and MessagePack.
macro_rules! in_format {
    ($format:ident) => {
        fn named<T: Schema>() -> String {
            let name = <braiddb::$format<T>>::type_name();
            name.split_once(' ').unwrap().1.to_owned()
        }
        fn is_read<T: Schema>(stored: &str) -> bool {
            told::<braiddb::$format<T>>(stored).is_empty()
        }
        assert_eq!(named::<Account>(), "account {owner, cents}");
        assert_eq!(named::<Wider>(), "account {owner, limit?}");
        assert_eq!(named::<Optional>(), "account {owner, note?, limit, cents?} limit.Cents {cents}");
        assert_eq!(named::<Unreadable>(), "account {owner, limit, cents}");
        assert_eq!(named::<AllOptional>(), "account {owner?, cents?}");
        assert_eq!(named::<Flat>(), "account");
        assert_eq!(named::<Nothing>(), "account {}");
        assert_eq!(named::<OddName>(), "account");
        assert_eq!(named::<ByHand>(), "account {}");
        assert!(is_read::<ByHand>("account {}"), "its fields are not known");
        assert_eq!(named::<Vec<Account>>(), "Vec<account {owner, cents}>");

        let new = told::<braiddb::$format<Forgotten>>("account {owner, cents}");
        assert_eq!(
            new,
            "field `limit` is new and has no `#[serde(default)]`: records stored before it cannot be read; give it a \
             default"
        );
        let gone = told::<braiddb::$format<StrictOwner>>("account {owner, cents?}");
        assert!(gone.contains("records have the field `cents`"), "{gone}");
        assert!(is_read::<StrictOwner>("account {owner}"));
        let optional = told::<braiddb::$format<Needing>>(&named::<Optional>());
        assert!(optional.contains("records may lack the field `note`"), "{optional}");
        assert!(is_read::<Forgotten>("account"), "older tables have no list");
        assert!(is_read::<Forgotten>("account {limit, of, cents, owner}"));
        assert!(is_read::<Wider>("account {owner}") && is_read::<AllOptional>("account {}"));
        assert!(is_read::<Wider>("account {owner, cents}"));
        assert!(is_read::<Optional>("account {owner, limit}"));
        assert!(is_read::<OtherName>("account {owner, cents}"));
        assert!(is_read::<OtherName>(&named::<OtherName>()));
        assert!(is_read::<Unreadable>("account {owner, limit}"), "nobody can tell");
        assert!(is_read::<Flat>("account {owner}") && is_read::<Nothing>("account {owner}"));
        assert!(!is_read::<Account>("accounts {owner}") && !is_read::<Account>("u64"));
        let changed = told::<braiddb::$format<Vec<Wider>>>("Vec<account {owner}>");
        assert!(changed.contains("store a type of your own around it"), "{changed}");
    };
}

#[test]
fn missing_fields_of_records_are_reported() {
    with_limit(LIMIT_SECONDS, |_| {
        {
            in_format!(Json);
        }
        {
            in_format!(MessagePack);
        }
    });
}

#[test]
fn opening_reports_a_new_field_without_a_default() {
    with_limit(LIMIT_SECONDS, |_| {
        use braiddb::Json;
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let open = |told: &str, opened: Result<(), Error>| match opened {
            Err(error @ Error::Misuse(Misuse::TableType { .. })) => {
                assert!(error.to_string().contains(told), "{error}");
            }
            other => panic!("{other:?}"),
        };
        let stored = || block_on(db.tables()).unwrap()[0].value_type.clone();
        let table: Table<u64, Json<OwnerOnly>> = block_on(db.create_table("t")).unwrap();
        block_on(db.put(&table, &1, &OwnerOnly { owner: "ada".to_owned() })).unwrap();
        let opened = block_on(db.open_table::<u64, Json<Account>>("t")).map(drop);
        open("field `cents` is new", opened);
        let table: Table<u64, Json<Wider>> = block_on(db.open_table("t")).unwrap();
        assert_eq!(block_on(db.get(&table, &1)).unwrap().unwrap().limit, 0);
        assert_eq!(stored(), "json account {owner, limit?}");
        let opened = block_on(db.open_table::<u64, Json<Forgotten>>("t")).map(drop);
        open("field `cents` is new", opened);
        // Some records lack the field, although the previous type had it.
        let opened = block_on(db.open_table::<u64, Json<WithLimit>>("t")).map(drop);
        open("records may lack the field `limit`", opened);
        assert_eq!(stored(), "json account {owner, limit?}");
    });
}

accounts! {
    WithLimit { owner: String, limit: i64 }
}

/// Parts of accounts at an earlier time.
mod first {
    use super::*;

    #[derive(Serialize, Deserialize, Default)]
    pub struct Address {
        pub street: String,
        pub zip: Option<u32>,
    }

    #[derive(Serialize, Deserialize)]
    pub struct Line {
        pub article: String,
        #[serde(default)]
        pub pieces: u32,
    }

    #[derive(Serialize, Deserialize)]
    pub enum Payment {
        Cash,
        Card { number: u64 },
        Bill(Address),
    }

    #[derive(Serialize, Deserialize)]
    pub struct Held {
        pub address: Address,
        pub lines: Vec<Line>,
        pub by_town: BTreeMap<String, Option<Address>>,
        pub pair: (u8, Line),
        pub payment: Payment,
        pub referred_by: Option<Box<Self>>,
    }
}

/// The parts at a later time: new fields have defaults.
mod second {
    use super::*;

    #[derive(Serialize, Deserialize, Default)]
    pub struct Address {
        pub street: String,
        #[serde(default)]
        pub town: String,
    }

    #[derive(Serialize, Deserialize)]
    pub enum Payment {
        Card {
            number: u64,
            #[serde(default)]
            until: u32,
        },
        Bill(Address),
        Cash,
        Later(Line),
    }

    #[derive(Serialize, Deserialize)]
    pub struct Line {
        pub article: String,
        #[serde(default)]
        pub pieces: u32,
        #[serde(default)]
        pub note: String,
    }

    #[derive(Serialize, Deserialize)]
    pub struct Held {
        #[serde(default)]
        pub new: Vec<Line>,
        pub address: Option<Address>,
        pub lines: Vec<Line>,
        pub by_town: BTreeMap<String, Address>,
        pub pair: (u8, Line),
        pub payment: Payment,
    }
}

/// The parts with fields that older records lack.
mod wrong {
    use super::*;

    #[derive(Serialize, Deserialize)]
    pub struct Town {
        pub street: String,
        pub town: String,
    }

    #[derive(Serialize, Deserialize)]
    pub struct Pieces {
        pub article: String,
        pub pieces: u32,
    }

    #[derive(Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Strict {
        pub article: String,
    }

    #[derive(Serialize, Deserialize)]
    pub enum Until {
        Card { number: u64, until: u32 },
        Cash,
    }

    #[derive(Serialize, Deserialize)]
    pub struct Address {
        pub address: Town,
    }

    #[derive(Serialize, Deserialize)]
    pub struct Lines {
        pub lines: Vec<Pieces>,
    }

    #[derive(Serialize, Deserialize)]
    pub struct Pair {
        pub pair: (u8, Strict),
    }

    #[derive(Serialize, Deserialize)]
    pub struct Towns {
        pub by_town: BTreeMap<String, Town>,
    }

    #[derive(Serialize, Deserialize)]
    pub struct Payment {
        pub payment: Until,
    }
}

macro_rules! called_account {
    ($($kind:ty),*) => {$(
        impl Schema for $kind {
            const NAME: &'static str = "account";
        }
    )*};
}

called_account!(first::Held, second::Held, first::Payment, second::Payment, wrong::Until);
called_account!(wrong::Address, wrong::Lines, wrong::Pair, wrong::Towns, wrong::Payment);

macro_rules! within_in_format {
    ($format:ident) => {
        fn named<T: Schema>() -> String {
            let name = <braiddb::$format<T>>::type_name();
            name.split_once(' ').unwrap().1.to_owned()
        }
        let stored = named::<first::Held>();
        assert_eq!(
            stored,
            "account {address, lines, by_town, pair, payment, referred_by?} address {street, zip?} \
             lines[] {article, pieces?} by_town[] {street, zip?} pair[1] {article, pieces?} \
             payment.Card {number} payment.Bill {street, zip?}"
        );
        assert_eq!(named::<first::Payment>(), "account Card {number} Bill {street, zip?}");
        let told = |told: String, words: &str| assert!(told.contains(words), "{told}");
        assert_eq!(self::told::<braiddb::$format<first::Held>>(&stored), "");
        assert_eq!(self::told::<braiddb::$format<second::Held>>(&stored), "");
        assert_eq!(self::told::<braiddb::$format<second::Payment>>(&named::<first::Payment>()), "");
        let until = self::told::<braiddb::$format<wrong::Until>>(&named::<first::Payment>());
        told(until, "field `Card.until` is new");
        told(self::told::<braiddb::$format<wrong::Address>>(&stored), "field `address.town` is new");
        let pieces = self::told::<braiddb::$format<wrong::Lines>>(&stored);
        told(pieces, "records may lack the field `lines[].pieces`, which was optional");
        let strict = self::told::<braiddb::$format<wrong::Pair>>(&stored);
        told(strict, "records have the field `pair[1].pieces`, which `#[serde(deny_unknown_fields)]` refuses");
        told(self::told::<braiddb::$format<wrong::Towns>>(&stored), "field `by_town[].town` is new");
        let until = self::told::<braiddb::$format<wrong::Payment>>(&stored);
        told(until, "field `payment.Card.until` is new");
        // Descriptions that older versions of this library wrote.
        assert_eq!(self::told::<braiddb::$format<wrong::Address>>("account {address}"), "");
        for damaged in ["account {address} address", "account {address} address {a", "account address {a}}"] {
            told(self::told::<braiddb::$format<first::Held>>(damaged), "open it with the types");
        }
    };
}

#[test]
fn missing_fields_of_nested_structs_are_reported() {
    with_limit(LIMIT_SECONDS, |_| {
        {
            within_in_format!(Json);
        }
        {
            within_in_format!(MessagePack);
        }
    });
}

/// Opening reports exactly the types that reading would fail at.
#[test]
fn nested_structs_are_readable_if_opening_reports_nothing() {
    with_limit(LIMIT_SECONDS, |_| {
        use braiddb::Json;
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let table: Table<u64, Json<first::Held>> = block_on(db.create_table("t")).unwrap();
        let address = || first::Address { street: "High Street".to_owned(), zip: Some(7) };
        let line = || first::Line { article: "nails".to_owned(), pieces: 3 };
        let held = first::Held {
            address: address(),
            lines: vec![line()],
            by_town: [("York".to_owned(), Some(address()))].into(),
            pair: (1, line()),
            payment: first::Payment::Card { number: 4 },
            referred_by: None,
        };
        block_on(db.put(&table, &1, &held)).unwrap();
        let opened = block_on(db.open_table::<u64, Json<wrong::Address>>("t")).map(drop);
        assert!(matches!(opened, Err(Error::Misuse(Misuse::TableType { .. }))), "{opened:?}");
        let table: Table<u64, Json<second::Held>> = block_on(db.open_table("t")).unwrap();
        let read = block_on(db.get(&table, &1)).unwrap().unwrap();
        assert!(read.new.is_empty() && read.lines[0].note.is_empty());
        assert_eq!(read.address.unwrap().street, "High Street");
        assert!(matches!(read.payment, second::Payment::Card { number: 4, until: 0 }));
    });
}
