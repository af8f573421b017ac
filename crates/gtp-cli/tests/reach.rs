//! What is said, and for how long is tried, when a server cannot be reached.
//!
//! All verbs speak alike: the obstacle is named at once and in plain words, `--retry-for` says how
//! long it is borne, and what no further try can change ends the command at once.

mod common;

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use common::ports::free_port;
use common::{Serving, World, bytes, events, require_root, tcp_only};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The verbs that connect, each with the operands that it needs.
fn verbs(url: &str) -> [Vec<String>; 4] {
    [
        &["ls", url] as &[&str],
        &["get", url, "out", "--retry-for", "1s"],
        &["put", "export", url, "--retry-for", "1s"],
        &["stream", "send", url],
    ]
    .map(|words| words.iter().map(|&word| word.to_owned()).collect())
}

fn run(world: &World, words: &[String]) -> Output {
    world.run("client", &words.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn every_verb_names_a_port_where_nobody_listens_in_plain_words() {
    let world = World::new();
    world.export("x", 1);
    let port = free_port();
    for words in verbs(&format!("gtp://127.0.0.1:{port}/x")) {
        let output = run(&world, &words);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(5), "{words:?}: {text}");
        let told = format!(
            "cannot reach 127.0.0.1:{port}: the connection was refused; is `gtp serve` running \
             there?"
        );
        assert!(text.contains(&told) && !text.contains("os error"), "{words:?}: {text}");
    }
}

#[test]
fn every_verb_names_a_host_that_drops_tcp_and_obeys_the_retry_time() {
    let world = World::new();
    world.export("x", 1);
    let deaf = Deaf::new();
    for words in verbs(&format!("gtp://{}/x", deaf.address)) {
        let began = Instant::now();
        let output = run(&world, &words);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(5), "{words:?}: {text}");
        let told = format!("cannot reach {}: no answer within", deaf.address);
        assert!(text.contains(&told), "{words:?}: {text}");
        let limit = if words.contains(&"--retry-for".to_owned()) { 5 } else { 20 };
        assert!(began.elapsed() < Duration::from_secs(limit), "{words:?}: {:?}", began.elapsed());
    }
}

/// A port that answers no connection: the queue of its listener is full, so the kernel drops what
/// comes, as a firewall would.
struct Deaf {
    address: SocketAddr,
    _listener: rustix::fd::OwnedFd,
    _queued: Vec<TcpStream>,
}

impl Deaf {
    fn new() -> Deaf {
        use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
        let listener = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&listener, &"127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
        listen(&listener, 0).unwrap();
        let address = SocketAddr::try_from(getsockname(&listener).unwrap()).unwrap();
        let mut queued = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(500)) {
            queued.push(stream);
            assert!(queued.len() < 64, "the queue of the listener never fills");
        }
        Deaf { address, _listener: listener, _queued: queued }
    }
}

#[test]
fn a_server_that_starts_within_the_retry_time_is_used() {
    let world = World::new();
    let content = world.export("x", 10_000);
    let port = free_port();
    let url = format!("gtp://127.0.0.1:{port}/x");
    let mut getting = world.gtp("client", &["get", &url, "out", "--accept-new"]);
    let mut child = getting.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(first.contains("is `gtp serve` running there?"), "{first}");
    let listen = format!("127.0.0.1:{port}");
    let _serving = world.serve("server", &["--public", "--listen", &listen]);
    // The same words are not said again for each try.
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    assert!(!rest.iter().any(|line| line.contains("is `gtp serve` running")), "{rest:?}");
    assert_eq!(child.wait().unwrap().code(), Some(0), "{rest:?}");
    assert_eq!(std::fs::read(world.path("out")).unwrap(), content);
}

#[test]
fn an_address_that_names_no_host_ends_every_verb_at_once() {
    let world = World::new();
    world.export("x", 1);
    for (host, told) in [
        ("[fe80::1%no-such-link]", "this machine has no network interface no-such-link"),
        ("[::1%lo]", "only link-local addresses"),
        ("[fe80::1]", "a link-local address needs its interface"),
    ] {
        for mut words in verbs(&format!("gtp://{host}:4810/x")) {
            for word in &mut words {
                *word = word.replace("1s", "10min");
            }
            let output = run(&world, &words);
            let text = said(&output);
            assert_eq!(output.status.code(), Some(2), "{words:?}: {text}");
            assert!(text.contains(told) && !text.contains("again in"), "{words:?}: {text}");
        }
    }
}

/// Two network namespaces with one link between them, gone when dropped.
struct Link {
    near: String,
    far: String,
}

static LINKS: AtomicU32 = AtomicU32::new(0);

impl Link {
    fn new() -> Link {
        // Tests of one process have links of their own.
        let id = format!("{}-{}", std::process::id(), LINKS.fetch_add(1, Ordering::Relaxed));
        let link = Link { near: format!("gtp-reach-a-{id}"), far: format!("gtp-reach-b-{id}") };
        for name in [&link.near, &link.far] {
            ip(&["netns", "add", name]);
            ip(&["-n", name, "link", "set", "lo", "up"]);
        }
        let (near, far) = (link.near.as_str(), link.far.as_str());
        ip(&["-n", near, "link", "add", "Va", "type", "veth", "peer", "name", "vb", "netns", far]);
        for (name, device, address) in [(near, "Va", "fe80::a/64"), (far, "vb", "fe80::b/64")] {
            // No further address that is at first not to be used, and later preferred.
            ip(&["-n", name, "link", "set", "dev", device, "addrgenmode", "none"]);
            ip(&["-n", name, "link", "set", device, "up"]);
            ip(&["-n", name, "-6", "addr", "add", address, "dev", device, "nodad"]);
        }
        link
    }

    /// A command of one end, inside its namespace.
    fn inside(namespace: &str, command: &Command) -> Command {
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", namespace]).arg(command.get_program());
        inside.args(command.get_args()).stdin(Stdio::null());
        inside.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        inside.current_dir(command.get_current_dir().unwrap());
        inside
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for name in [&self.near, &self.far] {
            // It may never have come to be.
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

#[track_caller]
fn ip(args: &[&str]) {
    let output = Command::new("ip").args(args).output().unwrap();
    assert!(output.status.success(), "ip {args:?}: {}", said(&output));
}

#[test]
fn link_local_addresses_with_their_interface_work_for_every_verb() {
    if !require_root() {
        return;
    }
    let (world, link) = (World::new(), Link::new());
    let content = world.export("x", 300_000);
    world.list_client();
    let listen = "[fe80::b%vb]:0";
    let serve =
        world.gtp("server", &["serve", "export", "--json", "--writable", "--listen", listen]);
    let serving = Serving::start(Link::inside(&link.far, &serve));
    let url = |path: &str| format!("gtp://[fe80::b%Va]:{}/{path}", serving.port);
    for words in [
        vec!["ls", &url(""), "--accept-new"],
        // The key was remembered under the same name.
        vec!["get", &url("x"), "out"],
        vec!["get", &url("x"), "twice", "--mirror", &url("x")],
        vec!["put", "out", &url("y")],
    ] {
        let output = Link::inside(&link.near, &world.gtp("client", &words)).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", said(&output));
    }
    for name in ["out", "twice", "export/y"] {
        assert_eq!(std::fs::read(world.path(name)).unwrap(), content, "{name}");
    }
}

#[test]
fn programs_under_gtp_run_reach_each_other_by_link_local_addresses() {
    if !require_root() {
        return;
    }
    let (world, link) = (World::new(), Link::new());
    let preload = std::env::current_exe().unwrap().with_file_name("libgtp_preload.so");
    let run = |host: &str, namespace: &str, options: &[&str], script: &str| {
        let words = [&["run"], options, &["--", "python3", "-u", "-c", script]].concat();
        let mut run = world.gtp(host, &words);
        run.env("GTP_PRELOAD", &preload).env("GTP_PUMP", world.path(&format!("{host}.sock")));
        run.env("GTP_DAEMON", "off").env("GTP_PUBLIC", "1").env("GTP_ACCEPT_NEW", "1");
        run.env("PATH", std::env::var_os("PATH").unwrap()).env("GTP_PUMP_IDLE", "10s");
        Link::inside(namespace, &run)
    };
    let listens = "import socket\n\
        s = socket.create_server(('::', 0), family=socket.AF_INET6)\n\
        print(s.getsockname()[1])\n\
        c, _ = s.accept(); c.sendall(b'hello'); c.close()";
    let mut far = run("far", &link.far, &[], listens).stdout(Stdio::piped()).spawn().unwrap();
    let mut port = String::new();
    BufReader::new(far.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let calls = format!(
        "import socket\n\
         c = socket.socket(socket.AF_INET6)\n\
         c.connect(('fe80::b', {}, 0, socket.if_nametoindex('Va')))\n\
         print(c.makefile().read())",
        port.trim()
    );
    let near = run("near", &link.near, &["--require"], &calls).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&near.stdout), "hello\n", "{}", said(&near));
    assert!(far.wait().unwrap().success());
}

/// The command, in a mount namespace where names come from these lines of `/etc/hosts` alone.
fn with_hosts(world: &World, hosts: &str, args: &[&str]) -> Command {
    let (names, order) = (world.path("hosts"), world.path("nsswitch"));
    std::fs::write(&names, hosts).unwrap();
    std::fs::write(&order, "hosts: files\n").unwrap();
    let gtp = world.gtp("client", args);
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c"]);
    command.arg(
        "mount --bind \"$0\" /etc/hosts && mount --bind \"$1\" /etc/nsswitch.conf && shift && \
         exec \"$@\"",
    );
    command.args([names, order]).arg(gtp.get_program()).args(gtp.get_args());
    command.env("GTP_CONFIG_DIR", world.path("client"));
    command.current_dir(world.path(".")).stdin(Stdio::null());
    command
}

#[test]
fn a_host_name_that_does_not_exist_is_not_tried_again() {
    if !require_root() {
        return;
    }
    let world = World::new();
    let words = ["get", "gtp://no-such-host.example/x", "out", "--retry-for", "10min"];
    let output = with_hosts(&world, "127.0.0.1 localhost\n", &words).output().unwrap();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("no host has this name") && !text.contains("again in"), "{text}");
}

/// A server over IPv4 whose port over IPv6 passes TCP on and no datagram.
fn server_without_datagrams_over_ipv6(world: &World) -> Serving {
    let serving = world.serve("server", &["--public", "--writable"]);
    let listener = TcpListener::bind(("::1", serving.port)).unwrap();
    common::pass_tcp(listener, serving.port);
    serving
}

#[test]
fn where_one_ip_version_carries_no_datagrams_the_other_one_is_tried() {
    if !require_root() {
        return;
    }
    let world = World::new();
    let content = world.export("x", 300_000);
    std::fs::write(world.path("y"), bytes(300_000, 7)).unwrap();
    world.list_client();
    let serving = server_without_datagrams_over_ipv6(&world);
    let hosts = "::1 both.example\n127.0.0.1 both.example\n";
    let url = |path: &str| format!("gtp://both.example:{}/{path}", serving.port);
    for words in [
        ["get", &url("x"), "out", "--accept-new", "--json"],
        ["put", "y", &url("z"), "--accept-new", "--json"],
    ] {
        let output = with_hosts(&world, hosts, &words).output().unwrap();
        let text = said(&output);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {text}");
        let told = events(&output);
        let retried = told.iter().filter(|event| event["event"] == "retry").count();
        assert!(text.contains("over IPv6; trying IPv4"), "{words:?}: {text}");
        assert_eq!(retried, 1, "{words:?}: {text}");
    }
    assert_eq!(std::fs::read(world.path("out")).unwrap(), content);
    assert_eq!(std::fs::read(world.path("export").join("z")).unwrap(), bytes(300_000, 7));
}

/// Passes datagrams on to a server's port over IPv4, and none of its answers back.
fn pass_one_way(near: UdpSocket, to: u16) {
    let far = UdpSocket::bind("127.0.0.1:0").unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 65_536];
        while let Ok(length) = near.recv(&mut buffer) {
            // As on any way, some may be lost.
            let _ = far.send_to(&buffer[..length], ("127.0.0.1", to));
        }
    });
}

#[test]
fn where_datagrams_reach_a_server_and_none_comes_back_another_way_is_tried_in_time() {
    if !require_root() {
        return;
    }
    let world = World::new();
    let content = world.export("x", 300_000);
    let serving = server_without_datagrams_over_ipv6(&world);
    pass_one_way(UdpSocket::bind(("::1", serving.port)).unwrap(), serving.port);
    let hosts = "::1 both.example\n127.0.0.1 both.example\n";
    let url = format!("gtp://both.example:{}/x", serving.port);
    let began = Instant::now();
    let words = ["get", &url, "out", "--accept-new", "--json"];
    let output = with_hosts(&world, hosts, &words).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
    assert!(said(&output).contains("over IPv6; trying IPv4"), "{}", said(&output));
    assert_eq!(std::fs::read(world.path("out")).unwrap(), content);
    let began = Instant::now();
    let url = format!("gtp://[::1]:{}/x", serving.port);
    let output = world.expect(11, &["get", &url, "out2", "--accept-new", "--udp", "only"]);
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    assert!(said(&output).contains("no UDP path"), "{}", said(&output));
}

#[test]
fn where_neither_ip_version_carries_datagrams_tcp_does_unless_udp_is_insisted_on() {
    if !require_root() {
        return;
    }
    let world = World::new();
    let content = world.export("x", 300_000);
    let serving = world.serve("server", &["--public"]);
    let port = tcp_only(serving.port);
    common::pass_tcp(TcpListener::bind(("::1", port)).unwrap(), serving.port);
    let url = format!("gtp://both.example:{port}/x");
    let began = Instant::now();
    let hosts = "::1 both.example\n127.0.0.1 both.example\n";
    let words = ["get", &url, "out", "--accept-new", "--udp", "only"];
    let output = with_hosts(&world, hosts, &words).output().unwrap();
    assert_eq!(output.status.code(), Some(11), "{}", said(&output));
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let output = with_hosts(&world, hosts, &words[..4]).output().unwrap();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("over IPv6; trying IPv4"), "the other one has its chance: {text}");
    assert!(text.contains("the control connection carries the data"), "{text}");
    assert_eq!(std::fs::read(world.path("out")).unwrap(), content);
}

#[test]
fn a_stream_without_a_path_for_datagrams_ends_with_code_11_at_both_ends() {
    let world = World::new();
    let words = ["stream", "receive", "--listen", "127.0.0.1:0", "--public"];
    let mut receive = world.gtp("server", &words);
    let mut receive = receive.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut line, mut said_there) = (String::new(), receive.stderr.take().unwrap());
    BufReader::new(&mut said_there).read_line(&mut line).unwrap();
    let port = line.split(' ').find_map(|word| word.strip_prefix("127.0.0.1:")).unwrap();
    let url = format!("gtp://127.0.0.1:{}/", tcp_only(port.parse().unwrap()));
    let send = world.run("client", &["stream", "send", &url, "--accept-new", "--udp", "only"]);
    assert_eq!(send.status.code(), Some(11), "{}", said(&send));
    assert!(said(&send).contains("no UDP path"), "{}", said(&send));
    assert_eq!(receive.wait().unwrap().code(), Some(11));
}
