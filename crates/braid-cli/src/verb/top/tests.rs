//! The screen for given statistics, the rates, and the keys.

use std::time::Duration;

use braiddb::Stats;
use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::cluster;
use super::rates::Rates;
use super::screen::{self, View};
use super::{Command, Sample, Samples, command};

fn stats(committed: u64) -> Stats {
    let json = serde_json::json!({
        "committed": committed, "committed_read_only": committed / 4, "retries": 3,
        "aborted": {"conflict": 12, "requested": 3, "log": 1},
        "workers": [
            {"hot": 12, "cold": 180, "parked": 3, "foreign": 1, "width": 24, "finished": committed / 2,
             "sleeps": 5, "longest_stretch": {"secs": 0, "nanos": 7_000_000}},
            {"hot": 0, "cold": 0, "width": 32, "finished": committed / 2},
        ],
        "suspensions": {"memory": committed * 3, "commit": committed, "storage": 10},
        "lsn": {"tail": 3_u64 << 30, "buffered": 3_u64 << 30, "checkpoint": 2_u64 << 30, "durable": (3_u64 << 30) - 4096,
                "kept": 1_u64 << 30, "oldest_begin": 1_u64 << 30},
        "log_holders": [{"slot": "search", "from": 1_u64 << 30, "bytes": 2_u64 << 30},
                        {"slot": null, "from": 2_u64 << 30, "bytes": 1_u64 << 30}],
        "versions_waiting": 12_000,
        "snapshots_open": 2, "checkpoint_bytes": 3_u64 << 20,
        "log": {"flushes": committed / 100, "bytes_written": committed * 100, "disk_bytes": 5_u64 << 30,
                "reserve_bytes": 4_u64 << 20},
        "memory": {"versions": 300_u64 << 20, "index_nodes": 60_u64 << 20, "keys": 4_u64 << 20, "budget": 1_u64 << 30,
                   "resident": 700_u64 << 20},
        "pages": {"frames": 4096, "resident": 1000, "dirty": 5, "orphaned": 2, "faults": 7,
                  "zone_bytes": 8_u64 << 20, "file_bytes": 9_u64 << 20},
        "of a later version": 1,
    });
    serde_json::from_value(json).unwrap()
}

fn view(name: &str, elapsed: Duration) -> View {
    let (before, after) = (stats(100_000), stats(400_000));
    let mut view = View::new(name.to_owned());
    view.rates = Rates::between(&before, &after, elapsed);
    view.stats = Some(after);
    view
}

fn drawn(view: &View, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| screen::draw(frame, view)).unwrap();
    let shown = terminal.backend().to_string();
    shown.lines().map(|line| line.trim_matches('"').trim_end().to_owned()).collect()
}

#[test]
fn the_screen_shows_rates_and_figures() {
    let shown = drawn(&view("stats.json", Duration::from_secs(2)), 80, 29);
    let expected = "
braid top  stats.json
┌ transactions ────────────────────────┐┌ suspensions a second ────────────────┐
│committed a second               150 k││memory                           450 k│
│  of these read only              38 k││storage                              0│
│aborted a second                     0││commit                           150 k│
│retries a second                     0││log space                            0│
│committed in total               400 k││undecided                            0│
│aborted in total                    16││back-off                             0│
│  conflict                          12││grace period                         0│
│  requested                          3││foreign                              0│
└──────────────────────────────────────┘└──────────────────────────────────────┘
┌ log and disk ────────────────────────┐┌ memory and pages ────────────────────┐
│written a second              14.3 MiB││process       700 MiB (budget 1.0 GiB)│
│flushes a second                  1500││versions                       300 MiB│
│not yet durable                4.0 KiB││indexes                       64.0 MiB│
│since the checkpoint           1.0 GiB││evicted a second                     0│
│kept by slot search            2.0 GiB││pages, dirty, orphaned      1000, 5, 2│
│snapshots open                       2││page images on disk            8.0 MiB│
│files of the log               5.0 GiB││files of pages                 9.0 MiB│
│file of the checkpoint         3.0 MiB││pages loaded, written a second    0, 0│
│disk reserve                   4.0 MiB││old versions kept                 12 k│
│commits refused, disk full           0││oldest transaction        2.0 GiB, 0 s│
└──────────────────────────────────────┘└──────────────────────────────────────┘
┌ 2 workers ───────────────────────────────────────────────────────────────────┐
│worker    width     hot       cold      parked   foreign   tasks/s   longest  │
│0         24        12        180       3        1         75 k      7 ms     │
│1         32        0         0         0        0         75 k      0 ms     │
└──────────────────────────────────────────────────────────────────────────────┘
q quit   p pause";
    assert_eq!(shown, expected.trim_start_matches('\n').lines().collect::<Vec<_>>(), "{shown:#?}");
}

#[test]
fn first_line_shows_errors_and_age() {
    let mut view = view("stats.json", Duration::from_secs(1));
    assert_eq!(drawn(&view, 80, 25)[0], "braid top  stats.json");
    view.age = Duration::from_secs(60);
    assert_eq!(drawn(&view, 80, 25)[0], "braid top  stats.json  60 seconds old");
    view.trouble = Some("cannot read statistics".to_owned());
    assert_eq!(drawn(&view, 80, 25)[0], "braid top  stats.json  cannot read statistics");
    view.is_paused = true;
    assert_eq!(drawn(&view, 80, 25)[0], "braid top  stats.json  paused");
    let waiting = drawn(&View::new("s".to_owned()), 80, 25);
    assert_eq!(waiting[0], "braid top  s  waiting for statistics");
}

#[test]
fn second_line_shows_the_node_of_a_cluster() {
    let mut status = serde_json::json!({
        "node": 1, "role": "leader", "term": 3, "leader": 1, "last_log_index": 120,
        "committed_index": 119, "applied_index": 117, "replicated": {"1": 120, "2": 120, "3": 90},
        "failure": null, "of a later version": 1,
    });
    let mut view = view("braid.db", Duration::from_secs(1));
    view.cluster = cluster::line(&status);
    let shown = drawn(&view, 120, 30);
    let expected = "node 1 leader  leader 1  term 3  committed 119  applied 117  lag 2  lag of 2: 0  \
                    lag of 3: 30";
    assert_eq!(shown[1], expected);
    assert!(shown[2].contains("transactions"), "{shown:#?}");
    status["failure"] = "the disk is full".into();
    assert_eq!(cluster::line(&status).unwrap(), "node 1 has stopped: the disk is full");
    assert_eq!(cluster::line(&serde_json::json!({"node": 1})), None);
}

#[test]
fn screen_fits_any_terminal_size() {
    let view = view("a-long-name-of-a-file-of-statistics.json", Duration::from_secs(1));
    for (width, height) in [(1, 1), (3, 2), (20, 5), (40, 60), (300, 12)] {
        assert_eq!(drawn(&view, width, height).len(), usize::from(height));
    }
}

/// Counters of a restarted program and of an unchanged file give no rates.
#[test]
fn rates_need_two_samples_of_one_process() {
    let (few, many) = (stats(1000), stats(9000));
    assert_eq!(Rates::between(&few, &many, Duration::from_secs(2)).committed, 4000.0);
    assert_eq!(Rates::between(&many, &few, Duration::from_secs(2)), Rates::default());
    assert_eq!(Rates::between(&few, &many, Duration::ZERO), Rates::default());
    let mut samples = Samples::default();
    let taken = std::time::SystemTime::now();
    samples.add(Sample { stats: few, taken, cluster: None });
    let later = Sample { stats: many, taken: taken + Duration::from_secs(1), cluster: None };
    samples.add(later.clone());
    samples.add(later.clone());
    assert_eq!(samples.rates.committed, 8000.0);
    // The oldest transaction was the same in both samples. Then another one was the oldest.
    let mut view = View::new("s".to_owned());
    samples.show(&mut view);
    assert_eq!(view.oldest_age, Duration::from_secs(1));
    let mut last = Sample { taken: later.taken + Duration::from_secs(1), ..later };
    last.stats.lsn.oldest_begin += 1;
    samples.add(last);
    samples.show(&mut view);
    assert_eq!(view.oldest_age, Duration::ZERO);
}

#[test]
fn the_holder_of_the_log_is_named() {
    let mut view = view("stats.json", Duration::from_secs(1));
    let stats = view.stats.as_mut().unwrap();
    stats.log_holders[0].slot = Some("a very long\tname of a slot".to_owned());
    let shown = drawn(&view, 80, 29).join("\n");
    assert!(shown.contains("│kept by slot a very long\\tn    2.0 GiB│"), "{shown}");
    let stats = view.stats.as_mut().unwrap();
    stats.log_holders.remove(0);
    stats.lsn.kept = 2 << 30;
    stats.lsn.oldest_begin = stats.lsn.tail;
    let shown = drawn(&view, 80, 29).join("\n");
    assert!(shown.contains("│kept by a change feed          1.0 GiB│"), "{shown}");
    assert!(shown.contains("│oldest transaction                none│"), "{shown}");
}

#[test]
fn keys_quit_and_pause() {
    let press = |code, modifiers| command(&Event::Key(KeyEvent::new(code, modifiers)));
    assert_eq!(press(KeyCode::Char('q'), KeyModifiers::NONE), Some(Command::Quit));
    assert_eq!(press(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Command::Quit));
    assert_eq!(press(KeyCode::Char('p'), KeyModifiers::NONE), Some(Command::Pause));
    assert_eq!(press(KeyCode::Char('c'), KeyModifiers::NONE), None);
    assert_eq!(command(&Event::Resize(80, 24)), None);
}

#[test]
fn figures_have_few_digits() {
    let counted = [0.0, 7.0, 7.25, 9999.0, 12_345.0, 7.5e6, 1.2e7, 3e9, 2e10].map(screen::count);
    assert_eq!(counted, ["0", "7", "7.2", "9999", "12 k", "7500 k", "12 M", "3000 M", "20 G"]);
    let sizes = [0, 1023, 1024, 150 << 10, 3 << 30, 1 << 50].map(screen::bytes);
    assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "150 KiB", "3.0 GiB", "1024 TiB"]);
}
