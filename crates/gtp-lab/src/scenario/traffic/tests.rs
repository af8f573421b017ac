//! Sessions that bring one object together, as files state them.
//!
//! Nothing runs here.

use super::*;
use crate::scenario::tests::read;

const GOOD: &str = r#"
duration = "10s"

[[host]]
name = "src"
count = 3
[[host]]
name = "dst"
count = 2

[[session]]
name = "alone"
source = "src1"
sink = "dst1"
rtt = "10ms"

[[session]]
name = "a"
source = "src*"
sink = "dst1"
rtt = "10ms"
size = { from = "1MB", to = "9MB" }
together = true

[[session]]
name = "b"
source = "src*"
sink = "dst2"
rtt = "10ms"
size = "2MB"
together = true
"#;

#[test]
fn sessions_that_bring_an_object_together_are_a_group_of_one_size() {
    let scenario = read(GOOD).expect("good");
    assert_eq!(scenario.groups(), [vec![1, 2, 3], vec![4, 5, 6]]);
    let sizes: Vec<Option<Bytes>> = scenario.sessions.iter().map(|s| s.size).collect();
    assert!(sizes[1].is_some() && sizes[1] == sizes[2] && sizes[1] == sizes[3], "{sizes:?}");
    assert_eq!(sizes[6], Some(Bytes(2_000_000)));
}

#[test]
fn groups_that_cannot_be_meant_are_refused() {
    let cases = [
        ("size = \"2MB\"\n", "", "state its `size`"),
        ("sink = \"dst2\"", "sink = \"dst*\"", "have one sink"),
        ("size = \"2MB\"", "size = \"2MB\"\ndemand = \"1Mbit\"", "have no `demand`"),
        ("size = \"2MB\"", "size = \"2MB\"\nprotocol = \"cubic\"", "are GTP's"),
        ("together = true\n\n", "together = \"yes\"\n\n", "expected true or false"),
    ];
    for (from, to, said) in cases {
        assert!(GOOD.contains(from), "{from:?} is in the file");
        let refused = read(&GOOD.replacen(from, to, 1)).expect_err(to).to_string();
        assert!(refused.contains(said), "{to:?}: {refused}");
    }
}
