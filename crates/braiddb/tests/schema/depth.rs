//! Opening a table reports changes within its types.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

use braiddb::Value;
use serde::de::DeserializeOwned;

use super::*;

trait Stored: Serialize + DeserializeOwned + Send + 'static {}

impl<T: Serialize + DeserializeOwned + Send + 'static> Stored for T {}

/// A generic type with the fixed name `thing`.
#[derive(Serialize, Deserialize, Debug)]
#[serde(transparent, bound = "T: Stored")]
struct Thing<T>(T);

impl<T: Stored> Schema for Thing<T> {
    const NAME: &'static str = "thing";
}

/// Returns the catalog's description of a thing.
fn described<T: Stored>() -> String {
    let description = <Postcard<Thing<T>>>::type_name();
    assert_eq!(<Postcard<Thing<T>>>::type_name(), description, "each time");
    description.strip_prefix("postcard ").unwrap().to_owned()
}

/// Checks that a table of one type cannot be opened with the other. Returns the message.
fn differ<One: Stored, Other: Stored>() -> String {
    let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
    block_on(db.create_table::<u64, Postcard<Thing<One>>>("accounts")).unwrap();
    block_on(db.open_table::<u64, Postcard<Thing<One>>>("accounts")).unwrap();
    let told = refused::<Thing<Other>>(&db);
    assert!(told.contains("raise its `Schema::VERSION`"), "{told}");
    assert!(told.contains(&described::<One>()) && told.contains(&described::<Other>()), "{told}");
    block_on(db.open_table::<u64, Postcard<Thing<One>>>("accounts")).unwrap();
    told
}

fn is_read<T: Stored>(stored: &str) -> bool {
    <Postcard<Thing<T>>>::reads(&format!("postcard {stored}")).is_ok()
}

macro_rules! types {
    ($($item:item)*) => {$(
        #[derive(Serialize, Deserialize, Debug, PartialEq, Clone)]
        $item
    )*};
}

mod first {
    use super::*;

    types! {
        pub(super) struct Person { name: String, home: Home }
        pub(super) struct Home { street: String }
        pub(super) enum Figure { Circle { radius: u32 }, Square(u32), Nothing }
        pub(super) struct Pair(u32, String);
        pub(super) struct Amount { cents: i64, of: u32 }
    }
}

mod second {
    use super::*;

    types! {
        pub(super) struct Person { name: String, home: Home }
        pub(super) struct Home { street: String, number: u32 }
        pub(super) enum Figure { Circle { radius: u32, color: u8 }, Square(u32), Nothing }
        pub(super) struct Pair(u32, String, bool);
        pub(super) struct Amount { cents: u64, of: u32 }
        pub(super) struct WiderAmount { cents: i64, of: u64 }
    }
}

#[test]
fn opening_reports_changes_within_a_type() {
    with_limit(LIMIT_SECONDS, |_| {
        let told = differ::<first::Person, second::Person>();
        assert!(told.contains("thing {name: str, home: {street: str}}"), "{told}");
        assert!(told.contains("thing {name: str, home: {street: str, number: u32}}"), "{told}");
        let told = differ::<first::Figure, second::Figure>();
        assert!(told.contains("thing {Circle {radius: u32}, Square(u32), Nothing}"), "{told}");
        let told = differ::<first::Pair, second::Pair>();
        assert!(told.contains("thing = (u32, str)"), "{told}");
        differ::<first::Amount, second::Amount>();
        differ::<first::Amount, second::WiderAmount>();
        differ::<(first::Amount,), first::Amount>();
        differ::<Vec<first::Amount>, Vec<second::Amount>>();
        differ::<Option<u32>, u32>();
        differ::<BTreeMap<u8, first::Pair>, BTreeMap<u8, second::Pair>>();
    });
}

/// Lists and maps of types have no separate version.
#[test]
fn opening_reports_changes_within_composed_types() {
    with_limit(LIMIT_SECONDS, |_| {
        type Old = Vec<Thing<first::Person>>;
        type New = Vec<Thing<second::Person>>;
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        block_on(db.create_table::<u64, Postcard<Old>>("accounts")).unwrap();
        let told = refused::<New>(&db);
        assert!(told.contains("Vec<thing {name, home}>"), "{told}");
        assert!(told.contains("store a type of your own around it"), "{told}");
        block_on(db.open_table::<u64, Postcard<Old>>("accounts")).unwrap();
    });
}

types! {
    struct Tree { left: Option<Box<Tree>>, right: Option<Box<Tree>>, leaves: Vec<Tree>, weight: u64 }
    enum Term { Sum(Box<Term>, Box<Term>, Vec<u8>), Not(Box<Term>), Value { value: i64, of: Option<Box<Tree>> } }
    struct Chain(Option<Box<Chain>>);
    #[serde(transparent)]
    struct Unnamed(Vec<Unnamed>);
    struct Mutual { term: Odd, number: u8 }
    enum Odd { Even(Box<Mutual>), End }
    struct Twice<T> { one: T, other: T }
    enum Many { A(Inner), B(Inner), C }
    enum Inner { X(u8), Y { z: Option<Color> } }
    enum Color { Red, Green }
}

#[test]
fn recursive_types_are_described() {
    with_limit(LIMIT_SECONDS, |_| {
        assert_eq!(
            described::<Tree>(),
            "thing {left: Option<^1>, right: Option<^1>, leaves: Vec<^1>, weight: u64}"
        );
        let tree = "{left: Option<^1>, right: Option<^1>, leaves: Vec<^1>, weight: u64}";
        assert_eq!(
            described::<Term>(),
            format!(
                "thing {{Sum(^1, ^1, Vec<u8>), Not(^1), Value {{value: i64, of: Option<{tree}>}}}}"
            )
        );
        assert_eq!(described::<Chain>(), "thing = Option<^1>");
        assert!(described::<Unnamed>().starts_with("thing = Vec<Vec<"));
        assert_eq!(described::<Mutual>(), "thing {term: {Even(^2), End}, number: u8}");
        let pair = "{one: u8, other: u8}";
        assert_eq!(
            described::<Twice<Twice<u8>>>(),
            format!("thing {{one: {pair}, other: {pair}}}")
        );
        let inner = "{X(u8), Y {z: Option<{Red, Green}>}}";
        assert_eq!(described::<Many>(), format!("thing {{A {inner}, B {inner}, C}}"));
        assert_eq!(described::<Color>(), "thing {Red, Green}");
    });
}

/// Types that accept only some values.
mod choosy {
    use super::*;

    types! {
        pub(super) struct Named { at: Duration, count: NonZeroU32, name: Name, after: i64 }
        pub(super) struct Plain { at: Duration, count: u32, name: String, after: i64 }
        pub(super) struct Other { at: Duration, count: u32, name: String, after: u64 }
        #[serde(try_from = "String")]
        pub(super) struct Name(String);
        #[serde(try_from = "String")]
        pub(super) struct Password(String);
        pub(super) struct Secret { before: u8, password: Password, after: i64 }
        pub(super) struct OpenSecret { before: u8, password: String, after: i64 }
        pub(super) struct WrongSecret { before: u16, password: String, after: i64 }
        pub(super) enum Kept { Secret(Password, u8), Nothing, Known(u8) }
        pub(super) struct Kin { keepers: Vec<Password>, spare: Option<Password>, last: u8 }
        #[serde(try_from = "u32")]
        pub(super) struct Panics(u32);
    }

    impl TryFrom<String> for Name {
        type Error = &'static str;

        fn try_from(name: String) -> Result<Self, &'static str> {
            if name.is_empty() { Err("no name") } else { Ok(Self(name)) }
        }
    }

    impl TryFrom<String> for Password {
        type Error = &'static str;

        fn try_from(word: String) -> Result<Self, &'static str> {
            if word == "open sesame" { Ok(Self(word)) } else { Err("wrong") }
        }
    }

    impl TryFrom<u32> for Panics {
        type Error = &'static str;

        fn try_from(number: u32) -> Result<Self, &'static str> {
            assert_eq!(number, 77, "a number that means something");
            Ok(Self(number))
        }
    }
}

#[test]
fn types_that_reject_values_are_described_as_far_as_possible() {
    use choosy::*;
    let time = "{secs: u64, nanos: u32}";
    assert_eq!(
        described::<Named>(),
        format!("thing {{at: {time}, count: u32, name: str, after: i64}}")
    );
    with_limit(LIMIT_SECONDS, |_| {
        differ::<Named, Other>();
        differ::<WrongSecret, Secret>();
        differ::<Secret, WrongSecret>();
    });
    assert!(is_read::<Named>(&described::<Plain>()), "they are stored alike");
    assert_eq!(described::<Secret>(), "thing {before: u8, password: str, after: ?}");
    // Either may be the older one.
    assert!(is_read::<Secret>(&described::<OpenSecret>()));
    assert!(is_read::<OpenSecret>(&described::<Secret>()));
    assert_eq!(described::<Kept>(), "thing {Secret(str, ?), Nothing, Known(u8)}");
    assert_eq!(described::<Kin>(), "thing {keepers: Vec<str>, spare: Option<str>, last: u8}");
    assert_eq!(described::<(u8, Panics, u8)>(), "thing = (u8, u32, ?)");
    assert_eq!(described::<serde_json::Value>(), "thing = any");
}

types! {
    struct Long {
        the_first_of_its_fields: (u64, [u8; 32]), the_second_of_its_fields: Twice<Twice<Twice<u32>>>,
        the_third_of_its_fields: Vec<Term>, the_fourth_of_its_fields: String,
    }
    struct OtherLong {
        the_first_of_its_fields: (u64, [u8; 32]), the_second_of_its_fields: Twice<Twice<Twice<u64>>>,
        the_third_of_its_fields: Vec<Term>, the_fourth_of_its_fields: String,
    }
    struct ChoosyLong {
        the_first_of_its_fields: (u64, [u8; 32]), the_second_of_its_fields: Twice<Twice<Twice<u32>>>,
        the_third_of_its_fields: Vec<Term>, the_fourth_of_its_fields: choosy::Kept,
    }
}

#[test]
fn long_descriptions_end_with_a_checksum() {
    let fields = "thing {the_first_of_its_fields, the_second_of_its_fields, the_third_of_its_fields, \
                  the_fourth_of_its_fields}";
    let described = described::<Long>();
    let checksum = described.strip_prefix(&format!("{fields} #")).unwrap();
    assert!(checksum.len() == 8 && u32::from_str_radix(checksum, 16).is_ok(), "{checksum}");
    assert_eq!(self::described::<ChoosyLong>(), fields, "it is not known to its end");
    assert!(is_read::<ChoosyLong>(&described) && is_read::<Long>(fields));
    with_limit(LIMIT_SECONDS, |_| assert!(differ::<Long, OtherLong>().contains(" #")));
}

/// Tests descriptions in the catalog of an older database, and type names of the same kind.
#[test]
fn older_descriptions_are_read() {
    with_limit(LIMIT_SECONDS, |_| {
        assert!(is_read::<second::Person>("thing {name, home}"));
        assert!(!is_read::<second::Person>("thing {name}"));
        assert!(is_read::<second::Figure>("thing {Circle, Square, Nothing}"));
        assert!(is_read::<second::Pair>("thing") && is_read::<u8>("thing"));
        assert!(!is_read::<u8>("thing {name, home}") && !is_read::<u8>("things"));
        for (name, described) in [
            (u64::name(), <Postcard<u64>>::type_name()),
            (<(String,)>::name(), <Postcard<(String,)>>::type_name()),
            (<Vec<(bool, char)>>::name(), <Postcard<Vec<(bool, char)>>>::type_name()),
            (<BTreeSet<Option<u16>>>::name(), <Postcard<BTreeSet<Option<u16>>>>::type_name()),
            (<HashMap<i128, ()>>::name(), <Postcard<HashMap<i128, ()>>>::type_name()),
        ] {
            assert_eq!(described, format!("postcard {name}"));
        }
    });
}

/// Opening a table records the full type description in the catalog.
#[test]
fn an_older_description_is_replaced() {
    with_limit(LIMIT_SECONDS, |_| {
        /// The older catalog entry.
        struct Older;

        impl Value for Older {
            type Input = [u8];
            type Ref<'a> = &'a [u8];
            type Owned = Vec<u8>;

            fn type_name() -> String {
                "postcard account {owner, cents}".to_owned()
            }

            fn encode(input: &[u8]) -> Result<braiddb::EncodedValue<'_>, braiddb::EncodeError> {
                Ok(input.into())
            }

            fn decode(bytes: &[u8]) -> Result<&[u8], DecodeError> {
                Ok(bytes)
            }

            fn into_owned(value: &[u8]) -> Vec<u8> {
                value.to_vec()
            }
        }

        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        block_on(db.create_table::<u64, Older>("accounts")).unwrap();
        let stored = || block_on(db.tables()).unwrap()[0].value_type.clone();
        assert_eq!(stored(), "postcard account {owner, cents}");
        let told = refused::<Forgotten>(&db);
        assert!(told.contains("raise its `Schema::VERSION`"), "{told}");
        block_on(db.open_table::<u64, Postcard<Account>>("accounts")).unwrap();
        assert_eq!(stored(), "postcard account {owner: str, cents: i64}");
    });
}
