//! Codings of the standard library's types, and of the shared name.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use smol_str::SmolStr;

use super::{ABSENT, Coded, In, Layout, Out, Torn};

macro_rules! numbers {
    ($($name:ident)*) => {$(
        impl Coded for $name {
            const IS_NUMBER: bool = true;

            fn blank() -> Self {
                0
            }

            fn put(&self, last: &mut Self, out: &mut Out) {
                out.difference(*self as u64, *last as u64);
                *last = *self;
            }

            fn take(last: &mut Self, from: &mut In<'_>) -> Result<Self, Torn> {
                *last = from.difference(*last as u64)?.try_into().map_err(|_| Torn)?;
                Ok(*last)
            }

            fn layout(to: &mut Layout) {
                to.note(stringify!($name));
            }
        }
    )*};
}

numbers!(u32 u64 usize);

/// By its bits: −0 stays −0. Differences are mostly at the end of the mantissa, so the bytes are reversed.
impl Coded for f64 {
    const IS_NUMBER: bool = true;

    fn blank() -> Self {
        0.0
    }

    fn put(&self, last: &mut Self, out: &mut Out) {
        out.number((self.to_bits() ^ last.to_bits()).swap_bytes());
        *last = *self;
    }

    fn take(last: &mut Self, from: &mut In<'_>) -> Result<Self, Torn> {
        *last = f64::from_bits(from.number()?.swap_bytes() ^ last.to_bits());
        Ok(*last)
    }

    fn layout(to: &mut Layout) {
        to.note("f64");
    }
}

impl Coded for bool {
    const IS_NUMBER: bool = true;

    fn blank() -> Self {
        false
    }

    fn put(&self, last: &mut Self, out: &mut Out) {
        out.byte(u8::from(*self));
        *last = *self;
    }

    fn take(last: &mut Self, from: &mut In<'_>) -> Result<Self, Torn> {
        *last = match from.byte()? {
            0 => false,
            1 => true,
            _ => return Err(Torn),
        };
        Ok(*last)
    }

    fn layout(to: &mut Layout) {
        to.note("bool");
    }
}

/// 0 for the same text, or its length plus 1, and its bytes. A reader need not know the concrete text type.
macro_rules! texts {
    ($($name:ident)*) => {$(
        impl Coded for $name {
            fn blank() -> Self {
                $name::default()
            }

            fn put(&self, last: &mut Self, out: &mut Out) {
                if self == last {
                    return out.number(0);
                }
                out.number(self.len() as u64 + 1);
                out.raw(self.as_bytes());
                last.clone_from(self);
            }

            fn take(last: &mut Self, from: &mut In<'_>) -> Result<Self, Torn> {
                if let Some(length) = from.number()?.checked_sub(1) {
                    let bytes = from.raw(usize::try_from(length).map_err(|_| Torn)?)?;
                    *last = std::str::from_utf8(bytes).map_err(|_| Torn)?.into();
                }
                Ok(last.clone())
            }

            fn layout(to: &mut Layout) {
                to.note("text");
            }
        }
    )*};
}
texts!(String SmolStr);

impl Coded for Duration {
    fn blank() -> Self {
        Duration::ZERO
    }

    fn put(&self, last: &mut Self, out: &mut Out) {
        out.difference(self.as_secs(), last.as_secs());
        out.difference(self.subsec_nanos().into(), last.subsec_nanos().into());
        *last = *self;
    }

    fn take(last: &mut Self, from: &mut In<'_>) -> Result<Self, Torn> {
        let seconds = from.difference(last.as_secs())?;
        let nanos = from.difference(last.subsec_nanos().into())?;
        // A larger value would be seconds, which may not fit.
        let nanos = u32::try_from(nanos).ok().filter(|nanos| *nanos < 1_000_000_000).ok_or(Torn)?;
        *last = Duration::new(seconds, nanos);
        Ok(*last)
    }

    fn layout(to: &mut Layout) {
        to.note("time");
    }
}

/// An absent value leaves the last present one.
impl<T: Coded> Coded for Option<T> {
    fn blank() -> Self {
        None
    }

    fn put(&self, last: &mut Self, out: &mut Out) {
        match self {
            None => return out.byte(if T::IS_NUMBER { ABSENT } else { 0 }),
            Some(_) if T::IS_NUMBER => {}
            Some(_) => out.byte(1),
        }
        if let Some(value) = self {
            value.put(last.get_or_insert_with(T::blank), out);
        }
    }

    fn take(last: &mut Self, from: &mut In<'_>) -> Result<Self, Torn> {
        if T::IS_NUMBER {
            if from.is_absent() {
                return Ok(None);
            }
            return T::take(last.get_or_insert_with(T::blank), from).map(Some);
        }
        match from.byte()? {
            0 => Ok(None),
            1 => T::take(last.get_or_insert_with(T::blank), from).map(Some),
            _ => Err(Torn),
        }
    }

    fn layout(to: &mut Layout) {
        to.note("option");
        T::layout(to);
    }
}

impl<T: Coded, E: Coded> Coded for Result<T, E> {
    fn blank() -> Self {
        Ok(T::blank())
    }

    fn put(&self, last: &mut Self, out: &mut Out) {
        match (self, last) {
            (Ok(value), Ok(last)) => {
                out.byte(0);
                value.put(last, out);
            }
            (Err(error), Err(last)) => {
                out.byte(1);
                error.put(last, out);
            }
            (Ok(value), last) => {
                out.byte(0);
                let mut blank = T::blank();
                value.put(&mut blank, out);
                *last = Ok(blank);
            }
            (Err(error), last) => {
                out.byte(1);
                let mut blank = E::blank();
                error.put(&mut blank, out);
                *last = Err(blank);
            }
        }
    }

    fn take(last: &mut Self, from: &mut In<'_>) -> Result<Self, Torn> {
        match (from.byte()?, last) {
            (0, Ok(last)) => T::take(last, from).map(Ok),
            (1, Err(last)) => E::take(last, from).map(Err),
            (0, last) => {
                let mut blank = T::blank();
                let value = T::take(&mut blank, from)?;
                *last = Ok(blank);
                Ok(Ok(value))
            }
            (1, last) => {
                let mut blank = E::blank();
                let error = E::take(&mut blank, from)?;
                *last = Err(blank);
                Ok(Err(error))
            }
            _ => Err(Torn),
        }
    }

    fn layout(to: &mut Layout) {
        to.note("result");
        T::layout(to);
        E::layout(to);
    }
}

/// Each item against the one with its index in the last list.
impl<T: Coded> Coded for Vec<T> {
    fn blank() -> Self {
        Vec::new()
    }

    fn put(&self, last: &mut Self, out: &mut Out) {
        out.number(self.len() as u64);
        T::put_all(self, last, out);
    }

    fn take(last: &mut Self, from: &mut In<'_>) -> Result<Self, Torn> {
        let count = from.count()?;
        T::take_all(count, last, from)
    }

    fn layout(to: &mut Layout) {
        to.note("list");
        T::layout(to);
    }
}

impl<T: Coded + Clone> Coded for Arc<[T]> {
    fn blank() -> Self {
        Arc::new([])
    }

    fn put(&self, last: &mut Self, out: &mut Out) {
        let mut before = last.to_vec();
        out.number(self.len() as u64);
        T::put_all(self, &mut before, out);
        *last = before.into();
    }

    fn take(last: &mut Self, from: &mut In<'_>) -> Result<Self, Torn> {
        let mut before = last.to_vec();
        let now = Vec::take(&mut before, from)?;
        *last = before.into();
        Ok(now.into())
    }

    fn layout(to: &mut Layout) {
        Vec::<T>::layout(to);
    }
}

impl<T: Coded, const N: usize> Coded for [T; N] {
    fn blank() -> Self {
        std::array::from_fn(|_| T::blank())
    }

    fn put(&self, last: &mut Self, out: &mut Out) {
        for (value, last) in self.iter().zip(last) {
            value.put(last, out);
        }
    }

    fn take(last: &mut Self, from: &mut In<'_>) -> Result<Self, Torn> {
        let values: Result<Vec<T>, Torn> =
            last.iter_mut().map(|last| T::take(last, from)).collect();
        values?.try_into().map_err(|_| Torn)
    }

    fn layout(to: &mut Layout) {
        to.note("array");
        to.note(&N.to_string());
        T::layout(to);
    }
}

impl<T: Coded> Coded for Box<T> {
    fn blank() -> Self {
        Box::new(T::blank())
    }

    fn put(&self, last: &mut Self, out: &mut Out) {
        (**self).put(last, out);
    }

    fn take(last: &mut Self, from: &mut In<'_>) -> Result<Self, Torn> {
        T::take(last, from).map(Box::new)
    }

    fn layout(to: &mut Layout) {
        T::layout(to);
    }
}

impl<A: Coded, B: Coded> Coded for (A, B) {
    fn blank() -> Self {
        (A::blank(), B::blank())
    }

    fn put(&self, last: &mut Self, out: &mut Out) {
        self.0.put(&mut last.0, out);
        self.1.put(&mut last.1, out);
    }

    fn take(last: &mut Self, from: &mut In<'_>) -> Result<Self, Torn> {
        Ok((A::take(&mut last.0, from)?, B::take(&mut last.1, from)?))
    }

    fn layout(to: &mut Layout) {
        to.note("pair");
        A::layout(to);
        B::layout(to);
    }
}

impl<T: Coded> Coded for Range<T> {
    fn blank() -> Self {
        T::blank()..T::blank()
    }

    fn put(&self, last: &mut Self, out: &mut Out) {
        self.start.put(&mut last.start, out);
        self.end.put(&mut last.end, out);
    }

    fn take(last: &mut Self, from: &mut In<'_>) -> Result<Self, Torn> {
        Ok(T::take(&mut last.start, from)?..T::take(&mut last.end, from)?)
    }

    fn layout(to: &mut Layout) {
        to.note("range");
        T::layout(to);
    }
}
