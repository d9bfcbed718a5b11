//! Lines of the shell: their commands and arguments.

use anyhow::{Result, bail};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::arguments::{RecordName, Scan};
use crate::negative_numbers::with_negative_numbers;
use crate::shown::shortened;

/// A line of the shell.
#[derive(Debug, Parser)]
#[command(multicall = true, disable_version_flag = true)]
pub struct Line {
    #[command(subcommand)]
    pub step: Step,
}

#[derive(Debug, Subcommand)]
pub enum Step {
    /// Print the value of a key.
    Get(RecordName),
    /// Set the value of a key. Creates the table if it does not exist.
    Put {
        #[command(flatten)]
        record: RecordName,
        /// New value.
        value: String,
    },
    /// Delete a key.
    Delete(RecordName),
    /// Print the records of a range.
    Scan(Scan),
    /// List the tables.
    Tables,
    /// Show the statistics.
    Stats,
    /// Begin a transaction. The following commands are its steps.
    Begin,
    /// Commit the open transaction.
    Commit,
    /// Roll the open transaction back.
    #[command(visible_alias = "rollback")]
    Abort,
    /// Leave the shell. An open transaction is rolled back.
    #[command(alias = "exit")]
    Quit,
}

impl Step {
    /// Parses a line. Returns `None` for an empty line and a comment. Returns the text to print if
    /// the line asks for help.
    ///
    /// # Errors
    /// If it is not a command.
    pub fn parse(line: &str) -> Result<Option<Result<Self, String>>> {
        let Some(words) = shlex::split(line) else {
            bail!("a quotation mark is not closed: {}", shortened(line))
        };
        if words.is_empty() || words[0].starts_with('#') {
            return Ok(None);
        }
        let mut command = with_negative_numbers(Line::command());
        let line = command.try_get_matches_from_mut(words);
        match line.and_then(|line| Line::from_arg_matches(&line)) {
            Ok(line) => Ok(Some(Ok(line.step))),
            Err(error) if error.use_stderr() => bail!("{}", wrong_usage(&error)),
            Err(help) => Ok(Some(Err(help.render().to_string()))),
        }
    }
}

/// Splits pasted text into commands: its lines, unless a quotation mark continues in the next line.
pub fn commands(text: &str) -> Vec<String> {
    let (mut commands, mut open) = (Vec::new(), String::new());
    for line in text.lines() {
        if !open.is_empty() {
            open.push('\n');
        }
        open.push_str(line);
        if shlex::split(&open).is_some() {
            commands.push(std::mem::take(&mut open));
        }
    }
    if !open.is_empty() {
        commands.push(open);
    }
    commands
}

/// The usage error of a line, on one line, without the usage and help of the whole command.
fn wrong_usage(error: &clap::Error) -> String {
    let said = error.render().to_string();
    let paragraphs = said.split("\n\n").map(|words| words.split_whitespace().collect::<Vec<_>>());
    let messages: Vec<String> = paragraphs
        .map(|words| words.join(" "))
        .filter(|words| !words.is_empty() && !words.starts_with("For more information"))
        .map(|words| match words.strip_prefix("Usage: ") {
            Some(usage) => format!("usage: {usage}"),
            None => words.strip_prefix("error: ").unwrap_or(&words).to_owned(),
        })
        // An unknown command has only the usage of the shell.
        .filter(|words| !words.contains("<COMMAND>"))
        .collect();
    format!("{}; help lists the commands", messages.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pasted_lines_are_separate_commands() {
        assert_eq!(commands("get t a"), ["get t a"]);
        assert_eq!(
            commands("put t a 1\nput t b 2\n\nscan t\n"),
            ["put t a 1", "put t b 2", "", "scan t"]
        );
        // A value with line ends.
        assert_eq!(commands("put t a 'x\n y'\nget t a"), ["put t a 'x\n y'", "get t a"]);
        assert_eq!(commands("put t a 'x\nget t a"), ["put t a 'x\nget t a"]);
        assert!(Step::parse("put t a 'x").unwrap_err().to_string().contains("is not closed"));
    }

    #[test]
    fn negative_numbers_are_words() {
        for line in ["put t -1 -2.5", "get t -1", "delete t -1", "scan t --from -7 --to -1"] {
            assert!(matches!(Step::parse(line), Ok(Some(Ok(_)))), "{line}");
        }
        assert!(Step::parse("get t --none").is_err());
    }

    #[test]
    fn rollback_and_abort_are_the_same() {
        for word in ["abort", "rollback"] {
            assert!(matches!(Step::parse(word), Ok(Some(Ok(Step::Abort)))), "{word}");
        }
    }
}
