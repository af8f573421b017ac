//! The user's wish to stop: the first one is obeyed cleanly, the second at once.
//!
//! Interrupt and termination mean the same here. A hangup stops a command as they do, unless it
//! was started to ignore hangups (`nohup`); a server stops only if its terminal is gone, and
//! otherwise looks again at what it reads. The verb that waits decides what a clean stop is.

use std::fs::File;
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Interrupt, termination and hangup.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Option<Signal>,
}

impl Signals {
    /// Takes the signals over from their default.
    pub fn take() -> io::Result<Signals> {
        let hangup = match gtp_sys::signals::hangup_is_ignored()? {
            true => None,
            false => Some(signal(SignalKind::hangup())?),
        };
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup,
        })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = hangup => {}
        }
    }
}

/// What a signal asks of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// It is to end.
    Stop,
    /// It is to end without draining, because another process takes its place.
    GiveWay,
    /// It is to read its lists again.
    Reload,
}

/// The signals of a server.
pub struct ServerSignals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    give_way: Signal,
    start: Start,
}

/// How a process was started.
#[derive(Clone, Copy)]
struct Start {
    hangup: Hangup,
    terminal: Terminal,
}

#[derive(Clone, Copy)]
enum Hangup {
    Ignored,
    Heard,
}

#[derive(Clone, Copy)]
enum Terminal {
    There,
    None,
}

impl Terminal {
    /// Whether this process has a terminal that controls it.
    fn look() -> Terminal {
        if File::open("/dev/tty").is_ok() { Terminal::There } else { Terminal::None }
    }
}

impl ServerSignals {
    /// Takes the signals over from their default.
    pub fn take() -> io::Result<ServerSignals> {
        let hangup = match gtp_sys::signals::hangup_is_ignored()? {
            true => Hangup::Ignored,
            false => Hangup::Heard,
        };
        Ok(ServerSignals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            give_way: signal(SignalKind::user_defined2())?,
            start: Start { hangup, terminal: Terminal::look() },
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.interrupt.recv() => Wish::Stop,
            _ = self.terminate.recv() => Wish::Stop,
            _ = self.give_way.recv() => Wish::GiveWay,
            _ = self.hangup.recv() => of_hangup(self.start, Terminal::look()),
        }
    }
}

/// A hangup stops a server whose terminal has gone, unless the server ignores hangups. Any other
/// hangup is a request to read the lists again.
fn of_hangup(start: Start, terminal: Terminal) -> Wish {
    match (start.hangup, start.terminal, terminal) {
        (Hangup::Heard, Terminal::There, Terminal::None) => Wish::Stop,
        (Hangup::Ignored | Hangup::Heard, Terminal::There | Terminal::None, _) => Wish::Reload,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hangup_ends_a_server_only_if_it_has_lost_its_terminal_and_was_not_to_ignore_that() {
        let (heard, ignored) = (Hangup::Heard, Hangup::Ignored);
        let (there, none) = (Terminal::There, Terminal::None);
        let wish = |hangup, then, now| of_hangup(Start { hangup, terminal: then }, now);
        assert_eq!(wish(heard, there, none), Wish::Stop);
        assert_eq!(wish(heard, there, there), Wish::Reload);
        assert_eq!(wish(heard, none, none), Wish::Reload);
        assert_eq!(wish(ignored, there, none), Wish::Reload);
    }
}
