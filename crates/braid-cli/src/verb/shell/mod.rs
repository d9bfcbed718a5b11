//! `shell`: interactive commands. Each is a transaction, or a step of the open transaction.

mod complete;
mod editor;
mod line;

use std::io::{BufRead, IsTerminal, Read};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use braiddb::{Database, Error, InteractiveTransaction, Transaction};
use pollster::block_on;

use self::editor::LineEditor;
use self::line::Step;
use super::{overview, scan};
use crate::any_table::AnyTable;
use crate::arguments::{RecordName, Scan};
use crate::error_message;
use crate::output::Output;

/// Maximum length of a line: four of the longest values.
const MAX_LINE_BYTES: u64 = 64 << 20;

/// Reads lines until the end of the input. A terminal has a line editor and a history.
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
            "the input ended with an open transaction, which was rolled back; end it with commit \
             or abort"
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the next line without its line end and without a byte order mark. Returns `None` at the
/// end of the input.
fn next_line(input: &mut impl BufRead, is_first: bool) -> Result<Option<String>> {
    let mut line = Vec::new();
    input.by_ref().take(MAX_LINE_BYTES + 1).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.len() as u64 > MAX_LINE_BYTES {
        bail!("the line is longer than {} MiB", MAX_LINE_BYTES >> 20);
    }
    let line = String::from_utf8(line).context("the line is not UTF-8 text")?;
    let line = if is_first { line.trim_start_matches('\u{feff}') } else { &line };
    Ok(Some(line.trim_end_matches(['\r', '\n']).to_owned()))
}

struct Shell<'s> {
    db: &'s Database,
    output: &'s Output,
    open: Option<InteractiveTransaction>,
}

impl Shell<'_> {
    /// Runs the lines of a script.
    fn run_lines(&mut self, mut input: impl BufRead) -> Result<()> {
        for number in 1.. {
            let line = next_line(&mut input, number == 1);
            let should_continue = line.and_then(|line| match line {
                Some(line) => self.run_line(&line),
                None => Ok(false),
            });
            let should_continue = should_continue.with_context(|| match &self.open {
                Some(_) => format!("line {number} (its transaction was rolled back)"),
                None => format!("line {number}"),
            });
            if !should_continue? {
                break;
            }
        }
        Ok(())
    }

    /// Reports that a record does not exist. In a pipe the message goes to standard error, apart
    /// from the values.
    fn report_absent(&self) -> Result<()> {
        if self.output.json {
            return self.output.line("null");
        }
        if std::io::stdout().is_terminal() {
            return self.output.line("(no record)");
        }
        eprintln!("(no record)");
        Ok(())
    }

    /// Runs the lines that a user enters at a terminal.
    fn edit(&mut self) -> Result<()> {
        let mut editor = LineEditor::new(self.db)?;
        eprintln!("help lists the commands; quit leaves; tab completes");
        'lines: while let Some(entered) = editor.read(self.open.is_some())? {
            // Pasted text may have several lines.
            for line in line::commands(&entered) {
                match self.run_line(&line) {
                    Ok(true) => {}
                    Ok(false) => break 'lines,
                    Err(error) => eprintln!("{}", error_message::of(&error)),
                }
            }
        }
        Ok(())
    }

    /// Runs a line. Returns `false` if it leaves the shell.
    fn run_line(&mut self, line: &str) -> Result<bool> {
        let step = match Step::parse(line)? {
            None => return Ok(true),
            Some(Ok(step)) => step,
            Some(Err(help)) => {
                self.output.line(&help)?;
                return Ok(true);
            }
        };
        match step {
            Step::Get(record) => self.get(record)?,
            Step::Put { record, value } => self.put(record, &value)?,
            Step::Delete(record) => self.delete(record)?,
            Step::Scan(scan) => self.scan(&scan)?,
            Step::Tables => overview::tables_in_use(self.db, self.output)?,
            Step::Stats => overview::stats_of(self.db, self.output)?,
            Step::Begin if self.open.is_some() => bail!("a transaction is already open"),
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

    /// Runs a step in the open transaction, or in a new one.
    fn transact<T: Send + 'static>(
        &self,
        step: impl AsyncFn(&Transaction) -> Result<T, Error> + Send + 'static,
    ) -> Result<T> {
        Ok(match &self.open {
            Some(open) => block_on(open.step(step))?,
            None => self.db.run_blocking(step)?,
        })
    }

    /// Opens a table in the open transaction, or in a new one.
    fn table(&self, name: String) -> Result<AnyTable> {
        self.transact(async move |tx| AnyTable::open(tx, &name).await)
    }

    fn get(&self, RecordName { table, key }: RecordName) -> Result<()> {
        let table = self.table(table)?;
        let key = table.key.encode(&key)?;
        let (opened, encoded) = (table.clone(), key.clone());
        match self.transact(async move |tx| opened.get(tx, &encoded).await)? {
            Some(value) => self.output.value(&table, &key, &value),
            None => self.report_absent(),
        }
    }

    fn put(&self, RecordName { table, key }: RecordName, value: &str) -> Result<()> {
        let table = self.transact(async move |tx| AnyTable::open_or_create(tx, &table).await)?;
        let key = table.key.encode(&key).context("the key")?;
        let value = table.value.encode(value).context("the value")?;
        self.transact(async move |tx| tx.put(&table.records, &key, &value).await)
    }

    fn delete(&self, RecordName { table, key }: RecordName) -> Result<()> {
        let table = self.table(table)?;
        let key = table.key.encode(&key)?;
        let there = self.transact(async move |tx| tx.delete(&table.records, &key).await)?;
        if there { Ok(()) } else { self.report_absent() }
    }

    fn scan(&self, scan: &Scan) -> Result<()> {
        match &self.open {
            Some(open) => scan::print(open, scan, self.output),
            None => scan::run(self.db, scan, self.output).map(drop),
        }
    }
}
