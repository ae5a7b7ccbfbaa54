//! The JSON schema of a policy, for editors: derived from the table of keys.

use serde_json::{Value, json};

use super::key::{Flag, object, rows};
use super::keys::{POLICY, TENANT};
use super::values::{LONGEST_NAME, NAME_PATTERN};

/// JSON schema of a policy.
pub fn schema() -> Value {
    let mut schema = object(&rows(POLICY));
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "tenantd policy".into();
    schema["description"] =
        "Which tenants share this machine, and in which proportion. `tenantctl check` \
                             knows rules that a schema cannot express."
            .into();
    schema["type"] = "object".into();
    schema["patternProperties"] = json!({ "^x-": true });
    let mut template = rows(TENANT);
    template.retain(|row| !row.flags.contains(&Flag::Group));
    let mut template = object(&template);
    template["required"] = json!(["match"]);
    schema["$defs"] = json!({
        "tenant": object(&rows(TENANT)),
        "template": template,
        "tenants": {
            "type": "object",
            "minProperties": 1,
            "propertyNames": { "pattern": NAME_PATTERN, "maxLength": LONGEST_NAME },
            "additionalProperties": { "$ref": "#/$defs/tenant" }
        }
    });
    schema
}
