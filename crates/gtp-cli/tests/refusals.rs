//! What ends in a message and the right exit code: keys, paths, destinations, words, settings.

mod common;

use common::{World, events, wait_for};

#[test]
fn strangers_stay_out_until_their_key_is_listed() {
    let world = World::new();
    world.export("a", 10);
    let server = world.serve("server", &[]);
    let url = server.url("a");
    world.expect(7, &["get", &url, "out", "--accept-new"]);
    world.list_client();
    world.expect(0, &["get", &url, "out"]);
}

#[test]
fn a_server_with_an_unknown_or_changed_key_is_refused() {
    let world = World::new();
    world.export("a", 10);
    let mut server = world.serve("server", &["--public"]);
    let url = server.url("a");
    let output = world.expect(7, &["get", &url, "out"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains(&server.fingerprint));
    world.expect(0, &["get", &url, "out", "--fingerprint", &server.fingerprint]);
    world.expect(0, &["ls", &url, "--accept-new"]);
    server.kill();
    let listen = format!("127.0.0.1:{}", server.port);
    let other = world.serve("other", &["--public", "--listen", &listen]);
    let output = world.expect(7, &["get", &url, "out2", "--accept-new"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("CHANGED"));
    world.expect(7, &["get", &url, "out2", "--fingerprint", &server.fingerprint]);
    assert_ne!(other.fingerprint, server.fingerprint);
}

#[test]
fn options_may_stand_between_operands_and_a_lone_operand_is_code_2() {
    let world = World::new();
    world.export("a", 10);
    let server = world.serve("server", &["--public"]);
    let url = server.url("a");
    world.expect(0, &["get", &url, "--fingerprint", &server.fingerprint, "out"]);
    for (verb, missing) in [("get", "is needed after"), ("put", "is needed before")] {
        let output = world.expect(2, &[verb, &url]);
        assert!(String::from_utf8_lossy(&output.stderr).contains(missing), "{verb}");
    }
}

#[test]
fn what_is_missing_at_the_source_is_code_3() {
    let world = World::new();
    world.export("a", 10);
    let server = world.serve("server", &["--public"]);
    for path in ["nothing", "a/b", "../export/a", "%00", ".."] {
        world.expect(3, &["get", &server.url(path), "out", "--accept-new"]);
    }
    std::os::unix::fs::symlink("/etc/hostname", world.path("export/link")).unwrap();
    world.expect(3, &["get", &server.url("link"), "out"]);
    world.expect(3, &["serve", "not-there", "--listen", "127.0.0.1:0"]);
}

#[test]
fn a_destination_that_cannot_be_is_code_4() {
    let world = World::new();
    world.export("a", 10);
    world.export("d/x", 10);
    let server = world.serve("server", &["--public"]);
    let (a, d) = (server.url("a"), server.url("d"));
    world.expect(4, &["get", &a, "no/such/dir", "--accept-new"]);
    std::fs::write(world.path("file"), b"x").unwrap();
    world.expect(4, &["get", &a, "file/below"]);
    world.expect(4, &["get", &d, "file"]);
    std::fs::create_dir_all(world.path("dir/a")).unwrap();
    world.expect(4, &["get", &a, "dir"]);
    std::os::unix::fs::symlink("/etc/hostname", world.path("planted")).unwrap();
    world.expect(4, &["get", &a, "planted"]);
    assert_eq!(std::fs::read(world.path("file")).unwrap(), b"x");
}

#[test]
fn put_needs_a_writable_server_and_stays_beneath_it() {
    let world = World::new();
    let reading = world.serve("server", &["--public"]);
    let content = world.export("../mine", 700_000);
    world.expect(4, &["put", "mine", &reading.url("new"), "--accept-new"]);
    drop(reading);
    let server = world.serve("server", &["--writable", "--public"]);
    let new = server.url("new");
    world.expect(7, &["put", "mine", &new, "--accept-new"]);
    world.list_client();
    world.expect(0, &["put", "mine", &new]);
    assert!(std::fs::read(world.path("export/new")).unwrap() == content);
    std::fs::create_dir(world.path("tree")).unwrap();
    std::fs::write(world.path("tree/x"), b"x").unwrap();
    world.expect(0, &["put", "mine", "tree", &server.url("")]);
    assert!(std::fs::read(world.path("export/mine")).unwrap() == content);
    assert_eq!(std::fs::read(world.path("export/tree/x")).unwrap(), b"x");
    std::os::unix::fs::symlink(world.path("tree"), world.path("export/out")).unwrap();
    for path in ["out/y", "out/", "../y", "no/such/y"] {
        let output = world.run("client", &["put", "mine", &server.url(path)]);
        assert_ne!(output.status.code(), Some(0), "{path}");
    }
    assert_eq!(std::fs::read_dir(world.path("tree")).unwrap().count(), 1);
}

#[test]
fn a_listing_names_what_is_there() {
    let world = World::new();
    world.export("d/b", 7);
    world.export("a", 5);
    let server = world.serve("server", &["--public"]);
    let output = world.expect(0, &["ls", &server.url(""), "--accept-new", "--json"]);
    let lines = events(&output);
    let seen: Vec<_> = lines
        .iter()
        .map(|l| (l["path"].as_str().unwrap(), l["kind"].as_str().unwrap(), l["size"].as_u64()))
        .collect();
    assert_eq!(seen, [("a", "file", Some(5)), ("d", "directory", Some(0))]);
}

#[test]
fn words_that_make_no_sense_are_code_2() {
    let world = World::new();
    for args in [
        &["get"][..],
        &["get", "gtp://h/x"],
        &["get", "http://h/x", "out"],
        &["get", "gtp://h/x", "out", "--max-rate", "700"],
        &["get", "gtp://h/x", "out", "--weight", "0"],
        &["get", "gtp://h/x", "out", "--no-such-option"],
        &["get", "gtp://h/x", "gtp://h/y", ".", "--mirror", "gtp://h/z"],
    ] {
        world.expect(2, args);
    }
    let output = world.expect(2, &["get", "gtp://h/x", "out", "--capacity-in", "700"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("unit"));
}

#[test]
fn a_network_file_that_cannot_be_emulated_is_code_2_and_named_with_what_it_lacks() {
    let world = World::new();
    let link = "[[link]]\nname = \"l\"\n";
    let path = "[[path]]\nname = \"p\"\nlisten = \"127.0.0.1:0\"\ntarget = \"127.0.0.1:9\"\n\
                up = []\ndown = []\n";
    let host = |name: &str| {
        format!("[[host]]\nname = \"{name}\"\nnamespace = \"{name}\"\naddress = \"10.0.0.1/24\"\n")
    };
    let routes = format!(
        "{}{}[[route]]\nfrom = \"gtp-a\"\nto = \"gtp-b\"\nlinks = []\n",
        host("gtp-a"),
        host("gtp-b")
    );
    let relay = &["emulate", "net.toml"][..];
    let router = &["emulate", "net.toml", "--tun"][..];
    for (text, args, expected) in [
        ("", relay, "there is no [[path]]: the relay needs one"),
        ("# nothing\n", router, "there is no [[route]]: the router needs [[host]]s"),
        (link, relay, "there is no [[path]]: the relay needs one"),
        (path, router, "there is no [[route]] for the router"),
        (&routes, relay, "or use --tun for the [[route]]s"),
        ("[[link]]\n", relay, "name"),
        ("[[link]]\nname = \"l\"\ndelay = \"9h\"\n", relay, "line 3"),
    ] {
        std::fs::write(world.path("net.toml"), text).unwrap();
        let output = world.expect(2, args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("net.toml: ") && said.contains(expected), "{text}: {said}");
    }
}

#[test]
fn settings_come_from_flag_environment_file_and_default_in_this_order() {
    let world = World::new();
    std::fs::create_dir(world.path("client")).unwrap();
    let file = world.path("client/config.toml");
    std::fs::write(&file, "capacity-in = \"100Mbit\"\nmax-rate = \"50Mbit\"\n").unwrap();
    let mut command = world.gtp("client", &["config", "--json"]);
    let output = command.env("GTP_MAX_RATE", "60Mbit").output().unwrap();
    let lines = events(&output);
    let find = |name: &str| lines.iter().find(|l| l["name"] == name).unwrap().clone();
    assert_eq!(find("capacity-in")["value"], "100Mbit");
    assert!(find("capacity-in")["origin"].as_str().unwrap().starts_with("file "));
    assert_eq!(find("max-rate")["value"], "60Mbit");
    assert_eq!(find("max-rate")["origin"], "environment GTP_MAX_RATE");
    assert_eq!(find("weight")["origin"], "default");
    std::fs::write(&file, "weight = 2\nmax-rat = \"50Mbit\"\n").unwrap();
    let output = world.expect(2, &["id"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("line 2") && said.contains("max-rat"), "{said}");
}

#[test]
fn completions_and_manual_pages_are_made() {
    let world = World::new();
    let output = world.expect(0, &["completions", "bash"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("_gtp"));
    world.expect(0, &["man", "pages"]);
    assert!(world.path("pages/gtp-get.1").exists());
}

#[test]
fn a_disk_that_is_measured_no_further_keeps_nothing_of_it() {
    let world = World::new();
    let place = world.path("export");
    let entries = || std::fs::read_dir(&place).unwrap().count();
    let command = &mut world.gtp("client", &["bench", "disk", "export", "--size", "64MiB"]);
    let measuring = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    wait_for("its files", || entries() > 0);
    let pid = rustix::process::Pid::from_child(&measuring);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = measuring.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert_eq!(entries(), 0);
}

#[test]
fn lists_and_keys_that_others_may_change_are_refused_with_the_command_that_mends_it() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    world.export("a", 10);
    let set = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let refused = |command: &mut std::process::Command| {
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(7), "{said}");
        assert!(said.contains("chmod go-w"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    };
    let server = world.serve("server", &["--public"]);
    let url = server.url("a");
    world.expect(0, &["get", &url, "out", "--accept-new"]);
    let client = world.path("client");
    let known = client.join("known_hosts");
    set(&known, 0o666);
    refused(&mut world.gtp("client", &["get", &url, "again"]));
    set(&known, 0o600);
    set(&client, 0o777);
    refused(&mut world.gtp("client", &["get", &url, "again"]));
    refused(&mut world.gtp("client", &["put", "out", &url]));
    set(&client, 0o700);
    world.expect(0, &["get", &url, "again"]);
    let list = world.path("server").join("authorized_keys");
    std::fs::write(&list, "").unwrap();
    set(&list, 0o622);
    refused(&mut world.gtp("server", &["serve", "export", "--listen", "127.0.0.1:0"]));
}

#[test]
fn words_that_are_not_taken_are_repeated_without_what_would_act_on_a_terminal() {
    let world = World::new();
    let acts = "x\u{202e}y\u{9b}31mz\u{1b}[31m\u{7}";
    let option = format!("--{acts}");
    let rate = format!("--max-rate={acts}");
    let address = format!("gtp://{acts}");
    let cases: [&[&str]; 7] = [
        &[acts],
        &["get", &option],
        &["get", "a", "b", &rate],
        &["get", &address, "b"],
        &["ls", "a", acts],
        &["keys", acts],
        &["set", acts],
    ];
    let gtpd = |words: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_gtpd"));
        command.args(words).output().unwrap()
    };
    let ours = cases.iter().map(|words| (world.run("client", words), *words));
    let daemons: [&[&str]; 3] = [&[acts], &[&option], &["--user-weight", acts]];
    let daemons = daemons.into_iter().map(|words| (gtpd(words), words));
    for (output, words) in ours.chain(daemons) {
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(!said.contains(|c| !gtp_text::is_plain(c) && c != '\n'), "{words:?}: {said:?}");
        assert!(said.contains("u{202e}"), "{words:?}: {said}");
    }
}

#[test]
fn a_set_without_anything_to_set_names_all_that_would_do() {
    let world = World::new();
    let output = world.run("client", &["set", "3"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    for option in ["--weight", "--max-rate", "--guarantee", "--policy"] {
        assert!(said.contains(option), "{option}: {said}");
    }
}

#[test]
fn a_wrong_value_of_an_option_for_one_command_is_traced_to_its_variable_too() {
    let world = World::new();
    for (variable, value) in [("GTP_MIRROR", "foo"), ("GTP_BLAKE3", "x")] {
        let mut get = world.gtp("client", &["get", "gtp://127.0.0.1:1/a", "out"]);
        let output = get.env(variable, value).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("comes from the environment: {variable}")), "{said}");
    }
}
