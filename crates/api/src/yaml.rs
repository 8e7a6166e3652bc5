//! Objects as YAML, the same bytes every time.
//!
//! Deliberately absent: what is in them, and reading.

use std::fmt;

use serde_json::Value;

/// One object as a YAML document, without a marker before or after it.
pub fn document(value: &Value) -> Result<String, RenderError> {
    let mut value = value.clone();
    whole_numbers(&mut value);
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(&value, options).map_err(RenderError::yaml)
}

/// Several objects, as `kubectl apply -f -` takes them: a header of comments, then documents with `---` between.
pub fn documents(header: &str, objects: &[Value]) -> Result<String, RenderError> {
    let documents = objects.iter().map(document).collect::<Result<Vec<_>, _>>()?;
    Ok(format!("{header}{}", documents.join("---\n")))
}

/// Bounds are floating-point numbers in the type; `minimum: 0` reads better than `minimum: 0.0`.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(whole) = number.as_f64().and_then(|float| format!("{float}").parse::<i64>().ok()) {
                *value = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// An object could not be written down. It is ours, so this is a mistake in this program.
#[derive(Debug)]
pub struct RenderError(Box<dyn std::error::Error + Send + Sync>);

impl RenderError {
    pub(crate) fn json(cause: serde_json::Error) -> Self {
        Self(Box::new(cause))
    }

    fn yaml(cause: serde_saphyr::ser::Error) -> Self {
        Self(Box::new(cause))
    }
}

impl fmt::Display for RenderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the object cannot be written as YAML")
    }
}

impl std::error::Error for RenderError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.0.as_ref())
    }
}
