use serde_json::{Value, json};

use super::*;

fn node_selector(value: Value) -> Result<NodeSelector, Vec<SelectorError>> {
    NodeSelector::parse(Some(&serde_json::from_value(value).unwrap()))
}

fn terms(terms: Value) -> NodeSelector {
    node_selector([("nodeSelectorTerms".to_owned(), terms)].into_iter().collect()).unwrap()
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
    json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}])
}

fn field(operator: &str, name: &str) -> Value {
    json!([{"matchFields": [{"key": "metadata.name", "operator": operator, "values": [name]}]}])
}

/// Kubernetes' own semantics, case by case; the node is `n1` with `zone=a`, `cores=16`, `empty=`.
#[test]
fn a_requirement_means_what_it_means_to_the_scheduler() {
    let node = labels(&[("zone", "a"), ("cores", "16"), ("empty", "")]);
    for (selector, expected) in [
        (expression("zone", "In", &["a", "b"]), true),
        (expression("zone", "In", &["b"]), false),
        (expression("rack", "In", &["a"]), false),
        (expression("zone", "NotIn", &["b"]), true),
        (expression("zone", "NotIn", &["a"]), false),
        (expression("rack", "NotIn", &["a"]), true),
        (expression("zone", "Exists", &[]), true),
        (expression("empty", "Exists", &[]), true),
        (expression("rack", "Exists", &[]), false),
        (expression("rack", "DoesNotExist", &[]), true),
        (expression("zone", "DoesNotExist", &[]), false),
        (expression("empty", "In", &[""]), true),
        (expression("cores", "Gt", &["15"]), true),
        (expression("cores", "Gt", &["16"]), false),
        (expression("cores", "Lt", &["17"]), true),
        (expression("cores", "Lt", &["16"]), false),
        (expression("zone", "Gt", &["1"]), false),
        (expression("zone", "Lt", &["1"]), false),
        (expression("rack", "Gt", &["0"]), false),
        (expression("rack", "Lt", &["9"]), false),
        (field("In", "n1"), true),
        (field("In", "n2"), false),
        (field("NotIn", "n1"), false),
        (field("NotIn", "n2"), true),
        // Terms are alternatives; the requirements of a term are not.
        (
            json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]},
                {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]),
            true,
        ),
        (
            json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}],
                 "matchExpressions": [{"key": "zone", "operator": "Exists"}]}]),
            false,
        ),
        (
            json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
                 "matchExpressions": [{"key": "zone", "operator": "Exists"}]}]),
            true,
        ),
        (
            json!([{"matchExpressions": [{"key": "zone", "operator": "Exists"}, {"key": "rack", "operator": "Exists"}]}]),
            false,
        ),
        // An empty term means no node, and does not spoil the others.
        (json!([{}]), false),
        (json!([{"matchExpressions": [], "matchFields": []}]), false),
        (json!([{}, {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]), true),
    ] {
        let parsed = terms(selector.clone());
        assert_eq!(parsed.matches("n1", &node), expected, "{selector}");
        assert_eq!(parsed.explain("n1", &node).is_ok(), expected, "{selector}");
    }
}

#[test]
fn no_selector_means_every_node() {
    assert!(NodeSelector::parse(None).unwrap().matches("n", &labels(&[])));
    assert!(terms(json!([])).matches("n", &labels(&[])));
}

#[test]
fn a_fault_is_named_with_its_field_and_the_fix() {
    for (selector, expected) in [
        (
            expression("zone", "Is", &["a"]),
            "matchExpressions[0].operator: `Is` is not an operator: use one of In, NotIn, Exists, DoesNotExist, Gt, Lt",
        ),
        (expression("zone", "In", &[]), "matchExpressions[0].values: is empty: name at least one value"),
        (
            expression("zone", "Exists", &["a"]),
            "matchExpressions[0].values: must be empty for Exists and DoesNotExist: leave it out",
        ),
        (expression("zone", "Gt", &["a"]), "matchExpressions[0].values[0]: `a` is not a whole number"),
        (expression("zone", "Gt", &[]), "matchExpressions[0].values: has 0 values: write exactly one"),
        (
            expression("zone", "Lt", &["99999999999999999999"]),
            "matchExpressions[0].values[0]: `99999999999999999999` is not a whole number",
        ),
        (
            expression("a b", "Exists", &[]),
            "matchExpressions[0].key: `a b` is not a label key: write a name, after an optional DNS prefix and '/'",
        ),
        (
            expression("zone", "In", &["a b"]),
            "matchExpressions[0].values[0]: `a b` is not a label value: at most 63 letters, digits, '-', '_' and '.'",
        ),
        (field("Exists", "n1"), "matchFields[0].operator: `Exists` is not an operator: use one of In, NotIn"),
        (
            json!([{"matchFields": [{"key": "spec.x", "operator": "In", "values": ["a"]}]}]),
            "matchFields[0].key: `spec.x` is not a field of nodes to select by: use metadata.name",
        ),
        (
            json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]}]),
            "matchFields[0].values: has 2 values: write exactly one",
        ),
    ] {
        let faults = node_selector(json!({"nodeSelectorTerms": selector})).unwrap_err();
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert_eq!(faults[0].to_string(), format!("nodeSelectorTerms[0].{expected}"));
    }
    let two = json!([{"matchExpressions": [{"key": "", "operator": "Nope"}]}, {}, {"matchFields": [{"key": "x", "operator": "In"}]}]);
    let faults = node_selector(json!({"nodeSelectorTerms": two})).unwrap_err();
    assert_eq!(faults.len(), 4, "{faults:?}");
}

#[test]
fn the_explanation_says_what_was_wanted_and_what_is() {
    let node = labels(&[("zone", "a")]);
    let either = terms(json!([
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b", "c"]}]},
        {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]},
    ]));
    assert_eq!(
        either.explain("n1", &node).unwrap_err().to_string(),
        "wanted zone in (b, c) (it is `a`), or gpu exists (it is not there)"
    );
    assert_eq!(
        terms(json!([{}])).explain("n1", &node).unwrap_err().to_string(),
        "the selector has only empty terms, and those mean no node"
    );
    assert_eq!(
        terms(field("NotIn", "n1")).explain("n1", &node).unwrap_err().to_string(),
        "wanted metadata.name not in (n1) (it is `n1`)"
    );
}

#[test]
fn a_label_selector_asks_for_everything_at_once() {
    let parse = |value: Value| LabelSelector::parse(Some(&serde_json::from_value(value).unwrap()));
    let web = labels(&[("app", "web"), ("tier", "front")]);
    assert!(!LabelSelector::parse(None).unwrap().matches(&web));
    assert!(parse(json!({})).unwrap().matches(&web));
    assert!(parse(json!({"matchLabels": {"app": "web"}})).unwrap().matches(&web));
    assert!(!parse(json!({"matchLabels": {"app": "db"}})).unwrap().matches(&web));
    let both = json!({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["front"]}]});
    assert!(!parse(both).unwrap().matches(&web));
    let faults =
        parse(json!({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]})).unwrap_err();
    assert_eq!(
        faults[0].to_string(),
        "matchExpressions[0].operator: `Gt` is not an operator: use one of In, NotIn, Exists, DoesNotExist"
    );
}
