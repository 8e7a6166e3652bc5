//! Pieces of schema that the resources share, and the shape that every schema is brought into.
//!
//! A rule goes into the plain schema (length, range, enum, required) when the API server's own
//! message about it can be understood, and into CEL with a message of ours when it cannot: nobody
//! should have to read a regular expression to learn what a name may look like. Every list and string
//! has an upper bound, because the API server multiplies the cost of a rule by the most elements it
//! could meet and refuses a definition that could cost too much. The bounds are far above real use.
//!
//! Only functions that servers from 1.29 on know are used: a policy lives in worker clusters, and those
//! may be older than the computing cluster.
//!
//! Deliberately absent: the fields themselves; they are described where their types are.

use kube::core::Rule;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

/// A DNS label: namespace names, and one part of a longer name.
macro_rules! dns_label {
    () => {
        "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    };
}

/// A DNS subdomain: names of most objects.
macro_rules! dns_subdomain {
    () => {
        concat!("[a-z0-9]([-a-z0-9]*[a-z0-9])?", "([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
    };
}

/// A qualified name, as label keys and resource names are: `name` or `prefix/name`.
macro_rules! qualified_name {
    () => {
        concat!(
            "([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?",
            "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
        )
    };
}

/// The CEL expression that `self` matches a whole pattern.
macro_rules! self_matches {
    ($pattern:expr) => {
        concat!("self.matches('^", $pattern, "$')")
    };
}

pub(crate) use {dns_label, dns_subdomain, qualified_name, self_matches};

/// Longest DNS label.
pub(crate) const LABEL_LENGTH: u32 = 63;
/// Longest DNS subdomain.
pub(crate) const SUBDOMAIN_LENGTH: u32 = 253;
/// Longest qualified name: a subdomain, a slash and 63 characters.
pub(crate) const QUALIFIED_NAME_LENGTH: u32 = 317;

/// A `matchFields` requirement names one node, so a selector by name needs one term per node.
const SELECTOR_TERMS: u32 = 256;
/// With 256 terms this makes 8,192 requirements, for which the API server budgets three cheap rules.
const MATCH_EXPRESSIONS: u32 = 32;
/// `NotIn` by name excludes one node per requirement, all of them in one term.
const MATCH_FIELDS: u32 = 256;
/// Node names in one `In`.
const SELECTOR_VALUES: u32 = 512;
/// A status has fewer than ten conditions; the rest is room.
const CONDITIONS: u32 = 32;

/// A rule whose message names the field and what to write instead.
pub(crate) fn rule(rule: &str, message: &str) -> Rule {
    Rule::new(rule).message(message)
}

/// Brings the schema of one struct into the shape we publish.
///
/// An optional field may be left out; it is not nullable on top of that. (The API server drops a null
/// where none is allowed, so both spellings still reach us as "absent".) Line breaks of the source are
/// not part of a description: `kubectl explain` wraps on its own.
pub(crate) fn tidy(schema: &mut Schema) {
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = reflow(text);
    }
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for property in properties.values_mut().filter_map(Value::as_object_mut) {
        drop_null(property);
        if let Some(Value::String(text)) = property.get_mut("description") {
            *text = reflow(text);
        }
    }
}

fn drop_null(property: &mut Map<String, Value>) {
    if let Some(types) = property.get_mut("type")
        && let Some(only) =
            types.as_array().and_then(|all| all.iter().find(|one| *one != &json!("null"))).cloned()
    {
        *types = only;
    }
    if let Some(choice) = property.get("anyOf").and_then(Value::as_array)
        && let [Value::Object(value), null] = choice.as_slice()
        && null == &json!({"type": "null"})
    {
        let value = value.clone();
        property.remove("anyOf");
        for (key, item) in value {
            property.entry(key).or_insert(item);
        }
    }
}

/// Joins the lines of a paragraph; keeps paragraphs apart.
fn reflow(text: &str) -> String {
    text.split("\n\n")
        .map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect::<Vec<_>>()
        .join("\n\n")
}

/// `status.conditions`: a map by type, with the bounds of `metav1.Condition`.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": CONDITIONS,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "description": "One aspect of the current state.",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "type": {
                    "type": "string",
                    "description": "What the condition is about, in CamelCase.",
                    "maxLength": 316,
                    "pattern": concat!(
                        r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?",
                        r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
                    ),
                },
                "status": {
                    "type": "string",
                    "description": "True, False or Unknown.",
                    "enum": ["True", "False", "Unknown"],
                },
                "reason": {
                    "type": "string",
                    "description": "Why, as one CamelCase word for programs.",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": {
                    "type": "string",
                    "description": "Why, in a sentence for people; where something is wrong it names the fix.",
                    "maxLength": 32_768,
                },
                "lastTransitionTime": {
                    "type": "string",
                    "format": "date-time",
                    "description": "When the status last changed from one value to another.",
                },
                "observedGeneration": {
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                    "description": "The metadata.generation that this condition speaks about.",
                },
            },
        },
    })
}

/// A core `NodeSelector`, with the rules of core validation except one: no terms means every node,
/// where core demands at least one term.
pub(crate) fn node_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "nodeSelectorTerms": {
                "type": "array",
                "description": "A node is selected if it matches any of these terms. Empty or missing: every node.",
                "maxItems": SELECTOR_TERMS,
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "description": "A node matches a term if it meets all its requirements. \
                        A term without requirements matches no node.",
                    "x-kubernetes-map-type": "atomic",
                    "properties": {
                        "matchExpressions": match_expressions(),
                        "matchFields": match_fields(),
                    },
                },
            },
        },
    })
}

fn match_expressions() -> Value {
    json!({
        "type": "array",
        "description": "Requirements on the node's labels.",
        "maxItems": MATCH_EXPRESSIONS,
        "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object",
            "required": ["key", "operator"],
            "properties": {
                "key": {
                    "type": "string",
                    "description": "The label's key, for example kubernetes.io/arch.",
                    "minLength": 1,
                    "maxLength": QUALIFIED_NAME_LENGTH,
                    // Not CEL: over so many keys the rule could cost three times what is allowed.
                    "pattern": concat!("^", qualified_name!(), "$"),
                },
                "operator": {
                    "type": "string",
                    "description": "How the label relates to the values: In, NotIn, Exists, DoesNotExist, Gt or Lt.",
                    "enum": ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"],
                },
                "values": {
                    "type": "array",
                    "description": "At least one value for In and NotIn, none for Exists and DoesNotExist, \
                        exactly one integer for Gt and Lt.",
                    "maxItems": SELECTOR_VALUES,
                    "x-kubernetes-list-type": "atomic",
                    "items": { "type": "string", "maxLength": SUBDOMAIN_LENGTH },
                },
            },
            "x-kubernetes-validations": [
                rule(
                    "!(self.operator in ['In', 'NotIn']) || (has(self.values) && self.values.size() > 0)",
                    "values must have at least one entry when operator is In or NotIn",
                ),
                rule(
                    "!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || self.values.size() == 0",
                    "values must be left out when operator is Exists or DoesNotExist",
                ),
                rule(
                    "!(self.operator in ['Gt', 'Lt']) || (has(self.values) && self.values.size() == 1 \
                     && self.values[0].matches('^[-+]?[0-9]{1,19}$'))",
                    "values must have exactly one entry, an integer, when operator is Gt or Lt",
                ),
            ],
        },
    })
}

fn match_fields() -> Value {
    json!({
        "type": "array",
        "description": "Requirements on the node's fields. The only field is metadata.name.",
        "maxItems": MATCH_FIELDS,
        "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object",
            "required": ["key", "operator", "values"],
            "properties": {
                "key": {
                    "type": "string",
                    "description": "The field: metadata.name.",
                    "enum": ["metadata.name"],
                },
                "operator": {
                    "type": "string",
                    "description": "In: the node of that name. NotIn: every other node.",
                    "enum": ["In", "NotIn"],
                },
                "values": {
                    "type": "array",
                    "description": "Exactly one node name.",
                    "minItems": 1,
                    "maxItems": 1,
                    "x-kubernetes-list-type": "atomic",
                    "items": { "type": "string", "maxLength": SUBDOMAIN_LENGTH },
                },
            },
        },
    })
}
