//! Lists: selectors, pages, revisions, metadata only; and the server's own pages.

use serde_json::Value;

use super::script::{Script, compact, delete, get, mark, merge, pod, post, script, watch};

const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

fn labelled(name: &str, labels: Value) -> Value {
    json!({"metadata": {"name": name, "labels": labels}})
}

pub(crate) fn scripts() -> Vec<Script> {
    vec![
        script("selecting", vec![
            post("configmaps", labelled("a", json!({"app": "x", "tier": "1"}))),
            post("configmaps", labelled("b", json!({"app": "y", "tier": "2"}))),
            post("configmaps", labelled("c", json!({}))),
            get("configmaps"),
            get("configmaps?labelSelector=app%3Dx"),
            get("configmaps?labelSelector=app%20in%20(x,y),tier!%3D2"),
            get("configmaps?labelSelector=!app"),
            get("configmaps?labelSelector=app"),
            get("configmaps?labelSelector=tier%3E1"),
            get("configmaps?labelSelector=app%20notin%20(x)"),
            get("configmaps?labelSelector=a%20b%20c"),
            get("configmaps?fieldSelector=metadata.name%3Db"),
            get("configmaps?fieldSelector=metadata.name!%3Db"),
            get("configmaps?fieldSelector=metadata.namespace%3D{ns},metadata.name%3Da"),
            get("configmaps?fieldSelector=data.a%3Db"),
            get("configmaps?fieldSelector=nonsense"),
            get("configmaps?labelSelector=app%3Dx").accept(METADATA_LIST),
            get("configmaps/a").accept(METADATA),
        ]),
        script("selecting pods and others by field", vec![
            post("pods", pod("a", json!({"nodeName": "n1"}))),
            post("pods", pod("b", json!({}))),
            merge("pods/a/status", json!({"status": {"phase": "Running"}})),
            get("pods?fieldSelector=spec.nodeName%3Dn1"),
            get("pods?fieldSelector=spec.nodeName%3D"),
            get("pods?fieldSelector=status.phase!%3DRunning"),
            get("pods?fieldSelector=spec.image%3Dx"),
            post("secrets", json!({"metadata": {"name": "s"}, "type": "example.com/x"})),
            get("secrets?fieldSelector=type%3Dexample.com/x"),
            post("events", json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "a", "namespace": "{ns}", "uid": "{uid:pods/a}"}})),
            get("events?fieldSelector=involvedObject.name%3Da,involvedObject.kind%3DPod"),
            get("nodes?fieldSelector=spec.nope%3Dx"),
            get("leases?fieldSelector=spec.holderIdentity%3Dx"),
        ]),
        script("pages", vec![
            post("configmaps", labelled("a", json!({"p": "1"}))),
            post("configmaps", labelled("b", json!({"p": "1"}))),
            post("configmaps", labelled("c", json!({"p": "2"}))),
            get("configmaps?limit=2"),
            post("configmaps", labelled("bb", json!({}))),
            delete("configmaps/c"),
            get("configmaps?limit=2&continue={continue}"),
            get("configmaps?limit=1&labelSelector=p%3D1"),
            get("configmaps?limit=1&resourceVersion=0"),
            get("configmaps?limit=1&continue={continue}&resourceVersion=7"),
            get("configmaps?limit=1&continue=nonsense"),
            get("configmaps?limit=1"),
            get("configmaps?limit=500&continue={continue}"),
        ]),
        script("revisions of a list", vec![
            post("configmaps", labelled("a", json!({}))),
            mark(),
            post("configmaps", labelled("b", json!({}))),
            get("configmaps?resourceVersion={mark}&resourceVersionMatch=Exact"),
            get("configmaps?resourceVersion={mark}&resourceVersionMatch=NotOlderThan"),
            get("configmaps?resourceVersion={rv:configmaps/b}"),
            get("configmaps?resourceVersion={mark}&limit=1&resourceVersionMatch=Exact"),
            get("configmaps?resourceVersion=0&resourceVersionMatch=Exact"),
            get("configmaps?resourceVersionMatch=Exact"),
            get("configmaps?resourceVersion={mark}&resourceVersionMatch=Sometimes"),
            get("configmaps?resourceVersion=99999999"),
            get("configmaps?resourceVersion=99999999&resourceVersionMatch=Exact"),
            get("configmaps?resourceVersion=abc"),
            get("configmaps/a?resourceVersion=0"),
        ]),
        script("lists of custom resources", vec![
            get("clusterbindings?fieldSelector=spec.clusterID%3Dx"),
            get("clusterbindings?labelSelector=nobody%3Dhas"),
        ]),
        script("the server itself", vec![
            get("/readyz"),
            get("/livez"),
            get("/healthz"),
            get("/version"),
            get("/api"),
            get("/apis").among(),
            get("/apis/coordination.k8s.io"),
            get("/apis/cloud.tencent.com"),
            get("/apis/nobody.io"),
            get("/nonsense"),
        ]),
        script("what is served", vec![
            get("/api/v1").among(),
            get("/apis/apps/v1").among(),
            get("/apis/batch/v1").among(),
            get("/apis/policy/v1").among(),
            get("/apis/autoscaling/v2").among(),
            get("/apis/coordination.k8s.io/v1").among(),
            get("/apis/discovery.k8s.io/v1").among(),
            get("/apis/storage.k8s.io/v1").among(),
            get("/apis/scheduling.k8s.io/v1").among(),
            get("/apis/rbac.authorization.k8s.io/v1").among(),
            get("/apis/apiextensions.k8s.io/v1").among(),
            get("/apis/certificates.k8s.io/v1").among(),
            get("/apis/networking.k8s.io/v1").among(),
            get("/apis/authorization.k8s.io/v1").among(),
            get("/apis/authentication.k8s.io/v1").among(),
            get("/apis/cloud.tencent.com/v1beta1").among(),
            get("/apis/cloud.tencent.com/v1").among(),
            get("/apis/nobody.io/v1").among(),
            get("/api/v2").among(),
        ]),
    ]
}

/// On a server that gives up old revisions within seconds.
pub(crate) fn expiring() -> Vec<Script> {
    vec![
        script("revisions that are gone", vec![
            post("configmaps", labelled("a", json!({}))),
            post("configmaps", labelled("b", json!({}))),
            get("configmaps?limit=1"),
            post("configmaps", labelled("c", json!({}))),
            compact(),
            get("configmaps?limit=1&continue={continue}").until(410),
            get("configmaps?limit=5&continue={continue}"),
            get("configmaps?resourceVersion=1&resourceVersionMatch=Exact"),
            get("configmaps?resourceVersion=1&resourceVersionMatch=NotOlderThan"),
            get("configmaps?resourceVersion=1"),
            watch("configmaps?resourceVersion=1"),
        ]),
    ]
}
