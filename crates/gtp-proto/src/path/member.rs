//! The path as one session sees it: a machine of its own, or a part in that of its group.
//!
//! A session that is alone on its path bounds itself. One of several keeps what its receipts say
//! until its group asks for it, and sends no more than the share that the group tells it. This
//! module must not know the other sessions.

use alloc::boxed::Box;

use gtp_alloc::{Bytes, Rate, Span, Time};

use super::{Conditions, PathBound, Sample, Standing};

/// The path of one session.
#[derive(Debug)]
pub(crate) enum Path {
    /// Nobody else uses it.
    Own(Box<PathBound>),
    /// It is a group's.
    Shared(Box<Member>),
}

/// What one session's receipts have said since its group last asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    /// All of it as one sample.
    pub sample: Sample,
    /// The packets that it is about; a sample's numbers may go over a gap.
    pub packets: u64,
}

/// What a group lets one of its sessions have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathShare {
    /// What the session may send now.
    pub sends: Rate,
    /// What it could have, a round trip from now, if it wanted more.
    pub offer: Rate,
    /// What it could have of the bound; unlimited while there is none.
    pub bound: Rate,
    /// How the group stands.
    pub standing: Standing,
}

/// What a group has to know of one of its sessions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// The session's weight.
    pub weight: f64,
    /// What it would use if the path did not limit it, and what of that is more than room to grow.
    pub claim: Rate,
    /// See `claim`.
    pub firm: Rate,
    /// How it wants to use the path, and what it knows of it.
    pub given: Conditions,
    /// When a receipt last said something of the path, if one did.
    pub heard_at: Option<Time>,
    /// Who keeps the machine that the session goes by.
    pub machine: Keeps,
    /// What it could have of the path's bound so far; unlimited while there is none.
    pub bound: Rate,
}

/// Who keeps a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeps {
    /// The session itself.
    Session,
    /// Its group.
    Group,
}

/// A session's part in its group.
#[derive(Debug)]
pub(crate) struct Member {
    share: PathShare,
    told_at: Time,
    whole: Option<Piece>,
    partial: Option<Piece>,
}

/// Whether a receipt tells which packets before it were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shows {
    /// It does.
    Losses,
    /// There is a gap before it: only that some packets arrived is known.
    Arrivals,
}

/// A group that is not heard of for so long is not to be relied on.
const SHARE_LASTS: Span = Span::from_secs(1);

impl Path {
    /// A path of which nothing is known at `now`.
    pub fn new(now: Time) -> Path {
        Path::Own(Box::new(PathBound::new(now)))
    }

    /// The rate that the session can have of what the path is believed to carry; unlimited while no
    /// bottleneck was seen.
    pub fn bound(&self) -> Rate {
        match self {
            Path::Own(machine) => machine.bound(),
            Path::Shared(member) => member.share.bound,
        }
    }

    /// Takes in what a receipt says.
    pub fn hear(&mut self, now: Time, sample: Sample, shows: Shows, given: &Conditions) {
        match self {
            Path::Own(machine) => {
                machine.note_proven(now, &sample, given);
                if shows == Shows::Losses {
                    machine.handle_sample(now, sample, given);
                }
            }
            Path::Shared(member) => member.hear(sample, shows),
        }
    }

    /// The machine leaves the session for its group. The session has all that the path gives until
    /// its group says more.
    pub fn share_machine(&mut self, now: Time, given: &Conditions) -> Option<Box<PathBound>> {
        let Path::Own(machine) = self else { return None };
        let sends = machine.pace(now, given.rtt, given.granted, given.next_pn);
        let (bound, standing) = (machine.bound(), machine.standing());
        let offer = machine.ramp(now, given.rtt).scale(crate::limits::RAMP_FACTOR).min(bound);
        let share = PathShare { sends: sends.min(bound), offer, bound, standing };
        match core::mem::replace(self, Path::Shared(Box::new(Member::new(now, share)))) {
            Path::Own(machine) => Some(machine),
            Path::Shared(_) => None,
        }
    }

    /// Who keeps the machine.
    pub fn machine(&self) -> Keeps {
        match self {
            Path::Own(_) => Keeps::Session,
            Path::Shared(_) => Keeps::Group,
        }
    }

    /// The group has said what the session may have.
    pub fn set_share(&mut self, now: Time, share: PathShare) {
        match self {
            Path::Own(_) => *self = Path::Shared(Box::new(Member::new(now, share))),
            Path::Shared(member) => (member.share, member.told_at) = (share, now),
        }
    }

    /// Gives away what the session's receipts have said since the last time: where losses are
    /// known, and where they are not.
    pub fn take_pieces(&mut self) -> [Option<Piece>; 2] {
        match self {
            Path::Own(_) => [None, None],
            Path::Shared(member) => [member.whole.take(), member.partial.take()],
        }
    }

    /// How the path stands.
    pub fn standing(&self) -> Standing {
        match self {
            Path::Own(machine) => machine.standing(),
            Path::Shared(member) => member.share.standing,
        }
    }
}

impl Member {
    fn new(now: Time, share: PathShare) -> Member {
        Member { share, told_at: now, whole: None, partial: None }
    }

    /// What the session may send at `now`: its share, or less if its group is silent.
    pub fn sends(&self, now: Time) -> Rate {
        let seconds = now.since(self.told_at).as_nanos() / SHARE_LASTS.as_nanos();
        let halvings = seconds.min(63) as u32;
        if halvings == 0 {
            return self.share.sends;
        }
        Rate::from_bps(self.share.sends.as_bps() >> halvings)
    }

    /// What the session could have a round trip from now.
    pub fn offer(&self) -> Rate {
        self.share.offer
    }

    fn hear(&mut self, sample: Sample, shows: Shows) {
        let piece = Piece { sample, packets: sample.packets() };
        match shows {
            Shows::Losses => self.whole = Some(Piece::joined(self.whole, piece)),
            Shows::Arrivals => self.partial = Some(Piece::joined(self.partial, piece)),
        }
    }
}

impl Sample {
    /// The same with what was said in statuses between the packets, of which as much arrived as of
    /// all packets. It counts where many sessions share a path: each says as much as one alone.
    pub fn with_said(self, said: Bytes) -> Sample {
        if said == Bytes::ZERO {
            return self;
        }
        let packets = self.packets();
        let arrived = Bytes(said.0 * (packets - self.lost) / packets);
        Sample { sent: self.sent + said, arrived: self.arrived + arrived, ..self }
    }
}

impl Piece {
    /// What was said before and what is said now, as one.
    pub fn joined(before: Option<Piece>, next: Piece) -> Piece {
        let Some(begun) = before else { return next };
        let (sample, packets) = (begun.sample.join(next.sample), begun.packets + next.packets);
        Piece { sample, packets }
    }
}
