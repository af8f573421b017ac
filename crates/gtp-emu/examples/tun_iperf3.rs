//! What kernel TCP and UDP get through the router, measured by iperf3 between two namespaces.
//!
//! `tun_iperf3 [RATE] [DELAY] [LAW] [SECONDS] [RUNS]`, by default 1.2Gbit 5ms cubic 5 3. LAW is a
//! congestion control of the kernel, or `udp` for 1,472-byte datagrams at 1 Gbit/s. Needs root
//! and iperf3. Prints one line per run.

use std::process::{Command, Stdio};

use gtp_emu::units_text::{parse_rate, parse_span};
use gtp_emu::{Emulator, NetSpec};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |n: usize, usual: &str| args.get(n).cloned().unwrap_or(usual.to_owned());
    let (rate, delay) = (arg(0, "1.2Gbit"), arg(1, "5ms"));
    parse_rate(&rate).expect("a rate");
    parse_span(&delay).expect("a delay");
    let (law, seconds) = (arg(2, "cubic"), arg(3, "5"));
    let runs: usize = arg(4, "3").parse().expect("runs");
    let mut rates: Vec<f64> = (0..runs).map(|_| run(&rate, &delay, &law, &seconds)).collect();
    rates.sort_by(f64::total_cmp);
    println!("median: {:.1} Mbit/s of IP packets received", rates[runs / 2]);
}

fn run(rate: &str, delay: &str, law: &str, seconds: &str) -> f64 {
    let link = |name: &str| {
        format!("[[link]]\nname = \"{name}\"\nrate = \"{rate}\"\ndelay = \"{delay}\"\n")
    };
    let host = |name: &str, n: u8| {
        format!(
            "[[host]]\nname = \"{name}\"\nnamespace = \"gtp-iperf-{name}\"\n\
             address = \"10.78.0.{n}/24\"\n"
        )
    };
    let route = |from: &str, to: &str, link: &str| {
        format!("[[route]]\nfrom = \"{from}\"\nto = \"{to}\"\nlinks = [\"{link}\"]\n")
    };
    let spec = [
        link("there"),
        link("back"),
        host("a", 1),
        host("b", 2),
        route("a", "b", "there"),
        route("b", "a", "back"),
    ];
    let spec = NetSpec::parse(&spec.concat()).expect("a spec");
    let handle = Emulator::router(&spec).expect("root, and iproute2");
    let exec = |namespace: &str, words: &[&str]| {
        let mut program = Command::new("ip");
        program.args(["netns", "exec", namespace]).args(words);
        program.stdout(Stdio::null());
        program
    };
    let server = ["iperf3", "-s", "-1", "-D", "-p", "5999"];
    assert!(exec("gtp-iperf-b", &server).status().expect("iperf3").success());
    let mut client = vec!["iperf3", "-c", "10.78.0.2", "-p", "5999", "-t", seconds, "-i", "0"];
    if law == "udp" {
        client.extend(["-u", "-b", "981M", "-l", "1472"]);
    } else {
        client.extend(["-C", law]);
    }
    let mut attempts = 0;
    while !exec("gtp-iperf-a", &client).stderr(Stdio::null()).status().expect("iperf3").success() {
        attempts += 1;
        assert!(attempts < 50, "iperf3 does not get through");
        std::thread::park_timeout(std::time::Duration::from_millis(100));
    }
    let stats = handle.stop().expect("the router ran");
    let (link, path, late) = (&stats.links[0], &stats.paths[0], stats.timing_error);
    let seconds: f64 = seconds.parse().expect("seconds");
    let rate = path.up.out_bytes as f64 * 8.0 / seconds / 1e6;
    println!(
        "{law}: {rate:.1} Mbit/s, {} packets, queue drops {}, failed {}, late p50 {:.0} us \
         p99 {:.0} us max {:.0} us",
        path.up.out_packets,
        link.dropped_queue,
        stats.failed_packets,
        late.p50_s * 1e6,
        late.p99_s * 1e6,
        late.max_s * 1e6
    );
    rate
}
