//! The settings of `gtp serve`: what a start refuses in the file, a hangup and `gtp config` refuse
//! too.
//!
//! What is wrong is said with the file, the line and the key. What the settings mean is for the
//! tests of what they change.

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use common::{Serving, World, wait_for};
use rustix::process::{Pid, Signal, kill_process};

/// What no server can start with, the line at which it is, and the exit code of a start.
const UNFIT: [(&str, u32, i32); 7] = [
    ("listen = \"14899\"\n", 1, 2),
    ("# numbers\nmetrics = \"0.0.0.0:9811\"\n", 2, 2),
    ("metrics = \"9811\"\n", 1, 2),
    ("\naudit = \"nosuch/audit\"\n", 2, 4),
    ("audit = \"export\"\n", 1, 4),
    ("drain = \"1s\"\n[group.staff]\nrate = \"1Mbit\"\nkeys = [\"x\"]\n", 4, 2),
    ("[group.a]\n[group.b]\ntotal-rate = \"1Mbit\"\nguarantee = \"2Mbit\"\n", 4, 2),
];

fn serve(world: &World, args: &[&str]) -> Command {
    let mut command = world.gtp("server", &["serve", "export", "--public", "--json"]);
    command.args(args).env("GTP_CONFIG_FILE", world.path("serve.toml"));
    command
}

fn set(world: &World, text: &str) {
    fs::write(world.path("serve.toml"), text).unwrap();
}

fn log(world: &World) -> String {
    fs::read_to_string(world.path("log")).unwrap()
}

fn hang_up(server: &Serving) {
    kill_process(Pid::from_raw(server.id() as i32).unwrap(), Signal::HUP).unwrap();
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What is said behind the name of the file.
fn why(words: &str) -> String {
    let (_, why) = words.split_once("serve.toml, ").unwrap_or_else(|| panic!("{words}"));
    why.lines().next().unwrap().to_owned()
}

#[test]
fn a_hangup_and_config_refuse_what_a_start_refuses_in_the_same_words() {
    let world = World::new();
    world.export("a", 10);
    set(&world, "drain = \"1s\"\n");
    let command = serve(&world, &["--listen", "127.0.0.1:0"]);
    let server = Serving::start_logged(command, &world.path("log"));
    for (count, (text, line, code)) in UNFIT.into_iter().enumerate() {
        set(&world, text);
        let started = serve(&world, &[]).output().unwrap();
        assert_eq!(started.status.code(), Some(code), "{text}: {}", said(&started));
        let reason = why(&said(&started));
        assert!(reason.starts_with(&format!("line {line}: ")), "{text}: {reason}");
        let mut config = world.gtp("server", &["config"]);
        let config = config.env("GTP_CONFIG_FILE", world.path("serve.toml")).output().unwrap();
        assert_eq!(config.status.code(), Some(code), "{text}: {}", said(&config));
        assert_eq!(why(&said(&config)), reason);
        hang_up(&server);
        let stays = "reload: the configuration stays as it was";
        wait_for(stays, || log(&world).matches(stays).count() > count);
        let bare = |text: &str| text.replace(['"', '\\'], "");
        assert!(bare(&log(&world)).contains(&bare(&reason)), "{reason}: {}", log(&world));
    }
    set(&world, "drain = \"2s\"\n");
    hang_up(&server);
    wait_for("a reload", || log(&world).contains("the configuration was read again"));
    assert!(!log(&world).contains("from the next start on"), "{}", log(&world));
}

#[test]
fn an_address_that_another_has_is_said_with_the_setting_wherever_it_comes_from() {
    let world = World::new();
    world.export("a", 10);
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = other.local_addr().unwrap().to_string();
    set(&world, &format!("# c\nlisten = \"{at}\"\n"));
    let refused = serve(&world, &[]).output().unwrap();
    assert!(why(&said(&refused)).starts_with("line 2: `listen`: cannot listen on"));
    set(&world, &format!("listen = \"127.0.0.1:0\"\nmetrics = \"{at}\"\n"));
    let refused = serve(&world, &[]).output().unwrap();
    assert!(why(&said(&refused)).starts_with(&format!("line 2: `metrics`: {at}: Address already")));
    set(&world, "");
    let mut command = serve(&world, &["--metrics", &at]);
    let refused = said(&command.env("GTP_LISTEN", "127.0.0.1:0").output().unwrap());
    assert!(refused.contains(&format!("--metrics: {at}: Address already")), "{refused}");
    let mut command = serve(&world, &["--listen", "127.0.0.1:0"]);
    let refused = said(&command.env("GTP_AUDIT", "nosuch/audit").output().unwrap());
    assert!(refused.contains("GTP_AUDIT: the audit cannot be kept"), "{refused}");
}

#[test]
fn a_hangup_names_the_exports_and_groups_that_came_went_or_changed() {
    let world = World::new();
    world.export("a", 10);
    let export = |name: &str, more: &str| {
        let path = world.path("export").display().to_string();
        format!("[export.{name}]\npath = \"{path}\"\nread = true\n{more}")
    };
    let old = [export("a", ""), export("b", ""), "[group.g]\nrate = \"1Mbit\"\n".into()].concat();
    set(&world, &old);
    let mut command = world.gtp("server", &["serve", "--json", "--listen", "127.0.0.1:0"]);
    command.env("GTP_CONFIG_FILE", world.path("serve.toml"));
    let server = Serving::start_logged(command, &world.path("log"));
    set(&world, &old.replace("1Mbit", "2Mbit"));
    hang_up(&server);
    wait_for("a reload", || log(&world).contains("the groups were changed groups=\"changed g\""));
    assert!(!log(&world).contains("the exports were changed"), "{}", log(&world));
    set(&world, &[export("b", "write = true\n"), export("c", "")].concat());
    hang_up(&server);
    let told = "the exports were changed exports=\"added c; removed a; changed b\"";
    wait_for("a reload", || log(&world).contains(told));
    wait_for("the groups", || log(&world).contains("groups=\"removed g\""));
}

#[test]
fn settings_that_others_may_write_are_told_of_at_the_start_at_a_hangup_and_by_config() {
    let world = World::new();
    world.export("a", 10);
    set(&world, "drain = \"1s\"\n");
    let open = || fs::set_permissions(world.path("serve.toml"), Permissions::from_mode(0o666));
    let start = || {
        let command = serve(&world, &["--listen", "127.0.0.1:0"]);
        Serving::start_logged(command, &world.path("log"))
    };
    let server = start();
    assert!(!log(&world).contains("others may write"), "{}", log(&world));
    open().unwrap();
    hang_up(&server);
    let told = "serve.toml (mode 666)";
    wait_for("the warning", || log(&world).contains(told));
    assert!(log(&world).contains("chmod go-w"), "{}", log(&world));
    drop(server);
    let _again = start();
    wait_for("the warning", || log(&world).contains(told));
    let mut config = world.gtp("server", &["config"]);
    let config = config.env("GTP_CONFIG_FILE", world.path("serve.toml")).output().unwrap();
    assert!(said(&config).contains(told), "{}", said(&config));
    assert_eq!(config.status.code(), Some(0));
}
