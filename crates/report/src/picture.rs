//! A picture that is a file of its own: a title, notes below it, and a body that grows downwards.

use crate::svg::escaped;
use std::fmt::Write as _;

/// Width of every picture.
pub(crate) const WIDTH: f64 = 1000.0;
/// Height of a line of text.
pub(crate) const LINE: f64 = 17.0;
/// Characters of a line of text in the picture's width.
const LINE_CHARS: usize = 140;

/// Breaks a text into lines of at most `chars` characters, between words.
fn lines_of(text: &str, chars: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= chars => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A picture that grows downwards.
pub(crate) struct Picture {
    body: String,
    pub(crate) y: f64,
}

impl Picture {
    /// A picture of no more than its title and notes.
    pub(crate) fn new(title: &str, notes: &[String]) -> Self {
        let mut picture = Picture { body: String::new(), y: 28.0 };
        picture.text(16.0, "font-size=\"18\" font-weight=\"bold\"", title);
        for line in notes.iter().flat_map(|note| lines_of(note, LINE_CHARS)) {
            picture.y += LINE;
            picture.text(16.0, "font-size=\"12\" fill=\"#555\"", &line);
        }
        picture
    }

    pub(crate) fn put(&mut self, arguments: std::fmt::Arguments<'_>) {
        self.body.write_fmt(arguments).expect("a String takes everything");
        self.body.push('\n');
    }

    pub(crate) fn text(&mut self, x: f64, style: &str, text: &str) {
        let y = self.y;
        self.put(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{}</text>", escaped(text)));
    }

    /// The whole picture as SVG.
    pub(crate) fn document(self) -> String {
        let height = self.y + 16.0;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {WIDTH} {height:.0}\" font-family=\"sans-serif\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{}</svg>\n",
            self.body
        )
    }
}
