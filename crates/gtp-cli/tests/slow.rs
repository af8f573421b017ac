//! A server that gets no processor for a while, just when its clients send their first datagrams:
//! they wait for it, and blame no firewall.

mod common;

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use common::{World, bytes, events, pass_tcp};
use rustix::process::{Pid, Signal, kill_process};

/// Longer than a client waits between two rounds of its first datagrams.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(1_500);

/// A way to a server that holds datagrams back until it is opened.
struct Way {
    port: u16,
    near: UdpSocket,
    server: u16,
}

impl Way {
    fn to(server: u16) -> Way {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        pass_tcp(listener, server);
        Way { port, near: UdpSocket::bind(("127.0.0.1", port)).unwrap(), server }
    }

    /// Waits until the client has given up being answered, and passes on what it has sent.
    fn hold(&self) -> UdpSocket {
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        far.connect(("127.0.0.1", self.server)).unwrap();
        self.near.set_read_timeout(Some(BETWEEN_ROUNDS)).unwrap();
        let mut buffer = [0; 65_536];
        while let Ok(length) = self.near.recv(&mut buffer) {
            far.send(&buffer[..length]).unwrap();
        }
        self.near.set_read_timeout(None).unwrap();
        far
    }

    /// Passes on whatever comes from now on.
    fn open(self, far: UdpSocket) {
        let (near, far) = (Arc::new(self.near), Arc::new(far));
        std::thread::spawn(move || {
            let mut client: Option<SocketAddr> = None;
            let mut buffer = [0; 65_536];
            while let Ok((length, from)) = near.recv_from(&mut buffer) {
                if client.replace(from).is_none() {
                    let (far, near) = (Arc::clone(&far), Arc::clone(&near));
                    std::thread::spawn(move || pass_answers(&far, &near, from));
                }
                // As on any way, some may be lost.
                let _ = far.send(&buffer[..length]);
            }
        });
    }
}

fn pass_answers(far: &UdpSocket, near: &UdpSocket, client: SocketAddr) {
    let mut buffer = [0; 65_536];
    while let Ok(length) = far.recv(&mut buffer) {
        // As on any way, some may be lost.
        let _ = near.send_to(&buffer[..length], client);
    }
}

/// Runs a client's command against a server that stands still from the client's first datagram
/// until the client has given up being answered.
fn beside_a_standstill(world: &World, words: impl Fn(&str) -> Vec<String>) -> Output {
    world.list_client();
    let server = world.serve("server", &["--public", "--writable"]);
    let way = Way::to(server.port);
    let words = words(&format!("gtp://127.0.0.1:{}", way.port));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut command = world.gtp("client", &words);
    let client = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    way.near.peek(&mut [0]).unwrap();
    let pid = Pid::from_raw(server.id() as i32).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let far = way.hold();
    way.open(far);
    kill_process(pid, Signal::CONT).unwrap();
    client.wait_with_output().unwrap()
}

/// That the server's standstill was met and named, and that all went well after it.
fn check(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("is slow: ") && !said.contains("firewall"), "{said}");
    assert!(events(output).iter().any(|event| event["event"] == "retry"), "{said}");
}

#[test]
fn a_get_waits_for_a_server_that_stands_still() {
    let world = World::new();
    let content = world.export("a", 300_000);
    let words = |url: &str| {
        let words = ["get", &format!("{url}/a"), "out", "--accept-new", "--json"];
        words.map(str::to_owned).to_vec()
    };
    check(&beside_a_standstill(&world, words));
    assert!(std::fs::read(world.path("out")).unwrap() == content);
}

#[test]
fn a_put_waits_for_a_server_that_stands_still() {
    let world = World::new();
    let content = bytes(300_000, 5);
    std::fs::write(world.path("a"), &content).unwrap();
    let words = |url: &str| {
        let words = ["put", "a", &format!("{url}/b"), "--accept-new", "--json"];
        words.map(str::to_owned).to_vec()
    };
    check(&beside_a_standstill(&world, words));
    assert!(std::fs::read(world.path("export").join("b")).unwrap() == content);
}
