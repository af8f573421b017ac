//! A sink for some files of an object: the others are not asked for and not touched.
//!
//! The object keeps its numbers for whoever fills the sink; the sink inside knows an object that
//! has the chosen entries alone. Which entries are chosen is decided elsewhere.

use std::sync::Arc;

use crate::file_sink::FileSink;
use crate::hash::Value;
use crate::manifest::{Kind, Manifest};
use crate::row::blocks_in;
use crate::sink::{BlockSink, Finished, Have, Refused, SinkError, Window, Written};

/// Passes chosen entries of an object to a sink that knows no others.
pub struct ChosenSink {
    inner: FileSink,
    /// For each entry of the object, its place among the chosen ones.
    places: Vec<Option<u32>>,
    /// For each chosen entry, its place in the object.
    numbers: Vec<u32>,
    have: Vec<Have>,
}

impl ChosenSink {
    /// The part of an object whose entries are chosen, as an object of its own.
    pub fn part(manifest: &Manifest, chosen: &dyn Fn(&str) -> bool) -> Arc<Manifest> {
        let entries = manifest.entries.iter().filter(|entry| chosen(entry.path.as_str()));
        Arc::new(Manifest {
            root_kind: manifest.root_kind,
            own: manifest.own,
            entries: entries.cloned().collect(),
        })
    }

    /// A sink for `whole`, of which `inner` takes the part that [`ChosenSink::part`] gave.
    pub fn new(inner: FileSink, whole: &Manifest, chosen: &dyn Fn(&str) -> bool) -> ChosenSink {
        let (mut places, mut numbers) = (Vec::new(), Vec::new());
        for (number, entry) in (0u32..).zip(&whole.entries) {
            let place = chosen(entry.path.as_str()).then(|| {
                numbers.push(number);
                numbers.len() as u32 - 1
            });
            places.push(place);
        }
        let inner_have = inner.have().iter();
        let mut have: Vec<Have> = inner_have
            .map(|have| Have { file: numbers[have.file as usize], blocks: have.blocks.clone() })
            .collect();
        for ((number, entry), place) in (0u32..).zip(&whole.entries).zip(&places) {
            if place.is_none() && entry.kind == Kind::File && entry.size > 0 {
                have.push(Have { file: number, blocks: 0..blocks_in(entry.size) });
            }
        }
        have.sort_unstable_by_key(|have| (have.file, have.blocks.start));
        ChosenSink { inner, places, numbers, have }
    }

    fn place(&self, file: u32) -> Option<u32> {
        self.places.get(file as usize).copied().flatten()
    }

    fn number(&self, place: u32) -> u32 {
        self.numbers[place as usize]
    }
}

impl BlockSink for ChosenSink {
    fn have(&self) -> &[Have] {
        &self.have
    }

    fn is_kept(&self, file: u32) -> bool {
        self.place(file).is_none_or(|place| self.inner.is_kept(place))
    }

    fn window(&self) -> Window {
        self.inner.window()
    }

    fn device(&self) -> Option<u64> {
        self.inner.device()
    }

    fn write_block(&mut self, file: u32, block: u64, framed: &[u8]) -> Result<Written, SinkError> {
        match self.place(file) {
            Some(place) => self.inner.write_block(place, block, framed),
            None => Ok(Written::Duplicate),
        }
    }

    fn checkpoint(&mut self) -> Result<(), SinkError> {
        self.inner.checkpoint()
    }

    fn finish_file(
        &mut self,
        file: u32,
        expected: Option<Value>,
    ) -> Result<Option<Value>, SinkError> {
        match self.place(file) {
            Some(place) => self.inner.finish_file(place, expected),
            None => Ok(None),
        }
    }

    fn give_up(&mut self, file: u32) -> Result<Option<u64>, SinkError> {
        match self.place(file) {
            Some(place) => self.inner.give_up(place),
            None => Ok(None),
        }
    }

    fn take_refused(&mut self) -> Vec<Refused> {
        let mut refused = self.inner.take_refused();
        for one in &mut refused {
            one.file = self.number(one.file);
        }
        refused
    }

    fn is_named_later(&self, file: u32) -> bool {
        self.place(file).is_some_and(|place| self.inner.is_named_later(place))
    }

    fn take_named(&mut self) -> Vec<u32> {
        let named = self.inner.take_named();
        named.into_iter().map(|place| self.number(place)).collect()
    }

    fn take_warning(&mut self) -> Option<String> {
        self.inner.take_warning()
    }

    fn begins_anew(&self, file: u32) -> bool {
        self.place(file).is_some_and(|place| self.inner.begins_anew(place))
    }

    fn finish(&mut self) -> Result<Finished, SinkError> {
        self.inner.finish()
    }

    fn suspend(&mut self) -> Result<(), SinkError> {
        self.inner.suspend()
    }
}
