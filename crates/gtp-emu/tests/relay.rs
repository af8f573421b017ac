//! The relay with real sockets: what goes in comes out, late by what the links say.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use gtp_emu::{Carriage, Change, Emulator, Handle, NetSpec, Protocol};

const PATIENCE: Duration = Duration::from_secs(10);

/// A relay with one path "p" to `target` over a link "up" and a link "down".
fn relay(target: SocketAddr, up: &str, down: &str) -> Handle {
    let text = format!(
        r#"
        [[link]]
        name = "up"
        {up}
        [[link]]
        name = "down"
        {down}
        [[path]]
        name = "p"
        listen = "127.0.0.1:0"
        target = "{target}"
        up = ["up"]
        down = ["down"]
        "#
    );
    Emulator::relay(&NetSpec::parse(&text).expect("a good file")).expect("the relay starts")
}

fn entrance(handle: &Handle) -> SocketAddr {
    handle.listen("p").expect("the path listens")
}

fn udp_socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket
}

/// A TCP server that takes one connection, reads all of it, and answers with it.
fn echo_server() -> (SocketAddr, thread::JoinHandle<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("an address");
    let server = thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("a connection");
        let mut heard = Vec::new();
        socket.read_to_end(&mut heard).expect("the client's bytes and their end");
        socket.write_all(&heard).expect("the answer");
        heard.len()
    });
    (address, server)
}

fn counted(handle: &Handle) -> gtp_emu::Snapshot {
    handle.stats().expect("the relay runs")
}

#[test]
fn a_datagram_and_its_answer_take_the_delay_of_both_directions() {
    let target = udp_socket();
    let handle = relay(target.local_addr().unwrap(), "delay = \"20ms\"", "delay = \"30ms\"");
    let client = udp_socket();
    client.connect(entrance(&handle)).unwrap();
    let start = Instant::now();
    client.send(b"hello").unwrap();
    let mut buffer = [0; 64];
    let (n, from) = target.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..n], b"hello");
    assert!(start.elapsed() >= Duration::from_millis(20));
    target.send_to(b"well", from).unwrap();
    let n = client.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..n], b"well");
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(50), "{took:?}");
    let stats = counted(&handle);
    assert_eq!(stats.links[0].carried_bytes, 5 + 28);
    assert_eq!((stats.paths[0].up.out_packets, stats.paths[0].down.out_packets), (1, 1));
    assert_eq!(stats.paths[0].udp_clients, 1);
}

#[test]
fn datagrams_over_a_trace_leave_at_its_opportunities() {
    let target = udp_socket();
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("slow"), "60\n").expect("a trace");
    let address = target.local_addr().unwrap();
    let network = format!(
        r#"
        link = [{{ name = "up", trace = "slow", queue = "100KB" }}]
        [[path]]
        name = "p"
        listen = "127.0.0.1:0"
        target = "{address}"
        up = ["up"]
        down = []
        "#
    );
    let file = folder.path().join("net.toml");
    std::fs::write(&file, network).expect("a network");
    let spec = NetSpec::read(&file).expect("a good file");
    let handle = Emulator::relay(&spec).expect("the relay starts");
    let client = udp_socket();
    client.connect(entrance(&handle)).unwrap();
    let start = Instant::now();
    (0..4_u8).for_each(|n| assert_eq!(client.send(&[n; 1_400]).unwrap(), 1_400));
    let mut buffer = [0; 2_000];
    for n in 0..4 {
        assert_eq!(target.recv(&mut buffer).unwrap(), 1_400);
        assert_eq!(buffer[0], n);
    }
    // Three opportunities, 60 ms apart, lie between the first and the last.
    assert!(start.elapsed() >= Duration::from_millis(180), "{:?}", start.elapsed());
}

#[test]
fn clients_of_one_path_get_their_own_answers() {
    let target = udp_socket();
    let handle = relay(target.local_addr().unwrap(), "", "");
    let clients = [udp_socket(), udp_socket(), udp_socket()];
    for (n, client) in (0..).zip(&clients) {
        client.connect(entrance(&handle)).unwrap();
        client.send(&[n]).unwrap();
    }
    for _ in &clients {
        let mut buffer = [0; 8];
        let (n, from) = target.recv_from(&mut buffer).unwrap();
        target.send_to(&buffer[..n], from).unwrap();
    }
    for (n, client) in (0_u8..).zip(&clients) {
        let mut buffer = [0; 8];
        assert_eq!(client.recv(&mut buffer).unwrap(), 1);
        assert_eq!(buffer[0], n);
    }
}

#[test]
fn ecn_bits_pass_also_of_datagrams_that_the_kernel_glues_together() {
    use gtp_sys::udp::{EcnCodepoint, Header, ReceiveBatch, Sent, UdpSocket};
    let bind = || UdpSocket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let (client, target) = (bind(), bind());
    let handle = relay(target.local_addr(), "", "");
    let segments = client.max_segments().min(8);
    for bits in [Some(EcnCodepoint::Ect0), None, Some(EcnCodepoint::Ce)] {
        let header = Header { ecn: bits, ..Header::to(entrance(&handle)) };
        assert_eq!(client.send(&header, 500, &vec![0; 500 * segments]), Sent::Taken);
        let (poller, mut batch) = (gtp_sys::wake::Poller::new().unwrap(), ReceiveBatch::new());
        let mut came = 0;
        while came < segments {
            use std::os::fd::AsFd;
            poller.wait([target.as_fd()], &mut [false], None).unwrap();
            while target.receive(&mut batch).unwrap() {
                for (how, datagrams) in batch.pieces() {
                    assert_eq!(how.ecn, bits);
                    came += datagrams.count();
                }
            }
        }
    }
}

#[test]
fn datagrams_of_every_size_pass_unchanged_and_in_order() {
    let target = udp_socket();
    let handle = relay(target.local_addr().unwrap(), "delay = \"2ms\"", "");
    let client = udp_socket();
    client.connect(entrance(&handle)).unwrap();
    let sizes = [0, 1, 1_472, 1_472, 700, 1_472, 9_000, 60_000, 3, 3, 3, 65_507, 1];
    for (n, size) in (0_u8..).zip(sizes) {
        client.send(&vec![n; size]).unwrap();
    }
    let mut buffer = vec![0; 70_000];
    for (n, size) in (0_u8..).zip(sizes) {
        assert_eq!(target.recv(&mut buffer).unwrap(), size);
        assert!(buffer[..size].iter().all(|&b| b == n));
    }
}

#[test]
fn a_full_queue_drops_and_says_so() {
    let target = udp_socket();
    let link = "rate = \"100kbit\"\nqueue = \"15kB\"";
    let handle = relay(target.local_addr().unwrap(), link, "");
    let client = udp_socket();
    client.connect(entrance(&handle)).unwrap();
    for _ in 0..40 {
        client.send(&[0; 1_472]).unwrap();
    }
    let end = Instant::now() + PATIENCE;
    while counted(&handle).links[0].offered_packets < 40 && Instant::now() < end {
        thread::yield_now();
    }
    let stats = counted(&handle);
    let link = &stats.links[0];
    // Ten wait, one is served, and another for every 120 ms that the sending took.
    assert!(link.dropped_queue >= 25 && link.carried_packets >= 11, "{link:?}");
    assert!(link.queue_max_bytes <= 15_000);
}

#[test]
fn connections_carry_all_bytes_and_half_closes_through_loss() {
    let (target, server) = echo_server();
    let lossy = "delay = \"3ms\"\nloss = \"2%\"\nrate = \"200Mbit\"\nqueue = \"20ms\"";
    let handle = relay(target, lossy, lossy);
    let mut client = TcpStream::connect(entrance(&handle)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let sent: Vec<u8> = (0..3_000_000_u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
    client.write_all(&sent).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).unwrap();
    assert_eq!(server.join().unwrap(), sent.len());
    assert!(heard == sent, "the echo is what was sent");
    let stats = counted(&handle);
    assert!(stats.links[0].dropped_loss > 10, "{stats:?}");
    assert_eq!(stats.paths[0].tcp_connections, 0);
}

#[test]
fn a_connections_first_answer_takes_two_round_trips() {
    let (target, _server) = echo_server();
    let handle = relay(target, "delay = \"20ms\"", "delay = \"20ms\"");
    let start = Instant::now();
    let mut client = TcpStream::connect(entrance(&handle)).unwrap();
    client.write_all(b"x").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).unwrap();
    // One for the handshake, one for the question and its answer.
    assert!(start.elapsed() >= Duration::from_millis(80), "{:?}", start.elapsed());
    assert_eq!(heard, b"x");
}

#[test]
fn a_refused_connection_is_reset() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let handle = relay(closed, "delay = \"2ms\"", "");
    let mut client = TcpStream::connect(entrance(&handle)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let error = client.read(&mut [0; 8]).expect_err("nobody is there");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_slow_reader_holds_the_sender_back() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let handle = relay(listener.local_addr().unwrap(), "delay = \"1ms\"", "");
    let mut client = TcpStream::connect(entrance(&handle)).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let (piece, mut sent) = (vec![7; 1 << 20], 0);
    // Window and socket buffers together stay far below this.
    let limit = 200 << 20;
    while sent < limit {
        match client.write(&piece) {
            Ok(n) => sent += n,
            Err(_) => break,
        }
    }
    assert!(sent < limit, "the sender was not held back");
    client.shutdown(Shutdown::Write).unwrap();
    let mut heard = Vec::new();
    server.read_to_end(&mut heard).unwrap();
    assert_eq!(heard.len(), sent);
}

#[test]
fn udp_may_be_blocked_while_connections_pass() {
    let datagrams = udp_socket();
    let address = datagrams.local_addr().unwrap();
    let listener = TcpListener::bind(address).unwrap();
    let handle = relay(address, "", "");
    handle.set_carriage("p", Protocol::Udp, Carriage::Blocked).unwrap();
    let client = udp_socket();
    client.connect(entrance(&handle)).unwrap();
    client.send(b"swallowed").unwrap();
    let mut stream = TcpStream::connect(entrance(&handle)).unwrap();
    stream.write_all(b"passes").unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let mut buffer = [0; 6];
    server.read_exact(&mut buffer).unwrap();
    assert_eq!(&buffer, b"passes");
    let end = Instant::now() + PATIENCE;
    while counted(&handle).paths[0].up.dropped_packets == 0 && Instant::now() < end {
        thread::yield_now();
    }
    assert_eq!(counted(&handle).paths[0].up.dropped_packets, 1);
    handle.set_carriage("p", Protocol::Udp, Carriage::Carried).unwrap();
    client.send(b"now").unwrap();
    let n = datagrams.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..n], b"now");
}

#[test]
fn a_cut_link_loses_datagrams_until_it_is_mended() {
    let target = udp_socket();
    let handle = relay(target.local_addr().unwrap(), "", "");
    let client = udp_socket();
    client.connect(entrance(&handle)).unwrap();
    handle.set_link("up", Change::DOWN).unwrap();
    client.send(b"lost").unwrap();
    let end = Instant::now() + PATIENCE;
    while counted(&handle).links[0].dropped_down == 0 && Instant::now() < end {
        thread::yield_now();
    }
    handle.set_link("up", Change::UP).unwrap();
    client.send(b"found").unwrap();
    let mut buffer = [0; 8];
    let n = target.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..n], b"found");
    assert!(handle.set_link("sideways", Change::UP).is_err());
    let last = handle.stop().unwrap();
    assert_eq!((last.links[0].dropped_down, last.links[0].carried_packets), (1, 1));
}
