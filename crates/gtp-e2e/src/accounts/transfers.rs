//! The transfers of a world: what each does, and how its command must end.
//!
//! What the server writes down of them is not known here.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use gtp_link::Rng;

use super::{Ended, World};

/// Sizes of what is moved.
const SIZES: [usize; 3] = [1, 300_000, 8 << 20];
/// A command takes no longer than this, or it counts as stuck.
const LONGEST: Duration = Duration::from_secs(60);
/// A killed command lives for less than this.
const KILLED_WITHIN_MS: u64 = 2_000;
/// The rate at which a killed command moves the large object, which takes three seconds.
const KILLED_AT: &str = "20Mbit";

/// What a transfer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Gets,
    Puts,
    /// A get that is killed.
    GetCut,
    /// A put that is killed.
    PutCut,
    /// A get of what is not there.
    Misses,
    /// A put that does not fit into the quota of its export.
    TooLarge,
    /// A put by a key that may only read.
    NotAllowed,
    /// A get by a key that is not listed.
    Stranger,
}

impl Kind {
    pub(crate) const ALL: [Kind; 8] = [
        Kind::Gets,
        Kind::Puts,
        Kind::GetCut,
        Kind::PutCut,
        Kind::Misses,
        Kind::TooLarge,
        Kind::NotAllowed,
        Kind::Stranger,
    ];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Kind::Gets => "gets",
            Kind::Puts => "puts",
            Kind::GetCut => "gets killed",
            Kind::PutCut => "puts killed",
            Kind::Misses => "missing",
            Kind::TooLarge => "beyond a quota",
            Kind::NotAllowed => "not allowed",
            Kind::Stranger => "strangers",
        }
    }

    /// Half of them end well.
    fn draw(rng: &mut Rng) -> Kind {
        match rng.below(12) {
            0..=2 => Kind::Gets,
            3..=5 => Kind::Puts,
            6 => Kind::GetCut,
            7 => Kind::PutCut,
            8 => Kind::Misses,
            9 => Kind::TooLarge,
            10 => Kind::NotAllowed,
            _ => Kind::Stranger,
        }
    }

    pub(crate) fn verb(self) -> &'static str {
        match self {
            Kind::Gets | Kind::GetCut | Kind::Misses | Kind::Stranger => "get",
            Kind::Puts | Kind::PutCut | Kind::TooLarge | Kind::NotAllowed => "put",
        }
    }

    /// Whether the server lets nobody in for it.
    pub(crate) fn is_refused(self) -> bool {
        matches!(self, Kind::NotAllowed | Kind::Stranger)
    }

    fn is_cut(self) -> bool {
        matches!(self, Kind::GetCut | Kind::PutCut)
    }

    /// The exit code of its command; nothing if it is killed.
    fn exit_code(self) -> Option<i32> {
        match self {
            Kind::Gets | Kind::Puts => Some(0),
            Kind::GetCut | Kind::PutCut => None,
            Kind::Misses => Some(3),
            Kind::TooLarge => Some(4),
            Kind::NotAllowed | Kind::Stranger => Some(7),
        }
    }

    /// Where the server has it.
    fn path(self, number: usize) -> String {
        match self {
            Kind::Gets | Kind::GetCut | Kind::Stranger => format!("data/g{number}"),
            Kind::Misses => format!("data/m{number}"),
            Kind::Puts | Kind::PutCut | Kind::NotAllowed => format!("data/p{number}"),
            Kind::TooLarge => format!("full/p{number}"),
        }
    }
}

/// One that is under way.
pub(super) struct Transfer {
    number: usize,
    kind: Kind,
    size: usize,
    child: Child,
    began: Instant,
    killed_after: Duration,
}

/// Makes the objects, and a path for each transfer that may get one.
pub(super) fn make_objects(at: &Path, transfers: usize) -> Result<()> {
    let mut rng = Rng::new(7);
    for size in SIZES {
        let words = std::iter::repeat_with(|| rng.next_u64().to_le_bytes());
        let content: Vec<u8> = words.flatten().take(size).collect();
        fs::write(at.join(format!("object-{size}")), content)?;
    }
    for number in 0..transfers {
        let object = format!("object-{}", SIZES[number % SIZES.len()]);
        fs::hard_link(at.join(object), at.join(format!("data/g{number}")))?;
    }
    Ok(())
}

impl Transfer {
    /// Starts the transfer of this number.
    pub(super) fn draw(world: &World, number: usize, rng: &mut Rng) -> Result<Transfer> {
        let kind = Kind::draw(rng);
        let size = match kind {
            Kind::TooLarge => SIZES[1],
            _ => SIZES[number % SIZES.len()],
        };
        let client = match kind {
            Kind::NotAllowed => "reader",
            Kind::Stranger => "stranger",
            _ => "writer",
        };
        let mut command = world.gtp(client);
        command.args([kind.verb(), "--fingerprint", &world.server.fingerprint]);
        command.args(["--daemon", "off"]);
        if kind.is_cut() {
            command.args(["--max-rate", KILLED_AT]);
        }
        ends(&mut command, world, (kind, number, size));
        let killed_after = Duration::from_millis(rng.below(KILLED_WITHIN_MS));
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        Ok(Transfer { number, kind, size, child, began: Instant::now(), killed_after })
    }

    /// Whether it has ended, or has to be ended.
    pub(super) fn is_over(&mut self) -> bool {
        let longest = if self.kind.is_cut() { self.killed_after } else { LONGEST };
        self.began.elapsed() >= longest || !matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends it; what it was, and what it should have done and did not.
    pub(super) fn end(mut self, world: &World) -> Result<(Ended, Option<String>)> {
        // It may have ended.
        let _ = self.child.kill();
        let status = self.child.wait()?;
        let mut words = String::new();
        self.child.stderr.take().context("no output")?.read_to_string(&mut words)?;
        let Transfer { number, kind, size, .. } = self;
        let (path, got) = (kind.path(number), world.place(&format!("got/{number}")));
        let is_whole = || match kind {
            Kind::Gets => same(world.at(), &got, size),
            Kind::Puts => same(world.at(), &world.place(&path), size),
            _ => Ok(true),
        };
        let wrong = match kind.exit_code() {
            Some(code) if status.code() != Some(code) => Some(format!("{status}, not {code}")),
            _ if !is_whole()? => Some("other content".to_owned()),
            _ => None,
        };
        fs::remove_file(&got).or_else(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })?;
        let say = |wrong| format!("{} {path}: {wrong}: {}", kind.word(), words.trim());
        Ok((Ended { number, kind, size: size as u64 }, wrong.map(say)))
    }
}

/// Adds source and destination to a command.
fn ends(command: &mut Command, world: &World, (kind, number, size): (Kind, usize, usize)) {
    let url = format!("gtp://{}/{}", world.server.address, kind.path(number));
    match kind.verb() {
        "get" => command.arg(url).arg(world.place(&format!("got/{number}"))),
        _ => command.arg(world.place(&format!("object-{size}"))).arg(url),
    };
}

fn same(at: &Path, one: &Path, size: usize) -> Result<bool> {
    let there = fs::read(one).with_context(|| one.display().to_string())?;
    Ok(there == fs::read(at.join(format!("object-{size}")))?)
}
