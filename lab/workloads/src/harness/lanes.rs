//! Charts of concurrent activities.

use std::path::Path;

use plotters::prelude::*;

use super::number;
use super::palette::hue;
use super::report::LaneChart;

const WIDTH: u32 = 960;
const LANE_HEIGHT: u32 = 22;
/// The height above and below the lanes: title, legend and axis.
const AROUND: u32 = 130;

/// Draws one row for each lane, with a colour for each kind of activity.
pub(super) fn draw_lanes(path: &Path, chart: &LaneChart) -> Result<(), Box<dyn std::error::Error>> {
    let rows = chart.lanes.len();
    let root =
        SVGBackend::new(path, (WIDTH, AROUND + LANE_HEIGHT * rows as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut plane = ChartBuilder::on(&root)
        .caption(&chart.title, ("sans-serif", 18))
        .margin(12)
        .margin_top(4)
        .x_label_area_size(42)
        .y_label_area_size(80)
        .build_cartesian_2d(0.0..chart.right.max(1e-9), 0.0..rows.max(1) as f64 + 1.6)?;
    plane
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .x_desc(chart.x.as_str())
        .x_label_formatter(&|value| number::tick(*value))
        .light_line_style(WHITE)
        .draw()?;
    for (i, kind) in chart.kinds.iter().enumerate() {
        let colour = hue(i).mix(0.8).filled();
        let boxes = chart.lanes.iter().enumerate().flat_map(|(row, lane)| {
            let bottom = (rows - 1 - row) as f64;
            let of_kind = lane.stretches.iter().filter(|stretch| stretch.what == *kind);
            of_kind.map(move |stretch| {
                let corners = [(stretch.begin, bottom + 0.1), (stretch.end, bottom + 0.9)];
                Rectangle::new(corners, colour)
            })
        });
        let boxes: Vec<_> = boxes.collect();
        if boxes.is_empty() {
            continue;
        }
        let swatch = move |(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], colour);
        plane.draw_series(boxes)?.label(*kind).legend(swatch);
    }
    plane
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.9))
        .label_font(("sans-serif", 14))
        .draw()?;
    // Names are left of the axis, outside of the plotted range.
    let (_, pixels) = plane.plotting_area().get_pixel_range();
    let step = f64::from(pixels.end - pixels.start) / (rows.max(1) as f64 + 1.6);
    for (row, lane) in chart.lanes.iter().enumerate() {
        let y = f64::from(pixels.end) - step * (rows - row) as f64 + step / 2.0 - 7.0;
        root.draw(&Text::new(lane.name.clone(), (14, y as i32), ("sans-serif", 13)))?;
    }
    root.present()?;
    Ok(())
}
