//! A far end that sends to another one, which the near end has started as well.
//!
//! It shows the other far end a key made for this alone, and reports what happens to the near end.
//! Where it cannot reach the other far end, its connections go through the near end as links. It
//! stops when the near end says so, is gone, or is silent for too long, and keeps nothing.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use gtp::{Detour, Failure, FailureKind, Host, Identity, Put, Stopper, Transfer, Url};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, timeout};

use super::far_end::{FarEndArgs, Heard, SILENCE_SPAN, home, say};
use super::hello::{ADDRESSES_MAX, Ability, Answer, Sends, with_abilities};
use super::messages::{Order, Report, Say, kind_of};
use super::paths::to_send;
use super::tunnel::{Frame, Links, NoFrame, accept_links};
use crate::verbs::host;
use crate::verbs::transfer::LOOK_SPAN;

/// What is sent, and whether it goes beneath its place whatever that is called.
type Sources = (Vec<PathBuf>, bool);

/// Finds what is to be sent, and sends it where the near end says.
pub async fn run(
    args: &FarEndArgs,
    paths: &[String],
    heard: mpsc::Receiver<Heard>,
) -> Result<(), Failure> {
    let sources = to_send(&home(), paths)?;
    let identity = Identity::generate();
    let version = with_abilities(env!("CARGO_PKG_VERSION"), &[Ability::PathUse, Ability::Steps]);
    let key = identity.fingerprint();
    let here = host(&args.host).identity(identity).start()?;
    say(&Answer::Sends(Sends { version, key }))?;
    let (links, writing) = Links::over(tokio::io::stdout());
    let (order_in, orders) = mpsc::channel(1);
    tokio::select! {
        () = hear(heard, &links, order_in) => {}
        () = writing => {}
        () = obey(&here, sources, &links, orders) => {}
    }
    links.close();
    Ok(())
}

/// Takes in what the near end says, until it is gone or breaks a rule.
async fn hear(mut heard: mpsc::Receiver<Heard>, links: &Links, orders: mpsc::Sender<Say>) {
    let mut come = Vec::new();
    while let Ok(Some(Heard::More(bytes))) = timeout(SILENCE_SPAN, heard.recv()).await {
        come.extend_from_slice(&bytes);
        if take(&mut come, links, &orders).await.is_err() {
            break;
        }
    }
    // This stops the transfer, which waits for orders; then this end is over.
    drop(orders);
    stop_deadline().await;
}

/// The deadline of a transfer that is to stop. It runs beside the transfer, whose own end comes
/// first unless its peer does not answer; nothing waits for the time itself.
async fn stop_deadline() {
    tokio::time::sleep(STOP_SPAN).await;
}

async fn take(
    come: &mut Vec<u8>,
    links: &Links,
    orders: &mpsc::Sender<Say>,
) -> Result<(), NoFrame> {
    while let Some(frame) = Frame::take(come)? {
        match frame {
            Frame::Message(bytes) => {
                let order = Say::decode(&bytes).ok_or(NoFrame)?;
                orders.send(order).await.map_err(|_| NoFrame)?;
            }
            frame @ (Frame::Open(_) | Frame::Data(..) | Frame::Taken(..) | Frame::End(_)) => {
                links.handle(frame)?;
            }
        }
    }
    Ok(())
}

/// Does what the near end says, and ends when it is gone.
async fn obey(here: &Host, sources: Sources, links: &Links, mut orders: mpsc::Receiver<Say>) {
    let Some(Say::Send(order)) = orders.recv().await else { return };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.ok();
    let detour = listener.as_ref().and_then(|listener| listener.local_addr().ok());
    let ended = match start(here, &order, sources, detour) {
        Ok(transfer) => {
            let stopper = transfer.stopper();
            tokio::select! {
                ended = watch(transfer, links) => ended,
                () = accept_links(listener, links) => return,
                () = heed(&mut orders, &stopper) => return,
            }
        }
        Err(failure) => Report::of_end(&Err(failure)),
    };
    links.say(&Frame::Message(ended.encode())).await;
    // The near end has read it when it hangs up.
    while orders.recv().await.is_some() {}
}

/// Stops a transfer when the near end says so or is gone. Ends some time after that.
async fn heed(orders: &mut mpsc::Receiver<Say>, stopper: &Stopper) {
    let kind = match orders.recv().await {
        Some(Say::Stop(kind)) => kind_of(&kind),
        Some(Say::Send(_)) | None => FailureKind::Interrupted,
    };
    stopper.stop(kind);
    stop_deadline().await;
}

/// Starts the transfer that the near end has described.
fn start(
    here: &Host,
    order: &Order,
    (paths, beneath): Sources,
    detour: Option<SocketAddr>,
) -> Result<Transfer, Failure> {
    let is_dir = beneath || order.beneath;
    let path = if is_dir { format!("{}/", order.path) } else { order.path.clone() };
    let named = Url::at(&order.host, order.port, &path);
    // An alias of ssh's may be no name that a host has.
    let named = named.or_else(|_| Url::at("far-end", order.port, &path));
    let url = named.map_err(|bad| Failure::new(FailureKind::Other, bad.to_string()))?;
    let mut addresses = order.addresses.clone();
    addresses.truncate(ADDRESSES_MAX);
    here.introduce(&url, addresses);
    if let Some(address) = detour {
        here.introduce_detour(
            &url,
            Detour { address, words: order.detour.clone(), datagrams: None },
        );
    }
    order.apply(Put::new(paths, url).fingerprint(order.key))?.start(here)
}

/// Reports what a transfer does, to its end; the report of the end is not sent.
async fn watch(mut transfer: Transfer, links: &Links) -> Report {
    let mut look = tokio::time::interval(LOOK_SPAN);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let report = tokio::select! {
            biased;
            event = transfer.next_event() => match event {
                Some(event) => Report::of_event(event),
                None => break,
            },
            _ = look.tick() => Some(Report::of_progress(&transfer.progress())),
        };
        if let Some(report) = report {
            links.say(&Frame::Message(report.encode())).await;
        }
    }
    Report::of_end(&transfer.wait().await)
}

/// Time for a transfer to stop once it is told to.
const STOP_SPAN: Duration = Duration::from_secs(5);
