//! Copies from behind one login to behind another one.
//!
//! ssh starts a far end at each. The one that receives is a server for a single client: the one
//! that sends, whose key it is told. That one is told the server's key and addresses, sends, and
//! reports. Data go from one to the other; where they cannot, as links through this end, which only
//! sees what TLS shows. Neither far end is trusted with more than its own part: docs/PROTOCOL.md,
//! chapter 25.

use std::net::SocketAddr;
use std::time::Duration;

use gtp::{Failure, FailureKind, Outcome, Progress, Span, Time};
use gtp_sys::Clock;
use tokio::time::{MissedTickBehavior, timeout};

use super::hello::{Ready, Receive, Request, Want};
use super::messages::{Heard, Order, Report, Say};
use super::near::{FarEnd, Sender, Way, call, call_sender};
use super::operand::{Login, Remote};
use super::program::Program;
use super::{
    Copy, CpArgs, LAST_WORDS_SPAN, Sources, addresses, paths, unless_stopped, url, with_advice,
};
use crate::output::aside;
use crate::show::Shower;
use crate::verbs::transfer::{LOOK_SPAN, time_limit};

/// Both far ends, and what is known of the transfer between them.
struct Pair<'a> {
    from: &'a Login,
    to: &'a Login,
    sender: Sender,
    receiver: FarEnd,
    /// Where the data go, for people and programs.
    url: String,
    clock: Clock,
    began: Time,
    newest: Progress,
    silence: Silence,
    /// Why the transfer is to stop, and since when.
    stopped: Option<(FailureKind, Time)>,
}

impl Copy<'_> {
    /// Copies from one login to another one; says whether to go on with the next. With `several`
    /// everything goes beneath the destination.
    pub(super) async fn between(
        &mut self,
        Sources { login, paths: asked }: &Sources,
        several: bool,
        to: &Remote,
    ) -> Result<bool, Failure> {
        let calling = self.args.call_sender(login, asked);
        let sender = unless_stopped(&mut self.signals, calling).await?;
        let want = Receive { path: to.path.clone(), from: asked.clone() };
        let calling = self.args.call_receiver(&to.login, &sender, Want::Receive(want));
        let called = unless_stopped(&mut self.signals, calling).await;
        let (receiver, ready) = match called {
            Ok(called) => called,
            Err(failure) => {
                sender.far.close().await;
                return Err(failure);
            }
        };
        let beneath = several || paths::is_content(&to.path);
        let ends = (login, &to.login);
        let described = self.describe_order(ends, &sender.version, &ready, beneath).await;
        let ended = match described {
            Ok((order, url)) => {
                sender.order(order, receiver.detour()).await;
                let mut pair = Pair::new((login, &to.login), (sender, receiver), url);
                let ended = pair.watch(self).await;
                let Pair { sender, receiver, .. } = pair;
                tokio::join!(sender.far.close(), receiver.close());
                ended
            }
            Err(failure) => {
                tokio::join!(sender.far.close(), receiver.close());
                Err(failure)
            }
        };
        Ok(self.ends.take(ended, &mut self.shower))
    }

    /// What the far end that sends has to know of the other one; and the place, for people.
    async fn describe_order(
        &self,
        (from, to): (&Login, &Login),
        version: &str,
        ready: &Ready,
        beneath: bool,
    ) -> Result<(Say, String), Failure> {
        let [place] = &ready.found[..] else {
            return Err(Failure::new(FailureKind::Other, format!("{to}: it found no place")));
        };
        let shown = url(to, ready, &place.path, beneath)?.to_string();
        let addresses: Vec<SocketAddr> = addresses(to, ready).await;
        let detour = format!("{from} cannot reach {to}: the data go through here, which is slower");
        let order = Order::new(to.host(), ready.key, (addresses, ready.port));
        let order = Order { path: place.path.clone(), beneath, detour, ..order };
        let mut order = order.with_terms(&self.args.transfer);
        for omitted in order.omit_unknown(version) {
            aside(format_args!("gtp: {from}: gtp there is too old for {omitted}"));
        }
        let order = Say::send(order);
        Ok((order.map_err(|failure| failure.about(to))?, shown))
    }
}

impl CpArgs {
    async fn call_sender(&self, login: &Login, paths: &[String]) -> Result<Sender, Failure> {
        // It lets nobody in, so whose key stands there does not matter.
        let key = gtp::Identity::generate().fingerprint();
        let request = self.request(key, Want::Send(paths.to_vec()));
        call_sender(self.way(login)?, &request).await
    }

    async fn call_receiver(
        &self,
        login: &Login,
        sender: &Sender,
        want: Want,
    ) -> Result<(FarEnd, Ready), Failure> {
        call(self.way(login)?, &self.request(sender.key, want), None).await
    }

    fn request(&self, key: gtp::Fingerprint, want: Want) -> Request {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Request { version, key, ports: self.way.port, want }
    }

    fn way<'w>(&'w self, login: &'w Login) -> Result<Way<'w>, Failure> {
        let program = self.way.install.then(Program::read).transpose()?;
        Ok(Way { ssh: &self.way.ssh, options: &[], login, program, silence: self.way.login_limit })
    }
}

impl<'a> Pair<'a> {
    fn new(
        (from, to): (&'a Login, &'a Login),
        (sender, receiver): (Sender, FarEnd),
        url: String,
    ) -> Pair<'a> {
        let (newest, silence) = (Progress::default(), Silence::default());
        let clock = Clock::start();
        let began = clock.now();
        Pair { from, to, sender, receiver, url, clock, began, newest, silence, stopped: None }
    }

    /// Shows the transfer to its end; obeys signals and the time limit.
    async fn watch(&mut self, copy: &mut Copy<'_>) -> Result<Outcome, Failure> {
        let mut limit = std::pin::pin!(time_limit(&copy.args.transfer));
        let mut look = tokio::time::interval(LOOK_SPAN);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        copy.shower.begin();
        copy.shower.tell_of_others();
        let ended = loop {
            tokio::select! {
                biased;
                () = copy.signals.next() => {
                    if matches!(self.stopped, Some((FailureKind::Interrupted, _))) {
                        std::process::exit(i32::from(FailureKind::Interrupted.exit_code()));
                    }
                    self.stop(FailureKind::Interrupted).await;
                }
                () = &mut limit, if self.stopped.is_none() => {
                    self.stop(FailureKind::TimeLimit).await;
                }
                _ = look.tick() => {
                    copy.shower.progress(&self.newest);
                    if let Some(failure) = self.look() {
                        break Err(failure);
                    }
                }
                report = self.sender.reports.recv() => {
                    if let Some(ended) = self.hear(report, &mut copy.shower).await {
                        break ended;
                    }
                }
                how = self.receiver.gone() => break Err(gone(self.to, &how)),
            }
        };
        let ended = self.judge(ended);
        copy.shower.end(&ended);
        ended
    }

    /// Takes in a report, or that there are no more; `Some` is the end.
    async fn hear(
        &mut self,
        report: Option<Vec<u8>>,
        shower: &mut Shower,
    ) -> Option<Result<Outcome, Failure>> {
        let Some(report) = report else { return Some(Err(self.sender_gone().await)) };
        self.silence = Silence::default();
        match Report::heard(&report, &self.url, self.clock.now().since(self.began)) {
            Ok(Heard::Event(event)) => {
                shower.event(&event);
                None
            }
            Ok(Heard::Progress(progress)) => {
                self.newest = progress;
                None
            }
            Ok(Heard::Ended(ended)) => Some(ended),
            Err(bad) => {
                Some(Err(Failure::new(FailureKind::Other, bad.to_string()).about(self.from)))
            }
        }
    }

    /// Has the transfer stopped; the report of its end follows.
    async fn stop(&mut self, kind: FailureKind) {
        self.stopped = Some((kind, self.clock.now()));
        // One that does not listen is given up soon.
        let _ = timeout(LAST_WORDS_SPAN, self.sender.say(Say::Stop(kind.as_str().into()))).await;
    }

    /// Why to wait no longer: the transfer has not stopped within the time for that, or nothing is
    /// reported.
    fn look(&mut self) -> Option<Failure> {
        if let Some((kind, since)) = self.stopped {
            return (self.clock.now().since(since) > STOP_SPAN).then(|| stopped(kind));
        }
        self.silence.look().then(|| silent(self.from))
    }

    /// Why nothing more is reported.
    async fn sender_gone(&mut self) -> Failure {
        match timeout(LAST_WORDS_SPAN, self.sender.far.gone()).await {
            Ok(how) => gone(self.from, &how),
            Err(_) => {
                let text = "what it says over ssh is no report";
                Failure::new(FailureKind::Other, text).about(self.from)
            }
        }
    }

    /// The end as the user should hear of it.
    fn judge(&self, ended: Result<Outcome, Failure>) -> Result<Outcome, Failure> {
        match (ended, self.stopped) {
            (Ok(outcome), _) => Ok(outcome),
            // A signal ends ssh as well, and what that breaks is no news.
            (Err(failure), Some((kind, _))) if failure.kind != kind => Err(stopped(kind)),
            (Err(failure), _) => Err(with_advice(failure)),
        }
    }
}

/// How long the far end that sends has reported nothing, in looks at it. Looks that this process
/// has missed, because it was stopped or its host was, do not count: no report can have come.
#[derive(Default)]
struct Silence {
    looks: u32,
}

impl Silence {
    /// Counts a look; says whether there have been too many.
    fn look(&mut self) -> bool {
        self.looks += 1;
        LOOK_SPAN.saturating_mul(self.looks) > REPORT_SPAN
    }
}

/// That a far end has stopped to report, though ssh still runs.
fn silent(login: &Login) -> Failure {
    let text = format!(
        "{login}: the far end has reported nothing for {} s; what is complete is kept, repeat the \
         command to go on",
        REPORT_SPAN.as_secs()
    );
    Failure::new(FailureKind::Temporary, text)
}

/// That the user, or the time limit, has stopped the transfer.
fn stopped(kind: FailureKind) -> Failure {
    Failure::new(kind, "stopped; what is complete is kept, repeat the command to go on")
}

/// That a far end is gone.
fn gone(login: &Login, how: &str) -> Failure {
    let text = format!(
        "{login}: ssh {how}, and the far end is gone; what is complete is kept, repeat the command \
         to go on"
    );
    Failure::new(FailureKind::Temporary, text)
}

/// Time for a transfer to stop: the far end that sends takes five seconds at most.
const STOP_SPAN: Span = Span::from_secs(6);

/// Time without a report after which a far end is given up. It reports ten times a second.
const REPORT_SPAN: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_far_end_that_reports_nothing_for_a_minute_is_given_up_and_no_sooner() {
        let mut silence = Silence::default();
        let looks = (1..).find(|_| silence.look()).unwrap_or(0);
        let took = LOOK_SPAN * looks;
        assert!(took > REPORT_SPAN && took <= REPORT_SPAN + LOOK_SPAN, "{took:?}");
    }
}
