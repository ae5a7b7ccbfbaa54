//! Lines over time, and distributions. With `gantt`, the only file that names the plotting crate.
//!
//! Colours are placeholders: each has a value that is used nowhere else, and the style sheet of the page maps
//! it to a colour, in light and in dark.

use std::fmt::Write as _;

use plotters::prelude::*;

use crate::text::short;

/// The colours of the series, by their names in SVG, which a style sheet can distinguish and replace.
pub(super) const SERIES: usize = 8;

/// Width and height of a picture in its own units.
pub(super) const SIZE: (u32, u32) = (960, 300);

pub(super) const INK: RGBColor = RGBColor(1, 2, 3);
/// The colour of the grid.
pub(super) const FAINT: RGBColor = RGBColor(1, 2, 4);

pub(super) fn series(index: usize) -> RGBColor {
    RGBColor(1, 3, (index % SERIES) as u8)
}

fn written(colour: RGBColor) -> String {
    format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2)
}

/// The CSS that maps the placeholders.
pub(super) fn series_css() -> String {
    let mut css = String::new();
    let mut rule = |colour: RGBColor, variable: &str| {
        let colour = written(colour);
        // Writing to a string does not fail.
        let _ = write!(
            css,
            "svg [fill=\"{colour}\"]{{fill:var(--{variable})}}svg [stroke=\"{colour}\"]{{stroke:var(--{variable})}}"
        );
    };
    rule(INK, "ink");
    rule(FAINT, "faint");
    (0..SERIES).for_each(|index| rule(series(index), &format!("s{index}")));
    (0..SERIES).for_each(|index| {
        let _ = write!(css, ".s{index}{{color:var(--s{index})}}");
    });
    css
}

#[derive(Clone, Debug)]
pub(crate) struct Curve {
    /// Its series: its colour.
    pub(crate) series: usize,
    /// True for the ideal, which is drawn thin; false for the measurement.
    pub(crate) is_ideal: bool,
    /// Its points, in order.
    pub(crate) points: Vec<(f64, f64)>,
}

/// Lines in one picture.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) curves: Vec<Curve>,
    /// True if `x` grows tenfold from mark to mark.
    pub(crate) is_log: bool,
    /// Least upper end of the y axis, so that pictures can be compared.
    pub(crate) top: Option<f64>,
}

impl Lines {
    /// The picture.
    ///
    /// # Errors
    /// The plotting crate could not draw it.
    pub(crate) fn svg(&self) -> anyhow::Result<String> {
        let scaled = |x: f64| if self.is_log { x.max(1e-9).log10() } else { x };
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let range = |numbers: &mut dyn Iterator<Item = f64>| {
            let (low, high) = numbers.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| {
                (low.min(x), high.max(x))
            });
            if low < high { low..high } else { low.min(0.0) - 0.5..low.max(0.0) + 0.5 }
        };
        let x = range(&mut points().map(|(x, _)| scaled(*x)));
        let y = range(&mut points().map(|(_, y)| *y).chain([0.0]).chain(self.top));
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            let mut chart = ChartBuilder::on(&root)
                .margin(8)
                .x_label_area_size(38)
                .y_label_area_size(64)
                .build_cartesian_2d(x, y)?;
            let font = ("sans-serif", 13).into_font().color(&INK);
            let label = |x: &f64| if self.is_log { short(10_f64.powf(*x)) } else { short(*x) };
            chart
                .configure_mesh()
                .x_desc(self.x)
                .y_desc(self.y)
                .axis_style(INK)
                .bold_line_style(FAINT)
                .light_line_style(FAINT.stroke_width(0))
                .max_light_lines(0)
                .label_style(font.clone())
                .axis_desc_style(font)
                .x_label_formatter(&label)
                .y_label_formatter(&|y| short(*y))
                .draw()?;
            for curve in &self.curves {
                let width = if curve.is_ideal { 1 } else { 2 };
                let points = curve.points.iter().map(|(x, y)| (scaled(*x), *y));
                chart.draw_series(LineSeries::new(
                    points,
                    series(curve.series).stroke_width(width),
                ))?;
            }
            root.present()?;
        }
        Ok(svg)
    }
}
