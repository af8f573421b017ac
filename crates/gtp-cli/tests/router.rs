//! `gtp router` and hosts that ask it: real processes, over loopback and between namespaces.
//!
//! A link is only what the router is told of: nothing on the way is slower, so that what sessions
//! get is the router's doing.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use common::hosts::{Mesh, meshed};
use common::{Serving, World, events, require_root};
use serde_json::Value;

/// A router that runs, and what it shows.
struct Router {
    child: Child,
    out: BufReader<ChildStdout>,
    address: String,
}

impl Router {
    fn start(mut command: Command) -> Router {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(said["event"], "listening");
        Router { child, out, address: said["address"].as_str().unwrap().to_owned() }
    }

    /// Over loopback, at a free port.
    fn of(world: &World, link: &str) -> Router {
        Router::start(command(world, "127.0.0.1:0", link))
    }

    /// Ends it cleanly and returns its last numbers.
    fn end(mut self) -> Value {
        let pid = rustix::process::Pid::from_raw(self.child.id() as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        serde_json::from_str(rest.lines().last().unwrap()).unwrap()
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The router's command; the key lies where this world's hosts are told.
fn command(world: &World, listen: &str, link: &str) -> Command {
    let mut router = world.gtp("router", &["router", "--json", "--key", "key"]);
    router.args(["--listen", listen, "--link", link]);
    router
}

/// A server that asks the router, its own capacity stated.
fn serve(world: &World, end: &str, more: &[&str]) -> Serving {
    let all = ["--public", "--daemon", "off", "--capacity-out", "300Mbit"];
    world.serve(end, &[&all[..], more].concat())
}

/// Starts to fetch a file into a file of this name.
fn get(world: &World, url: &str, to: &str, more: &[&str]) -> Child {
    let mut get = world.gtp(&format!("client-{to}"), &["get", url, to, "--json", "--accept-new"]);
    get.args(["--daemon", "off", "--capacity-in", "300Mbit"]).args(more);
    get.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn ended(child: Child) -> Output {
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    output
}

/// The mean rate on the wire in Mbit/s between two moments of a transfer.
fn steady(output: &Output, (from, until): (f64, f64)) -> f64 {
    let all = events(output);
    let mut within = all.iter().filter(|event| event["event"] == "progress").filter_map(|event| {
        let at = event["seconds"].as_f64()?;
        let bytes = event["sources"][0]["wire_bytes"].as_u64()?;
        (from..=until).contains(&at).then_some((at, bytes as f64))
    });
    let first = within.next().expect("progress");
    let last = within.next_back().expect("more progress");
    (last.1 - first.1) * 8e-6 / (last.0 - first.0)
}

fn limited_by(output: &Output) -> String {
    let all = events(output);
    let done = all.iter().find(|event| event["event"] == "done").unwrap();
    done["limited_by"].as_str().unwrap_or("nothing").to_owned()
}

/// A router gives nobody more than its share. How near sessions come to it on a busy machine or an
/// idle one is measured by `gtp-measure run router-row`.
#[track_caller]
fn no_more_than(got: f64, fair: f64) {
    assert!(got <= 1.05 * fair, "{got:.2} Mbit/s, and its share is {fair}");
}

#[test]
fn servers_that_ask_one_router_share_its_link_and_their_clients_are_told() {
    let world = World::new();
    world.export("a", 12_000_000);
    let router = Router::of(&world, "40Mbit");
    let option = format!("{},key=key", router.address);
    let servers = ["s1", "s2"].map(|end| serve(&world, end, &["--router", &option]));
    let gets = [0, 1].map(|n| get(&world, &servers[n].url("a"), &format!("to{n}"), &[]));
    for output in gets.map(ended) {
        no_more_than(steady(&output, (1.0, 4.0)), 20.0);
        assert_eq!(limited_by(&output), "router");
    }
    let numbers = router.end();
    assert_eq!(numbers["forged"], 0);
    assert_eq!(numbers["links"][0]["capacity"]["out"], 40_000_000);
}

#[test]
fn a_client_that_asks_a_router_for_what_it_receives_is_limited_by_it() {
    let world = World::new();
    world.export("a", 8_000_000);
    let router = Router::of(&world, "300Mbit/20Mbit");
    let server = serve(&world, "s", &[]);
    let option = format!("{},key=key,peers=127.0.0.0/8", router.address);
    let output = ended(get(&world, &server.url("a"), "to", &["--router", &option]));
    no_more_than(steady(&output, (1.0, 3.0)), 20.0);
    assert_eq!(limited_by(&output), "router");
}

#[test]
fn sessions_with_other_peers_and_hosts_that_name_no_router_are_not_limited() {
    let world = World::new();
    world.export("a", 8_000_000);
    let router = Router::of(&world, "2Mbit");
    let option = format!("{},key=key,peers=192.0.2.0/24", router.address);
    let servers = [serve(&world, "s1", &["--router", &option]), serve(&world, "s2", &[])];
    for (n, server) in servers.iter().enumerate() {
        let output = ended(get(&world, &server.url("a"), &format!("to{n}"), &[]));
        let all = events(&output);
        let done = all.iter().find(|event| event["event"] == "done").unwrap();
        assert!(done["seconds"].as_f64().unwrap() < 8.0, "32 s at the router's rate");
    }
}

#[test]
fn a_router_that_is_not_there_or_has_another_key_is_ignored_after_a_second() {
    let world = World::new();
    world.export("a", 8_000_000);
    let other = Router::of(&world, "2Mbit");
    fs::rename(world.path("key"), world.path("other")).unwrap();
    let router = Router::of(&world, "2Mbit");
    drop(other.end());
    // The second router's address with the first one's key.
    let option = format!("{},key=other", router.address);
    let server = serve(&world, "s", &["--router", &option]);
    let output = ended(get(&world, &server.url("a"), "to", &[]));
    let all = events(&output);
    let done = all.iter().find(|event| event["event"] == "done").unwrap();
    assert!(done["seconds"].as_f64().unwrap() < 8.0, "32 s at the router's rate");
    assert!(router.end()["forged"].as_u64().unwrap() > 0);
}

#[test]
fn a_router_that_listens_everywhere_answers_from_the_address_that_was_asked() {
    let world = World::new();
    world.export("a", 8_000_000);
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let router = Router::start(command(&world, listen, "300Mbit/20Mbit"));
        let (_, port) = router.address.rsplit_once(':').unwrap();
        // The kernel would answer from 127.0.0.1, which the client's socket does not take.
        let option = format!("127.0.0.2:{port},key=key");
        let server = serve(&world, "s", &[]);
        let to = format!("to{}", listen.len());
        let output = ended(get(&world, &server.url("a"), &to, &["--router", &option]));
        let rate = steady(&output, (1.0, 3.0));
        assert!(rate < 21.0, "{rate} Mbit/s of 20: {listen}");
        assert_eq!(limited_by(&output), "router", "{listen}");
    }
}

#[test]
fn a_client_is_warned_once_of_a_router_that_does_not_answer() {
    let world = World::new();
    world.export("a", 8_000_000);
    drop(Router::of(&world, "2Mbit").end());
    // Nobody listens there; the host's kernel may even say so.
    let option = format!("127.0.0.1:{},key=key", common::ports::free_port());
    let server = serve(&world, "s", &[]);
    let output = ended(get(&world, &server.url("a"), "to", &["--router", &option]));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said.matches("a router does not answer").count(), 1, "{said}");
}

#[test]
fn the_first_start_makes_the_directory_and_the_key_in_it() {
    let world = World::new();
    let mut router = world.gtp("fresh/of/a/user", &["router", "--json", "--link", "40Mbit"]);
    router.args(["--listen", "127.0.0.1:0"]);
    let router = Router::start(router);
    assert!(world.path("fresh/of/a/user/router-key").exists());
    drop(router.end());
}

#[test]
fn a_ninth_link_is_refused() {
    let world = World::new();
    let mut words = vec!["router", "--listen", "127.0.0.1:0"];
    words.extend(["--link", "1Mbit"].repeat(9));
    let refused = world.expect(2, &words);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("9 links") && said.contains("8 at most"), "{said}");
    assert!(!world.path("client/router-key").exists(), "nothing was made");
}

#[test]
fn a_router_serves_numbers_for_prometheus() {
    let world = World::new();
    let port = common::ports::free_port();
    let mut command = command(&world, "127.0.0.1:0", "40Mbit/90Mbit");
    command.args(["--link", "1Gbit", "--metrics", &format!("127.0.0.1:{port}")]);
    let router = Router::start(command);
    let mut asked = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(asked, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    asked.read_to_string(&mut page).unwrap();
    let line = "gtp_router_capacity_bits_per_second{link=\"1\",direction=\"in\"} 90000000.0\n";
    assert!(page.contains(line) && page.ends_with("# EOF\n"), "{page}");
    drop(router.end());
}

#[test]
fn a_router_whose_key_is_not_there_is_refused_before_anything_moves() {
    let world = World::new();
    let refused = world.expect(2, &["get", "gtp://127.0.0.1/a", "to", "--router", "127.0.0.1"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("router-key") && said.contains("gtp router"), "{said}");
    let refused = world.expect(2, &["get", "gtp://h/a", "to", "--router", "127.0.0.1,link=9"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("from 1 to 8"), "{said}");
}

#[test]
fn a_host_of_the_configuration_file_names_its_router() {
    let world = World::new();
    world.export("a", 8_000_000);
    let router = Router::of(&world, "300Mbit/20Mbit");
    let server = serve(&world, "s", &[]);
    let config = world.path("client-to");
    fs::create_dir(&config).unwrap();
    let key = world.path("key");
    let text = format!(
        "[host.near]\naddress = \"127.0.0.1:{}\"\nrouter = \"{},key={}\"\n",
        server.port,
        router.address,
        key.display()
    );
    fs::write(config.join("config.toml"), text).unwrap();
    let output = ended(get(&world, "gtp://near/a", "to", &[]));
    no_more_than(steady(&output, (1.0, 3.0)), 20.0);
    assert_eq!(limited_by(&output), "router");
}

#[test]
fn two_sites_share_the_link_between_them_that_is_asked_by_hosts_of_both() {
    if !require_root() {
        return;
    }
    let (world, mesh) = (World::new(), Mesh::new(5));
    world.export("a", 12_000_000);
    let listen = format!("{}:4811", meshed(0));
    let router = Router::start(mesh.at(0, &command(&world, &listen, "60Mbit")));
    // Host 1 is alone on this side of the link, and fetches from hosts 3 and 4 on the other side.
    // Host 2 is on this side, too, knows no router and fetches beside it.
    let servers: Vec<Serving> = [3, 4]
        .iter()
        .map(|&n| {
            let option = format!("{},key=key,far", router.address);
            let listen = format!("{}:4810", meshed(n));
            let mut serve = world.gtp(&format!("s{n}"), &["serve", "export", "--json", "--public"]);
            serve.args(["--daemon", "off", "--capacity-out", "300Mbit", "--listen", &listen]);
            serve.args(["--router", &option]);
            Serving::start(mesh.at(n, &serve))
        })
        .collect();
    assert_eq!(servers.len(), 2);
    let near_option = format!("{},key=key", router.address);
    let gets = [3, 4].map(|n| {
        let (url, to) = (format!("gtp://{}:4810/a", meshed(n)), format!("to{n}"));
        let mut get = world.gtp(&format!("c{n}"), &["get", &url, &to, "--json", "--accept-new"]);
        get.args(["--daemon", "off", "--capacity-in", "300Mbit", "--router", &near_option]);
        let mut get = mesh.at(1, &get);
        get.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    // Both ends of each session ask the same link for it, and it counts once.
    for output in gets.map(ended) {
        no_more_than(steady(&output, (1.0, 2.8)), 30.0);
        assert_eq!(limited_by(&output), "router");
    }
    drop(router.end());
    assert!(Path::new(&world.path("to3")).exists());
}
