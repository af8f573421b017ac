//! Why a daemon refuses a process or a request.
//!
//! There are few reasons, so that refusals can be counted by them. Each has words for whoever is
//! refused, and a name where refusals are counted. Who is refused, and when, is decided elsewhere.

/// Why a daemon does not do what it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It has as many processes as it can take.
    Processes,
    /// This user has as many processes as allowed.
    ProcessesOfUser,
    /// This user's processes connect too often.
    TooOften,
    /// Too many connections of this user ask for nothing.
    Silent,
    /// There are no descriptors for one more.
    Descriptors,
    /// The system gives no memory for one more.
    Memory,
    /// This user changes sessions too often.
    Changes,
    /// What is asked is not understood, not allowed, or of another version.
    Request,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Refusal; 8] = [
        Refusal::Processes,
        Refusal::ProcessesOfUser,
        Refusal::TooOften,
        Refusal::Silent,
        Refusal::Descriptors,
        Refusal::Memory,
        Refusal::Changes,
        Refusal::Request,
    ];

    /// What it is called where refusals are counted.
    pub const fn as_str(self) -> &'static str {
        match self {
            Refusal::Processes => "processes",
            Refusal::ProcessesOfUser => "processes_of_user",
            Refusal::TooOften => "too_often",
            Refusal::Silent => "silent",
            Refusal::Descriptors => "descriptors",
            Refusal::Memory => "memory",
            Refusal::Changes => "changes",
            Refusal::Request => "request",
        }
    }

    /// What is said to whoever is refused.
    pub const fn words(self) -> &'static str {
        match self {
            Refusal::Processes => "this daemon has as many processes as it can take",
            Refusal::ProcessesOfUser => "this user has as many processes here as allowed",
            Refusal::TooOften => "this user's processes connect too often",
            Refusal::Silent => "too many connections of this user ask for nothing",
            Refusal::Descriptors => "the daemon is short of descriptors",
            Refusal::Memory => "no pages can be made",
            Refusal::Changes => "this user changes sessions too often: wait a second and try again",
            Refusal::Request => "the request cannot be answered",
        }
    }
}
