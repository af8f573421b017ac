//! Pages of steps that are carried out on the tree.
//!
//! A page outlives the session that asked for it, and the server waits for it before it ends, so
//! that its caller hears of every change. What the steps do is unknown here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{OwnedRwLockReadGuard, RwLock};

/// The pages of a server that are being carried out.
#[derive(Default)]
pub(super) struct Steps {
    /// Each page reads; the end of the server writes.
    pages: Arc<RwLock<()>>,
    must_stop: AtomicBool,
}

/// A page that is being carried out, until this is dropped.
pub(super) type Page = OwnedRwLockReadGuard<()>;

impl Steps {
    /// Begins a page; `None` once the server waits for the last of them.
    pub fn begin(&self) -> Option<Page> {
        Arc::clone(&self.pages).try_read_owned().ok()
    }

    /// Has every page stop before its next step.
    pub fn stop(&self) {
        self.must_stop.store(true, Ordering::Relaxed);
    }

    /// Whether no further step may begin.
    pub fn must_stop(&self) -> bool {
        self.must_stop.load(Ordering::Relaxed)
    }

    /// Waits until no page is being carried out. Safe to cancel.
    pub async fn gone(&self) {
        drop(self.pages.write().await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_waits_for_a_page_that_has_begun_and_lets_none_begin_after_it() {
        let steps = Steps::default();
        let page = steps.begin().unwrap();
        let mut gone = std::pin::pin!(steps.gone());
        tokio::select! {
            biased;
            () = &mut gone => panic!("a page is still there"),
            () = std::future::ready(()) => {}
        }
        assert!(steps.begin().is_none());
        drop(page);
        gone.await;
    }
}
