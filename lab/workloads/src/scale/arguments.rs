//! The arguments that all workloads share, with each workload's own defaults.

use std::marker::PhantomData;

use clap::{ArgMatches, Args, Command, FromArgMatches};

use super::count::Count;
use super::whole::within;
use crate::harness::rounds::Effort;

/// A workload's defaults. `QUICK_RECORDS` bounds the records under `--quick`.
pub trait Defaults: Clone + Send + Sync + 'static {
    /// Records, unless said otherwise.
    const RECORDS: u64;
    /// Records at most under `--quick`.
    const QUICK_RECORDS: u64 = 20_000;
    /// Seconds of a round.
    const SECONDS: f64 = 3.0;
    /// Rounds.
    const ROUNDS: usize = 5;
}

/// Seconds of one round under `--quick`.
const QUICK_SECONDS: f64 = 0.02;
const QUICK_ROUNDS: usize = 2;

/// Scale of a workload.
#[derive(Clone, Debug)]
pub struct Scale<D: Defaults> {
    arguments: ScaleArguments,
    defaults: PhantomData<D>,
}

/// The same for all workloads, so that it is compiled once. Defaults that they have of their own are those of `with_defaults`.
#[derive(Args, Clone, Debug)]
struct ScaleArguments {
    /// Records in the table; 10k, 50M and the like are understood.
    #[arg(long, short = 'n', value_name = "COUNT", default_value = "")]
    records: Count,

    /// Seconds one round of one subject runs.
    #[arg(long, short = 's', default_value = "", conflicts_with = "transactions",
          value_parser = positive_seconds)]
    seconds: f64,

    /// Transactions one round of one subject runs, instead of --seconds.
    #[arg(long, short = 't', value_name = "COUNT")]
    transactions: Option<Count>,

    /// Rounds, up to 1000; each runs every subject once, in turn, and figures are medians over rounds.
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

    /// Scale everything down to finish in a second or two. The figures mean nothing then.
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

/// What a workload runs with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Records in the table.
    pub records: u64,
    /// How long a round of a subject runs.
    pub effort: Effort,
    /// Rounds.
    pub rounds: usize,
    /// Workers of the subjects that use several.
    pub workers: usize,
    /// Pinned hot width; `None` tunes itself.
    pub width: Option<usize>,
    /// Whether threads stay on cores.
    pub pin: bool,
    /// Of the keys drawn.
    pub seed: u64,
    /// Whether the figures mean nothing.
    pub quick: bool,
}

impl<D: Defaults> Scale<D> {
    /// The settings these arguments ask for.
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
    /// The defaults of `D`, as a command line without options has them.
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

    /// The same with so many records (fewer if quick).
    pub fn with_records(&self, records: u64) -> Self {
        let records = if self.quick { records.min(self.records) } else { records };
        Self { records, ..self.clone() }
    }
}

/// Cores this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
