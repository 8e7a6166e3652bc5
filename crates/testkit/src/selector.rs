//! Label and field selectors.
//!
//! Deliberately absent: which fields a kind offers; see [`crate::kinds`].

use serde_json::Value;

/// A parsed label selector.
#[derive(Debug, Clone, Default)]
pub(crate) struct Labels(Vec<Requirement>);

#[derive(Debug, Clone)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Debug, Clone)]
enum Operator {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Greater(i64),
    Less(i64),
}

impl Labels {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut requirements = Vec::new();
        for part in split(text) {
            let part = part.trim();
            if part.is_empty() {
                if text.trim().is_empty() {
                    continue;
                }
                return Err("unable to parse requirement: found '', expected: identifier after ','".into());
            }
            requirements.push(requirement(part)?);
        }
        Ok(Self(requirements))
    }

    /// From the `LabelSelector` of an object.
    pub(crate) fn of(selector: &Value) -> Self {
        let strings = |value: &Value| -> Vec<String> {
            value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let mut requirements = Vec::new();
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            let values = value.as_str().map(str::to_owned).into_iter().collect();
            requirements.push(Requirement { key: key.clone(), operator: Operator::In(values) });
        }
        for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
            let operator = match expression["operator"].as_str() {
                Some("In") => Operator::In(strings(&expression["values"])),
                Some("NotIn") => Operator::NotIn(strings(&expression["values"])),
                Some("DoesNotExist") => Operator::Absent,
                _ => Operator::Exists,
            };
            let key = expression["key"].as_str().unwrap_or_default().to_owned();
            requirements.push(Requirement { key, operator });
        }
        Self(requirements)
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.0.iter().all(|requirement| {
            let value = labels.get(&requirement.key).and_then(Value::as_str);
            let number = || value.and_then(|value| value.parse::<i64>().ok());
            match &requirement.operator {
                Operator::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
                Operator::NotIn(values) => value.is_none_or(|value| values.iter().all(|one| one != value)),
                Operator::Exists => value.is_some(),
                Operator::Absent => value.is_none(),
                Operator::Greater(bound) => number().is_some_and(|number| number > *bound),
                Operator::Less(bound) => number().is_some_and(|number| number < *bound),
            }
        })
    }
}

/// At commas that are not inside parentheses.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0);
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn requirement(part: &str) -> Result<Requirement, String> {
    let make = |key: &str, operator| Ok(Requirement { key: key.trim().to_owned(), operator });
    if let Some(key) = part.strip_prefix('!') {
        return make(key, Operator::Absent);
    }
    for (word, negative) in [(" notin ", true), (" notin(", true), (" in ", false), (" in(", false)] {
        if let Some((key, rest)) = part.split_once(word) {
            let inner = rest.trim().trim_start_matches('(').trim_end_matches(')');
            let values = inner.split(',').map(|value| value.trim().to_owned()).collect();
            return make(key, if negative { Operator::NotIn(values) } else { Operator::In(values) });
        }
    }
    if let Some((key, value)) = part.split_once("!=") {
        return make(key, Operator::NotIn(vec![value.trim().to_owned()]));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return make(key, Operator::In(vec![value.trim().to_owned()]));
    }
    for (sign, greater) in [('>', true), ('<', false)] {
        if let Some((key, value)) = part.split_once(sign) {
            let bound = value.trim().parse().map_err(|_| {
                format!("values[0][{}]: Invalid value: {:?}: for 'Gt', 'Lt' operators, the value must be an integer", key.trim(), value.trim())
            })?;
            return make(key, if greater { Operator::Greater(bound) } else { Operator::Less(bound) });
        }
    }
    if part.contains(char::is_whitespace) {
        let word = part.split_whitespace().nth(1).unwrap_or_default();
        return Err(format!(
            "unable to parse requirement: found '{word}', expected: in, notin, =, ==, !=, gt, lt"
        ));
    }
    make(part, Operator::Exists)
}

/// A parsed field selector: field, whether it has to be equal, value.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields(pub(crate) Vec<(String, bool, String)>);

impl Fields {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut terms = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (field, equal, value) = if let Some((field, value)) = part.split_once("!=") {
                (field, false, value)
            } else if let Some((field, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (field, true, value)
            } else {
                return Err(format!("invalid selector: '{text}'; can't understand '{part}'"));
            };
            terms.push((field.to_owned(), equal, value.to_owned()));
        }
        Ok(Self(terms))
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|(field, equal, wanted)| {
            let mut at = Some(object);
            for step in field.split('.') {
                at = at.and_then(|value| value.get(step));
            }
            let found = match at {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Bool(yes)) => yes.to_string(),
                Some(Value::Number(number)) => number.to_string(),
                _ if field == "spec.unschedulable" => "false".into(),
                _ => String::new(),
            };
            (found == *wanted) == *equal
        })
    }
}
