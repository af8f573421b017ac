//! Routers as files state them: what is read, what is refused, and in which words.
//!
//! Nothing runs here.

use super::*;
use crate::scenario::tests::read;

const GOOD: &str = r#"
duration = "10s"

[[host]]
name = "h"
count = 3
[[host]]
name = "box"
[[switch]]
name = "sw"

[[link]]
name = "core"
from = "h1"
to = "h2"
duplex = true
rate = "100Mbit"
[[link]]
name = "wire"

[[route]]
from = "h*"
to = "h*"
links = ["core"]

[[session]]
source = "h1"
sink = "h2"

[[router]]
name = "gate"
links = "core*"
hosts = ["h2", "h*"]
host = "box"

[[router]]
name = "far"
links = ["wire", "core"]
capacity = "30Mbit"
rtt = "8ms"
key = "another"

[[fault]]
kind = "router-silent"
router = "*"
at = "1s"
for = "2s"

[[fault]]
kind = "router-restart"
router = "gate"
at = "4s"

[[fault]]
kind = "router-restart"
router = "far"
at = "5s"
for = "1s"

[[fault]]
kind = "router-capacity"
router = "gate"
link = "core-back"
capacity = "10Mbit"
at = "7s"
for = "1s"
"#;

#[test]
fn routers_are_read_with_their_links_their_askers_and_what_happens_to_them() {
    let scenario = read(GOOD).expect("good");
    let mbps = Rate::from_mbps;
    let gate = &scenario.allocators[0];
    assert_eq!(gate.links, [(0, mbps(95)), (1, mbps(95))]);
    assert_eq!((&gate.askers[..], gate.site), (&[0, 1, 2][..], Site::Host(3)));
    assert!(gate.is_known_to(2) && !gate.is_known_to(3));
    let far = &scenario.allocators[1];
    assert_eq!(far.links, [(2, mbps(30)), (0, mbps(30))]);
    assert_eq!((&far.askers[..], far.site), (&[0, 1, 2, 3][..], Site::Wire(Span::from_millis(8))));
    assert_eq!((gate.key, far.key), (RouterKey::Hosts, RouterKey::Another));
    let events: Vec<_> =
        (scenario.events.iter()).map(|(at, event)| (at.as_millis() / 1_000, *event)).collect();
    let router = |n, event| Event::Router(n, event);
    assert_eq!(
        events,
        [
            (1, router(0, RouterEvent::Silent)),
            (1, router(1, RouterEvent::Silent)),
            (3, router(0, RouterEvent::Back)),
            (3, router(1, RouterEvent::Back)),
            (4, router(0, RouterEvent::Restart)),
            (5, router(1, RouterEvent::Silent)),
            (6, router(1, RouterEvent::Restart)),
            (7, router(0, RouterEvent::Capacity(1, mbps(10)))),
            (8, router(0, RouterEvent::Capacity(1, mbps(95)))),
        ]
    );
}

#[test]
fn routers_that_cannot_be_meant_are_refused() {
    let cases = [
        ("links = \"core*\"", "links = \"x*\"", "no link \"x*\""),
        ("links = \"core*\"", "links = []", "a router shares out 1 to 16 links, and these are 0"),
        ("links = \"core*\"", "inks = \"core*\"", "did you mean `links`?"),
        ("capacity = \"30Mbit\"\nrtt", "rtt", "[[router]] has no `capacity`: expected what it"),
        ("hosts = [\"h2\", \"h*\"]", "hosts = \"sw\"", "is a switch; only hosts"),
        ("host = \"box\"", "host = \"h1\"", "\"h1\" has something else to do"),
        ("host = \"box\"", "host = \"h*\"", "\"h*\" stands for several hosts"),
        ("rtt = \"8ms\"", "rtt = \"8ms\"\nhost = \"h3\"", "`host` and `rtt` both say"),
        ("rtt = \"8ms\"", "host = \"box\"", "\"box\" has something else to do"),
        ("name = \"far\"", "name = \"gate\"", "a second router of the name \"gate\""),
        ("key = \"another\"", "key = \"other\"", "did you mean \"another\"?"),
        ("duration = \"10s\"", "duration = \"10s\"\nlaw = \"endnode\"", "shares out by the law"),
        ("router = \"*\"", "router = \"x\"", "no router \"x\": there are gate and far"),
        ("link = \"core-back\"", "link = \"wire\"", "\"gate\" does not share out \"wire\""),
        ("capacity = \"10Mbit\"", "capacity = \"0Mbit\"", "it must be more than zero"),
        ("router = \"far\"", "host = \"far\"", "[[fault]] has no `router`"),
    ];
    for (from, to, said) in cases {
        assert!(GOOD.contains(from), "{from:?} is in the file");
        let refused = read(&GOOD.replacen(from, to, 1)).expect_err(to).to_string();
        assert!(refused.contains(said), "{to:?}: {refused}");
    }
}
