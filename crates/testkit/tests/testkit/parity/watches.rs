//! Watches: from where, what they show, and how they are refused.

use serde_json::Value;

use super::script::{Script, apply, delete, get, mark, merge, pod, post, script, watch};

const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

fn labelled(name: &str, labels: Value) -> Value {
    json!({"metadata": {"name": name, "labels": labels}})
}

pub(crate) fn scripts() -> Vec<Script> {
    vec![
        script("a watch from a revision", vec![
            mark(),
            post("configmaps", labelled("a", json!({"v": "1"}))),
            merge("configmaps/a", json!({"data": {"x": "1"}})),
            merge("configmaps/a", json!({"data": {"x": "1"}})),
            delete("configmaps/a"),
            watch("configmaps?resourceVersion={mark}"),
            watch("configmaps?resourceVersion={mark}&labelSelector=v%3D1"),
            watch("configmaps?resourceVersion={mark}").accept(METADATA),
        ]),
        script("a watch through a selector", vec![
            post("configmaps", labelled("a", json!({"in": "yes"}))),
            post("configmaps", labelled("b", json!({"in": "no"}))),
            mark(),
            merge("configmaps/a", json!({"metadata": {"labels": {"in": "no"}}})),
            merge("configmaps/b", json!({"metadata": {"labels": {"in": "yes"}}})),
            merge("configmaps/b", json!({"data": {"x": "1"}})),
            merge("configmaps/a", json!({"data": {"x": "1"}})),
            delete("configmaps/b"),
            delete("configmaps/a"),
            watch("configmaps?resourceVersion={mark}&labelSelector=in%3Dyes"),
            watch("configmaps?resourceVersion={mark}&fieldSelector=metadata.name%3Da"),
        ]),
        script("a watch from now, from any time, and with a list first", vec![
            post("configmaps", labelled("a", json!({}))),
            post("configmaps", labelled("b", json!({}))),
            watch("configmaps"),
            watch("configmaps?resourceVersion=0"),
            watch("configmaps?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"),
            watch("configmaps?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true").accept(METADATA),
            watch("configmaps?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion={rv:configmaps/a}&labelSelector=none%3Dhere"),
            watch("configmaps?sendInitialEvents=true&allowWatchBookmarks=true"),
            watch("configmaps?sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
            watch("configmaps?sendInitialEvents=false&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"),
            watch("configmaps?resourceVersionMatch=NotOlderThan"),
            get("configmaps?sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
            watch("configmaps?sendInitialEvents=true&resourceVersionMatch=Exact&allowWatchBookmarks=true"),
            watch("configmaps?resourceVersion=abc"),
        ]),
        script("a watch of pods that move", vec![
            mark(),
            post("pods", pod("p", json!({}))),
            post("pods/p/binding", json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}})),
            merge("pods/p/status", json!({"status": {"phase": "Running"}})),
            delete("pods/p?gracePeriodSeconds=0"),
            watch("pods?resourceVersion={mark}&fieldSelector=spec.nodeName%3Dn1"),
            watch("pods?resourceVersion={mark}&fieldSelector=status.phase%3DRunning"),
            get("pods"),
        ]),
        script("a watch of an applied object", vec![
            mark(),
            apply("configmaps/a", "one", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}})),
            apply("configmaps/a", "one", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}})),
            apply("configmaps/a", "two", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}})),
            watch("configmaps?resourceVersion={mark}"),
        ]),
        script("a watch of custom resources", vec![
            mark(),
            post("clusterbindings", json!({"apiVersion": "cloud.tencent.com/v1beta1", "kind": "ClusterBinding", "metadata": {"name": "{ns}"}, "spec": {"clusterID": "w1", "secretRef": {"name": "w1", "namespace": "k"}, "mountNamespace": "b"}})),
            merge("clusterbindings/{ns}/status", json!({"status": {"phase": "Ready"}})),
            merge("clusterbindings/{ns}", json!({"spec": {"directScheduling": true}})),
            delete("clusterbindings/{ns}"),
            watch("clusterbindings?resourceVersion={mark}&fieldSelector=metadata.name%3D{ns}"),
        ]),
    ]
}
