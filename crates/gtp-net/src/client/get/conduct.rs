//! How sources that fail are treated: tried again, made to wait, or given up.
//!
//! A failure that may be temporary is retried soon. A source that broke a rule waits much longer,
//! and is given up at its third breach, whatever it has brought in between: an honest source breaks
//! no rule, and each new session costs the others the time until its next breach. Every source that
//! is given up is reported.

use std::time::Duration;

use gtp_alloc::{Span, Time};

use super::{
    Event, Failure, FailureKind, Gather, Inquiry, Revision, Silences, Source, State, Url, Way,
    back_off_after,
};

/// Breaches at which a source is given up for the rest of the transfer.
const BREACHES_MAX: u32 = 3;

/// The pause after the first breach; each further one is four times as long.
const BREACH_PAUSE: Duration = Duration::from_secs(5);

/// How long the last word of a source that has closed the session may take: it says it right after
/// that, and TCP repeats it where it is lost.
const LAST_WORD_SPAN: Span = Span::from_secs(2);

/// The pause after this many breaches, counted from 1; `None` means no further attempt.
fn penalty(breaches: u32) -> Option<Duration> {
    (breaches < BREACHES_MAX).then(|| BREACH_PAUSE * 4u32.pow(breaches.saturating_sub(1)))
}

/// Whether it is about a key: the server's is not believed, or this host's is not let in.
fn is_of_key(failure: &Failure) -> bool {
    use FailureKind::{Authentication, OutsideHours, Revoked};
    matches!(failure.kind, Authentication | OutsideHours | Revoked)
}

impl Source {
    /// A source that nothing is known of.
    pub(super) fn at(url: Url) -> Source {
        Source {
            url,
            state: State::Connecting,
            began: Time::ZERO,
            tries: 0,
            path_seen: false,
            peer: None,
            revision: Revision::First,
            way: Way::Udp,
            silences: Silences::default(),
            inquiry: Inquiry::default(),
            is_carried: false,
            bad_blocks: 0,
            breaches: 0,
            admitted: false,
            differs: false,
            lost_by: None,
            parted: None,
            line: None,
        }
    }
}

impl Gather {
    /// A source is lost or refuses: retries it if that may be temporary, else gives it up.
    pub(super) fn source_failed(&mut self, number: usize, failure: Failure) -> Result<(), Failure> {
        if !failure.is_temporary() {
            return self.give_up(number, failure);
        }
        let source = &self.sources[number];
        let pause = back_off_after(source.tries, self.clock.now().since(source.began));
        self.try_again(number, failure, pause)
    }

    /// A source has closed the session in order. Why, it says on its line, where that may come
    /// later: it decides whether there is any use in trying again.
    pub(super) fn parted(&mut self, number: usize, why: String) {
        let failure = Failure::new(FailureKind::Temporary, why);
        self.sources[number].parted = Some((self.clock.now() + LAST_WORD_SPAN, failure));
    }

    /// Goes on without the last words of sources that have said none in time.
    pub(super) fn go_on_unheard(&mut self) -> Result<(), Failure> {
        let now = self.clock.now();
        for number in 0..self.sources.len() {
            let parted = self.sources[number].parted.take_if(|(until, _)| *until <= now);
            if let Some((_, failure)) = parted {
                self.source_failed(number, failure)?;
            }
        }
        Ok(())
    }

    /// A source broke a rule that an honest one keeps.
    pub(super) fn source_broke(&mut self, number: usize, why: String) -> Result<(), Failure> {
        let source = &mut self.sources[number];
        source.breaches += 1;
        match penalty(source.breaches) {
            Some(pause) => self.try_again(number, Failure::new(FailureKind::Temporary, why), pause),
            None => {
                let text = format!("{why}; it broke {BREACHES_MAX} rules");
                self.give_up(number, Failure::new(FailureKind::Other, text))
            }
        }
    }

    fn try_again(
        &mut self,
        number: usize,
        failure: Failure,
        pause: Duration,
    ) -> Result<(), Failure> {
        self.note_failure(number, &failure);
        let source = &mut self.sources[number];
        source.tries += 1;
        source.lost_by = Some(failure.clone());
        let url = source.url.to_string();
        let after = Span::from_nanos(pause.as_nanos() as u64);
        self.monitor.tell(Event::Retry { url, failure, after });
        self.connect(number, pause);
        self.judge_roots()
    }

    /// The transfer goes on without this source, if there is another.
    pub(super) fn give_up(&mut self, number: usize, failure: Failure) -> Result<(), Failure> {
        let named = self.note_failure(number, &failure);
        // A key that does not fit is never passed over: an attacker may be in between.
        let fatal = is_of_key(&failure);
        self.sources[number].parted = None;
        // Without the sender of its orders its line says farewell by itself.
        let state = std::mem::replace(&mut self.sources[number].state, State::Gone(named.clone()));
        if let (State::Live { flow, .. }, Some(running)) = (state, &self.running) {
            running.transfer.remove_session(flow);
        }
        if fatal || self.all_gone() {
            return Err(self.all_failures().unwrap_or(named));
        }
        let url = self.sources[number].url.to_string();
        self.monitor.tell(Event::Dropped { url, failure });
        // The sources that are left may have answered everything already.
        self.judge_roots()
    }

    /// Remembers why a source failed; returns that with its name, if there are several.
    fn note_failure(&mut self, number: usize, failure: &Failure) -> Failure {
        if let Some(check) = self.running.as_mut().and_then(|r| r.check.as_mut()) {
            check.forget(number);
        }
        let named = match self.sources.len() {
            1 => failure.clone(),
            _ => failure.clone().about(&self.sources[number].url),
        };
        self.last_failure = Some(named.clone());
        named
    }

    pub(super) fn all_gone(&self) -> bool {
        self.sources.iter().all(|s| matches!(s.state, State::Gone(_)))
    }

    /// Why every source is given up, each named; if a key does not fit, that reason alone.
    fn all_failures(&self) -> Option<Failure> {
        let gone = self.sources.iter().filter_map(|s| match &s.state {
            State::Gone(failure) => Some(failure),
            State::Connecting | State::Parked(_) | State::Live { .. } => None,
        });
        let failures: Vec<&Failure> = gone.collect();
        let key = failures.iter().find(|f| is_of_key(f));
        if let Some(&key) = key {
            return Some(key.clone());
        }
        let first = *failures.first()?;
        let texts: Vec<&str> = failures.iter().map(|f| f.text.as_str()).collect();
        Some(Failure::new(first.kind, texts.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_breaks_rules_waits_longer_each_time_and_has_no_fourth_session() {
        let seconds = |breaches| penalty(breaches).map(|pause| pause.as_secs());
        assert_eq!([1, 2, 3, 4].map(seconds), [Some(5), Some(20), None, None]);
    }
}
