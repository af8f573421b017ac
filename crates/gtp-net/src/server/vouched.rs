//! Clients that come over a pipe which another program, such as ssh, authenticates and encrypts.
//!
//! The caller vouches for the client's key and names the place beneath which it is let in.
//! There is no TLS and there are no keys for data, so such a client may look at a tree and change
//! it, and nothing else.

use std::sync::Arc;

use gtp_store::RelPath;
use tokio::io::DuplexStream;
use tokio::sync::{mpsc, oneshot, watch};

use super::session;
use super::{ServerEvent, Shared, Stop, Whose, WhyRefused, stopping};
use crate::control::{BARE_ADDRESS, ControlChannel};
use crate::flows::Failure;
use crate::identity::Fingerprint;
use crate::messages::{Open, Reason, Verb};

/// Gives a server clients for which its caller vouches. Clones are the same.
#[derive(Clone, Debug)]
pub struct Voucher(mpsc::Sender<Vouched>);

/// A client for which the server's caller vouches.
#[derive(Debug)]
pub struct Vouched {
    pipe: DuplexStream,
    key: Fingerprint,
    place: Option<RelPath>,
    /// Told when the client has said that it is done.
    served: oneshot::Sender<()>,
}

impl Voucher {
    pub(super) fn new() -> (Voucher, mpsc::Receiver<Vouched>) {
        let (give, given) = mpsc::channel(1);
        (Voucher(give), given)
    }

    /// Gives a client to the server, which lets it do with the tree at `place` what the key may;
    /// without a place, with all that is exported. Returns what is told when the client has said
    /// that it is done, and dropped if its session ends otherwise.
    pub async fn vouch(
        &self,
        pipe: DuplexStream,
        key: Fingerprint,
        place: Option<RelPath>,
    ) -> oneshot::Receiver<()> {
        let (served, told) = oneshot::channel();
        // A server that has ended drops the pipe, which the client sees.
        let _ = self.0.send(Vouched { pipe, key, place, served }).await;
        told
    }
}

impl Vouched {
    /// Serves the client to its end.
    pub(super) async fn serve(self, shared: Arc<Shared>, mut server: watch::Receiver<bool>) {
        let Vouched { pipe, key, place, served } = self;
        let met = tokio::select! {
            met = ControlChannel::accept_bare(pipe, key) => met,
            // One that has said nothing yet need not hear of it.
            () = stopping(&mut server) => return,
        };
        let (channel, open) = match met {
            Ok(met) => met,
            Err(error) => {
                shared.tell(ServerEvent::Refused {
                    client: BARE_ADDRESS,
                    whose: Whose::Stranger,
                    reason: WhyRefused::of_opening(&error),
                    request: None,
                    failure: Failure::from(error),
                });
                return;
            }
        };
        let Some(verb) = beneath(place.as_ref(), &open.verb) else {
            channel.refuse(Reason::Unexpected, "only trees are kept alike over this pipe").await;
            return;
        };
        let (seat, _) = shared.clients.arrive(channel.ends().remote);
        let seat = Arc::new(seat);
        let stop = Stop::of(server, &seat);
        let is_done = session::serve(shared, channel, Open { verb, ..open }, stop).await;
        seat.is_gone();
        if is_done {
            // Nobody need wait for it.
            let _ = served.send(());
        }
    }
}

/// What a client wants beneath a place; `None` if it is not to be had over such a pipe.
fn beneath(place: Option<&RelPath>, verb: &Verb) -> Option<Verb> {
    let Verb::Tree { path, changes } = verb else { return None };
    let parts = [place.map_or(&b""[..], |place| place.as_str().as_bytes()), path];
    let parts: Vec<&[u8]> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    Some(Verb::Tree { path: parts.join(&b'/'), changes: *changes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_the_tree_beneath_its_place_and_no_other_verb() {
        let place = RelPath::new("a/b").unwrap();
        let tree = |path: &str| Verb::Tree { path: path.into(), changes: true };
        let cases = [
            (Some(&place), "", "a/b"),
            (Some(&place), "c", "a/b/c"),
            (None, "c", "c"),
            (None, "", ""),
        ];
        for (place, path, full) in cases {
            assert_eq!(beneath(place, &tree(path)), Some(tree(full)));
        }
        let read = Verb::Get { path: b"c".to_vec() };
        assert_eq!(beneath(Some(&place), &read), None);
    }
}
