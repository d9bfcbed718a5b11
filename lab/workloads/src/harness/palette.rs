//! Colours of charts.

use plotters::style::RGBColor;

/// Colour-blind safe hues (Okabe and Ito), in the order of subjects.
const HUES: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
];

/// Returns the hue of the subject, line or kind with index `i`.
pub(super) fn hue(i: usize) -> RGBColor {
    HUES[i % HUES.len()]
}
