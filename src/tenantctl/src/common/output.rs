//! Standard output: its width, and whether texts may be shortened for it.

use std::env;
use std::io::{self, IsTerminal};

use rustix::termios;
use tenantd_lab::text::{self, WIDTH};

/// Least width of a terminal that texts are laid out for.
const LEAST_COLUMNS: usize = 40;

/// Place of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// A terminal.
    Terminal {
        /// Columns of a line.
        columns: usize,
        /// Lines of the screen.
        lines: usize,
    },
    /// A pipe or file, for which nothing is shortened or left out.
    Stream,
}

impl Output {
    /// Returns the place of standard output. A terminal that does not report its size has 80 columns.
    pub fn of_stdout() -> Output {
        let stdout = io::stdout();
        if !stdout.is_terminal() {
            return Output::Stream;
        }
        let size = termios::tcgetwinsize(&stdout).ok();
        let columns = size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0);
        let lines = size.map(|size| usize::from(size.ws_row)).filter(|lines| *lines > 0);
        Output::Terminal {
            columns: columns.unwrap_or(WIDTH).max(LEAST_COLUMNS),
            lines: lines.unwrap_or(usize::MAX),
        }
    }

    /// Columns of prose.
    pub fn columns(self) -> usize {
        match self {
            Output::Terminal { columns, .. } => columns,
            Output::Stream => WIDTH,
        }
    }

    /// Text in at most `width` characters on a terminal, and whole elsewhere.
    pub(crate) fn shortened(self, text: &str, width: usize) -> String {
        match self {
            Output::Terminal { .. } => text::shortened(text, width),
            Output::Stream => text::visible(text),
        }
    }

    /// Number of list items: at most `most` on a terminal, all of them elsewhere.
    pub(crate) fn at_most(self, most: usize) -> usize {
        match self {
            Output::Terminal { .. } => most,
            Output::Stream => usize::MAX,
        }
    }
}

/// True if standard output understands escape sequences: a terminal that is not `dumb`.
pub(crate) fn has_escapes() -> bool {
    io::stdout().is_terminal() && env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Longest word of the command line that an error repeats whole.
const WORD_MAX: usize = 80;

/// `text` with the middle of very long words left out; `None` if it has none.
pub fn with_short_words(text: &str) -> Option<String> {
    let short = |word: &str| {
        if word.chars().count() > WORD_MAX {
            text::shortened(word, WORD_MAX / 2)
        } else {
            word.to_string()
        }
    };
    let line = |line: &str| line.split(' ').map(short).collect::<Vec<_>>().join(" ") + "\n";
    let short: String = text.lines().map(line).collect();
    (short.len() < text.len()).then_some(short)
}
