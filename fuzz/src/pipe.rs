//! What comes over ssh's pipes before a copy: the hello's lines.
//!
//! The module that reads them is a part of the command, so it is taken in here as a file; nothing
//! else of the command is.

#[allow(dead_code, unreachable_pub)]
#[path = "../../crates/gtp-cli/src/cp/hello.rs"]
mod hello;

use hello::Finder;

/// Bytes of a far end, as they are and behind a mark, and of a near end.
pub fn ssh_pipe(bytes: &[u8]) {
    let marked = [hello::MARK.as_bytes(), bytes, b"\n"].concat();
    for said in [bytes, &marked] {
        let whole = heard(&[said]);
        let (first, second) = said.split_at(said.len() / 2);
        assert_eq!(whole, heard(&[first, second]), "it does not matter how it is cut");
        if let Ok(request) = hello::request(said.trim_ascii_end()) {
            assert_eq!(hello::request(hello::of_request(&request).as_bytes()), Ok(request));
        }
    }
}

/// The first thing that a far end says, or why it says nothing.
fn heard(pieces: &[&[u8]]) -> Result<Option<hello::Message>, hello::Bad> {
    let mut finder = Finder::default();
    for piece in pieces {
        if let (_, Some(message)) = finder.take(piece)? {
            return Ok(Some(message));
        }
        assert!(!finder.skipped().chars().any(char::is_control));
    }
    Ok(None)
}
