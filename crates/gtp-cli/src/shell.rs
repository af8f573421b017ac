//! Words of lines that people are told to type into a shell.
//!
//! Names come from users, servers and file systems. In such a line each stands for itself, and the
//! shell runs nothing that is written in it.

use std::path::Path;

use gtp::Url;

/// A word of a shell that stands for this text alone.
pub fn quoted(text: &str) -> String {
    let is_harmless = |c: char| c.is_ascii_alphanumeric() || "@.:/_-%".contains(c);
    match !text.is_empty() && text.chars().all(is_harmless) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// A word of a shell that stands for the address of an object.
pub fn address(url: &Url) -> String {
    quoted(&url.encoded())
}

/// A word of a shell that stands for a path, if that is UTF-8.
pub fn path(path: &Path) -> String {
    quoted(&path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_stands_for_itself_whatever_is_in_it() {
        assert_eq!(quoted("me@host.example"), "me@host.example");
        assert_eq!(quoted("a;b$(c)&d"), "'a;b$(c)&d'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
        assert_eq!(path(Path::new("/run/a b")), "'/run/a b'");
    }

    #[test]
    fn an_address_is_one_word_that_reads_back_as_the_same_address() {
        for (typed, word) in [
            ("gtp://h/$(cmd);`x`", "gtp://h:4810/%24%28cmd%29%3B%60x%60"),
            ("gtp://h/a%20b/", "gtp://h:4810/a%20b/"),
            ("gtp://[fe80::1%va0]/it's", "'gtp://[fe80::1%va0]:4810/it%27s'"),
        ] {
            let url: Url = typed.parse().unwrap();
            assert_eq!(address(&url), word);
            assert_eq!(address(&url).trim_matches('\'').parse::<Url>().unwrap(), url);
        }
    }
}
