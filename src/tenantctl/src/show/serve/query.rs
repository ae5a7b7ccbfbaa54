//! The choices of a reader, as the query of an address: order, filter, idle tenants, the open tenant.

use std::fmt::Write;

use crate::args::SortKey;
use crate::common::rows::{Choice, Idle};

/// Orders of the list, each with its word of `tenantctl status --sort`.
pub(crate) const ORDERS: [(SortKey, &str); 10] = [
    (SortKey::Lacking, "lacking"),
    (SortKey::Policy, "policy"),
    (SortKey::Name, "name"),
    (SortKey::Cpu, "cpu"),
    (SortKey::Wanted, "wanted"),
    (SortKey::ShareNow, "share-now"),
    (SortKey::ShareIfBusy, "share-if-busy"),
    (SortKey::Memory, "memory"),
    (SortKey::Error, "error"),
    (SortKey::Pressure, "pressure"),
];

/// Choices of a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) sort: SortKey,
    pub(crate) filter: String,
    pub(crate) has_idle: bool,
    /// Open tenant or group.
    pub(crate) opened: Option<String>,
}

impl Query {
    /// Reads a query; parts that are not understood have no effect.
    pub(crate) fn of(text: &str) -> Query {
        let mut query =
            Query { sort: SortKey::Lacking, filter: String::new(), has_idle: false, opened: None };
        for (key, value) in text.split('&').filter_map(|part| part.split_once('=')) {
            let value = decoded(value);
            match key {
                "sort" => {
                    let known = ORDERS.into_iter().find(|(_, word)| *word == value);
                    query.sort = known.map_or(query.sort, |(key, _)| key);
                }
                "filter" => query.filter = value,
                "idle" => query.has_idle = value == "shown",
                "tenant" => query.opened = Some(value).filter(|name| !name.is_empty()),
                _ => {}
            }
        }
        query
    }

    /// Address of the page with these choices, relative to it: a proxy may serve it below another path.
    pub(crate) fn address(&self) -> String {
        let mut parts = Vec::new();
        let order = ORDERS[1..].iter().find(|(key, _)| *key == self.sort);
        parts.extend(order.map(|(_, word)| format!("sort={word}")));
        if !self.filter.is_empty() {
            parts.push(format!("filter={}", encoded(&self.filter)));
        }
        parts.extend(self.has_idle.then(|| "idle=shown".to_string()));
        parts.extend(self.opened.as_ref().map(|name| format!("tenant={}", encoded(name))));
        format!("./?{}", parts.join("&")).trim_end_matches('?').to_string()
    }

    /// Address of the page with another open tenant.
    pub(crate) fn opening(&self, opened: Option<&str>) -> String {
        Query { opened: opened.map(str::to_string), ..self.clone() }.address()
    }

    /// Rows of the list: a tree in every order.
    pub(crate) fn choice(&self) -> Choice {
        Choice {
            filter: self.filter.clone(),
            sort: self.sort,
            is_tree: true,
            idle: if self.has_idle { Idle::Shown } else { Idle::Folded },
            ..Choice::default()
        }
    }
}

/// Text without signs that an address or an `id` may not have.
pub(crate) fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(byte.into());
            }
            // Writing to a string cannot fail.
            _ => drop(write!(encoded, "%{byte:02X}")),
        }
    }
    encoded
}

fn decoded(value: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = value.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).filter(|hex| hex.iter().all(u8::is_ascii_hexdigit));
        let number = hex.and_then(|hex| std::str::from_utf8(hex).ok());
        match number.and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(if *first == b'+' { b' ' } else { *first });
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_was_written() {
        let query = Query {
            sort: SortKey::Cpu,
            filter: "a b&c=d+%41é".into(),
            has_idle: true,
            opened: Some("ci/<\"'>".into()),
        };
        let address = query.address();
        assert_eq!(
            address,
            "./?sort=cpu&filter=a%20b%26c%3Dd%2B%2541%C3%A9&idle=shown&tenant=ci%2F%3C%22%27%3E"
        );
        assert_eq!(Query::of(address.strip_prefix("./?").unwrap()), query);
        assert_eq!(Query::of("").address(), "./");
        let form = Query::of("sort=lacking&filter=a+b&tenant=&idle=x&sort=none&%ff=%zz&=");
        assert_eq!(form, Query { filter: "a b".into(), ..Query::of("") });
        assert_eq!(Query::of("filter=%ff%4").filter, "\u{fffd}%4");
    }
}
