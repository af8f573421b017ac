//! The numbers that `gtp serve` and `gtpd` give Prometheus: they agree with what was moved, and
//! what dashboard and alerts ask for is among them.
//!
//! One world of a server, a daemon and clients that succeed, fail and break off has all numbers on
//! its pages. What the server's log and audit say of the same sessions `metrics.rs` compares.

mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::{Serving, World, ports::free_port, size_of, wait_for};

/// An export with a quota, of which what the sessions here put is a part.
const SETTINGS: &str = r#"
writable = true
[export.data]
path = "DIR"
read = true
write = true
quota = "1GB"
quota-files = 1000
"#;

/// A server under a daemon, both with their numbers.
struct Watched {
    world: World,
    server: Serving,
    daemon: Child,
    /// Where the numbers are: the server's and the daemon's.
    ports: [u16; 2],
}

impl Drop for Watched {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

impl Watched {
    fn start() -> Watched {
        let world = World::new();
        let ports = [free_port(), free_port()];
        let [of_server, of_daemon] = ports.map(|port| format!("127.0.0.1:{port}"));
        let socket = world.path("run/gtpd.sock");
        let mut command = Command::new(env!("CARGO_BIN_EXE_gtpd"));
        command.env_clear().arg("--socket").arg(&socket).stdin(Stdio::null());
        command.args(["--capacity-in", "900Mbit", "--capacity-out", "800Mbit"]);
        let daemon = command.args(["--metrics", &of_daemon]).spawn().unwrap();
        wait_for("a daemon", || gtp_share::client::sessions(&socket).is_ok());
        let socket = socket.to_str().unwrap();
        world.list_client();
        let dir = world.path("export").display().to_string();
        std::fs::write(world.path("serve.toml"), SETTINGS.replace("DIR", &dir)).unwrap();
        let options = ["--metrics", &of_server, "--daemon", socket, "--capacity-out", "1Gbit"];
        let mut command = world.gtp("server", &["serve", "--json", "--listen", "127.0.0.1:0"]);
        command.args(options).env("GTP_CONFIG_FILE", world.path("serve.toml"));
        let server = Serving::start(command);
        world.expect(0, &["ls", &server.url("data/"), "--accept-new"]);
        Watched { world, server, daemon, ports }
    }

    fn page(&self, of: usize) -> String {
        common::page(self.ports[of]).unwrap()
    }

    /// Clients that succeed, one that is missing something, and one that is killed; returns how
    /// many bytes the successful ones moved each way, and the names of the numbers that were there
    /// while the last one ran.
    fn work(&self) -> (u64, BTreeSet<String>) {
        const SIZE: u64 = 3_000_000;
        let Watched { world, server, .. } = self;
        world.export("a", SIZE as usize);
        std::fs::write(world.path("mine"), common::bytes(SIZE as usize, 3)).unwrap();
        for n in 0..2 {
            let out = format!("got{n}");
            let off = ["--daemon", "off"];
            world.expect(0, &[&["get", &server.url("data/a"), &out], &off[..]].concat());
            let to = server.url(&format!("data/put{n}"));
            world.expect(0, &[&["put", "mine", &to], &off[..]].concat());
        }
        world.expect(3, &["get", &server.url("data/none"), "x", "--daemon", "off"]);
        let stranger = world.run("stranger", &["ls", &server.url(""), "--accept-new"]);
        assert_eq!(stranger.status.code(), Some(7));
        world.export("large", 30_000_000);
        let url = server.url("data/large");
        let args = ["get", &url, "cut", "--max-rate", "8Mbit", "--daemon", "off"];
        let mut get = world.gtp("client", &args).stderr(Stdio::null()).spawn().unwrap();
        wait_for("data", || size_of(&world.path("cut.gtp-part")) > 0);
        let is_limited = || value(&self.page(0), "gtp_serve_limited_seconds_total", &[]) > 0.0;
        wait_for("a look at what limits it", is_limited);
        wait_for("it at the daemon", || value(&self.page(1), "gtp_sessions", &[]) > 0.0);
        let seen = [0, 1].iter().flat_map(|of| names(&self.page(*of))).collect();
        get.kill().unwrap();
        get.wait().unwrap();
        (SIZE * 2, seen)
    }
}

/// The sum of a number's lines that have these labels.
fn value(page: &str, name: &str, labels: &[&str]) -> f64 {
    let fits = |line: &&str| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
            && labels.iter().all(|label| line.contains(label))
    };
    let number = |line: &str| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
    page.lines().filter(fits).map(number).sum()
}

/// The names of all numbers on a page.
fn names(page: &str) -> BTreeSet<String> {
    let lines = page.lines().filter(|line| line.contains(' ') && !line.starts_with('#'));
    lines.map(|line| line.split(['{', ' ']).next().unwrap().to_owned()).collect()
}

#[test]
fn bytes_and_ends_at_server_and_daemon_agree_with_what_was_moved_also_where_it_broke_off() {
    let watched = Watched::start();
    let content = watched.work().0 as f64;
    let ended = |page: &str| value(page, "gtp_serve_sessions_total", &[]);
    // A listing, four transfers, one that finds nothing, and one that was cut.
    wait_for("all ends", || ended(&watched.page(0)) == 7.0);
    wait_for("the daemon's", || value(&watched.page(1), "gtp_sessions_ended_total", &[]) >= 5.0);
    let [server, daemon] = [0, 1].map(|of| watched.page(of));
    let (get, put) = ("verb=\"get\"", "verb=\"put\"");
    let bytes = |verb| value(&server, "gtp_serve_content_bytes_total", &[verb]);
    assert_eq!(bytes(put), content);
    assert!(bytes(get) >= content && bytes(get) < content + 30e6, "{}", bytes(get));
    let failed = value(&server, "gtp_serve_sessions_total", &[get])
        - value(&server, "gtp_serve_sessions_total", &[get, "outcome=\"done\""]);
    assert_eq!(failed, 2.0, "{server}");
    assert_eq!(value(&server, "gtp_serve_running_sessions", &[]), 0.0);
    let of_export = |name| value(&server, name, &["export=\"data\""]);
    assert_eq!(of_export("gtp_serve_export_content_bytes_total"), bytes(put) + bytes(get));
    assert_eq!(of_export("gtp_serve_export_sessions_total"), 7.0, "{server}");
    let quota = |name| value(&server, name, &["kind=\"export\"", "owner=\"data\""]);
    assert_eq!(quota("gtp_serve_quota_limit_bytes"), 1e9);
    assert_eq!(quota("gtp_serve_quota_limit_files"), 1000.0);
    assert!(quota("gtp_serve_quota_used_bytes") >= content, "{server}");
    assert_eq!(value(&server, "gtp_serve_refused_total", &["why=\"not_allowed\""]), 1.0);
    assert_eq!(value(&server, "gtp_serve_daemon_standing", &["standing=\"joined\""]), 1.0);
    assert_eq!(value(&server, "gtp_serve_capacity_bits_per_second", &["\"out\""]), 1e9);
    assert_eq!(value(&daemon, "gtp_sessions_ended_total", &["end=\"closed\""]), 5.0, "{daemon}");
    assert_eq!(value(&daemon, "gtp_session_seconds_count", &[]), 5.0);
    assert_eq!(value(&daemon, "gtp_sessions", &[]), 0.0);
    assert_eq!(value(&daemon, "gtp_capacity_bits_per_second", &["\"out\""]), 8e8);
    // What a session moves between the daemon's last look at it and its end is not seen: a control
    // interval's worth of each session.
    for (verb, direction) in [(get, "direction=\"out\""), (put, "direction=\"in\"")] {
        let wire = value(&server, "gtp_serve_wire_bytes_total", &[verb]);
        let seen = value(&daemon, "gtp_wire_bytes_total", &[direction, "role=\"server\""]);
        assert!(seen <= wire && wire - seen < 0.05 * wire, "{verb}: {seen} of {wire}");
    }
    for page in [&server, &daemon] {
        assert!(value(page, "process_cpu_seconds_total", &[]) > 0.0);
        assert!(value(page, "process_open_fds", &[]) > 3.0);
        assert_eq!(value(page, "gtp_build_info", &["version="]), 1.0);
    }
}

/// The names of numbers that a file asks for.
fn asked(file: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(file);
    let text = std::fs::read_to_string(path).unwrap();
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    let is_name =
        |word: &&str| ["gtp_", "gtpd_", "process_"].iter().any(|start| word.starts_with(start));
    words.filter(is_name).map(str::to_owned).collect()
}

#[test]
fn what_the_dashboard_and_the_alerts_ask_for_is_what_server_and_daemon_give() {
    let watched = Watched::start();
    let (_, given) = watched.work();
    for file in ["grafana/gtp.json", "prometheus/gtp.rules.yml"] {
        let asked = asked(file);
        assert!(asked.len() > 8, "{file}: {asked:?}");
        let missing: Vec<&String> = asked.difference(&given).collect();
        assert!(missing.is_empty(), "{file} asks for what nobody gives: {missing:?}");
    }
}
