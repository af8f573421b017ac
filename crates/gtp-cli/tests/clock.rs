//! A machine whose wall clock is before 1970, as one without a battery has it until it is set.
//! The clock is faked by `faketime`, which `scripts/setup test` installs.

mod common;

use std::process::{Command, Stdio};

use common::{Serving, World, bytes};

/// The command with a wall clock of 1969; monotonic clocks are left alone. `faketime` runs it as a
/// process of its own, which ends with it.
fn before_1970(command: &Command) -> Command {
    let mut faked = Command::new("faketime");
    faked.args(["--exclude-monotonic", "1969-06-01 12:00:00"]);
    faked.args(["setpriv", "--pdeathsig", "KILL"]);
    faked.arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
    faked.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    faked.current_dir(command.get_current_dir().unwrap());
    faked
}

#[test]
fn a_clock_before_1970_stops_neither_end() {
    let world = World::new();
    let content = world.export("x", 300_000);
    std::fs::write(world.path("y"), bytes(300_000, 7)).unwrap();
    let id = before_1970(&world.gtp("client", &["id"])).output().unwrap();
    assert_eq!(id.status.code(), Some(0), "{}", String::from_utf8_lossy(&id.stderr));
    std::fs::create_dir_all(world.path("server")).unwrap();
    std::fs::write(world.path("server/authorized_keys"), id.stdout).unwrap();
    let serve = ["serve", "export", "--json", "--writable", "--listen", "127.0.0.1:0"];
    let serving = Serving::start(before_1970(&world.gtp("server", &serve)));
    for args in [
        vec!["ls", &serving.url(""), "--accept-new", "--json"],
        vec!["get", &serving.url("x"), "out", "--json"],
        vec!["put", "y", &serving.url("z"), "--json"],
    ] {
        let output = before_1970(&world.gtp("client", &args)).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {said}");
        assert!(!said.contains("panicked"), "{args:?}: {said}");
    }
    assert_eq!(std::fs::read(world.path("out")).unwrap(), content);
    assert_eq!(std::fs::read(world.path("export/z")).unwrap(), bytes(300_000, 7));
}

#[test]
fn a_file_older_than_1970_keeps_its_time() {
    let world = World::new();
    world.export("old", 1_000);
    let before = std::time::SystemTime::UNIX_EPOCH - std::time::Duration::from_millis(86_400_500);
    let file = std::fs::File::options().write(true).open(world.path("export/old")).unwrap();
    file.set_modified(before).unwrap();
    let serving = world.serve("server", &["--public"]);
    world.expect(0, &["ls", &serving.url(""), "--accept-new"]);
    let listed = world.expect(0, &["ls", &serving.url(""), "--json"]);
    let entry = common::events(&listed).remove(0);
    assert_eq!(entry["mtime"].as_f64(), Some(-86_400.5), "{entry}");
    world.expect(0, &["get", &serving.url("old"), "out"]);
    let arrived = std::fs::metadata(world.path("out")).unwrap().modified().unwrap();
    assert_eq!(arrived, before);
}
