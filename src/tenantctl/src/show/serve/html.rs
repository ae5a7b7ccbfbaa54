//! HTML in which only literals of this program are markup: all other text is escaped.

use std::fmt::Display;

use tenantd_lab::text::visible;

/// A page or a part of it.
#[derive(Debug, Default)]
pub(crate) struct Html(String);

impl Html {
    /// Adds markup. Each `{}` in it becomes one of `values`, escaped for text and for quoted attributes.
    pub(crate) fn add(&mut self, markup: &'static str, values: &[&dyn Display]) {
        let mut pieces = markup.split("{}");
        self.0 += pieces.next().unwrap_or_default();
        for (piece, value) in pieces.zip(values) {
            self.escape(&value.to_string());
            self.0 += piece;
        }
    }

    /// Adds a paragraph of less weight.
    pub(crate) fn note(&mut self, text: &str) {
        self.add("<p class=\"quiet\">{}</p>\n", &[&text]);
    }

    fn escape(&mut self, text: &str) {
        for sign in visible(&text.replace('\n', " ")).chars() {
            match sign {
                '&' => self.0 += "&amp;",
                '<' => self.0 += "&lt;",
                '>' => self.0 += "&gt;",
                '"' => self.0 += "&quot;",
                '\'' => self.0 += "&#39;",
                _ => self.0.push(sign),
            }
        }
    }

    pub(crate) fn into_text(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_text_whatever_they_contain() {
        let mut html = Html::default();
        html.add("<a title=\"{}\">{}</a>", &[&"\"onx='1' {}", &"<img src=x>&amp;\u{202e}\x1b"]);
        let expected =
            "<a title=\"&quot;onx=&#39;1&#39; {}\">&lt;img src=x&gt;&amp;amp;\u{fffd}\u{fffd}</a>";
        assert_eq!(html.into_text(), expected);
    }
}
