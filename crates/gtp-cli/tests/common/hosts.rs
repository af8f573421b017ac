//! Hosts, each a network namespace: two with one link between them, on which UDP can be blocked,
//! three with a link between each two, or any number on one network.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Both of them, gone when dropped.
pub struct Hosts {
    near: String,
    far: String,
}

/// The address of the far host.
pub const FAR: &str = "10.85.0.2";

/// Whereto nothing gets through any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    Near,
    Far,
}

impl Hosts {
    pub fn new() -> Hosts {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let id = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let hosts = Hosts { near: format!("gtp-near-{id}"), far: format!("gtp-far-{id}") };
        for name in [&hosts.near, &hosts.far] {
            make(name);
        }
        let (near, far) = (hosts.near.as_str(), hosts.far.as_str());
        ip(&["-n", near, "link", "add", "va", "type", "veth", "peer", "name", "vb", "netns", far]);
        for (name, device, address) in [(near, "va", "10.85.0.1/24"), (far, "vb", "10.85.0.2/24")] {
            ip(&["-n", name, "addr", "add", address, "dev", device]);
            ip(&["-n", name, "link", "set", device, "up"]);
        }
        hosts
    }

    /// Has the near host send packets of no more bytes than this.
    pub fn set_near_mtu(&self, bytes: u32) {
        ip(&["-n", &self.near, "link", "set", "va", "mtu", &bytes.to_string()]);
    }

    /// A command at the near host.
    pub fn near(&self, command: &Command) -> Command {
        inside(&self.near, command)
    }

    /// A command at the far host.
    pub fn far(&self, command: &Command) -> Command {
        inside(&self.far, command)
    }

    /// Drops what comes to a host and is so: `ipproto udp`, and perhaps a port. The sender is not
    /// told.
    pub fn block(&self, to: To, what: &str) {
        self.rule("add", to, what);
    }

    /// Lets it through again.
    pub fn unblock(&self, to: To, what: &str) {
        self.rule("del", to, what);
    }

    /// Drops all of TCP and UDP that comes to the far host but for TCP to this port.
    pub fn leave_open(&self, port: u16) {
        let dport = port.to_string();
        let open = ["ipproto", "tcp", "dport", &dport, "lookup", "local"];
        let rule = ["-n", &self.far, "rule", "add", "pref", "1", "iif", "vb"];
        ip(&[&rule[..], &open].concat());
        for all in ["tcp", "udp"] {
            let rule = ["-n", &self.far, "rule", "add", "pref", "2", "iif", "vb", "ipproto", all];
            ip(&[&rule[..], &["blackhole"]].concat());
        }
    }

    /// Lets nothing in to a host by UDP but what answers what it has sent, and by TCP only
    /// connections to this port, if one is named.
    pub fn answers_only(&self, to: To, port: Option<u16>) {
        let (name, device) = match to {
            To::Near => (&self.near, "va"),
            To::Far => (&self.far, "vb"),
        };
        let tcp = port.map_or(String::new(), |port| {
            format!("iifname {device} tcp dport != {port} ct state new drop\n")
        });
        nft(
            name,
            &format!(
                "table inet wall {{\nchain in {{\ntype filter hook input priority 0;\n\
             ct state established,related accept\n\
                 iifname {device} meta l4proto udp drop\n{tcp}}}\n}}\n"
            ),
        );
    }

    fn rule(&self, verb: &str, to: To, what: &str) {
        let (name, device) = match to {
            To::Near => (&self.near, "va"),
            To::Far => (&self.far, "vb"),
        };
        let rule = ["-n", name, "rule", verb, "pref", "1", "iif", device, "blackhole"];
        ip(&[&rule[..], &what.split(' ').collect::<Vec<_>>()].concat());
    }
}

/// Three hosts with a link between each two, gone when dropped.
pub struct Triangle {
    /// The near one and the two far ones.
    names: [String; 3],
}

/// The addresses at which the near host reaches the far ones.
pub const FAR_ENDS: [&str; 2] = ["10.86.1.2", "10.86.2.2"];

impl Triangle {
    pub fn new() -> Triangle {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let id = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let names = ["n", "a", "b"].map(|name| format!("gtp-{name}-{id}"));
        let hosts = Triangle { names };
        for name in &hosts.names {
            make(name);
        }
        // The network's number, and whom it joins.
        for (net, one, other) in [(1, 0, 1), (2, 0, 2), (3, 1, 2)] {
            let (one, other) = (&hosts.names[one], &hosts.names[other]);
            let devices = [format!("v{net}a"), format!("v{net}b")];
            let [da, db] = &devices;
            ip(&["-n", one, "link", "add", da, "type", "veth", "peer", "name", db, "netns", other]);
            for (host, device, end) in [(one, da, 1), (other, db, 2)] {
                let address = format!("10.86.{net}.{end}/24");
                ip(&["-n", host, "addr", "add", &address, "dev", device]);
                ip(&["-n", host, "link", "set", device, "up"]);
            }
        }
        hosts
    }

    /// A command at the near host.
    pub fn near(&self, command: &Command) -> Command {
        inside(&self.names[0], command)
    }

    /// A command at a far host.
    pub fn far(&self, number: usize, command: &Command) -> Command {
        inside(&self.names[1 + number], command)
    }

    /// Drops all that comes over the link between the far hosts.
    pub fn part(&self) {
        for (name, device) in [(&self.names[1], "v3a"), (&self.names[2], "v3b")] {
            ip(&["-n", name, "rule", "add", "pref", "1", "iif", device, "blackhole"]);
        }
    }

    /// Bytes that have come to the near host from a far one.
    pub fn came_near(&self, number: usize) -> u64 {
        let file = format!("/sys/class/net/v{}a/statistics/rx_bytes", 1 + number);
        let output = self.near(Command::new("cat").arg(file)).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
    }
}

impl Drop for Triangle {
    fn drop(&mut self) {
        for name in &self.names {
            // It may never have come to be.
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

/// A host with a link to each of several others, gone when dropped.
pub struct Star {
    hub: String,
    rim: Vec<String>,
}

/// The address of one of the others.
pub fn rim(number: usize) -> String {
    format!("10.88.{number}.2")
}

impl Star {
    pub fn new(others: usize) -> Star {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let id = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let rim = (0..others).map(|n| format!("gtp-r{n}-{id}")).collect();
        let star = Star { hub: format!("gtp-hub-{id}"), rim };
        make(&star.hub);
        for (n, other) in star.rim.iter().enumerate() {
            make(other);
            let (hub, device) = (star.hub.as_str(), format!("v{n}"));
            let pair = ["type", "veth", "peer", "name", "vb", "netns", other];
            ip(&[&["-n", hub, "link", "add", &device][..], &pair].concat());
            for (host, device, end) in [(hub, device.as_str(), 1), (other, "vb", 2)] {
                let address = format!("10.88.{n}.{end}/24");
                ip(&["-n", host, "addr", "add", &address, "dev", device]);
                ip(&["-n", host, "link", "set", device, "up"]);
            }
        }
        star
    }

    /// A command at the host in the middle.
    pub fn hub(&self, command: &Command) -> Command {
        inside(&self.hub, command)
    }

    /// A command at one of the others.
    pub fn rim(&self, number: usize, command: &Command) -> Command {
        inside(&self.rim[number], command)
    }
}

impl Drop for Star {
    fn drop(&mut self) {
        for name in self.rim.iter().chain([&self.hub]) {
            // It may never have come to be.
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

/// Two hosts, and a third one between them that passes on nothing unless it is told to. Gone when
/// dropped.
pub struct Row {
    near: String,
    middle: String,
    far: String,
}

/// The addresses of a row's hosts: the near one's, the middle one's towards it and towards the far
/// one, and the far one's.
pub const ROW: [&str; 4] = ["10.87.1.1", "10.87.1.2", "10.87.2.2", "10.87.2.1"];

impl Row {
    pub fn new() -> Row {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let id = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let [near, middle, far] = ["rn", "rm", "rf"].map(|name| format!("gtp-{name}-{id}"));
        let row = Row { near, middle, far };
        for name in [&row.near, &row.middle, &row.far] {
            make(name);
        }
        let ends =
            [(&row.near, "na", ROW[0], "v1", ROW[1]), (&row.far, "fb", ROW[3], "v2", ROW[2])];
        for (end, device, address, other, gate) in ends {
            let middle = row.middle.as_str();
            let pair = ["type", "veth", "peer", "name", other, "netns", middle];
            ip(&[&["-n", end.as_str(), "link", "add", device][..], &pair].concat());
            for (host, device, address) in [(end.as_str(), device, address), (middle, other, gate)]
            {
                ip(&["-n", host, "addr", "add", &format!("{address}/24"), "dev", device]);
                ip(&["-n", host, "link", "set", device, "up"]);
            }
        }
        row
    }

    /// The far host is behind a translator of addresses, which leads ssh's port to it.
    pub fn far_is_behind_nat(&self) {
        let rules = format!("tcp dport 22 dnat to {}", ROW[3]);
        self.translate(&self.far, ROW[2], ("v1", &rules));
    }

    /// The near host is behind one, which leads nothing to it.
    pub fn near_is_behind_nat(&self) {
        self.translate(&self.near, ROW[1], ("v2", ""));
    }

    /// Hides a host behind the middle one, which leads what comes in from outside as the rules say.
    fn translate(&self, hidden: &str, gate: &str, (outside, rules): (&str, &str)) {
        ip(&["-n", hidden, "route", "add", "default", "via", gate]);
        let mut sysctl = Command::new("sysctl");
        let forward = inside(&self.middle, sysctl.args(["-q", "-w", "net.ipv4.ip_forward=1"]));
        assert!({ forward }.status().unwrap().success());
        nft(
            &self.middle,
            &format!(
                "table ip translator {{\nchain out {{\ntype nat hook postrouting priority 100;\n\
                 oifname {outside} masquerade\n}}\n\
                 chain in {{\ntype nat hook prerouting priority -100;\n\
                 {}\n}}\n}}\n",
                if rules.is_empty() { String::new() } else { format!("iifname {outside} {rules}") }
            ),
        );
    }

    pub fn near(&self, command: &Command) -> Command {
        inside(&self.near, command)
    }

    pub fn middle(&self, command: &Command) -> Command {
        inside(&self.middle, command)
    }

    pub fn far(&self, command: &Command) -> Command {
        inside(&self.far, command)
    }
}

impl Drop for Row {
    fn drop(&mut self) {
        for name in [&self.near, &self.middle, &self.far] {
            // It may never have come to be.
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

/// Makes a namespace in which rules can drop what comes in.
fn make(name: &str) {
    ip(&["netns", "add", name]);
    ip(&["-n", name, "link", "set", "lo", "up"]);
    ip(&["-n", name, "rule", "add", "pref", "10", "lookup", "local"]);
    ip(&["-n", name, "rule", "del", "pref", "0"]);
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in [&self.near, &self.far] {
            // It may never have come to be.
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

fn inside(namespace: &str, command: &Command) -> Command {
    let mut inside = Command::new("ip");
    inside.args(["netns", "exec", namespace]).arg(command.get_program());
    inside.args(command.get_args()).stdin(Stdio::null());
    inside.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(dir) = command.get_current_dir() {
        inside.current_dir(dir);
    }
    inside
}

/// Gives a namespace these rules.
#[track_caller]
fn nft(namespace: &str, rules: &str) {
    let mut nft = Command::new("ip");
    nft.args(["netns", "exec", namespace, "nft", "-f", "-"]).stdin(Stdio::piped());
    let mut nft = nft.spawn().expect("nft is needed: scripts/setup test");
    nft.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
    assert!(nft.wait().unwrap().success(), "nft: {rules}");
}

#[track_caller]
fn ip(args: &[&str]) {
    let output = Command::new("ip").args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "ip {args:?}: {said}");
}

/// Hosts on one network, gone when dropped.
pub struct Mesh {
    switch: String,
    hosts: Vec<String>,
}

/// The address of a host of a mesh.
pub fn meshed(number: usize) -> String {
    format!("10.89.0.{}", number + 1)
}

impl Mesh {
    pub fn new(hosts: usize) -> Mesh {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let id = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let hosts = (0..hosts).map(|n| format!("gtp-m{n}-{id}")).collect();
        let mesh = Mesh { switch: format!("gtp-sw-{id}"), hosts };
        let switch = mesh.switch.as_str();
        make(switch);
        ip(&["-n", switch, "link", "add", "sw0", "type", "bridge"]);
        ip(&["-n", switch, "link", "set", "sw0", "up"]);
        for (n, host) in mesh.hosts.iter().enumerate() {
            make(host);
            let port = format!("p{n}");
            let pair = ["type", "veth", "peer", "name", "v", "netns", host];
            ip(&[&["-n", switch, "link", "add", &port][..], &pair].concat());
            ip(&["-n", switch, "link", "set", &port, "master", "sw0", "up"]);
            ip(&["-n", host, "addr", "add", &format!("{}/24", meshed(n)), "dev", "v"]);
            ip(&["-n", host, "link", "set", "v", "up"]);
        }
        mesh
    }

    /// A command at a host.
    pub fn at(&self, number: usize, command: &Command) -> Command {
        inside(&self.hosts[number], command)
    }

    /// Bytes that a host has sent and received so far.
    pub fn moved(&self, number: usize) -> u64 {
        let count = |what: &str| {
            let file = format!("/sys/class/net/v/statistics/{what}_bytes");
            let output = self.at(number, Command::new("cat").arg(file)).output().unwrap();
            String::from_utf8(output.stdout).unwrap().trim().parse::<u64>().unwrap()
        };
        count("rx") + count("tx")
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        for name in self.hosts.iter().chain([&self.switch]) {
            // It may never have come to be.
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}
