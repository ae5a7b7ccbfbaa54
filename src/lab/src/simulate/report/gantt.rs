//! Schedules as Gantt charts: a row for each worker, a bar for each request, as in the papers' figures.

use plotters::prelude::*;

use super::chart::{FAINT, INK, SIZE, series};
use crate::text::short;

/// A request on a worker.
#[derive(Clone, Debug)]
pub(crate) struct Bar {
    /// Its row, from 0.
    pub(crate) row: u32,
    pub(crate) series: usize,
    pub(crate) time: (f64, f64),
    /// Its label, drawn if there is room.
    pub(crate) label: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Gantt {
    pub(crate) rows: u32,
    /// End of the time axis.
    pub(crate) end: f64,
    pub(crate) bars: Vec<Bar>,
}

impl Gantt {
    /// The picture.
    ///
    /// # Errors
    /// The plotting crate could not draw it.
    pub(crate) fn svg(&self) -> anyhow::Result<String> {
        let height = 60 + 34 * self.rows.clamp(1, 32);
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, (SIZE.0, height)).into_drawing_area();
            let rows = f64::from(self.rows);
            let mut chart = ChartBuilder::on(&root)
                .margin(8)
                .x_label_area_size(38)
                .y_label_area_size(40)
                .build_cartesian_2d(0.0..self.end, rows..0.0)?;
            let font = ("sans-serif", 13).into_font().color(&INK);
            chart
                .configure_mesh()
                .x_desc("seconds")
                .axis_style(INK)
                .bold_line_style(FAINT)
                .light_line_style(FAINT.stroke_width(0))
                .max_light_lines(0)
                .disable_y_mesh()
                .y_labels(0)
                .label_style(font.clone())
                .axis_desc_style(font.clone())
                .x_label_formatter(&|x| short(*x))
                .draw()?;
            let width_of = |bar: &Bar| (bar.time.1.min(self.end) - bar.time.0) / self.end * 850.0;
            for bar in &self.bars {
                let (top, bottom) = (f64::from(bar.row) + 0.08, f64::from(bar.row) + 0.92);
                let corners = [(bar.time.0, top), (bar.time.1.min(self.end), bottom)];
                let colour = series(bar.series);
                chart.draw_series([
                    Rectangle::new(corners, colour.mix(0.35).filled()),
                    Rectangle::new(corners, colour.stroke_width(1)),
                ])?;
                if width_of(bar) > 9.0 * bar.label.chars().count() as f64 {
                    let at = (bar.time.0 + self.end * 0.003, f64::from(bar.row) + 0.3);
                    chart.draw_series([Text::new(bar.label.clone(), at, font.clone())])?;
                }
            }
            root.present()?;
        }
        Ok(svg)
    }
}
