//! How many descriptors the rows of steps of one process hold together.
//!
//! The limit of descriptors is the whole process's, so this test has one of its own.

use std::fs;

use gtp_store::replica::{Deed, Replica};
use gtp_store::{Mtime, RelPath};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

fn open_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn files_that_wait_in_many_rows_leave_most_descriptors_of_the_process_to_others() {
    const LIMIT: usize = 1_024;
    const ROWS: usize = 8;
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(LIMIT as u64), maximum }).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let replica = Replica::beneath(dir.path(), None).unwrap();
    let before = open_descriptors();
    let mut rows: Vec<_> = (0..ROWS).map(|_| replica.steps()).collect();
    let (mut most, mtime) = (0, Mtime::new(1_000_000_000, 0).unwrap());
    for number in 0..ROWS * 60 {
        let path = RelPath::new(&format!("f{number}")).unwrap();
        let deed = Deed::Write { path, content: b"x".to_vec(), mode: 0o600, mtime };
        rows[number % ROWS].carry_out(number, &deed);
        most = most.max(open_descriptors() - before);
    }
    assert!((32..=LIMIT / 8).contains(&most), "{most} descriptors wait");
    for row in rows {
        assert_eq!(row.finish(), []);
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), ROWS * 60);
    assert!(open_descriptors() <= before, "none is kept");
}
