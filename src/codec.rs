//! Values as bytes: exact, compact beside the value of the same kind before, and complete.
//!
//! **Problem.** A recording keeps what the control loop was given, once a second for a day, and a replay has to give the
//! same decisions to the last bit. So a value comes back as it was, whatever it was: floating point by its bits, an
//! absent value as absent. A field that is forgotten would make a replay differ years later and on one host only, so
//! forgetting one has to fail where it is forgotten.
//!
//! **Answer.** [`Coded`] is implemented by [`coded`], one row for each type, beside the type because fields are private.
//! The row lists the fields, and takes a value apart and puts it together without `..`: a field that is missing in the
//! row, or in the type, does not compile. What a new field costs is its name in the row.
//!
//! **Coding.** Each value is written against the one before it (`last`), which both sides keep: numbers as the difference,
//! in seven bits a byte; texts as "the same" or in full. Nearly everything in a tick is what it was a second ago, so most
//! bytes are zero, and a general compressor makes next to nothing of them. An absent value leaves `last` as it was: a file
//! that is read in one of ten ticks is compared with its last reading.
//!
//! **Versions.** The rows also give a fingerprint of all names and kinds below a type ([`fingerprint`]). A recording
//! carries it, so that bytes are never read as something else: no number has to be raised by hand.
//!
//! **Refusals.** Bytes that are no value are [`Torn`], never a panic, and no length is believed beyond the bytes that are
//! left. Nothing here knows files, time or compression.
//!
//! **Properties** (`tests/history/codec.rs`): what was put is what is taken, to the bit, over any sequence; any cut and
//! any changed byte gives a value or [`Torn`].

mod std_types;

use std::mem;

/// The bytes are no such value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are cut off or damaged")]
pub struct Torn;

/// A value that can be recorded.
pub trait Coded: Sized {
    /// What stands for the value before the first one.
    fn blank() -> Self;

    /// Writes the value as it differs from `last`, and makes that the value.
    fn put(&self, last: &mut Self, out: &mut Out);

    /// Reads a value that was written against `last`, and makes that the value.
    ///
    /// # Errors
    /// The bytes are no such value. `last` is of no use then.
    fn take(last: &mut Self, from: &mut In<'_>) -> Result<Self, Torn>;

    /// Adds names and kinds to the fingerprint.
    fn layout(to: &mut Layout);

    /// Writes each of a list as it differs from the one at its place in `last`.
    fn put_all(all: &[Self], last: &mut Vec<Self>, out: &mut Out) {
        last.resize_with(all.len(), Self::blank);
        for (value, last) in all.iter().zip(last) {
            value.put(last, out);
        }
    }

    /// Reads a list of `count`.
    ///
    /// # Errors
    /// See [`Coded::take`].
    fn take_all(count: usize, last: &mut Vec<Self>, from: &mut In<'_>) -> Result<Vec<Self>, Torn> {
        last.resize_with(count, Self::blank);
        last.iter_mut().map(|last| Self::take(last, from)).collect()
    }
}

/// Bytes that grow.
#[derive(Clone, Debug, Default)]
pub struct Out(Vec<u8>);

impl Out {
    /// The bytes so far.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Takes the bytes so far out.
    pub fn split(&mut self) -> Vec<u8> {
        mem::take(&mut self.0)
    }

    /// One byte.
    pub fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// A number, in seven bits a byte, the low ones first.
    pub fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// Bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// A number as its difference from `last`.
    fn difference(&mut self, number: u64, last: u64) {
        let difference = number.wrapping_sub(last) as i64;
        self.number(((difference << 1) ^ (difference >> 63)) as u64);
    }
}

/// Bytes that are read.
#[derive(Clone, Debug)]
pub struct In<'a>(&'a [u8]);

impl<'a> In<'a> {
    /// From the beginning of `bytes`.
    pub fn new(bytes: &'a [u8]) -> In<'a> {
        In(bytes)
    }

    /// How many bytes are left.
    pub fn left(&self) -> usize {
        self.0.len()
    }

    /// One byte.
    ///
    /// # Errors
    /// None is left.
    pub fn byte(&mut self) -> Result<u8, Torn> {
        let (first, rest) = self.0.split_first().ok_or(Torn)?;
        self.0 = rest;
        Ok(*first)
    }

    /// A number.
    ///
    /// # Errors
    /// There is none.
    pub fn number(&mut self) -> Result<u64, Torn> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(Torn);
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Torn)
    }

    /// The number of things that follow, each of a byte at least.
    ///
    /// # Errors
    /// There is none, or so many cannot follow.
    pub fn count(&mut self) -> Result<usize, Torn> {
        let count = usize::try_from(self.number()?).map_err(|_| Torn)?;
        if count > self.left() { Err(Torn) } else { Ok(count) }
    }

    /// So many bytes.
    ///
    /// # Errors
    /// Fewer are left.
    pub fn raw(&mut self, count: usize) -> Result<&'a [u8], Torn> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(Torn)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn difference(&mut self, last: u64) -> Result<u64, Torn> {
        let number = self.number()?;
        Ok(last.wrapping_add((number >> 1) ^ (number & 1).wrapping_neg()))
    }
}

/// The names and kinds below a type, as a number.
#[derive(Clone, Debug)]
pub struct Layout(u64);

impl Layout {
    /// Adds a name (FNV-1a).
    pub fn note(&mut self, name: &str) {
        for byte in name.bytes().chain([0]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// Adds the kind of a field, which `_of` finds in a value.
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

/// The fingerprint of a type: that of a type with other fields is another one.
pub fn fingerprint<T: Coded>() -> u64 {
    let mut layout = Layout(0xcbf2_9ce4_8422_2325);
    T::layout(&mut layout);
    layout.0
}

/// The value without a value before it.
pub fn encode<T: Coded>(value: &T) -> Vec<u8> {
    let mut out = Out::default();
    value.put(&mut T::blank(), &mut out);
    out.split()
}

/// The same backwards.
///
/// # Errors
/// The bytes are no such value, or more than one.
pub fn decode<T: Coded>(bytes: &[u8]) -> Result<T, Torn> {
    let mut from = In::new(bytes);
    let value = T::take(&mut T::blank(), &mut from)?;
    if from.left() == 0 { Ok(value) } else { Err(Torn) }
}

/// The fields of one variant beside those of the last value of the same variant.
pub(crate) trait Parts<Last> {
    /// Writes each.
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

/// The row of a type: `coded!(struct Name { field, field })`, or `coded!(enum Name { Variant { 0: a }, Other {} })`,
/// where a variant's fields are named or numbered and each has a word of its own after the colon.
macro_rules! coded {
    (struct $name:ident { $($field:ident),* $(,)? }) => {
        impl $crate::codec::Coded for $name {
            fn blank() -> Self {
                $name { $($field: $crate::codec::Coded::blank()),* }
            }

            fn put(&self, last: &mut Self, out: &mut $crate::codec::Out) {
                // Without `..`: a field that the row lacks does not compile.
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

pub(crate) use coded;
