//! Logs and traces: one JSON line per event on standard error, and spans to an OpenTelemetry collector if
//! the environment names one.
//!
//! The standard variables count: `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`,
//! `OTEL_TRACES_EXPORTER=none`, `OTEL_SDK_DISABLED`, `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`. Those of
//! the exporter itself (`OTEL_EXPORTER_OTLP_HEADERS`, `…_TIMEOUT`, `OTEL_BSP_*`, `OTEL_TRACES_SAMPLER`) are read by the
//! OpenTelemetry SDK. The transport is http/protobuf over the hyper and rustls that the Kubernetes client
//! brings anyway. A collector that is away costs spans, and one line when it goes and one when it is back.
//!
//! Deliberately absent: metrics and logs over OTLP; `metrics` is scraped, and logs are collected from the
//! container.

mod args;
mod filter;
mod line;
mod otlp;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Dispatch;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::JsonFields;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{Layer, Registry, reload};

pub use args::{LogArgs, LogFormat, StackLevel, TimeEncoding, ZapEncoder, ZapLevel};
pub use line::panic_message;

pub use filter::{AUDIT, FilterError, LogControl};

/// The last spans are sent within this time, or lost: short against the 30 s that Kubernetes grants a
/// pod to end.
const FLUSH_WITHIN: Duration = Duration::from_secs(3);

/// Why logging or tracing could not start.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// See [`FilterError`].
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// Not a URL, or not one we speak.
    #[error("{variable}={value:?} is no address of a collector: use http://host:4318 or https://host:4318")]
    Endpoint {
        /// The environment variable.
        variable: &'static str,
        /// What it says.
        value: String,
    },
    /// For `https://` collectors.
    #[error("no root certificates for the collector's https: install ca-certificates, or use http://")]
    Roots(#[source] std::io::Error),
    /// The exporter refuses its settings.
    #[error("the trace exporter does not accept its settings: check the OTEL_EXPORTER_OTLP_* variables")]
    Exporter(#[source] opentelemetry_otlp::ExporterBuildError),
    /// Spans are sent by tasks.
    #[error("traces need a tokio runtime: start telemetry inside of it")]
    NoRuntime,
    /// Only one can be.
    #[error("a logger is installed already: start telemetry once, first of all")]
    AlreadyInstalled,
}

/// Environment variables, as values: tests give their own.
#[derive(Clone, Debug, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// Those of this process. What is not UTF-8 is left out.
    pub fn of_process() -> Self {
        Self(
            std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .collect(),
        )
    }

    /// The value of a variable; an empty one is as good as none.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        Self(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

/// Logging and tracing, ready to be installed.
pub struct Telemetry {
    /// What to log to, for who installs it for one thread only.
    pub dispatch: Dispatch,
    guard: TelemetryGuard,
}

impl Telemetry {
    /// Installs logging on standard error, of panics too, and traces, for the whole process. `component` names it to the
    /// collector where `OTEL_SERVICE_NAME` does not.
    pub fn init(
        component: &str,
        args: &LogArgs,
        environment: &Environment,
    ) -> Result<TelemetryGuard, TelemetryError> {
        let colours = std::io::stderr().is_terminal();
        let telemetry = Self::prepare(component, args, environment, std::io::stderr, colours)?;
        tracing::dispatcher::set_global_default(telemetry.dispatch)
            .map_err(|_| TelemetryError::AlreadyInstalled)?;
        std::panic::set_hook(Box::new(line::log_panic));
        otlp::say_what_is_ignored(environment);
        Ok(telemetry.guard)
    }

    /// The same, to `writer` and not installed.
    pub fn prepare<W>(
        component: &str,
        args: &LogArgs,
        environment: &Environment,
        writer: W,
        colours: bool,
    ) -> Result<Self, TelemetryError>
    where
        W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
    {
        let plan = args.plan();
        let (filter, handle) = reload::Layer::new(filter::parse(&plan.filter)?);
        let log = LogControl::new(
            plan.filter,
            Box::new(move |filter| handle.reload(filter).map_err(|_| FilterError::Ended)),
        );
        let lines = tracing_subscriber::fmt::layer()
            // They would go to standard error by a macro that panics when it is closed.
            .log_internal_errors(false)
            .with_writer(writer);
        let lines = match plan.format {
            LogFormat::Json => lines
                .fmt_fields(JsonFields::new())
                .event_format(line::JsonLine { time: plan.time, stack: plan.stack })
                .boxed(),
            LogFormat::Pretty => lines
                .with_ansi(colours)
                .with_timer(plan.time)
                .map_event_format(|format| line::WithStack { format, stack: plan.stack })
                .boxed(),
        };
        let traces = otlp::provider(component, environment)?;
        // Spans of libraries say nothing about pods, and those of the exporter's own connection would never end.
        let ours =
            Targets::new().with_target("kubeocean", LevelFilter::INFO).with_target(AUDIT, LevelFilter::INFO);
        let spans = traces.as_ref().map(|provider| {
            tracing_opentelemetry::layer()
                .with_tracer(provider.tracer("kubeocean"))
                .with_threads(false)
                .with_location(false)
                .with_filter(ours)
        });
        let subscriber = Registry::default().with(lines.with_filter(filter)).with(spans);
        Ok(Self { dispatch: Dispatch::new(subscriber), guard: TelemetryGuard { log, traces } })
    }

    /// The log level, to be read and changed while `dispatch` lives.
    pub fn log(&self) -> LogControl {
        self.guard.log()
    }

    /// What ends it, and controls it meanwhile.
    pub fn guard(self) -> TelemetryGuard {
        self.guard
    }
}

/// Running telemetry.
#[derive(Debug)]
#[must_use = "the last spans are sent by shutdown()"]
pub struct TelemetryGuard {
    log: LogControl,
    traces: Option<SdkTracerProvider>,
}

impl TelemetryGuard {
    /// The log level, to be read and changed.
    pub fn log(&self) -> LogControl {
        self.log.clone()
    }

    /// Whether spans are exported.
    pub fn traces(&self) -> bool {
        self.traces.is_some()
    }

    /// Sends the last spans, or gives them up after 3 s. Logging goes on.
    pub async fn shutdown(self) {
        let Some(provider) = self.traces else { return };
        // It waits for the exporter's thread, whose requests run on this runtime.
        let flushed = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(FLUSH_WITHIN)).await;
        if let Ok(Err(error)) = flushed {
            tracing::warn!(%error, "the last traces were not delivered");
        }
    }
}

#[cfg(test)]
mod tests;
