//! An emulated path to a server, in a process of its own that ends with its value.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use serde_json::Value;

use super::{Serving, World};

/// A path that is being emulated.
pub struct Relay {
    child: Child,
    port: u16,
}

impl Relay {
    /// A path to `server` through `links`, written as in a network file, of which `ways` says which
    /// ones lead up and which down.
    pub fn to(world: &World, server: &Serving, links: &str, ways: &str) -> Relay {
        let network = format!(
            "{links}\n[[path]]\nname = \"p\"\nlisten = \"127.0.0.1:0\"\n\
             target = \"127.0.0.1:{}\"\n{ways}\n",
            server.port
        );
        let file = world.path("network.toml");
        std::fs::write(&file, network).unwrap();
        let args = ["emulate", file.to_str().unwrap(), "--json"];
        let mut child = world.gtp("emulator", &args).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        out.read_line(&mut first).unwrap();
        // Keeps the pipe open, and empty.
        std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
        let first: Value = serde_json::from_str(&first).unwrap();
        let listen = first["paths"]["p"].as_str().unwrap();
        Relay { child, port: listen.rsplit(':').next().unwrap().parse().unwrap() }
    }

    /// The address of an object behind the path.
    pub fn url(&self, path: &str) -> String {
        format!("gtp://127.0.0.1:{}/{path}", self.port)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
