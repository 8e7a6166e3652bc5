//! Validation rules of custom resources, with the functions of Kubernetes that they may use.
//!
//! Deliberately absent: the cost of a rule. Whether it is allowed at all is for a real server to say.

#![allow(clippy::needless_pass_by_value, reason = "cel calls functions with values")]

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

use cel::extractors::This;
use cel::objects::{Key, Map};
use cel::{Context, Env, ExecutionError, Program, Value as CelValue};
use kubeocean_model::quantity::Quantity;
use regex::Regex;
use serde_json::Value;

/// A compiled rule.
#[derive(Debug)]
pub(crate) struct Rule {
    program: Program,
    pub(crate) message: String,
    /// It compares with what was, and says nothing about what is new.
    pub(crate) is_transition: bool,
}

static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

thread_local! {
    static PATTERNS: RefCell<BTreeMap<String, Option<Regex>>> = const { RefCell::new(BTreeMap::new()) };
}

impl Rule {
    pub(crate) fn compile(rule: &Value) -> Option<Self> {
        let text = rule["rule"].as_str()?;
        let program = ENVIRONMENT.compile(text).ok()?;
        let message = rule["message"].as_str().map_or_else(|| format!("failed rule: {text}"), str::to_owned);
        let is_transition = program.references().has_variable("oldSelf");
        Some(Self { program, message, is_transition })
    }

    /// Whether a value keeps the rule; `Err` if that cannot be told.
    pub(crate) fn holds(
        &self,
        context: &Context<'_, '_>,
        value: &Value,
        old: Option<&Value>,
    ) -> Result<bool, String> {
        let mut scope = context.new_inner_scope();
        scope.add_variable_from_value("self", to_cel(value));
        if let Some(old) = old {
            scope.add_variable_from_value("oldSelf", to_cel(old));
        }
        match self.program.execute(&scope) {
            Ok(CelValue::Bool(holds)) => Ok(holds),
            Ok(_) => Err("rule is not a boolean".into()),
            Err(ExecutionError::FunctionError { message, .. }) => Err(message),
            Err(other) => Err(other.to_string()),
        }
    }
}

/// What rules are evaluated in.
pub(crate) fn context() -> Context<'static, 'static> {
    let mut context = Context::with_env(ENVIRONMENT.clone());
    // A name that is taken already has the standard meaning.
    let _ = context.add_function("matches", matches);
    let _ = context.add_function("lowerAscii", |This(text): This<Arc<String>>| text.to_ascii_lowercase());
    let _ = context.add_function("upperAscii", |This(text): This<Arc<String>>| text.to_ascii_uppercase());
    let _ = context.add_function("isQuantity", |text: Arc<String>| quantity(&text).is_some());
    let _ = context.add_function("quantity", |text: Arc<String>| text);
    let _ = context.add_function("compareTo", compare_to);
    let _ = context.add_function("timestamp", |text: Arc<String>| text);
    let _ = context.add_function("getFullYear", year);
    context
}

fn matches(This(text): This<Arc<String>>, pattern: Arc<String>) -> Result<bool, ExecutionError> {
    is_match(&pattern, &text).ok_or_else(|| ExecutionError::function_error("matches", "invalid pattern"))
}

/// Whether a text matches; `None` if the pattern is none.
pub(crate) fn is_match(pattern: &str, text: &str) -> Option<bool> {
    PATTERNS.with_borrow_mut(|patterns| {
        if !patterns.contains_key(pattern) {
            patterns.insert(pattern.to_owned(), Regex::new(pattern).ok());
        }
        patterns.get(pattern).and_then(Option::as_ref).map(|pattern| pattern.is_match(text))
    })
}

/// Unlike in documents, space around it makes it none.
fn quantity(text: &str) -> Option<Quantity> {
    text.parse().ok().filter(|_| text.trim() == text)
}

fn compare_to(This(one): This<Arc<String>>, other: Arc<String>) -> Result<i64, ExecutionError> {
    let parse = |text: &str| {
        quantity(text)
            .ok_or_else(|| ExecutionError::function_error("compareTo", format!("quantity: {text:?}")))
    };
    Ok(parse(&one)?.cmp(&parse(&other)?) as i64)
}

fn year(This(at): This<Arc<String>>, zone: Arc<String>) -> Result<i64, ExecutionError> {
    let unknown = || ExecutionError::function_error("getFullYear", format!("unknown time zone {zone}"));
    let at: jiff::Timestamp = at.parse().map_err(|_| unknown())?;
    // jiff finds zones in any case; Go's database is made of files.
    let zone = jiff::tz::TimeZone::get(&zone)
        .ok()
        .filter(|found| found.iana_name() == Some(zone.as_str()))
        .ok_or_else(unknown)?;
    Ok(at.to_zoned(zone).year().into())
}

fn to_cel(value: &Value) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(yes) => CelValue::Bool(*yes),
        Value::Number(number) => match number.as_i64() {
            Some(number) => CelValue::Int(number),
            None => CelValue::Float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => CelValue::String(Arc::new(text.clone())),
        Value::Array(items) => CelValue::List(Arc::new(items.iter().map(to_cel).collect())),
        Value::Object(map) => {
            let map: HashMap<Key, CelValue> =
                map.iter().map(|(key, value)| (Key::from(key.as_str()), to_cel(value))).collect();
            CelValue::Map(Map { map: Arc::new(map) })
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Rule, context};

    fn holds(rule: &str, value: Value, old: Option<Value>) -> Result<bool, String> {
        Rule::compile(&json!({"rule": rule})).unwrap().holds(&context(), &value, old.as_ref())
    }

    #[test]
    fn the_functions_of_our_rules_work() {
        assert_eq!(holds("self.matches('^a+$')", json!("aa"), None), Ok(true));
        assert_eq!(holds("self.matches('^a+$')", json!("ab"), None), Ok(false));
        assert_eq!(holds("self.lowerAscii() in ['mon', 'tue']", json!("MON"), None), Ok(true));
        let quantity = "type(self) == string ? isQuantity(self) && quantity(self).compareTo(quantity('0')) >= 0 : self >= 0";
        assert_eq!(holds(quantity, json!("16Gi"), None), Ok(true));
        assert_eq!(holds(quantity, json!("-1m"), None), Ok(false));
        assert_eq!(holds(quantity, json!("x"), None), Ok(false));
        assert_eq!(holds(quantity, json!(4), None), Ok(true));
        assert_eq!(holds(quantity, json!(-1), None), Ok(false));
        let zone = "timestamp('2026-01-01T00:00:00Z').getFullYear(self) > 0";
        assert_eq!(holds(zone, json!("Europe/Berlin"), None), Ok(true));
        assert_eq!(
            holds(zone, json!("Europe/Nowhere"), None),
            Err("unknown time zone Europe/Nowhere".into())
        );
        assert_eq!(holds("self == oldSelf", json!("a"), Some(json!("b"))), Ok(false));
        assert_eq!(
            holds("self.metadata.name.size() <= 63", json!({"metadata": {"name": "a"}}), None),
            Ok(true)
        );
        assert_eq!(holds("!has(self.values) || self.values.size() == 0", json!({}), None), Ok(true));
    }

    #[test]
    fn a_transition_rule_is_told_apart() {
        assert!(Rule::compile(&json!({"rule": "self == oldSelf"})).unwrap().is_transition);
        assert!(!Rule::compile(&json!({"rule": "self == 'old'"})).unwrap().is_transition);
    }
}
