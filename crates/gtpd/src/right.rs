//! What somebody who asks the daemon may see and change.
//!
//! It goes by the user alone, whom the kernel names, on the socket of processes as on the page for
//! browsers. This file must not know how anybody asks, nor for what.

/// Whose sessions somebody may change, and whose names see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// None.
    Nobodys,
    /// One user's.
    Of(u32),
    /// Everybody's.
    Anybodys,
}

impl Right {
    /// What a user has: root and the daemon's own user have everything.
    pub fn of(uid: u32) -> Right {
        let own = rustix::process::geteuid().as_raw();
        if uid == 0 || uid == own { Right::Anybodys } else { Right::Of(uid) }
    }

    /// Whether the names of this user's sessions may be seen.
    pub fn sees(self, uid: u32) -> bool {
        self == Right::Anybodys || self == Right::Of(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_the_daemons_own_user_see_everything_and_others_their_own() {
        let own = rustix::process::geteuid().as_raw();
        assert_eq!([Right::of(0), Right::of(own)], [Right::Anybodys; 2]);
        let another = Right::of(own + 1);
        assert_eq!(another, Right::Of(own + 1));
        assert!(another.sees(own + 1) && !another.sees(own) && !Right::Nobodys.sees(own));
    }
}
