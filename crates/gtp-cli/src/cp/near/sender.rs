//! The near end's talk with a far end that sends to another one.
//!
//! Behind the hello both ends speak in frames: messages, and links where the two far ends cannot
//! reach each other. A link that this far end begins leads to the other far end's server and
//! nowhere else.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use gtp::{Failure, Fingerprint};
use tokio::io::AsyncReadExt;
use tokio::process::ChildStdout;
use tokio::sync::{mpsc, watch};

use super::super::hello::{Answer, Request, Sends};
use super::super::messages::Say;
use super::super::tunnel::{Frame, Links, NoFrame};
use super::{FarEnd, Talk, Watches, Way, answer, beat, judge, unasked};

/// A far end that sends.
pub struct Sender {
    pub far: FarEnd,
    /// Its release, with what it can do.
    pub version: String,
    /// The key that it will show the other far end.
    pub key: Fingerprint,
    /// What it reports, in order, until it is gone; each a message's bytes.
    pub reports: mpsc::Receiver<Vec<u8>>,
    links: Links,
    detour: Arc<OnceLock<SocketAddr>>,
}

/// Starts a far end that is to send, and asks it.
///
/// # Errors
/// As [`super::call`].
pub async fn call_sender(way: Way<'_>, request: &Request) -> Result<Sender, Failure> {
    let (talk, answer) = answer(&way, request, None).await?;
    let failure = match judge(answer) {
        Ok(Answer::Sends(sends)) => return Ok(talk.into_sender(sends)),
        Ok(Answer::Ready(_) | Answer::Failed(_)) => unasked(),
        Err(failure) => failure,
    };
    talk.into_far_end(None, Watches::No).close().await;
    Err(failure.about(way.login))
}

impl Talk {
    fn into_sender(self, Sends { version, key }: Sends) -> Sender {
        let Talk { child, links, writing, from, come, stderr_task, .. } = self;
        let (tell, reports) = mpsc::channel(REPORTS);
        let detour = Arc::new(OnceLock::new());
        let (own, leads) = (links.clone(), Arc::clone(&detour));
        let (end, has_ended) = watch::channel(false);
        let keep_alive = tokio::spawn(async move {
            tokio::select! {
                () = beat(&own) => {}
                () = hear(from, come, &own, (&leads, tell, &end)) => {}
            }
        });
        let far = FarEnd {
            child,
            keep_alive,
            writing,
            detour: None,
            has_ended,
            links: links.clone(),
            told: None,
            unwatched: None,
            stderr_task,
        };
        Sender { far, version, key, reports, links, detour }
    }
}

impl Sender {
    /// Says where to send; links lead to this port of this machine from now on, if there is one.
    pub async fn order(&self, order: Say, detour: Option<SocketAddr>) {
        if let Some(address) = detour {
            // It is said once.
            let _ = self.detour.set(address);
        }
        self.say(order).await;
    }

    /// Says something.
    pub async fn say(&self, what: Say) {
        self.links.say(&Frame::Message(what.encode())).await;
    }
}

/// Takes in what the far end says. What is no frame ends links and reports; then the rest is read
/// and dropped, so that it does not fill the pipe. Never ends.
async fn hear(
    mut from: ChildStdout,
    mut come: Vec<u8>,
    links: &Links,
    (detour, tell, end): (&OnceLock<SocketAddr>, mpsc::Sender<Vec<u8>>, &watch::Sender<bool>),
) {
    while take(&mut come, links, (detour, &tell)).await.is_ok() {
        if !matches!(from.read_buf(&mut come).await, Ok(1..)) {
            break;
        }
    }
    drop(tell);
    links.close();
    // It may have ended.
    let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    end.send_replace(true);
    std::future::pending().await
}

async fn take(
    come: &mut Vec<u8>,
    links: &Links,
    (detour, tell): (&OnceLock<SocketAddr>, &mpsc::Sender<Vec<u8>>),
) -> Result<(), NoFrame> {
    while let Some(frame) = Frame::take(come)? {
        match frame {
            Frame::Open(number) => links.connect(number, detour.get().copied()).await,
            // Nobody may want to hear of it any more.
            Frame::Message(bytes) => drop(tell.send(bytes).await),
            frame @ (Frame::Data(..) | Frame::Taken(..) | Frame::End(_)) => links.handle(frame)?,
        }
    }
    Ok(())
}

/// Reports that wait to be shown.
const REPORTS: usize = 64;
