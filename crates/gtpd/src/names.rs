//! Names of sessions: each has one of its own for as long as it is seated.
//!
//! People and commands use them, so two sessions must never share one, however long the daemon has
//! been running. Names know nothing of processes or pages.

use std::collections::BTreeSet;

use gtp_proto::FlowId;

/// Gives names in order, and none twice at a time: they begin anew after four thousand million.
#[derive(Debug, Default)]
pub(crate) struct Names {
    last: FlowId,
    given: BTreeSet<FlowId>,
}

impl Names {
    /// A name that nobody has. There must be fewer sessions than names.
    pub fn give(&mut self) -> FlowId {
        loop {
            self.last = self.last.wrapping_add(1);
            if self.given.insert(self.last) {
                return self.last;
            }
        }
    }

    /// A session has gone and its name with it.
    pub fn take_back(&mut self, name: FlowId) {
        self.given.remove(&name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_use_is_not_given_again_when_names_begin_anew() {
        let mut names = Names { last: FlowId::MAX - 1, ..Names::default() };
        assert_eq!([names.give(), names.give(), names.give()], [FlowId::MAX, 0, 1]);
        names.last = FlowId::MAX - 1;
        names.take_back(0);
        assert_eq!([names.give(), names.give()], [0, 2], "the first and third are in use");
    }
}
