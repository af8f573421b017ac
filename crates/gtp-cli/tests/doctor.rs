//! `gtp doctor` on machines and paths that are broken in one way each: the row of that is a warning
//! or a fault, and says what mends it.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use common::hosts::{FAR, Hosts, To};
use common::relay::Relay;
use common::{Serving, World, require_root};
use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use serde_json::Value;

/// The rows that were printed, which agree with the exit code.
#[track_caller]
fn rows(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let is_wrong = rows.iter().any(|row| row["verdict"] != "ok");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(if is_wrong { 13 } else { 0 }), "{text}{said}");
    for row in &rows {
        assert_eq!(row["verdict"] == "ok", row["mend"].is_null(), "{row}");
    }
    rows
}

/// The row of a check, which must be there, and be so.
#[track_caller]
fn row(output: &Output, check: &str, verdict: &str) -> Value {
    let rows = rows(output);
    let row = rows.iter().find(|row| row["check"] == check && row["verdict"] == verdict);
    row.unwrap_or_else(|| panic!("no {check} that is {verdict}: {rows:#?}")).clone()
}

fn says(row: &Value, of: &str) -> String {
    row[of].as_str().unwrap().to_owned()
}

/// The command behind a shell that does something first.
fn after(world: &World, first: &str) -> Command {
    let gtp = world.gtp("client", &[]);
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &format!("{first}; exec \"$0\" doctor --json")]).arg(gtp.get_program());
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command.env("GTP_CONFIG_DIR", world.path("client")).current_dir(world.path(""));
    command
}

#[test]
fn every_check_has_a_row_and_nothing_is_left_behind() {
    let world = World::new();
    let before = std::fs::read_dir(world.path("")).unwrap().count();
    let output = world.run("client", &["doctor", "--json"]);
    let checks: Vec<String> = rows(&output).iter().map(|row| says(row, "check")).collect();
    let all = [
        "version",
        "buffers",
        "offload",
        "mtu",
        "clock",
        "descriptors",
        "memory",
        "disk",
        "daemon",
    ];
    assert_eq!(checks, all);
    assert_eq!(std::fs::read_dir(world.path("")).unwrap().count(), before);
    let for_people = world.run("client", &["doctor"]);
    let text = String::from_utf8_lossy(&for_people.stdout).into_owned();
    assert!(all.iter().all(|check| text.contains(check)), "{text}");
}

/// Set for [`wrapper_of_small_buffers`]: the command that it becomes.
const BECOMES: &str = "GTP_TEST_BECOMES";

/// Not a test but a program: becomes a command whose sockets get no larger buffers.
#[test]
fn wrapper_of_small_buffers() {
    let Ok(words) = std::env::var(BECOMES) else { return };
    let sizes = [libc::SO_RCVBUF, libc::SO_RCVBUFFORCE, libc::SO_SNDBUF, libc::SO_SNDBUFFORCE];
    let is = |argument, value: i32| {
        let (length, equal) = (SeccompCmpArgLen::Dword, SeccompCmpOp::Eq);
        SeccompCondition::new(argument, length, equal, value as u64).unwrap()
    };
    let rule = |size| SeccompRule::new(vec![is(1, libc::SOL_SOCKET), is(2, size)]).unwrap();
    let rules = [(libc::SYS_setsockopt, sizes.map(rule).to_vec())].into();
    let (others, these) = (SeccompAction::Allow, SeccompAction::Errno(libc::EPERM as u32));
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, others, these, arch).unwrap();
    let program: seccompiler::BpfProgram = filter.try_into().unwrap();
    let mut words = words.split('\n');
    let mut command = Command::new(words.next().unwrap());
    command.args(words).env_remove(BECOMES);
    seccompiler::apply_filter(&program).unwrap();
    panic!("{}", command.exec());
}

#[test]
fn small_socket_buffers_are_told_with_the_line_that_allows_larger_ones() {
    let world = World::new();
    let gtp = world.gtp("client", &["doctor", "--json"]);
    let words = [gtp.get_program()].into_iter().chain(gtp.get_args());
    let words: Vec<&str> = words.map(|word| word.to_str().unwrap()).collect();
    let mut wrapper = Command::new(std::env::current_exe().unwrap());
    wrapper.args(["--exact", "wrapper_of_small_buffers", "--nocapture"]).env_clear();
    wrapper.envs(gtp.get_envs().filter_map(|(name, value)| Some((name, value?))));
    wrapper.current_dir(world.path("")).env(BECOMES, words.join("\n"));
    let mut output = wrapper.output().unwrap();
    // The harness says what it runs before it becomes the command.
    let begin = output.stdout.iter().position(|&byte| byte == b'{').unwrap();
    output.stdout.drain(..begin);
    let row = row(&output, "buffers", "warning");
    assert!(says(&row, "mend").starts_with("sysctl -w net.core.rmem_max=33554432"), "{row}");
}

#[test]
fn a_clock_that_cannot_be_right_is_a_fault_with_the_line_that_sets_it() {
    let world = World::new();
    let gtp = world.gtp("client", &["doctor", "--json"]);
    for time in ["2020-01-01 00:00:00", "2300-01-01 00:00:00"] {
        // `scripts/setup test` installs it.
        let mut faked = Command::new("faketime");
        faked.args(["--exclude-monotonic", time]).arg(gtp.get_program()).args(gtp.get_args());
        faked.envs(gtp.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = faked.current_dir(world.path("")).output().unwrap();
        let row = row(&output, "clock", "fault");
        assert_eq!(says(&row, "mend"), "timedatectl set-ntp true");
    }
}

#[test]
fn a_server_of_an_earlier_release_is_told_with_what_it_lacks() {
    let world = World::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let port = listener.local_addr().unwrap().port();
    runtime.spawn(gtp_e2e::old_server::serve(listener, 2));
    let url = format!("gtp://127.0.0.1:{port}/a");
    let output = world.run("client", &["doctor", "--json", "--accept-new", &url]);
    let row = row(&output, "release", "warning");
    assert!(says(&row, "found").starts_with("the server speaks revision 2, "), "{row}");
    assert_eq!(says(&row, "mend"), "install this release there");
}

#[test]
fn few_descriptors_are_told() {
    let world = World::new();
    let output = after(&world, "ulimit -n 200").output().unwrap();
    let row = row(&output, "descriptors", "warning");
    assert!(says(&row, "found").starts_with("200:"), "{row}");
}

#[test]
fn an_older_program_in_the_path_is_told() {
    let world = World::new();
    let old = world.path("bin/gtp");
    std::fs::create_dir(world.path("bin")).unwrap();
    std::fs::write(&old, "#!/bin/sh\necho gtp 0.0.1\n").unwrap();
    std::fs::set_permissions(&old, PermissionsExt::from_mode(0o755)).unwrap();
    let output = after(&world, "PATH=$PWD/bin:$PATH").output().unwrap();
    let row = row(&output, "version", "warning");
    assert!(says(&row, "found").contains("bin/gtp is 0.0.1"), "{row}");
}

#[test]
fn a_named_daemon_that_is_not_there_is_a_fault_with_the_line_that_starts_it() {
    let world = World::new();
    let socket = world.path("gtpd.sock");
    let at = socket.to_str().unwrap();
    let output = world.run("client", &["doctor", "--json", "--daemon", at]);
    let missing = row(&output, "daemon", "fault");
    assert_eq!(says(&missing, "mend"), format!("gtpd --socket {at}"));
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_gtpd"));
    let mut daemon = daemon.env_clear().args(["--socket", at]).spawn().unwrap();
    common::wait_for("a daemon", || gtp_share::client::sessions(&socket).is_ok());
    let output = world.run("client", &["doctor", "--json", "--daemon", at]);
    row(&output, "daemon", "ok");
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    // Its socket is still there, and nobody listens.
    let output = world.run("client", &["doctor", "--json", "--daemon", at]);
    row(&output, "daemon", "fault");
}

#[test]
fn a_full_disk_is_a_fault() {
    if !require_root() {
        return;
    }
    let world = World::new();
    std::fs::create_dir(world.path("small")).unwrap();
    let mount = "mount -t tmpfs -o size=64k none small && cd small";
    let inner = after(&world, mount);
    let mut doctor = Command::new("unshare");
    doctor.arg("-m").arg(inner.get_program()).args(inner.get_args()).env_clear();
    doctor.env("PATH", std::env::var_os("PATH").unwrap()).current_dir(world.path(""));
    let output = doctor.output().unwrap();
    let row = row(&output, "disk", "fault");
    assert!(says(&row, "found").contains("it is full"), "{row}");
    assert!(says(&row, "mend").starts_with("df -h"), "{row}");
}

#[test]
fn an_interface_with_short_packets_is_told_by_its_name() {
    if !require_root() {
        return;
    }
    let (world, hosts) = (World::new(), Hosts::new());
    hosts.set_near_mtu(1_400);
    let doctor = world.gtp("client", &["doctor", "--json"]);
    let output = hosts.near(&doctor).output().unwrap();
    let row = row(&output, "mtu", "warning");
    assert!(says(&row, "mend").starts_with("ip link set dev va mtu 1500 "), "{row}");
}

/// A path to a server through a link down that is written as in a network file.
fn relay_to(world: &World, server: &Serving, down: &str) -> Relay {
    let mtu = down.lines().find(|line| line.starts_with("mtu")).unwrap_or_default();
    let links = format!(
        "[[link]]\nname = \"down\"\n{down}\n[[link]]\nname = \"up\"\ndelay = \"5ms\"\n{mtu}"
    );
    Relay::to(world, server, &links, "up = [\"up\"]\ndown = [\"down\"]")
}

/// What `gtp doctor` says of an object behind a path.
fn doctor_behind(relay: &Relay, world: &World, path: &str) -> Output {
    world.run("client", &["doctor", "--json", "--accept-new", &relay.url(path)])
}

#[test]
fn a_way_that_is_as_it_should_be_has_a_row_for_each_step() {
    let world = World::new();
    world.export("a", 2_000_000);
    let server = world.serve("server", &["--public"]);
    let mut doctor = world.gtp("client", &["doctor", "--json", "--accept-new", &server.url("a")]);
    // So slowly that the smallest receive buffer of a kernel holds what comes in 150 ms.
    let output = doctor.env("GTP_CAPACITY_IN", "10Mbit").output().unwrap();
    for check in ["name", "tcp", "identity", "release", "server clock", "udp", "path mtu"] {
        row(&output, check, "ok");
    }
    let path = says(&row(&output, "path", "ok"), "found");
    assert!(path.contains("0.00 % lost"), "{path}");
    assert!(path.ends_with("limited by this host's capacity"), "{path}");
    let rate: f64 = path.split(" Mbit/s").next().unwrap().parse().unwrap();
    assert!((5.0..10.0).contains(&rate), "{path}");
    assert!(!world.path("a").exists());
}

#[test]
fn a_server_that_is_not_known_or_not_there_is_a_fault_with_the_line_that_helps() {
    let world = World::new();
    world.export("a", 10);
    let server = world.serve("server", &["--public"]);
    let output = world.run("client", &["doctor", "--json", &server.url("a")]);
    let unknown = row(&output, "identity", "fault");
    assert!(says(&unknown, "found").contains(&server.fingerprint), "{unknown}");
    let nobody = format!("gtp://127.0.0.1:{}/a", common::ports::free_port());
    let output = world.run("client", &["doctor", "--json", &nobody]);
    let refused = row(&output, "tcp", "fault");
    assert!(says(&refused, "found").contains("refused"), "{refused}");
    let output = world.run("client", &["doctor", "--json", "gtp://no-such-host.invalid/a"]);
    row(&output, "name", "fault");
}

/// Runs the command where these are the names of hosts.
fn with_hosts(world: &World, hosts: &str, words: &[&str]) -> Output {
    std::fs::write(world.path("hosts"), hosts).unwrap();
    let gtp = world.gtp("client", words);
    let mut command = Command::new("unshare");
    let script = "mount --bind hosts /etc/hosts && exec \"$0\" \"$@\"";
    command.args(["-m", "/bin/sh", "-c", script]).arg(gtp.get_program()).args(gtp.get_args());
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command.env("GTP_CONFIG_DIR", world.path("client")).current_dir(world.path(""));
    command.output().unwrap()
}

#[test]
fn an_ip_version_that_does_not_work_is_told_where_the_other_does() {
    if !require_root() {
        return;
    }
    let world = World::new();
    world.export("a", 10);
    let mut ways = vec![("127.0.0.1:0", "IPv6: ")];
    match std::net::TcpListener::bind("[::1]:0") {
        Ok(_) => ways.push(("[::1]:0", "IPv4: ")),
        Err(_) => eprintln!("in part: this machine has no IPv6"),
    }
    for (listen, other) in ways {
        let server = world.serve("server", &["--public", "--listen", listen]);
        let url = format!("gtp://both.test:{}/a", server.port);
        let words = ["doctor", "--json", "--accept-new", &url];
        let output = with_hosts(&world, "127.0.0.1 both.test\n::1 both.test\n", &words);
        let name = row(&output, "name", "ok");
        assert!(says(&name, "found").ends_with("1 of IPv4, 1 of IPv6"), "{name}");
        let broken = row(&output, "tcp", "warning");
        assert!(says(&broken, "found").starts_with(other), "{broken}");
        let mend = format!("gtp serve … --listen [::]:{} ", server.port);
        assert!(says(&broken, "mend").starts_with(&mend), "{broken}");
        row(&output, "tcp", "ok");
        row(&output, "udp", "ok");
    }
}

#[test]
fn an_ip_version_that_leads_to_another_machine_is_told_and_the_other_one_is_looked_at() {
    if !require_root() || std::net::TcpListener::bind("[::1]:0").is_err() {
        eprintln!("skipped: this machine has no IPv6, or this is not root");
        return;
    }
    let world = World::new();
    world.export("a", 10);
    // The resolver prefers IPv6.
    let known = world.serve("server", &["--public", "--listen", "[::1]:0"]);
    let at = format!("127.0.0.1:{}", known.port);
    let _other = world.serve("another", &["--public", "--listen", &at]);
    let url = format!("gtp://both.test:{}/a", known.port);
    let words = ["doctor", "--json", "--fingerprint", &known.fingerprint, &url];
    let output = with_hosts(&world, "::1 both.test\n127.0.0.1 both.test\n", &words);
    row(&output, "identity", "ok");
    let other = row(&output, "identity", "warning");
    assert!(says(&other, "found").starts_with("IPv4: "), "{other}");
    // Ten bytes are too few to judge by, but they came.
    row(&output, "path", "warning");
}

#[test]
fn a_server_of_ipv6_alone_is_looked_at_over_that() {
    let world = World::new();
    world.export("a", 10);
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        eprintln!("skipped: this machine has no IPv6");
        return;
    }
    let server = world.serve("server", &["--public", "--listen", "[::1]:0"]);
    let url = format!("gtp://[::1]:{}/a", server.port);
    let output = world.run("client", &["doctor", "--json", "--accept-new", &url]);
    let udp = row(&output, "udp", "ok");
    assert!(says(&udp, "found").starts_with("IPv6: "), "{udp}");
}

#[test]
fn udp_that_is_blocked_is_told_by_its_direction() {
    if !require_root() {
        return;
    }
    for (to, says_so) in [(To::Far, "UDP out is blocked"), (To::Near, "UDP in is blocked")] {
        let (world, hosts) = (World::new(), Hosts::new());
        world.export("a", 10);
        let serve = ["serve", "export", "--json", "--public", "--listen", "10.85.0.2:0"];
        let server = Serving::start(hosts.far(&world.gtp("server", &serve)));
        hosts.block(to, "ipproto udp");
        let url = format!("gtp://{FAR}:{}/a", server.port);
        let doctor = world.gtp("client", &["doctor", "--json", "--accept-new", &url]);
        let output = hosts.near(&doctor).output().unwrap();
        let blocked = row(&output, "udp", "warning");
        assert!(says(&blocked, "found").contains(says_so), "{blocked}");
        let end = if to == To::Far { "dport" } else { "sport" };
        let mend = format!("nft add rule inet filter input udp {end} {} accept", server.port);
        assert!(says(&blocked, "mend").starts_with(&mend), "{blocked}");
    }
}

#[test]
fn a_path_on_which_long_packets_vanish_is_told() {
    let world = World::new();
    world.export("a", 2_000_000);
    let server = world.serve("server", &["--public"]);
    let relay = relay_to(&world, &server, "mtu = \"1400B\"");
    let output = doctor_behind(&relay, &world, "a");
    let hole = row(&output, "path mtu", "warning");
    assert!(says(&hole, "mend").starts_with("ip link set dev NAME mtu 1400"), "{hole}");
    row(&output, "udp", "ok");
}

/// What must hold: losses are always told, and wherever no queue was measured beside them a policer
/// is. The relay runs on this machine, which may delay packets itself when it is busy: a round with
/// such a queue is not what this test is about, and another one follows.
#[test]
fn a_policer_is_suspected_where_packets_are_lost_and_none_is_delayed() {
    let world = World::new();
    world.export("a", 40_000_000);
    let server = world.serve("server", &["--public"]);
    let policer = "delay = \"10ms\"\npolicer = { rate = \"10Mbit\", bucket = \"20ms\" }";
    let relay = relay_to(&world, &server, policer);
    let mut delayed = Vec::new();
    for _ in 0..4 {
        let path = row(&doctor_behind(&relay, &world, "a"), "path", "warning");
        let found = says(&path, "found");
        assert!(found.contains("packets are lost"), "{path}");
        assert!(found.ends_with("limited by the path"), "{path}");
        let queue = found.split(" ms of queue").next().unwrap().rsplit(' ').next().unwrap();
        // The row rounds to a tenth.
        if queue.parse::<f64>().unwrap() < 1.95 {
            assert!(found.contains("policer"), "{path}");
            assert!(says(&path, "mend").contains("--max-rate"), "{path}");
            return;
        }
        delayed.push(found);
    }
    panic!("this machine delayed packets in each round: {delayed:#?}");
}
