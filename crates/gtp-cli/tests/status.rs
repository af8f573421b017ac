//! A server that runs without a daemon is looked at by name while it moves data.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Output, Stdio};

use common::{Serving, World, bytes, wait_for};
use gtp_share::SessionView;
use gtp_share::client::sessions;
use serde_json::Value;

/// A server whose list has this world's `anna` and `bert`, and what they fetch.
struct Looked {
    world: World,
    _server: Serving,
    gets: Vec<Child>,
}

impl Looked {
    fn new() -> Looked {
        let world = World::new();
        for dir in ["export/lab", "server"] {
            fs::create_dir_all(world.path(dir)).unwrap();
        }
        fs::write(world.path("export/lab/large"), bytes(64 << 20, 1)).unwrap();
        let line = |name: &str| {
            let id = String::from_utf8(world.run(name, &["id"]).stdout).unwrap();
            format!("{} read # {name}\n", id.trim())
        };
        let list = line("anna") + &line("bert");
        fs::write(world.path("server/authorized_keys"), list).unwrap();
        let place = world.path("status.sock").display().to_string();
        let args = ["--daemon", "off", "--capacity-out", "16Mbit", "--status", &place];
        let server = world.serve("server", &args);
        let mut gets = Vec::new();
        for name in ["anna", "bert"] {
            let (url, of) = (server.url("lab/large"), server.fingerprint.clone());
            let args = ["get", &url, name, "--fingerprint", &of, "--daemon", "off"];
            let mut get = world.gtp(name, &args);
            get.stdout(Stdio::null()).stderr(Stdio::null());
            gets.push(get.spawn().unwrap());
        }
        Looked { world, _server: server, gets }
    }

    /// `gtp` of the server's user, who looks there.
    fn ask(&self, args: &[&str]) -> Output {
        let place = self.world.path("status.sock").display().to_string();
        self.world.run("operator", &[args, &["--daemon", &place]].concat())
    }

    fn seen(&self) -> Vec<SessionView> {
        sessions(&self.world.path("status.sock")).map_or(Vec::new(), |(_, sessions)| sessions)
    }
}

impl Drop for Looked {
    fn drop(&mut self) {
        for get in &mut self.gets {
            // It may have ended.
            let _ = get.kill();
            let _ = get.wait();
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn two_transfers_of_a_server_without_a_daemon_are_seen_by_client_path_rate_and_limit() {
    let looked = Looked::new();
    wait_for("two sessions that move", || {
        looked.seen().iter().filter(|session| session.measured > 1_000_000).count() == 2
    });
    let said = looked.ask(&["sessions", "--json"]);
    assert!(said.status.success(), "{}", text(&said.stderr));
    let lines: Vec<Value> =
        text(&said.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [host, rows @ ..] = &lines[..] else { panic!("nothing is said") };
    assert_eq!((&host["capacity_out"], &host["sessions"]), (&16_000_000.into(), &2.into()));
    let mut names: Vec<&str> =
        rows.iter().map(|row| row["client"]["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["anna", "bert"]);
    for row in rows {
        assert!(row["label"].as_str().unwrap().ends_with("lab/large"), "{row}");
        assert_eq!((&row["direction"], &row["program"]), (&"out".into(), &"gtp serve".into()));
        let granted = row["granted"].as_u64().unwrap();
        assert!((1_000_000..=16_000_000).contains(&granted), "{row}");
        assert!(row["wire_bytes"].as_u64().unwrap() > 0, "{row}");
        assert!(row["path"]["state"].is_string(), "{row}");
    }
    wait_for("what limits them", || looked.seen().iter().all(|s| s.limited_by == "source"));
    let table = text(&looked.ask(&["sessions"]).stdout);
    for words in ["anna, ", "bert, ", "lab/large (gtp serve)", "this host"] {
        assert!(table.contains(words), "{words}: {table}");
    }
    let refused = looked.ask(&["set", "1", "--weight", "2"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("gtpd"), "{}", text(&refused.stderr));
}

#[test]
fn a_server_whose_status_cannot_be_had_says_so_and_serves() {
    let world = World::new();
    let content = world.export("file", 1_000);
    fs::create_dir_all(world.path("open")).unwrap();
    fs::set_permissions(world.path("open"), fs::Permissions::from_mode(0o777)).unwrap();
    let place = world.path("open/status.sock").display().to_string();
    let args = ["serve", "export", "--json", "--listen", "127.0.0.1:0", "--public"];
    let mut command = world.gtp("server", &args);
    command.args(["--daemon", "off", "--status", &place]);
    let server = Serving::start_logged(command, &world.path("log"));
    let (url, of) = (server.url("file"), server.fingerprint.clone());
    world.expect(0, &["get", &url, "got", "--fingerprint", &of, "--daemon", "off"]);
    assert_eq!(fs::read(world.path("got")).unwrap(), content);
    let log = fs::read_to_string(world.path("log")).unwrap();
    assert!(log.contains("every user may write to this directory"), "{log}");
    assert!(!world.path("open/status.sock").exists());
}
