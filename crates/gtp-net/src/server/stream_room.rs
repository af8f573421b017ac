//! Room within quotas for a stream that is written to a file, also where a quota comes later.
//!
//! A stream may last for days, so accounts may come and change while it is written. Before each
//! piece it is looked which accounts are concerned. Where they are others than before, what is
//! there of the stream is settled with the old ones; then the stream stands still until the new
//! ones are counted, its unfinished file included, and goes on within them. Blocks.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use gtp_store::RelPath;

use super::charge::StreamCharge;
use super::outlet::Outlet;
use super::quota::Full;
use super::writers::Writer;
use crate::flows::Failure;

/// Time between two looks at whether somebody still sends, while it stands still.
const PAUSE: Duration = Duration::from_millis(500);

/// The room of one stream.
pub(super) struct StreamRoom {
    outlet: Arc<Outlet>,
    /// Where it goes; `None` is all that is exported, which no stream can be.
    path: Option<RelPath>,
    holder: Option<OwnedFd>,
    tag: u64,
    charge: Option<StreamCharge>,
    /// A count waits for it, until it is part of what is counted.
    writer: Writer,
}

/// Why a stream does not go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoRoom {
    #[error("{0}")]
    Full(Full),
    #[error("{}", .0.text)]
    Away(Failure),
    /// Nobody sends any more.
    #[error("the stream broke while a quota was being counted")]
    Broken,
}

impl StreamRoom {
    /// Reserves a name for a stream with this tag.
    ///
    /// # Errors
    /// What the client is told.
    pub fn begin(
        outlet: Arc<Outlet>,
        path: Option<RelPath>,
        holder: &OwnedFd,
        tag: u64,
    ) -> Result<StreamRoom, Failure> {
        let (writer, meter) = outlet.writing(path.as_ref());
        let (holder, charge) = (holder.try_clone().ok(), None);
        let mut room = StreamRoom { outlet, path, holder, tag, charge, writer };
        if !meter.is_idle() {
            room.take().map_err(|none| match none {
                NoRoom::Full(full) => Failure::from(full),
                NoRoom::Away(failure) => failure,
                NoRoom::Broken => Failure::from(Full::Uncounted),
            })?;
        }
        Ok(room)
    }

    /// Reserves bytes that are about to be written. While accounts are being counted that were not
    /// there before, this waits, unless the stream `is_broken` meanwhile.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub fn more(&mut self, bytes: u64, is_broken: impl Fn() -> bool) -> Result<(), NoRoom> {
        loop {
            let (writer, meter) = self.outlet.writing(self.path.as_ref());
            let is_same = match &self.charge {
                Some(charge) => charge.is_of(&meter),
                None => meter.is_idle(),
            };
            if is_same {
                break;
            }
            // What is there counts for the accounts that it had.
            self.charge = None;
            // A count of the new ones finds it, and need not wait for its end.
            self.writer = writer;
            match self.take() {
                Err(NoRoom::Full(Full::Uncounted)) if is_broken() => return Err(NoRoom::Broken),
                Err(NoRoom::Full(Full::Uncounted)) => meter.wait(PAUSE),
                taken => taken?,
            }
        }
        match &mut self.charge {
            Some(charge) => charge.more(bytes).map_err(NoRoom::Full),
            None => Ok(()),
        }
    }

    fn take(&mut self) -> Result<(), NoRoom> {
        let (writer, meter) = self.outlet.writing(self.path.as_ref());
        if meter.is_idle() {
            return Ok(());
        }
        let (Some(path), Some(holder)) = (&self.path, &self.holder) else {
            return Err(NoRoom::Full(Full::Unseen));
        };
        let root = self.outlet.ground.dir().map_err(|nothing| NoRoom::Away(nothing.failure))?;
        let taken = StreamCharge::take(meter, (root, holder), path, self.tag);
        self.charge = Some(taken.map_err(NoRoom::Full)?);
        self.writer = writer;
        Ok(())
    }
}
