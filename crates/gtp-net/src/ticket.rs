//! Tickets: by one, somebody lets another host read one object at one server for some minutes.
//!
//! Whoever may read an object writes a ticket and signs it with the key that the server knows. It
//! names the server by its key, the path, the host that may use it by its key as well, and when it
//! begins and ends. That host shows it when it asks for the object, over a connection on which it
//! has proved its own key, so that a ticket that is stolen is worth nothing. The server then lets
//! it read what the signer may read at that path, and nothing else. docs/PROTOCOL.md, chapter 26,
//! says who checks what. This module knows no network and no clock.

use std::fmt;

use minicbor::{Decode, Encode};
use ring::signature::{ED25519, UnparsedPublicKey};

use crate::identity::{Fingerprint, Identity};
use crate::messages::PATH_MAX;
use crate::tls::{ED25519_KEY_LEN, ED25519_SPKI_HEAD};

/// What a ticket is for. One of a kind is worth nothing as one of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The object at the path, as it lies there.
    Get,
    /// Blocks of what the signer sends to the path, as the server gives them on.
    Relay,
}

impl Purpose {
    /// What is signed begins with this, so that no signature of another kind is one of a ticket.
    const fn context(self) -> &'static [u8] {
        match self {
            Purpose::Get => b"gtp ticket 1\0",
            Purpose::Relay => b"gtp relay 1\0",
        }
    }
}

/// How long a ticket may hold, in seconds. It is looked at when a session begins, and the session
/// may go on for longer; whoever has signed it signs another one for one that begins anew.
pub const TICKET_SECONDS_MOST: u64 = 600;

/// How long a session by ticket may last, in seconds, so that a holder that never ends does not
/// keep the signer's places. One that still fetches comes again with a newer ticket, and has its
/// listing once more: once an hour that costs little.
pub const TICKET_SESSION_SECONDS_MOST: u64 = 3_600;

/// How far the clocks of the signer and of a server may be apart, in seconds: a ticket that begins
/// later than this from now is refused.
pub const CLOCK_SKEW_SECONDS: u64 = 60;

/// Bytes of a ticket at most: the longest path, three keys or hashes of 32 bytes, a number of 16,
/// a signature of 64 and what CBOR adds.
pub const TICKET_MAX: usize = PATH_MAX + 512;

/// What tells tickets of one signer apart.
pub type TicketNumber = [u8; 16];

/// What a ticket allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// The key of the server that has the object.
    pub server: Fingerprint,
    /// The key of the host that may read it.
    pub holder: Fingerprint,
    /// The object's path there, as in its address.
    pub path: Vec<u8>,
    /// When it begins, in seconds since 1970.
    pub begins_s: u64,
    /// When it ends, likewise.
    pub ends_s: u64,
}

/// A ticket whose signature is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Whoever has signed it.
    pub signer: Fingerprint,
    /// What it allows.
    pub allowed: Allowed,
    /// Its number.
    pub number: TicketNumber,
}

/// Why a ticket is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTicket {
    /// It cannot be read.
    #[error("it is malformed")]
    Malformed,
    /// Its signature is another's.
    #[error("its signature is wrong")]
    Signature,
    /// It is for an object of another server.
    #[error("it is for another server")]
    OtherServer,
    /// Another host may use it.
    #[error("it is for another host")]
    OtherHolder,
    /// It is for another object.
    #[error("it is for another object")]
    OtherObject,
    /// It holds for longer than [`TICKET_SECONDS_MOST`].
    #[error("it holds for too long")]
    TooLong,
    /// It begins more than [`CLOCK_SKEW_SECONDS`] from now.
    #[error("it is not valid yet; are both clocks right?")]
    NotYet,
    /// It has ended.
    #[error("it has expired; are both clocks right?")]
    Expired,
}

/// What a ticket is shown for.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// The key of the server that is asked.
    pub server: Fingerprint,
    /// The key that the client has proved.
    pub holder: Fingerprint,
    /// The path that is asked for.
    pub path: &'a [u8],
    /// The time now, in seconds since 1970.
    pub now_s: u64,
}

/// The body that is signed, and the signature.
#[derive(Encode, Decode)]
#[cbor(map)]
struct Signed {
    #[cbor(n(0), with = "minicbor::bytes")]
    body: Vec<u8>,
    #[cbor(n(1), with = "minicbor::bytes")]
    signature: Vec<u8>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct Body {
    /// The signer's key: 32 bytes of Ed25519.
    #[cbor(n(0), with = "minicbor::bytes")]
    signer: [u8; ED25519_KEY_LEN],
    #[cbor(n(1), with = "minicbor::bytes")]
    server: [u8; 32],
    #[cbor(n(2), with = "minicbor::bytes")]
    holder: [u8; 32],
    #[cbor(n(3), with = "minicbor::bytes")]
    path: Vec<u8>,
    #[n(4)]
    begins_s: u64,
    #[n(5)]
    ends_s: u64,
    #[cbor(n(6), with = "minicbor::bytes")]
    number: TicketNumber,
}

impl Ticket {
    /// Writes a ticket for [`Purpose::Get`] that allows this, and signs it. The number must be
    /// drawn at random.
    pub fn sign(signer: &Identity, allowed: &Allowed, number: TicketNumber) -> Vec<u8> {
        Ticket::sign_for(Purpose::Get, signer, allowed, number)
    }

    /// The same for any purpose.
    pub fn sign_for(
        purpose: Purpose,
        signer: &Identity,
        allowed: &Allowed,
        number: TicketNumber,
    ) -> Vec<u8> {
        let Allowed { server, holder, ref path, begins_s, ends_s } = *allowed;
        let body = Body {
            signer: signer.raw_key(),
            server: *server.as_bytes(),
            holder: *holder.as_bytes(),
            path: path.clone(),
            begins_s,
            ends_s,
            number,
        };
        let body = written(&body);
        let signature = signer.sign(&[purpose.context(), &body].concat());
        written(&Signed { body, signature })
    }

    /// Reads a ticket for [`Purpose::Get`] and checks its signature. What it allows is judged by
    /// [`Ticket::judge`].
    ///
    /// # Errors
    /// [`BadTicket::Malformed`] and [`BadTicket::Signature`].
    pub fn read(bytes: &[u8]) -> Result<Ticket, BadTicket> {
        Ticket::read_for(Purpose::Get, bytes)
    }

    /// The same for any purpose.
    ///
    /// # Errors
    /// As there; one for another purpose has a wrong signature.
    pub fn read_for(purpose: Purpose, bytes: &[u8]) -> Result<Ticket, BadTicket> {
        if bytes.len() > TICKET_MAX {
            return Err(BadTicket::Malformed);
        }
        let Signed { body, signature } = whole(bytes)?;
        let read: Body = whole(&body)?;
        if read.path.len() > PATH_MAX {
            return Err(BadTicket::Malformed);
        }
        let key = UnparsedPublicKey::new(&ED25519, read.signer);
        let signed = key.verify(&[purpose.context(), &body].concat(), &signature);
        signed.map_err(|_| BadTicket::Signature)?;
        let spki = [&ED25519_SPKI_HEAD[..], &read.signer].concat();
        let allowed = Allowed {
            server: Fingerprint::of_bytes(read.server),
            holder: Fingerprint::of_bytes(read.holder),
            path: read.path,
            begins_s: read.begins_s,
            ends_s: read.ends_s,
        };
        Ok(Ticket { signer: Fingerprint::of_public_key(&spki), allowed, number: read.number })
    }

    /// Whether it allows what it is shown for.
    ///
    /// # Errors
    /// The first [`BadTicket`] that holds, in the order of the variants.
    pub fn judge(&self, shown: Shown<'_>) -> Result<(), BadTicket> {
        let Allowed { server, holder, ref path, begins_s, ends_s } = self.allowed;
        let faults = [
            (server != shown.server, BadTicket::OtherServer),
            (holder != shown.holder, BadTicket::OtherHolder),
            (path != shown.path, BadTicket::OtherObject),
            (ends_s.saturating_sub(begins_s) > TICKET_SECONDS_MOST, BadTicket::TooLong),
            (begins_s > shown.now_s.saturating_add(CLOCK_SKEW_SECONDS), BadTicket::NotYet),
            (ends_s <= shown.now_s, BadTicket::Expired),
        ];
        faults.into_iter().find(|(is_so, _)| *is_so).map_or(Ok(()), |(_, fault)| Err(fault))
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the ticket of {} for {}", self.signer, self.allowed.holder)
    }
}

fn written(value: &impl Encode<()>) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Writing to memory does not fail.
    let _ = minicbor::encode(value, &mut bytes);
    bytes
}

/// Exactly one value in these bytes.
fn whole<'b, T: Decode<'b, ()>>(bytes: &'b [u8]) -> Result<T, BadTicket> {
    let mut decoder = minicbor::Decoder::new(bytes);
    let value = decoder.decode().map_err(|_| BadTicket::Malformed)?;
    if decoder.position() == bytes.len() { Ok(value) } else { Err(BadTicket::Malformed) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW_S: u64 = 1_800_000_000;

    fn key(n: u8) -> Fingerprint {
        Fingerprint::of_public_key(&[n])
    }

    fn allowed() -> Allowed {
        let (server, holder, path) = (key(1), key(2), b"a/b".to_vec());
        Allowed { server, holder, path, begins_s: NOW_S, ends_s: NOW_S + 300 }
    }

    fn shown() -> Shown<'static> {
        Shown { server: key(1), holder: key(2), path: b"a/b", now_s: NOW_S }
    }

    #[test]
    fn a_ticket_reads_back_as_what_its_signer_allowed() {
        let signer = Identity::generate();
        let ticket = Ticket::read(&Ticket::sign(&signer, &allowed(), [7; 16])).unwrap();
        assert_eq!(ticket.signer, signer.fingerprint());
        assert_eq!((&ticket.allowed, ticket.number), (&allowed(), [7; 16]));
        assert_eq!(ticket.judge(shown()), Ok(()));
    }

    #[test]
    fn it_counts_for_its_server_its_holder_its_object_and_its_time_only() {
        let judged = |allowed: &Allowed, shown| {
            Ticket::read(&Ticket::sign(&Identity::generate(), allowed, [0; 16]))
                .unwrap()
                .judge(shown)
        };
        let all = allowed();
        let at = |now_s| judged(&all, Shown { now_s, ..shown() });
        assert_eq!(at(NOW_S + 299), Ok(()));
        assert_eq!(at(NOW_S + 300), Err(BadTicket::Expired));
        assert_eq!(at(NOW_S - CLOCK_SKEW_SECONDS), Ok(()));
        assert_eq!(at(NOW_S - CLOCK_SKEW_SECONDS - 1), Err(BadTicket::NotYet));
        assert_eq!(at(u64::MAX), Err(BadTicket::Expired));
        let other = |shown| judged(&all, shown);
        let (server, holder) = (key(3), key(3));
        assert_eq!(other(Shown { server, ..shown() }), Err(BadTicket::OtherServer));
        assert_eq!(other(Shown { holder, ..shown() }), Err(BadTicket::OtherHolder));
        for path in [&b"a"[..], b"a/b/c", b"", b"a/c"] {
            assert_eq!(other(Shown { path, ..shown() }), Err(BadTicket::OtherObject));
        }
        let long = Allowed { ends_s: NOW_S + TICKET_SECONDS_MOST + 1, ..allowed() };
        assert_eq!(judged(&long, shown()), Err(BadTicket::TooLong));
        let forever = Allowed { begins_s: 0, ends_s: u64::MAX, ..allowed() };
        assert_eq!(judged(&forever, shown()), Err(BadTicket::TooLong));
    }

    #[test]
    fn a_body_that_another_key_has_signed_is_no_ticket() {
        let (one, other) = (Identity::generate(), Identity::generate());
        let ticket = Ticket::sign(&one, &allowed(), [0; 16]);
        let Signed { body, .. } = minicbor::decode(&ticket).unwrap();
        let forged =
            |signature| minicbor::to_vec(Signed { body: body.clone(), signature }).unwrap();
        let of_other = forged(other.sign(&[Purpose::Get.context(), &body].concat()));
        assert_eq!(Ticket::read(&of_other), Err(BadTicket::Signature));
        let of_another_kind = forged(one.sign(&body));
        assert_eq!(Ticket::read(&of_another_kind), Err(BadTicket::Signature));
        assert_eq!(Ticket::read(&forged(Vec::new())), Err(BadTicket::Signature));
    }

    #[test]
    fn a_ticket_for_blocks_that_are_given_on_opens_nothing_else_and_the_other_way_round() {
        let (signer, [get, relay]) = (Identity::generate(), [Purpose::Get, Purpose::Relay]);
        for (one, other) in [(get, relay), (relay, get)] {
            let ticket = Ticket::sign_for(one, &signer, &allowed(), [0; 16]);
            assert!(Ticket::read_for(one, &ticket).is_ok());
            assert_eq!(Ticket::read_for(other, &ticket), Err(BadTicket::Signature));
        }
    }

    #[test]
    fn the_longest_path_fits_and_a_longer_ticket_is_not_read() {
        let long = Allowed { path: vec![b'a'; PATH_MAX], ..allowed() };
        let ticket = Ticket::sign(&Identity::generate(), &long, [0; 16]);
        assert!(ticket.len() <= TICKET_MAX, "{}", ticket.len());
        assert!(Ticket::read(&ticket).is_ok());
        assert_eq!(Ticket::read(&vec![0; TICKET_MAX + 1]), Err(BadTicket::Malformed));
    }

    proptest! {
        #[test]
        fn one_byte_changed_anywhere_makes_a_ticket_worthless(at in 0usize..260, by in 1u8..) {
            let mut ticket = Ticket::sign(&Identity::generate(), &allowed(), [0; 16]);
            let at = at % ticket.len();
            ticket[at] ^= by;
            prop_assert!(Ticket::read(&ticket).is_err());
        }

        #[test]
        fn bytes_of_any_kind_are_refused_without_a_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..400)
        ) {
            prop_assert!(Ticket::read(&bytes).is_err());
        }
    }
}
