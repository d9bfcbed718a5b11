//! The line editor of the shell, with a history that persists and completion.

use std::path::PathBuf;

use anyhow::Result;
use braiddb::Database;
use rustyline::Editor;
use rustyline::config::{CompletionType, Config};
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;

use super::complete::Completions;

/// The file of the history in the home directory.
const HISTORY: &str = ".braid_history";

/// Reads lines from a terminal.
pub struct LineEditor {
    editor: Editor<Completions, DefaultHistory>,
    history: Option<PathBuf>,
}

impl LineEditor {
    /// Loads the history.
    pub fn new(db: &Database) -> Result<Self> {
        let config = Config::builder().completion_type(CompletionType::List).build();
        let mut editor = Editor::with_config(config)?;
        editor.set_helper(Some(Completions::new(db)));
        let history = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(HISTORY));
        if let Some(history) = &history {
            // Fails the first time, when the file does not exist.
            _ = editor.load_history(history);
        }
        Ok(Self { editor, history })
    }

    /// Reads what the user enters. Returns `None` at the end of the input. The history is written
    /// after each line, so that it survives an interrupted command.
    pub fn read(&mut self, is_open: bool) -> Result<Option<String>> {
        let prompt = if is_open { "braid (open)> " } else { "braid> " };
        loop {
            match self.editor.readline(prompt) {
                Ok(line) => {
                    if self.editor.add_history_entry(&line)? {
                        self.save();
                    }
                    return Ok(Some(line));
                }
                Err(ReadlineError::Interrupted) => {}
                Err(ReadlineError::Eof) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn save(&mut self) {
        if let Some(history) = &self.history
            && let Err(error) = self.editor.append_history(history)
        {
            eprintln!("cannot save the history in {}: {error}", history.display());
            self.history = None;
        }
    }
}
