//! `--report`: one self-contained page.
//!
//! A page is a title, sections of pictures with captions, and tables. It is one file without links: pictures
//! are SVG in the text, colours follow the reader's choice of light or dark, and it prints black on white.

mod chart;
mod gantt;

use std::fmt::Write as _;

pub(crate) use chart::{Curve, Lines};
pub(super) use gantt::{Bar, Gantt};

/// A page that is being written.
#[derive(Debug)]
pub(crate) struct Page {
    body: String,
    title: String,
}

impl Page {
    pub(crate) fn new(title: &str, note: &str) -> Page {
        let mut body = String::new();
        // Writing to a string does not fail.
        let _ = write!(body, "<h1>{}</h1><p>{}</p>", escaped(title), escaped(note));
        Page { body, title: title.to_string() }
    }

    /// A picture with its heading and its caption.
    pub(crate) fn picture(&mut self, heading: &str, caption: &str, svg: &str, legend: &[String]) {
        let (heading, caption) = (escaped(heading), escaped(caption));
        let _ = write!(self.body, "<section><h2>{heading}</h2><figure>{svg}<figcaption>");
        for (index, name) in legend.iter().enumerate() {
            let name = escaped(name);
            let _ =
                write!(self.body, "<span class=\"key s{}\">{name}</span> ", index % chart::SERIES);
        }
        let _ = write!(self.body, "<p>{caption}</p></figcaption></figure></section>");
    }

    /// A table; numbers are aligned right, the first column left.
    pub(crate) fn table(&mut self, heading: &str, header: &[&str], rows: &[Vec<String>]) {
        let _ = write!(self.body, "<section><h2>{}</h2><table><thead><tr>", escaped(heading));
        for cell in header {
            let _ = write!(self.body, "<th>{}</th>", escaped(cell));
        }
        self.body.push_str("</tr></thead><tbody>");
        for row in rows {
            self.body.push_str("<tr>");
            for cell in row {
                let _ = write!(self.body, "<td>{}</td>", escaped(cell));
            }
            self.body.push_str("</tr>");
        }
        self.body.push_str("</tbody></table></section>");
    }

    /// A paragraph of one sentence.
    pub(crate) fn sentence(&mut self, text: &str) {
        let _ = write!(self.body, "<p>{}</p>", escaped(text));
    }

    pub(crate) fn finish(self) -> String {
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width\"><title>{}</title>\
             <style>{}{}</style></head><body>{}</body></html>\n",
            escaped(&self.title),
            include_str!("page.css"),
            chart::series_css(),
            self.body
        )
    }
}

/// Escapes markup, so that any input is plain text.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
