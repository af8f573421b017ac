//! What a session has of quotas while it writes, given back on a thread that may block.
//!
//! To give it back is to look at every name that the session may have written. The threads that
//! serve all clients never wait for that, however the session ends. This module must not know what
//! it gives back.

use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

/// Something whose end blocks.
pub(super) struct Room<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> Room<T> {
    pub fn new(held: T) -> Room<T> {
        Room(Some(held))
    }

    /// Gives it back, and waits for that. It goes on if this is cancelled.
    pub async fn give_back(mut self) {
        if let Some(held) = self.0.take() {
            // It breaks off only where the server ends.
            let _ = spawn_blocking(move || drop(held)).await;
        }
    }
}

impl<T: Send + 'static> Drop for Room<T> {
    fn drop(&mut self) {
        let Some(held) = self.0.take() else { return };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || drop(held))),
            // Without a runtime nobody else waits for this thread.
            Err(_) => drop(held),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread::{self, ThreadId};

    use super::*;

    /// Tells which thread drops it.
    struct Tells(mpsc::Sender<ThreadId>);

    impl Drop for Tells {
        fn drop(&mut self) {
            let _ = self.0.send(thread::current().id());
        }
    }

    #[test]
    fn no_thread_that_serves_clients_gives_room_back_however_a_session_ends() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (tell, told) = mpsc::channel();
        let room = || Room::new(Tells(tell.clone()));
        let (given, cancelled, dropped) = (room(), room(), room());
        runtime.block_on(async move {
            given.give_back().await;
            assert_ne!(told.try_recv().unwrap(), thread::current().id(), "it was waited for");
            drop(cancelled.give_back());
            drop(dropped);
            tokio::task::yield_now().await;
            for _ in 0..2 {
                assert_ne!(told.recv().unwrap(), thread::current().id());
            }
        });
        let (tell, told) = mpsc::channel();
        drop(Room::new(Tells(tell)));
        assert_eq!(told.recv().unwrap(), thread::current().id());
    }
}
