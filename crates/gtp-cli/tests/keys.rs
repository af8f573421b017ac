//! `gtp keys`: the list that a server reads, changed by command.

mod common;

use std::time::{Duration, Instant};

use common::{World, events, size_of, wait_for};

fn id(world: &World, end: &str) -> String {
    String::from_utf8(world.run(end, &["id"]).stdout).unwrap().trim().to_owned()
}

fn said(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

#[test]
fn a_key_that_is_added_comes_in_and_one_that_is_revoked_loses_its_running_transfer() {
    let world = World::new();
    world.export("large", 4_000_000);
    let server = world.serve("server", &[]);
    let keys = |args: &[&str]| world.run("server", &[&["keys"], args].concat());
    let key = id(&world, "client");
    world.expect(7, &["ls", &server.url(""), "--accept-new"]);
    let added = keys(&["add", &key, "--rights", "read", "--name", "anna"]);
    assert_eq!(added.status.code(), Some(0), "{}", said(&added));
    let url = server.url("large");
    let mut get = world.gtp("client", &["get", &url, "out", "--max-rate", "2Mbit"]);
    let get = get.stderr(std::process::Stdio::piped()).spawn().unwrap();
    wait_for("data", || size_of(&world.path("out.gtp-part")) > 0);
    let begun = Instant::now();
    let revoked = keys(&["revoke", "anna"]);
    assert_eq!(revoked.status.code(), Some(0), "{}", said(&revoked));
    let ended = get.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(7), "{}", said(&ended));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(keys(&["revoke", &key]).status.code(), Some(3));
}

#[test]
fn a_slip_in_the_list_sends_clients_away_for_a_while_and_not_for_good() {
    let world = World::new();
    let content = world.export("file", 10_000);
    let key = id(&world, "client");
    std::fs::create_dir_all(world.path("server")).unwrap();
    let list = world.path("server/authorized_keys");
    std::fs::write(&list, format!("{key}\n")).unwrap();
    let metrics = common::ports::free_port();
    let server = world.serve("server", &["--metrics", &format!("127.0.0.1:{metrics}")]);
    let url = server.url("file");
    std::fs::write(&list, format!("{key}\nSHA256:zzz read\n")).unwrap();
    let args = ["get", &url, "out", "--accept-new", "--retry-for", "100ms"];
    let refused = world.expect(5, &args);
    assert!(said(&refused).contains("cannot use its list of keys"), "{}", said(&refused));
    let mut getting = world.gtp("client", &["get", &url, "out", "--accept-new"]);
    let getting = getting.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let of_list = |page: &str| {
        let line = "gtp_serve_refused_total{why=\"no_list\",whose=\"stranger\"} ";
        let count = page.lines().find_map(|l| l.strip_prefix(line));
        count.map_or(0, |count| count.parse::<u64>().unwrap())
    };
    let counted = || common::page(metrics).map_or(0, |page| of_list(&page));
    let before = counted();
    common::wait_for("a try of the get", || counted() > before);
    std::fs::write(&list, format!("{key}\n")).unwrap();
    let got = getting.wait_with_output().unwrap();
    assert_eq!(got.status.code(), Some(0), "{}", said(&got));
    assert_eq!(std::fs::read(world.path("out")).unwrap(), content);
}

#[test]
fn a_session_of_a_revoked_key_ends_as_revoked_in_the_log_and_with_code_7_for_its_client() {
    let world = World::new();
    world.export("file", 64 << 20);
    let key = id(&world, "client");
    std::fs::create_dir_all(world.path("server")).unwrap();
    let list = world.path("server/authorized_keys");
    std::fs::write(&list, format!("{key}\n")).unwrap();
    let args = ["serve", "export", "--json", "--listen", "127.0.0.1:0", "--max-rate", "8Mbit"];
    let log = world.path("log");
    let server = common::Serving::start_logged(world.gtp("server", &args), &log);
    let mut getting = world.gtp("client", &["get", &server.url("file"), "out", "--accept-new"]);
    let mut getting = getting.stderr(std::process::Stdio::null()).spawn().unwrap();
    let said = |words: &str| std::fs::read_to_string(&log).unwrap().contains(words);
    common::wait_for("the session", || said("session begins"));
    std::fs::write(&list, "").unwrap();
    assert_eq!(getting.wait().unwrap().code(), Some(7));
    common::wait_for("its end", || said("outcome=\"revoked\""));
}

#[test]
fn a_test_of_a_key_says_what_it_may_do_and_which_line_says_so() {
    let world = World::new();
    let (one, other) = (id(&world, "client"), id(&world, "stranger"));
    std::fs::create_dir_all(world.path("server")).unwrap();
    let list = world.path("server/authorized_keys");
    std::fs::write(&list, format!("# readers\n{one} read  # anna\n{one} write\n")).unwrap();
    let keys = |args: &[&str]| world.run("server", &[&["keys"], args].concat());
    let tested = keys(&["test", "anna"]);
    assert_eq!(tested.status.code(), Some(0));
    assert!(said(&tested).contains("may read and write: lines 2 and 3 of"), "{}", said(&tested));
    let json = &events(&keys(&["test", &one, "--json"]))[0];
    assert_eq!((&json["read"], &json["name"]), (&true.into(), &"anna".into()));
    let unknown = keys(&["test", &other]);
    assert_eq!(unknown.status.code(), Some(7));
    assert!(said(&unknown).contains("may do nothing: no line of"), "{}", said(&unknown));
    assert_eq!(keys(&["test", "nobody"]).status.code(), Some(3));
    std::fs::write(&list, format!("{one} raed\n")).unwrap();
    for args in [&["test", &one][..], &["list"]] {
        let broken = keys(args);
        assert_eq!(broken.status.code(), Some(7));
        assert!(said(&broken).contains("line 1: expected read, write"), "{}", said(&broken));
    }
}

#[test]
fn a_line_that_names_places_lets_nobody_into_a_server_with_one_export_and_is_named() {
    let world = World::new();
    world.export("file", 10);
    let key = id(&world, "client");
    std::fs::create_dir_all(world.path("server")).unwrap();
    let list = world.path("server/authorized_keys");
    std::fs::write(&list, format!("{key} read=home/anna  # anna\n")).unwrap();
    let args = ["serve", "export", "--json", "--writable", "--listen", "127.0.0.1:0"];
    let log = world.path("log");
    let server = common::Serving::start_logged(world.gtp("server", &args), &log);
    world.expect(7, &["get", &server.url("file"), "out", "--accept-new"]);
    world.expect(7, &["put", "export/file", &server.url("new")]);
    let log = std::fs::read_to_string(log).unwrap();
    let warned: Vec<&str> = log.lines().filter(|line| line.contains("give nothing here")).collect();
    assert!(matches!(warned[..], [line] if line.contains("anna")), "{log}");
    let tested = world.run("server", &["keys", "test", "anna"]);
    let words = "by line 1 only at the places named there, and not at all where";
    assert!(said(&tested).contains(words), "{}", said(&tested));
    let json = &events(&world.run("server", &["keys", "test", "anna", "--json"]))[0];
    assert_eq!(json["narrowed_lines"], serde_json::json!([1]));
    let renamed = world.run("server", &["keys", "add", &key, "--name", "bea"]);
    let words = "may now read and write, only at the places that its line names: ";
    assert!(said(&renamed).contains(words), "{}", said(&renamed));
    std::fs::write(&list, format!("{key} read=home/anna  # anna\n{key} read\n")).unwrap();
    world.expect(0, &["get", &server.url("file"), "out"]);
    let renamed = world.run("server", &["keys", "add", &key, "--name", "bea"]);
    assert!(!said(&renamed).contains("only at"), "{}", said(&renamed));
    world.expect(0, &["get", &server.url("file"), "out2"]);
    world.expect(7, &["put", "export/file", &server.url("new")]);
}

/// A time zone in which it is so many seconds after noon now.
fn zone(after_noon: i64) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let west = now.as_secs() as i64 % 86_400 - 43_200 - after_noon;
    let (sign, west) = if west < 0 { ("-", -west) } else { ("", west) };
    format!("LCL{sign}{:02}:{:02}:{:02}", west / 3_600, west / 60 % 60, west % 60)
}

/// A server in this time zone.
fn serve_at(world: &World, zone: &str) -> common::Serving {
    let mut command =
        world.gtp("server", &["serve", "export", "--json", "--listen", "127.0.0.1:0"]);
    command.env("TZ", zone);
    common::Serving::start(command)
}

#[test]
fn a_key_comes_in_within_its_hours_alone_and_the_refusal_says_when_they_begin_again() {
    let world = World::new();
    world.export("small", 1_000);
    let zone = zone(0);
    let keys = |args: &[&str]| {
        world.gtp("server", &[&["keys"], args].concat()).env("TZ", &zone).output().unwrap()
    };
    let key = id(&world, "client");
    let added = keys(&["add", &key, "--name", "anna", "--window", "mon-sun 14:00-06:00"]);
    assert_eq!(added.status.code(), Some(0), "{}", said(&added));
    let listed = said(&keys(&["list"]));
    assert!(listed.contains("anna  (14:00-06:00)"), "{listed}");
    let tested = keys(&["test", "anna"]);
    assert_eq!(tested.status.code(), Some(7));
    let words =
        ["may read and write", "but not now: its hours are 14:00-06:00; they begin again on"];
    assert!(words.iter().all(|words| said(&tested).contains(words)), "{}", said(&tested));
    let server = serve_at(&world, &zone);
    let refused = world.run("client", &["ls", &server.url(""), "--accept-new"]);
    assert_eq!(refused.status.code(), Some(7), "{}", said(&refused));
    let words = ["outside the hours of this key: they begin again on", " 14:00 ("];
    assert!(words.iter().all(|words| said(&refused).contains(words)), "{}", said(&refused));
    keys(&["add", &key, "--window", "11:00-14:00"]);
    world.expect(0, &["ls", &server.url(""), "--accept-new"]);
    let json = &events(&keys(&["test", "anna", "--json"]))[0];
    assert_eq!((&json["window"], &json["open"]), (&"11:00-14:00".into(), &true.into()));
    keys(&["add", &key, "--window", "always"]);
    assert_eq!(said(&keys(&["list"])).matches(':').count(), 1, "{}", said(&keys(&["list"])));
    let bad = keys(&["add", &key, "--window", "8-10"]);
    assert_eq!(bad.status.code(), Some(2), "{}", said(&bad));
}

#[test]
fn a_doctor_outside_of_the_hours_of_a_key_says_when_they_begin_and_a_get_names_the_kind() {
    let world = World::new();
    world.export("file", 10);
    let zone = zone(0);
    let server = serve_at(&world, &zone);
    let key = id(&world, "client");
    world.run("server", &["keys", "add", &key, "--window", "14:00-06:00"]);
    let seen = world.run("client", &["doctor", &server.url("file"), "--accept-new", "--json"]);
    assert_eq!(seen.status.code(), Some(13), "{}", said(&seen));
    let rows = events(&seen);
    let row = rows.iter().find(|row| row["check"] == "hours");
    let row = row.unwrap_or_else(|| panic!("no row for hours: {}", said(&seen)));
    assert_eq!(row["verdict"], "fault");
    let found = row["found"].as_str().unwrap();
    let words = ["it is outside the hours of this key: they begin again on", " 14:00 ("];
    assert!(words.iter().all(|words| found.contains(words)), "{found}");
    assert!(row["mend"].as_str().unwrap().contains("gtp keys test"), "{row}");
    assert!(rows.iter().all(|row| row["check"] != "identity"), "{}", said(&seen));
    let get = world.run("client", &["get", &server.url("file"), "out", "--accept-new", "--json"]);
    assert_eq!(get.status.code(), Some(7), "{}", said(&get));
    let events = events(&get);
    let error = events.iter().find(|event| event["event"] == "error").unwrap();
    assert_eq!(error["kind"], "outside_hours", "{error}");
}

#[test]
fn a_test_of_a_key_knows_the_hours_of_its_groups_and_says_until_when_it_may_come() {
    let world = World::new();
    let key = id(&world, "client");
    std::fs::create_dir_all(world.path("server")).unwrap();
    let list = |rest: &str| {
        std::fs::write(world.path("server/authorized_keys"), format!("{key} {rest}\n")).unwrap();
    };
    let config = |groups: &str| {
        let text = format!(
            "[export.a]\npath = \"/srv\"\nread = true\n[group.lab]\nkeys = [\"{key}\"]\n{groups}"
        );
        std::fs::write(world.path("server/config.toml"), text).unwrap();
    };
    let test = |args: &[&str]| {
        let args = [&["keys", "test", &key], args].concat();
        world.gtp("server", &args).env("TZ", zone(0)).output().unwrap()
    };
    list("window=11:00-14:00");
    config("window = [\"09:00-13:30\"]\n");
    let open = test(&[]);
    let words = [
        "its hours are 11:00-14:00, and 09:00-13:30 (group lab): it may come now, until",
        "13:30 (",
    ];
    assert!(words.iter().all(|words| said(&open).contains(words)), "{}", said(&open));
    assert_eq!(open.status.code(), Some(0));
    config("window = \"13:30-16:00\"\n");
    let closed = test(&[]);
    assert_eq!(closed.status.code(), Some(7), "{}", said(&closed));
    let words = ["but not now: its hours are 11:00-14:00, and 13:30-16:00 (group lab)", "13:30 ("];
    assert!(words.iter().all(|words| said(&closed).contains(words)), "{}", said(&closed));
    let json = &events(&test(&["--json"]))[0];
    assert_eq!((&json["open"], &json["groups"][0]["open"]), (&false.into(), &false.into()));
    assert!(json["opens"].as_str().unwrap().contains(" 13:30 ("), "{json}");
    list("group=lab,guests");
    config("");
    let unknown = said(&test(&[]));
    assert!(unknown.contains("has no [group.guests]") && !unknown.contains("lab"), "{unknown}");
    assert_eq!(test(&[]).status.code(), Some(0));
}

#[test]
fn a_transfer_that_runs_ends_with_the_hours_of_its_key_and_what_it_has_is_kept() {
    let world = World::new();
    world.export("large", 8_000_000);
    // An hour and a little less.
    let server = serve_at(&world, &zone(3_600 - 15));
    let key = id(&world, "client");
    world.run("server", &["keys", "add", &key, "--window", "12:00-13:00"]);
    let url = server.url("large");
    let mut get = world.gtp("client", &["get", &url, "out", "--accept-new", "--max-rate", "1Mbit"]);
    let get = get.stderr(std::process::Stdio::piped()).spawn().unwrap();
    wait_for("data", || size_of(&world.path("out.gtp-part")) > 0);
    let ended = get.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(7), "{}", said(&ended));
    let words = "the hours of this key are over: they begin again on";
    assert!(said(&ended).contains(words), "{}", said(&ended));
    assert!(size_of(&world.path("out.gtp-part")) > 0);
    world.run("server", &["keys", "add", &key, "--window", "always"]);
    world.expect(0, &["get", &url, "out"]);
}

#[test]
fn a_name_that_means_two_keys_or_is_no_line_of_text_is_refused() {
    let world = World::new();
    let keys = |args: &[&str]| world.run("server", &[&["keys"], args].concat());
    for end in ["client", "stranger"] {
        let added = keys(&["add", &id(&world, end), "--name", "twin"]);
        assert_eq!(added.status.code(), Some(0), "{}", said(&added));
    }
    assert_eq!(keys(&["revoke", "twin"]).status.code(), Some(2));
    assert_eq!(events(&keys(&["list", "--json"])).len(), 2);
    let key = id(&world, "client");
    for name in ["a\nSHA256:x", "", "\u{202e}x", &"x".repeat(101)] {
        assert_eq!(keys(&["add", &key, "--name", name]).status.code(), Some(2), "{name:?}");
    }
    assert_eq!(keys(&["add", &key, "--rights", "own"]).status.code(), Some(2));
}

#[test]
fn a_key_is_put_into_groups_and_taken_out_by_command_and_the_list_shows_them() {
    let world = World::new();
    let keys = |args: &[&str]| world.run("server", &[&["keys"], args].concat());
    let key = id(&world, "client");
    let add = |args: &[&str]| {
        let added = keys(&[&["add", &key], args].concat());
        assert_eq!(added.status.code(), Some(0), "{}", said(&added));
        said(&keys(&["list"]))
    };
    let listed = add(&["--name", "anna", "--group", "staff,lab"]);
    assert!(listed.ends_with("anna  [staff,lab]\n"), "{listed}");
    assert!(add(&["--rights", "read"]).contains("anna  [staff,lab]"), "they stay");
    assert_eq!(
        events(&keys(&["list", "--json"]))[0]["groups"],
        serde_json::json!(["staff", "lab"])
    );
    assert!(!add(&["--group", "-"]).contains('['), "{}", said(&keys(&["list"])));
    for bad in ["", "a,,b", "../x"] {
        assert_eq!(keys(&["add", &key, "--group", bad]).status.code(), Some(2), "{bad:?}");
    }
}

#[test]
fn a_key_gets_a_rate_a_weight_and_a_guarantee_by_command_and_loses_them_again() {
    let world = World::new();
    let keys = |args: &[&str]| world.run("server", &[&["keys"], args].concat());
    let key = id(&world, "client");
    let add = |args: &[&str]| {
        let added = keys(&[&["add", &key], args].concat());
        assert_eq!(added.status.code(), Some(0), "{}", said(&added));
        said(&keys(&["list"]))
    };
    let all = ["--name", "anna", "--rate", "50Mbit", "--weight", "2", "--guarantee", "10Mbit"];
    let words = "anna  (rate 50.0 Mbit/s, weight 2, guarantee 10.0 Mbit/s)\n";
    assert!(add(&all).ends_with(words), "{}", said(&keys(&["list"])));
    assert!(add(&["--rights", "read"]).ends_with(words), "they stay");
    let record = &events(&keys(&["list", "--json"]))[0];
    let numbers = ["rate", "weight", "guarantee"].map(|name| record[name].as_f64());
    assert_eq!(numbers, [Some(50e6), Some(2.0), Some(10e6)]);
    let tested = said(&keys(&["test", "anna"]));
    let words = "; it has 50.0 Mbit/s at most with all its sessions, each way, a weight of 2, \
                 10.0 Mbit/s served first";
    assert!(tested.contains(words), "{tested}");
    let refused = keys(&["add", &key, "--rate", "5Mbit"]);
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    assert!(said(&refused).contains("guarantee= is more than rate="), "{}", said(&refused));
    let off = add(&["--rate", "-", "--guarantee", "-", "--weight", "-"]);
    assert!(off.ends_with("anna\n"), "{off}");
    assert!(!said(&keys(&["test", "anna"])).contains("it has"));
    let bad = [
        ["--rate", "0Mbit"],
        ["--rate", "50"],
        ["--rate", "1001Tbit"],
        ["--guarantee", "some"],
        ["--weight", "0"],
        ["--weight", "NaN"],
    ];
    for [option, value] in bad {
        let refused = keys(&["add", &key, option, value]);
        assert_eq!(refused.status.code(), Some(2), "{option} {value}: {}", said(&refused));
    }
}

#[test]
fn a_test_of_a_key_says_what_its_line_and_its_groups_give_it_together() {
    let world = World::new();
    let key = id(&world, "client");
    std::fs::create_dir_all(world.path("server")).unwrap();
    let list = |rest: &str| {
        std::fs::write(world.path("server/authorized_keys"), format!("{key} {rest}\n")).unwrap();
    };
    let config = "[group.lab]\nrate = \"30Mbit\"\nweight = 3\ntotal-rate = \"80Mbit\"\n\
                  guarantee = \"20Mbit\"\n";
    std::fs::write(world.path("server/config.toml"), config).unwrap();
    let test = |args: &[&str]| world.run("server", &[&["keys", "test", &key], args].concat());
    list("group=lab rate=50Mbit weight=2");
    let words = "; it has 30.0 Mbit/s at most with all its sessions, each way, a weight of 3, \
                 80.0 Mbit/s with all of group lab, 20.0 Mbit/s served first to group lab";
    assert!(said(&test(&[])).contains(words), "{}", said(&test(&[])));
    let share = &events(&test(&["--json"]))[0]["share"];
    let expected = serde_json::json!({
        "rate": 30_000_000, "weight": 3.0, "guarantee": null, "group": "lab",
        "group_total_rate": 80_000_000, "group_guarantee": 20_000_000,
    });
    assert_eq!(share, &expected);
    list("group=lab guarantee=5Mbit");
    let share = &events(&test(&["--json"]))[0]["share"];
    assert_eq!((&share["guarantee"], &share["group"]), (&5_000_000.into(), &().into()));
    list("rate=0Mbit");
    let broken = test(&[]);
    assert_eq!(broken.status.code(), Some(7), "{}", said(&broken));
    let words = "line 1: expected a rate above zero behind rate= or guarantee=";
    assert!(said(&broken).contains(words), "{}", said(&broken));
}

#[test]
fn a_key_gets_places_by_command_and_a_server_with_several_exports_goes_by_them() {
    let world = World::new();
    world.export("home/anna/file", 10);
    world.export("home/bert/file", 10);
    let (key, dir) = (id(&world, "client"), world.path("export/home"));
    std::fs::create_dir_all(world.path("server")).unwrap();
    let config = format!("[export.home]\npath = \"{}\"\n", dir.display());
    std::fs::write(world.path("server/config.toml"), config).unwrap();
    let keys = |args: &[&str]| world.run("server", &[&["keys"], args].concat());
    let add = |args: &[&str]| keys(&[&["add", &key], args].concat());
    let added = add(&["--name", "anna", "--read", "home/anna", "--write", "home/anna/in,home/x"]);
    let words = "may now read and write, only at the places that its line names: ";
    assert!(said(&added).contains(words), "{}", said(&added));
    let tested = said(&keys(&["test", "anna"]));
    let rows = "\n  home/anna     read\n  home/anna/in  read, write\n  home/x        write\n";
    assert!(tested.ends_with(rows), "{tested}");
    let args = ["serve", "--json", "--writable", "--listen", "127.0.0.1:0"];
    let server = common::Serving::start(world.gtp("server", &args));
    world.expect(0, &["get", &server.url("home/anna/file"), "out", "--accept-new"]);
    assert_ne!(
        world.run("client", &["get", &server.url("home/bert/file"), "no"]).status.code(),
        Some(0)
    );
    let read_alone = add(&["--write", "-"]);
    assert_eq!(read_alone.status.code(), Some(0), "{}", said(&read_alone));
    assert!(said(&keys(&["test", "anna"])).ends_with("\n  home/anna  read\n"));
    let nowhere = add(&["--read", "-"]);
    assert_eq!(nowhere.status.code(), Some(2), "{}", said(&nowhere));
    assert!(said(&nowhere).contains("would have no place left"), "{}", said(&nowhere));
    for bad in ["", "../etc", "home,,x", "home/a#b", "home/a\"b"] {
        assert_eq!(add(&["--read", bad]).status.code(), Some(2), "{bad:?}");
    }
}

#[test]
fn an_empty_list_and_one_that_is_not_there_say_so_on_standard_error() {
    let world = World::new();
    let list = || {
        let listed = world.run("server", &["keys", "list"]);
        assert_eq!((listed.status.code(), listed.stdout.len()), (Some(0), 0));
        let said = said(&listed);
        assert!(
            said.contains("no key is listed in ") && said.contains("authorized_keys"),
            "{said}"
        );
    };
    list();
    std::fs::create_dir_all(world.path("server")).unwrap();
    std::fs::write(world.path("server/authorized_keys"), "# nobody yet\n").unwrap();
    list();
}

#[test]
fn the_help_of_the_list_and_of_a_server_tells_the_whole_syntax_of_a_line() {
    let world = World::new();
    for verb in ["keys", "serve"] {
        let help = said(&world.run("server", &[verb, "--help"]));
        let line = "FINGERPRINT [RIGHTS] [OPTION=VALUE...] [# COMMENT]";
        let options = ["group=", "read=", "write=", "delete=", "window="];
        let shares = ["rate=", "weight=", "guarantee="];
        for words in options.into_iter().chain(shares).chain([line, "authorized_keys(5)"]) {
            assert!(help.contains(words), "{verb}: {words} is not in {help}");
        }
    }
}

#[test]
fn the_manual_has_a_page_for_the_list() {
    let world = World::new();
    world.expect(0, &["man", "man"]);
    let page = std::fs::read_to_string(world.path("man/gtp-authorized_keys.5")).unwrap();
    assert!(page.contains("read,write"));
    assert!(world.path("man/gtp-keys-revoke.1").exists());
}

#[test]
fn a_test_of_a_key_says_where_it_may_do_what_by_the_exports_of_the_configuration() {
    let world = World::new();
    let key = id(&world, "client");
    std::fs::create_dir_all(world.path("server")).unwrap();
    let list = |rest: &str| {
        std::fs::write(world.path("server/authorized_keys"), format!("{key} {rest}\n")).unwrap();
    };
    let config = "[export.pub]\npath = \"/srv/pub\"\nread = true\n\
                  [export.home]\npath = \"/srv/home\"\n\
                  [export.lab]\npath = \"/srv/lab\"\nread = [\"lab\"]\nwrite = [\"lab\"]\n\
                  [group.lab]\n";
    std::fs::write(world.path("server/config.toml"), config).unwrap();
    let test = |args: &[&str]| world.run("server", &[&["keys", "test", &key], args].concat());
    list("group=lab read=home/anna delete=home/anna");
    let told = test(&[]);
    assert_eq!(told.status.code(), Some(0), "{}", said(&told));
    let rows = "\n  home/anna  read, delete\n  lab        read, write\n  pub        read\n";
    assert!(said(&told).ends_with(rows), "{}", said(&told));
    let record = &events(&test(&["--json"]))[0];
    let row = |place: &str, rights: [bool; 3]| {
        let [read, write, delete] = rights;
        serde_json::json!({"place": place, "read": read, "write": write, "delete": delete})
    };
    let rows = [
        row("home/anna", [true, false, true]),
        row("lab", [true, true, false]),
        row("pub", [true, false, false]),
    ];
    assert_eq!(record["places"], serde_json::json!(rows));
    list("write");
    let nowhere = test(&[]);
    assert_eq!(nowhere.status.code(), Some(7), "{}", said(&nowhere));
    assert!(said(&nowhere).contains("gives it no right in any export"), "{}", said(&nowhere));
}
