//! Servers and proxies of Debian's under `gtp run`, over loopback and over GTP alone: what they
//! serve arrives whole. They open sockets in every way that there is: before and after forking, in
//! event loops, for data beside control, from threads. Those that take long to start run with
//! GTP_LONG=1.

mod common;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::ports::{free_port, is_listening};
use common::sshd;
use tempfile::TempDir;

/// How long anything is tried.
const PATIENCE: Duration = Duration::from_secs(60);

/// A user with a pump of his own, and a file that is served.
struct World {
    dir: TempDir,
    content: Vec<u8>,
    pump_port: u16,
}

/// Ends with its test, and whatever it has started with it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It leads a group of its own. It may have ended.
        let group = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.0.wait();
    }
}

/// Where a program is, also for users whose path leaves out those of administrators.
fn find(program: &str) -> PathBuf {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let found = std::env::split_paths(&path).map(|dir| dir.join(program)).find(|at| at.is_file());
    found.unwrap_or_else(|| panic!("{program} is needed: scripts/setup test"))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let content: Vec<u8> =
            (0..1_500_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        std::fs::create_dir_all(dir.path().join("served/pub")).unwrap();
        std::fs::write(dir.path().join("served/pub/file"), &content).unwrap();
        World { dir, content, pump_port: free_port() }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// Writes a file of the world's, with `DIR` replaced, and says where it is.
    fn file(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text.replace("DIR", &self.path(""))).unwrap();
        self.path(name)
    }

    /// A program under `gtp run`, which reaches nothing over TCP.
    fn run(&self, program: &[&str]) -> Command {
        let preload = std::env::current_exe().unwrap().with_file_name("libgtp_preload.so");
        let mut command = Command::new(env!("CARGO_BIN_EXE_gtp"));
        command.args(["run", "--require", "--"]).arg(find(program[0])).args(&program[1..]);
        command.env("GTP_CONFIG_DIR", self.path("config")).env("GTP_PUMP", self.path("pump.sock"));
        command.env("GTP_PRELOAD", preload).env("GTP_DAEMON", "off").env("GTP_PUMP_IDLE", "2s");
        command.env("GTP_RUN_LOOPBACK", "1").env("GTP_PUBLIC", "1").env("GTP_ACCEPT_NEW", "1");
        command.env("GTP_PUMP_LISTEN", format!("127.0.0.1:{}", self.pump_port));
        command.stdin(Stdio::null());
        command
    }

    /// Starts a server, and waits until it listens on its ports.
    #[track_caller]
    fn serve(&self, program: &[&str], ports: &[u16]) -> Running {
        self.served(program, ports).unwrap_or_else(|why| panic!("{why}"))
    }

    /// The same, or why it does not listen there. Somebody else who does is not taken for it.
    fn served(&self, program: &[&str], ports: &[u16]) -> Result<Running, String> {
        use std::os::unix::process::CommandExt;
        let mut command = self.run(program);
        let log = std::fs::File::create(self.path("log")).unwrap();
        command.stdout(Stdio::null()).stderr(log).process_group(0);
        let mut running = Running(command.spawn().unwrap());
        let end = Instant::now() + PATIENCE;
        for port in ports {
            while !is_listening(running.0.id(), *port) {
                if let Some(ended) = running.0.try_wait().unwrap() {
                    return Err(format!("{program:?}: {ended}: {}", self.log()));
                }
                if Instant::now() >= end {
                    return Err(format!("{program:?} does not listen: {}", self.log()));
                }
                std::thread::yield_now();
            }
        }
        Ok(running)
    }

    /// What the server that was started last has said.
    fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// A web server of what is served.
    fn web(&self, port: u16) -> Running {
        let (port_text, dir) = (port.to_string(), self.path("served"));
        let words = ["python3", "-m", "http.server", "--bind", "127.0.0.1", "-d", &dir, &port_text];
        self.serve(&words, &[port])
    }

    /// What a program says that is tried until it does well: a server listens a moment before its
    /// pump knows.
    #[track_caller]
    fn tried(&self, program: &[&str]) -> Output {
        let end = Instant::now() + PATIENCE;
        loop {
            let ran = self.run(program).output().unwrap();
            if ran.status.success() {
                return ran;
            }
            let server = || self.log();
            assert!(Instant::now() < end, "{program:?}: {}\n{}", said(&ran), server());
        }
    }

    /// That the file is fetched whole.
    #[track_caller]
    fn fetches(&self, options: &[&str], url: &str) {
        let curl = ["curl", "-sSf", "--max-time", "30"];
        let words: Vec<&str> = curl.iter().chain(options).chain(&[url]).copied().collect();
        let fetched = self.tried(&words);
        assert!(fetched.stdout == self.content, "{url}: {} bytes", fetched.stdout.len());
    }
}

fn is_long() -> bool {
    let long = std::env::var("GTP_LONG").as_deref() == Ok("1");
    if !long {
        println!("left to GTP_LONG=1: the program takes long to start");
    }
    long
}

#[test]
fn whoever_else_listens_on_a_servers_port_is_not_taken_for_the_server() {
    let world = World::new();
    let port = free_port();
    let _other = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let port_text = port.to_string();
    let words = ["python3", "-m", "http.server", "--bind", "127.0.0.1", &port_text];
    let Err(why) = world.served(&words, &[port]) else { panic!("it cannot listen") };
    assert!(why.contains("in use"), "{why}");
}

const NGINX: &str = "
daemon off; USER worker_processes 2; pid DIR/pid; error_log stderr error;
events { worker_connections 64; }
http {
    access_log off; client_body_temp_path DIR/body; proxy_temp_path DIR/proxy;
    fastcgi_temp_path DIR/fastcgi; uwsgi_temp_path DIR/uwsgi; scgi_temp_path DIR/scgi;
    server { listen 127.0.0.1:PORT; root DIR/served;
        location /via/ { proxy_pass http://127.0.0.1:BEHIND/; } }
}
";

#[test]
fn nginx_serves_files_and_is_a_proxy() {
    let world = World::new();
    let (port, behind) = (free_port(), free_port());
    let text = NGINX.replace("PORT", &port.to_string()).replace("BEHIND", &behind.to_string());
    // Its workers would be another user's, whom this user's pump does not hear.
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let config = world.file("nginx.conf", &text.replace("USER", user));
    let _web = world.web(behind);
    let _nginx = world.serve(&["nginx", "-p", &world.path(""), "-c", &config], &[port]);
    for path in ["pub/file", "via/pub/file", "via/pub/file"] {
        world.fetches(&[], &format!("http://127.0.0.1:{port}/{path}"));
    }
    let url = format!("http://127.0.0.1:{port}/via/pub/file");
    let many = ["curl", "-sSfZ", "--max-time", "60", "-o", "/dev/null", &url];
    let twice = ["-o", "/dev/null", &url].repeat(7);
    let many: Vec<&str> = many.into_iter().chain(twice).collect();
    world.tried(&many);
}

const HAPROXY: &str = "
global
    maxconn 100
defaults
    timeout connect 10s
    timeout client 30s
    timeout server 30s
listen web
    mode http
    bind 127.0.0.1:PORT
    server one 127.0.0.1:BEHIND check inter 500ms
listen plain
    mode tcp
    bind 127.0.0.1:TCP
    server one 127.0.0.1:BEHIND
";

#[test]
fn haproxy_is_a_proxy_of_http_and_of_tcp_and_checks_its_servers() {
    let world = World::new();
    let (port, tcp, behind) = (free_port(), free_port(), free_port());
    let text = HAPROXY.replace("PORT", &port.to_string()).replace("TCP", &tcp.to_string());
    let config = world.file("haproxy.cfg", &text.replace("BEHIND", &behind.to_string()));
    let _web = world.web(behind);
    let _haproxy = world.serve(&["haproxy", "-db", "-f", &config], &[port, tcp]);
    for port in [port, tcp, port, tcp] {
        world.fetches(&[], &format!("http://127.0.0.1:{port}/pub/file"));
    }
}

const VSFTPD: &str = "listen=YES
listen_port=PORT
listen_address=127.0.0.1
background=NO
anonymous_enable=YES
local_enable=NO
anon_root=DIR/served
run_as_launching_user=YES
seccomp_sandbox=NO
connect_from_port_20=NO
secure_chroot_dir=DIR/served/pub
pasv_enable=YES
pasv_min_port=40000
pasv_max_port=60000
xferlog_enable=NO
";

#[test]
fn vsftpd_serves_files_in_passive_and_in_active_mode() {
    let world = World::new();
    let port = free_port();
    let config = world.file("vsftpd.conf", &VSFTPD.replace("PORT", &port.to_string()));
    let _vsftpd = world.serve(&["vsftpd", &config], &[port]);
    for mode in [&[][..], &["--disable-epsv"], &["-P", "-"], &["--disable-eprt", "-P", "-"]] {
        world.fetches(mode, &format!("ftp://127.0.0.1:{port}/pub/file"));
    }
}

#[test]
fn mosquitto_passes_words_on() {
    let world = World::new();
    let port = free_port().to_string();
    let user = if rustix::process::geteuid().is_root() { "user root\n" } else { "" };
    let text = format!("listener {port} 127.0.0.1\nallow_anonymous true\n{user}");
    let config = world.file("mosquitto.conf", &text);
    let _broker = world.serve(&["mosquitto", "-c", &config], &[port.parse().unwrap()]);
    let say = |word: &str, more: &[&str]| {
        let words = ["mosquitto_pub", "-h", "127.0.0.1", "-p", &port, "-q", "1", "-t", "a/b"];
        let words: Vec<&str> = words.iter().chain(&["-m", word]).chain(more).copied().collect();
        world.tried(&words);
    };
    // One that is kept for whoever comes, by which it is seen that he has.
    say("kept", &["-r"]);
    let words =
        ["mosquitto_sub", "-h", "127.0.0.1", "-p", &port, "-q", "1", "-t", "a/b", "-C", "4"];
    let mut hears = world.run(&words);
    let mut hears = hears.args(["-W", "60"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(hears.stdout.take().unwrap()));
    assert_eq!(lines.next().unwrap().unwrap(), "kept");
    for word in ["one", "two", "three"] {
        say(word, &[]);
    }
    let heard: Vec<String> = lines.map_while(Result::ok).collect();
    assert_eq!(heard, ["one", "two", "three"]);
    assert!(hears.wait().unwrap().success());
}

#[test]
fn openssh_runs_commands_copies_files_and_passes_ports_on() {
    let world = World::new();
    let (port, passed, behind) = (free_port(), free_port(), free_port());
    sshd::prepare(Path::new(&world.path("")));
    let text = format!("{}Subsystem sftp internal-sftp\n", sshd::CONFIG);
    let text = text.replace("PORT", &port.to_string()).replace("ADDRESS", "127.0.0.1");
    let config = world.file("sshd.conf", &text);
    // It is started by its whole name, or not at all.
    let _sshd = world.serve(&["sshd", "-D", "-e", "-f", &config], &[port]);
    let to = format!("{}@127.0.0.1", sshd::user());
    let (key, known) = (world.path("user"), format!("UserKnownHostsFile={}", world.path("known")));
    let new = ["StrictHostKeyChecking=no", &known, "BatchMode=yes"];
    let mut options = vec!["-F", "none", "-i", &key];
    new.iter().for_each(|option| options.extend(["-o", option]));
    let (port_text, file) = (port.to_string(), world.path("served/pub/file"));
    let ran = [&["ssh"], &options[..], &["-p", &port_text, &to, "cat", &file]].concat();
    let ran = world.tried(&ran);
    assert!(ran.stdout == world.content, "{} bytes", ran.stdout.len());
    let (copy, from) = (world.path("copied"), format!("{to}:{file}"));
    world.tried(&[&["scp", "-q"], &options[..], &["-P", &port_text, &from, &copy]].concat());
    assert!(std::fs::read(Path::new(&copy)).unwrap() == world.content);
    let _web = world.web(behind);
    let pass = format!("{passed}:127.0.0.1:{behind}");
    let passing = [&["ssh"], &options[..], &["-p", &port_text, "-N", "-L", &pass, &to]].concat();
    let _passing = world.serve(&passing, &[passed]);
    world.fetches(&[], &format!("http://127.0.0.1:{passed}/pub/file"));
}

#[test]
fn node_serves_and_asks_by_its_event_loop() {
    if !is_long() {
        return;
    }
    let world = World::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sockets/event_loop.js");
    let ran = world.run(&["node", script]).output().unwrap();
    assert!(ran.status.success(), "{}", said(&ran));
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "12 answers\nhalf closed\n", "{}", said(&ran));
}

#[test]
fn a_java_machine_selects_channels_that_were_registered_before_they_were_connected() {
    if !is_long() {
        return;
    }
    let world = World::new();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sockets/Channels.java");
    let ran = world.run(&["java", source]).output().unwrap();
    assert!(ran.status.success(), "{}", said(&ran));
    let selected = "selected\nfinished\npeer\nheard 5\n";
    let expected = format!("{selected}{selected}8 answers\n");
    assert_eq!(String::from_utf8_lossy(&ran.stdout), expected, "{}", said(&ran));
}

#[test]
fn postgresql_answers_many_clients_and_a_cancelled_one() {
    if !is_long() {
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sockets/postgresql.sh");
    let world = World::new();
    let run = world.run(&["true"]);
    let mut command = Command::new("bash");
    command.arg(script).arg(world.path("db")).arg(free_port().to_string());
    command.arg(env!("CARGO_BIN_EXE_gtp"));
    command.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{}", said(&ran));
    let told = String::from_utf8_lossy(&ran.stdout);
    assert_eq!(told, "20000|640000\nfailed 0\ndumped 20000\ncancelled\n", "{}", said(&ran));
}
