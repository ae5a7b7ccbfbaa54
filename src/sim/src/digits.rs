//! Numbers as text, for files that are read in every tick.

use std::fmt::Write;

pub(super) fn number(text: &mut String, value: u64) {
    if value < 10 {
        text.push(char::from(b'0' + value as u8));
        return;
    }
    let mut digits = [b'0'; 20];
    let (mut left, mut first) = (value, digits.len());
    loop {
        first -= 1;
        digits[first] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    *text += std::str::from_utf8(&digits[first..]).unwrap_or_default();
}

/// Appends `value` with two decimals, as `{:.2}` does.
pub(super) fn hundredths(text: &mut String, value: f64) {
    let scaled = value * 100.0;
    // Near the middle between two results, the product does not show which is nearer.
    let is_plain = (0.0..1e9).contains(&scaled) && (scaled.fract() - 0.5).abs() > 1e-6;
    if !is_plain || value.is_sign_negative() {
        let _ = write!(text, "{value:.2}");
        return;
    }
    let whole = (scaled + 0.5) as u64;
    number(text, whole / 100);
    text.push('.');
    text.extend([whole / 10 % 10, whole % 10].map(|digit| char::from(b'0' + digit as u8)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_rust_prints_them() {
        for value in [0, 7, 10, 99, 4096, 1 << 40, u64::MAX] {
            let mut text = String::new();
            number(&mut text, value);
            assert_eq!(text, value.to_string());
        }
    }

    #[test]
    fn hundredths_are_as_rust_prints_them() {
        let some =
            [-0.0, 0.005, 0.015, 0.125, 0.994_999, 0.995, 1.005, 99.995, 1e12, -3.2, f64::NAN];
        let many = (0..200_000).map(|nr| f64::from(nr) * 0.000_500_000_1);
        let halves = (0..20_000).map(|nr| f64::from(nr) / 200.0);
        for value in some.into_iter().chain(many).chain(halves) {
            let mut text = String::new();
            hundredths(&mut text, value);
            assert_eq!(text, format!("{value:.2}"));
        }
    }
}
