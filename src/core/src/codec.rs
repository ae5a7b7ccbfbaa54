//! Values as bytes: exact, complete, and compact as differences to the last value.
//!
//! **Problem.** A recording keeps the inputs of the control loop, once a second for a day, and a replay
//! must give the same decisions to the last bit. So every value must be exact: floating point by its bits,
//! an absent value as absent. A forgotten field would make a replay differ years later and on one host
//! only, so forgetting one must fail at compile time.
//!
//! **Answer.** The macro [`coded`] implements [`Coded`], one row per type, beside the type because fields
//! are private. The row lists the fields, and takes a value apart and puts it together without `..`: a
//! field missing in the row, or in the type, does not compile. A new field costs its name in the row.
//!
//! **Coding.** Each value is written as a difference to the one before it (`last`), which both sides keep:
//! numbers as numeric differences ([`Out`]), texts as "the same" or in full. Most values of a tick repeat,
//! so most tokens are zero, and a general compressor shrinks them to almost nothing. An absent value leaves
//! `last` unchanged: a file read every 10 ticks is compared with its last reading.
//!
//! **Versions.** The rows also give a fingerprint of all names and kinds below a type ([`fingerprint`]). A
//! recording carries it, so bytes are never read as another type, and no version number is raised by hand.
//!
//! **Refusals.** Invalid bytes are [`Torn`], never a panic, and a length beyond the remaining bytes is
//! refused. This file does not know files, time or compression.
//!
//! **Properties** (`tests/history/codec.rs`): taken values equal the put ones, to the bit, over any
//! sequence; any cut and any changed byte gives a value or [`Torn`].

mod std_types;

use std::mem;

/// Error of bytes that are not a value of the type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are cut off or damaged")]
pub struct Torn;

/// A value that can be recorded.
pub trait Coded: Sized {
    /// Stand-in for the value before the first one.
    fn blank() -> Self;

    /// Writes the difference to `last`, and replaces `last`.
    fn put(&self, last: &mut Self, out: &mut Out);

    /// Reads a value that was written against `last`, and replaces `last`.
    ///
    /// # Errors
    /// The bytes are not such a value. `last` is then unusable.
    fn take(last: &mut Self, from: &mut In<'_>) -> Result<Self, Torn>;

    /// Adds names and kinds to the fingerprint.
    fn layout(to: &mut Layout);

    /// True if its first token is never [`ABSENT`]: then an option of it needs no token of its own.
    const IS_NUMBER: bool = false;

    /// Writes each item as a difference to the one with its index in `last`.
    fn put_all(all: &[Self], last: &mut Vec<Self>, out: &mut Out) {
        last.resize_with(all.len(), Self::blank);
        for (value, last) in all.iter().zip(last) {
            value.put(last, out);
        }
    }

    /// Reads a list of `count` items.
    ///
    /// # Errors
    /// See [`Coded::take`].
    fn take_all(count: usize, last: &mut Vec<Self>, from: &mut In<'_>) -> Result<Vec<Self>, Torn> {
        last.resize_with(count, Self::blank);
        last.iter_mut().map(|last| Self::take(last, from)).collect()
    }
}

/// Output: *tokens* and *bits*.
///
/// A number is a token, which gives its length in bits, and these bits without the first. Tokens are small,
/// mostly zero and similar from tick to tick; bits are nearly random. Apart, a compressor shrinks the
/// tokens and leaves the bits alone; mixed, it can do neither.
#[derive(Clone, Debug, Default)]
pub struct Out {
    tokens: Vec<u8>,
    bits: Vec<u8>,
    /// Used bits of the last byte; 0 if it is full.
    nr_used: u32,
}

/// Bits of a page: trailing zeros of a number counted in pages.
const PAGE_BITS: u32 = 12;
/// First token of differences in pages.
const PAGES: u8 = 64;
/// First token of negative differences; most counters only grow.
const BELOW: u8 = 120;
/// Token of an absent number.
pub const ABSENT: u8 = 255;

impl Out {
    /// True if nothing was written.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Number of bytes, tokens and bits.
    pub fn len(&self) -> usize {
        self.tokens.len() + self.bits.len()
    }

    /// Takes the written tokens and bits.
    pub fn split(&mut self) -> (Vec<u8>, Vec<u8>) {
        let Out { tokens, bits, .. } = mem::take(self);
        (tokens, bits)
    }

    /// Writes one byte unchanged.
    pub fn byte(&mut self, byte: u8) {
        self.tokens.push(byte);
    }

    /// Writes bytes unchanged.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.tokens.extend_from_slice(bytes);
    }

    /// Writes a number.
    pub fn number(&mut self, number: u64) {
        self.token(number, 0);
    }

    fn token(&mut self, number: u64, base: u8) {
        let length = u64::BITS - number.leading_zeros();
        self.tokens.push(base + length as u8);
        // The first bit of a number is always set.
        let mut left = length.saturating_sub(1);
        let mut rest = number;
        while left > 0 {
            if self.nr_used == 0 {
                self.bits.push(0);
            }
            let now = left.min(8 - self.nr_used);
            let part = (rest & ((1 << now) - 1)) as u8;
            if let Some(last) = self.bits.last_mut() {
                *last |= part << self.nr_used;
            }
            self.nr_used = (self.nr_used + now) % 8;
            (rest, left) = (rest >> now, left - now);
        }
    }

    /// Writes a number as its difference from `last`, in whole pages if possible.
    fn difference(&mut self, number: u64, last: u64) {
        let difference = number.wrapping_sub(last) as i64;
        let (size, below) = (difference.unsigned_abs(), if difference < 0 { BELOW } else { 0 });
        match size.trailing_zeros() {
            PAGE_BITS..64 => self.token(size >> PAGE_BITS, below + PAGES),
            _ => self.token(size, below),
        }
    }
}

/// Input: tokens and bits.
#[derive(Clone, Debug)]
pub struct In<'a> {
    tokens: &'a [u8],
    bits: &'a [u8],
    /// Bits of the first byte that were read.
    nr_used: u32,
}

impl<'a> In<'a> {
    /// Creates an input from the beginning of these.
    pub fn new(tokens: &'a [u8], bits: &'a [u8]) -> In<'a> {
        In { tokens, bits, nr_used: 0 }
    }

    /// Number of remaining tokens, an upper bound of the remaining values.
    pub fn left(&self) -> usize {
        self.tokens.len()
    }

    /// Reads one byte.
    ///
    /// # Errors
    /// None is left.
    pub fn byte(&mut self) -> Result<u8, Torn> {
        let (first, rest) = self.tokens.split_first().ok_or(Torn)?;
        self.tokens = rest;
        Ok(*first)
    }

    /// Reads a number.
    ///
    /// # Errors
    /// There is none.
    pub fn number(&mut self) -> Result<u64, Torn> {
        let token = self.byte()?;
        self.of_token(u32::from(token))
    }

    fn of_token(&mut self, length: u32) -> Result<u64, Torn> {
        if length > u64::BITS {
            return Err(Torn);
        }
        let Some(mut left) = length.checked_sub(1) else { return Ok(0) };
        let (mut number, mut at) = (1_u64 << left, 0);
        while left > 0 {
            let byte = self.bits.first().ok_or(Torn)?;
            let now = left.min(8 - self.nr_used);
            let part = u64::from(byte >> self.nr_used) & ((1 << now) - 1);
            number |= part << at;
            (at, left) = (at + now, left - now);
            self.nr_used = (self.nr_used + now) % 8;
            if self.nr_used == 0 {
                self.bits = &self.bits[1..];
            }
        }
        Ok(number)
    }

    /// Reads the number of items that follow, each of at least one token.
    ///
    /// # Errors
    /// There is none, or it exceeds the remaining tokens.
    pub fn count(&mut self) -> Result<usize, Torn> {
        let count = usize::try_from(self.number()?).map_err(|_| Torn)?;
        if count > self.left() { Err(Torn) } else { Ok(count) }
    }

    /// Reads `count` bytes unchanged.
    ///
    /// # Errors
    /// Fewer are left.
    pub fn raw(&mut self, count: usize) -> Result<&'a [u8], Torn> {
        let (bytes, rest) = self.tokens.split_at_checked(count).ok_or(Torn)?;
        self.tokens = rest;
        Ok(bytes)
    }

    fn difference(&mut self, last: u64) -> Result<u64, Torn> {
        let token = self.byte()?;
        let (token, is_below) = match token.checked_sub(BELOW) {
            Some(token) => (token, true),
            None => (token, false),
        };
        let (length, shift) = match token.checked_sub(PAGES) {
            // The token of a 64-bit number is not a number of pages.
            Some(length @ 1..) => (length, PAGE_BITS),
            _ => (token, 0),
        };
        let size = self.of_token(u32::from(length))? << shift;
        Ok(if is_below { last.wrapping_sub(size) } else { last.wrapping_add(size) })
    }

    /// Reads the next token if it is that of an absent number; returns true if so.
    fn is_absent(&mut self) -> bool {
        match self.tokens.split_first() {
            Some((&ABSENT, rest)) => {
                self.tokens = rest;
                true
            }
            _ => false,
        }
    }
}

/// Names and kinds below a type, as a number.
#[derive(Clone, Debug)]
pub struct Layout(u64);

impl Layout {
    /// Adds a name (FNV-1a).
    pub fn note(&mut self, name: &str) {
        for byte in name.bytes().chain([0]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// Adds the kind of a field, which `_of` selects in a value.
    pub fn field<S, T: Coded>(&mut self, name: &str, _of: fn(&S) -> &T) {
        self.note(name);
        T::layout(self);
    }

    /// Adds the kind of a field of a variant.
    pub fn part<S, T: Coded>(&mut self, name: &str, _of: fn(&S) -> Option<&T>) {
        self.note(name);
        T::layout(self);
    }
}

/// Fingerprint of a type: it differs for other fields.
pub fn fingerprint<T: Coded>() -> u64 {
    let mut layout = Layout(0xcbf2_9ce4_8422_2325);
    T::layout(&mut layout);
    layout.0
}

/// Encodes a value without a value before it.
pub fn encode<T: Coded>(value: &T) -> Vec<u8> {
    let mut out = Out::default();
    value.put(&mut T::blank(), &mut out);
    let (tokens, bits) = out.split();
    [&(tokens.len() as u32).to_le_bytes()[..], &tokens, &bits].concat()
}

/// Decodes the bytes of [`encode`].
///
/// # Errors
/// The bytes are not such a value, or more than one.
pub fn decode<T: Coded>(bytes: &[u8]) -> Result<T, Torn> {
    let (length, rest) = bytes.split_first_chunk().ok_or(Torn)?;
    let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| Torn)?;
    let (tokens, bits) = rest.split_at_checked(length).ok_or(Torn)?;
    let mut from = In::new(tokens, bits);
    let value = T::take(&mut T::blank(), &mut from)?;
    if from.left() == 0 { Ok(value) } else { Err(Torn) }
}

/// Fields of one variant beside those of the last value of the same variant.
pub trait Parts<Last> {
    /// Writes each field.
    fn put(self, last: Last, out: &mut Out);
}

impl Parts<()> for () {
    fn put(self, (): (), _out: &mut Out) {}
}

impl<A: Coded> Parts<(&mut A,)> for (&A,) {
    fn put(self, last: (&mut A,), out: &mut Out) {
        self.0.put(last.0, out);
    }
}

impl<A: Coded, B: Coded> Parts<(&mut A, &mut B)> for (&A, &B) {
    fn put(self, last: (&mut A, &mut B), out: &mut Out) {
        self.0.put(last.0, out);
        self.1.put(last.1, out);
    }
}

impl<A: Coded, B: Coded, C: Coded> Parts<(&mut A, &mut B, &mut C)> for (&A, &B, &C) {
    fn put(self, last: (&mut A, &mut B, &mut C), out: &mut Out) {
        self.0.put(last.0, out);
        self.1.put(last.1, out);
        self.2.put(last.2, out);
    }
}

/// Implements [`Coded`] for a type: `coded!(struct Name { field, field })`, or `coded!(enum Name { Variant { 0:
/// a }, Other {} })` with named or numbered fields of variants, each with a word of its own after the colon.
#[macro_export]
macro_rules! coded {
    (struct $name:ident { $($field:ident),* $(,)? }) => {
        impl $crate::codec::Coded for $name {
            fn blank() -> Self {
                $name { $($field: $crate::codec::Coded::blank()),* }
            }

            fn put(&self, last: &mut Self, out: &mut $crate::codec::Out) {
                // Without `..`: a field missing in the row does not compile.
                let $name { $($field),* } = self;
                $($crate::codec::Coded::put($field, &mut last.$field, out);)*
            }

            fn take(
                last: &mut Self,
                from: &mut $crate::codec::In<'_>,
            ) -> Result<Self, $crate::codec::Torn> {
                Ok($name { $($field: $crate::codec::Coded::take(&mut last.$field, from)?),* })
            }

            fn layout(to: &mut $crate::codec::Layout) {
                to.note(stringify!($name));
                $(to.field(stringify!($field), |it: &$name| &it.$field);)*
            }
        }
    };
    (enum $name:ident {
        $first:ident { $($first_member:tt: $first_part:ident),* }
        $(, $variant:ident { $($member:tt: $part:ident),* })* $(,)?
    }) => {
        $crate::codec::coded!(@enum $name
            $first { $($first_member: $first_part),* }
            [$first { $($first_member: $first_part),* }
             $($variant { $($member: $part),* })*]);
    };
    (@enum $name:ident
        $first:ident { $($first_member:tt: $first_part:ident),* }
        [$($variant:ident { $($member:tt: $part:ident),* })*]
    ) => {
        #[allow(irrefutable_let_patterns, unreachable_patterns, unused_variables,
            reason = "an enumeration may have one variant, and a variant no fields")]
        impl $crate::codec::Coded for $name {
            fn blank() -> Self {
                $name::$first { $($first_member: $crate::codec::Coded::blank()),* }
            }

            fn put(&self, last: &mut Self, out: &mut $crate::codec::Out) {
                enum Tag { $($variant),* }
                match self {
                    $($name::$variant { $($member: $part),* } => {
                        out.byte(Tag::$variant as u8);
                        let now = ($($part,)*);
                        if !matches!(last, $name::$variant { .. }) {
                            *last = $name::$variant { $($member: $crate::codec::Coded::blank()),* };
                        }
                        if let $name::$variant { $($member: $part),* } = last {
                            $crate::codec::Parts::put(now, ($($part,)*), out);
                        }
                    })*
                }
            }

            fn take(
                last: &mut Self,
                from: &mut $crate::codec::In<'_>,
            ) -> Result<Self, $crate::codec::Torn> {
                enum Tag { $($variant),* }
                let tag = from.byte()?;
                $(if tag == Tag::$variant as u8 {
                    if !matches!(last, $name::$variant { .. }) {
                        *last = $name::$variant { $($member: $crate::codec::Coded::blank()),* };
                    }
                    if let $name::$variant { $($member: $part),* } = last {
                        $(let $part = $crate::codec::Coded::take($part, from)?;)*
                        return Ok($name::$variant { $($member: $part),* });
                    }
                })*
                Err($crate::codec::Torn)
            }

            fn layout(to: &mut $crate::codec::Layout) {
                to.note(stringify!($name));
                $(
                    to.note(stringify!($variant));
                    $(to.part(stringify!($member), |it: &$name| match it {
                        $name::$variant { $member: part, .. } => Some(part),
                        _ => None,
                    });)*
                )*
            }
        }
    };
}

pub use crate::coded;
