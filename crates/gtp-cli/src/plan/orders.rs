//! Carries a plan out: each transfer is an order to the server that wants the object.
//!
//! All that may run at once does, so that the hosts' agents share what they have over the whole
//! plan. A transfer begins when those that it waits for have ended well. One that fails stops none
//! but those that wait for it. A signal and the time limit stop all of them.

use std::time::Duration;

use gtp::{Event, Failure, FailureKind, Host, Order, Outcome, Progress, Stopper, Transfer};
use tokio::sync::mpsc;

use super::PlanArgs;
use super::file::Plan;
use crate::show::plan::Watched;
use crate::signals::Signals;
use crate::verbs::transfer::{Ends, LOOK_SPAN};

/// A transfer: an object, and which of those who want it.
pub type Number = (usize, usize);

/// What a transfer tells.
enum Told {
    Event(Event),
    Progress(Progress),
    Ended(Result<Outcome, Failure>),
}

/// News of all transfers that wait to be shown.
const NEWS_MOST: usize = 1_024;

/// How a transfer stands.
enum State {
    Waiting,
    Running(Stopper),
    Ended(Result<Outcome, Failure>),
}

struct Orders<'a> {
    host: &'a Host,
    plan: &'a Plan,
    args: &'a PlanArgs,
    /// By object and place that wants it.
    states: Vec<Vec<State>>,
    tell: mpsc::Sender<(Number, Told)>,
    /// Why no further transfer begins.
    stopped: Option<FailureKind>,
}

/// Carries a plan out, and returns how its transfers ended.
///
/// # Errors
/// If an order cannot even be described.
pub async fn run(
    host: &Host,
    plan: &Plan,
    args: &PlanArgs,
    signals: &mut Signals,
    watched: &mut Watched<'_>,
) -> Result<Ends, Failure> {
    let waiting = |wants: usize| (0..wants).map(|_| State::Waiting).collect();
    let states = plan.objects.iter().map(|object| waiting(object.wants.len())).collect();
    let (tell, mut told) = mpsc::channel(NEWS_MOST);
    let mut orders = Orders { host, plan, args, states, tell, stopped: None };
    let mut limit = std::pin::pin!(until(args.time_limit));
    let mut look = tokio::time::interval(LOOK_SPAN);
    orders.begin(watched)?;
    while orders.is_running() {
        tokio::select! {
            biased;
            () = signals.next() => {
                if orders.stopped == Some(FailureKind::Interrupted) {
                    std::process::exit(i32::from(FailureKind::Interrupted.exit_code()));
                }
                orders.stop(FailureKind::Interrupted);
            }
            () = &mut limit, if orders.stopped.is_none() => orders.stop(FailureKind::TimeLimit),
            _ = look.tick() => watched.look(),
            Some((number, news)) = told.recv() => match news {
                Told::Event(event) => watched.event(number, &event),
                Told::Progress(progress) => watched.progress(number, progress),
                Told::Ended(ended) => {
                    orders.end(number, ended, watched);
                    orders.begin(watched)?;
                }
            },
        }
    }
    Ok(orders.ends())
}

impl Orders<'_> {
    /// Begins what waits for nothing any more, and ends what waits in vain.
    fn begin(&mut self, watched: &mut Watched<'_>) -> Result<(), Failure> {
        // Objects come after those that they wait for, so one look is enough.
        for number in 0..self.plan.objects.len() {
            let Some(verdict) = self.verdict(number) else { continue };
            for sink in 0..self.plan.objects[number].wants.len() {
                if !matches!(self.states[number][sink], State::Waiting) {
                    continue;
                }
                match &verdict {
                    Ok(()) => self.start((number, sink), watched)?,
                    Err(why) => self.end((number, sink), Err(why.clone()), watched),
                }
            }
        }
        Ok(())
    }

    /// Whether an object's transfers may begin, or why they never will; `None` if that is not yet
    /// known.
    fn verdict(&self, number: usize) -> Option<Result<(), Failure>> {
        if let Some(kind) = self.stopped {
            return Some(Err(Failure::new(kind, "not begun: the plan was stopped")));
        }
        for &other in &self.plan.objects[number].after {
            for (sink, state) in self.states[other].iter().enumerate() {
                match state {
                    State::Waiting | State::Running(_) => return None,
                    State::Ended(Ok(_)) => {}
                    State::Ended(Err(_)) => {
                        let object = &self.plan.objects[other];
                        let to = &self.plan.hosts[object.wants[sink].host].name;
                        let text = format!("not begun: {} did not reach {to}", object.name);
                        return Some(Err(Failure::new(FailureKind::Temporary, text)));
                    }
                }
            }
        }
        Some(Ok(()))
    }

    fn start(&mut self, number: Number, watched: &mut Watched<'_>) -> Result<(), Failure> {
        let object = &self.plan.objects[number.0];
        let to = &object.wants[number.1];
        let order = Order::new(to.url.clone(), self.plan.hosts[to.host].key);
        let order = order.patience(self.args.retry_for);
        let order = object.has.iter().fold(order, |order, has| {
            order.source(has.at.url.clone(), self.plan.hosts[has.at.host].key)
        });
        let transfer = order.start(self.host)?;
        watched.begin(number);
        self.states[number.0][number.1] = State::Running(transfer.stopper());
        tokio::spawn(follow(number, transfer, self.tell.clone()));
        Ok(())
    }

    fn end(&mut self, number: Number, ended: Result<Outcome, Failure>, watched: &mut Watched<'_>) {
        watched.end(number, &ended);
        self.states[number.0][number.1] = State::Ended(ended);
    }

    fn stop(&mut self, kind: FailureKind) {
        self.stopped = Some(kind);
        for state in self.states.iter().flatten() {
            if let State::Running(stopper) = state {
                stopper.stop(kind);
            }
        }
    }

    fn is_running(&self) -> bool {
        self.states.iter().flatten().any(|state| !matches!(state, State::Ended(_)))
    }

    fn ends(self) -> Ends {
        let mut ends = Ends::default();
        for state in self.states.into_iter().flatten() {
            if let State::Ended(ended) = state {
                ends.note(ended);
            }
        }
        ends
    }
}

/// Tells what one transfer does, to its end.
async fn follow(number: Number, mut transfer: Transfer, tell: mpsc::Sender<(Number, Told)>) {
    let mut look = tokio::time::interval(LOOK_SPAN);
    let ended = loop {
        let told = tokio::select! {
            biased;
            event = transfer.next_event() => match event {
                Some(event) => Told::Event(event),
                None => break transfer.wait().await,
            },
            _ = look.tick() => Told::Progress(transfer.progress()),
        };
        // Nobody hears it when the command is over.
        let _ = tell.send((number, told)).await;
    };
    let _ = tell.send((number, Told::Ended(ended))).await;
}

async fn until(limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => std::future::pending().await,
    }
}
