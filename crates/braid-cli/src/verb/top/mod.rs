//! `top`: a live screen with the activity of a database.
//!
//! Only one process can open a database for writing. If a program has it open, this command asks
//! it for its statistics, or reads them from a file that the program writes. Otherwise this command
//! opens the database itself.

mod cluster;
mod rates;
mod screen;
mod source;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::arguments::Top;
use crate::store::StoreArguments;
use crate::verb::statistics_file::Sample;
use rates::Rates;
use screen::View;
use source::Source;

/// The effect of a key press.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Quit,
    Pause,
}

/// Shows the screen until the user presses `q`.
pub fn run(top: &Top, store: &StoreArguments) -> Result<ExitCode> {
    // Fails before it opens anything.
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        bail!("braid top needs a terminal; for a pipe or a program use braid stats --watch --json");
    }
    let every = Duration::from_secs_f64(top.every);
    let mut source = Source::new(top, store)?;
    let mut terminal = ratatui::try_init().context("cannot draw on this terminal")?;
    let shown = show(&mut terminal, &mut source, every);
    ratatui::restore();
    shown?;
    Ok(ExitCode::SUCCESS)
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    source: &mut Source,
    every: Duration,
) -> Result<()> {
    let mut view = View::new(source.name());
    let mut samples = Samples::default();
    loop {
        if !view.is_paused {
            match source.sample() {
                Ok(Some(sample)) => samples.add(sample),
                Ok(None) => {}
                Err(error) => view.trouble = Some(format!("{error:#}")),
            }
            samples.show(&mut view);
        }
        let next = Instant::now() + every;
        loop {
            terminal.draw(|frame| screen::draw(frame, &view)).context("cannot draw")?;
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() || !event::poll(left).context("cannot read the keyboard")? {
                break;
            }
            match command(&event::read().context("cannot read the keyboard")?) {
                Some(Command::Quit) => return Ok(()),
                Some(Command::Pause) => view.is_paused = !view.is_paused,
                None => {}
            }
        }
    }
}

fn command(event: &Event) -> Option<Command> {
    let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) = event else {
        return None;
    };
    match code {
        KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => Some(Command::Quit),
        KeyCode::Char('q') | KeyCode::Esc => Some(Command::Quit),
        KeyCode::Char('p' | ' ') => Some(Command::Pause),
        _ => None,
    }
}

/// The newest sample, and the rates between it and the previous one.
#[derive(Default)]
struct Samples {
    newest: Option<Sample>,
    rates: Rates,
    /// Since when the oldest open transaction or snapshot has been the same one.
    oldest_since: Option<SystemTime>,
}

impl Samples {
    fn add(&mut self, sample: Sample) {
        if let Some(before) = &self.newest {
            if sample.taken == before.taken {
                return;
            }
            let elapsed = sample.taken.duration_since(before.taken).unwrap_or_default();
            self.rates = Rates::between(&before.stats, &sample.stats, elapsed);
        }
        let oldest = |sample: &Sample| sample.stats.lsn.oldest_begin;
        if self.newest.as_ref().map(oldest) != Some(oldest(&sample)) {
            self.oldest_since = Some(sample.taken);
        }
        self.newest = Some(sample);
    }

    fn show(&self, view: &mut View) {
        let Some(newest) = &self.newest else { return };
        view.age = newest.taken.elapsed().unwrap_or_default();
        view.trouble = view.trouble.take().filter(|_| view.age > source::STALE);
        view.rates = self.rates.clone();
        let since = self.oldest_since.and_then(|since| newest.taken.duration_since(since).ok());
        view.oldest_age = since.unwrap_or_default();
        view.cluster = newest.cluster.as_ref().and_then(cluster::line);
        view.stats = Some(newest.stats.clone());
    }
}
