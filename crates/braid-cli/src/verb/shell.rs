//! `shell`: the verbs typed one by one, each a transaction of its own or a step of an open one.

use std::io::{BufRead, IsTerminal, Read};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use braiddb::{Database, Error, InteractiveTransaction, Transaction};
use clap::{Parser, Subcommand};
use pollster::block_on;
use rustyline::error::ReadlineError;

use super::{overview, scan};
use crate::arguments::Scan;
use crate::output::Output;
use crate::store::{AnyTable, TextTable};

/// Bytes of one line of a script, at most: four of the longest values.
const MAX_LINE: u64 = 64 << 20;
const HISTORY: &str = ".braid_history";

/// The commands of the shell, one a line.
#[derive(Debug, Parser)]
#[command(multicall = true, disable_version_flag = true)]
struct Line {
    #[command(subcommand)]
    step: Step,
}

#[derive(Debug, Subcommand)]
enum Step {
    /// Print the value of a key.
    Get {
        /// Table to read.
        table: String,
        /// Key to look up.
        #[arg(allow_negative_numbers = true)]
        key: String,
    },
    /// Give a key a value.
    Put {
        /// Table to write; made if need be.
        table: String,
        /// Key to write.
        #[arg(allow_negative_numbers = true)]
        key: String,
        /// Its new value.
        #[arg(allow_negative_numbers = true)]
        value: String,
    },
    /// Delete a key.
    Delete {
        /// Table to write.
        table: String,
        /// Key to delete.
        #[arg(allow_negative_numbers = true)]
        key: String,
    },
    /// Print the records of a range.
    Scan(Scan),
    /// List the tables.
    Tables,
    /// Show the statistics.
    Stats,
    /// Begin a transaction: what follows is one step of it each.
    Begin,
    /// Commit the open transaction.
    Commit,
    /// Take the open transaction back.
    Abort,
    /// Leave; an open transaction is taken back.
    #[command(alias = "exit")]
    Quit,
}

/// Reads lines until the end: from a terminal with an editor and a history, from a pipe plainly.
pub fn run(db: &Database, output: &Output) -> Result<ExitCode> {
    let mut shell = Shell { db, output, open: None };
    if std::io::stdin().is_terminal() {
        shell.edit()?;
    } else {
        shell.run_lines(std::io::stdin().lock())?;
    }
    let is_open = shell.open.is_some();
    drop(shell);
    db.close()?;
    if is_open {
        bail!(
            "the transaction that was open at the end is taken back: end it with `commit` or `abort`"
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// The next line, without its end and without the mark that some editors begin a text with; `None` at the end.
fn next_line(input: &mut impl BufRead, is_first: bool) -> Result<Option<String>> {
    let mut line = Vec::new();
    input.by_ref().take(MAX_LINE + 1).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.len() as u64 > MAX_LINE {
        bail!("it is longer than {} MiB", MAX_LINE >> 20);
    }
    let line = String::from_utf8(line).context("it is no UTF-8 text")?;
    let line = if is_first { line.trim_start_matches('\u{feff}') } else { &line };
    Ok(Some(line.trim_end_matches(['\r', '\n']).to_owned()))
}

struct Shell<'s> {
    db: &'s Database,
    output: &'s Output,
    open: Option<InteractiveTransaction>,
}

impl Shell<'_> {
    /// Carries out the lines of a script.
    fn run_lines(&mut self, mut input: impl BufRead) -> Result<()> {
        for number in 1.. {
            let line = next_line(&mut input, number == 1);
            let going_on = line.and_then(|line| match line {
                Some(line) => self.step(&line),
                None => Ok(false),
            });
            let going_on = going_on.with_context(|| match &self.open {
                Some(_) => format!("line {number}, whose transaction is taken back"),
                None => format!("line {number}"),
            });
            if !going_on? {
                break;
            }
        }
        Ok(())
    }

    /// Says that there is no record: where a program reads the output, not among the values.
    fn say_none(&self) -> Result<()> {
        if self.output.json {
            return self.output.line("null");
        }
        if std::io::stdout().is_terminal() {
            return self.output.line("(no record)");
        }
        eprintln!("(no record)");
        Ok(())
    }

    fn edit(&mut self) -> Result<()> {
        let mut editor = rustyline::DefaultEditor::new()?;
        let history = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(HISTORY));
        if let Some(history) = &history {
            // There is none the first time.
            _ = editor.load_history(history);
        }
        eprintln!("help lists the commands; quit leaves");
        loop {
            let prompt = if self.open.is_some() { "braid (open)> " } else { "braid> " };
            match editor.readline(prompt) {
                Ok(line) => {
                    editor.add_history_entry(&line)?;
                    match self.step(&line) {
                        Ok(true) => {}
                        Ok(false) => break,
                        Err(error) => eprintln!("{error:#}"),
                    }
                }
                Err(ReadlineError::Interrupted) => {}
                Err(ReadlineError::Eof) => break,
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(history) = &history
            && let Err(error) = editor.save_history(history)
        {
            eprintln!("the history could not be saved in {}: {error}", history.display());
        }
        Ok(())
    }

    /// Carries out one line; `false` when it says to leave.
    fn step(&mut self, line: &str) -> Result<bool> {
        let Some(words) = shlex::split(line) else { bail!("a quotation is not closed: {line}") };
        if words.is_empty() || words[0].starts_with('#') {
            return Ok(true);
        }
        let step = match Line::try_parse_from(words) {
            Ok(line) => line.step,
            Err(error) if error.use_stderr() => bail!("{}", wrong_usage(&error)),
            Err(help) => {
                self.output.line(&help.render().to_string())?;
                return Ok(true);
            }
        };
        match step {
            Step::Get { table, key } => self.get(table, &key)?,
            Step::Put { table, key, value } => self.put(table, &key, &value)?,
            Step::Delete { table, key } => self.delete(table, &key)?,
            Step::Scan(scan) => self.scan(&scan)?,
            Step::Tables => overview::tables_in_use(self.db, self.output)?,
            Step::Stats => overview::stats_of(self.db, self.output)?,
            Step::Begin if self.open.is_some() => bail!("a transaction is open already"),
            Step::Begin => self.open = Some(block_on(self.db.begin())?),
            Step::Commit => {
                let Some(open) = self.open.take() else { bail!("no transaction is open") };
                block_on(open.commit())?;
            }
            Step::Abort => {
                let Some(open) = self.open.take() else { bail!("no transaction is open") };
                block_on(open.abort())?;
            }
            Step::Quit => return Ok(false),
        }
        Ok(true)
    }

    /// Runs a step in the open transaction, or in one of its own.
    fn transact<T: Send + 'static>(
        &self,
        step: impl AsyncFn(&Transaction) -> Result<T, Error> + Send + 'static,
    ) -> Result<T> {
        Ok(match &self.open {
            Some(open) => block_on(open.step(step))?,
            None => self.db.run_blocking(step)?,
        })
    }

    /// A table, as the open transaction sees it if there is one.
    fn table(&self, name: String) -> Result<AnyTable> {
        self.transact(async move |tx| AnyTable::open(tx, &name).await)
    }

    fn get(&self, table: String, key: &str) -> Result<()> {
        let table = self.table(table)?;
        let (records, key) = (table.records.clone(), table.key.encode(key)?);
        let value =
            self.transact(async move |tx| Ok(tx.get(&records, &key).await?.map(<[u8]>::to_vec)))?;
        match value {
            Some(value) => self.output.value(&table, &value),
            None => self.say_none(),
        }
    }

    fn put(&self, table: String, key: &str, value: &str) -> Result<()> {
        let name = table.clone();
        let table = match self.table(table) {
            Err(error) if is_missing(&error) => {
                let made = name.clone();
                self.transact(async move |tx| {
                    let _: TextTable = tx.open_or_create_table(&made).await?;
                    Ok(())
                })?;
                self.table(name)?
            }
            opened => opened?,
        };
        let key = table.key.encode(key).context("the key")?;
        let value = table.value.encode(value).context("the value")?;
        self.transact(async move |tx| tx.put(&table.records, &key, &value).await)
    }

    fn delete(&self, table: String, key: &str) -> Result<()> {
        let table = self.table(table)?;
        let key = table.key.encode(key)?;
        let there = self.transact(async move |tx| tx.delete(&table.records, &key).await)?;
        if there { Ok(()) } else { self.say_none() }
    }

    fn scan(&self, scan: &Scan) -> Result<()> {
        match &self.open {
            Some(open) => scan::print(open, scan, self.output),
            None => scan::run(self.db, scan, self.output).map(drop),
        }
    }
}

/// What is wrong with a line, in one: the usage of the whole command, and where its help is, help nobody here.
fn wrong_usage(error: &clap::Error) -> String {
    let said = error.render().to_string();
    let paragraphs = said.split("\n\n").map(|words| words.split_whitespace().collect::<Vec<_>>());
    let told: Vec<String> = paragraphs
        .map(|words| words.join(" "))
        .filter(|words| !words.is_empty() && !words.starts_with("For more information"))
        .map(|words| match words.strip_prefix("Usage: ") {
            Some(usage) => format!("it is used as {usage}"),
            None => words.strip_prefix("error: ").unwrap_or(&words).to_owned(),
        })
        // Of a line that is no command, the usage is that of the shell.
        .filter(|words| !words.contains("<COMMAND>"))
        .collect();
    format!("{}; help lists the commands", told.join("; "))
}

fn is_missing(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::TableNotFound(_)))
}
