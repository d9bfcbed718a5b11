//! Charts as PNG files, rendered from the SVG files with a font of the system.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use resvg::usvg::fontdb::{Database, Family, Query};
use resvg::{tiny_skia, usvg};

/// Pixels for each unit of the SVG file, so that text is sharp.
const SCALE: f32 = 2.0;
/// Sans-serif fonts; the first installed one is used.
const FAMILIES: [&str; 6] =
    ["DejaVu Sans", "Noto Sans", "Liberation Sans", "Arial", "Helvetica", "Verdana"];

/// Renders `svg` into a PNG file next to it. Returns `None` if no font is installed, because the
/// chart would have no text.
///
/// # Errors
/// Returns the error of reading the SVG file or writing the PNG file.
pub(super) fn render(svg: &Path) -> Result<Option<PathBuf>, Box<dyn std::error::Error>> {
    let Some(fonts) = fonts() else { return Ok(None) };
    let options = usvg::Options { fontdb: fonts, ..usvg::Options::default() };
    let tree = usvg::Tree::from_data(&std::fs::read(svg)?, &options)?;
    let size = tree.size().to_int_size().scale_by(SCALE).ok_or("the chart has no size")?;
    let mut pixels =
        tiny_skia::Pixmap::new(size.width(), size.height()).ok_or("the chart is too large")?;
    let transform = tiny_skia::Transform::from_scale(SCALE, SCALE);
    resvg::render(&tree, transform, &mut pixels.as_mut());
    let png = svg.with_extension("png");
    std::fs::write(&png, pixels.encode_png()?)?;
    Ok(Some(png))
}

/// Returns the installed fonts, which are searched once.
fn fonts() -> Option<Arc<Database>> {
    static FONTS: OnceLock<Option<Arc<Database>>> = OnceLock::new();
    let find = || {
        let mut fonts = Database::new();
        fonts.load_system_fonts();
        let is_there = |family: &&&str| {
            let query = Query { families: &[Family::Name(family)], ..Query::default() };
            fonts.query(&query).is_some()
        };
        let any = || Some(fonts.faces().next()?.families.first()?.0.clone());
        let family = FAMILIES.iter().find(is_there).map(|family| (*family).to_owned());
        let family = family.or_else(any)?;
        fonts.set_sans_serif_family(family);
        Some(Arc::new(fonts))
    };
    FONTS.get_or_init(find).clone()
}
