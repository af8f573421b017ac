//! What entries read off the course of a run of rivals, as numbers.
//!
//! Times are seconds since the run began; rates are Mbit/s on the link into the receiver, headers
//! included, unless it says goodput. What a run does not have is an error, never a zero.

use super::run::{BIN_S, Course, FlowCourse, LOOK};
use serde::Deserialize;

/// What is read.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case", deny_unknown_fields)]
pub enum What {
    /// Each flow's mean rate.
    Rates {
        /// From when.
        from: f64,
        /// Until when.
        until: f64,
    },
    /// Each flow's mean goodput.
    Goodput {
        /// From when.
        from: f64,
        /// Until when.
        until: f64,
    },
    /// The mean rate of the flows together.
    Sum {
        /// From when.
        from: f64,
        /// Until when.
        until: f64,
    },
    /// Jain's index of their mean rates.
    Jain {
        /// From when.
        from: f64,
        /// Until when.
        until: f64,
    },
    /// The rate of the flows together in each step.
    Series {
        /// From when.
        from: f64,
        /// Until when.
        until: f64,
        /// Length of a step.
        step: f64,
    },
    /// Packets lost at the port as a part of those that came.
    Loss {
        /// From when.
        from: f64,
        /// Until when.
        until: f64,
    },
    /// Each flow's packets that did not arrive as a part of those that it sent, in packets of
    /// 1,500 bytes; what is under way counts as not arrived.
    FlowLoss {
        /// From when.
        from: f64,
        /// Until when.
        until: f64,
    },
    /// Each flow's rate as it was sent, in packets of 1,500 bytes.
    Sent {
        /// From when.
        from: f64,
        /// Until when.
        until: f64,
    },
    /// The longest queue before the port, in ms of its rate.
    Queue {
        /// From when.
        from: f64,
        /// Until when.
        until: f64,
    },
    /// The most that came to the port in a step, in packets of 1,500 bytes, as a part of its rate.
    Offered {
        /// From when.
        from: f64,
        /// Until when.
        until: f64,
        /// Length of a step.
        step: f64,
    },
    /// How long after its start each flow's rate in steps stays within this part of a rate until
    /// the run ends; infinite if it does not.
    Settled {
        /// The rate.
        mbps: f64,
        /// The part.
        within: f64,
        /// Length of a step.
        step: f64,
    },
    /// How long each flow's transfer took; infinite if it did not end.
    Done,
    /// The intervals between frames in ms, from this frame on, counted from zero.
    Frames {
        /// The first frame.
        first: usize,
    },
    /// When a frame was complete, in s since the run began.
    FrameAt {
        /// The frame, counted from zero.
        frame: usize,
    },
    /// Packets that found the receiving host's buffer full.
    Overrun,
    /// LambdaStream: the ratio of receiving over sending gaps in the first epoch that has one.
    Ratio,
    /// LambdaStream: what the first train found to be available, in Mbit/s.
    Available,
    /// LambdaStream: how often control changed the rate, and how often a loss did.
    Changes,
}

impl What {
    /// The numbers of these flows (from one; all if there are none) in this course.
    ///
    /// # Errors
    /// A sentence that says what the course does not have.
    pub fn read(&self, course: &Course, flows: &[usize]) -> Result<Vec<f64>, String> {
        let chosen = choose(course, flows)?;
        let each = |f: &dyn Fn(&FlowCourse) -> f64| Ok(chosen.iter().map(|c| f(c)).collect());
        match self {
            What::Rates { from, until } => means(course, &chosen, (*from, *until), wire),
            What::Goodput { from, until } => means(course, &chosen, (*from, *until), goodput),
            What::Sum { from, until } => {
                let rates = means(course, &chosen, (*from, *until), wire)?;
                Ok(vec![rates.iter().sum()])
            }
            What::Jain { from, until } => {
                let rates = means(course, &chosen, (*from, *until), wire)?;
                Ok(vec![gtp_path::jain(&rates)])
            }
            What::Series { from, until, step } => series(course, &chosen, *from, *until, *step),
            What::Loss { from, until } => {
                let (lost, seen) = (&course.lost, &course.seen);
                let (a, b) = looks(course, *from, *until)?;
                Ok(vec![(lost[b] - lost[a]) as f64 / (seen[b] - seen[a]) as f64])
            }
            What::FlowLoss { from, until } => flow_loss(course, &chosen, *from, *until),
            What::Sent { from, until } => {
                let (a, b) = looks(course, *from, *until)?;
                each(&|flow| (flow.sent[b] - flow.sent[a]) as f64 * PACKET / (until - from))
            }
            What::Queue { from, until } => {
                let (a, b) = looks(course, *from, *until)?;
                let most = course.queue[a..=b].iter().max().copied().unwrap_or(0);
                Ok(vec![most as f64 * 8e3 / course.port])
            }
            What::Offered { from, until, step } => offered(course, *from, *until, *step),
            What::Settled { mbps, within, step } => {
                chosen.iter().map(|flow| settled(course, flow, *mbps, *within, *step)).collect()
            }
            What::Done => each(&|flow| flow.done.unwrap_or(f64::INFINITY)),
            What::Frames { first } => {
                let frames = |flow: &&FlowCourse| {
                    let times = flow.frames.get(*first..).unwrap_or(&[]);
                    times.windows(2).map(|pair| (pair[1] - pair[0]) * 1e3).collect::<Vec<_>>()
                };
                Ok(chosen.iter().flat_map(frames).collect())
            }
            What::FrameAt { frame } => {
                let at = |flow: &&FlowCourse| flow.frames.get(*frame).copied();
                chosen.iter().map(at).collect::<Option<_>>().ok_or("no such frame".to_owned())
            }
            What::Overrun => each(&|flow| flow.overrun as f64),
            What::Ratio => known(&chosen, |flow| flow.ratio.map(|ratio| vec![ratio])),
            What::Available => known(&chosen, |flow| flow.available.map(|rate| vec![rate / 1e6])),
            What::Changes => {
                known(&chosen, |flow| flow.changes.map(|both| both.map(|n| n as f64).to_vec()))
            }
        }
    }
}

/// Mbit of a packet.
const PACKET: f64 = 1_500.0 * 8.0 / 1e6;

fn choose<'a>(course: &'a Course, flows: &[usize]) -> Result<Vec<&'a FlowCourse>, String> {
    if flows.is_empty() {
        return Ok(course.flows.iter().collect());
    }
    let one = |n: &usize| n.checked_sub(1).and_then(|k| course.flows.get(k));
    flows.iter().map(one).collect::<Option<_>>().ok_or("a flow that there is not".to_owned())
}

fn wire(flow: &FlowCourse) -> &[f64] {
    &flow.wire
}

fn goodput(flow: &FlowCourse) -> &[f64] {
    &flow.goodput
}

/// The bins of a span.
fn bins(course: &Course, from: f64, until: f64) -> Result<std::ops::Range<usize>, String> {
    within(course, from, until)?;
    Ok((from / BIN_S).round() as usize..(until / BIN_S).round() as usize)
}

/// The looks at both ends of a span.
fn looks(course: &Course, from: f64, until: f64) -> Result<(usize, usize), String> {
    within(course, from, until)?;
    let at = |t: f64| ((t / LOOK.as_secs_f64()).round() as usize).min(course.seen.len() - 1);
    Ok((at(from), at(until)))
}

fn within(course: &Course, from: f64, until: f64) -> Result<(), String> {
    if from >= 0.0 && from + BIN_S <= until && until <= course.seconds {
        return Ok(());
    }
    Err(format!("{from} to {until} s is no span of a run of {} s", course.seconds))
}

type Curve = fn(&FlowCourse) -> &[f64];

fn means(
    course: &Course,
    flows: &[&FlowCourse],
    (from, until): (f64, f64),
    curve: Curve,
) -> Result<Vec<f64>, String> {
    let bins = bins(course, from, until)?;
    let count = bins.len() as f64;
    let mean = |flow: &&FlowCourse| curve(flow)[bins.clone()].iter().sum::<f64>() / count;
    Ok(flows.iter().map(mean).collect())
}

fn series(
    course: &Course,
    flows: &[&FlowCourse],
    from: f64,
    until: f64,
    step: f64,
) -> Result<Vec<f64>, String> {
    let bins = bins(course, from, until)?;
    let size = ((step / BIN_S).round() as usize).max(1);
    let starts: Vec<usize> = bins.clone().step_by(size).filter(|a| a + size <= bins.end).collect();
    let mean = |a: &usize| {
        let sum: f64 = flows.iter().flat_map(|flow| &flow.wire[*a..a + size]).sum();
        sum / size as f64
    };
    Ok(starts.iter().map(mean).collect())
}

fn flow_loss(
    course: &Course,
    flows: &[&FlowCourse],
    from: f64,
    until: f64,
) -> Result<Vec<f64>, String> {
    let (a, b) = looks(course, from, until)?;
    let came = means(course, flows, (from, until), wire)?;
    let sent = |flow: &FlowCourse| (flow.sent[b] - flow.sent[a]) as f64 * PACKET;
    let part = |(flow, rate): (&&FlowCourse, f64)| 1.0 - rate * (until - from) / sent(flow);
    Ok(flows.iter().zip(came).map(part).collect())
}

fn offered(course: &Course, from: f64, until: f64, step: f64) -> Result<Vec<f64>, String> {
    let (a, b) = looks(course, from, until)?;
    let size = ((step / LOOK.as_secs_f64()).round() as usize).max(1);
    if a + size > b {
        return Err(format!("{step} s is longer than the span"));
    }
    let most = (a..=b - size).map(|i| course.seen[i + size] - course.seen[i]).max().unwrap_or(0);
    let seconds = size as f64 * LOOK.as_secs_f64();
    Ok(vec![most as f64 * PACKET * 1e6 / seconds / course.port])
}

fn settled(
    course: &Course,
    flow: &FlowCourse,
    mbps: f64,
    within: f64,
    step: f64,
) -> Result<f64, String> {
    let rates = series(course, &[flow], flow.start, course.seconds, step)?;
    let outside = rates.iter().rposition(|rate| (rate / mbps - 1.0).abs() > within);
    Ok(match outside {
        Some(last) if last + 1 == rates.len() => f64::INFINITY,
        Some(last) => (last + 1) as f64 * step,
        None => 0.0,
    })
}

fn known(
    flows: &[&FlowCourse],
    of: impl Fn(&FlowCourse) -> Option<Vec<f64>>,
) -> Result<Vec<f64>, String> {
    let numbers = flows.iter().map(|flow| of(flow)).collect::<Option<Vec<_>>>();
    Ok(numbers.ok_or("a flow of another protocol, or none was seen".to_owned())?.concat())
}
