//! Text from the kernel, which is bytes.
//!
//! **Problem.** Names of processes, cgroups, mount points and mount sources are bytes that users choose.
//! The kernel cuts the name of a process after 15 bytes, even inside a letter. A parser that requires UTF-8
//! then fails for the whole file, and a user can make that happen. A name with control characters changes
//! the display of a terminal.
//!
//! **Rules.** Files of `/proc` and the kernel log are parsed as bytes ([`proc_files`], [`mountinfo`], [`oom`]): an unneeded line may
//! contain anything. Paths of the file system stay paths. A name that becomes text (a key, a path from the
//! mount, a shown name) goes through [`text_of`], and through [`bytes_of`] back:
//!
//! - A name in UTF-8 without control characters is its own text.
//! - In any other name each byte that is not UTF-8, and each byte of a control character, is `\xNN` in
//!   lower case. So is a backslash that would read as such an escape.
//!
//! C0, C1, the line separators and the characters that reverse the direction of text count as control
//! characters ([`is_plain`]), so a text from here is safe to print.
//!
//! Systemd escapes names of units in the same notation, as in `dev-disk-by\x2duuid.swap`. Those are their
//! own text: an escape of a plain ASCII character is never produced here, and escapes that are the UTF-8 of
//! plain text are not either.
//!
//! **Properties** (tests below, over random bytes). [`bytes_of`] undoes [`text_of`], so two names never
//! share a text. A text is always plain. The text of a path is the texts of its names, joined.

pub mod hidden;
pub mod mountinfo;
pub mod oom;
pub mod proc_files;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Text of a name or path; see the rules above.
pub fn text_of(bytes: &[u8]) -> String {
    let is_common = |byte: &u8| (b' '..=b'~').contains(byte) && *byte != b'\\';
    let mut text = String::with_capacity(bytes.len());
    for (number, name) in bytes.split(|byte| *byte == b'/').enumerate() {
        if number > 0 {
            text.push('/');
        }
        match std::str::from_utf8(name) {
            Ok(name) if name.bytes().all(|byte| is_common(&byte)) || is_own_text(name) => {
                text.push_str(name);
            }
            _ => escape(name, &mut text),
        }
    }
    text
}

/// Name or path with this text.
pub fn bytes_of(text: &str) -> Vec<u8> {
    let names = text.split('/').map(|name| {
        if is_own_text(name) { name.as_bytes().to_vec() } else { decoded(name.as_bytes()) }
    });
    names.collect::<Vec<_>>().join(&b'/')
}

/// [`text_of`] for a path.
pub fn text_of_path(path: &Path) -> String {
    text_of(path.as_os_str().as_bytes())
}

/// [`text_of`] for a name.
pub fn text_of_name(name: &OsStr) -> String {
    text_of(name.as_bytes())
}

/// [`bytes_of`] as a path.
pub fn path_of(text: &str) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes_of(text)))
}

/// True if a terminal only shows this character.
pub fn is_plain(c: char) -> bool {
    let turns_direction = matches!(
        c,
        '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    !c.is_control() && !turns_direction && !matches!(c, '\u{2028}' | '\u{2029}')
}

/// Replaces each character that is not plain, for text that is not a key.
pub fn cleaned(text: &str) -> String {
    text.chars().map(|c| if is_plain(c) { c } else { char::REPLACEMENT_CHARACTER }).collect()
}

/// True if a name in UTF-8 is its own text.
fn is_own_text(name: &str) -> bool {
    if !name.chars().all(is_plain) {
        return false;
    }
    if !name.contains('\\') {
        return true;
    }
    let decoded_name = decoded(name.as_bytes());
    let is_text = |bytes: &[u8]| {
        std::str::from_utf8(bytes).is_ok_and(|text| text.chars().all(is_plain))
            && decoded(bytes) == bytes
    };
    decoded_name == name.as_bytes() || is_text(&decoded_name)
}

fn escape(name: &[u8], text: &mut String) {
    let code = |byte: u8| format!("\\x{byte:02x}");
    for chunk in name.utf8_chunks() {
        for (at, c) in chunk.valid().char_indices() {
            let reads_as_escape = escape_at(&chunk.valid().as_bytes()[at..]).is_some();
            if is_plain(c) && !reads_as_escape {
                text.push(c);
            } else {
                text.extend(c.encode_utf8(&mut [0; 4]).bytes().map(code));
            }
        }
        text.extend(chunk.invalid().iter().copied().map(code));
    }
}

fn decoded(mut name: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(name.len());
    while let Some((first, rest)) = name.split_first() {
        match escape_at(name) {
            Some(byte) => {
                bytes.push(byte);
                name = &name[4..];
            }
            None => {
                bytes.push(*first);
                name = rest;
            }
        }
    }
    bytes
}

/// Byte of an escape at the beginning of `text`, if [`escape`] produces it.
fn escape_at(text: &[u8]) -> Option<u8> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let [b'\\', b'x', high, low, ..] = text else { return None };
    let byte = digit(*high)? << 4 | digit(*low)?;
    (!(b' '..0x7f).contains(&byte) || byte == b'\\').then_some(byte)
}

/// Paths in JSON, as their texts.
pub mod path_text {
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes a path as its text.
    ///
    /// # Errors
    /// Errors of the serializer.
    pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::text_of_path(path))
    }

    /// Reads a path from its text.
    ///
    /// # Errors
    /// The input is not a text.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        String::deserialize(deserializer).map(|text| super::path_of(&text))
    }
}

/// Lists of paths in JSON, as their texts.
pub mod path_texts {
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes each path as its text.
    ///
    /// # Errors
    /// Errors of the serializer.
    pub fn serialize<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(paths.iter().map(|path| super::text_of_path(path)))
    }

    /// Reads each path from its text.
    ///
    /// # Errors
    /// The input is not a list of texts.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<PathBuf>, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        Ok(texts.iter().map(|text| super::path_of(text)).collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_names_and_escapes_of_systemd_are_their_own_text() {
        for name in [
            "/system.slice/cron.service",
            "/dev-disk-by\\x2duuid.swap",
            "/backup@caf\\xc3\\xa9.service",
            "/people/Zoë",
            "/",
            "",
            "a\\",
            "a\\xZZ",
        ] {
            assert_eq!(text_of(name.as_bytes()), name);
            assert_eq!(bytes_of(name), name.as_bytes(), "{name}");
        }
    }

    #[test]
    fn other_bytes_are_escaped() {
        for (bytes, text) in [
            (&b"caf\xe9"[..], "caf\\xe9"),
            (b"caf\\xe9", "caf\\x5cxe9"),
            (b"a\\x5cxe9", "a\\x5cx5cxe9"),
            (b"/ok/\xff\xfe/x\\x2dy", "/ok/\\xff\\xfe/x\\x2dy"),
            (b"\x1b]0;owned\x07", "\\x1b]0;owned\\x07"),
            ("a\u{202e}b\u{9b}".as_bytes(), "a\\xe2\\x80\\xaeb\\xc2\\x9b"),
            (b"a\nb", "a\\x0ab"),
        ] {
            assert_eq!(text_of(bytes), text);
            assert_eq!(bytes_of(text), bytes, "{text}");
        }
    }

    /// Bytes with many parts of escapes.
    fn names() -> impl Strategy<Value = Vec<u8>> {
        let part = prop_oneof![
            any::<u8>().prop_map(|byte| vec![byte]),
            any::<u8>().prop_map(|byte| format!("\\x{byte:02x}").into_bytes()),
            any::<char>().prop_map(|c| c.to_string().into_bytes()),
            Just(b"\\x5c".to_vec()),
            Just(b"\\".to_vec()),
            Just(b"x".to_vec()),
        ];
        proptest::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn texts_are_plain_and_can_be_undone(bytes in names()) {
            let text = text_of(&bytes);
            prop_assert!(text.chars().all(is_plain), "{text:?}");
            prop_assert_eq!(bytes_of(&text), bytes);
        }

        #[test]
        fn a_path_is_escaped_name_by_name(one in names(), other in names()) {
            let path = [&one[..], b"/", &other].concat();
            prop_assert_eq!(text_of(&path), format!("{}/{}", text_of(&one), text_of(&other)));
        }

        #[test]
        fn paths_survive_json(bytes in names()) {
            #[derive(serde::Serialize, serde::Deserialize, Debug, PartialEq)]
            struct Line {
                #[serde(with = "path_text")]
                one: PathBuf,
                #[serde(with = "path_texts")]
                all: Vec<PathBuf>,
            }
            let path = PathBuf::from(OsString::from_vec(bytes));
            let line = Line { one: path.clone(), all: vec![path.clone(), path] };
            let json = serde_json::to_string(&line).unwrap();
            prop_assert_eq!(serde_json::from_str::<Line>(&json).unwrap(), line);
        }
    }
}
