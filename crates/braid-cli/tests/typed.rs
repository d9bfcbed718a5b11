//! Tables of a program's types: structs, enums and tuples in postcard's format, older versions of a
//! type, damaged values, and numbers as keys of imported rows.

mod common;

use std::collections::BTreeMap;

use braiddb::{Database, DecodeError, Options, Postcard, Schema, Table, block_on};
use common::limit::{Watched, with_limit};
use common::{Braid, LIMIT};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct FirstUser {
    name: String,
    age: u32,
}

impl Schema for FirstUser {
    const NAME: &'static str = "user";
}

#[derive(Serialize, Deserialize)]
enum Plan {
    Free,
    Paid { cents: u64 },
    Team(String, Vec<u32>),
}

#[derive(Serialize, Deserialize)]
struct User {
    name: String,
    age: Option<u32>,
    plan: Plan,
    tags: BTreeMap<String, (f64, bool)>,
}

impl Schema for User {
    const NAME: &'static str = "user";
    const VERSION: u32 = 2;
    const OLDEST: u32 = 1;

    fn upgrade(_: u32, bytes: &[u8]) -> Result<Self, DecodeError> {
        let old = postcard::from_bytes::<FirstUser>(bytes);
        let FirstUser { name, age } = old.map_err(|_| DecodeError::new("a user"))?;
        Ok(Self { name, age: Some(age), plan: Plan::Free, tags: BTreeMap::new() })
    }
}

type Sold = Postcard<(i32, Vec<char>)>;

/// Creates a database with a user of each version.
fn users() -> Braid {
    let braid = Braid::new();
    let open =
        || Database::open(braid.directory(), Options::default().workers(1)).unwrap().watched();
    let db = open();
    block_on(async {
        let users: Table<u64, Postcard<FirstUser>> = db.create_table("users").await?;
        db.put(&users, &1, &FirstUser { name: "ada".to_owned(), age: 36 }).await?;
        let sold: Table<(String, u64), Sold> = db.create_table("sold").await?;
        db.put(&sold, &("eu".to_owned(), 10), &(-1, vec!['a', 'b'])).await?;
        db.put(&sold, &("eu".to_owned(), 9), &(5, vec![])).await
    })
    .unwrap();
    db.close().unwrap();
    let db = open();
    block_on(async {
        let users: Table<u64, Postcard<User>> = db.open_table("users").await?;
        let plan = Plan::Team("braid".to_owned(), vec![7, 8]);
        let tags = [("fast".to_owned(), (0.5, true))].into();
        db.put(&users, &10, &User { name: "bob".to_owned(), age: None, plan, tags }).await?;
        let plan = Plan::Paid { cents: 500 };
        let user = User { name: "cy".to_owned(), age: Some(7), plan, tags: BTreeMap::new() };
        db.put(&users, &2, &user).await
    })
    .unwrap();
    db.close().unwrap();
    braid
}

const ADA: &str = r#"{"name":"ada","age":36}"#;
const BOB: &str =
    r#"{"name":"bob","age":null,"plan":{"Team":["braid",[7,8]]},"tags":{"fast":[0.5,true]}}"#;
const CY: &str = r#"{"name":"cy","age":7,"plan":{"Paid":{"cents":500}},"tags":{}}"#;

fn out(braid: &Braid, words: &[&str]) -> String {
    braid.run(words, 0).0
}

#[test]
fn every_version_of_a_struct_is_shown() {
    with_limit(LIMIT.as_secs(), |_| {
        let braid = users();
        assert_eq!(out(&braid, &["scan", "users"]), format!("1\t{ADA}\n2\t{CY}\n10\t{BOB}\n"));
        assert_eq!(out(&braid, &["get", "users", "10"]), format!("{BOB}\n"));
        let json = out(&braid, &["scan", "users", "--json", "--limit", "1"]);
        assert_eq!(json, format!("{{\"key\":1,\"value\":{ADA}}}\n"));
        let tables = out(&braid, &["tables", "--json"]);
        assert!(tables.contains(r#"{"version":1,"shape":"{name: str, age: u32}"}"#), "{tables}");
        let sold = "[\"eu\",9]\t[5,[]]\n[\"eu\",10]\t[-1,[\"a\",\"b\"]]\n";
        assert_eq!(out(&braid, &["scan", "sold"]), sold);
        assert_eq!(
            out(&braid, &["scan", "sold", "--prefix", r#"["eu"]"#, "--limit", "1"]),
            &sold[..16]
        );
    });
}

#[test]
fn written_structs_are_those_of_programs() {
    with_limit(LIMIT.as_secs(), |_| {
        let braid = users();
        let user = r#"{"plan":"Free","name":"eve","tags":{}}"#;
        out(&braid, &["put", "users", "3", user]);
        let script = "begin\nget users 3\nput users 4 '{\"name\":\"fay\",\"age\":1,\"plan\":\"Free\",\
                  \"tags\":{}}'\ncommit\n";
        let shell = braid.command(&["shell"]).write_stdin(script).assert().success();
        let shown = String::from_utf8(shell.get_output().stdout.clone()).unwrap();
        assert_eq!(shown, "{\"name\":\"eve\",\"age\":null,\"plan\":\"Free\",\"tags\":{}}\n");
        let db =
            Database::open(braid.directory(), Options::default().workers(1)).unwrap().watched();
        let users: Table<u64, Postcard<User>> = block_on(db.open_table("users")).unwrap();
        let eve = block_on(db.get(&users, &3)).unwrap().unwrap();
        assert!((&*eve.name, eve.age) == ("eve", None) && matches!(eve.plan, Plan::Free));
        assert_eq!(block_on(db.get(&users, &4)).unwrap().unwrap().age, Some(1));
        db.close().unwrap();
        for (value, why) in [
            (r#"{"name":"x","plan":"Free"}"#, "the field \"tags\" is missing"),
            (r#"{"name":7,"plan":"Free","tags":{}}"#, "name: expected a string, not 7"),
            (
                r#"{"name":"x","plan":{"Paid":{"cents":-1}},"tags":{}}"#,
                "plan.Paid.cents: \"-1\" is not",
            ),
            (r#"{"name":"x","plan":"Gratis","tags":{}}"#, "the variants are Free, Paid, Team"),
            ("{", "it ends within an object"),
            ("0x0207", "the bytes are not a value of type user"),
        ] {
            let said = braid.run(&["put", "users", "5", value], 3).1;
            assert!(said.contains(why), "{said}");
        }
    });
}

#[test]
fn structs_are_exported_and_imported() {
    with_limit(LIMIT.as_secs(), |_| {
        let braid = users();
        out(&braid, &["delete", "users", "1"]);
        let records = out(&braid, &["scan", "users"]);
        for name in ["users.jsonl", "users.csv"] {
            let file = braid.path(name);
            out(&braid, &["export", &file, "--table", "users", "--key", "id"]);
            let written = std::fs::read_to_string(&file).unwrap();
            assert!(written.contains("id") && written.contains("cents"), "{written}");
            for key in ["2", "10"] {
                out(&braid, &["delete", "users", key]);
            }
            out(&braid, &["import", &file, "--table", "users", "--key", "id"]);
            assert_eq!(out(&braid, &["scan", "users"]), records, "{name}: {written}");
        }
        let file = braid.path("pairs.jsonl");
        let sold = out(&braid, &["scan", "sold"]);
        out(&braid, &["export", &file, "--table", "sold"]);
        out(&braid, &["delete", "sold", r#"["eu",9]"#]);
        out(&braid, &["import", &file, "--table", "sold", "--key", "key", "--value", "value"]);
        assert_eq!(out(&braid, &["scan", "sold"]), sold);
        let file = braid.file("wrong.jsonl", "{\"id\":7,\"name\":\"x\",\"plan\":\"Free\"}\n");
        let said = braid.run(&["import", &file, "--table", "users", "--key", "id"], 4).1;
        assert!(
            said.contains("line 1") && said.contains("the field \"tags\" is missing"),
            "{said}"
        );
    });
}

#[test]
fn malformed_values_are_reported_with_table_key_and_position() {
    with_limit(LIMIT.as_secs(), |_| {
        let braid = users();
        let db =
            Database::open(braid.directory(), Options::default().workers(1)).unwrap().watched();
        db.run_blocking(async |tx| {
            let (users, _) = tx.open_encoded_table("users").await?;
            tx.put(&users, &5_u64.to_be_bytes(), &[2, 200]).await?;
            tx.put(&users, &[1, 2], &[2, 200]).await
        })
        .unwrap();
        db.close().unwrap();
        let (shown, said) = braid.run(&["scan", "users", "--from", "2"], 3);
        assert_eq!(shown, "");
        let message =
            "the value of key \"5\" in table \"users\" is malformed at byte 2: the value ends";
        assert!(said.contains(message) && said.contains("run braid check"), "{said}");
        let said = braid.run(&["get", "users", "5", "--json"], 3).1;
        assert!(said.contains(message), "{said}");
        let said = braid.run(&["scan", "users", "--from", "10", "--limit", "1"], 0).0;
        assert_eq!(said, format!("10\t{BOB}\n"));
        let said = braid.run(&["scan", "users", "--reverse"], 3).1;
        assert!(
            said.contains("the key \"0x0102\" in table \"users\" is malformed at byte 0"),
            "{said}"
        );
    });
}

#[test]
fn questions_are_answered_about_structs() {
    with_limit(LIMIT.as_secs(), |_| {
        let braid = users();
        let scan = |more: &[&str]| out(&braid, &[&["scan", "users"], more].concat());
        assert_eq!(scan(&["--where", "age > 8", "--columns", "key,name,age"]), "1\tada\t36\n");
        assert_eq!(scan(&["--where", "plan.Paid.cents = 500", "--columns", "key"]), "2\n");
        assert_eq!(scan(&["--order", "age:desc", "--columns", "name"]), "ada\ncy\nbob\n");
        assert_eq!(scan(&["--order", "age", "--columns", "name", "--limit", "1"]), "bob\n");
        assert_eq!(scan(&["--where", "age = null", "--count"]), "1\n");
        assert_eq!(scan(&["--count", "--json"]), "{\"count\":3}\n");
        assert_eq!(
            scan(&["--columns", "plan,key", "--json", "--where", "name = cy"]),
            "{\"plan\":{\"Paid\":{\"cents\":500}},\"key\":2}\n"
        );
        let sold =
            out(&braid, &["scan", "sold", "--where", "key.1 >= 10", "--columns", "key.0,value.1"]);
        assert_eq!(sold, "eu\t[\"a\",\"b\"]\n");
        for words in
            [["--columns", "name,colour"], ["--where", "colour = red"], ["--order", "colour"]]
        {
            let said = braid.run(&[&["scan", "users"][..], &words].concat(), 3).1;
            assert!(
                said.contains("no record of table \"users\" has a column \"colour\"")
                    && said.contains("the columns are key, name, age, plan, tags"),
                "{said}"
            );
        }
        let said = braid.run(&["scan", "users", "--where", "age"], 3).1;
        assert!(said.contains("such as 'age >= 18'"), "{said}");
        let export = |file: &str, more: &[&str]| {
            out(&braid, &[&["export", "-", "--format", file, "--table", "users"], more].concat())
        };
        let chosen = ["--columns", "name,age", "--order", "name:desc"];
        assert_eq!(export("csv", &chosen), "name,age\ncy,7\nbob,\nada,36\n");
        let met = ["--key", "id", "--where", "age < 10", "--columns", "id,age"];
        assert_eq!(export("jsonl", &met), "{\"id\":2,\"age\":7}\n");
        assert_eq!(export("jsonl", &["--count", "--where", "age != null"]), "{\"count\":2}\n");
    });
}

#[test]
fn unknown_columns_of_empty_tables_are_errors() {
    with_limit(LIMIT.as_secs(), |_| {
        let braid = users();
        let wrong = |words: &[&str]| {
            let (shown, said) = braid.run(words, 3);
            assert_eq!(shown, "", "{words:?}");
            said
        };
        // The header is not written before the error.
        for table in ["users", "sold"] {
            let export = ["export", "-", "--table", table, "--columns", "nme", "--format", "csv"];
            assert!(wrong(&export).contains("has a column \"nme\""));
            wrong(&[&export[..], &["--typed"]].concat());
        }
        let said = wrong(&["scan", "users", "--order", "age:down"]);
        assert!(said.contains("\"down\" is no direction; write age:asc or age:desc"), "{said}");
        for key in ["1", "2", "10"] {
            out(&braid, &["delete", "users", key]);
        }
        for key in ["[\"eu\",9]", "[\"eu\",10]"] {
            out(&braid, &["delete", "sold", key]);
        }
        let names = ["nme", "plan.Paid.cent", "age.x", "key.0", "value.nme"];
        for name in names {
            let said = wrong(&["scan", "users", "--columns", name]);
            assert!(
                said.contains(&format!("no records, and its type has no column \"{name}\""))
                    && said.contains("the columns are key, name, age, plan, tags"),
                "{said}"
            );
            wrong(&["scan", "users", "--where", &format!("{name} = 1")]);
            wrong(&["export", "-", "--format", "csv", "--table", "users", "--columns", name]);
        }
        assert!(wrong(&["scan", "sold", "--columns", "nme"]).contains("key, value\n"));
        assert!(wrong(&["scan", "users", "--order", "age:down"]).contains("is no direction"));
        let known = "key,name,age,plan.Paid.cents,plan.Team.1.0,tags.fast.0,value,value.name";
        assert_eq!(out(&braid, &["scan", "users", "--columns", known]), "");
        assert_eq!(out(&braid, &["scan", "sold", "--columns", "key.1,value.0"]), "");
        let export = ["export", "-", "--table", "users", "--columns", "key,age", "--format", "csv"];
        assert_eq!(out(&braid, &export), "key,age\n");
    });
}

#[test]
fn committed_transactions_are_printed() {
    with_limit(LIMIT.as_secs(), |_| {
        let braid = users();
        let (shown, said) = braid.run(&["changes"], 0);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[0].starts_with("transaction "), "{shown}");
        assert_eq!(lines[1], "  table_created\tusers");
        assert!(shown.contains(&format!("  insert\tusers\t1\t{ADA}\n")), "{shown}");
        assert!(shown.contains(&format!("  insert\tusers\t10\t{BOB}\n")), "{shown}");
        let token = said.trim().rsplit_once(' ').unwrap().1.to_owned();
        assert_eq!(out(&braid, &["changes", "--from", &token]), "");
        let script = "begin\nput users 1 '{\"name\":\"eve\",\"plan\":\"Free\",\"tags\":{}}'\n\
                  delete users 2\ncommit\n";
        braid.command(&["shell"]).write_stdin(script).assert().success();
        let json = out(&braid, &["changes", "--from", &token, "--json"]);
        assert!(
        json.contains(
            "\"changes\":[{\"table\":\"users\",\"kind\":\"update\",\"key\":1,\"value\":{\"name\":\"eve\",\
             \"age\":null,\"plan\":\"Free\",\"tags\":{}}},{\"table\":\"users\",\"kind\":\"delete\",\
             \"key\":2}]}\n"
        ) && json.lines().count() == 1,
        "{json}"
    );
        let sold = out(&braid, &["changes", "--table", "sold"]);
        assert!(
            sold.contains("insert\tsold\t[\"eu\",10]\t[-1,[\"a\",\"b\"]]")
                && !sold.contains("users")
        );
        assert_eq!(out(&braid, &["changes", "--limit", "1"]).lines().count(), 2);
        // Records of a dropped table are bytes. A renamed table has the name that it had.
        out(&braid, &["drop", "sold"]);
        out(&braid, &["rename", "users", "people"]);
        let shown = out(&braid, &["changes"]);
        assert!(
            shown.contains("insert\tsold\t\"0x") && shown.contains("table_dropped\tsold"),
            "{shown}"
        );
        assert!(shown.contains("table_renamed\tusers\tpeople"), "{shown}");
        assert!(shown.contains(&format!("  insert\tusers\t1\t{ADA}\n")), "{shown}");
        let log = out(&braid, &["log"]);
        assert!(log.contains("people: 1 update, 1 delete"), "{log}");
        assert!(log.contains("catalog: 1 insert"), "{log}");
        let said = braid.run(&["changes", "--table", "none"], 3).1;
        assert!(said.contains("there is no table \"none\""), "{said}");
        let said = braid.run(&["changes", "--from", "abc"], 3).1;
        assert!(said.contains("--from \"abc\""), "{said}");
    });
}

#[test]
fn later_transactions_are_followed() {
    with_limit(LIMIT.as_secs(), |_| {
        let braid = users();
        let program = assert_cmd::cargo::cargo_bin("braid");
        let mut follow = std::process::Command::new(program);
        follow.arg("changes").arg("--db").arg(braid.directory()).args(["--follow", "--limit", "6"]);
        let child = follow.stdout(std::process::Stdio::piped()).spawn().unwrap();
        out(&braid, &["delete", "users", "1"]);
        out(&braid, &["delete", "users", "2"]);
        let output = child.wait_with_output().unwrap();
        let shown = String::from_utf8(output.stdout).unwrap();
        assert_eq!(shown.matches("transaction ").count(), 6, "{shown}");
    });
}

#[test]
fn keys_of_imported_numbers_are_numbers() {
    with_limit(LIMIT.as_secs(), |_| {
        let braid = Braid::new();
        let file = braid.file("n.csv", "id,n\n10,a\n2,b\n1,c\n");
        let said = braid.import(&file, &[], 0).0;
        assert!(said.contains("a new table with keys of u64"), "{said}");
        assert_eq!(
            out(&braid, &["scan", "t"]),
            "1\t{\"id\":\"1\",\"n\":\"c\"}\n2\t{\"id\":\"2\",\"n\":\"b\"}\n10\t{\"id\":\"10\",\"n\":\"a\"}\n"
        );
        let import = |table: &str, key: &str, text: &str, code: i32| {
            let file = braid.file("k.csv", text);
            braid.run(&["import", &file, "--table", table, "--key", key, "--json"], code)
        };
        assert!(import("s", "id:str", "id\n10\n2\n", 0).0.contains("\"key_type\":\"str\""));
        assert!(out(&braid, &["scan", "s"]).starts_with("10\t"));
        assert!(import("i", "id", "id\n-10\n2\n", 0).0.contains("\"key_type\":\"i64\""));
        assert!(import("f", "id:f64", "id\n10.5\n2\n", 0).0.contains("\"key_type\":\"f64\""));
        assert!(out(&braid, &["scan", "f"]).starts_with("2"));
        let said = import("t", "id", "id\nx\n", 4).1;
        assert!(said.contains("not a valid u64"), "{said}");
        let said = import("t", "id:str", "id\n7\n", 3).1;
        assert!(said.contains("do not have the type str"), "{said}");
        let said = import("u", "id:u8", "id\n7\n300\n", 4).1;
        assert!(said.contains("line 3") && said.contains("from 0 to 255"), "{said}");
    });
}
