//! Plays a script against a server and notes the answers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use kubeocean_testkit::ApiServer;
use serde_json::Value;

use super::mask;
use super::script::{How, Script, Step};

/// How long something may take to be noticed.
const NOTICED_WITHIN: Duration = Duration::from_secs(30);

/// Group and version of plurals outside the core group; cluster-scoped ones say so.
const PLACES: &[(&str, &str, bool)] = &[
    ("nodes", "api/v1", false),
    ("namespaces", "api/v1", false),
    ("persistentvolumes", "api/v1", false),
    ("deployments", "apis/apps/v1", true),
    ("replicasets", "apis/apps/v1", true),
    ("daemonsets", "apis/apps/v1", true),
    ("jobs", "apis/batch/v1", true),
    ("leases", "apis/coordination.k8s.io/v1", true),
    ("endpointslices", "apis/discovery.k8s.io/v1", true),
    ("poddisruptionbudgets", "apis/policy/v1", true),
    ("csinodes", "apis/storage.k8s.io/v1", false),
    ("storageclasses", "apis/storage.k8s.io/v1", false),
    ("priorityclasses", "apis/scheduling.k8s.io/v1", false),
    ("roles", "apis/rbac.authorization.k8s.io/v1", true),
    ("rolebindings", "apis/rbac.authorization.k8s.io/v1", true),
    ("clusterroles", "apis/rbac.authorization.k8s.io/v1", false),
    ("clusterrolebindings", "apis/rbac.authorization.k8s.io/v1", false),
    ("networkpolicies", "apis/networking.k8s.io/v1", true),
    ("horizontalpodautoscalers", "apis/autoscaling/v2", true),
    ("certificatesigningrequests", "apis/certificates.k8s.io/v1", false),
    ("clusterbindings", "apis/cloud.tencent.com/v1beta1", false),
    ("resourceleasingpolicies", "apis/cloud.tencent.com/v1beta1", false),
    ("selfsubjectreviews", "apis/authentication.k8s.io/v1", false),
    ("selfsubjectaccessreviews", "apis/authorization.k8s.io/v1", false),
    ("selfsubjectrulesreviews", "apis/authorization.k8s.io/v1", false),
    ("localsubjectaccessreviews", "apis/authorization.k8s.io/v1", true),
    ("customresourcedefinitions", "apis/apiextensions.k8s.io/v1", false),
    ("ingresses", "apis/networking.k8s.io/v1", true),
    ("statefulsets", "apis/apps/v1", true),
    ("subjectaccessreviews", "apis/authorization.k8s.io/v1", false),
];

struct Player<'a> {
    client: &'a Client,
    simulated: Option<&'a ApiServer>,
    namespace: String,
    /// uid and version of each object, by its short path.
    seen: BTreeMap<String, (String, String)>,
    mark: String,
    token: String,
}

/// `simulated` is the server itself, if it is one.
pub(crate) async fn script(client: &Client, simulated: Option<&ApiServer>, script: &Script) -> Vec<Value> {
    static COUNTER: AtomicUsize = AtomicUsize::new(100);
    let word: String =
        script.name.chars().filter(char::is_ascii_alphanumeric).take(30).collect::<String>().to_lowercase();
    let namespace = format!("parity-{word}-{}", COUNTER.fetch_add(1, Ordering::Relaxed) % 900 + 100);
    let mut player = Player {
        client,
        simulated,
        namespace,
        seen: BTreeMap::new(),
        mark: String::new(),
        token: String::new(),
    };
    let namespace = json!({"metadata": {"name": player.namespace}});
    let (code, answer) = player
        .send("POST", "/api/v1/namespaces", "application/json", "application/json", Some(namespace))
        .await;
    assert_eq!(code, 201, "{answer}");
    let account = format!("/api/v1/namespaces/{}/serviceaccounts", player.namespace);
    let (code, answer) = player
        .send(
            "POST",
            &account,
            "application/json",
            "application/json",
            Some(json!({"metadata": {"name": "default"}})),
        )
        .await;
    assert!(code == 201 || code == 409, "{answer}");
    let mut answers = Vec::new();
    for step in &script.steps {
        answers.push(player.play(step).await);
    }
    answers
}

impl Player<'_> {
    async fn play(&mut self, step: &Step) -> Value {
        let path = self.fill(&self.full_path(&step.path));
        let body =
            step.body.as_ref().map(|body| serde_json::from_str(&self.fill(&body.to_string())).unwrap());
        let deadline = tokio::time::Instant::now() + NOTICED_WITHIN;
        let (code, answer) = loop {
            let (code, answer) =
                self.send(step.method, &path, step.content_type, step.accept, body.clone()).await;
            match step.how {
                how if !how.is_content_with(code, &answer) && tokio::time::Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                _ => break (code, answer),
            }
        };
        match step.how {
            How::Mark => {
                let list: Value = serde_json::from_str(&answer).unwrap();
                list["metadata"]["resourceVersion"].as_str().unwrap().clone_into(&mut self.mark);
                json!({"code": code})
            }
            How::Compact => {
                if let Some(server) = self.simulated {
                    server.compact(server.revision());
                }
                json!({"code": code})
            }
            How::Watch => events(code, &answer),
            How::Among => listed(code, &answer),
            How::Code(_) => json!({"code": code}),
            How::Verdict => verdict(code, &answer),
            How::Once | How::Until(_) | How::UntilItHas(_) | How::UntilItSays(..) | How::UntilItLacks(_) => {
                self.note(step, code, &answer)
            }
        }
    }

    fn note(&mut self, step: &Step, code: u16, answer: &str) -> Value {
        let Ok(mut object) = serde_json::from_str::<Value>(answer) else {
            return json!({"code": code, "text": answer.trim()});
        };
        let path = step.called.unwrap_or(&step.path);
        let short = self.fill(path.split('?').next().unwrap_or_default());
        let meta = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
        let (uid, version) = (meta("uid"), meta("resourceVersion"));
        if !meta("continue").is_empty() {
            self.token = meta("continue");
        }
        let parts: Vec<_> = short.split('/').collect();
        let key = match parts.as_slice() {
            [plural] => format!("{plural}/{}", meta("name")),
            [plural, name, ..] => format!("{plural}/{name}"),
            [] => String::new(),
        };
        let before = self.seen.get(&key).map(|(_, version)| version.clone());
        if !uid.is_empty() && step.accept == "application/json" {
            self.seen.insert(key, (uid, version.clone()));
        }
        if object["kind"] == "Status" {
            let message = mask::message(object["message"].as_str().unwrap_or_default());
            mask::answer(&mut object);
            if !message.is_empty() {
                object["message"] = message.into();
            }
            return json!({"code": code, "status": object});
        }
        if object["kind"] == "TokenRequest" {
            object["claims"] = claims(&object["status"]["token"]);
            object["lives for"] = lifetime(&object);
        }
        mask::answer(&mut object);
        let changed = before.filter(|_| !version.is_empty()).map(|before| before != version);
        json!({"code": code, "object": object, "version changed": changed})
    }

    fn full_path(&self, path: &str) -> String {
        if path.starts_with('/') {
            return path.to_owned();
        }
        let plural = path.split(['/', '?']).next().unwrap_or_default();
        let (root, namespaced) = PLACES
            .iter()
            .find(|(one, ..)| *one == plural)
            .map_or(("api/v1", true), |(_, root, namespaced)| (*root, *namespaced));
        if namespaced {
            format!("/{root}/namespaces/{}/{path}", self.namespace)
        } else {
            format!("/{root}/{path}")
        }
    }

    fn fill(&self, text: &str) -> String {
        let mut text = text
            .replace("{ns}", &self.namespace)
            .replace("{mark}", &self.mark)
            .replace("{continue}", &self.token);
        for (key, (uid, version)) in &self.seen {
            text = text.replace(&format!("{{uid:{key}}}"), uid).replace(&format!("{{rv:{key}}}"), version);
        }
        text
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        accept: &str,
        body: Option<Value>,
    ) -> (u16, String) {
        let mut request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("Accept", accept)
            .header("User-Agent", "parity/1");
        if !content_type.is_empty() {
            request = request.header("Content-Type", content_type);
        }
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let answer = self.client.send(request.body(Body::from(body)).unwrap()).await.unwrap();
        let code = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl How {
    /// Whether an answer is the one that was waited for.
    fn is_content_with(self, code: u16, answer: &str) -> bool {
        let there = |pointer: &str| {
            serde_json::from_str::<Value>(answer).is_ok_and(|answer| answer.pointer(pointer).is_some())
        };
        match self {
            Self::Until(wanted) | Self::Code(wanted) => code == wanted,
            Self::UntilItHas(pointer) => there(pointer),
            Self::UntilItSays(pointer, text) => serde_json::from_str::<Value>(answer)
                .is_ok_and(|answer| answer.pointer(pointer).is_some_and(|found| found == text)),
            Self::UntilItLacks(pointer) => !there(pointer),
            _ => true,
        }
    }
}

/// The code; and the whole answer for who has to find out why another one says otherwise.
fn verdict(code: u16, answer: &str) -> Value {
    let answer: Value = serde_json::from_str(answer).unwrap_or_default();
    json!({"code": code, "status": {"message": answer["message"]}})
}

/// What a token says, its times counted from its own beginning.
fn claims(token: &Value) -> Value {
    use base64::Engine as _;
    let Some(payload) = token.as_str().and_then(|token| token.split('.').nth(1)) else { return Value::Null };
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(payload).unwrap();
    let mut claims: Value = serde_json::from_slice(&bytes).unwrap();
    let began = claims["iat"].as_i64().unwrap();
    for pointer in ["/exp", "/nbf", "/iat", "/kubernetes.io/warnafter"] {
        if let Some(at) = claims.pointer_mut(pointer) {
            *at = (at.as_i64().unwrap() - began).into();
        }
    }
    claims
}

/// In seconds, from its creation until what the status says.
fn lifetime(request: &Value) -> Value {
    let at = |value: &Value| value.as_str()?.parse::<jiff::Timestamp>().ok();
    let (from, until) =
        (at(&request["metadata"]["creationTimestamp"]), at(&request["status"]["expirationTimestamp"]));
    from.zip(until).map(|(from, until)| until.as_second() - from.as_second()).into()
}

/// A list of what is served, by name: a real server serves more.
fn listed(code: u16, answer: &str) -> Value {
    let mut object: Value = serde_json::from_str(answer).unwrap_or_default();
    mask::answer(&mut object);
    for list in ["resources", "groups"] {
        if let Some(Value::Array(items)) = object.get_mut(list).map(Value::take) {
            let named =
                items.into_iter().map(|item| (item["name"].as_str().unwrap_or_default().to_owned(), item));
            object[list] = Value::Object(named.collect());
        }
    }
    json!({"code": code, "object": object})
}

/// The events of a watch. Bookmarks come when the server likes, but for the one that ends a list.
fn events(code: u16, answer: &str) -> Value {
    let mut events = Vec::new();
    for line in answer.lines() {
        let mut event: Value = serde_json::from_str(line).unwrap();
        let ends_list = event["object"]["metadata"]["annotations"].get("k8s.io/initial-events-end").is_some();
        if event["type"] == "BOOKMARK" && !ends_list {
            continue;
        }
        if let Some(message) = event["object"]["message"].as_str().map(mask::message) {
            event["object"]["message"] = message.into();
        }
        mask::answer(&mut event);
        events.push(event);
    }
    json!({"code": code, "events": events})
}

/// Installs our definitions, and waits until they are served.
pub(crate) async fn install_definitions(client: &Client) {
    let player = Player {
        client,
        simulated: None,
        namespace: String::new(),
        seen: BTreeMap::new(),
        mark: String::new(),
        token: String::new(),
    };
    for definition in kubeocean_api::crd::crds() {
        let body = serde_json::to_value(definition).unwrap();
        let root = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let (code, answer) =
            player.send("POST", root, "application/json", "application/json", Some(body)).await;
        assert_eq!(code, 201, "{answer}");
    }
    let deadline = tokio::time::Instant::now() + NOTICED_WITHIN;
    for plural in ["clusterbindings", "resourceleasingpolicies"] {
        while player.send("GET", &player.full_path(plural), "", "application/json", None).await.0 != 200 {
            assert!(tokio::time::Instant::now() < deadline, "{plural} is not served");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Waits until a server that was just started answers.
pub(crate) async fn ready(client: &Client) {
    let deadline = tokio::time::Instant::now() + NOTICED_WITHIN;
    loop {
        let request = http::Request::get("/readyz").body(Body::empty()).unwrap();
        match client.send(request).await {
            Ok(answer) if answer.status() == 200 => return,
            other => assert!(
                tokio::time::Instant::now() < deadline,
                "not ready: {:?}",
                other.map(|answer| answer.status())
            ),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
