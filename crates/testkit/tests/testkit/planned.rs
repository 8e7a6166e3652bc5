//! What the model plans for a worker cluster, carried out on a server that fills in what servers fill in: the same plan again wants nothing.
//!
//! One server is both sides: V's objects are in namespace `web`, P's in `mount`.

use kubeocean_api::ClusterBinding;
use kubeocean_cluster::apply::Applier;
use kubeocean_cluster::client::{Cluster, Settings};
use kubeocean_cluster::metrics::Metrics;
use kubeocean_model::action::{Action, Kind, Verb, kinds};
use kubeocean_model::binding::Binding;
use kubeocean_model::copy::{Copied, Usage, plan_copy};
use kubeocean_model::key::{Key, Physical};
use kubeocean_model::naming::{Origin, PhysicalName};
use kubeocean_model::object::Object;
use kubeocean_model::services::{plan_service, plan_slice};
use kubeocean_model::stamp::Stamp;
use kubeocean_model::storage::{self, Allowed, Situation};
use kubeocean_testkit::{ApiServer, Options};
use serde_json::{Value, json};

/// More rounds than any plan needs.
const ROUNDS: usize = 8;

struct Stage {
    server: ApiServer,
    applier: Applier,
    binding: Binding,
}

impl Stage {
    fn new() -> Self {
        let server = ApiServer::new(Options::default());
        let settings = Settings::new("physical", "test", &Metrics::new("test"));
        let worker = Cluster::<Physical>::over(server.client("test"), settings);
        let object: ClusterBinding = serde_json::from_value(json!({
            "apiVersion": "cloud.tencent.com/v1beta1", "kind": "ClusterBinding",
            "metadata": {"name": "w1", "uid": "b-1"},
            "spec": {"clusterID": "w1", "mountNamespace": "mount", "secretRef": {"name": "s", "namespace": "n"}},
        }))
        .unwrap();
        let stage = Self {
            server,
            applier: Applier::new("test").physically(&worker),
            binding: Binding::parse(&object).unwrap(),
        };
        for namespace in ["web", "mount"] {
            stage.ask("POST", "/api/v1/namespaces", json!({"metadata": {"name": namespace}}));
        }
        stage
    }

    fn stamp(&self) -> Stamp<'_> {
        Stamp { binding: &self.binding, virtual_cluster: "v-1" }
    }

    fn ask(&self, method: &str, path: &str, body: Value) -> Value {
        let form = (method == "PATCH").then_some("application/merge-patch+json");
        let (code, answer) = self.server.call("user", method, path, form, Some(body));
        assert!(code < 300, "{method} {path}: {answer}");
        answer
    }

    /// V's object becomes this.
    fn given(&self, kind: &Kind, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let collection = kind.collection_path(Some("web"));
        if self.of(kind, "web", name).is_none() {
            self.ask("POST", &collection, object.clone());
        } else {
            self.ask("PATCH", &format!("{collection}/{name}"), object.clone());
        }
    }

    fn of(&self, kind: &Kind, namespace: &str, name: &str) -> Option<Object> {
        let namespace = if kind.namespaced { namespace } else { "" };
        let value = self.server.get(&kind.kind, namespace, name)?;
        Some(Object::from_value((*value).clone()).unwrap())
    }

    /// Plans and writes until there is nothing left to write, and says what was written.
    async fn settle(&self, plan: impl Fn() -> Vec<Action>) -> Vec<String> {
        let mut written = Vec::new();
        for round in 0.. {
            assert!(round < ROUNDS, "it does not come to rest: {written:?}");
            let actions = plan();
            if actions.is_empty() {
                break;
            }
            for action in actions {
                let outcome = self.applier.apply(&action).await;
                assert!(outcome.fulfils(&action), "{action}: {outcome}");
                written.push(format!("{} {}", action.verb.name(), action.kind.plural));
                if matches!(action.verb, Verb::Delete { .. }) {
                    self.let_go(&action);
                }
            }
        }
        written
    }

    /// As controllers do once nobody uses a volume or a claim.
    fn let_go(&self, action: &Action) {
        if self.of(&action.kind, &action.namespace, &action.name).is_some() {
            let collection = action.kind.collection_path(Some(&action.namespace));
            let path = format!("{collection}/{}", action.name);
            self.ask("PATCH", &path, json!({"metadata": {"finalizers": null}}));
        }
    }
}

fn name(name: &str) -> PhysicalName {
    Origin::Object { namespace: "web", name }.physical_name()
}

#[tokio::test(start_paused = true)]
async fn config_maps_and_secrets_come_to_rest() {
    let stage = Stage::new();
    let name = name("a");
    for (what, steps) in [
        (
            Copied::ConfigMap,
            vec![
                (json!({"metadata": {"name": "a"}, "data": {"k": "1", "gone": "1"}}), "create configmaps"),
                (json!({"metadata": {"name": "a"}, "data": {"k": "2", "gone": null}}), "patch configmaps"),
                (json!({"metadata": {"name": "a", "labels": {"x": "y"}}}), ""),
                (json!({"metadata": {"name": "a"}, "binaryData": {"b": "AAE="}}), "patch configmaps"),
                (json!({"metadata": {"name": "a"}, "data": null, "binaryData": null}), "patch configmaps"),
                (json!({"metadata": {"name": "a"}, "immutable": true}), ""),
            ],
        ),
        (
            Copied::Secret,
            vec![
                (
                    json!({"metadata": {"name": "a"}, "type": "example.com/x", "stringData": {"k": "1"}}),
                    "create secrets",
                ),
                (json!({"metadata": {"name": "a"}, "stringData": {"k": ""}}), "patch secrets"),
                (json!({"metadata": {"name": "a"}, "data": {"k": null}}), "patch secrets"),
            ],
        ),
    ] {
        let kind = what.kind();
        let plan = |usage| {
            let (original, copy) = (stage.of(&kind, "web", "a"), stage.of(&kind, "mount", name.as_str()));
            plan_copy(&stage.stamp(), what, original.as_ref(), copy.as_ref(), &name, usage)
        };
        for (given, expected) in steps {
            stage.given(&kind, &given);
            assert_eq!(stage.settle(|| plan(Usage::BY_PODS)).await.join(", "), expected, "{given}");
        }
        let path = format!("{}/{name}", kind.collection_path(Some("mount")));
        stage.ask("PATCH", &path, json!({"immutable": true, "data": {"theirs": "eA=="}}));
        let anew = stage.settle(|| plan(Usage::BY_PODS)).await;
        assert_eq!(anew, [format!("delete {}", kind.plural), format!("create {}", kind.plural)]);
        assert_eq!(stage.settle(|| plan(Usage::NONE)).await, [format!("delete {}", kind.plural)]);
    }
}

#[tokio::test(start_paused = true)]
async fn services_and_endpoints_come_to_rest() {
    let stage = Stage::new();
    let (service, slice) = (name("s"), name("s-1"));
    let plan = |is_mirrored: bool| {
        let original = stage.of(&kinds::SERVICE, "web", "s");
        let copy = stage.of(&kinds::SERVICE, "mount", service.as_str());
        let mut actions =
            plan_service(&stage.stamp(), original.as_ref(), copy.as_ref(), &service, is_mirrored).actions;
        let original = stage.of(&kinds::ENDPOINT_SLICE, "web", "s-1");
        let copy = stage.of(&kinds::ENDPOINT_SLICE, "mount", slice.as_str());
        let of = is_mirrored.then_some(&service);
        actions.extend(plan_slice(&stage.stamp(), original.as_ref(), copy.as_ref(), &slice, of));
        actions
    };
    let service_steps = [
        (
            json!({"type": "NodePort", "selector": {"a": "b"}, "ports": [{"port": 80, "targetPort": "web"}]}),
            "create services",
        ),
        (json!({"type": "LoadBalancer"}), ""),
        (json!({"sessionAffinity": "ClientIP"}), "patch services"),
        (json!({"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}}), "patch services"),
        (json!({"sessionAffinity": "None", "sessionAffinityConfig": null}), "patch services"),
        (
            json!({"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 53, "protocol": "UDP"}]}),
            "patch services",
        ),
        (json!({"internalTrafficPolicy": "Local"}), ""),
    ];
    for (spec, expected) in service_steps {
        stage.given(&kinds::SERVICE, &json!({"metadata": {"name": "s"}, "spec": spec}));
        assert_eq!(stage.settle(|| plan(true)).await.join(", "), expected, "{spec}");
    }
    let slice_steps = [
        (
            json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"], "nodeName": "n"}], "ports": [{"port": 80}]}),
            "create endpointslices",
        ),
        (
            json!({"endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}]}),
            "patch endpointslices",
        ),
        (json!({"endpoints": []}), "patch endpointslices"),
        (json!({"ports": []}), "patch endpointslices"),
    ];
    for (content, expected) in slice_steps {
        let mut given = content;
        given["metadata"] = json!({"name": "s-1", "labels": {"kubernetes.io/service-name": "s"}});
        stage.given(&kinds::ENDPOINT_SLICE, &given);
        assert_eq!(stage.settle(|| plan(true)).await.join(", "), expected, "{given}");
    }
    let path = format!("{}/{service}", kinds::SERVICE.collection_path(Some("mount")));
    stage.ask("PATCH", &path, json!({"spec": {"selector": {"a": "b"}, "type": "NodePort"}}));
    assert_eq!(stage.settle(|| plan(true)).await, ["patch services"]);
    assert_eq!(stage.settle(|| plan(false)).await, ["delete services", "delete endpointslices"]);
    let headless = json!({"metadata": {"name": "h"}, "spec": {"clusterIP": "None", "ports": []}});
    stage.given(&kinds::SERVICE, &headless);
    let name = name("h");
    let plan = || {
        let original = stage.of(&kinds::SERVICE, "web", "h");
        let copy = stage.of(&kinds::SERVICE, "mount", name.as_str());
        plan_service(&stage.stamp(), original.as_ref(), copy.as_ref(), &name, true).actions
    };
    assert_eq!(stage.settle(plan).await, ["create services"]);
}

#[tokio::test(start_paused = true)]
async fn volumes_and_claims_come_to_rest() {
    let stage = Stage::new();
    let claim = json!({"metadata": {"name": "c"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeName": "v", "storageClassName": "fast",
    }});
    stage.given(&kinds::CLAIM, &claim);
    let uid = stage.of(&kinds::CLAIM, "web", "c").unwrap().meta.uid;
    let path = "/api/v1/namespaces/web/persistentvolumeclaims/c/status";
    stage.ask("PATCH", path, json!({"status": {"phase": "Bound"}}));
    let volume = |storage: &str| {
        json!({"metadata": {"name": "v"}, "spec": {
            "capacity": {"storage": storage}, "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
            "claimRef": {"namespace": "web", "name": "c", "uid": &*uid}, "nfs": {"server": "files", "path": "/"},
        }})
    };
    stage.given(&kinds::VOLUME, &volume("1024Mi"));
    let (claim, volume_name) = (name("c"), Origin::Volume { name: "v" }.physical_name());
    let plan = |is_used: bool| {
        let mount = stage.of(&kinds::NAMESPACE, "", "mount").unwrap();
        storage::plan(&Situation {
            stamp: stage.stamp(),
            key: &Key::new("web", "c"),
            claim: stage.of(&kinds::CLAIM, "web", "c").as_ref(),
            volume: stage.of(&kinds::VOLUME, "", "v").as_ref(),
            copied_claim: stage.of(&kinds::CLAIM, "mount", claim.as_str()).as_ref(),
            copied_volume: stage.of(&kinds::VOLUME, "", volume_name.as_str()).as_ref(),
            is_claim_name_taken: false,
            is_volume_name_taken: false,
            is_used,
            may_make_volumes: true,
            allowed: &Allowed::by_lender(&mount.meta),
            node: &|_| None,
            secret: &|key| Origin::Object { namespace: &key.namespace, name: &key.name }.physical_name(),
        })
    };
    let made = stage.settle(|| plan(true).actions).await;
    assert_eq!(made, ["create persistentvolumes", "create persistentvolumeclaims"]);
    assert!(plan(true).standing.is_usable());
    stage.given(&kinds::VOLUME, &volume("2Gi"));
    assert_eq!(stage.settle(|| plan(true).actions).await, ["patch persistentvolumes"]);
    let path = format!("/api/v1/persistentvolumes/{volume_name}");
    stage.ask("PATCH", &path, json!({"spec": {"claimRef": {"uid": "of-another", "resourceVersion": "1"}}}));
    assert_eq!(stage.settle(|| plan(true).actions).await, ["patch persistentvolumes"]);
    let gone = stage.settle(|| plan(false).actions).await;
    assert_eq!(gone, ["delete persistentvolumeclaims", "delete persistentvolumes"]);
}
