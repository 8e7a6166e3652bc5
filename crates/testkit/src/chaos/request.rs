//! What a request is, as far as a fault has to know.

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use kube::client::Body;
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use serde_json::json;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    Get,
    List,
    Watch,
    Create,
    Change,
    Delete,
    /// A question that is asked with POST.
    Review,
}

/// A request as faults see it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) want: Want,
    method: Method,
    path: String,
    query: String,
}

impl Asked {
    pub(crate) fn of(request: &Request<Body>) -> Self {
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default().to_owned();
        let method = request.method().clone();
        let mut asked = Self { want: Want::Get, method, path, query };
        asked.want = match asked.method.as_str() {
            "POST" if asked.path.ends_with("reviews") => Want::Review,
            // It says what would be, and changes nothing.
            "POST" if asked.parameter("dryRun").is_some() => Want::Review,
            "POST" => Want::Create,
            "PUT" | "PATCH" => Want::Change,
            "DELETE" => Want::Delete,
            _ if matches!(asked.parameter("watch"), Some("true" | "1")) => Want::Watch,
            _ if asked.names_a_collection() => Want::List,
            _ => Want::Get,
        };
        asked
    }

    pub(crate) fn is_write(&self) -> bool {
        matches!(self.want, Want::Create | Want::Change | Want::Delete)
    }

    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        let mut pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Whether it wants all objects first, as events.
    pub(crate) fn streams_a_list(&self) -> bool {
        self.parameter("sendInitialEvents") == Some("true")
    }

    /// The oldest version that will do, if an old answer will.
    pub(crate) fn may_be_as_old_as(&self) -> Option<u64> {
        let version = self.parameter("resourceVersion")?.parse().ok()?;
        let not_older = self.parameter("resourceVersionMatch") == Some("NotOlderThan");
        (version == 0 || not_older).then_some(version)
    }

    /// The same question, whatever version it asks for.
    pub(crate) fn question(&self) -> String {
        let rest: Vec<&str> =
            self.query.split('&').filter(|pair| !pair.starts_with("resourceVersion")).collect();
        format!("{}?{}", self.path, rest.join("&"))
    }

    fn names_a_collection(&self) -> bool {
        let mut parts: Vec<&str> = self.path.split('/').filter(|part| !part.is_empty()).collect();
        let root = if parts.first() == Some(&"api") { 2 } else { 3 };
        if parts.len() <= root {
            return false;
        }
        parts.drain(..root);
        if parts[0] == "namespaces" && parts.len() > 2 { parts.len() == 3 } else { parts.len() == 1 }
    }

    /// A refusal that this request may get, by its code.
    pub(crate) fn some_refusal(&self, rng: &mut ChaCha8Rng) -> u16 {
        let codes: &[u16] = match self.want {
            Want::Create | Want::Change => &[409, 422, 429, 500, 503, 504],
            Want::Delete => &[409, 429, 500, 503, 504],
            Want::Watch if self.streams_a_list() => &[429, 500, 503, 504],
            Want::List if self.parameter("continue").is_some() => &[410, 429, 500, 503],
            _ => &[429, 500, 503, 504],
        };
        codes[rng.random_range(0..codes.len())]
    }

    /// What the server would say with that code.
    pub(crate) fn refusal(&self, code: u16, retry_after: u64) -> Response<Bytes> {
        let reason = match code {
            409 if self.want == Want::Create && retry_after.is_multiple_of(2) => "AlreadyExists",
            409 => "Conflict",
            410 => "Expired",
            422 => "Invalid",
            429 => "TooManyRequests",
            500 => "InternalError",
            503 => "ServiceUnavailable",
            _ => "Timeout",
        };
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": format!("chaos says {reason}"), "reason": reason, "code": code,
        });
        if code == 429 {
            status["details"] = json!({"retryAfterSeconds": retry_after});
        }
        let mut response = Response::new(Bytes::from(status.to_string()));
        *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if code == 429 {
            response.headers_mut().insert(http::header::RETRY_AFTER, HeaderValue::from(retry_after));
        }
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(http::header::CONTENT_TYPE, json);
        response
    }
}

impl std::fmt::Display for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.method, self.path)?;
        if !self.query.is_empty() {
            write!(f, "?{}", self.query)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: &str, uri: &str) -> Asked {
        Asked::of(&Request::builder().method(method).uri(uri).body(Body::empty()).unwrap())
    }

    #[test]
    fn requests_are_told_apart() {
        let cases = [
            ("GET", "/api/v1/pods", Want::List),
            ("GET", "/api/v1/namespaces", Want::List),
            ("GET", "/api/v1/namespaces/web", Want::Get),
            ("GET", "/api/v1/namespaces/web/pods", Want::List),
            ("GET", "/api/v1/namespaces/web/pods/a", Want::Get),
            ("GET", "/apis/apps/v1/deployments?watch=true", Want::Watch),
            ("GET", "/apis/apps/v1/namespaces/web/deployments", Want::List),
            ("GET", "/version", Want::Get),
            ("POST", "/api/v1/namespaces/web/pods", Want::Create),
            ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", Want::Review),
            ("PATCH", "/api/v1/namespaces/web/pods/a/status", Want::Change),
            ("DELETE", "/api/v1/namespaces/web/pods/a", Want::Delete),
        ];
        for (method, uri, want) in cases {
            assert_eq!(asked(method, uri).want, want, "{method} {uri}");
        }
    }

    #[test]
    fn an_old_answer_is_given_only_to_who_allows_it() {
        let oldest = |query: &str| asked("GET", &format!("/api/v1/pods?{query}")).may_be_as_old_as();
        assert_eq!(oldest("limit=500"), None, "a consistent read");
        assert_eq!(oldest("resourceVersion=7&resourceVersionMatch=Exact"), None);
        assert_eq!(oldest("resourceVersion=0"), Some(0));
        assert_eq!(oldest("resourceVersion=7&resourceVersionMatch=NotOlderThan"), Some(7));
        assert_eq!(oldest("sendInitialEvents=true&resourceVersionMatch=NotOlderThan"), None);
    }
}
