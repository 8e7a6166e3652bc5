//! One log line as one JSON object.
//!
//! `{"time":…,"level":"info","target":…,"message":…,` then the fields of the spans from the outermost to the
//! innermost, then those of the event, all on one level: a query for `binding="w1"` finds every line below
//! the span that said so. The inner of two equal names wins.

use std::any::Any;
use std::backtrace::Backtrace;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::panic::PanicHookInfo;

use jiff::Timestamp;
use serde::ser::{SerializeMap, Serializer as _};
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

use super::TimeEncoding;

/// What every line has. A field of the same name is kept with an underscore behind it.
const OURS: [&str; 5] = ["time", "level", "target", "message", "stacktrace"];

pub(super) struct JsonLine {
    pub(super) time: TimeEncoding,
    pub(super) stack: Option<Level>,
}

impl<S> FormatEvent<S, JsonFields> for JsonLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        for span in context.event_scope().into_iter().flat_map(tracing_subscriber::registry::Scope::from_root)
        {
            let extensions = span.extensions();
            if let Some(of_span) = extensions.get::<FormattedFields<JsonFields>>()
                && let Ok(Value::Object(of_span)) = serde_json::from_str(&of_span.fields)
            {
                for (name, value) in of_span {
                    fields.put(&name, value);
                }
            }
        }
        event.record(&mut fields);

        let metadata = event.metadata();
        let mut line = Vec::with_capacity(256);
        let mut json = serde_json::Serializer::new(&mut line);
        let mut write = || -> Result<(), serde_json::Error> {
            let mut map = json.serialize_map(None)?;
            map.serialize_entry("time", &self.time.json(Timestamp::now()))?;
            map.serialize_entry("level", level(*metadata.level()))?;
            map.serialize_entry("target", metadata.target())?;
            map.serialize_entry("message", fields.message.as_deref().unwrap_or_default())?;
            for (name, value) in &fields.others {
                map.serialize_entry(name, value)?;
            }
            if self.stack.is_some_and(|from| *metadata.level() <= from) {
                map.serialize_entry("stacktrace", &Backtrace::force_capture().to_string())?;
            }
            map.end()
        };
        write().map_err(|_| fmt::Error)?;
        writer.write_str(std::str::from_utf8(&line).map_err(|_| fmt::Error)?)?;
        writer.write_char('\n')
    }
}

/// A line for people, with the stack of its caller where that is asked for.
pub(super) struct WithStack<F> {
    pub(super) format: F,
    pub(super) stack: Option<Level>,
}

impl<S, N, F> FormatEvent<S, N> for WithStack<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        self.format.format_event(context, writer.by_ref(), event)?;
        if self.stack.is_some_and(|from| *event.metadata().level() <= from) {
            write!(writer, "{}", Backtrace::force_capture())?;
        }
        Ok(())
    }
}

/// A panic is a line like any other: what collects logs reads JSON.
pub(super) fn log_panic(panic: &PanicHookInfo<'_>) {
    let said = panic_message(panic.payload());
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let stack = Backtrace::force_capture().to_string();
    tracing::error!(place, stack, "panicked: {said}");
}

/// What `panic!` was given.
pub fn panic_message(payload: &(dyn Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".to_owned())
}

/// Lower case, as zap and everyone who parses its lines has it.
fn level(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

#[derive(Default)]
struct Fields {
    message: Option<String>,
    others: BTreeMap<String, Value>,
}

impl Fields {
    fn put(&mut self, name: &str, value: Value) {
        let name = name.strip_prefix("r#").unwrap_or(name);
        let name = if OURS.contains(&name) { format!("{name}_") } else { name.to_owned() };
        self.others.insert(name, value);
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field.name(), value.into());
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), value.into());
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field.name(), value.into());
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), value.into());
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message = Some(value.to_owned());
        } else {
            self.put(field.name(), value.into());
        }
    }
    /// An error is told with its causes, which is where the reason is.
    fn record_error(&mut self, field: &Field, error: &(dyn std::error::Error + 'static)) {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let _ = write!(text, ": {error}");
            cause = error.source();
        }
        self.put(field.name(), text.into());
    }
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

impl TimeEncoding {
    // Floats are what zap writes there.
    #[allow(clippy::cast_precision_loss)]
    fn json(self, time: Timestamp) -> Value {
        match self {
            Self::Epoch => time.as_duration().as_secs_f64().into(),
            Self::Millis => time.as_duration().as_millis_f64().into(),
            Self::Nano => i64::try_from(time.as_nanosecond()).unwrap_or(i64::MAX).into(),
            Self::Iso8601 => format!("{time:.3}").into(),
            Self::Rfc3339 => format!("{time:.0}").into(),
            Self::Rfc3339nano => time.to_string().into(),
        }
    }
}

impl FormatTime for TimeEncoding {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        match self.json(Timestamp::now()) {
            Value::String(text) => writer.write_str(&text),
            number => write!(writer, "{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_look_as_zap_writes_them() {
        let time: Timestamp = "2026-03-01T08:00:00.25Z".parse().unwrap();
        for (encoding, expected) in [
            (TimeEncoding::Epoch, "1772352000.25"),
            (TimeEncoding::Millis, "1772352000250.0"),
            (TimeEncoding::Nano, "1772352000250000000"),
            (TimeEncoding::Iso8601, r#""2026-03-01T08:00:00.250Z""#),
            (TimeEncoding::Rfc3339, r#""2026-03-01T08:00:00Z""#),
            (TimeEncoding::Rfc3339nano, r#""2026-03-01T08:00:00.25Z""#),
        ] {
            assert_eq!(encoding.json(time).to_string(), expected);
        }
    }
}
