//! `gtp router`: an allocator for links that belong to no host.
//!
//! The router is the library's. Here are its key, its signals and its words; the first signal ends
//! it.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use gtp::{Failure, FailureKind, LinkShown, ROUTER_KEY_FILE, Rate, RouterKey, RouterServer, Shown};
use serde_json::{Value as Json, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::args::RouterArgs;
use crate::output;
use crate::show::json as out;
use crate::signals::Signals;
use crate::words::{count, say_rate};

pub fn run(args: RouterArgs) -> Result<ExitCode, Failure> {
    let key = key_file(&args)?;
    let is_new = !key.exists();
    let usage = |error: &dyn std::fmt::Display| Failure::new(FailureKind::Usage, error.to_string());
    let secret = RouterKey::load_or_create(&key).map_err(|error| usage(&error))?;
    let listen = address(&args.listen)?;
    let server = RouterServer::bind(listen, &args.link, secret).map_err(|error| {
        Failure::new(FailureKind::Destination, format!("cannot listen at {listen}: {error}"))
    })?;
    announce(&args, &server, is_new.then_some(&key));
    let (shown, waker) = (server.shown(), server.waker());
    let serving = std::thread::Builder::new().name("gtp-router".into());
    let serving = serving.spawn(move || server.run()).map_err(super::other)?;
    let runtime = super::runtime()?;
    runtime.block_on(tell(&args, &shown))?;
    shown.stop();
    waker.wake();
    let ended = serving.join().map_err(|_| super::other("the router has failed"))?;
    ended.map_err(super::other)?;
    if args.json {
        out::line(&stats(&shown));
    }
    Ok(ExitCode::SUCCESS)
}

fn key_file(args: &RouterArgs) -> Result<PathBuf, Failure> {
    match &args.key {
        Some(file) => Ok(file.clone()),
        None => Ok(gtp::config_dir().map_err(super::other)?.join(ROUTER_KEY_FILE)),
    }
}

fn address(text: &str) -> Result<SocketAddr, Failure> {
    let bad = |why: String| Failure::new(FailureKind::Usage, format!("--listen {text}: {why}"));
    let mut found = text.to_socket_addrs().map_err(|error| bad(error.to_string()))?;
    found.next().ok_or_else(|| bad("it has no address".into()))
}

fn announce(args: &RouterArgs, server: &RouterServer, made: Option<&PathBuf>) {
    let local = server.local_addr();
    if args.json {
        out::line(&json!({ "event": "listening", "address": local.to_string() }));
    }
    if let Some(key) = made {
        output::aside(format_args!(
            "gtp: made a key in {}; copy it to each host that is to ask this router",
            key.display()
        ));
    }
    output::aside(format_args!("gtp: allocates at {local} (UDP)"));
}

/// Waits for a signal, and shows numbers meanwhile.
async fn tell(args: &RouterArgs, shown: &Arc<Shown>) -> Result<(), Failure> {
    let mut signals = Signals::take().map_err(super::other)?;
    let Some(every) = args.stats else {
        signals.next().await;
        return Ok(());
    };
    let mut turn = interval(every);
    turn.set_missed_tick_behavior(MissedTickBehavior::Skip);
    turn.tick().await;
    loop {
        tokio::select! {
            _ = signals.next() => return Ok(()),
            _ = turn.tick() => show(args, shown),
        }
    }
}

fn show(args: &RouterArgs, shown: &Shown) {
    if args.json {
        out::line(&stats(shown));
    } else {
        shown.links().iter().enumerate().for_each(|(at, link)| say(at, link));
    }
}

/// A line for people about one link.
fn say(at: usize, link: &LinkShown) {
    let way = |way: usize| {
        let (granted, capacity) = (say_rate(link.granted[way]), say_rate(link.capacity[way]));
        let sessions = count(link.sessions[way] as u64, "session");
        format!("{granted} of {capacity} to {sessions}")
    };
    output::aside(format_args!("link {}: out {}, in {}", at + 1, way(0), way(1)));
}

fn stats(shown: &Shown) -> Json {
    let rates = |rates: [Rate; 2]| json!({ "out": rates[0].as_bps(), "in": rates[1].as_bps() });
    let link = |(at, link): (usize, &LinkShown)| {
        json!({
            "link": at + 1,
            "capacity": rates(link.capacity),
            "granted": rates(link.granted),
            "sessions": { "out": link.sessions[0], "in": link.sessions[1] },
        })
    };
    let links: Vec<Json> = shown.links().iter().enumerate().map(link).collect();
    let mut line = json!({ "event": "stats", "links": links });
    for (name, count) in shown.counts() {
        line[name] = json!(count);
    }
    line
}
