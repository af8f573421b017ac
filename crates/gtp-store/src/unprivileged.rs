//! Tests of what a user may not do, also where root runs them.

use rustix::fs::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// The user and the group that have no rights of their own.
pub(crate) const NOBODY: u32 = 65_534;

/// Does this in a thread that has none of root's rights; where the tests are not root's, it has
/// theirs.
pub(crate) fn without_rights<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let run = || {
        if rustix::process::geteuid().is_root() {
            let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
            set_thread_groups(&[]).unwrap();
            set_thread_res_gid(gid, gid, gid).unwrap();
            set_thread_res_uid(uid, uid, uid).unwrap();
        }
        work()
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}
