//! What a settings file says is found at its line, however it is written.
//!
//! Which settings there are is unknown here, too.

use super::*;

#[test]
fn a_key_is_found_at_its_line_in_its_own_table_however_it_is_written() {
    let text = "# path = 1\nnote = \"\"\"\nweight = 9\n\"\"\"\nweight = 2\n\n[export.a]\n\
                path = \"/a\"\n[ export . \"b\" ]\npath = \"b\"\nread = [\n  \"x\",\n  \"y\",\n]\n\
                [[group.g.at]]\nwindow = 1\n[[group.g.at]]\nweight = 3\n";
    let lines = Lines::of(text);
    for (path, line) in [
        (&["weight"][..], 5),
        (&["export", "a", "path"], 8),
        (&["export", "b"], 9),
        (&["export", "b", "path"], 10),
        (&["export", "b", "read", "1"], 13),
        (&["export", "b", "read", "y"], 13),
        (&["export", "b", "write"], 9),
        (&["export", "c", "path"], 7),
        (&["group", "g", "at", "0", "window"], 16),
        (&["group", "g", "at", "1", "weight"], 18),
        (&["group", "g", "at", "1", "rate"], 17),
        (&["none"], 1),
        (&[], 1),
    ] {
        assert_eq!(lines.at(path), line, "{path:?}");
    }
    assert_eq!(Lines::of("a = = 1\n").at(&["a"]), 1);
}
