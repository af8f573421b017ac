//! `[host.NAME]` of the configuration file in commands: servers and a real sshd on loopback.

mod common;

use common::sshd::Sshd;
use common::{World, events, writable};

/// Writes the client's configuration file.
fn configure(world: &World, text: &str) {
    std::fs::create_dir_all(world.path("client")).unwrap();
    std::fs::write(world.path("client/config.toml"), text).unwrap();
}

fn said(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_name_brings_a_file_from_the_host_and_its_mirrors() {
    let world = World::new();
    let content = world.export("deep/a", 4_000_000);
    let copies = world.path("second/copies/deep");
    std::fs::create_dir_all(&copies).unwrap();
    std::fs::copy(world.path("export/deep/a"), copies.join("a")).unwrap();
    let one = world.serve("server", &["--public"]);
    let two = world.serve_dir("other", "second", &["--public"]);
    let (address, mirror) = (format!("127.0.0.1:{}", one.port), two.url("copies"));
    let text = format!(
        "accept-new = true\n[host.lab]\naddress = {address:?}\nmirrors = [{mirror:?}]\n\
         capacity = \"80Mbit\"\nweight = 2\n"
    );
    configure(&world, &text);
    for (verb, out) in [("get", "got"), ("cp", "copied")] {
        let output = world.expect(0, &[verb, "gtp://lab/deep/a", out, "--json"]);
        assert!(std::fs::read(world.path(out)).unwrap() == content);
        let all = events(&output);
        let done = all.last().unwrap();
        let urls: Vec<_> = done["sources"].as_array().unwrap().iter().map(|s| &s["url"]).collect();
        assert_eq!(urls, [&one.url("deep/a"), &two.url("copies/deep/a")], "{verb}");
        // 4 MB at the capacity that the file says of this host.
        assert!(done["seconds"].as_f64().unwrap() > 0.3, "{verb}: {done}");
    }
    let listed = world.expect(0, &["ls", "gtp://lab/deep/"]);
    assert!(String::from_utf8_lossy(&listed.stdout).contains('a'));
    let config = world.expect(0, &["config"]);
    let config = String::from_utf8_lossy(&config.stdout).into_owned();
    assert!(config.lines().any(|l| l.starts_with("host.lab.address") && l.contains(&address)));
}

#[test]
fn a_name_stands_for_where_things_are_put() {
    let world = World::new();
    let server = writable(&world, &[]);
    std::fs::write(world.path("a"), "a").unwrap();
    configure(&world, &format!("[host.lab]\naddress = \"127.0.0.1:{}\"\n", server.port));
    world.expect(0, &["put", "a", "gtp://lab/put"]);
    world.expect(0, &["cp", "a", "gtp://lab/copied"]);
    std::fs::create_dir(world.path("tree")).unwrap();
    std::fs::write(world.path("tree/x"), "x").unwrap();
    world.expect(0, &["sync", "tree/", "gtp://lab/synced"]);
    for name in ["put", "copied", "synced/x"] {
        assert!(world.path("export").join(name).is_file(), "{name}");
    }
}

#[test]
fn a_name_stands_for_a_login() {
    let sshd = Sshd::with_gtp();
    let content = sshd.file("a b", 10_000);
    let user = common::sshd::user();
    configure(&sshd.world, &format!("[host.lab]\naddress = \"{user}@far\"\n"));
    for words in [["lab:a b", "got"], [&format!("{user}@lab:a b"), "again"]] {
        let output = sshd.gtp("cp", &words).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        assert!(std::fs::read(sshd.world.path(words[1])).unwrap() == content);
    }
    let output = sshd.gtp("cp", &["got", "lab:sent"]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(std::fs::read(sshd.home("sent")).unwrap() == content);
}

#[test]
fn what_the_file_may_not_say_of_a_host_ends_the_command_with_its_line() {
    let world = World::new();
    for (text, line, word) in [
        ("[host.lab]\nadress = \"h\"\n", 2, "adress"),
        ("[host.lab]\naddress = \"h\"\ncapacity = \"600\"\n", 3, "capacity"),
        ("weight = 2\n[host.Lab]\naddress = \"h\"\n", 2, "[host.Lab]"),
        ("[server.lab]\naddress = \"h\"\n", 1, "[host.NAME]"),
    ] {
        configure(&world, text);
        let refused = said(&world.expect(2, &["get", "gtp://lab/x", "."]));
        assert!(refused.contains(&format!("config.toml, line {line}: ")), "{refused}");
        assert!(refused.contains(word), "{refused}");
    }
    configure(&world, "[host.a]\nweight = 1\n[host.b]\nweight = 2\n");
    let refused = said(&world.expect(2, &["get", "gtp://a/x", "gtp://b/x", "out/"]));
    assert!(refused.contains("`weight` differs between [host.a] and [host.b]"), "{refused}");
}
