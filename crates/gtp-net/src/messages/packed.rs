//! Messages about trees whose bodies are deflated.
//!
//! Names of a tree resemble each other, so that what lists many becomes much shorter. A peer sends
//! such a message only if it was told that the other end understands it. What comes is unpacked up
//! to a bound.

use minicbor::decode::Error as DecodeError;
use minicbor::encode::{Error as EncodeError, Write};
use minicbor::{Decode, Decoder, Encode, Encoder};
use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::decompress_to_vec_with_limit;

use super::limits::PACKED_PAGE_MAX;

/// The body of another message, deflated. A server sends pages of a survey so, and a client steps,
/// each to a peer that has said that it understands this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed<T>(pub T);

impl<C, T: Encode<()>> Encode<C> for Packed<T> {
    fn encode<W: Write>(
        &self,
        encoder: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), EncodeError<W::Error>> {
        let mut plain = Vec::new();
        // A body in memory can be written to memory.
        let _ = minicbor::encode(&self.0, &mut plain);
        encoder.map(1)?.u8(0)?.bytes(&compress_to_vec(&plain, LEVEL))?.ok()
    }
}

impl<'b, C, T: for<'p> Decode<'p, ()>> Decode<'b, C> for Packed<T> {
    fn decode(decoder: &mut Decoder<'b>, _: &mut C) -> Result<Packed<T>, DecodeError> {
        if decoder.map()? != Some(1) || decoder.u8()? != 0 {
            return Err(DecodeError::message("what is packed has one field"));
        }
        let plain = decompress_to_vec_with_limit(decoder.bytes()?, PACKED_PAGE_MAX);
        let plain = plain.map_err(|_| DecodeError::message("not deflated, or too long"))?;
        let mut inner = Decoder::new(&plain);
        let body = inner.decode()?;
        match inner.position() == plain.len() {
            true => Ok(Packed(body)),
            false => Err(DecodeError::message("bytes after the end of what is packed")),
        }
    }
}

/// How hard bodies are packed: beyond this level they hardly become shorter.
const LEVEL: u8 = 3;
