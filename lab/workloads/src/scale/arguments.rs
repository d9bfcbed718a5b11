//! The arguments that all workloads share, with each workload's own defaults.

use std::marker::PhantomData;

use clap::{ArgMatches, Args, Command, FromArgMatches};

use super::count::Count;
use super::whole::within;
use crate::harness::rounds::Effort;

/// The defaults of a workload. `QUICK_RECORDS` limits the records under `--quick`.
pub trait Defaults: Clone + Send + Sync + 'static {
    /// The default number of records.
    const RECORDS: u64;
    /// The maximum number of records under `--quick`.
    const QUICK_RECORDS: u64 = 20_000;
    /// The seconds of a round.
    const SECONDS: f64 = 3.0;
    /// The number of rounds.
    const ROUNDS: usize = 5;
}

/// The seconds of a round under `--quick`.
const QUICK_SECONDS: f64 = 0.02;
const QUICK_ROUNDS: usize = 2;

/// The scale of a workload.
#[derive(Clone, Debug)]
pub struct Scale<D: Defaults> {
    arguments: ScaleArguments,
    defaults: PhantomData<D>,
}

/// The scale arguments, shared by all workloads so that they are compiled once. `with_defaults`
/// sets the defaults of each workload.
#[derive(Args, Clone, Debug)]
struct ScaleArguments {
    /// Records in the table; suffixes are allowed: 10k, 50M.
    #[arg(long, short = 'n', value_name = "COUNT", default_value = "")]
    records: Count,

    /// Seconds of one round of one subject.
    #[arg(long, short = 's', default_value = "", conflicts_with = "transactions",
          value_parser = positive_seconds)]
    seconds: f64,

    /// Transactions in one round of one subject, instead of --seconds.
    #[arg(long, short = 't', value_name = "COUNT")]
    transactions: Option<Count>,

    /// Rounds, up to 1000; each runs every subject once, in turn, and figures are medians over
    /// rounds.
    #[arg(long, short = 'r', default_value = "", value_parser = within::<usize>(1..=1000))]
    rounds: usize,

    /// Workers of the subjects that use several, up to 256 [default: one a core].
    #[arg(long, short = 'w', value_name = "COUNT",
          value_parser = within::<usize>(1..=256))]
    workers: Option<usize>,

    /// Transactions a braided worker interleaves, up to 1024 [default: tunes itself].
    #[arg(long, value_name = "COUNT",
          value_parser = within::<usize>(1..=1024))]
    width: Option<usize>,

    /// Do not bind workers to cores.
    #[arg(long)]
    no_pin: bool,

    /// Seed of the keys drawn.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Scale everything down to finish in a second or two. The figures are then meaningless.
    #[arg(long, short = 'q')]
    quick: bool,
}

fn with_defaults(command: Command, records: u64, seconds: f64, rounds: usize) -> Command {
    command
        .mut_arg("records", |arg| arg.default_value(Count(records).to_string()))
        .mut_arg("seconds", |arg| arg.default_value(seconds.to_string()))
        .mut_arg("rounds", |arg| arg.default_value(rounds.to_string()))
}

impl<D: Defaults> Args for Scale<D> {
    fn augment_args(command: Command) -> Command {
        with_defaults(ScaleArguments::augment_args(command), D::RECORDS, D::SECONDS, D::ROUNDS)
    }

    fn augment_args_for_update(command: Command) -> Command {
        let command = ScaleArguments::augment_args_for_update(command);
        with_defaults(command, D::RECORDS, D::SECONDS, D::ROUNDS)
    }
}

impl<D: Defaults> FromArgMatches for Scale<D> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let arguments = ScaleArguments::from_arg_matches(matches)?;
        Ok(Self { arguments, defaults: PhantomData })
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, clap::Error> {
        let arguments = ScaleArguments::from_arg_matches_mut(matches)?;
        Ok(Self { arguments, defaults: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.arguments.update_from_arg_matches(matches)
    }
}

fn positive_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.001..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("seconds are a number from 0.001 to 86400".to_owned()),
    }
}

/// The settings that a workload runs with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Records in the table.
    pub records: u64,
    /// The length of a round of a subject.
    pub effort: Effort,
    /// The number of rounds.
    pub rounds: usize,
    /// Workers of the subjects that use several.
    pub workers: usize,
    /// The fixed hot width; `None` tunes it automatically.
    pub width: Option<usize>,
    /// True if threads are bound to cores.
    pub pin: bool,
    /// The seed of the keys drawn.
    pub seed: u64,
    /// True for a quick run, whose figures are meaningless.
    pub quick: bool,
}

impl<D: Defaults> Scale<D> {
    /// Returns the settings for these arguments.
    pub fn settings(&self) -> Settings {
        self.arguments.settings(D::QUICK_RECORDS)
    }
}

impl ScaleArguments {
    fn settings(&self, quick_records: u64) -> Settings {
        let mut settings = Settings {
            records: self.records.0,
            effort: match self.transactions {
                Some(count) => Effort::Transactions(count.0),
                None => Effort::Seconds(self.seconds),
            },
            rounds: self.rounds,
            workers: self.workers.unwrap_or_else(cores),
            width: self.width,
            pin: !self.no_pin,
            seed: self.seed,
            quick: self.quick,
        };
        if self.quick {
            settings.records = settings.records.min(quick_records);
            settings.rounds = settings.rounds.min(QUICK_ROUNDS);
            settings.effort = match settings.effort {
                Effort::Seconds(seconds) => Effort::Seconds(seconds.min(QUICK_SECONDS)),
                Effort::Transactions(count) => Effort::Transactions(count.min(2_000)),
            };
        }
        settings
    }
}

impl Settings {
    /// Returns the defaults of `D`, as for a command line without options.
    pub fn defaults<D: Defaults>(quick: bool) -> Self {
        let arguments = ScaleArguments {
            records: Count(D::RECORDS),
            seconds: D::SECONDS,
            transactions: None,
            rounds: D::ROUNDS,
            workers: None,
            width: None,
            no_pin: false,
            seed: 1,
            quick,
        };
        arguments.settings(D::QUICK_RECORDS)
    }

    /// Returns these settings with this number of records (fewer if quick).
    pub fn with_records(&self, records: u64) -> Self {
        let records = if self.quick { records.min(self.records) } else { records };
        Self { records, ..self.clone() }
    }
}

/// Returns the number of cores this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
