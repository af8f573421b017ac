//! A server with several exports: who sees, reads, writes and removes what, in each of the ways in
//! which a client comes; exports that change under it, and a file system that is not mounted.

mod common;

use std::fs;
use std::process::{Command, Output};

use common::{Serving, World, events, require_root, wait_for};
use rustix::process::{Pid, Signal, kill_process};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The fingerprint of one end.
fn id(world: &World, end: &str) -> String {
    String::from_utf8(world.run(end, &["id"]).stdout).unwrap().trim().to_owned()
}

/// Writes the server's settings; `DIR` in them is this world's directory.
fn set(world: &World, text: &str) {
    let text = text.replace("DIR", world.path("").display().to_string().trim_end_matches('/'));
    fs::write(world.path("serve.toml"), text).unwrap();
}

/// Starts a server of the exports in `serve.toml`, with its log in `log`.
fn serve(world: &World, args: &[&str]) -> Serving {
    let mut command = world.gtp("server", &["serve", "--json", "--listen", "127.0.0.1:0"]);
    command.args(args).env("GTP_CONFIG_FILE", world.path("serve.toml"));
    Serving::start_logged(command, &world.path("log"))
}

#[track_caller]
fn expect(world: &World, end: &str, code: i32, args: &[&str]) -> Output {
    let output = world.run(end, args);
    assert_eq!(output.status.code(), Some(code), "{end}: gtp {args:?}: {}", said(&output));
    output
}

fn names(output: &Output) -> Vec<String> {
    let paths = events(output).into_iter().filter_map(|e| e["path"].as_str().map(str::to_owned));
    paths.collect()
}

const SETTINGS: &str = r#"
[export.pub]
path = "DIR/pub"
read = true
[export.home]
path = "DIR/home"
[export.lab]
path = "DIR/lab"
read = ["staff"]
write = ["staff"]
[export.drop]
path = "DIR/drop"
write = true
hidden = true
[group.staff]
read = ["home/staff"]
write = ["home/staff/in"]
delete = ["home/staff/in"]
"#;

/// A world with exports; the client is of the group staff and has a home, `other` is in no group.
fn world() -> World {
    let world = World::new();
    for dir in ["pub", "home/staff/in", "home/carl", "lab", "drop", "server"] {
        fs::create_dir_all(world.path(dir)).unwrap();
        fs::write(world.path(dir).join("file"), dir).unwrap();
    }
    let (client, other) = (id(&world, "client"), id(&world, "other"));
    let list = format!("{client} group=staff  # anna\n{other} read=home/carl  # carl\n");
    fs::write(world.path("server/authorized_keys"), list).unwrap();
    set(&world, SETTINGS);
    world
}

#[test]
fn each_client_sees_its_exports_and_the_way_to_its_places_and_a_hidden_one_by_its_name_alone() {
    let world = world();
    let server = serve(&world, &["--writable"]);
    let list = |end: &str, at: &str| {
        names(&expect(&world, end, 0, &["ls", &server.url(at), "--json", "--accept-new"]))
    };
    assert_eq!(list("client", ""), ["home", "lab", "pub"]);
    assert_eq!(list("other", ""), ["home", "pub"]);
    assert_eq!(
        (list("client", "home"), list("other", "home")),
        (vec!["staff".into()], vec!["carl".into()])
    );
    assert_eq!(list("client", "home/staff"), ["in"]);
    assert_eq!(list("other", "pub"), ["file"]);
    fs::write(world.path("mine"), "x").unwrap();
    expect(&world, "other", 0, &["put", "mine", &server.url("drop/new")]);
    assert_eq!(fs::read(world.path("drop/new")).unwrap(), b"x");
    expect(&world, "other", 7, &["ls", &server.url("drop")]);
}

#[test]
fn what_a_client_may_not_see_is_told_in_the_words_for_what_is_not_there() {
    let world = world();
    let server = serve(&world, &["--writable"]);
    expect(&world, "other", 0, &["ls", &server.url(""), "--accept-new"]);
    fs::create_dir(world.path("tree")).unwrap();
    fs::write(world.path("tree/file"), "x").unwrap();
    let told = |code: i32, args: &[&str], path: &str| {
        let url = server.url(path);
        let args: Vec<&str> =
            args.iter().map(|word| if *word == "URL" { &*url } else { word }).collect();
        said(&expect(&world, "other", code, &args)).replace(path, "PATH")
    };
    for (there, none) in [("lab", "bal"), ("lab/file", "bal/file"), ("home/staff", "home/ffats")] {
        for (code, args) in [
            (3, &["ls", "URL"][..]),
            (3, &["get", "URL", "out"]),
            (3, &["sync", "URL", "out"]),
            (4, &["put", "tree", "URL"]),
            (4, &["sync", "tree", "URL"]),
        ] {
            assert_eq!(told(code, args, there), told(code, args, none), "{args:?} {there}");
        }
    }
    assert_eq!(fs::read_dir(world.path("lab")).unwrap().count(), 1);
    // A name that is wrong is no trouble of the server.
    let log = fs::read_to_string(world.path("log")).unwrap();
    let refused: Vec<&str> = log.lines().filter(|line| line.contains(": refused ")).collect();
    assert!(!refused.is_empty(), "{log}");
    assert!(refused.iter().all(|line| line.contains("reason=\"missing\"")), "{refused:#?}");
}

#[test]
fn get_put_and_sync_go_beneath_the_export_that_the_address_names() {
    let world = world();
    let server = serve(&world, &["--writable"]);
    expect(&world, "client", 0, &["get", &server.url("pub/file"), "got", "--accept-new"]);
    assert_eq!(fs::read(world.path("got")).unwrap(), b"pub");
    expect(&world, "client", 0, &["get", &server.url("lab"), "all"]);
    assert_eq!(fs::read(world.path("all/file")).unwrap(), b"lab");
    fs::create_dir(world.path("tree")).unwrap();
    fs::write(world.path("tree/new"), "new").unwrap();
    expect(&world, "client", 0, &["put", "tree", &server.url("lab/")]);
    assert_eq!(fs::read(world.path("lab/tree/new")).unwrap(), b"new");
    expect(&world, "client", 0, &["sync", "tree/", &server.url("home/staff/in/tree")]);
    assert_eq!(fs::read(world.path("home/staff/in/tree/new")).unwrap(), b"new");
    expect(&world, "client", 0, &["sync", &server.url("home/staff/"), "back"]);
    assert_eq!(fs::read(world.path("back/in/tree/new")).unwrap(), b"new");
    for (args, words) in [
        (["put", "tree", &server.url("home/staff/x")], "may not be written"),
        (["put", "tree", &server.url("pub/x")], "may not be written"),
    ] {
        let refused = expect(&world, "client", 7, &args);
        assert!(said(&refused).contains(words), "{}", said(&refused));
    }
    let root = expect(&world, "client", 4, &["get", &server.url(""), "whole"]);
    assert!(said(&root).contains("gtp ls gtp://HOST/"), "{}", said(&root));
    let above = expect(&world, "client", 4, &["get", &server.url("home"), "whole"]);
    assert!(said(&above).contains("staff"), "{}", said(&above));
}

#[test]
fn without_the_right_to_delete_a_sync_writes_and_removes_nothing() {
    let world = world();
    let server = serve(&world, &["--writable"]);
    fs::create_dir(world.path("tree")).unwrap();
    fs::write(world.path("tree/file"), "newer than before").unwrap();
    let url = |at: &str| server.url(at);
    for (dir, code) in [("home/staff/in", 0), ("lab", 12)] {
        fs::write(world.path(dir).join("old"), "x").unwrap();
        let synced = world.run("client", &["sync", "--delete", "tree/", &url(dir), "--accept-new"]);
        assert_eq!(synced.status.code(), Some(code), "{dir}: {}", said(&synced));
        assert_eq!(fs::read(world.path(dir).join("file")).unwrap(), b"newer than before");
        assert_eq!(world.path(dir).join("old").exists(), code != 0, "{dir}");
        assert_eq!(said(&synced).contains("(delete)"), code != 0, "{}", said(&synced));
    }
}

fn hang_up(server: &Serving) {
    kill_process(Pid::from_raw(server.id() as i32).unwrap(), Signal::HUP).unwrap();
}

#[test]
fn a_hangup_changes_the_exports_ends_what_goes_on_in_one_that_is_gone_and_leaves_the_rest() {
    let world = world();
    for dir in ["pub", "lab"] {
        fs::write(world.path(dir).join("large"), common::bytes(8 << 20, 1)).unwrap();
    }
    let server = serve(&world, &["--writable", "--max-rate", "20Mbit"]);
    expect(&world, "client", 0, &["ls", &server.url(""), "--accept-new"]);
    let get = |at: &str, to: &str| {
        let url = server.url(at);
        world.gtp("client", &["get", &url, to, "--retry-for", "1s"]).spawn().unwrap()
    };
    let (mut stays, mut goes) = (get("pub/large", "stays"), get("lab/large", "goes"));
    let begun = || fs::read_to_string(world.path("log")).unwrap().matches("verb=\"get\"").count();
    wait_for("both transfers", || begun() == 2);
    let export = |name, dir| format!("[export.{name}]\npath = \"DIR/{dir}\"\nread = true\n");
    set(&world, &[export("pub", "pub"), export("new", "drop")].concat());
    hang_up(&server);
    assert!(matches!(goes.wait().unwrap().code(), Some(3 | 7)), "its export is gone");
    assert_eq!(stays.wait().unwrap().code(), Some(0));
    expect(&world, "client", 3, &["get", &server.url("lab/file"), "out"]);
    expect(&world, "client", 0, &["get", &server.url("new/file"), "out"]);
    set(&world, "[export.pub]\npath = \"pub\"\n");
    hang_up(&server);
    let log = || fs::read_to_string(world.path("log")).unwrap();
    wait_for("the refusal", || log().contains("write an absolute path"));
    expect(&world, "client", 0, &["get", &server.url("new/file"), "-"]);
}

#[test]
fn a_hangup_that_takes_the_right_to_delete_ends_a_sync_that_goes_on_before_it_deletes() {
    let world = world();
    let export = |delete| {
        format!("[export.lab]\npath = \"DIR/lab\"\nread = true\nwrite = true\ndelete = {delete}\n")
    };
    set(&world, &export(true));
    fs::create_dir(world.path("tree")).unwrap();
    fs::write(world.path("tree/large"), common::bytes(8 << 20, 1)).unwrap();
    let server = serve(&world, &["--writable", "--max-rate", "20Mbit"]);
    let url = server.url("lab");
    let args = ["sync", "--delete", "tree/", &url, "--accept-new", "--retry-for", "1s"];
    let mut sync = world.gtp("client", &args).spawn().unwrap();
    let log = || fs::read_to_string(world.path("log")).unwrap();
    wait_for("the content", || log().contains("verb=\"put\""));
    set(&world, &export(false));
    hang_up(&server);
    let told = "the key may no longer do this";
    let ended = |line: &str| line.contains("verb=\"tree\"") && line.contains(told);
    wait_for("the end of its session", || log().lines().any(ended));
    assert!(!sync.wait().unwrap().success());
    assert!(world.path("lab/file").exists(), "it was not removed");
}

#[test]
fn a_hangup_without_exports_in_the_file_ends_what_goes_on_and_other_settings_count() {
    let world = world();
    fs::write(world.path("pub/large"), common::bytes(8 << 20, 1)).unwrap();
    let slow = "writable = true\nmax-rate = \"20Mbit\"\n";
    set(&world, &[slow, SETTINGS].concat());
    let server = serve(&world, &[]);
    fs::write(world.path("mine"), "x").unwrap();
    expect(&world, "client", 0, &["put", "mine", &server.url("lab/"), "--accept-new"]);
    let url = server.url("pub/large");
    let mut get = world.gtp("client", &["get", &url, "out", "--retry-for", "1s"]).spawn().unwrap();
    let log = || fs::read_to_string(world.path("log")).unwrap();
    wait_for("the transfer", || log().contains("verb=\"get\""));
    set(&world, "writable = false\n");
    hang_up(&server);
    assert!(matches!(get.wait().unwrap().code(), Some(3 | 7)), "nothing is exported");
    assert!(log().contains("nothing is exported now"), "{}", log());
    expect(&world, "client", 3, &["get", &server.url("pub/file"), "out"]);
    let refused = expect(&world, "client", 4, &["put", "mine", &server.url("lab/")]);
    assert!(said(&refused).contains("only reads"), "{}", said(&refused));
    set(&world, &[slow, SETTINGS].concat());
    hang_up(&server);
    wait_for("the exports", || log().matches("the exports were changed").count() == 2);
    expect(&world, "client", 0, &["get", &server.url("pub/file"), "out"]);
}

#[test]
fn a_file_system_that_is_unmounted_is_said_to_its_clients_alone_and_nothing_goes_below_it() {
    if !require_root() {
        return;
    }
    let world = world();
    let mount = |words: &[&str]| {
        assert!(
            Command::new(words[0])
                .args(&words[1..])
                .arg(world.path("lab"))
                .status()
                .unwrap()
                .success()
        );
    };
    mount(&["mount", "-t", "tmpfs", "-o", "size=4m", "none"]);
    fs::write(world.path("lab/inside"), "x").unwrap();
    let server = serve(&world, &["--writable"]);
    fs::write(world.path("mine"), "mine").unwrap();
    expect(&world, "client", 0, &["put", "mine", &server.url("lab/"), "--accept-new"]);
    mount(&["umount", "-l"]);
    hang_up(&server);
    for args in [
        ["put", "mine", &server.url("lab/")],
        ["sync", &server.url("lab"), "out"],
        ["get", &server.url("lab"), "out"],
    ] {
        let refused = expect(&world, "client", 5, &[&args[..], &["--retry-for", "1s"]].concat());
        assert!(said(&refused).contains("not there at present"), "{}", said(&refused));
    }
    expect(&world, "client", 0, &["get", &server.url("pub/file"), "-"]);
    let below: Vec<_> = fs::read_dir(world.path("lab")).unwrap().collect();
    assert_eq!(below.len(), 1, "{below:?}");
    mount(&["mount", "-t", "tmpfs", "-o", "size=4m", "none"]);
    expect(&world, "client", 0, &["put", "mine", &server.url("lab/")]);
    assert_eq!(fs::read(world.path("lab/mine")).unwrap(), b"mine");
    mount(&["umount", "-l"]);
}

#[test]
fn a_disk_that_is_full_is_said_to_whoever_writes_there_alone_and_the_put_goes_on_with_more_room() {
    if !require_root() {
        return;
    }
    let world = world();
    let lab = world.path("lab");
    let mount = |words: &[&str]| {
        assert!(Command::new(words[0]).args(&words[1..]).arg(&lab).status().unwrap().success());
    };
    mount(&["mount", "-t", "tmpfs", "-o", "size=3m", "none"]);
    fs::write(lab.join("there"), common::bytes(2 << 20, 1)).unwrap();
    let server = serve(&world, &["--writable"]);
    fs::write(world.path("mine"), common::bytes(2 << 20, 2)).unwrap();
    let put = ["put", "mine", &server.url("lab/"), "--accept-new"];
    let refused = expect(&world, "client", 4, &put);
    assert!(said(&refused).contains("lab/mine"), "{}", said(&refused));
    expect(&world, "other", 0, &["get", &server.url("pub/file"), "-", "--accept-new"]);
    assert_eq!(fs::read(lab.join("there")).unwrap(), common::bytes(2 << 20, 1));
    fs::remove_file(lab.join("there")).unwrap();
    expect(&world, "client", 0, &put);
    assert_eq!(fs::read(lab.join("mine")).unwrap(), common::bytes(2 << 20, 2));
    mount(&["umount", "-l"]);
}

#[test]
fn a_directory_beside_exports_places_or_quotas_does_not_start_and_says_what_to_do() {
    let world = World::new();
    let leave_out = "leave the directory out";
    for (text, code_words) in [
        ("[export.pub]\npath = \"DIR/pub\"\nread = true\n", leave_out),
        ("[export.pub]\npath = \"DIR/pub\"\n[group.staff]\nrate = \"1Mbit\"\n", leave_out),
        ("[group.staff]\nrate = \"1Mbit\"\nwrite = [\"pub\"]\n", "line 3: [group.staff] `write`"),
        ("[group.staff]\nquota = \"1GB\"\n", "line 2: [group.staff] `quota`: is about places"),
    ] {
        set(&world, text);
        let args = ["serve", "export", "--listen", "127.0.0.1:0"];
        let mut command = world.gtp("server", &args);
        let refused = command.env("GTP_CONFIG_FILE", world.path("serve.toml")).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{text}: {}", said(&refused));
        assert!(said(&refused).contains(code_words), "{text}: {}", said(&refused));
    }
}

#[test]
fn an_export_that_is_not_there_is_named_in_the_log_by_its_table() {
    let world = world();
    fs::remove_dir_all(world.path("drop")).unwrap();
    let server = serve(&world, &["--writable"]);
    let log = || fs::read_to_string(world.path("log")).unwrap();
    assert!(log().contains("cannot be opened: [export.drop]: "), "{}", log());
    fs::remove_dir_all(world.path("home")).unwrap();
    hang_up(&server);
    wait_for("both names", || {
        let both =
            |line: &str| line.contains("[export.drop]: ") && line.contains("[export.home]: ");
        log().lines().any(both)
    });
}

#[test]
fn a_server_that_has_nothing_to_export_says_how_to_name_something() {
    let world = World::new();
    let refused = expect(&world, "server", 2, &["serve"]);
    assert!(said(&refused).contains("[export.NAME]"), "{}", said(&refused));
    fs::create_dir_all(world.path("server")).unwrap();
    fs::write(world.path("server/config.toml"), "[group.staff]\nrate = \"1Mbit\"\n").unwrap();
    let refused = expect(&world, "server", 2, &["serve"]);
    assert!(said(&refused).contains("[export.NAME]"), "{}", said(&refused));
}
