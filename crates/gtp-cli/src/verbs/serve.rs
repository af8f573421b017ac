//! `gtp serve`: lets others fetch from a directory, and perhaps write to it.
//!
//! Programs read standard output, whose first line says where it listens; people read standard
//! error, with a line for each begin and end of a session as long as these are few. A reader of
//! either stream cannot hold the server up. The audit, if there is one, has every session.

mod audit;
mod ration;
mod teller;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use gtp::{AUTHORIZED_KEYS_FILE, Alone, Failure, RunningServer, Server, ServerEvent};
use serde_json::json;
use tracing::{info, warn};

use crate::args::{OneEnd, ServeArgs};
use crate::log::SERVER;
use crate::output::{self, aside};
use crate::show::json as out;
use crate::signals::{ServerSignals, Wish};
use audit::Audit;
use teller::Teller;

pub fn run(args: ServeArgs) -> Result<ExitCode, Failure> {
    let runtime = super::runtime()?;
    runtime.block_on(serve(args))
}

async fn serve(args: ServeArgs) -> Result<ExitCode, Failure> {
    output::never_wait().map_err(super::other)?;
    let mut audit = args.audit.as_deref().map(Audit::open).transpose()?;
    let engines = args.engines.unwrap_or_else(gtp::default_engines);
    let host = super::host(&args.host).engines(engines).start()?;
    let mut signals = ServerSignals::take().map_err(super::other)?;
    let mut running = server(&args).start(&host).await?;
    announce(&args, &running);
    let mut teller = Teller::new(&args);
    let mut sum_up = tokio::time::interval(SUM_UP_SPAN);
    loop {
        tokio::select! {
            event = running.next_event() => match event {
                Some(event) => tell(&mut teller, audit.as_mut(), &event),
                None => break,
            },
            wish = signals.next() => match wish {
                Wish::Stop => break,
                Wish::Reload => reload(&running, audit.as_ref()),
            },
            _ = sum_up.tick() => {
                teller.stands(host.stands());
                teller.sum_up();
            }
        }
    }
    let stop_now = async { while signals.next().await != Wish::Stop {} };
    let ending = async {
        running.stop_and_hear(|event| tell(&mut teller, audit.as_mut(), &event)).await;
        teller.sum_up();
    };
    tokio::select! {
        () = ending => {}
        () = stop_now => std::process::exit(130),
    }
    output::drain();
    match audit.and_then(Audit::close) {
        Some(lost) => Err(lost),
        None => Ok(super::done()),
    }
}

fn tell(teller: &mut Teller, audit: Option<&mut Audit>, event: &ServerEvent) {
    if let Some(audit) = audit {
        audit.record(event);
    }
    teller.tell(event);
}

/// Reads again what can be read again while transfers go on.
fn reload(running: &RunningServer, audit: Option<&Audit>) {
    running.reload();
    if let Some(audit) = audit {
        audit.reopen();
    }
}

/// The server that the options describe.
fn server(args: &ServeArgs) -> Server {
    let mut server = Server::export(&args.dir).listen(&args.listen);
    if args.public {
        server = server.public();
    }
    if args.writable {
        server = server.writable();
    }
    if let Some(keys) = &args.authorized_keys {
        server = server.authorized_keys(keys);
    }
    if let Some(rate) = args.max_rate {
        server = server.max_rate(rate);
    }
    if args.audit.is_some() {
        server = server.tell_changes();
    }
    for law in &args.allow_control {
        server = server.allow(match law {
            OneEnd::Gtp2004 => Alone::Gtp2004,
            OneEnd::Rbudp => Alone::Rbudp,
            OneEnd::Sabul => Alone::Sabul,
            OneEnd::Tsunami => Alone::Tsunami,
        });
    }
    server
}

fn announce(args: &ServeArgs, running: &RunningServer) {
    let (address, fingerprint) = (running.address(), running.fingerprint());
    if args.json {
        out::line(&json!({
            "event": "listening",
            "addr": address.to_string(),
            "fingerprint": fingerprint.to_string(),
        }));
    }
    let who = match (args.public, args.writable) {
        (true, false) => "anyone may read",
        (true, true) => "anyone may read, authorized keys may write",
        (false, false) => "authorized keys may read",
        (false, true) => "authorized keys may read and write",
    };
    let dir = args.dir.display();
    info!(target: SERVER, "serving {dir} on {address} (TCP and UDP); {who}");
    info!(target: SERVER, "this host's key: {fingerprint}");
    let anyone = args.public && !args.writable;
    if let Some(list) = missing_list(anyone, args.authorized_keys.as_deref()) {
        warn!(target: SERVER, "{}", words_of_missing(&list));
    }
    let port = address.port();
    info!(
        target: SERVER,
        "elsewhere: gtp get gtp://HOST:{port}/PATH . --fingerprint {fingerprint}"
    );
}

/// The list of keys, if it is needed and not there.
pub(super) fn missing_list(anyone: bool, given: Option<&Path>) -> Option<PathBuf> {
    let usual = || gtp::config_dir().ok().map(|dir| dir.join(AUTHORIZED_KEYS_FILE));
    let list = given.map(Path::to_path_buf).or_else(usual)?;
    (!anyone && !list.exists()).then_some(list)
}

pub(super) fn say_missing(list: &Path) {
    aside(words_of_missing(list));
}

fn words_of_missing(list: &Path) -> String {
    let list = list.display();
    format!("no key is listed yet: put what `gtp id` prints elsewhere into {list}")
}

/// Time between two lines that sum up what was left out.
const SUM_UP_SPAN: Duration = Duration::from_secs(1);
