use kubeocean_api::keys::labels;

use super::*;
use crate::action::Verb;
use crate::naming::Origin;
use crate::pretend::{Pretend, binding, nasty, object};

/// A V Service, one of its slices, and what the worker cluster has of both.
struct Scene {
    service: Option<Value>,
    slice: Option<Value>,
    worker: Pretend,
    is_mirrored: bool,
}

fn scene() -> Scene {
    let service = json!({
        "metadata": {"namespace": "web", "name": "shop", "uid": "v-s", "labels": {"team": "blue"}},
        "spec": {
            "type": "LoadBalancer", "clusterIP": "10.1.2.3", "clusterIPs": ["10.1.2.3"], "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack", "selector": {"app": "shop"}, "externalTrafficPolicy": "Local",
            "internalTrafficPolicy": "Local", "sessionAffinity": "None", "allocateLoadBalancerNodePorts": true,
            "ports": [
                {"name": "http", "protocol": "TCP", "port": 80, "targetPort": "web", "nodePort": 30080, "appProtocol": "http"},
                {"name": "dns", "protocol": "UDP", "port": 53, "targetPort": 5353, "nodePort": 30053},
            ],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}},
    });
    let slice = json!({
        "metadata": {"namespace": "web", "name": "shop-abc12", "uid": "v-e", "labels": {
            SERVICE_NAME: "shop", "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        }},
        "addressType": "IPv4",
        "endpoints": [
            {
                "addresses": ["10.244.0.7"], "conditions": {"ready": true, "serving": true, "terminating": false},
                "nodeName": "n1", "zone": "z", "hints": {"forZones": [{"name": "z"}]},
                "targetRef": {"kind": "Pod", "namespace": "web", "name": "shop-1", "uid": "u"},
            },
            {"addresses": ["10.244.0.8"], "conditions": {"ready": false}, "hostname": "shop-2"},
        ],
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP", "appProtocol": "http"}, {"name": "dns", "port": 5353, "protocol": "UDP"}],
    });
    Scene { service: Some(service), slice: Some(slice), worker: Pretend::default(), is_mirrored: true }
}

const SERVICE_NAME: &str = "kubernetes.io/service-name";

fn service_name() -> PhysicalName {
    Origin::Object { namespace: "web", name: "shop" }.physical_name()
}

fn slice_name() -> PhysicalName {
    Origin::Object { namespace: "web", name: "shop-abc12" }.physical_name()
}

impl Scene {
    fn plan(&self) -> (Vec<Action>, Option<Skipped>) {
        let binding = binding("b-1");
        let stamp = Stamp { binding: &binding, virtual_cluster: "v-1" };
        let original = self.service.as_ref().map(object);
        let copy = self.worker.get(&kinds::SERVICE, service_name().as_str());
        let Decision { mut actions, skipped } =
            plan_service(&stamp, original.as_ref(), copy.as_ref(), &service_name(), self.is_mirrored);
        let service = service_name();
        let is_there = self.is_mirrored && skipped.is_none() && original.is_some();
        let original = self.slice.as_ref().map(object);
        let copy = self.worker.get(&kinds::ENDPOINT_SLICE, slice_name().as_str());
        actions.extend(plan_slice(
            &stamp,
            original.as_ref(),
            copy.as_ref(),
            &slice_name(),
            is_there.then_some(&service),
        ));
        (actions, skipped)
    }

    /// Plans, lets the server fill in what it does, and plans again: there is nothing left to write.
    fn settle(&mut self) -> Vec<String> {
        let actions = self.plan().0;
        self.worker.apply(&actions);
        for (place, value) in &mut self.worker.objects {
            if place.0 == "services" {
                fill_in(&mut value["spec"]);
            }
        }
        let written = actions.iter().map(|action| format!("{} {}", action.verb.name(), action.kind.plural));
        let written: Vec<String> = written.collect();
        assert_eq!(self.plan().0, [], "after {written:?}");
        written
    }

    fn copy(&mut self) -> &mut Value {
        self.worker.value_mut(&kinds::SERVICE, service_name().as_str())
    }

    fn copied_slice(&mut self) -> &mut Value {
        self.worker.value_mut(&kinds::ENDPOINT_SLICE, slice_name().as_str())
    }

    fn spec(&mut self) -> &mut Value {
        &mut self.service.as_mut().unwrap()["spec"]
    }
}

/// What a server fills in.
fn fill_in(spec: &mut Value) {
    let defaults = json!({
        "clusterIP": "10.96.0.9", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
        "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
    });
    for (key, value) in defaults.as_object().unwrap() {
        spec.as_object_mut().unwrap().entry(key).or_insert(value.clone());
    }
    for port in spec["ports"].as_array_mut().unwrap() {
        port["targetPort"] = port["port"].clone();
    }
}

#[test]
fn a_service_comes_along_with_its_ports_and_endpoints_and_nothing_else() {
    let mut scene = scene();
    assert_eq!(scene.settle(), ["create services", "create endpointslices"]);
    let copy = scene.copy().clone();
    assert_eq!(copy["metadata"]["labels"].as_object().unwrap().len(), 3, "only the stamp");
    assert_eq!(
        copy["spec"],
        json!({
            "type": "ClusterIP", "clusterIP": "10.96.0.9", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
            "ports": [
                {"name": "http", "protocol": "TCP", "port": 80, "targetPort": 80, "appProtocol": "http"},
                {"name": "dns", "protocol": "UDP", "port": 53, "targetPort": 53},
            ],
        })
    );
    let slice = scene.copied_slice().clone();
    let labels = json!({
        labels::MANAGED_BY: "kubeocean", labels::BINDING_UID: "b-1", labels::VIRTUAL_CLUSTER_UID: "v-1",
        SERVICE_NAME: service_name().as_str(), "endpointslice.kubernetes.io/managed-by": "kubeocean",
    });
    assert_eq!(slice["metadata"]["labels"], labels);
    assert_eq!(
        slice["endpoints"],
        json!([
            {"addresses": ["10.244.0.7"], "conditions": {"ready": true, "serving": true, "terminating": false}},
            {"addresses": ["10.244.0.8"], "conditions": {"ready": false}, "hostname": "shop-2"},
        ])
    );
    assert_eq!(slice["addressType"], "IPv4");
    assert_eq!(
        slice["ports"],
        json!([
            {"name": "http", "port": 8080, "protocol": "TCP", "appProtocol": "http"},
            {"name": "dns", "port": 5353, "protocol": "UDP"},
        ])
    );
}

#[test]
fn endpoints_that_come_and_go_are_one_write_each() {
    let mut scene = scene();
    scene.settle();
    scene.slice.as_mut().unwrap()["endpoints"][1]["conditions"]["ready"] = true.into();
    assert_eq!(scene.settle(), ["patch endpointslices"]);
    scene.slice.as_mut().unwrap()["endpoints"] = Value::Null;
    assert_eq!(scene.settle(), ["patch endpointslices"]);
    scene.slice.as_mut().unwrap()["endpoints"] = json!([]);
    assert_eq!(scene.settle(), [""; 0], "as few as before");
    scene.slice.as_mut().unwrap()["metadata"]["annotations"] =
        json!({"endpoints.kubernetes.io/last-change": "now"});
    assert_eq!(scene.settle(), [""; 0], "nothing that anybody here reads");
    scene.slice = None;
    assert_eq!(scene.settle(), ["delete endpointslices"]);
}

#[test]
fn a_service_follows_its_original() {
    let mut scene = scene();
    scene.settle();
    scene.spec()["ports"] = json!([{"port": 80}]);
    assert_eq!(scene.settle(), ["patch services"]);
    scene.spec()["ports"] = json!([{"port": 80, "protocol": "TCP", "name": "", "targetPort": 8080}]);
    assert_eq!(scene.settle(), [""; 0], "the same to everybody here");
    scene.spec()["sessionAffinity"] = "ClientIP".into();
    assert_eq!(scene.settle(), ["patch services"]);
    scene.spec()["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": 10800}});
    assert_eq!(scene.settle(), [""; 0], "that is how long it is anyway");
    scene.spec()["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": 60}});
    assert_eq!(scene.settle(), ["patch services"]);
    scene.spec()["sessionAffinity"] = "None".into();
    assert_eq!(scene.settle(), ["patch services"]);
    assert_eq!(scene.copy()["spec"].get("sessionAffinityConfig"), None);
}

#[test]
fn a_headless_service_stays_headless() {
    let mut scene = scene();
    scene.settle();
    scene.spec()["clusterIP"] = "None".into();
    scene.spec()["ipFamilies"] = json!(["IPv4", "IPv6"]);
    scene.slice.as_mut().unwrap()["metadata"]["labels"]["service.kubernetes.io/headless"] = "".into();
    assert_eq!(scene.settle(), ["delete services", "create services", "patch endpointslices"]);
    assert_eq!(scene.copy()["spec"]["clusterIP"], "None");
    assert_eq!(scene.copied_slice()["metadata"]["labels"]["service.kubernetes.io/headless"], "");
    scene.spec()["clusterIP"] = "10.1.2.3".into();
    scene.spec()["ipFamilies"] = json!(["IPv6"]);
    assert_eq!(scene.settle(), ["delete services", "create services"]);
    scene.spec()["ipFamilies"] = json!(["IPv4"]);
    assert_eq!(scene.settle(), ["delete services", "create services"], "an address keeps its family");
}

#[test]
fn slices_of_another_type_of_addresses_are_made_anew() {
    let mut scene = scene();
    scene.settle();
    scene.slice.as_mut().unwrap()["addressType"] = "IPv6".into();
    assert_eq!(scene.settle(), ["delete endpointslices", "create endpointslices"]);
}

#[test]
fn nobody_in_the_worker_cluster_can_put_other_pods_behind_a_service() {
    let mut scene = scene();
    scene.settle();
    let spec = &mut scene.copy()["spec"];
    spec["selector"] = json!({"app": "theirs"});
    spec["externalIPs"] = json!(["1.2.3.4"]);
    spec["type"] = "NodePort".into();
    spec["internalTrafficPolicy"] = "Local".into();
    spec["ports"][0]["nodePort"] = 30000.into();
    scene.copy()["metadata"]["labels"]["theirs"] = "x".into();
    assert_eq!(scene.settle(), ["patch services"]);
    assert_eq!(scene.copy()["spec"].get("selector"), None);
    assert_eq!(scene.copy()["metadata"]["labels"]["theirs"], "x");
    let slice = scene.copied_slice();
    slice["endpoints"][0]["addresses"] = json!(["6.6.6.6"]);
    slice["endpoints"][1]["nodeName"] = "theirs".into();
    slice["metadata"]["labels"][SERVICE_NAME] = "theirs".into();
    assert_eq!(scene.settle(), ["patch endpointslices"]);
    assert_eq!(scene.copied_slice()["endpoints"][0]["addresses"], json!(["10.244.0.7"]));
}

#[test]
fn what_cannot_come_along_says_why_and_what_is_not_wanted_any_more_goes() {
    let mut scene = scene();
    scene.settle();
    scene.spec()["ipFamilies"] = json!(["IPv4", "IPv6"]);
    assert_eq!(scene.plan().1, Some(Skipped::DualStack));
    assert_eq!(scene.settle(), ["delete services", "delete endpointslices"]);
    scene.spec()["type"] = "ExternalName".into();
    let why = scene.plan().1.unwrap();
    assert_eq!(why, Skipped::ExternalName);
    assert_eq!((why.telling().reason, why.telling().warning), ("ServiceSkipped", true));
    let mut scene = self::scene();
    scene.settle();
    scene.is_mirrored = false;
    assert_eq!(scene.settle(), ["delete services", "delete endpointslices"]);
    assert_eq!(scene.plan().1, None);
    let mut scene = self::scene();
    scene.settle();
    scene.service = None;
    assert_eq!(scene.settle(), ["delete services", "delete endpointslices"]);
}

#[test]
fn what_is_not_ours_is_neither_changed_nor_removed() {
    for (key, value) in [(labels::BINDING_UID, "b-2"), (labels::VIRTUAL_CLUSTER_UID, "v-2")] {
        let mut scene = scene();
        scene.settle();
        scene.copy()["metadata"]["labels"][key] = value.into();
        scene.copied_slice()["metadata"]["labels"][key] = value.into();
        scene.spec()["ports"] = json!([{"port": 1}]);
        scene.slice.as_mut().unwrap()["endpoints"] = json!([]);
        assert_eq!(scene.plan().0, []);
        scene.is_mirrored = false;
        assert_eq!(scene.plan().0, []);
    }
    let mut scene = scene();
    scene.settle();
    scene.copy()["metadata"]["deletionTimestamp"] = "2026-11-20T08:00:00Z".into();
    scene.copied_slice()["metadata"]["deletionTimestamp"] = "2026-11-20T08:00:00Z".into();
    scene.is_mirrored = false;
    assert_eq!(scene.plan().0, [], "they go already");
}

#[test]
fn a_star_means_all_namespaces_but_those_of_the_system() {
    let mut binding = binding("b-1");
    let mirrored = |binding: &Binding| -> Vec<&str> {
        let all = ["web", "default", "kube-system", "kubeocean-fake", "installed-here"];
        all.into_iter().filter(|one| is_mirrored(binding, one, "installed-here")).collect()
    };
    assert!(mirrored(&binding).is_empty());
    binding.service_namespaces = ServiceNamespaces::All;
    assert_eq!(mirrored(&binding), ["web", "default"]);
    binding.service_namespaces = ServiceNamespaces::Listed(vec!["kube-system".to_owned(), "web".to_owned()]);
    assert_eq!(mirrored(&binding), ["web", "kube-system"], "whoever names one means it");
}

#[test]
fn a_slice_belongs_to_the_service_that_its_label_names() {
    let meta = |labels: Value| object(&json!({"metadata": {"name": "x", "labels": labels}})).meta;
    assert_eq!(service_of(&meta(json!({SERVICE_NAME: "shop"}))), Some("shop"));
    assert_eq!(service_of(&meta(json!({SERVICE_NAME: ""}))), None);
    assert_eq!(service_of(&meta(json!({}))), None);
}

#[test]
fn odd_shapes_make_nobody_fall_over_and_nothing_is_lost() {
    for shape in nasty() {
        for part in ["", "ports", "ipFamilies", "clusterIP", "sessionAffinityConfig", "type", "selector"] {
            let mut odd = scene();
            odd.settle();
            if part.is_empty() {
                odd.service.as_mut().unwrap()["spec"] = shape.clone();
            } else {
                odd.spec()[part] = shape.clone();
            }
            if odd.plan().1 == Some(Skipped::Unreadable) {
                assert!(odd.plan().0.iter().all(|action| action.kind != kinds::SERVICE));
            }
            odd.worker = Pretend::default();
            let _ = odd.plan();
        }
        for part in ["endpoints", "ports", "addressType"] {
            let mut odd = scene();
            odd.settle();
            odd.slice.as_mut().unwrap()[part] = shape.clone();
            for action in odd.plan().0 {
                assert!(!matches!(action.verb, Verb::Delete { .. }) || part == "addressType", "{action}");
            }
            odd.slice = scene().slice;
            odd.copied_slice()[part] = shape.clone();
            let _ = odd.plan();
        }
    }
}
