//! A rest after a connection could not be accepted.
//!
//! A process without a free descriptor is told at once that it cannot accept, as often as it asks,
//! and nothing tells it when one becomes free. Without a rest it would do nothing else. This module
//! must not know who is accepted.

use std::time::Duration;

use tokio::time::sleep;

/// The time of the rest.
const PAUSE: Duration = Duration::from_millis(100);

/// Returns when it is worth while to accept again.
pub async fn rest() {
    sleep(PAUSE).await;
}
