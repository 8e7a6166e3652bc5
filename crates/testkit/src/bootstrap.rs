//! What is there from the start: namespaces, the priorities of the system, our definitions.
//!
//! Servers are made by the thousand, and reading a definition costs more than anything else a server
//! does: they are prepared once, and every server gets a copy with a uid and a time of its own.
//!
//! Deliberately absent: anything a test would count as its own.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use crate::clock;
use crate::server::{ApiServer, Options, State};
use crate::store::Key;

/// Who makes what is there from the start.
pub(crate) const ACTOR: &str = "kube-apiserver";

const DEFINITIONS: &str = "customresourcedefinitions";

/// Our definitions, as a server stores them.
static PREPARED: LazyLock<Vec<Arc<Value>>> = LazyLock::new(|| {
    let server = ApiServer::new(Options { with_crds: false, ..Options::default() });
    for crd in kubeocean_api::crd::crds() {
        let crd = serde_json::to_value(crd).unwrap_or_default();
        server.call(ACTOR, "POST", &format!("/apis/apiextensions.k8s.io/v1/{DEFINITIONS}"), None, Some(crd));
    }
    server.list(DEFINITIONS, None)
});

pub(crate) fn fill(server: &ApiServer, with_crds: bool) {
    for namespace in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        server.call(
            ACTOR,
            "POST",
            "/api/v1/namespaces",
            None,
            Some(json!({"metadata": {"name": namespace}})),
        );
    }
    for (name, value) in [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)]
    {
        let class = json!({"metadata": {"name": name}, "value": value, "description": "Used for system critical pods."});
        server.call(ACTOR, "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", None, Some(class));
    }
    if with_crds {
        server.act(|state| PREPARED.iter().for_each(|definition| install(state, definition)));
    }
}

fn install(state: &mut State, definition: &Value) {
    let Some(kind) = state.kinds.get("apiextensions.k8s.io", DEFINITIONS).map(|kind| kind.id) else { return };
    let mut definition = definition.clone();
    definition["metadata"]["uid"] = state.uid().into();
    definition["metadata"]["creationTimestamp"] = clock::seconds(state.now()).into();
    let name = definition["metadata"]["name"].as_str().unwrap_or_default();
    let key = Key::new(kind, "", name);
    crate::kinds::strategy::install(state, &definition);
    state.commit(key, Some(definition), &ACTOR.into());
}
