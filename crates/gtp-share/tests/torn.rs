//! No order of loads and stores that the memory model allows shows half of a record.

use gtp_share::words::{Word, read_once, write};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;

struct Modelled(AtomicU64);

impl Word for Modelled {
    fn load(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn store(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    fn fence_loads() {
        fence(Ordering::Acquire);
    }

    fn fence_stores() {
        fence(Ordering::Release);
    }
}

fn word() -> Modelled {
    Modelled(AtomicU64::new(0))
}

#[test]
fn a_reader_sees_whole_records_only() {
    loom::model(|| {
        let record = Arc::new((word(), [word(), word()]));
        let writer = {
            let record = record.clone();
            thread::spawn(move || {
                write(&record.0, &record.1, &[1, 1]);
                write(&record.0, &record.1, &[2, 2]);
            })
        };
        let mut values = [0; 2];
        if read_once(&record.0, &record.1, &mut values) {
            assert_eq!(values[0], values[1], "half of a record");
        }
        writer.join().unwrap();
        assert!(read_once(&record.0, &record.1, &mut values), "the last one stands");
        assert_eq!(values, [2, 2]);
    });
}

#[test]
fn a_reader_never_goes_back() {
    loom::model(|| {
        let record = Arc::new((word(), [word(), word()]));
        let writer = {
            let record = record.clone();
            thread::spawn(move || write(&record.0, &record.1, &[1, 1]))
        };
        let mut newest = 0;
        for _ in 0..2 {
            let mut values = [0; 2];
            if read_once(&record.0, &record.1, &mut values) {
                assert_eq!(values[0], values[1], "half of a record");
                assert!(values[0] >= newest, "an older record");
                newest = values[0];
            }
        }
        writer.join().unwrap();
    });
}
