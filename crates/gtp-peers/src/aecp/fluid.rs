//! AECP in continuous time: the whole of eq. 6, any network, delays included.
//!
//! Rates and factors are kept as logarithms, as in eq. 7, in which the source's law is linear;
//! steps are classical Runge-Kutta. A delayed factor is read from the past of the run, between
//! two steps in a straight line. No noise, no packets, no bounds: what the theorems are about.
//! Rates are in packets per second, times in seconds.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use super::Gains;

/// The longest past that a fluid keeps, in steps.
pub const PAST_MAX: usize = 100_000;

/// A flow of the fluid.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Indices of the links it crosses.
    pub route: Vec<usize>,
    /// How old the factor is that its source sees: `tau`, seconds, rounded to steps.
    pub delay: f64,
    /// Its rate at first.
    pub rate: f64,
}

/// Why a flow or a fluid was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FluidError {
    /// A capacity, a rate, a factor or the step is not a positive number.
    NotPositive,
    /// The route is empty or names a link that does not exist.
    Route,
    /// The delay is negative, or more than [`PAST_MAX`] steps.
    Delay,
}

impl fmt::Display for FluidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FluidError::NotPositive => "capacities, rates, factors and steps must be above zero",
            FluidError::Route => "a route must name one or more of the fluid's links",
            FluidError::Delay => "a delay must be from zero to a hundred thousand steps",
        })
    }
}

impl core::error::Error for FluidError {}

/// A network of links and flows that evolve in turn.
#[derive(Clone, Debug)]
pub struct Fluid {
    gains: Gains,
    capacity: Vec<f64>,
    flows: Vec<Flow>,
    /// Delays of flows in steps.
    delays: Vec<usize>,
    step: f64,
    steps: u64,
    now: State,
    /// Logarithms of factors at the ends of past steps, the newest (the present) in front.
    past: VecDeque<Vec<f64>>,
}

/// Where everything stands, or how fast it changes.
#[derive(Clone, Debug)]
struct State {
    /// `u = ln x`, by flow.
    rates: Vec<f64>,
    /// `v = ln r`, by link.
    factors: Vec<f64>,
    /// `q` in packets, by link.
    queues: Vec<f64>,
}

impl Fluid {
    /// Idle links of these capacities, all with the same factor, in steps of `step` seconds.
    ///
    /// # Errors
    /// [`FluidError::NotPositive`].
    pub fn new(
        gains: Gains,
        capacity: &[f64],
        factor: f64,
        step: f64,
    ) -> Result<Fluid, FluidError> {
        if !capacity.iter().chain([&factor, &step]).all(|value| is_positive(*value)) {
            return Err(FluidError::NotPositive);
        }
        let factors = vec![libm::log(factor); capacity.len()];
        Ok(Fluid {
            gains,
            capacity: capacity.to_vec(),
            flows: Vec::new(),
            delays: Vec::new(),
            step,
            steps: 0,
            past: VecDeque::from([factors.clone()]),
            now: State { rates: Vec::new(), factors, queues: vec![0.0; capacity.len()] },
        })
    }

    /// Lets a flow begin now; its index.
    ///
    /// # Errors
    /// Any [`FluidError`].
    pub fn add_flow(&mut self, flow: Flow) -> Result<usize, FluidError> {
        if !is_positive(flow.rate) {
            return Err(FluidError::NotPositive);
        }
        if flow.route.is_empty() || flow.route.iter().any(|link| *link >= self.capacity.len()) {
            return Err(FluidError::Route);
        }
        let delay = libm::round(flow.delay / self.step);
        if !(0.0..=PAST_MAX as f64).contains(&delay) {
            return Err(FluidError::Delay);
        }
        self.now.rates.push(libm::log(flow.rate));
        self.delays.push(delay as usize);
        self.flows.push(flow);
        Ok(self.flows.len() - 1)
    }

    /// Goes on for `seconds`, in whole steps.
    pub fn run_for(&mut self, seconds: f64) {
        for _ in 0..libm::round(seconds / self.step) as u64 {
            self.advance();
        }
    }

    /// Goes on until `reached` says so, at most for `seconds`; when that was.
    pub fn run_until(
        &mut self,
        seconds: f64,
        mut reached: impl FnMut(&Fluid) -> bool,
    ) -> Option<f64> {
        let last = self.time() + seconds;
        while !reached(self) {
            if self.time() > last {
                return None;
            }
            self.advance();
        }
        Some(self.time())
    }

    /// Goes on by one step of the Runge-Kutta method of fourth order.
    pub fn advance(&mut self) {
        let h = self.step;
        let first = self.slope(&self.now, 0.0);
        let second = self.slope(&self.now.plus(&first, h / 2.0), 0.5);
        let third = self.slope(&self.now.plus(&second, h / 2.0), 0.5);
        let fourth = self.slope(&self.now.plus(&third, h), 1.0);
        for (slope, weight) in [(first, 1.0), (second, 2.0), (third, 2.0), (fourth, 1.0)] {
            self.now = self.now.plus(&slope, h * weight / 6.0);
        }
        self.steps += 1;
        self.past.push_front(self.now.factors.clone());
        let longest = self.delays.iter().max().copied().unwrap_or(0);
        self.past.truncate(longest + 1);
    }

    /// Seconds since the fluid was made.
    #[must_use]
    pub fn time(&self) -> f64 {
        self.steps as f64 * self.step
    }

    /// Every flow's rate.
    #[must_use]
    pub fn rates(&self) -> Vec<f64> {
        self.now.rates.iter().map(|u| libm::exp(*u)).collect()
    }

    /// A link's factor; `None` if there is no such link.
    #[must_use]
    pub fn factor(&self, link: usize) -> Option<f64> {
        self.now.factors.get(link).map(|v| libm::exp(*v))
    }

    /// A link's queue in packets; `None` if there is no such link.
    #[must_use]
    pub fn queue(&self, link: usize) -> Option<f64> {
        self.now.queues.get(link).copied()
    }

    /// Eq. 7 in the state `at`, which is `into` the present step, a share of it.
    fn slope(&self, at: &State, into: f64) -> State {
        let Gains { alpha, beta, mend, queue: wanted } = self.gains;
        let mut load = vec![0.0; self.capacity.len()];
        let mut rates = Vec::with_capacity(self.flows.len());
        for (flow, (u, delay)) in self.flows.iter().zip(at.rates.iter().zip(&self.delays)) {
            let seen = flow.route.iter().map(|link| self.seen(at, *link, *delay, into));
            // u' = alpha * (v_path(t - tau) - u), v_path the least of the route: eq. 3, 4, 7
            rates.push(alpha * (seen.fold(f64::INFINITY, f64::min) - u));
            for link in &flow.route {
                load[*link] += libm::exp(*u);
            }
        }
        let links = || self.capacity.iter().zip(load.iter().zip(&at.queues));
        // v' = beta * (1 - (sum x + (q - q0)/T) / C): eq. 2, 7
        let factors =
            links().map(|(c, (y, q))| beta * (1.0 - (y + (q - wanted) / mend) / c)).collect();
        // q' = sum x - C while there is a queue: eq. 5
        let queues =
            links().map(|(c, (y, q))| if *q <= 0.0 { (y - c).max(0.0) } else { y - c }).collect();
        State { rates, factors, queues }
    }

    /// The logarithm of a link's factor as it was `delay` steps before the moment `into` the step.
    fn seen(&self, at: &State, link: usize, delay: usize, into: f64) -> f64 {
        let Some(later) = delay.checked_sub(1) else { return at.factors[link] };
        // Before the fluid was made its factors were as then.
        let oldest = self.past.len() - 1;
        let from = self.past[delay.min(oldest)][link];
        let to = self.past[later.min(oldest)][link];
        from + into * (to - from)
    }
}

impl State {
    /// This state after `span` seconds at a constant `slope`; no queue is below empty.
    fn plus(&self, slope: &State, span: f64) -> State {
        let step = |values: &[f64], slopes: &[f64]| -> Vec<f64> {
            values.iter().zip(slopes).map(|(value, slope)| value + slope * span).collect()
        };
        let queues = step(&self.queues, &slope.queues).iter().map(|q| q.max(0.0)).collect();
        State {
            rates: step(&self.rates, &slope.rates),
            factors: step(&self.factors, &slope.factors),
            queues,
        }
    }
}

fn is_positive(value: f64) -> bool {
    value.is_finite() && value > 0.0
}
