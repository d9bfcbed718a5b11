//! Progress on standard error if it is a terminal; silent otherwise.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A line that shows the current work and its progress.
#[derive(Clone, Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Returns a progress line for this number of steps.
    pub fn of(steps: u64) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let target =
            if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(steps), target);
        let style = ProgressStyle::with_template("{spinner} {wide_msg} {bar:20} {pos}/{len}")
            .expect("the template is a constant");
        bar.set_style(style);
        if terminal {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Self { bar }
    }

    /// Shows the name of the current work.
    pub fn doing(&self, what: impl Into<String>) {
        let what = what.into();
        #[cfg(test)]
        crate::limit::doing(&what);
        self.bar.set_message(what);
    }

    /// Counts one completed step.
    pub fn step(&self) {
        self.steps(1);
    }

    /// Counts completed steps.
    pub fn steps(&self, count: u64) {
        self.bar.inc(count);
    }

    /// Adds `steps` to the expected number.
    pub fn expect(&self, steps: u64) {
        self.bar.inc_length(steps);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
