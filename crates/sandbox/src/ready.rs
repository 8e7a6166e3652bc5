//! Waiting for what was started: a condition, a deadline, and the process whose death ends the wait.

use std::fmt::Display;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use http::Request;
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::error::Error;
use crate::kubeconfig::{self, Access};

/// How often a condition is looked at. Two cores: more often would slow down what we wait for.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A shared, busy machine may be ten times slower than an idle one, where none of this takes 10 s.
pub(crate) const LIMIT: Duration = Duration::from_secs(180);

/// etcd writes ahead in pieces of this size.
const ALMOST_FULL_MIB: u64 = 64;

/// A client of the cluster, on the runtime that calls.
pub(crate) async fn client(access: &Access) -> Result<kube::Client, Error> {
    client_from(&kubeconfig::render(std::slice::from_ref(access)), &access.name).await
}

/// A client from a kubeconfig of ours.
pub(crate) async fn client_from(text: &str, cluster: &str) -> Result<kube::Client, Error> {
    let failed = |source| Error::Kubeconfig { cluster: cluster.to_owned(), source };
    let parsed = Kubeconfig::from_yaml(text).map_err(failed)?;
    let mut config =
        kube::Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await.map_err(failed)?;
    // The proxy variables of the environment are for the world outside.
    config.proxy_url = None;
    kube::Client::try_from(config).map_err(api_error(cluster, "making a client"))
}

pub(crate) fn api_error(cluster: &str, doing: &str) -> impl FnOnce(kube::Error) -> Error {
    let (cluster, doing) = (cluster.to_owned(), doing.to_owned());
    move |source| Error::Api { cluster, doing, source: Box::new(source) }
}

/// Looks until `check` succeeds; the last failure is told when the time is up.
pub(crate) async fn until<T, E: Display>(
    what: &str,
    mut check: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T, Error> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let last = match check().await {
            Ok(value) => return Ok(value),
            Err(error) => error.to_string(),
        };
        // Programs on a full disk wait rather than die.
        let root = crate::home::sandboxes();
        let free = crate::home::free_mib(&root);
        if free < ALMOST_FULL_MIB {
            return Err(Error::DiskFull { free, needed: ALMOST_FULL_MIB, path: root.display().to_string() });
        }
        if Instant::now() > deadline {
            return Err(Error::NotReady { what: what.to_owned(), limit: LIMIT, last });
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// `/readyz` says ok.
pub(crate) async fn api_server(client: &kube::Client, cluster: &str) -> Result<(), Error> {
    until(&format!("the API server of {cluster}"), async || {
        let request = Request::get("/readyz").body(Vec::new()).map_err(|error| error.to_string())?;
        client.request_text(request).await.map(drop).map_err(|error| error.to_string())
    })
    .await
}

/// The default service account exists and a pod would be accepted: admission, authorization and the
/// controllers work.
pub(crate) async fn accepts_pods(client: &kube::Client, cluster: &str) -> Result<(), Error> {
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), "default");
    until(&format!("the default service account of {cluster}"), async || {
        accounts.get_metadata("default").await
    })
    .await?;
    let pods = Api::<Pod>::namespaced(client.clone(), "default");
    let pod: Pod = serde_json::from_value(serde_json::json!({
        "metadata": { "name": "kubeocean-sandbox-probe" },
        "spec": { "containers": [{ "name": "probe", "image": crate::BUSYBOX_IMAGE }] },
    }))
    .map_err(|error| Error::InvalidSpec { what: error.to_string() })?;
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    until(&format!("the admission of pods in {cluster}"), async || pods.create(&dry_run, &pod).await)
        .await
        .map(drop)
}

/// The node exists, and its condition Ready is True.
pub(crate) async fn node(client: &kube::Client, cluster: &str, name: &str) -> Result<(), Error> {
    let nodes = Api::<Node>::all(client.clone());
    until(&format!("node {name} of {cluster}"), async || {
        let node = nodes.get(name).await.map_err(|error| error.to_string())?;
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        match conditions.into_iter().find(|condition| condition.type_ == "Ready") {
            Some(ready) if ready.status == "True" => Ok(()),
            Some(ready) => Err(ready.message.unwrap_or_else(|| "it is not Ready".into())),
            None => Err("it has no condition Ready yet".into()),
        }
    })
    .await
}

/// The preferred port, unlooked at, or one that is free at this moment. Another process may be faster:
/// the caller tries again then.
pub(crate) fn free_port(preferred: Option<u16>) -> Result<u16, Error> {
    let bind = |port| std::net::TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    if let Some(port) = preferred {
        return Ok(port);
    }
    bind(0)
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(crate::error::io_error("finding a free port on", std::path::Path::new("127.0.0.1")))
}
