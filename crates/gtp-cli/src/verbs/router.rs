//! `gtp router`: an allocator for links that belong to no host.
//!
//! The router is the library's. Here are its key, its signals and its words, to people and to the
//! system's manager. The first signal ends it, and so does its own end, which is a failure.

mod metrics;

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use gtp::{Failure, FailureKind, LinkShown, ROUTER_KEY_FILE, Rate, RouterKey, RouterServer, Shown};
use serde_json::{Value as Json, json};
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::args::RouterArgs;
use crate::manager::{Manager, Serving};
use crate::routers::LINKS_MOST;
use crate::show::json as out;
use crate::signals::Signals;
use crate::words::{count, say_rate};
use crate::{output, pages};

pub fn run(args: RouterArgs) -> Result<ExitCode, Failure> {
    check_links(&args)?;
    let key = key_file(&args)?;
    let is_new = !key.exists();
    let usage = |error: &dyn std::fmt::Display| Failure::new(FailureKind::Usage, error.to_string());
    let secret = RouterKey::load_or_create(&key).map_err(|error| usage(&error))?;
    let listen = address(&args.listen)?;
    let server = RouterServer::bind(listen, &args.link, secret).map_err(|error| {
        Failure::new(FailureKind::Destination, format!("cannot listen at {listen}: {error}"))
    })?;
    let (shown, waker) = (server.shown(), server.waker());
    let numbers = args.metrics.map(|at| pages::serve(at, metrics::PAGE, &shown)).transpose();
    let numbers = numbers.map_err(|failure| failure.about("--metrics"))?;
    let runtime = super::runtime()?;
    // Before anybody is told that it listens, and may send one.
    let signals = runtime.block_on(async { Signals::take() }).map_err(super::other)?;
    announce(&args, &server, is_new.then_some(&key));
    let (serving, ended) = start(server)?;
    runtime.block_on(tell(&args, &shown, signals, ended));
    drop(numbers);
    shown.stop();
    waker.wake();
    let ended = serving.join().map_err(|_| super::other("the router has failed"))?;
    ended.map_err(super::other)?;
    if args.json {
        out::line(&stats(&shown));
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts the router's thread; the second value resolves however it ends.
fn start(server: RouterServer) -> Result<(Serves, oneshot::Receiver<()>), Failure> {
    let (alive, ended) = oneshot::channel::<()>();
    let thread = std::thread::Builder::new().name("gtp-router".into());
    let serving = thread.spawn(move || {
        let _alive = alive;
        server.run()
    });
    Ok((serving.map_err(super::other)?, ended))
}

type Serves = JoinHandle<std::io::Result<()>>;

fn check_links(args: &RouterArgs) -> Result<(), Failure> {
    let (given, most) = (args.link.len(), usize::from(LINKS_MOST));
    if given > most {
        let text = format!("--link: {given} links, and a router has {most} at most: start another");
        return Err(Failure::new(FailureKind::Usage, text));
    }
    Ok(())
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

/// Waits for a signal or the end of the router's thread, and shows numbers meanwhile.
async fn tell(
    args: &RouterArgs,
    shown: &Arc<Shown>,
    mut signals: Signals,
    mut ended: oneshot::Receiver<()>,
) {
    let manager = Manager::of_process();
    manager.ready();
    tokio::spawn(manager.clone().hear(Allocating(shown.clone())));
    let mut turn = interval(args.stats.unwrap_or(SILENT));
    turn.set_missed_tick_behavior(MissedTickBehavior::Skip);
    turn.tick().await;
    loop {
        tokio::select! {
            () = signals.next() => return manager.stopping(Duration::ZERO),
            // Its thread says why when it is joined.
            _ = &mut ended => return,
            _ = turn.tick() => {
                if args.stats.is_some() {
                    show(args, shown);
                }
            }
        }
    }
}

/// A turn of nothing, where no numbers are asked for.
const SILENT: Duration = Duration::from_secs(3_600);

/// Whether the router goes on, for the manager: its thread shows its numbers four times a second.
struct Allocating(Arc<Shown>);

impl Serving for Allocating {
    async fn beat(&mut self) -> Option<String> {
        let before = self.0.turns();
        while self.0.turns() == before {
            // The router's thread wakes nobody; the manager waits for seconds.
            sleep(Duration::from_millis(50)).await;
        }
        let sessions: usize = self.0.links().iter().flat_map(|link| link.sessions).sum();
        Some(format!("allocates; {}", count(sessions as u64, "session")))
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

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn the_end_of_the_routers_thread_ends_the_waiting_for_a_signal() {
        let links = vec![[Rate::from_mbps(1); 2]];
        for stats in [None, Some(Duration::from_secs(60))] {
            let (link, listen) = (links.clone(), "127.0.0.1:0".to_owned());
            let args = RouterArgs { link, listen, key: None, stats, metrics: None, json: false };
            let (alive, ended) = oneshot::channel();
            drop(alive);
            let shown = Arc::default();
            let waited = tell(&args, &shown, Signals::take().unwrap(), ended);
            assert_eq!(timeout(Duration::from_secs(30), waited).await, Ok(()));
        }
    }
}
