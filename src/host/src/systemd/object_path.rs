//! The path on the bus of a unit's object.
//!
//! It follows from the unit's name: every byte other than a letter or a digit, and a leading digit, is written
//! as `_` and two hexadecimal digits (`bus_label_escape` in systemd's `src/basic/bus-label.c`).

pub(super) const UNITS_PATH: &str = "/org/freedesktop/systemd1/unit";

pub(super) fn object_path(unit: &str) -> String {
    let mut path = format!("{UNITS_PATH}/");
    for (at, byte) in unit.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => path.push(char::from(byte)),
            b'0'..=b'9' if at > 0 => path.push(char::from(byte)),
            _ => path.push_str(&format!("_{byte:02x}")),
        }
    }
    path
}

pub(super) fn unit_at(path: &str) -> Option<String> {
    let label = path.strip_prefix(UNITS_PATH)?.strip_prefix('/')?;
    let mut unit = Vec::with_capacity(label.len());
    let mut bytes = label.bytes();
    while let Some(byte) = bytes.next() {
        unit.push(match byte {
            b'_' => hex(bytes.next()?)? << 4 | hex(bytes.next()?)?,
            byte => byte,
        });
    }
    String::from_utf8(unit).ok()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paths are those of systemd 252 and 257.
    #[test]
    fn a_unit_has_a_path_and_a_path_its_unit() {
        for (unit, label) in [
            ("dbus.service", "dbus_2eservice"),
            ("user-1000.slice", "user_2d1000_2eslice"),
            ("many@3.service", "many_403_2eservice"),
            ("a\\x2db.slice", "a_5cx2db_2eslice"),
            ("7.scope", "_37_2escope"),
        ] {
            let path = format!("{UNITS_PATH}/{label}");
            assert_eq!(object_path(unit), path);
            assert_eq!(unit_at(&path).as_deref(), Some(unit));
        }
        for other in ["/org/freedesktop/systemd1", "/org/freedesktop/systemd1/unit/a_2", "/"] {
            assert_eq!(unit_at(other), None);
        }
    }
}
