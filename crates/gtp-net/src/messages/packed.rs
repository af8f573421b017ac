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
use super::tree::{Deeds, TreePage};

/// Server to client, which has said that it understands this: a page, deflated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreePacked(pub TreePage);

/// Client to server, which has said that it understands this: steps, deflated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeedsPacked(pub Deeds);

impl<C> Encode<C> for TreePacked {
    fn encode<W: Write>(
        &self,
        encoder: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), EncodeError<W::Error>> {
        pack(&self.0, encoder)
    }
}

impl<'b, C> Decode<'b, C> for TreePacked {
    fn decode(decoder: &mut Decoder<'b>, _: &mut C) -> Result<TreePacked, DecodeError> {
        unpack(decoder).map(TreePacked)
    }
}

impl<C> Encode<C> for DeedsPacked {
    fn encode<W: Write>(
        &self,
        encoder: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), EncodeError<W::Error>> {
        pack(&self.0, encoder)
    }
}

impl<'b, C> Decode<'b, C> for DeedsPacked {
    fn decode(decoder: &mut Decoder<'b>, _: &mut C) -> Result<DeedsPacked, DecodeError> {
        unpack(decoder).map(DeedsPacked)
    }
}

fn pack<T: Encode<()>, W: Write>(
    body: &T,
    encoder: &mut Encoder<W>,
) -> Result<(), EncodeError<W::Error>> {
    let mut plain = Vec::new();
    // A body in memory can be written to memory.
    let _ = minicbor::encode(body, &mut plain);
    encoder.map(1)?.u8(0)?.bytes(&compress_to_vec(&plain, LEVEL))?.ok()
}

fn unpack<T: for<'b> Decode<'b, ()>>(decoder: &mut Decoder<'_>) -> Result<T, DecodeError> {
    if decoder.map()? != Some(1) || decoder.u8()? != 0 {
        return Err(DecodeError::message("what is packed has one field"));
    }
    let plain = decompress_to_vec_with_limit(decoder.bytes()?, PACKED_PAGE_MAX);
    let plain = plain.map_err(|_| DecodeError::message("not deflated, or too long"))?;
    let mut inner = Decoder::new(&plain);
    let body = inner.decode()?;
    match inner.position() == plain.len() {
        true => Ok(body),
        false => Err(DecodeError::message("bytes after the end of what is packed")),
    }
}

/// How hard bodies are packed: beyond this level they hardly become shorter.
const LEVEL: u8 = 3;
