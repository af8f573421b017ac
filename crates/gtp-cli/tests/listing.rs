//! `gtp ls` of a directory with many names: it prints them while they come.

mod common;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use common::World;

/// Stands before a server: passes so many bytes of its answer on, and the rest once it is told to.
/// Returns its port.
fn stand_before(server: u16, most: u64, go_on: Receiver<()>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut server = TcpStream::connect(("127.0.0.1", server)).unwrap();
        let (mut asks, mut asked) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        // The one that goes first ends the other.
        thread::spawn(move || io::copy(&mut asks, &mut asked));
        io::copy(&mut (&server).take(most), &mut client).unwrap();
        client.flush().unwrap();
        if go_on.recv().is_ok() {
            let _ = io::copy(&mut server, &mut client);
        }
        let _ = client.shutdown(Shutdown::Both);
    });
    port
}

#[test]
fn names_are_printed_before_the_last_of_them_have_come() {
    let world = World::new();
    for n in 0..5_000 {
        std::fs::write(world.path(&format!("export/{n:04}")), b"x").unwrap();
    }
    let server = world.serve("server", &["--public"]);
    for json in [&["--json"][..], &[]] {
        let (tell, told) = channel();
        let port = stand_before(server.port, 60_000, told);
        let url = format!("gtp://127.0.0.1:{port}/");
        let args = [&["ls", &url, "--accept-new"][..], json].concat();
        let mut ls = world.gtp("client", &args).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(ls.stdout.take().unwrap()).lines();
        assert!(lines.next().unwrap().unwrap().contains("0000"));
        tell.send(()).unwrap();
        assert_eq!(lines.map(Result::unwrap).count(), 4_999);
        assert!(ls.wait().unwrap().success());
    }
}

#[test]
fn a_listing_that_breaks_off_names_what_was_left_out_until_then() {
    let world = World::new();
    for n in 0..900 {
        let link = world.path(&format!("export/{n:0200}"));
        std::os::unix::fs::symlink("nowhere", link).unwrap();
    }
    let server = world.serve("server", &["--public"]);
    for json in [&["--json"][..], &[]] {
        let (tell, told) = channel();
        let port = stand_before(server.port, 40_000, told);
        drop(tell); // The rest never comes.
        let url = format!("gtp://127.0.0.1:{port}/");
        let broken = world.run("client", &[&["ls", &url, "--accept-new"][..], json].concat());
        let said = String::from_utf8(broken.stdout).unwrap();
        let mark = if json.is_empty() { "(left out)" } else { "\"skipped\"" };
        let count = said.lines().filter(|line| line.contains(mark)).count();
        assert!(count > 0 && count < 900, "{count} named");
        assert!(!broken.status.success());
    }
}
