//! Guards against an end that nobody has said.
//!
//! The drop of a writer says the end of its stream. A program that is stopped in the middle drops
//! its writer too, and the peer would take a part for the whole. These guards let go without an
//! end, and break the connection off.

use super::Line;
use crate::engine::{FrameWriter, StreamWriter};

/// A writer whose stream has not ended yet: its drop abandons the stream, so that the peer reads no
/// end. The caller breaks the connection off then.
pub struct Unended<W: Abandon>(Option<W>);

impl<W: Abandon> Unended<W> {
    /// Guards a writer.
    pub fn new(writer: W) -> Unended<W> {
        Unended(Some(writer))
    }

    /// The writer, unless its end has been said.
    pub fn get_mut(&mut self) -> Option<&mut W> {
        self.0.as_mut()
    }

    /// Says the end of the stream.
    pub fn finish(mut self) {
        // The drop of a writer that is not guarded says it.
        drop(self.0.take());
    }
}

impl<W: Abandon> Drop for Unended<W> {
    fn drop(&mut self) {
        if let Some(writer) = self.0.take() {
            writer.abandon();
        }
    }
}

/// A writer that can be let go of without an end.
pub trait Abandon {
    /// Lets go of it.
    fn abandon(self);
}

impl Abandon for StreamWriter {
    fn abandon(self) {
        StreamWriter::abandon(self);
    }
}

impl Abandon for FrameWriter {
    fn abandon(self) {
        FrameWriter::abandon(self);
    }
}

/// A connection that is broken off when this is dropped.
pub(crate) struct Breaking(Option<Line>);

impl Breaking {
    /// Guards a connection.
    pub fn new(line: &Line) -> Breaking {
        Breaking(Some(line.clone()))
    }

    /// Lets the connection go on without a guard.
    pub fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Breaking {
    fn drop(&mut self) {
        if let Some(line) = self.0.take() {
            line.abort();
        }
    }
}
