//! The layout and the content of the screen.

use std::time::Duration;

use braiddb::Stats;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Row, Table};

use super::rates::{self, Rates};
use super::source::STALE;
use crate::output::escaped;

/// The content of the screen.
pub struct View {
    /// The name of the file or the database.
    pub name: String,
    pub stats: Option<Stats>,
    pub rates: Rates,
    /// The line about the node, if the database is of a cluster.
    pub cluster: Option<String>,
    /// Age of the statistics.
    pub age: Duration,
    /// Time for which the oldest open transaction or snapshot was the same one in all samples.
    pub oldest_age: Duration,
    /// The error of the last update.
    pub trouble: Option<String>,
    pub is_paused: bool,
}

impl View {
    pub fn new(name: String) -> Self {
        Self {
            name,
            stats: None,
            rates: Rates::default(),
            cluster: None,
            age: Duration::ZERO,
            oldest_age: Duration::ZERO,
            trouble: None,
            is_paused: false,
        }
    }

    /// The status of the statistics: paused, failed, waiting or old.
    fn status(&self) -> String {
        if self.is_paused {
            return "paused".to_owned();
        }
        match &self.trouble {
            Some(trouble) => trouble.clone(),
            None if self.stats.is_none() => "waiting for statistics".to_owned(),
            None if self.age > STALE => format!("{} seconds old", self.age.as_secs()),
            None => String::new(),
        }
    }
}

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, view: &View) {
    let cluster_rows = Constraint::Length(u16::from(view.cluster.is_some()));
    let rows = [Constraint::Length(1), cluster_rows, Constraint::Min(0), Constraint::Length(1)];
    let [title, cluster, middle, keys] = Layout::vertical(rows).areas(frame.area());
    let status = view.status();
    let heading = Line::from(vec![
        "braid top  ".bold(),
        view.name.as_str().into(),
        "  ".into(),
        status.red(),
    ]);
    frame.render_widget(heading, title);
    frame.render_widget(Line::from(view.cluster.as_deref().unwrap_or_default()), cluster);
    frame.render_widget(Line::from("q quit   p pause").dim(), keys);
    let Some(stats) = &view.stats else { return };
    let halves = [Constraint::Percentage(50), Constraint::Percentage(50)];
    let heights = [Constraint::Length(10), Constraint::Length(12), Constraint::Min(3)];
    let [top, centre, bottom] = Layout::vertical(heights).areas(middle);
    let [left, right] = Layout::horizontal(halves).areas(top);
    figures(frame, left, "transactions", transactions(stats, &view.rates));
    figures(frame, right, "suspensions a second", suspensions(&view.rates));
    let [left, right] = Layout::horizontal(halves).areas(centre);
    figures(frame, left, "log and disk", log(stats, &view.rates));
    figures(frame, right, "memory and pages", memory(view, stats));
    workers(frame, bottom, stats, &view.rates);
}

/// Lines with a name and a figure.
type Figures = Vec<(String, String)>;

fn figure(name: &str, value: impl Into<String>) -> (String, String) {
    (name.to_owned(), value.into())
}

fn figures(frame: &mut Frame<'_>, area: Rect, title: &str, figures: Figures) {
    let block = Block::bordered().title(format!(" {title} "));
    let inside = block.inner(area);
    let width = usize::from(inside.width);
    let lines = figures.into_iter().map(|(name, value)| {
        let room = width.saturating_sub(name.chars().count() + 1);
        Line::from(format!("{name} {value:>room$}"))
    });
    frame.render_widget(block, area);
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), inside);
}

fn transactions(stats: &Stats, rates: &Rates) -> Figures {
    let mut figures = vec![
        figure("committed a second", count(rates.committed)),
        figure("  of these read only", count(rates.read_only)),
        figure("aborted a second", count(rates.aborted)),
        figure("retries a second", count(rates.retries)),
        figure("committed in total", count(stats.committed as f64)),
        figure("aborted in total", count(stats.aborted.total() as f64)),
    ];
    let mut causes = rates::abort_causes(&stats.aborted);
    causes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let most = causes.into_iter().take(2).filter(|(_, count)| *count > 0);
    figures.extend(most.map(|(name, number)| figure(&format!("  {name}"), count(number as f64))));
    figures
}

fn suspensions(rates: &Rates) -> Figures {
    rates.suspensions.iter().map(|(name, rate)| figure(name, count(*rate))).collect()
}

fn log(stats: &Stats, rates: &Rates) -> Figures {
    // A database without a log reports everything as durable.
    let waiting = match stats.lsn.durable {
        u64::MAX => "nothing is logged".to_owned(),
        durable => bytes(stats.lsn.tail.saturating_sub(durable)),
    };

    vec![
        figure("written a second", bytes(rates.written_bytes as u64)),
        figure("flushes a second", count(rates.flushes)),
        figure("not yet durable", waiting),
        figure("since the checkpoint", bytes(stats.lsn.tail.saturating_sub(stats.lsn.checkpoint))),
        figure(&log_holder(stats), bytes(stats.lsn.tail.saturating_sub(stats.lsn.kept))),
        figure("snapshots open", count(stats.snapshots_open as f64)),
        figure("files of the log", bytes(stats.log.disk_bytes)),
        figure("file of the checkpoint", bytes(stats.checkpoint_bytes)),
        figure("disk reserve", bytes(stats.log.reserve_bytes)),
        figure("commits refused, disk full", count(stats.log.extensions_refused as f64)),
    ]
}

/// The name of the change slot, or the change feed, that keeps the log: it needs the lowest position.
fn log_holder(stats: &Stats) -> String {
    const MAX_NAME_CHARACTERS: usize = 14;
    let first = stats.log_holders.iter().find(|holder| holder.from == stats.lsn.kept);
    match first.map(|holder| &holder.slot) {
        None => "kept for change feeds".to_owned(),
        Some(None) => "kept by a change feed".to_owned(),
        Some(Some(name)) => {
            let begin: String = escaped(name).chars().take(MAX_NAME_CHARACTERS).collect();
            format!("kept by slot {begin}")
        }
    }
}

/// The log since the oldest open transaction or snapshot began, and its observed age.
fn oldest(stats: &Stats, age: Duration) -> String {
    match stats.lsn.tail.saturating_sub(stats.lsn.oldest_begin) {
        0 => "none".to_owned(),
        since => format!("{}, {} s", bytes(since), age.as_secs()),
    }
}

fn memory(view: &View, stats: &Stats) -> Figures {
    let rates = &view.rates;
    let memory = &stats.memory;
    let budget = memory.budget.map_or_else(|| "unlimited".to_owned(), bytes);
    let index = memory.index_nodes + memory.keys + memory.indirection;
    let pages = match stats.pages.frames {
        0 => "none".to_owned(),
        _ => {
            let [resident, dirty, orphaned] =
                [stats.pages.resident, stats.pages.dirty, stats.pages.orphaned];
            [resident, dirty, orphaned].map(|pages| count(pages as f64)).join(", ")
        }
    };
    vec![
        figure("process", format!("{} (budget {budget})", bytes(memory.resident))),
        figure("versions", bytes(memory.versions)),
        figure("indexes", bytes(index)),
        figure("evicted a second", count(rates.evicted)),
        figure("pages, dirty, orphaned", pages),
        figure("page images on disk", bytes(stats.pages.zone_bytes)),
        figure("files of pages", bytes(stats.pages.file_bytes)),
        figure(
            "pages loaded, written a second",
            format!("{}, {}", count(rates.page_faults), count(rates.pages_written)),
        ),
        figure("old versions kept", count(stats.versions_waiting as f64)),
        figure("oldest transaction", oldest(stats, view.oldest_age)),
    ]
}

fn workers(frame: &mut Frame<'_>, area: Rect, stats: &Stats, rates: &Rates) {
    let header = ["worker", "width", "hot", "cold", "parked", "foreign", "tasks/s", "longest"];
    let rows = stats.workers.iter().enumerate().map(|(number, worker)| {
        let finished = rates.finished.get(number).copied().unwrap_or_default();
        let [hot, cold, parked, foreign] =
            [worker.hot, worker.cold, worker.parked, worker.foreign].map(|tasks| tasks.to_string());
        let longest = format!("{} ms", worker.longest_stretch.as_millis());
        let width = worker.width.to_string();
        Row::new([number.to_string(), width, hot, cold, parked, foreign, count(finished), longest])
    });
    let widths = [Constraint::Ratio(1, 8); 8];
    let table = Table::new(rows, widths)
        .header(Row::new(header).style(Style::new().bold()))
        .block(Block::bordered().title(format!(" {} workers ", stats.workers.len())));
    frame.render_widget(table, area);
}

/// Formats a number with about four digits.
pub fn count(number: f64) -> String {
    let (scaled, unit) = match number {
        ..1e4 => (number, ""),
        1e4..1e7 => (number / 1e3, " k"),
        1e7..1e10 => (number / 1e6, " M"),
        _ => (number / 1e9, " G"),
    };
    let digits = usize::from(scaled < 10.0 && scaled.fract() != 0.0);
    format!("{scaled:.digits$}{unit}")
}

/// Formats bytes with a unit.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut scaled, mut unit) = (bytes as f64, 0);
    while scaled >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && scaled < 100.0);
    format!("{scaled:.digits$} {}", UNITS[unit])
}
