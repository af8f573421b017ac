//! One session where it crosses one link of a router.
//!
//! It knows what the router granted last, and what it was asked last. It knows neither the
//! session's other passages nor whether the router is there.

use gtp_alloc::{Rate, Span};

use super::has_moved;
use super::wire::{Answer, Ask, Stage, Verdict};
use crate::limits::{ROUTER_LEAST, ROUTER_WEIGHT_LEAST, ROUTER_WEIGHT_MOST};

/// What a session is told and asked about one link.
#[derive(Debug)]
pub(super) struct Crossed {
    /// The router, by its place among the host's, and the one-way link there.
    pub router: usize,
    pub link: u8,
    granted: Option<Granted>,
    /// The number of the newest grant that the session's source is known to keep to.
    echoed: u32,
    /// What is to be asked now, and what was asked last.
    asks: Option<Ask>,
    asked: Option<Ask>,
}

/// What the router has said.
#[derive(Clone, Copy, Debug)]
struct Granted {
    verdict: Verdict,
    number: u32,
    rate: Rate,
    offer: Rate,
}

/// What bounds a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// What it may send.
    pub rate: Rate,
    /// What it could have if nothing else limited it.
    pub offer: Rate,
}

impl Bounds {
    pub const NONE: Bounds = Bounds { rate: Rate::UNLIMITED, offer: Rate::UNLIMITED };
}

/// What a session could use on a link, by everything but this link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub session: u64,
    pub stage: Stage,
    pub weight: f64,
    pub bound: Rate,
    pub held: Rate,
    pub rtt: Span,
}

impl Crossed {
    pub fn new(router: usize, link: u8) -> Crossed {
        Crossed { router, link, granted: None, echoed: 0, asks: None, asked: None }
    }

    /// What the router lets the session have, while it is heeded.
    pub fn bounds(&self) -> Bounds {
        match self.granted {
            // Until the first answer, which is soon, it may not be more.
            None => Bounds { rate: ROUTER_LEAST, offer: Rate::UNLIMITED },
            Some(Granted { verdict: Verdict::PassedOver, .. }) => Bounds::NONE,
            Some(Granted { verdict: Verdict::Granted, rate, offer, .. }) => {
                Bounds { rate: rate.max(ROUTER_LEAST), offer: offer.max(ROUTER_LEAST) }
            }
        }
    }

    /// The router has answered.
    pub fn hear(&mut self, answer: &Answer) {
        let Answer { verdict, number, rate, offer, .. } = *answer;
        if number < self.echoed {
            self.echoed = 0; // The router had forgotten the session and begins its numbers anew.
        }
        self.granted = Some(Granted { verdict, number, rate, offer });
    }

    /// The router has begun anew, and its numbers with it.
    pub fn begin_anew(&mut self) {
        self.echoed = 0;
        if let Some(granted) = &mut self.granted {
            granted.number = 0;
        }
    }

    /// The router was silent for too long: nothing that it granted binds any more.
    pub fn forget(&mut self) {
        let (number, rate, offer) = (0, Rate::UNLIMITED, Rate::UNLIMITED);
        self.granted = Some(Granted { verdict: Verdict::PassedOver, number, rate, offer });
        self.echoed = 0;
    }

    /// Takes note of what the session wishes. A grant is kept to when no more than it can be under
    /// way. Returns whether the router should hear of a change before all is repeated.
    pub fn wish(&mut self, wish: &Wish) -> bool {
        if let Some(granted) = self.granted
            && granted.verdict == Verdict::Granted
            && wish.held <= granted.rate.max(ROUTER_LEAST)
        {
            self.echoed = granted.number;
        }
        let ask = Ask {
            session: wish.session,
            link: self.link,
            stage: wish.stage,
            weight: wish.weight.clamp(ROUTER_WEIGHT_LEAST, ROUTER_WEIGHT_MOST) as f32,
            bound: wish.bound,
            held: wish.held,
            echoed: self.echoed,
            rtt: wish.rtt,
        };
        self.asks = Some(ask);
        self.asked.is_none_or(|asked| is_news(&asked, &ask))
    }

    /// What to ask, which leaves now.
    pub fn ask(&mut self) -> Option<Ask> {
        self.asked = self.asks;
        self.asks
    }
}

fn is_news(asked: &Ask, ask: &Ask) -> bool {
    has_moved(asked.bound, ask.bound)
        || asked.stage != ask.stage
        || asked.echoed != ask.echoed
        || asked.weight != ask.weight
}
