//! Properties of a transient scope (`StartTransientUnit` in org.freedesktop.systemd1(5)).

use std::os::fd::AsFd;

use zbus::zvariant::{Array, Fd, Structure, Type, Value};

use crate::systemd::order::ScopeProcess;
use crate::systemd::property::{PropertyValue, Setting};

/// Answer to a property that systemd does not know.
pub(super) const UNKNOWN_PROPERTY: &str = "org.freedesktop.DBus.Error.PropertyReadOnly";

/// The process of a scope: by its descriptor, which no later process of the same number can be taken for, or by its number
/// where there is none and for a systemd before 255.
pub(super) fn members<'a>(
    process: &'a ScopeProcess,
    knows_handles: bool,
) -> (&'static str, Value<'a>) {
    match process.handle.as_ref().filter(|_| knows_handles) {
        Some(handle) => ("PIDFDs", Value::from(vec![Fd::from(handle.as_fd())])),
        None => ("PIDs", Value::from(vec![process.pid])),
    }
}

/// Properties of a scope in `slice` that takes a process over.
///
/// The scope is unloaded as soon as it is empty, even after a failed start, so that its name is free again
/// (`CollectMode`). With `Delegate`, cgroups inside belong to its programs. Systemd then neither stops the
/// other processes after an OOM kill (`OOMPolicy`, which scopes support only since version 253), nor removes
/// cgroups inside.
pub(super) fn properties<'a>(
    slice: &'a str,
    description: &'a str,
    members: (&'static str, Value<'a>),
    settings: &[Setting],
) -> Vec<(&'static str, Value<'a>)> {
    let mut properties = vec![
        ("Description", Value::from(description)),
        ("Slice", Value::from(slice)),
        members,
        ("CollectMode", Value::from("inactive-or-failed")),
        ("Delegate", Value::from(true)),
    ];
    properties.extend(settings.iter().flat_map(property));
    properties
}

/// Properties for the devices that a scope may open ([`crate::devices`]). An empty list replaces earlier ones; each other
/// list is added.
pub(super) fn of_devices<'a>(patterns: &[String]) -> [(&'static str, Value<'a>); 3] {
    let empty = || Array::new(<(&str, &str)>::SIGNATURE);
    let mut allowed = empty();
    for pattern in patterns {
        let entry = Value::from(Structure::from((pattern.clone(), "rwm")));
        // An entry of another type is an error; all have that of the array.
        let _ = allowed.append(entry);
    }
    [
        ("DevicePolicy", Value::from("closed")),
        ("DeviceAllow", Value::from(empty())),
        ("DeviceAllow", Value::from(allowed)),
    ]
}

/// A property as it is set. Limits of disks replace earlier ones only after an empty list; each other list is added.
pub(super) fn property<'a>(setting: &Setting) -> Vec<(&'static str, Value<'a>)> {
    let name = setting.property.name();
    let value = match &setting.value {
        PropertyValue::Number(number) => Value::from(*number),
        PropertyValue::Mask(mask) => Value::from(mask.clone()),
        PropertyValue::Limits(limits) => {
            let empty = || Array::new(<(&str, u64)>::SIGNATURE);
            let mut all = empty();
            for (path, limit) in limits {
                // An entry of another type is an error; all have that of the array.
                let _ = all.append(Value::from(Structure::from((path.clone(), *limit))));
            }
            let lists = [empty(), all].into_iter().take(if limits.is_empty() { 1 } else { 2 });
            return lists.map(|list| (name, Value::from(list))).collect();
        }
    };
    vec![(name, value)]
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;

    use super::*;
    use crate::systemd::property::Property;
    use tenantd_control::words::knob::{Knob, Value as KnobValue};

    #[test]
    fn devices_have_the_types_of_the_bus() {
        let patterns = ["char-1".to_string(), "/dev/char/195:1".to_string()];
        let properties = of_devices(&patterns);
        let types =
            properties.each_ref().map(|(name, value)| (*name, value.value_signature().to_string()));
        let expected = [("DevicePolicy", "s"), ("DeviceAllow", "a(ss)"), ("DeviceAllow", "a(ss)")];
        assert_eq!(types, expected.map(|(name, kind)| (name, kind.to_string())));
        let lengths = [1, 2].map(|at| match &properties[at].1 {
            Value::Array(array) => array.len(),
            _ => 0,
        });
        assert_eq!(lengths, [0, 2]);
    }

    #[test]
    fn limits_of_disks_replace_earlier_ones() {
        let of = |limits: &[(&str, u64)]| {
            let limits = limits.iter().map(|(path, limit)| (path.to_string(), *limit)).collect();
            let value = PropertyValue::Limits(limits);
            let setting = Setting { property: Property::IoReadIopsMax, value };
            let shown = |(name, value): (&'static str, Value<'_>)| match &value {
                Value::Array(array) => (name, value.value_signature().to_string(), array.len()),
                _ => (name, String::new(), 0),
            };
            property(&setting).into_iter().map(shown).collect::<Vec<_>>()
        };
        let list = |length| ("IOReadIOPSMax", "a(st)".to_string(), length);
        assert_eq!(of(&[("/dev/block/8:0", 5), ("/dev/sdb", 7)]), [list(0), list(2)]);
        assert_eq!(of(&[]), [list(0)]);
    }

    /// Systemd refuses a unit with a property of another type.
    #[test]
    fn the_properties_of_a_scope_have_the_types_of_the_bus() {
        let cpus = Setting::of(Knob::Cpus, &KnobValue::CpuList([0, 9].into_iter().collect()));
        let weight = Setting::of(Knob::CpuWeight, &KnobValue::Weight(250.0));
        let handle = Arc::new(File::open("/dev/null").unwrap().into());
        let process = ScopeProcess { pid: 7, handle: Some(handle) };
        for (knows_handles, members) in [(true, ("PIDFDs", "ah")), (false, ("PIDs", "au"))] {
            let given = super::members(&process, knows_handles);
            let settings = [cpus.clone(), weight.clone()];
            let properties = properties("a.slice", "job 1", given, &settings);
            let types: Vec<(&str, String)> = properties
                .iter()
                .map(|(name, value)| (*name, value.value_signature().to_string()))
                .collect();
            let expected = [
                ("Description", "s"),
                ("Slice", "s"),
                members,
                ("CollectMode", "s"),
                ("Delegate", "b"),
                ("AllowedCPUs", "ay"),
                ("CPUWeight", "t"),
            ];
            assert_eq!(types, expected.map(|(name, kind)| (name, kind.to_string())));
        }
    }
}
