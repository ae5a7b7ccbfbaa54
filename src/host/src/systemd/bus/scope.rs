//! Properties of a transient scope (`StartTransientUnit` in org.freedesktop.systemd1(5)).

use zbus::zvariant::Value;

use crate::systemd::property::{PropertyValue, Setting};

/// Properties of a scope in `slice` that takes these processes over.
///
/// The scope is unloaded as soon as it is empty, even after a failed start, so that its name is free again
/// (`CollectMode`). With `Delegate`, cgroups inside belong to its programs. Systemd then neither stops the
/// other processes after an OOM kill (`OOMPolicy`, which scopes support only since version 253), nor removes
/// cgroups inside.
pub(super) fn properties<'a>(
    slice: &'a str,
    description: &'a str,
    pids: &[u32],
    settings: &[Setting],
) -> Vec<(&'static str, Value<'a>)> {
    let mut properties = vec![
        ("Description", Value::from(description)),
        ("Slice", Value::from(slice)),
        ("PIDs", Value::from(pids.to_vec())),
        ("CollectMode", Value::from("inactive-or-failed")),
        ("Delegate", Value::from(true)),
    ];
    properties.extend(settings.iter().map(property));
    properties
}

pub(super) fn property<'a>(setting: &Setting) -> (&'static str, Value<'a>) {
    let value = match &setting.value {
        PropertyValue::Number(number) => Value::from(*number),
        PropertyValue::Mask(mask) => Value::from(mask.clone()),
    };
    (setting.property.name(), value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenantd_control::words::knob::{Knob, Value as KnobValue};

    /// Systemd refuses a unit with a property of another type.
    #[test]
    fn the_properties_of_a_scope_have_the_types_of_the_bus() {
        let cpus = Setting::of(Knob::Cpus, &KnobValue::CpuList([0, 9].into_iter().collect()));
        let weight = Setting::of(Knob::CpuWeight, &KnobValue::Weight(250.0));
        let properties = properties("a.slice", "job 1", &[7], &[cpus, weight]);
        let types: Vec<(&str, String)> = properties
            .iter()
            .map(|(name, value)| (*name, value.value_signature().to_string()))
            .collect();
        let expected = [
            ("Description", "s"),
            ("Slice", "s"),
            ("PIDs", "au"),
            ("CollectMode", "s"),
            ("Delegate", "b"),
            ("AllowedCPUs", "ay"),
            ("CPUWeight", "t"),
        ];
        assert_eq!(types, expected.map(|(name, kind)| (name, kind.to_string())));
    }
}
