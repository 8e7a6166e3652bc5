//! Which headers go on to the worker cluster, and which come back.
//!
//! Only those that are listed here. What names a caller or speaks for one never leaves: the worker cluster knows us, and nobody else.

use http::header::{
    ACCEPT, CONNECTION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, SEC_WEBSOCKET_ACCEPT,
    SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use kubeocean_model::kubelet::Refusal;

/// Which protocols of streams both sides know.
const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");

/// A WebSocket protocol that is no protocol: a browser's way to bring a token.
const BEARER_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

const TO_WORKER: [HeaderName; 4] = [ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, STREAM_PROTOCOL];

const TO_CALLER: [HeaderName; 8] = [
    CONTENT_TYPE,
    RETRY_AFTER,
    UPGRADE,
    SEC_WEBSOCKET_ACCEPT,
    SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_EXTENSIONS,
    SEC_WEBSOCKET_VERSION,
    STREAM_PROTOCOL,
];

/// What a connection may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// SPDY/3.1.
    Spdy,
    /// WebSocket.
    WebSocket,
}

impl Protocol {
    /// Its name in the audit log.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Spdy => "spdy",
            Self::WebSocket => "websocket",
        }
    }
}

/// Whether a call asks for another protocol, in any way: what it needs is asked by that.
pub(crate) fn asks_for_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(UPGRADE)
        || connection_words(headers).any(|word| word.eq_ignore_ascii_case("upgrade"))
}

fn connection_words(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

/// The protocol that a call asks for, and not more than one.
pub(crate) fn protocol(headers: &HeaderMap) -> Result<Protocol, Refusal> {
    let refused = |message: &str| Err(Refusal::new(400, message));
    if !connection_words(headers).any(|word| word.eq_ignore_ascii_case("upgrade")) {
        return refused("Upgrade request required");
    }
    let mut values = headers.get_all(UPGRADE).iter();
    match (values.next().and_then(|value| value.to_str().ok()), values.next()) {
        (Some(word), None) if word.eq_ignore_ascii_case("SPDY/3.1") => Ok(Protocol::Spdy),
        (Some(word), None) if word.eq_ignore_ascii_case("websocket") => {
            if headers.contains_key(SEC_WEBSOCKET_KEY) && headers.contains_key(SEC_WEBSOCKET_VERSION) {
                Ok(Protocol::WebSocket)
            } else {
                refused("a WebSocket needs Sec-WebSocket-Key and Sec-WebSocket-Version")
            }
        }
        _ => refused("Upgrade request required: to SPDY/3.1 or websocket, and to one of them"),
    }
}

/// The headers that go on to the worker cluster.
pub(crate) fn to_worker(headers: &HeaderMap, protocol: Option<Protocol>) -> HeaderMap {
    let mut sent = only(headers, &TO_WORKER);
    let Some(protocol) = protocol else { return sent };
    sent.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    let word = match protocol {
        Protocol::Spdy => "SPDY/3.1",
        Protocol::WebSocket => "websocket",
    };
    sent.insert(UPGRADE, HeaderValue::from_static(word));
    let offered = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let words = offered.flat_map(|value| value.split(',')).map(str::trim);
    let words: Vec<&str> = words.filter(|word| !word.is_empty() && !brings_a_token(word)).collect();
    if let Some(words) = (!words.is_empty()).then(|| words.join(", "))
        && let Ok(words) = HeaderValue::from_str(&words)
    {
        sent.insert(SEC_WEBSOCKET_PROTOCOL, words);
    }
    sent
}

fn brings_a_token(word: &str) -> bool {
    let beginning = word.get(..BEARER_PROTOCOL.len());
    beginning.is_some_and(|beginning| beginning.eq_ignore_ascii_case(BEARER_PROTOCOL))
        || word.to_ascii_lowercase().contains("bearer")
}

/// The headers that come back.
pub(crate) fn to_caller(headers: &HeaderMap, is_upgraded: bool) -> HeaderMap {
    let mut sent = only(headers, &TO_CALLER);
    if is_upgraded {
        sent.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    } else {
        sent.remove(UPGRADE);
    }
    sent
}

fn only(headers: &HeaderMap, names: &[HeaderName]) -> HeaderMap {
    let mut kept = HeaderMap::new();
    for name in names {
        for value in headers.get_all(name) {
            kept.append(name, value.clone());
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, value);
        }
        headers
    }

    #[test]
    fn nothing_that_speaks_for_a_caller_goes_on() {
        let given = headers(&[
            ("authorization", "Bearer abc"),
            ("cookie", "a=b"),
            ("impersonate-user", "admin"),
            ("impersonate-group", "system:masters"),
            ("x-remote-user", "admin"),
            ("x-remote-group", "system:masters"),
            ("x-forwarded-for", "10.0.0.1"),
            ("forwarded", "for=10.0.0.1"),
            ("proxy-authorization", "Basic abc"),
            ("host", "node"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("connection", "keep-alive, Upgrade, Authorization"),
            ("upgrade", "websocket"),
            ("accept", "*/*"),
            ("sec-websocket-key", "k"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-protocol", "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.dG9rZW4"),
            ("sec-websocket-protocol", "Base64URL.Bearer.authorization.k8s.io.dG9rZW4,v4.channel.k8s.io"),
            ("x-stream-protocol-version", "v5.channel.k8s.io"),
            ("x-stream-protocol-version", "v4.channel.k8s.io"),
        ]);
        let sent = to_worker(&given, protocol(&given).ok());
        let mut pairs: Vec<String> =
            sent.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        pairs.sort();
        assert_eq!(
            pairs,
            [
                "accept: */*",
                "connection: Upgrade",
                "sec-websocket-key: k",
                "sec-websocket-protocol: v5.channel.k8s.io, v4.channel.k8s.io",
                "sec-websocket-version: 13",
                "upgrade: websocket",
                "x-stream-protocol-version: v4.channel.k8s.io",
                "x-stream-protocol-version: v5.channel.k8s.io",
            ]
        );
        assert!(!to_worker(&given, None).contains_key(UPGRADE));
    }

    #[test]
    fn an_upgrade_that_is_none_is_refused() {
        for pairs in [
            &[][..],
            &[("upgrade", "SPDY/3.1")],
            &[("connection", "upgrade")],
            &[("connection", "upgrade"), ("upgrade", "h2c")],
            &[("connection", "upgrade"), ("upgrade", "SPDY/3.1"), ("upgrade", "websocket")],
            &[("connection", "upgrade"), ("upgrade", "SPDY/3.1, websocket")],
            &[("connection", "upgrade"), ("upgrade", "websocket")],
            &[("connection", "keep-alive"), ("upgrade", "SPDY/3.1")],
        ] {
            assert_eq!(protocol(&headers(pairs)).map_err(|refusal| refusal.code), Err(400), "{pairs:?}");
        }
        let good = headers(&[("connection", "Upgrade"), ("upgrade", "spdy/3.1")]);
        assert_eq!(protocol(&good), Ok(Protocol::Spdy));
        assert!(asks_for_upgrade(&headers(&[("upgrade", "h2c")])));
        assert!(asks_for_upgrade(&headers(&[("connection", "close, UPGRADE")])));
        assert!(!asks_for_upgrade(&headers(&[("connection", "close")])));
    }

    #[test]
    fn what_the_worker_says_of_itself_does_not_come_back() {
        let given = headers(&[
            ("content-type", "text/plain"),
            ("set-cookie", "a=b"),
            ("location", "https://elsewhere/"),
            ("audit-id", "1"),
            ("upgrade", "SPDY/3.1"),
            ("x-stream-protocol-version", "v4.channel.k8s.io"),
        ]);
        assert_eq!(to_caller(&given, true).len(), 4);
        assert_eq!(to_caller(&given, false).len(), 2);
    }
}
