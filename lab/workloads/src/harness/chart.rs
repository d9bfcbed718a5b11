//! Charts as SVG files, whose text uses the viewer's fonts, and, with the feature `png`, also as
//! PNG files.

use std::path::{Path, PathBuf};

use plotters::prelude::*;

use super::lanes::draw_lanes;
use super::number;
use super::palette::hue;
#[cfg(feature = "png")]
use super::picture;
use super::report::{LineChart, Report};
use super::rounds::Measured;
use crate::error::Error;

const SIZE: (u32, u32) = (860, 420);
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Draws all charts of `report` into `directory` (created if missing), and adds their paths to the
/// report.
pub fn draw(report: &mut Report, directory: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(directory).map_err(Error::file(directory))?;
    let mut figures = Vec::new();
    let mut figure = |name: &str, draw: &dyn Fn(&Path) -> Drawn| {
        let path: PathBuf = directory.join(format!("{name}.svg"));
        let failed = |error: Box<dyn std::error::Error>| Error::Chart {
            path: path.clone(),
            reason: error.to_string(),
        };
        draw(&path).map_err(failed)?;
        figures.push(path.clone());
        #[cfg(feature = "png")]
        figures.extend(picture::render(&path).map_err(failed)?);
        Ok::<(), Error>(())
    };
    if !report.measured.is_empty() {
        let title = format!("{}: {} a second (median, least, most)", report.workload, report.unit);
        figure(&report.workload, &|path| draw_rates(path, &title, report.unit, &report.measured))?;
    }
    for chart in &report.lines {
        figure(&chart.name, &|path| draw_lines(path, chart))?;
    }
    for chart in &report.lanes {
        figure(&chart.name, &|path| draw_lanes(path, chart))?;
    }
    report.figures = figures;
    Ok(())
}

/// Draws one horizontal bar for each subject, with a whisker from its slowest to its fastest round.
fn draw_rates(path: &Path, title: &str, unit: &str, measured: &[Measured]) -> Drawn {
    let height = 120 + 46 * measured.len() as u32;
    let root = SVGBackend::new(path, (SIZE.0, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let most = measured.iter().map(|subject| subject.rate.max).fold(1.0, f64::max);
    let rows = measured.len() as f64;
    // About seven pixels for each letter.
    let longest = measured.iter().map(|subject| subject.name.chars().count()).max().unwrap_or(0);
    let names = (30 + 7 * longest as u32).clamp(120, SIZE.0 / 2);
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(names)
        .build_cartesian_2d(0.0..most * 1.15, 0.0..rows)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .x_desc(format!("{unit}/s"))
        .x_label_formatter(&|value| number::tick(*value))
        .light_line_style(WHITE)
        .draw()?;
    for (i, subject) in measured.iter().enumerate() {
        let middle = rows - i as f64 - 0.5;
        let rate = subject.rate;
        let bar = [(0.0, middle - 0.32), (rate.median, middle + 0.32)];
        chart.draw_series([Rectangle::new(bar, hue(i).mix(0.75).filled())])?;
        let whisker = vec![(rate.min, middle), (rate.max, middle)];
        chart.draw_series([PathElement::new(whisker, BLACK.stroke_width(2))])?;
        let label = number::scaled(rate.median);
        let place = (rate.max + most * 0.01, middle + 0.12);
        chart.draw_series([Text::new(label, place, ("sans-serif", 15))])?;
    }
    // Names are left of the axis, outside of the plotted range.
    let (_, rows_pixels) = chart.plotting_area().get_pixel_range();
    let step = f64::from(rows_pixels.end - rows_pixels.start) / rows;
    for (i, subject) in measured.iter().enumerate() {
        let y = f64::from(rows_pixels.start) + step * (i as f64 + 0.5) - 8.0;
        root.draw(&Text::new(subject.name.clone(), (14, y as i32), ("sans-serif", 15)))?;
    }
    root.present()?;
    Ok(())
}

fn draw_lines(path: &Path, chart: &LineChart) -> Drawn {
    let points = || chart.lines.iter().flat_map(|line| &line.points);
    let right = points().map(|point| point.0).fold(1e-9, f64::max);
    let top = points().map(|point| point.1).fold(1e-9, f64::max) * 1.1;
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut plane = ChartBuilder::on(&root)
        .caption(&chart.title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..right, 0.0..top)?;
    plane
        .configure_mesh()
        .x_desc(chart.x.as_str())
        .y_desc(chart.y.as_str())
        .x_label_formatter(&|value| number::tick(*value))
        .y_label_formatter(&|value| number::tick(*value))
        .light_line_style(WHITE)
        .draw()?;
    for (i, line) in chart.lines.iter().enumerate() {
        let style = hue(i).stroke_width(2);
        plane
            .draw_series(LineSeries::new(line.points.iter().copied(), style))?
            .label(&line.name)
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style));
        if line.points.len() <= 32 {
            let dots = line.points.iter().map(|point| Circle::new(*point, 3, hue(i).filled()));
            plane.draw_series(dots)?;
        }
    }
    plane
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.8))
        .label_font(("sans-serif", 14))
        .draw()?;
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::report::{Lane, LaneChart, Line, Stretch};
    use super::super::spread::Spread;
    use super::*;

    #[test]
    fn svg_files_name_their_subjects() {
        let directory = tempfile::tempdir().unwrap();
        let mut report = Report::new("reads", "");
        report.measured = vec![Measured {
            name: "braided".into(),
            rates: vec![10.0],
            rate: Spread { median: 10.0, min: 9.0, max: 11.0 },
            transactions: 1,
            conflicts: 0,
            latency: None,
            kinds: Vec::new(),
            aborts: Vec::new(),
        }];
        report.lines.push(LineChart {
            name: "memory".into(),
            title: "memory".into(),
            x: "s".into(),
            y: "bytes".into(),
            lines: vec![Line { name: "rss".into(), points: vec![(0.0, 1.0), (1.0, 2.0)] }],
        });
        let stretches = [Stretch { begin: 0.0, end: 1.0, what: "runs" }].into();
        report.lanes.push(LaneChart {
            name: "slots".into(),
            title: "slots".into(),
            x: "s".into(),
            right: 2.0,
            kinds: vec!["runs"],
            lanes: vec![Lane { name: "slot 7".into(), stretches }],
        });
        draw(&mut report, &directory.path().join("charts")).unwrap();
        // With a PNG file after each, if the feature is on and fonts are installed.
        let is_svg = |path: &&PathBuf| path.extension().is_some_and(|end| end == "svg");
        let (svgs, pngs): (Vec<_>, Vec<_>) = report.figures.iter().partition(is_svg);
        assert_eq!(svgs.len(), 3);
        assert!(pngs.is_empty() || pngs.len() == 3, "{pngs:?}");
        for png in pngs {
            assert!(std::fs::read(png).unwrap().starts_with(b"\x89PNG"), "it is a PNG file");
        }
        let svg = std::fs::read_to_string(svgs[0]).unwrap();
        assert!(svg.contains("<svg"), "it is an SVG file");
        assert!(svg.contains("braided"), "it names its subject");
        let svg = std::fs::read_to_string(svgs[2]).unwrap();
        assert!(
            svg.contains("slot 7") && svg.contains("runs"),
            "it names its lane and what was done"
        );
    }
}
