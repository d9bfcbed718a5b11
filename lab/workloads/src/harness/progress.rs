//! Progress on standard error, only when that is a terminal; silent otherwise.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A line that tells what runs now and how far it is.
#[derive(Clone, Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Of `steps` steps.
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

    /// Names what runs now.
    pub fn doing(&self, what: impl Into<String>) {
        let what = what.into();
        #[cfg(test)]
        crate::limit::doing(&what);
        self.bar.set_message(what);
    }

    /// One step done.
    pub fn step(&self) {
        self.steps(1);
    }

    /// So many steps done.
    pub fn steps(&self, count: u64) {
        self.bar.inc(count);
    }

    /// Makes room for `steps` more.
    pub fn expect(&self, steps: u64) {
        self.bar.inc_length(steps);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
