//! Packets under way: small records in a slab.
//!
//! A packet is its size, its name, and what its receiver will read of it: the first
//! bytes of the datagram, which the protocol wrote. Payload is never there, only its length.
//! Nearly all heads fit into the record; longer ones (requests, feedback, hellos) lie beside it.

use gtp_alloc::Bytes;
use gtp_peers::Packet;
use gtp_proto::Codepoint;
use gtp_proto::wire::{DATA_HEAD_LEN, HEADER_LEN};

use super::peers::Foreign;

/// A packet's place in the slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParcelId(pub u32);

/// Bytes of a data packet's head.
const DATA: usize = HEADER_LEN + DATA_HEAD_LEN;
/// Bytes of a head that fit into a record.
const INLINE: usize = 40;
const NOT_LONG: u32 = u32::MAX;
/// Long heads from here on are packets of rivals.
const FOREIGN: u32 = 1 << 31;

/// One packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parcel {
    /// Name in traces, counted from 1 in the order of sending.
    pub name: u64,
    /// Bytes on links.
    pub size: Bytes,
    /// The end that it is for.
    pub to: u32,
    /// Zero bytes that follow the head: the payload's length.
    pub payload: u16,
    /// Its ECN bits.
    pub ecn: Codepoint,
    head_len: u16,
    long: u32,
    head: [u8; INLINE],
}

/// All packets under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parcels {
    slots: Vec<Parcel>,
    free: Vec<u32>,
    long: Vec<Vec<u8>>,
    long_free: Vec<u32>,
    foreign: Foreign,
}

impl Parcel {
    /// A packet with nothing in it.
    pub fn empty(name: u64, size: Bytes, to: u32) -> Parcel {
        let (ecn, long, head) = (Codepoint::NotEct, NOT_LONG, [0; INLINE]);
        Parcel { name, size, to, payload: 0, ecn, head_len: 0, long, head }
    }
}

impl Parcels {
    /// Takes in a packet whose datagram begins with `head`.
    #[inline]
    pub fn insert(&mut self, mut parcel: Parcel, head: &[u8]) -> ParcelId {
        parcel.head_len = head.len() as u16;
        if let Ok(data) = <&[u8; DATA]>::try_from(head) {
            parcel.head[..DATA].copy_from_slice(data); // Of known length, so without a call.
        } else if let Some(inline) = parcel.head.get_mut(..head.len()) {
            inline.copy_from_slice(head);
        } else {
            parcel.long = self.store_long(head);
        }
        self.place(parcel)
    }

    /// Takes in a rival's packet, which has no datagram.
    #[inline]
    pub fn insert_foreign(&mut self, mut parcel: Parcel, packet: Option<Packet>) -> ParcelId {
        parcel.long = FOREIGN | self.foreign.insert(packet);
        self.place(parcel)
    }

    /// What a rival's packet says; nothing for a datagram.
    pub fn foreign_mut(&mut self, id: ParcelId) -> Option<&mut Packet> {
        let long = self.slots[id.0 as usize].long;
        if long == NOT_LONG || long < FOREIGN {
            return None;
        }
        self.foreign.get_mut(long - FOREIGN)
    }

    /// A second packet like this one, under its own name.
    pub fn copy(&mut self, id: ParcelId, name: u64) -> ParcelId {
        let mut parcel = self.slots[id.0 as usize];
        parcel.name = name;
        if parcel.long != NOT_LONG {
            parcel.long = self.copy_long(parcel.long);
        }
        self.place(parcel)
    }

    /// A packet.
    #[inline]
    pub fn get(&self, id: ParcelId) -> &Parcel {
        &self.slots[id.0 as usize]
    }

    /// Marks a packet if its sender heeds marks, and tells whether it does.
    pub fn mark(&mut self, id: ParcelId) -> bool {
        let ecn = &mut self.slots[id.0 as usize].ecn;
        match ecn {
            Codepoint::NotEct => false,
            Codepoint::Ect0 | Codepoint::Ect1 | Codepoint::Ce => {
                *ecn = Codepoint::Ce;
                true
            }
        }
    }

    /// Writes the datagram to `out`, whose bytes beyond the head are zeros, and forgets the packet.
    /// Returns the datagram's length.
    #[inline]
    pub fn take(&mut self, id: ParcelId, out: &mut [u8]) -> (u32, usize) {
        let parcel = &self.slots[id.0 as usize];
        let head_len = usize::from(parcel.head_len);
        if parcel.long == NOT_LONG {
            out[..INLINE].copy_from_slice(&parcel.head);
        } else if let Some(long) = self.long.get(parcel.long as usize) {
            out[..head_len].copy_from_slice(long);
        }
        let taken = (parcel.to, head_len + usize::from(parcel.payload));
        self.remove(id);
        taken
    }

    /// Forgets a packet.
    #[inline]
    pub fn remove(&mut self, id: ParcelId) {
        let long = self.slots[id.0 as usize].long;
        if long != NOT_LONG {
            self.release_long(long);
        }
        self.free.push(id.0);
    }

    /// Number of packets under way.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Room for packets that was ever needed at once.
    pub fn most(&self) -> usize {
        self.slots.len()
    }

    fn place(&mut self, parcel: Parcel) -> ParcelId {
        if let Some(free) = self.free.pop() {
            self.slots[free as usize] = parcel;
            return ParcelId(free);
        }
        self.slots.push(parcel);
        ParcelId(self.slots.len() as u32 - 1)
    }

    #[cold]
    fn copy_long(&mut self, long: u32) -> u32 {
        if long >= FOREIGN {
            return FOREIGN | self.foreign.copy(long - FOREIGN);
        }
        let head = self.long[long as usize].clone();
        self.store_long(&head)
    }

    #[cold]
    fn release_long(&mut self, long: u32) {
        if long >= FOREIGN {
            self.foreign.release(long - FOREIGN);
        } else {
            self.long_free.push(long);
        }
    }

    fn store_long(&mut self, head: &[u8]) -> u32 {
        if let Some(free) = self.long_free.pop() {
            let kept = &mut self.long[free as usize];
            kept.clear();
            kept.extend_from_slice(head);
            return free;
        }
        self.long.push(head.to_vec());
        self.long.len() as u32 - 1
    }
}
