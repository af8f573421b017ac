//! Pages and figures as files: one self-contained HTML page, and an SVG for each figure.
//!
//! Nothing is fetched from anywhere, so that a page can be kept and sent. It is complete without
//! its script; the script adds values under the pointer, curves that can be put away, zooming and
//! a switch between light and dark. The same page gives the same bytes on every machine.

mod draw;
mod matrix;
mod page;
mod scale;
mod thin;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::series::{Figure, Page};
use draw::Medium;

pub use page::html;

/// A figure as an SVG file fit for a paper.
pub fn svg(figure: &Figure) -> String {
    draw::svg(figure, Medium::Paper)
}

/// Writes `stem.html` and `stem-FIGURE.svg` for each figure into a directory, which is made if it
/// does not exist; answers the paths written.
///
/// # Errors
/// What the system says about the first file that cannot be written.
pub fn write(page: &Page, directory: &Path, stem: &str) -> io::Result<Vec<PathBuf>> {
    fs::create_dir_all(directory)?;
    let mut written = vec![directory.join(format!("{stem}.html"))];
    fs::write(&written[0], html(page))?;
    for figure in page.figures() {
        let path = directory.join(format!("{stem}-{}.svg", figure.id));
        fs::write(&path, svg(figure))?;
        written.push(path);
    }
    Ok(written)
}

/// Text without the characters that mean something to HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests;
