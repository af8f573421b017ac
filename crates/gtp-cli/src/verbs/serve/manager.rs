//! What a server says to the system's manager, and the sockets that it gets from it.
//!
//! The manager is systemd or whatever speaks its protocol (`NOTIFY_SOCKET`, `WATCHDOG_USEC`,
//! `LISTEN_FDS`); without one, nothing is said. A message that cannot be delivered is told once.
//! What the messages are about is the server's to know.

use std::time::Duration;

use gtp::{Failure, ServerEvent, Sockets};
use listenfd::ListenFd;
use sd_notify::NotifyState;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::log::SERVER;

/// The way to the manager.
pub struct Manager {
    watchdog: Option<Interval>,
    sessions: u64,
    /// What was said last of how the server is doing.
    status: String,
    is_deaf: bool,
}

impl Manager {
    /// The manager that started this process, if there is one.
    pub fn of_process() -> Manager {
        let watchdog = sd_notify::watchdog_enabled().map(|limit| {
            let mut half = interval((limit / 2).max(SHORTEST));
            half.set_missed_tick_behavior(MissedTickBehavior::Delay);
            half
        });
        Manager { watchdog, sessions: 0, status: String::new(), is_deaf: false }
    }

    /// Waits until it is time for the next sign of life, and gives it; for ever if none is wanted.
    /// Safe to cancel.
    pub async fn live(&mut self) {
        match &mut self.watchdog {
            Some(watchdog) => watchdog.tick().await,
            None => return std::future::pending().await,
        };
        self.say(&[NotifyState::Watchdog]);
    }

    /// Counts sessions.
    pub fn hear(&mut self, event: &ServerEvent) {
        match event {
            ServerEvent::Started { .. } => self.sessions += 1,
            ServerEvent::Ended { .. } => self.sessions = self.sessions.saturating_sub(1),
            ServerEvent::TurnedAway { .. }
            | ServerEvent::KeysRead { .. }
            | ServerEvent::KeysUnreadable { .. }
            | ServerEvent::KeysUsable { .. }
            | ServerEvent::Missed { .. }
            | ServerEvent::Refused { .. }
            | ServerEvent::Changed { .. } => {}
        }
    }

    /// The server can be reached, for the first time or again after a reload.
    pub fn ready(&mut self) {
        self.say(&[NotifyState::Ready]);
    }

    /// The server reads its configuration again.
    pub fn reloading(&mut self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.say(&[NotifyState::Reloading, now]),
            Err(_) => self.say(&[NotifyState::Reloading]),
        }
    }

    /// The server ends, within this time.
    pub fn stopping(&mut self, within: Duration) {
        let within = u32::try_from((within + FAREWELL).as_micros()).unwrap_or(u32::MAX);
        self.say(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(within)]);
    }

    /// Says how the server is doing, if that has changed.
    pub fn stands(&mut self, doing: &str) {
        let status = format!("{doing}; {}", gtp_text::count(self.sessions, "session"));
        if status != self.status {
            self.say(&[NotifyState::Status(&status)]);
            self.status = status;
        }
    }

    fn say(&mut self, state: &[NotifyState]) {
        if let Err(error) = sd_notify::notify(state)
            && !std::mem::replace(&mut self.is_deaf, true)
        {
            tracing::warn!(target: SERVER, %error, "the service manager does not hear");
        }
    }
}

/// Sockets that the manager has opened for this process, if it has.
///
/// # Errors
/// When they are not a TCP listener and a UDP socket, one of each.
pub fn sockets() -> Result<Option<Sockets>, Failure> {
    let mut given = ListenFd::from_env();
    let (mut tcp, mut udp, mut others) = (None, None, 0);
    for at in 0..given.len() {
        if tcp.is_none()
            && let Ok(Some(listener)) = given.take_tcp_listener(at)
        {
            tcp = Some(listener);
        } else if udp.is_none()
            && let Ok(Some(socket)) = given.take_udp_socket(at)
        {
            udp = Some(socket);
        } else {
            others += 1;
        }
    }
    match (tcp, udp, others) {
        (None, None, 0) => Ok(None),
        (Some(tcp), Some(udp), 0) => Ok(Some(Sockets { tcp, udp })),
        (Some(_) | None, Some(_) | None, _) => Err(super::super::other(
            "the service manager must give one TCP socket that listens and one UDP socket, and no \
             more (LISTEN_FDS)",
        )),
    }
}

/// The server's own time: five seconds to tell its clients that it stops, five for the last records
/// of the audit, and two to spare.
const FAREWELL: Duration = Duration::from_secs(12);

/// Signs of life are given no more often.
const SHORTEST: Duration = Duration::from_millis(10);
