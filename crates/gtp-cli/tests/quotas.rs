//! How much may lie in an export, and where the members of a group write: counted from the disk,
//! kept while puts, syncs and streams go, and said to whoever goes beyond it.

mod common;

use std::fs;
use std::io::Write;
use std::process::{Output, Stdio};

use common::{Serving, World, bytes, size_of, wait_for};
use rustix::process::{Pid, Signal, kill_process};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const SETTINGS: &str = r#"
writable = true
[export.home]
path = "DIR/home"
read = true
[export.lab]
path = "DIR/lab"
read = true
write = true
delete = true
quota = "1000kB"
quota-files = 12
[group.staff]
write = ["home/staff"]
delete = ["home/staff"]
quota = "300kB"
"#;

/// A server with these quotas.
fn serve(world: &World) -> Serving {
    serve_with(world, "300kB")
}

/// A server with quotas, that of the group as said: 100 kB lie in the group's place, 50 kB in
/// `home` beside it.
fn serve_with(world: &World, group: &str) -> Serving {
    for dir in ["home/staff", "home/other", "lab", "server"] {
        fs::create_dir_all(world.path(dir)).unwrap();
    }
    fs::write(world.path("home/staff/there"), bytes(100_000, 1)).unwrap();
    fs::write(world.path("home/other/there"), bytes(50_000, 2)).unwrap();
    let id = String::from_utf8(world.run("client", &["id"]).stdout).unwrap();
    fs::write(world.path("server/authorized_keys"), format!("{} group=staff\n", id.trim()))
        .unwrap();
    let dir = world.path("").display().to_string();
    let text = SETTINGS.replace("DIR", dir.trim_end_matches('/')).replace("300kB", group);
    fs::write(world.path("serve.toml"), text).unwrap();
    let mut command = world.gtp("server", &["serve", "--json", "--listen", "127.0.0.1:0"]);
    command.env("GTP_CONFIG_FILE", world.path("serve.toml"));
    let server = Serving::start_logged(command, &world.path("log"));
    world.expect(0, &["ls", &server.url(""), "--accept-new"]);
    server
}

fn local(world: &World, name: &str, size: usize) {
    fs::write(world.path(name), bytes(size, 3)).unwrap();
}

#[test]
fn a_directory_that_was_not_there_counts_with_all_that_is_put_into_it() {
    let world = World::new();
    let server = serve(&world);
    fs::create_dir(world.path("new")).unwrap();
    for name in ["a", "b"] {
        fs::write(world.path("new").join(name), bytes(350_000, 3)).unwrap();
    }
    fs::write(world.path("more"), bytes(400_000, 4)).unwrap();
    world.expect(0, &["put", "new", &server.url("lab/new")]);
    world.expect(4, &["put", "more", &server.url("lab/more")]);
}

#[test]
fn a_put_beyond_a_groups_quota_is_refused_with_what_is_left_and_nothing_is_written() {
    let world = World::new();
    let server = serve(&world);
    local(&world, "large", 250_000);
    local(&world, "small", 150_000);
    let put = world.expect(4, &["put", "large", &server.url("home/staff/")]);
    let words = said(&put);
    assert!(
        words.contains("250 kB more, but the group staff has only 200 kB left of 300 kB"),
        "{words}"
    );
    assert!(words.contains("remove something"), "{words}");
    assert_eq!(fs::read_dir(world.path("home/staff")).unwrap().count(), 1);
    // It is no failure of the server, and no disk that is full.
    wait_for("the end of the put", || {
        let log = fs::read_to_string(world.path("log")).unwrap();
        log.lines().any(|line| line.contains("outcome=\"quota\"") && line.contains(" INFO "))
    });
    world.expect(0, &["put", "small", &server.url("home/staff/")]);
    let put = world.expect(4, &["put", "small", &server.url("home/staff/again")]);
    assert!(said(&put).contains("only 50.0 kB left"), "{}", said(&put));
    world.expect(0, &["put", "large", &server.url("lab/")]);
}

/// Puts until the server has counted; the exit code then.
fn put_once_counted(world: &World, file: &str, url: &str) -> Option<i32> {
    let mut code = None;
    wait_for("the count", || {
        code = world.run("client", &["put", file, url]).status.code();
        code != Some(5)
    });
    code
}

#[test]
fn another_directory_at_an_exports_path_is_counted_anew() {
    let world = World::new();
    for (dir, size) in [("one", 0), ("two", 900_000), ("three", 900_000)] {
        fs::create_dir(world.path(dir)).unwrap();
        fs::write(world.path(dir).join("there"), bytes(size, 1)).unwrap();
    }
    let lead = |dir| std::os::unix::fs::symlink(dir, world.path("lab")).unwrap();
    lead("one");
    let server = serve(&world);
    local(&world, "more", 150_000);
    let place = server.url("lab/");
    world.expect(0, &["put", "more", &place]);
    fs::remove_file(world.path("lab")).unwrap();
    lead("two");
    assert_eq!(put_once_counted(&world, "more", &place), Some(4));
    // A path of its own in the configuration.
    fs::remove_file(world.path("lab/there")).unwrap();
    let settings = fs::read_to_string(world.path("serve.toml")).unwrap();
    fs::write(world.path("serve.toml"), settings.replace("/lab\"", "/three\"")).unwrap();
    kill_process(Pid::from_raw(server.id() as i32).unwrap(), Signal::HUP).unwrap();
    wait_for("the configuration", || {
        fs::read_to_string(world.path("log")).unwrap().contains("was read again")
    });
    assert_eq!(put_once_counted(&world, "more", &place), Some(4));
}

#[test]
fn what_is_removed_gives_room_and_what_is_replaced_by_less_as_well() {
    let world = World::new();
    let server = serve(&world);
    local(&world, "one", 180_000);
    let place = server.url("home/staff/");
    world.expect(0, &["put", "one", &place]);
    local(&world, "two", 150_000);
    world.expect(4, &["put", "two", &place]);
    fs::create_dir(world.path("tree")).unwrap();
    fs::write(world.path("tree/small"), "x").unwrap();
    world.expect(0, &["sync", "--delete", "tree/", &place]);
    world.expect(0, &["put", "two", &place]);
    let shorter = bytes(1_000, 9);
    fs::write(world.path("two"), &shorter).unwrap();
    world.expect(0, &["put", "two", &place]);
    assert_eq!(fs::read(world.path("home/staff/two")).unwrap(), shorter);
    local(&world, "three", 290_000);
    world.expect(0, &["put", "three", &place]);
}

#[test]
fn a_sync_beyond_a_quota_says_so_and_small_files_and_names_count_too() {
    let world = World::new();
    let server = serve(&world);
    fs::create_dir(world.path("tree")).unwrap();
    for n in 0..20 {
        fs::write(world.path("tree").join(n.to_string()), vec![b'x'; 100]).unwrap();
    }
    let synced = world.run("client", &["sync", "tree/", &server.url("lab/t")]);
    assert!(matches!(synced.status.code(), Some(4 | 12)), "{}", said(&synced));
    assert!(said(&synced).contains("quota"), "{}", said(&synced));
    let names = fs::read_dir(world.path("lab")).unwrap().count();
    let beneath = fs::read_dir(world.path("lab/t")).map_or(0, Iterator::count);
    assert!(names + beneath <= 12, "{names} {beneath}");
}

#[test]
fn a_stream_beyond_a_quota_leaves_nothing_and_one_within_it_is_charged() {
    let world = World::new();
    let server = serve(&world);
    let stream = |name: &str, size: usize| {
        let url = server.url(&format!("home/staff/{name}"));
        let mut put = world.gtp("client", &["put", "-", &url]);
        put.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut put = put.spawn().unwrap();
        // It ends early where it is refused.
        let _ = put.stdin.take().unwrap().write_all(&bytes(size, 5));
        put.wait_with_output().unwrap()
    };
    let large = stream("large", 400_000);
    assert_eq!(large.status.code(), Some(4), "{}", said(&large));
    assert!(said(&large).contains("quota"), "{}", said(&large));
    assert_eq!(fs::read_dir(world.path("home/staff")).unwrap().count(), 1);
    assert_eq!(stream("small", 150_000).status.code(), Some(0));
    assert_eq!(stream("again", 150_000).status.code(), Some(4));
}

#[test]
fn a_quota_that_comes_while_a_stream_is_written_holds_for_it_and_is_counted_without_its_end() {
    let world = World::new();
    let server = serve(&world);
    let set = |quota: &str| {
        let text = fs::read_to_string(world.path("serve.toml")).unwrap();
        let head = text.split("[export.lab]").next().unwrap();
        let lab = world.path("lab").display().to_string();
        let lab = format!("[export.lab]\npath = \"{lab}\"\nread = true\nwrite = true\n{quota}");
        fs::write(world.path("serve.toml"), format!("{head}{lab}\n[group.staff]\n")).unwrap();
        let id = Pid::from_raw(server.id() as i32).unwrap();
        kill_process(id, Signal::HUP).unwrap();
    };
    set("");
    let log = || fs::read_to_string(world.path("log")).unwrap();
    wait_for("the hangup", || log().contains("the configuration was read again"));
    let mut put = world.gtp("client", &["put", "-", &server.url("lab/x")]);
    put.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut put = put.spawn().unwrap();
    let mut pipe = put.stdin.take().unwrap();
    pipe.write_all(&bytes(300_000, 5)).unwrap();
    let is_part = |name: &fs::DirEntry| name.file_name().to_string_lossy().ends_with(".gtp-part");
    wait_for("a part", || {
        let mut names = fs::read_dir(world.path("lab")).unwrap().map(Result::unwrap);
        names.any(|name| is_part(&name) && size_of(&name.path()) > 0)
    });
    set("quota = \"700kB\"");
    // Its end is not waited for: another one finds room meanwhile, and as much as is left.
    local(&world, "small", 200_000);
    local(&world, "large", 600_000);
    assert_eq!(put_once_counted(&world, "large", &server.url("lab/large")), Some(4));
    world.expect(0, &["put", "small", &server.url("lab/small")]);
    // It ends early where it is refused.
    let _ = pipe.write_all(&bytes(400_000, 7));
    drop(pipe);
    let ended = put.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(4), "{}", said(&ended));
    assert!(said(&ended).contains("quota"), "{}", said(&ended));
    let mut names = fs::read_dir(world.path("lab")).unwrap().map(Result::unwrap);
    assert!(!names.any(|name| is_part(&name)));
}

#[test]
fn a_file_that_two_streams_replace_at_once_gives_its_room_back_once() {
    let world = World::new();
    let server = serve(&world);
    for (name, size) in [("x", 400_000), ("y", 500_000), ("more", 700_000)] {
        local(&world, name, size);
    }
    let place = server.url("lab/");
    world.expect(0, &["put", "x", &place]);
    world.expect(0, &["put", "y", &place]);
    let begin = || {
        let mut put = world.gtp("client", &["put", "-", &server.url("lab/x")]);
        put.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        put.spawn().unwrap()
    };
    let streams = [begin(), begin()];
    wait_for("two parts", || {
        let names = fs::read_dir(world.path("lab")).unwrap().map(|name| name.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".gtp-part")).count() == 2
    });
    for mut stream in streams {
        stream.stdin.take().unwrap().write_all(b"x").unwrap();
        assert_eq!(stream.wait().unwrap().code(), Some(0));
    }
    world.expect(4, &["put", "more", &place]);
}

#[test]
fn a_put_that_is_resumed_is_charged_once_also_by_a_server_that_was_started_again() {
    let world = World::new();
    for restarts in [false, true] {
        let mut server = serve_with(&world, "3000kB");
        local(&world, "large", 2_600_000);
        let url = server.url("home/staff/large");
        let mut put = world.gtp("client", &["put", "large", &url, "--max-rate", "4Mbit"]);
        let mut put = put.stderr(Stdio::null()).spawn().unwrap();
        let part = world.path("home/staff/large.gtp-part");
        // More than the quota leaves beside the whole, so that to charge it twice would show.
        wait_for("a part", || size_of(&part) > 600_000);
        kill_process(Pid::from_raw(put.id() as i32).unwrap(), Signal::INT).unwrap();
        put.wait().unwrap();
        if restarts {
            server.kill();
            server = serve_with(&world, "3000kB");
        }
        let url = server.url("home/staff/large");
        let again = world.run("client", &["put", "large", &url, "--accept-new"]);
        assert_eq!(again.status.code(), Some(0), "{}", said(&again));
        local(&world, "more", 350_000);
        world.expect(4, &["put", "more", &server.url("home/staff/")]);
        fs::remove_file(world.path("home/staff/large")).unwrap();
    }
}
