//! Asking real API servers as someone else.

use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use kubeocean_model::rights::{Question, Right};
use kubeocean_sandbox::Cluster;
use serde_json::{Value, json};

use crate::support::LIMIT;

/// A client with what is in this kubeconfig, pretending to be someone else if asked to.
pub(crate) async fn client(kubeconfig: &str, user: Option<&str>) -> Client {
    let mut kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    for named in &mut kubeconfig.auth_infos {
        if let (Some(user), Some(info)) = (user, named.auth_info.as_mut()) {
            info.impersonate = Some(user.to_owned());
            // As an API server would say of a service account itself.
            let namespace = user.split(':').nth(2).unwrap();
            info.impersonate_groups = Some(vec![
                "system:authenticated".into(),
                "system:serviceaccounts".into(),
                format!("system:serviceaccounts:{namespace}"),
            ]);
        }
    }
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// A request that leaves nothing behind. The answer, or the code and the words of the refusal.
pub(crate) async fn attempt(
    client: &Client,
    method: &str,
    path: &str,
    body: &Value,
) -> Result<Value, (u16, String)> {
    let content = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let joint = if path.contains('?') { '&' } else { '?' };
    let request = http::Request::builder()
        .method(method)
        .uri(format!("{path}{joint}dryRun=All"))
        .header("content-type", content)
        .body(if body.is_null() { Vec::new() } else { body.to_string().into_bytes() })
        .unwrap();
    match client.request::<Value>(request).await {
        Ok(answer) => Ok(answer),
        Err(kube::Error::Api(status)) => Err((status.code, status.message.clone())),
        Err(error) => panic!("{method} {path}: {error}"),
    }
}

/// Which of these questions the API server answers with no.
pub(crate) async fn refused(client: &Client, questions: impl IntoIterator<Item = Question>) -> Vec<String> {
    let mut refused = Vec::new();
    for question in questions {
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let request = http::Request::post(path)
            .header("content-type", "application/json")
            .body(question.review().to_string().into_bytes())
            .unwrap();
        let answer: Value = client.request(request).await.unwrap();
        if answer["status"]["allowed"] != json!(true) {
            refused.push(question.to_string());
        }
    }
    refused
}

pub(crate) fn questions(rights: &[Right], namespace: &str) -> Vec<Question> {
    rights.iter().flat_map(|right| right.questions(namespace)).collect()
}

/// Runs kubectl with full rights. It must succeed.
pub(crate) fn kubectl(cluster: &Cluster, args: &str, input: &str) -> String {
    let mut command = cluster.kubectl();
    let mut child = command
        .as_std_mut()
        .args(args.split_whitespace())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "kubectl {args}: {err}");
    assert!(!err.contains("Warning"), "kubectl {args} warns: {err}");
    out
}

/// Asks until the answer is the one that is waited for.
pub(crate) async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + *LIMIT;
    loop {
        match ask().await {
            Ok(value) => return value,
            Err(answer) if Instant::now() > deadline => panic!("{what} did not come true: {answer}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}
