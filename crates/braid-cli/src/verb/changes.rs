//! `changes`: the committed transactions in the log.

use std::collections::HashMap;
use std::io;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use braiddb::changes::{Change, ChangeKind, ChangeToken, ChangeTransaction};
use braiddb::{ChangesError, Database, Error};
use pollster::block_on;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::any_table::AnyTable;
use crate::arguments::Changes;
use crate::codec::{append_json, to_hex};
use crate::output::{Output, escaped};
use crate::store::{StoreArguments, existing_table};

/// Time between two looks at the log with `--follow`.
const FOLLOW_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

/// Prints the transactions after a token.
pub fn run(changes: &Changes, store: &StoreArguments, output: &Output) -> Result<ExitCode> {
    let mut token = changes.from.as_deref().map(parse).transpose()?;
    let mut left = changes.limit.unwrap_or(u64::MAX);
    loop {
        let db = store.open_to_read()?;
        left = print_new(&db, changes, &mut token, left, output)?;
        db.close()?;
        if !changes.follow || left == 0 {
            break;
        }
        if reader_is_gone() {
            return Ok(ExitCode::SUCCESS);
        }
    }
    if let Some(token) = token
        && !output.json
    {
        eprintln!("later transactions: braid changes --from {token}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits before the next look at the log. Returns whether the reader of the output closed the pipe.
fn reader_is_gone() -> bool {
    let stdout = io::stdout();
    let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
    // An interruption ends the pause early.
    poll(&mut watched, Some(&FOLLOW_PAUSE)).is_ok_and(|events| events > 0)
}

fn parse(word: &str) -> Result<ChangeToken> {
    word.parse().map_err(|error| anyhow!("--from {word:?}: {error}"))
}

/// Prints the transactions after the token, and moves it. Returns how many more may be printed.
fn print_new(
    db: &Database,
    changes: &Changes,
    token: &mut Option<ChangeToken>,
    mut left: u64,
    output: &Output,
) -> Result<u64> {
    let tables = Tables::new(db)?;
    for name in &changes.table {
        // Its error names the existing tables.
        existing_table(db, name)?;
    }
    let past = db.past_changes(*token).map_err(without_snapshot)?;
    for transaction in past {
        if left == 0 {
            break;
        }
        let transaction = transaction?;
        *token = transaction.token;
        let chosen = |change: &&Change| {
            changes.table.is_empty() || changes.table.iter().any(|name| **name == *change.table)
        };
        let chosen: Vec<&Change> = transaction.changes.iter().filter(chosen).collect();
        if chosen.is_empty() {
            continue;
        }
        left -= 1;
        let text = match output.json {
            true => tables.document(&transaction, &chosen)?,
            false => tables.lines(&transaction, &chosen)?,
        };
        output.line(text.trim_end_matches('\n'))?;
    }
    Ok(left)
}

/// The error of a token whose log was freed, with the remedy for this command.
fn without_snapshot(error: Error) -> anyhow::Error {
    match error {
        Error::Changes(ChangesError::LogGone { oldest }) => anyhow!(
            "the log before LSN {oldest}, where the token continues, was freed; without --from \
             the transactions are printed that the log still has"
        ),
        error => error.into(),
    }
}

/// The types of tables, by their numbers.
struct Tables {
    by_id: HashMap<u32, AnyTable>,
}

impl Tables {
    fn new(db: &Database) -> Result<Self> {
        let mut by_id = HashMap::new();
        for table in block_on(db.tables())? {
            by_id.insert(table.id, existing_table(db, &table.name)?);
        }
        Ok(Self { by_id })
    }

    /// The key and the value of a change as JSON. Records of dropped tables are bytes.
    fn json(&self, change: &Change) -> Result<(Option<String>, Option<String>)> {
        let is_record = matches!(
            change.kind,
            ChangeKind::Insert | ChangeKind::Update | ChangeKind::Put | ChangeKind::Delete
        );
        if !is_record {
            return Ok((None, None));
        }
        let (mut key, mut value) = (Vec::new(), Vec::new());
        match self.by_id.get(&change.table_id) {
            Some(table) => {
                table.append_key_json(&change.key, &mut key)?;
                if change.kind.gives_value() {
                    table.append_json(&change.key, &change.value, &mut value)?;
                }
            }
            None => {
                append_json(&to_hex(&change.key), &mut key);
                if change.kind.gives_value() {
                    append_json(&to_hex(&change.value), &mut value);
                }
            }
        }
        let text = |json| String::from_utf8(json).context("the codec appends text");
        let (key, value) = (text(key)?, text(value)?);
        Ok((Some(key), Some(value).filter(|value| !value.is_empty())))
    }

    /// A transaction as a JSON document.
    fn document(&self, transaction: &ChangeTransaction, changes: &[&Change]) -> Result<String> {
        let mut out = format!("{{\"commit_lsn\":{},\"token\":", transaction.commit_lsn);
        out += &match transaction.token {
            Some(token) => format!("\"{token}\""),
            None => "null".to_owned(),
        };
        out += ",\"changes\":[";
        for (number, change) in changes.iter().enumerate() {
            if number > 0 {
                out.push(',');
            }
            let (key, value) = self.json(change)?;
            let mut fields = vec![
                format!("\"table\":{}", serde_json::to_string(&*change.table)?),
                format!("\"kind\":\"{}\"", change.kind.name()),
            ];
            fields.extend(key.map(|key| format!("\"key\":{key}")));
            fields.extend(value.map(|value| format!("\"value\":{value}")));
            if let ChangeKind::TableRenamed { to } = &change.kind {
                fields.push(format!("\"to\":{}", serde_json::to_string(&**to)?));
            }
            if let Some(time) = change.expires_at {
                let time = chrono::DateTime::<chrono::Utc>::from(time);
                fields.push(format!("\"expires_at\":\"{}\"", time.to_rfc3339()));
            }
            out += &format!("{{{}}}", fields.join(","));
        }
        out += "]}";
        Ok(out)
    }

    /// A transaction as lines: a heading, and a line for each change.
    fn lines(&self, transaction: &ChangeTransaction, changes: &[&Change]) -> Result<String> {
        let mut out = format!("transaction {}\n", transaction.commit_lsn);
        for change in changes {
            let (key, value) = self.json(change)?;
            let mut words = vec![change.kind.name().to_owned(), change.table.to_string()];
            if let ChangeKind::TableRenamed { to } = &change.kind {
                words.push(to.to_string());
            }
            words.extend(key.into_iter().chain(value));
            let words: Vec<String> = words.iter().map(|word| escaped(word)).collect();
            out += &format!("  {}\n", words.join("\t"));
        }
        Ok(out)
    }
}
