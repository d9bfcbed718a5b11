//! Reports as text for people.

use std::io::{self, Write};

use comfy_table::{Attribute, Cell, CellAlignment, Color, Table, presets};

use super::machine::Machine;
use super::number;
use super::report::{Bar, Document, Report, Side, Verdict};
use super::rounds::{Effort, Measured};
use super::spread::Spread;

/// The share of a machine's processor time that other processes may use before the report mentions
/// it.
const QUIET_PERCENT: f64 = 5.0;

/// Writes the machine and every report.
pub fn write(out: &mut dyn Write, document: &Document) -> io::Result<()> {
    for report in &document.reports {
        write_report(out, report)?;
    }
    write_bars(out, &document.reports)?;
    write_machine(out, &document.machine)
}

fn write_machine(out: &mut dyn Write, machine: &Machine) -> io::Result<()> {
    let mut parts = vec![format!("{} cores of {}", machine.cores, machine.processor)];
    parts.extend(machine.last_level_cache.as_ref().map(|size| format!("last-level cache {size}")));
    parts.extend(machine.memory_bytes.map(|bytes| format!("{} memory", number::bytes(bytes))));
    parts.push(machine.kernel.clone());
    parts.extend(machine.huge_pages.as_ref().map(|mode| format!("huge pages: {mode}")));
    parts.push(format!("braid {}", machine.version));
    writeln!(out, "Measured on {}.", parts.join(", "))?;
    if !machine.optimised {
        writeln!(
            out,
            "NOT an optimised build: the figures mean nothing. Use cargo run --release."
        )?;
    }
    Ok(())
}

fn write_report(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    writeln!(out, "{}: {}", report.workload, report.what)?;
    if let Some(setting) = &report.setting {
        let effort = match setting.effort {
            Effort::Seconds(seconds) => format!("{} s", number::three_digits(seconds)),
            Effort::Transactions(count) => format!("{} transactions", number::grouped(count)),
        };
        let records = number::grouped(setting.records);
        let rounds = setting.rounds;
        writeln!(out, "{records} records, {rounds} alternating rounds of {effort} each")?;
    }
    if !report.measured.is_empty() {
        writeln!(out, "\n{}\n", subjects(report))?;
    }
    if report.measured.iter().any(|measured| measured.latency.is_some()) {
        writeln!(out, "{}\n", latencies(&report.measured))?;
    }
    if report.measured.iter().any(|measured| !measured.kinds.is_empty()) {
        writeln!(out, "{}\n", kinds(&report.measured))?;
    }
    if report.measured.iter().any(|measured| measured.aborts.iter().any(|abort| abort.attempts > 0))
    {
        writeln!(out, "{}\n", aborts(&report.measured))?;
    }
    for ratio in &report.ratios {
        let Spread { median, min, max } = ratio.ratio;
        let (median, min, max) =
            (number::three_digits(median), number::three_digits(min), number::three_digits(max));
        writeln!(out, "  {} = {median} × {}  ({min} to {max})", ratio.above, ratio.below)?;
    }
    for fact in &report.facts {
        writeln!(out, "  {}: {}", fact.name, fact.text)?;
    }
    if !report.published.is_empty() {
        writeln!(out, "\n{}\n", published(report))?;
    }
    for note in &report.notes {
        writeln!(out, "  note: {note}")?;
    }
    if let Some(percent) = report.others_percent.filter(|percent| *percent > QUIET_PERCENT) {
        writeln!(
            out,
            "  NOTE: others took {percent:.0} % of the machine's processor time meanwhile. Measure \
             again on a quiet machine."
        )?;
    }
    for figure in &report.figures {
        writeln!(out, "  file: {}", figure.display())?;
    }
    writeln!(out)
}

/// Returns a table with these headings.
pub fn empty_table(header: Vec<&str>) -> Table {
    let mut table = Table::new();
    // Markdown, so that the table can be pasted into a page.
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(header.into_iter().map(|name| Cell::new(name).add_attribute(Attribute::Bold)));
    table
}

/// Returns a cell whose text is at its right edge.
pub fn right(text: impl ToString) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

/// Returns a table of published figures and the figures measured here.
fn published(report: &Report) -> Table {
    let mut table = empty_table(vec!["", "published", "measured here", "here over published"]);
    for figure in &report.published {
        let (ours, over) = match figure.ours {
            Some(ours) => {
                let over = number::three_digits(ours / figure.theirs);
                (with_unit(ours, figure.unit), format!("{over} ×"))
            }
            None => ("not measured".to_owned(), String::new()),
        };
        let theirs = with_unit(figure.theirs, figure.unit);
        table.add_row(vec![Cell::new(&figure.what), right(theirs), right(ours), right(over)]);
    }
    table
}

fn subjects(report: &Report) -> Table {
    let unit = format!("{}/s", report.unit);
    let mut table = empty_table(vec!["", &unit, "least", "most", "in all", "conflicts"]);
    for subject in &report.measured {
        table.add_row(vec![
            Cell::new(&subject.name),
            right(number::scaled(subject.rate.median)),
            right(number::scaled(subject.rate.min)),
            right(number::scaled(subject.rate.max)),
            right(number::grouped(subject.transactions)),
            right(number::grouped(subject.conflicts)),
        ]);
    }
    table
}

fn latencies(measured: &[Measured]) -> Table {
    let names = measured.iter().find_map(|subject| subject.latency.as_ref());
    let names = names.map_or(Vec::new(), |summary| {
        summary.percentiles.iter().map(|percentile| percentile.name).collect()
    });
    let header = std::iter::once("latency").chain(names).collect();
    let mut table = empty_table(header);
    for subject in measured {
        let Some(summary) = &subject.latency else { continue };
        let times = summary.percentiles.iter();
        let cells = times.map(|percentile| right(number::nanoseconds(percentile.nanoseconds)));
        table.add_row(std::iter::once(Cell::new(&subject.name)).chain(cells).collect::<Vec<_>>());
    }
    table
}

/// Returns a table of each kind of transaction of each subject: number, conflicts, latency, and the
/// number of unsuccessful transactions unless it is 0.
fn kinds(measured: &[Measured]) -> Table {
    let summaries = measured.iter().flat_map(|subject| &subject.kinds);
    let names = summaries.filter_map(|kind| kind.latency.as_ref()).next();
    let names = names.map_or(Vec::new(), |summary| {
        summary.percentiles.iter().map(|percentile| percentile.name).collect()
    });
    let unsuccessful =
        measured.iter().flat_map(|subject| &subject.kinds).any(|kind| kind.unsuccessful > 0);
    let header = ["", "transactions", "in all", "failed attempts"].into_iter();
    let header = header.chain(unsuccessful.then_some("unsuccessful"));
    let mut table = empty_table(header.chain(names).collect());
    for subject in measured {
        for kind in subject.kinds.iter().filter(|kind| kind.transactions > 0) {
            let mut row = vec![
                Cell::new(&subject.name),
                Cell::new(kind.name),
                right(number::grouped(kind.transactions)),
                right(percent(kind.conflicts, kind.transactions + kind.conflicts)),
            ];
            if unsuccessful {
                row.push(right(percent(kind.unsuccessful, kind.transactions)));
            }
            let times = kind.latency.iter().flat_map(|summary| &summary.percentiles);
            row.extend(times.map(|time| right(number::nanoseconds(time.nanoseconds))));
            table.add_row(row);
        }
    }
    table
}

/// Returns a table of failed attempts of each subject by cause, relative to all attempts.
fn aborts(measured: &[Measured]) -> Table {
    let causes = measured.iter().find(|subject| !subject.aborts.is_empty());
    let causes = causes.map_or(&[][..], |subject| &subject.aborts[..]);
    let header = std::iter::once("attempts that failed of a");
    let mut table = empty_table(header.chain(causes.iter().map(|abort| abort.cause)).collect());
    for subject in measured {
        let attempts = subject.transactions + subject.conflicts;
        let shares = subject.aborts.iter().map(|abort| right(percent(abort.attempts, attempts)));
        table.add_row(std::iter::once(Cell::new(&subject.name)).chain(shares).collect::<Vec<_>>());
    }
    table
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.2} %", 100.0 * part as f64 / whole.max(1) as f64)
}

fn write_bars(out: &mut dyn Write, reports: &[Report]) -> io::Result<()> {
    if reports.iter().all(|report| report.bars.is_empty()) {
        return Ok(());
    }
    let mut table = empty_table(vec!["workload", "bar", "must be", "measured", ""]);
    for report in reports {
        for bar in &report.bars {
            table.add_row(vec![
                Cell::new(&report.workload),
                Cell::new(&bar.what),
                right(limit(bar)),
                right(with_unit(bar.measured, bar.unit)),
                verdict(bar.verdict),
            ]);
        }
    }
    writeln!(out, "{table}\n")
}

fn limit(bar: &Bar) -> String {
    let side = match bar.side {
        Side::AtLeast => "≥",
        Side::AtMost => "≤",
    };
    format!("{side} {}", with_unit(bar.limit, bar.unit))
}

fn with_unit(value: f64, unit: &str) -> String {
    match unit {
        "×" | "%" => format!("{} {unit}", number::three_digits(value)),
        _ => format!("{} {unit}", number::scaled(value)),
    }
}

fn verdict(verdict: Verdict) -> Cell {
    match verdict {
        Verdict::Met => Cell::new("met").fg(Color::Green),
        Verdict::Missed => Cell::new("MISSED").fg(Color::Red),
        Verdict::NotJudged => Cell::new("not at scale"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_contain_subjects_ratios_bars_and_machine() {
        let rate = Spread { median: 1.5e6, min: 1.4e6, max: 1.6e6 };
        let measured = |name: &str, factor: f64| Measured {
            name: name.into(),
            rates: vec![1.5e6 * factor],
            rate,
            transactions: 12_345_678,
            conflicts: 3,
            latency: None,
            kinds: Vec::new(),
            aborts: Vec::new(),
        };
        let mut report = Report::new("reads", "ten reads a transaction");
        report.measured = vec![measured("braided", 1.0), measured("sequential", 0.2)];
        let ratio = report.ratio("braided", "sequential");
        report.bar("braided over sequential", (Side::AtLeast, 4.0, "×"), ratio, true);
        let document = Document { machine: Machine::here(), reports: vec![report] };
        let mut out = Vec::new();
        write(&mut out, &document).unwrap();
        let text = String::from_utf8(out).unwrap();
        for part in ["1.50 M", "12 345 678", "= 5.00 × sequential", "≥ 4.00 ×", "met", "cores of"]
        {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert_eq!(document.missed(), 0);
    }
}
