//! The common environment of workloads: progress, databases kept between workloads, and the two
//! subjects that nearly all compare: the engine braided and sequential.

use crate::engine::drive::{Driven, Procedure};
use crate::engine::fixture::{Bed, Beds, Opening};
use crate::error::Error;
use crate::harness::keep::Keep;
use crate::harness::process::OthersMeter;
use crate::harness::progress::Progress;
use crate::harness::report::{Report, Setting};
use crate::harness::rounds::{Subject, alternate};
use crate::scale::arguments::Settings;

/// Names of subjects in tables.
pub(crate) const BRAIDED: &str = "braided";
pub(crate) const SEQUENTIAL: &str = "sequential";

/// The environment in which workloads run, one after the other.
pub struct Stage {
    /// The progress of the current workload, for people.
    pub progress: Progress,
    pub(crate) beds: Beds,
    /// The store for the figures of a run of many.
    pub(crate) keep: Option<Keep>,
    /// True if stored figures are measured again.
    pub(crate) again: bool,
    /// True if the results are written as JSON.
    pub(crate) json: bool,
}

impl Default for Stage {
    /// Returns an empty stage.
    fn default() -> Self {
        Self {
            progress: Progress::of(0),
            beds: Beds::default(),
            keep: None,
            again: false,
            json: false,
        }
    }
}

impl Stage {
    /// Returns the usual subjects: the engine braided on one worker, on all workers if the machine
    /// has several, and sequential.
    pub(crate) fn usual_subjects<P, M>(
        &mut self,
        settings: &Settings,
        make: M,
    ) -> Result<Vec<Box<dyn Subject>>, Error>
    where
        P: Procedure,
        M: FnMut(&Bed, u64) -> P + Clone + 'static,
    {
        let records = settings.records;
        let braided = self.beds.get(Opening::braided(settings), records, &self.progress)?;
        let sequential = self.beds.get(Opening::sequential(settings), records, &self.progress)?;
        let subject = |name: &str, bed: &Bed, workers, seed| {
            let (of, mut make) = (bed.clone(), make.clone());
            let make = move |seed| make(&of, seed);
            Box::new(Driven::new(name, &bed.database, workers, seed, make)) as Box<dyn Subject>
        };
        let mut subjects = vec![
            subject(BRAIDED, &braided, 1, settings.seed),
            subject(SEQUENTIAL, &sequential, 1, settings.seed + 1),
        ];
        if settings.workers > 1 {
            let name = braided_on(settings.workers);
            subjects.push(subject(&name, &braided, settings.workers, settings.seed + 2));
        }
        Ok(subjects)
    }

    /// Returns one figure of a run of many: the stored reports of an earlier run, or else the
    /// reports of `measure`, which are then stored.
    pub(crate) fn figure(
        &mut self,
        name: &str,
        arguments: &str,
        measure: impl FnOnce(&mut Self) -> Result<Vec<Report>, Error>,
    ) -> Result<Vec<Report>, Error> {
        let Some(keep) = self.keep.clone() else { return measure(self) };
        let kept = (!self.again).then(|| keep.read(name, arguments)).flatten();
        if let Some(mut reports) = kept {
            let path = keep.path(name);
            for report in &mut reports {
                report.notes.push(format!("kept by an earlier run: {}", path.display()));
            }
            return Ok(reports);
        }
        let mut reports = measure(self)?;
        keep.write(name, arguments, &mut reports)?;
        Ok(reports)
    }

    /// Runs the rounds of `subjects` and returns a report of them.
    pub fn measure(
        &mut self,
        workload: &str,
        what: impl Into<String>,
        settings: &Settings,
        mut subjects: Vec<Box<dyn Subject>>,
    ) -> Result<Report, Error> {
        let mut report = Report::new(workload, what);
        let Settings { records, effort, rounds, .. } = *settings;
        report.setting = Some(Setting { records, effort, rounds });
        let others = OthersMeter::start();
        report.measured = alternate(&mut subjects, rounds, effort, &self.progress)?;
        report.others_percent = others.and_then(|others| others.percent());
        Ok(report)
    }
}

/// Returns the name of the braided subject on several workers.
pub(crate) fn braided_on(workers: usize) -> String {
    format!("{BRAIDED}, {workers} workers")
}
