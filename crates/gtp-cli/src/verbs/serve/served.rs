//! Whether a server goes on, for the manager: each part of it is asked.
//!
//! The parts are the loop that takes events and signals, the loop that takes clients, and the
//! engines' threads. A part that hangs does not answer, and then nothing is said for it.

use gtp::{Asked, Asker, Pulse, RunningServer, Sessions, questions};
use tokio::sync::watch;

use crate::manager::Serving;

/// Asks the parts of a server.
pub struct Served {
    pulse: Pulse,
    sessions: Sessions,
    is_doing: watch::Receiver<&'static str>,
    events: Asker,
}

impl Served {
    /// Both ends of the questions for a server, which says in words what it is doing. The second
    /// one is the loop's that takes events and signals.
    pub fn of(running: &RunningServer, is_doing: watch::Receiver<&'static str>) -> (Served, Asked) {
        let (events, asked) = questions();
        let (pulse, sessions) = (running.pulse(), running.sessions());
        (Served { pulse, sessions, is_doing, events }, asked)
    }
}

impl Serving for Served {
    async fn beat(&mut self) -> Option<String> {
        if !(self.events.ask().await && self.pulse.beat().await) {
            return None;
        }
        let sessions = gtp_text::count(self.sessions.running().len() as u64, "session");
        Some(format!("{}; {sessions}", *self.is_doing.borrow()))
    }
}

#[cfg(test)]
mod tests {
    use gtp::{Host, Server};

    use super::*;

    #[tokio::test]
    async fn a_server_whose_loop_for_events_makes_no_step_gives_no_sign_of_life() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::builder().config_dir(dir.path()).start().unwrap();
        let server = Server::export(dir.path()).listen("127.0.0.1:0").public();
        let running = server.start(&host).await.unwrap();
        let (_doing, is_doing) = watch::channel("serves");
        let (mut served, mut asked) = Served::of(&running, is_doing);
        let (status, ()) = tokio::join!(served.beat(), asked.answer());
        assert_eq!(status.as_deref(), Some("serves; 0 sessions"));
        let pulse = running.pulse();
        let mut beat = Box::pin(served.beat());
        // The other parts go on, and have long answered when the server does this time.
        let first = tokio::select! {
            biased;
            _ = &mut beat => "the sign of life",
            _ = pulse.beat() => "the other parts",
        };
        assert_eq!(first, "the other parts");
        drop(asked);
        assert!(beat.await.is_none(), "a loop that has ended goes on");
    }
}
