//! Names with characters that cannot be seen, or that turn the writing round: people see them
//! escaped, and programs get them as they are.

mod common;

use common::{World, events};

/// A soft hyphen, a vowel separator, a filler, a variation selector, an override of direction, an
/// isolate, a tag, and a space that is none.
const HIDDEN: [char; 8] =
    ['\u{ad}', '\u{180e}', '\u{3164}', '\u{fe0f}', '\u{202e}', '\u{2066}', '\u{e0041}', '\u{a0}'];

fn name(c: char) -> String {
    format!("a{c}b")
}

#[test]
fn names_with_hidden_characters_are_escaped_for_people_and_whole_for_programs() {
    let world = World::new();
    for c in HIDDEN {
        world.export(&name(c), 10);
    }
    let server = world.serve("server", &["--public"]);
    let listed = world.expect(0, &["ls", &server.url(""), "--accept-new"]);
    let shown = String::from_utf8(listed.stdout).unwrap();
    for c in HIDDEN {
        assert!(shown.contains(&format!("a{}b", c.escape_unicode())), "{shown}");
    }
    assert!(!shown.contains(HIDDEN), "{:?}", shown.escape_unicode().to_string());

    for args in [["ls", &server.url(""), "--json"], ["get", &server.url(""), "--json"]] {
        let mut args = args.to_vec();
        if args[0] == "get" {
            args.push("out");
        }
        let output = world.expect(0, &args);
        let raw = String::from_utf8(output.stdout.clone()).unwrap();
        assert!(!raw.contains(HIDDEN), "{args:?}: {:?}", raw.escape_unicode().to_string());
        let paths: Vec<String> = events(&output)
            .iter()
            .filter_map(|event| Some(event["path"].as_str()?.to_owned()))
            .collect();
        for c in HIDDEN {
            assert!(paths.contains(&name(c)), "{args:?}: {paths:?}");
            assert!(args[0] == "ls" || world.path("out").join(name(c)).exists());
        }
    }
}

#[test]
fn a_name_in_a_servers_words_is_escaped_once() {
    let world = World::new();
    let server = world.serve("server", &["--public"]);
    let url = server.url("new%0Aline%E2%80%AE");
    let output = world.expect(3, &["get", &url, "out", "--accept-new"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("new\\nline\\u{202e}"), "{said}");
    assert!(!said.contains("new\\\\n") && !said.contains("new\\\\\\\\n"), "{said}");
}
