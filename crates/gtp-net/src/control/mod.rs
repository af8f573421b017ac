//! The control channel: messages over TLS over TCP, each with a time limit.
//!
//! The client connects, both ends prove their keys, the client sends [`Open`]; all of that ends
//! within 5 s or the connection does, so that a stranger can hold little for a short time. After
//! that either end may send at any time. Receiving may be abandoned and taken up again without
//! loss; a frame once begun must end in time, however often the caller comes back, and so must what
//! leaves together. This module moves messages and gives out data keys; what the messages bring
//! about is its caller's part, and so is how many connections there may be.

pub mod carriage;
mod error;
mod frame;
mod line;
pub(crate) mod reach;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Once};
use std::time::Duration;

use gtp_proto::Revision;
use rustls::ServerConfig;
use rustls::pki_types::ServerName;
use tokio::io::{self, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::io::{ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use zeroize::Zeroizing;

pub use error::ControlError;
use frame::{Inbox, Outbox};
use line::Line;
pub use reach::{CONNECT_SPAN, Obstacle};

use crate::crypto::{Direction, EXPORTER_LABEL, SECRET_LEN, TrafficSecret, exporter_context};
use crate::engine::Carrier;
use crate::identity::{Fingerprint, Identity};
use crate::messages::{Carry, FRAME_MAX, Message, Open, Opened, PAGE_FRAME_MAX, Reason, VERSION};
use crate::tls::{self, ALPN};
use crate::trust::{HostAddress, HostTrust, Standing, TrustError};

/// Time from a connection's first byte to the end of the handshake and, at the server, of the
/// first message. An honest peer needs two round trips.
pub const OPENING_SPAN: Duration = Duration::from_secs(5);

/// Silence after which the peer counts as gone. Both ends say something, [`Message::Keepalive`]
/// at least, every [`KEEPALIVE_SPAN`].
pub const SILENCE_SPAN: Duration = Duration::from_secs(60);

/// Time between two messages of ours at most.
pub const KEEPALIVE_SPAN: Duration = Duration::from_secs(15);

/// Time between two signs of life of a server that looks for what a client has asked for. It is
/// much shorter than [`KEEPALIVE_SPAN`], so that a short patience can count silence.
pub const SEARCH_SPAN: Duration = Duration::from_secs(1);

/// Time for a server to look for what a client has asked for, however alive it seems: a million
/// entries at a thousand a second take 18 minutes.
pub const ANSWER_SPAN: Duration = Duration::from_secs(20 * 60);

/// Time from the first byte to the last of a frame that comes, and of the frames that leave
/// together: a page of 1 MiB, before which others of 16 KiB at most may leave, then needs
/// 285 kbit/s.
pub const FRAME_SPAN: Duration = Duration::from_secs(30);

/// Time for a polite end.
const CLOSE_SPAN: Duration = Duration::from_secs(2);

/// What stands in place of the addresses of a pipe's ends.
pub(crate) const BARE_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Sessions that may open on one channel: each takes 8 bytes of memory for its life.
const SESSIONS_MAX: usize = 4096;

/// The addresses of a channel's two ends. UDP from the remote IP address counts as validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Ours.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
}

impl Ends {
    fn of(stream: &TcpStream) -> Result<Ends, ControlError> {
        let (local, remote) = (stream.local_addr(), stream.peer_addr());
        Ok(Ends {
            local: local.map_err(ControlError::Lost)?,
            remote: remote.map_err(ControlError::Lost)?,
        })
    }
}

/// A control channel whose peer has proved its key, or is vouched for.
#[derive(Debug)]
pub struct ControlChannel<S = TcpStream> {
    stream: Line<S>,
    inbox: Inbox,
    outbox: Outbox,
    peer: Fingerprint,
    ends: Ends,
    revision: Revision,
    sessions: Vec<(u32, u32)>,
}

/// The traffic secrets of a session, for this end.
#[derive(Clone, Debug)]
pub struct DataSecrets {
    /// For datagrams to the peer.
    pub send: TrafficSecret,
    /// For datagrams from the peer.
    pub receive: TrafficSecret,
}

impl ControlChannel<TcpStream> {
    /// Connects to a server over TCP and proves both keys. A host that is new and may be
    /// accepted is remembered.
    ///
    /// # Errors
    /// Any [`ControlError`] but those of later messages.
    pub async fn connect(
        host: &HostAddress,
        identity: &Identity,
        trust: &Arc<HostTrust>,
    ) -> Result<ControlChannel, ControlError> {
        let addresses = reach::resolve(host, CONNECT_SPAN, ()).await?;
        let stream = reach::dial(host, &addresses, CONNECT_SPAN).await?;
        ControlChannel::client_over(stream, host, identity, trust).await
    }

    /// The client's end over a TCP connection to a server.
    ///
    /// # Errors
    /// As [`ControlChannel::connect`].
    pub async fn client_over(
        stream: TcpStream,
        host: &HostAddress,
        identity: &Identity,
        trust: &Arc<HostTrust>,
    ) -> Result<ControlChannel, ControlError> {
        let ends = Ends::of(&stream)?;
        ControlChannel::client(stream, ends, host, identity, trust).await
    }

    /// Takes a connection that a listener has accepted, proves both keys and waits for the first
    /// message, all within [`OPENING_SPAN`].
    ///
    /// # Errors
    /// Any [`ControlError`]; the connection is closed then.
    pub async fn accept(
        stream: TcpStream,
        config: &Arc<ServerConfig>,
    ) -> Result<(ControlChannel, Open), ControlError> {
        stream.set_nodelay(true).map_err(ControlError::Lost)?;
        let ends = Ends::of(&stream)?;
        ControlChannel::server(stream, ends, config).await
    }

    /// The client has the connection carry its session's datagrams from here on. Secrets must be
    /// exported before. `port` is the client's UDP port.
    ///
    /// # Errors
    /// As [`ControlChannel::send`]; [`ControlError::Unexpected`] if it carries them already.
    pub async fn carry(&mut self, carrier: Carrier, port: u16) -> Result<(), ControlError> {
        self.send(&Message::Carry(Carry { port: Some(port) })).await?;
        self.carried(carrier)
    }

    /// The server takes the client's datagrams from the connection, once the client has said
    /// [`Message::Carry`].
    ///
    /// # Errors
    /// [`ControlError::Unexpected`] if the client has said so before.
    pub fn carried(&mut self, carrier: Carrier) -> Result<(), ControlError> {
        let begun = self.inbox.take_rest();
        self.stream.give_away(|stream| carriage::start(stream, begun, carrier))
    }

    /// The client's end over a pipe whose other end is known otherwise, such as one through ssh.
    /// Nothing is proved, and there are no keys for data. `whose` is the client's own key.
    pub(crate) fn over_bare(pipe: DuplexStream, whose: Fingerprint) -> ControlChannel {
        ControlChannel::bare(pipe, whose, PAGE_FRAME_MAX)
    }

    /// The server's end of such a pipe, once the first message has come within [`OPENING_SPAN`].
    /// The client counts as having proved the key `whose`.
    ///
    /// # Errors
    /// As [`ControlChannel::accept`].
    pub(crate) async fn accept_bare(
        pipe: DuplexStream,
        whose: Fingerprint,
    ) -> Result<(ControlChannel, Open), ControlError> {
        let channel = ControlChannel::bare(pipe, whose, FRAME_MAX);
        timeout(OPENING_SPAN, channel.await_open())
            .await
            .map_err(|_| ControlError::TimedOut("the first message"))?
    }

    fn bare(pipe: DuplexStream, peer: Fingerprint, frame_max: usize) -> ControlChannel {
        let (inbox, outbox) = (Inbox::new(frame_max), Outbox::default());
        let (revision, sessions) = (Revision::NEWEST, Vec::new());
        let ends = Ends { local: BARE_ADDRESS, remote: BARE_ADDRESS };
        let stream = Line::Bare(pipe);
        ControlChannel { stream, inbox, outbox, peer, ends, revision, sessions }
    }

    /// Whether the connection carries datagrams.
    pub fn carries(&self) -> bool {
        matches!(self.stream, Line::Shared(_))
    }
}

/// Says, the first time in this process, that a new host cannot be remembered.
fn warn_once(error: &TrustError) {
    static SAID: Once = Once::new();
    SAID.call_once(|| tracing::warn!("the server's key is not remembered: {error}"));
}

impl<S: AsyncRead + AsyncWrite + Unpin> ControlChannel<S> {
    /// The client's end over any stream: as [`ControlChannel::connect`] from there on.
    ///
    /// # Errors
    /// As there.
    pub async fn client(
        stream: S,
        ends: Ends,
        host: &HostAddress,
        identity: &Identity,
        trust: &Arc<HostTrust>,
    ) -> Result<ControlChannel<S>, ControlError> {
        let (config, verifier) = tls::client_config(identity, host, trust);
        // No name is sent; TLS only wants something in its place.
        let name = ServerName::IpAddress(ends.remote.ip().into());
        let handshake = TlsConnector::from(config).connect(name, stream);
        let stream = timeout(OPENING_SPAN, handshake)
            .await
            .map_err(|_| ControlError::TimedOut("the TLS handshake"))?
            .map_err(|failure| match verifier.take_refused() {
                Some(refused) => ControlError::from(refused),
                None => ControlError::of_handshake(failure),
            })?;
        let channel = ControlChannel::over(TlsStream::Client(stream), ends, PAGE_FRAME_MAX)?;
        if trust.judge(host, channel.peer)? == Standing::New {
            let (host, trust, peer) = (host.clone(), Arc::clone(trust), channel.peer);
            let remembering = move || trust.remember(&host, peer);
            let remembered = tokio::task::spawn_blocking(remembering)
                .await
                .map_err(|e| ControlError::Lost(io::Error::other(e)))?;
            match remembered {
                // Whoever accepts new hosts accepts this one, which will be new the next time.
                Err(error @ TrustError::File { .. }) => warn_once(&error),
                other => other?,
            }
        }
        Ok(channel)
    }

    /// The server's end over any stream: as [`ControlChannel::accept`] from there on.
    ///
    /// # Errors
    /// As there.
    pub async fn server(
        stream: S,
        ends: Ends,
        config: &Arc<ServerConfig>,
    ) -> Result<(ControlChannel<S>, Open), ControlError> {
        let opening = async {
            let handshake = TlsAcceptor::from(Arc::clone(config)).accept(stream);
            let stream = handshake.await.map_err(ControlError::of_handshake)?;
            let channel = ControlChannel::over(TlsStream::Server(stream), ends, FRAME_MAX)?;
            channel.await_open().await
        };
        timeout(OPENING_SPAN, opening)
            .await
            .map_err(|_| ControlError::TimedOut("the handshake and the first message"))?
    }

    fn over(
        stream: TlsStream<S>,
        ends: Ends,
        frame_max: usize,
    ) -> Result<ControlChannel<S>, ControlError> {
        let connection = stream.get_ref().1;
        if connection.alpn_protocol() != Some(ALPN) {
            return Err(ControlError::Version("the peer does not speak gtp/1".into()));
        }
        let peer = tls::peer_fingerprint(connection)
            .ok_or_else(|| ControlError::NotGtp("the peer has shown no key".into()))?;
        let (inbox, outbox) = (Inbox::new(frame_max), Outbox::default());
        let (revision, sessions) = (Revision::NEWEST, Vec::new());
        let stream = Line::Own(Box::new(stream));
        Ok(ControlChannel { stream, inbox, outbox, peer, ends, revision, sessions })
    }

    async fn await_open(mut self) -> Result<(ControlChannel<S>, Open), ControlError> {
        let (reason, failure) = match self.recv().await {
            Ok(Message::Open(open)) => match Revision::agreed(open.version) {
                Some(revision) => {
                    self.revision = revision;
                    return Ok((self, open));
                }
                None => (Reason::Version, too_old(open.version)),
            },
            Ok(other) => (Reason::Unexpected, ControlError::unexpected(&other)),
            Err(failure @ ControlError::Malformed(_)) => (Reason::Unexpected, failure),
            Err(failure) => return Err(failure),
        };
        self.refuse(reason, failure.to_string()).await;
        Err(failure)
    }

    /// The client asks for a session and waits for the answer.
    ///
    /// # Errors
    /// [`ControlError::NotAuthorised`], [`ControlError::OutsideHours`],
    /// [`ControlError::Version`] and [`ControlError::Refused`]
    /// as the server says; [`ControlError::Unexpected`] if the answer does not fit the question;
    /// and those of [`ControlChannel::send`] and [`ControlChannel::recv`].
    pub async fn open(&mut self, open: Open) -> Result<Opened, ControlError> {
        self.open_within(open, SILENCE_SPAN, &|| {}).await
    }

    /// As [`ControlChannel::open`], and gives up after this long a silence, or after
    /// [`ANSWER_SPAN`] in all. `heard` is called at each sign that the server is at work.
    ///
    /// # Errors
    /// As there.
    pub async fn open_within(
        &mut self,
        open: Open,
        silence: Duration,
        heard: &(dyn Fn() + Sync),
    ) -> Result<Opened, ControlError> {
        self.open_and_ask(open, None, silence, heard).await
    }

    /// As [`ControlChannel::open_within`], with the first question of the session right behind
    /// the opening, so that its answer comes a round trip earlier.
    ///
    /// # Errors
    /// As there.
    pub async fn open_and_ask(
        &mut self,
        open: Open,
        question: Option<Message>,
        silence: Duration,
        heard: &(dyn Fn() + Sync),
    ) -> Result<Opened, ControlError> {
        self.ask(&open, question).await?;
        self.take_opened(&open, silence, heard).await
    }

    /// Asks for a session, with its first question right behind. The answer is left to
    /// [`ControlChannel::take_opened`].
    ///
    /// # Errors
    /// As [`ControlChannel::send_all`].
    pub(crate) async fn ask(
        &mut self,
        open: &Open,
        question: Option<Message>,
    ) -> Result<(), ControlError> {
        self.send_all(std::iter::once(Message::Open(open.clone())).chain(question)).await
    }

    /// Waits for the answer to this opening. The silence counts from now on.
    ///
    /// # Errors
    /// As [`ControlChannel::open_within`].
    pub(crate) async fn take_opened(
        &mut self,
        open: &Open,
        silence: Duration,
        heard: &(dyn Fn() + Sync),
    ) -> Result<Opened, ControlError> {
        let answer = async {
            loop {
                let sign = timeout(silence, self.inbox.next_sign(&mut self.stream)).await;
                match sign.map_err(|_| ControlError::TimedOut("the server's answer"))?? {
                    Message::Keepalive => heard(),
                    message => return Ok::<_, ControlError>(message),
                }
            }
        };
        let answer = timeout(ANSWER_SPAN, answer);
        let answer = answer.await.map_err(|_| ControlError::TimedOut("the server's answer"))?;
        let opened = match answer? {
            Message::Opened(opened) => opened,
            Message::Refused(refused) => return Err(ControlError::of_refusal(refused)),
            other => return Err(ControlError::unexpected(&other)),
        };
        self.revision = Revision::agreed(opened.version).ok_or_else(|| too_old(opened.version))?;
        if opened.version > open.version
            || !open.suites.0.contains(&opened.suite)
            || opened.unit_payload > open.unit_payload_max
            || opened.weight_milli > open.weight_milli
        {
            return Err(ControlError::Unexpected("an answer that was not on offer".into()));
        }
        // A server that does not say it again has not understood what it would take part in.
        let said = if open.law.is_alone() { Some(open.law) } else { None };
        if opened.law != said {
            let text = "the server does not confirm the control law".into();
            return Err(ControlError::Unexpected(text));
        }
        // One that knows no tickets would give this end what its own key may have.
        if open.ticket.is_some() != opened.by_ticket.unwrap_or(false) {
            let text = "the server does not say that the session goes by the ticket".into();
            return Err(ControlError::Unexpected(text));
        }
        Ok(opened)
    }

    /// Sends one message. It must run to its end: a frame cut short is an end of the channel.
    ///
    /// # Errors
    /// [`ControlError::Malformed`] if the message may not be sent, [`ControlError::TimedOut`] if
    /// the peer does not take it in time, [`ControlError::Lost`].
    pub async fn send(&mut self, message: &Message) -> Result<(), ControlError> {
        self.outbox.send(&mut self.stream, message).await
    }

    /// Sends messages one after the other, short ones together. As with [`ControlChannel::send`].
    ///
    /// # Errors
    /// As there, but the time is for those that leave together, and at [`ControlError::Malformed`]
    /// those that were to leave with the message are not sent either.
    pub async fn send_all(
        &mut self,
        messages: impl Iterator<Item = Message>,
    ) -> Result<(), ControlError> {
        self.outbox.send_all(&mut self.stream, messages).await
    }

    /// Waits for the next message but keepalives. It may be abandoned at any time and called
    /// again.
    ///
    /// # Errors
    /// [`ControlError::Closed`] after a regular end, [`ControlError::Lost`],
    /// [`ControlError::TimedOut`], [`ControlError::Malformed`]; after any of them the channel is
    /// of no more use.
    pub async fn recv(&mut self) -> Result<Message, ControlError> {
        self.inbox.next(&mut self.stream).await
    }

    /// Returns the next message, which may be a keepalive; [`ControlChannel::recv`] skips those.
    ///
    /// # Errors
    /// The same as for [`ControlChannel::recv`].
    pub async fn sign(&mut self) -> Result<Message, ControlError> {
        self.inbox.next_sign(&mut self.stream).await
    }

    /// Sends messages and takes in their answers, as many as are expected, meanwhile, so that
    /// neither end waits for the other to read. Ends when both are done.
    ///
    /// # Errors
    /// As [`ControlChannel::send_all`] and [`ControlChannel::recv`];
    /// [`ControlError::TimedOut`] if the peer is silent for `silence`, and what `take` says. After
    /// any of them the channel is of no more use.
    pub(crate) async fn converse<E: From<ControlError>>(
        &mut self,
        messages: impl Iterator<Item = Message>,
        silence: Duration,
        answers: usize,
        mut take: impl FnMut(Message) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut from, mut to) = io::split(&mut self.stream);
        let mut sending = std::pin::pin!(self.outbox.send_all(&mut to, messages));
        let (mut is_sent, mut heard) = (false, 0);
        while !is_sent || heard < answers {
            tokio::select! {
                sent = &mut sending, if !is_sent => {
                    sent?;
                    is_sent = true;
                }
                sign = self.inbox.next_sign(&mut from), if heard < answers => match sign? {
                    Message::Keepalive => {}
                    message => {
                        heard += 1;
                        take(message)?;
                    }
                },
                // The limit on a peer's silence. While this end sends, it may have nothing to say.
                () = tokio::time::sleep(silence), if is_sent => {
                    return Err(ControlError::TimedOut("the peer's answer").into());
                }
            }
        }
        Ok(())
    }

    /// Lets the peer send pages. A server calls it for a client that may put; a client's channel
    /// is so from the start.
    pub fn allow_pages(&mut self) {
        self.inbox.set_frame_max(PAGE_FRAME_MAX);
    }

    /// Fingerprint of the peer's key, which it has proved to hold, or is vouched to.
    pub fn peer(&self) -> Fingerprint {
        self.peer
    }

    /// The addresses of both ends.
    pub fn ends(&self) -> Ends {
        self.ends
    }

    /// The IP address whose UDP counts as validated.
    pub fn peer_ip(&self) -> IpAddr {
        self.ends.remote.ip()
    }

    /// Exports 32 bytes from the TLS session (RFC 8446, 7.5), the same at both ends.
    ///
    /// # Errors
    /// [`ControlError::Lost`] if TLS has already ended.
    pub fn export_secret(
        &self,
        label: &[u8],
        context: &[u8],
    ) -> Result<Zeroizing<[u8; SECRET_LEN]>, ControlError> {
        let mut secret = Zeroizing::new([0; SECRET_LEN]);
        let exported = match self.stream.tls()? {
            TlsStream::Client(client) => {
                client.get_ref().1.export_keying_material(&mut secret[..], label, Some(context))
            }
            TlsStream::Server(server) => {
                server.get_ref().1.export_keying_material(&mut secret[..], label, Some(context))
            }
        };
        exported.map(|_| ()).map_err(|e| ControlError::Lost(io::Error::other(e)))?;
        Ok(secret)
    }

    /// Returns the revision of the messages that both ends use. Before the opening it is this end's
    /// newest.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The traffic secrets of the session with these ids, once.
    ///
    /// # Errors
    /// [`ControlError::Unexpected`] for ids that this channel has had before, whose keys would be
    /// used twice, and beyond 4,096 sessions; as [`ControlChannel::export_secret`].
    pub fn data_secrets(
        &mut self,
        server_session: u32,
        client_session: u32,
    ) -> Result<DataSecrets, ControlError> {
        let ids = (server_session, client_session);
        if self.sessions.contains(&ids) || self.sessions.len() >= SESSIONS_MAX {
            return Err(ControlError::Unexpected("session ids used before".into()));
        }
        self.sessions.push(ids);
        let export = |to| {
            let context = exporter_context(server_session, client_session, to);
            self.export_secret(EXPORTER_LABEL, &context).map(|secret| TrafficSecret::new(*secret))
        };
        let to_server = export(Direction::ClientToServer)?;
        let to_client = export(Direction::ServerToClient)?;
        Ok(match self.stream.tls()? {
            TlsStream::Client(_) => DataSecrets { send: to_server, receive: to_client },
            TlsStream::Server(_) => DataSecrets { send: to_client, receive: to_server },
        })
    }

    /// Says no, and ends. Whether the peer hears it is not known.
    pub async fn refuse(self, reason: Reason, text: impl Into<String>) {
        self.refuse_with(Message::refused(reason, text)).await;
    }

    /// Says no by this message, and ends.
    pub(crate) async fn refuse_with(mut self, refusal: Message) {
        if matches!(timeout(CLOSE_SPAN, self.send(&refusal)).await, Ok(Ok(()))) {
            self.close().await;
        }
    }

    /// Ends the channel so that the peer gets all that was sent: TCP would throw it away if
    /// something unread lay here. Takes 2 s at most.
    pub async fn close(mut self) {
        // Nothing can follow a message that was cut short.
        if !self.outbox.is_cut_short() {
            close(&mut self.stream).await;
        }
    }

    /// Tells the peer that the session ends, and why; this takes at most 2 s. A peer that has read
    /// only a part of an earlier message is told nothing.
    pub async fn dismiss(&mut self, reason: Reason, text: impl Into<String>) {
        // The session ends even if the peer cannot be told.
        let _ = timeout(CLOSE_SPAN, self.send(&Message::fault(reason, text))).await;
    }

    /// Both halves on their own, for two tasks. Secrets must be exported before.
    pub fn into_split(self) -> (ControlSender<S>, ControlReceiver<S>) {
        let (read, write) = io::split(self.stream);
        let receiver = ControlReceiver { stream: read, inbox: self.inbox };
        (ControlSender { stream: write, outbox: self.outbox }, receiver)
    }
}

/// The sending half of a channel.
#[derive(Debug)]
pub struct ControlSender<S = TcpStream> {
    stream: WriteHalf<Line<S>>,
    outbox: Outbox,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ControlSender<S> {
    /// As [`ControlChannel::send`].
    ///
    /// # Errors
    /// As there.
    pub async fn send(&mut self, message: &Message) -> Result<(), ControlError> {
        self.outbox.send(&mut self.stream, message).await
    }

    /// Tells the peer that nothing more comes from here.
    pub async fn finish(mut self) {
        // The peer may be gone already, which is an end too.
        let _ = timeout(CLOSE_SPAN, self.stream.shutdown()).await;
    }
}

/// The receiving half of a channel.
#[derive(Debug)]
pub struct ControlReceiver<S = TcpStream> {
    stream: ReadHalf<Line<S>>,
    inbox: Inbox,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ControlReceiver<S> {
    /// As [`ControlChannel::recv`].
    ///
    /// # Errors
    /// As there.
    pub async fn recv(&mut self) -> Result<Message, ControlError> {
        self.inbox.next(&mut self.stream).await
    }
}

fn too_old(version: u32) -> ControlError {
    let oldest = Revision::First.number();
    ControlError::Version(format!(
        "the peer speaks revision {version} of gtp/1 and this program {oldest} to {VERSION}: \
         update GTP at the other end"
    ))
}

async fn close<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut Line<S>) {
    let ending = async {
        stream.shutdown().await?;
        if matches!(stream, Line::Bare(_)) {
            // What is in a pipe stays in it.
            return Ok(());
        }
        let mut rest = [0; 4096];
        while stream.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    // Whatever fails here, the channel is at its end.
    let _ = timeout(CLOSE_SPAN, ending).await;
}
