//! Which nodes a selector means, as the scheduler of Kubernetes reads it.
//!
//! Terms are alternatives, the requirements of a term hold together, a term without requirements means no
//! node. One rule is ours: no selector, or one without terms, means every node.
//!
//! Deliberately absent: nodes. A node is a name and labels here.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;

use crate::naming::{is_label_key, label_value};

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// The one field that nodes can be selected by.
const NAME_FIELD: &str = "metadata.name";

/// What is wrong with a selector, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {fault}")]
pub struct SelectorError {
    /// The field, from the selector down: `nodeSelectorTerms[0].matchExpressions[1].values`.
    pub path: String,
    /// What is wrong.
    pub fault: SelectorFault,
}

/// What can be wrong with a requirement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorFault {
    /// No such operator.
    #[error("`{given}` is not an operator: use one of {known}")]
    Operator {
        /// What was written.
        given: String,
        /// What may be written.
        known: &'static str,
    },
    /// The key could not be that of a label.
    #[error("`{0}` is not a label key: write a name, after an optional DNS prefix and '/'")]
    Key(String),
    /// Nodes have no such field.
    #[error("`{0}` is not a field of nodes to select by: use {NAME_FIELD}")]
    Field(String),
    /// `In` or `NotIn` without values.
    #[error("is empty: name at least one value")]
    NoValues,
    /// `Exists` or `DoesNotExist` with values.
    #[error("must be empty for Exists and DoesNotExist: leave it out")]
    Values,
    /// Not exactly one value where there must be one.
    #[error("has {0} values: write exactly one")]
    NotOneValue(usize),
    /// `Gt` or `Lt` of what is no number.
    #[error("`{0}` is not a whole number")]
    NotANumber(String),
    /// A value that no label can have.
    #[error("`{0}` is not a label value: at most 63 letters, digits, '-', '_' and '.'")]
    Value(String),
}

/// One condition on a label or on the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    subject: Subject,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    Label(String),
    Name,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    Above(i64),
    Below(i64),
}

impl Requirement {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        let is_among = |values: &[String]| value.is_some_and(|value| values.iter().any(|one| one == value));
        match &self.test {
            Test::In(values) => is_among(values),
            Test::NotIn(values) => !is_among(values),
            Test::Exists => value.is_some(),
            Test::DoesNotExist => value.is_none(),
            Test::Above(limit) => number().is_some_and(|number| number > *limit),
            Test::Below(limit) => number().is_some_and(|number| number < *limit),
        }
    }

    fn check(&self, name: &str, labels: &Labels) -> Result<(), Failed> {
        let found = match &self.subject {
            Subject::Label(key) => labels.get(key).map(String::as_str),
            Subject::Name => Some(name),
        };
        if self.holds(found) {
            Ok(())
        } else {
            Err(Failed { requirement: self.clone(), found: found.map(str::to_owned) })
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subject = match &self.subject {
            Subject::Label(key) => key,
            Subject::Name => NAME_FIELD,
        };
        match &self.test {
            Test::In(values) => write!(f, "{subject} in ({})", values.join(", ")),
            Test::NotIn(values) => write!(f, "{subject} not in ({})", values.join(", ")),
            Test::Exists => write!(f, "{subject} exists"),
            Test::DoesNotExist => write!(f, "{subject} does not exist"),
            Test::Above(limit) => write!(f, "{subject} > {limit}"),
            Test::Below(limit) => write!(f, "{subject} < {limit}"),
        }
    }
}

/// A requirement that does not hold, and what was found instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The requirement.
    pub requirement: Requirement,
    /// The value of the label or field; `None` where there is none.
    pub found: Option<String>,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.found {
            Some(value) => write!(f, "{} (it is `{value}`)", self.requirement),
            None => write!(f, "{} (it is not there)", self.requirement),
        }
    }
}

/// Why a selector does not mean a node: of each term, the first requirement that fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// One for each term that has requirements.
    pub terms: Vec<Failed>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.terms.is_empty() {
            return f.write_str("the selector has only empty terms, and those mean no node");
        }
        f.write_str("wanted ")?;
        for (index, failed) in self.terms.iter().enumerate() {
            write!(f, "{}{failed}", if index == 0 { "" } else { ", or " })?;
        }
        Ok(())
    }
}

/// Which nodes: any of these terms, or all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSelector {
    /// `None`: every node.
    terms: Option<Vec<Vec<Requirement>>>,
}

impl NodeSelector {
    /// The one that means no node.
    pub const fn nothing() -> Self {
        Self { terms: Some(Vec::new()) }
    }

    /// Reads a selector; every fault is named.
    pub fn parse(selector: Option<&core::NodeSelector>) -> Result<Self, Vec<SelectorError>> {
        let Some(selector) = selector.filter(|selector| !selector.node_selector_terms.is_empty()) else {
            return Ok(Self::default());
        };
        let mut faults = Vec::new();
        let mut terms = Vec::new();
        for (index, term) in selector.node_selector_terms.iter().enumerate() {
            let mut requirements = Vec::new();
            let mut read =
                |field: &str, written: &Option<Vec<core::NodeSelectorRequirement>>, fields: bool| {
                    for (place, one) in written.iter().flatten().enumerate() {
                        let path = format!("nodeSelectorTerms[{index}].{field}[{place}]");
                        let values = one.values.as_deref().unwrap_or_default();
                        let parsed = if fields {
                            on_field(&path, &one.key, &one.operator, values)
                        } else {
                            on_label(&path, &one.key, &one.operator, values, NODE_OPERATORS)
                        };
                        match parsed {
                            Ok(requirement) => requirements.push(requirement),
                            Err(mut more) => faults.append(&mut more),
                        }
                    }
                };
            read("matchExpressions", &term.match_expressions, false);
            read("matchFields", &term.match_fields, true);
            if !requirements.is_empty() {
                terms.push(requirements);
            }
        }
        if faults.is_empty() { Ok(Self { terms: Some(terms) }) } else { Err(faults) }
    }

    /// Whether the node is meant.
    pub fn matches(&self, name: &str, labels: &Labels) -> bool {
        let holds = |one: &Requirement| one.check(name, labels).is_ok();
        self.terms.as_ref().is_none_or(|terms| terms.iter().any(|term| term.iter().all(holds)))
    }

    /// The same, with the reason where it is not.
    pub fn explain(&self, name: &str, labels: &Labels) -> Result<(), Mismatch> {
        let Some(terms) = &self.terms else { return Ok(()) };
        let mut failed = Vec::with_capacity(terms.len());
        for term in terms {
            match term.iter().try_for_each(|one| one.check(name, labels)) {
                Ok(()) => return Ok(()),
                Err(why) => failed.push(why),
            }
        }
        Err(Mismatch { terms: failed })
    }
}

/// Which objects, by their labels: everything that is asked for holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelSelector {
    /// `None`: no object.
    requirements: Option<Vec<Requirement>>,
}

impl LabelSelector {
    /// Reads a selector. No selector means nothing, an empty one everything.
    pub fn parse(selector: Option<&meta::LabelSelector>) -> Result<Self, Vec<SelectorError>> {
        let Some(selector) = selector else { return Ok(Self { requirements: None }) };
        let labels = selector.match_labels.iter().flatten().map(|(key, value)| {
            on_label(&format!("matchLabels[{key}]"), key, "In", std::slice::from_ref(value), LABEL_OPERATORS)
        });
        let expressions = selector.match_expressions.iter().flatten().enumerate().map(|(index, one)| {
            let values = one.values.as_deref().unwrap_or_default();
            on_label(&format!("matchExpressions[{index}]"), &one.key, &one.operator, values, LABEL_OPERATORS)
        });
        let (mut requirements, mut faults) = (Vec::new(), Vec::new());
        for parsed in labels.chain(expressions) {
            match parsed {
                Ok(requirement) => requirements.push(requirement),
                Err(mut more) => faults.append(&mut more),
            }
        }
        if faults.is_empty() { Ok(Self { requirements: Some(requirements) }) } else { Err(faults) }
    }

    /// Whether an object with these labels is meant.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.requirements.as_ref().is_some_and(|all| all.iter().all(|one| one.check("", labels).is_ok()))
    }
}

const NODE_OPERATORS: &str = "In, NotIn, Exists, DoesNotExist, Gt, Lt";
const LABEL_OPERATORS: &str = "In, NotIn, Exists, DoesNotExist";
const FIELD_OPERATORS: &str = "In, NotIn";

/// Collects the faults of one requirement, each with its path.
struct Faults<'a> {
    path: &'a str,
    found: Vec<SelectorError>,
}

impl Faults<'_> {
    fn add(&mut self, field: &str, fault: SelectorFault) {
        self.found.push(SelectorError { path: format!("{}.{field}", self.path), fault });
    }

    fn or(self, requirement: Option<Requirement>) -> Result<Requirement, Vec<SelectorError>> {
        match requirement {
            Some(requirement) if self.found.is_empty() => Ok(requirement),
            _ => Err(self.found),
        }
    }
}

fn on_label(
    path: &str,
    key: &str,
    operator: &str,
    values: &[String],
    known: &'static str,
) -> Result<Requirement, Vec<SelectorError>> {
    let mut faults = Faults { path, found: Vec::new() };
    if !is_label_key(key) {
        faults.add("key", SelectorFault::Key(key.to_owned()));
    }
    for (index, value) in values.iter().enumerate() {
        if label_value(value).is_none() {
            faults.add(&format!("values[{index}]"), SelectorFault::Value(value.clone()));
        }
    }
    let test = match operator {
        "In" | "NotIn" => {
            if values.is_empty() {
                faults.add("values", SelectorFault::NoValues);
            }
            Some(if operator == "In" { Test::In(values.to_vec()) } else { Test::NotIn(values.to_vec()) })
        }
        "Exists" | "DoesNotExist" => {
            if !values.is_empty() {
                faults.add("values", SelectorFault::Values);
            }
            Some(if operator == "Exists" { Test::Exists } else { Test::DoesNotExist })
        }
        "Gt" | "Lt" if known == NODE_OPERATORS => only_number(values, &mut faults)
            .map(|limit| if operator == "Gt" { Test::Above(limit) } else { Test::Below(limit) }),
        _ => {
            faults.add("operator", SelectorFault::Operator { given: operator.to_owned(), known });
            None
        }
    };
    faults.or(test.map(|test| Requirement { subject: Subject::Label(key.to_owned()), test }))
}

fn only_number(values: &[String], faults: &mut Faults<'_>) -> Option<i64> {
    let [value] = values else {
        faults.add("values", SelectorFault::NotOneValue(values.len()));
        return None;
    };
    value.parse().inspect_err(|_| faults.add("values[0]", SelectorFault::NotANumber(value.clone()))).ok()
}

fn on_field(
    path: &str,
    key: &str,
    operator: &str,
    values: &[String],
) -> Result<Requirement, Vec<SelectorError>> {
    let mut faults = Faults { path, found: Vec::new() };
    if key != NAME_FIELD {
        faults.add("key", SelectorFault::Field(key.to_owned()));
    }
    if values.len() != 1 {
        faults.add("values", SelectorFault::NotOneValue(values.len()));
    }
    let test = match operator {
        "In" => Some(Test::In(values.to_vec())),
        "NotIn" => Some(Test::NotIn(values.to_vec())),
        _ => {
            let given = operator.to_owned();
            faults.add("operator", SelectorFault::Operator { given, known: FIELD_OPERATORS });
            None
        }
    };
    faults.or(test.map(|test| Requirement { subject: Subject::Name, test }))
}

#[cfg(test)]
mod tests;
