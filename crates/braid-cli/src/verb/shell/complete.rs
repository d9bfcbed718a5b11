//! Completion by the tab key: commands, tables, columns and options.

use braiddb::{Database, Transaction};
use clap::CommandFactory;
use pollster::block_on;
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};

use super::line::Line;
use crate::any_table::AnyTable;
use crate::arguments::Questions;
use crate::codec::ValueType;
use crate::query::{ColumnNames, Query};

/// Completes words by the commands, and by the tables of a database.
pub struct Completions {
    db: Database,
}

impl Completions {
    pub fn new(db: &Database) -> Self {
        Self { db: db.clone() }
    }

    /// The words that may stand at the end of `line`, and where the last word begins.
    fn words(&self, line: &str) -> (usize, Vec<String>) {
        let begin = line.rfind([' ', ',']).map_or(0, |at| at + 1);
        let word_begin = line.rfind(' ').map_or(0, |at| at + 1);
        let before: Vec<&str> = line[..word_begin].split_whitespace().collect();
        let typed = &line[begin..];
        let command = Line::command();
        let words: Vec<String> = match before[..] {
            [] => command
                .get_subcommands()
                .flat_map(|step| step.get_name_and_visible_aliases())
                .chain(["help"])
                .map(str::to_owned)
                .collect(),
            [step, ..] => {
                let Some(step) = command.find_subcommand(step) else { return (begin, Vec::new()) };
                let last = before.last().copied().unwrap_or_default();
                match last {
                    "--columns" | "--order" | "--where" => self.columns(&before),
                    _ if typed.starts_with('-') => step
                        .get_opts()
                        .filter_map(|option| option.get_long())
                        .chain(step.get_arguments().filter_map(|argument| argument.get_long()))
                        .map(|long| format!("--{long}"))
                        .collect(),
                    _ if before.len() == 1 && step.get_positionals().next().is_some() => {
                        self.tables()
                    }
                    _ => Vec::new(),
                }
            }
        };
        let mut words: Vec<String> =
            words.into_iter().filter(|word| word.starts_with(typed)).collect();
        words.sort();
        words.dedup();
        (begin, words)
    }

    fn tables(&self) -> Vec<String> {
        let tables = block_on(self.db.tables()).unwrap_or_default();
        let quoted = |name: String| match shlex::try_quote(&name) {
            Ok(quoted) => quoted.into_owned(),
            Err(_) => name,
        };
        tables.into_iter().map(|table| quoted(table.name)).collect()
    }

    /// The columns of the table in a line, by its first record or its type.
    fn columns(&self, before: &[&str]) -> Vec<String> {
        let Some(name) = before.get(1).map(|name| (*name).to_owned()) else { return Vec::new() };
        let read = async move |tx: &Transaction| {
            let table = AnyTable::open(tx, &name).await?;
            let first = tx.first(&table.records).await?;
            let first = first.map(|(key, value)| (key.to_vec(), value.to_vec()));
            Ok((table, first))
        };
        let Ok((table, first)) = self.db.run_blocking(read) else { return Vec::new() };
        let mut columns = Vec::new();
        if let ValueType::Postcard(kind) = &table.value {
            columns = kind.all_fields();
        }
        if let Ok(query) = Query::new(table, ColumnNames::default(), &Questions::default())
            && let Some((key, value)) = first
            && let Ok(record) = query.record(&key, &value)
        {
            columns.extend(record.columns());
        }
        columns
    }

    /// As `words`. A space follows the only word, unless more may belong to it: a comma between
    /// columns, or the direction of an order.
    fn candidates(&self, line: &str) -> (usize, Vec<Pair>) {
        let (begin, words) = self.words(line);
        let word_begin = line.rfind(' ').unwrap_or_default();
        let is_list = ["--columns", "--order"].map(|option| line[..word_begin].ends_with(option));
        let is_only = words.len() == 1 && !is_list.contains(&true);
        let pair = |word: String| {
            let replacement = if is_only { format!("{word} ") } else { word.clone() };
            Pair { display: word, replacement }
        };
        (begin, words.into_iter().map(pair).collect())
    }
}

impl Completer for Completions {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        Ok(self.candidates(&line[..pos]))
    }
}

impl Hinter for Completions {
    type Hint = String;
}

impl Highlighter for Completions {}

impl Validator for Completions {}

impl Helper for Completions {}

#[cfg(test)]
mod tests {
    use braiddb::Options;

    use super::*;
    use crate::limit::{PART_SECONDS, with_limit};

    #[test]
    fn commands_tables_columns_and_options_are_completed() {
        with_limit(PART_SECONDS, |_| {
            let db = Database::in_memory(Options::default().workers(1)).unwrap();
            for table in ["users", "usage", "two words"] {
                let table = block_on(db.create_table::<u64, str>(table)).unwrap();
                block_on(db.put(&table, &1, "{\"name\":1,\"nation\":2}")).unwrap();
            }
            let completions = Completions::new(&db);
            let words = |line: &str| completions.words(line);
            assert_eq!(words("sc"), (0, vec!["scan".to_owned()]));
            assert_eq!(words("rol").1, ["rollback"]);
            assert_eq!(words("scan us"), (5, vec!["usage".to_owned(), "users".to_owned()]));
            assert_eq!(words("get t").1, Vec::<String>::new());
            assert_eq!(words("get ").1, ["'two words'", "usage", "users"]);
            assert_eq!(words("scan users --or").1, ["--order"]);
            assert_eq!(
                words("scan users --columns na"),
                (21, vec!["name".to_owned(), "nation".to_owned()])
            );
            assert_eq!(words("scan users --columns key,nam"), (25, vec!["name".to_owned()]));
            assert_eq!(words("scan users --where k").1, ["key"]);
            let only = |line: &str| {
                let (_, found) = completions.candidates(line);
                found.into_iter().map(|pair| pair.replacement).collect::<Vec<_>>()
            };
            assert_eq!(only("sc"), ["scan "]);
            assert_eq!(only("scan use"), ["users "]);
            assert_eq!(only("scan us"), ["usage", "users"]);
            assert_eq!(only("scan users --or"), ["--order "]);
            assert_eq!(only("scan users --where nam"), ["name "]);
            for line in ["scan users --columns nam", "scan users --order key,nam"] {
                assert_eq!(only(line), ["name"], "{line}");
            }
            for line in ["tables ", "none ", "scan none --where ", "put users 1 "] {
                assert_eq!(words(line).1, Vec::<String>::new(), "{line}");
            }
            db.close().unwrap();
        });
    }
}
