//! Spans to a collector: where it is, who we are, and the HTTP client that carries them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::TokioExecutor;
use opentelemetry::KeyValue;
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::runtime::Handle;

use super::{Environment, TelemetryError};
use crate::credentials::one_line;

const GENERAL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";

/// The specification's default for one export.
const SEND_WITHIN: Duration = Duration::from_secs(10);

/// An answer is a short message about rejected spans; what is longer is not from a collector.
const LONGEST_ANSWER: usize = 64 << 10;

/// Nothing if the environment names no collector, or says that it wants no traces.
pub(super) fn provider(
    component: &str,
    environment: &Environment,
) -> Result<Option<SdkTracerProvider>, TelemetryError> {
    let Some(endpoint) = endpoint(environment)? else { return Ok(None) };
    let runtime = Handle::try_current().map_err(|_| TelemetryError::NoRuntime)?;
    let builder = SpanExporter::builder()
        .with_http()
        .with_endpoint(endpoint.to_string())
        .with_protocol(Protocol::HttpBinary);
    let builder = if endpoint.scheme_str() == Some("https") {
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(rustls::crypto::aws_lc_rs::default_provider())
            .map_err(TelemetryError::Roots)?
            .https_only()
            .enable_http1()
            .build();
        builder.with_http_client(Carrier::new(connector, runtime, &endpoint))
    } else {
        builder.with_http_client(Carrier::new(HttpConnector::new(), runtime, &endpoint))
    };
    let exporter = builder.build().map_err(TelemetryError::Exporter)?;
    let provider = SdkTracerProvider::builder()
        .with_resource(resource(component, environment))
        .with_batch_exporter(exporter)
        .build();
    Ok(Some(provider))
}

fn endpoint(environment: &Environment) -> Result<Option<Uri>, TelemetryError> {
    let off = environment.get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
        || environment.get("OTEL_TRACES_EXPORTER").is_some_and(|value| value.eq_ignore_ascii_case("none"));
    if off {
        return Ok(None);
    }
    // The one for traces is taken as it is, the general one is the root of all signals.
    let (variable, value, path) = match (environment.get(TRACES), environment.get(GENERAL)) {
        (Some(traces), _) => (TRACES, traces, ""),
        (None, Some(general)) => (GENERAL, general, "/v1/traces"),
        (None, None) => return Ok(None),
    };
    let wrong = || TelemetryError::Endpoint { variable, value: value.to_owned() };
    let uri: Uri = if path.is_empty() {
        value.parse()
    } else {
        format!("{}{path}", value.trim_end_matches('/')).parse()
    }
    .map_err(|_| wrong())?;
    match uri.scheme_str() {
        Some("http" | "https") if uri.host().is_some_and(|host| !host.is_empty()) => Ok(Some(uri)),
        _ => Err(wrong()),
    }
}

/// Who the spans are from.
fn resource(component: &str, environment: &Environment) -> Resource {
    let listed = environment.get("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
    let listed = listed
        .split(',')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| KeyValue::new(name.trim().to_owned(), value.trim().to_owned()));
    let mut resource = Resource::builder_empty()
        .with_service_name(format!("kubeocean-{component}"))
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attributes(listed);
    if let Some(name) = environment.get("OTEL_SERVICE_NAME") {
        resource = resource.with_service_name(name.to_owned());
    }
    resource.build()
}

/// Settings that we do not follow are told, once there is a log.
pub(super) fn say_what_is_ignored(environment: &Environment) {
    for variable in ["OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] {
        match environment.get(variable) {
            None | Some("http/protobuf") => {}
            Some(protocol) => {
                tracing::warn!(
                    variable,
                    protocol,
                    "only http/protobuf is spoken: name the collector's port for it"
                );
            }
        }
    }
    for variable in ["OTEL_EXPORTER_OTLP_CERTIFICATE", "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE"] {
        if environment.get(variable).is_some() {
            tracing::warn!(variable, "is not supported: the collector's CA must be among the system's roots");
        }
    }
}

/// Sends requests on our runtime, whichever thread the exporter calls from.
struct Carrier<C> {
    client: Client<C, Full<Bytes>>,
    runtime: Handle,
    collector: String,
    away: Arc<AtomicBool>,
}

impl<C: Connect + Clone + Send + Sync + 'static> Carrier<C> {
    fn new(connector: C, runtime: Handle, endpoint: &Uri) -> Self {
        Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            runtime,
            collector: endpoint.to_string(),
            away: Arc::default(),
        }
    }

    /// A collector that is away is told once, not with every batch.
    fn tell(&self, outcome: &Result<Response<Bytes>, HttpError>) {
        let reason = match outcome {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("it answers {}", response.status())),
            Err(error) => Some(one_line(&**error)),
        };
        let was_away = self.away.swap(reason.is_some(), Ordering::Relaxed);
        match reason {
            Some(reason) if !was_away => {
                tracing::warn!(
                    collector = self.collector,
                    reason,
                    "traces are not delivered; they are lost until the collector is back"
                );
            }
            None if was_away => tracing::info!(collector = self.collector, "traces are delivered again"),
            _ => {}
        }
    }
}

impl<C: Connect + Clone + Send + Sync + 'static> HttpClient for Carrier<C> {
    // The trait is written with `async_trait`; this is what it expands to.
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        let client = self.client.clone();
        let sent = self.runtime.spawn(async move {
            let exchange = async {
                let (head, body) = client.request(request.map(Full::new)).await?.into_parts();
                let body = Limited::new(body, LONGEST_ANSWER).collect().await?.to_bytes();
                Ok::<_, HttpError>(Response::from_parts(head, body))
            };
            tokio::time::timeout(SEND_WITHIN, exchange).await?
        });
        Box::pin(async move {
            let outcome = sent.await.unwrap_or_else(|error| Err(error.into()));
            self.tell(&outcome);
            outcome
        })
    }
}

impl<C> fmt::Debug for Carrier<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Carrier").field("collector", &self.collector).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::LogArgs;
    use super::super::tests::logged;
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Environment {
        variables.iter().copied().collect()
    }

    #[test]
    fn without_a_collector_nothing_is_exported() {
        assert!(endpoint(&of(&[])).unwrap().is_none());
        assert!(endpoint(&of(&[(GENERAL, "")])).unwrap().is_none());
        assert!(
            endpoint(&of(&[(GENERAL, "http://c:4318"), ("OTEL_SDK_DISABLED", "true")])).unwrap().is_none()
        );
        assert!(
            endpoint(&of(&[(GENERAL, "http://c:4318"), ("OTEL_TRACES_EXPORTER", "none")])).unwrap().is_none()
        );
    }

    #[test]
    fn the_general_address_is_a_root_and_that_of_traces_is_complete() {
        let uri = |variables: &[(&str, &str)]| endpoint(&of(variables)).unwrap().unwrap().to_string();
        assert_eq!(uri(&[(GENERAL, "http://c:4318")]), "http://c:4318/v1/traces");
        assert_eq!(uri(&[(GENERAL, "https://c/otlp/")]), "https://c/otlp/v1/traces");
        assert_eq!(uri(&[(GENERAL, "http://c:4318"), (TRACES, "http://t:4318/in")]), "http://t:4318/in");
    }

    #[test]
    fn a_wrong_address_is_told_with_its_variable() {
        for wrong in ["collector:4318", "grpc://c:4317", "http://", "not a url"] {
            let error = endpoint(&of(&[(GENERAL, wrong)])).unwrap_err().to_string();
            assert!(error.starts_with("OTEL_EXPORTER_OTLP_ENDPOINT="), "{error}");
        }
    }

    #[tokio::test]
    async fn https_needs_no_second_tls_stack() {
        let provider = provider("test", &of(&[(GENERAL, "https://127.0.0.1:1")]));
        // A machine without certificates is told so; both are fine here.
        assert!(matches!(provider, Ok(Some(_)) | Err(TelemetryError::Roots(_))));
    }

    #[tokio::test]
    async fn a_collector_that_is_away_is_told_once_and_so_is_its_return() {
        let carrier =
            Carrier::new(HttpConnector::new(), Handle::current(), &Uri::from_static("http://c:4318"));
        let lines = logged(&LogArgs::default(), |_| {
            for _ in 0..3 {
                carrier.tell(&Err("connection refused".into()));
            }
            for _ in 0..3 {
                carrier.tell(&Ok(Response::new(Bytes::new())));
            }
        });
        assert_eq!(
            lines.messages(),
            [
                "traces are not delivered; they are lost until the collector is back",
                "traces are delivered again"
            ]
        );
    }
}
