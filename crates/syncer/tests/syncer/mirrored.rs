//! Services of V in the worker cluster, and what pods there are told of the computing cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kubeocean_api::keys::annotations;
use kubeocean_model::leasing::SYNCER;
use kubeocean_testkit::Right;
use serde_json::{Value, json};

use crate::kubelet::virtual_name;
use crate::pods::leased;
use crate::scene::{BINDING, MERGE, MOUNT, Scene, Setting, collection, label, text};
use crate::simulated::{calm_in, wait};

const SERVICE_NAME: &str = "kubernetes.io/service-name";

impl Scene {
    pub(crate) fn service(&self, name: &str, spec: Value) {
        let mut spec = spec;
        if spec["ports"].is_null() {
            spec["ports"] = json!([{"name": "http", "port": 80, "protocol": "TCP"}]);
        }
        spec["selector"] = json!({"app": name});
        self.make(&self.virt, "services", "web", json!({"metadata": {"name": name}, "spec": spec}));
    }

    pub(crate) fn slice(&self, name: &str, service: &str, address: &str) {
        let body = json!({
            "metadata": {"name": name, "labels": {SERVICE_NAME: service}},
            "addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            "endpoints": [{"addresses": [address], "conditions": {"ready": true}, "nodeName": "v"}],
        });
        if self.make(&self.virt, "endpointslices", "web", body.clone()) == 409 {
            self.patch(&self.virt, "endpointslices", "web", name, json!({"endpoints": body["endpoints"]}));
        }
    }

    /// Someone makes, changes or removes a Service, its endpoints, or what P has of them.
    pub(crate) fn change_services(&self, draw: u64) {
        let name = format!("s{}", draw >> 4 & 1);
        match draw & 15 {
            0 => self.remove(&self.virt, "services", "web", &name),
            1 => self.remove(&self.virt, "endpointslices", "web", &name),
            2 => {
                for one in self.ours_in_p("services") {
                    self.remove(&self.phys, "services", MOUNT, text(&one, "/metadata/name"));
                }
            }
            3 => {
                for one in self.ours_in_p("endpointslices") {
                    self.remove(&self.phys, "endpointslices", MOUNT, text(&one, "/metadata/name"));
                }
            }
            4 => {
                let ports = json!([{"name": "http", "port": 80 + (draw >> 8 & 3), "protocol": "TCP"}]);
                self.patch(&self.virt, "services", "web", &name, json!({"spec": {"ports": ports}}));
            }
            5 => {
                let listed = if draw >> 8 & 1 == 1 { json!(["web"]) } else { json!([]) };
                let body = json!({"spec": {"serviceNamespaces": listed}});
                self.patch(&self.virt, "clusterbindings", "", BINDING, body);
            }
            6 => self.service(&name, json!({"clusterIP": "None"})),
            7..=10 => self.service(&name, json!({})),
            _ => self.slice(&name, &name, &format!("10.1.0.{}", draw >> 8 & 3)),
        }
    }

    /// What is wrong with Services at rest.
    pub(crate) fn services_at_rest(&self) -> Result<(), String> {
        let binding = self.virt.server.get("clusterbindings", "", BINDING).unwrap_or_default();
        let is_mirrored = binding["spec"]["serviceNamespaces"] == json!(["web"]);
        let named = |one: &Value| {
            one["metadata"]["annotations"][annotations::VIRTUAL_NAME].as_str().map(str::to_owned)
        };
        let by_name = |all: Vec<Arc<Value>>| -> BTreeMap<String, Arc<Value>> {
            all.into_iter().filter_map(|one| Some((named(&one)?, one))).collect()
        };
        let mut originals = self.virt.server.list("services", Some("web"));
        originals.retain(|_| is_mirrored);
        let copies = by_name(self.ours_in_p("services"));
        for original in &originals {
            let name = text(original, "/metadata/name");
            let Some(copy) = copies.get(name) else { return Err(format!("service {name} has no copy")) };
            if copy["spec"]["ports"][0]["port"] != original["spec"]["ports"][0]["port"] {
                return Err(format!("service {name} has ports {}", copy["spec"]["ports"]));
            }
            if !copy["spec"]["selector"].is_null() {
                return Err(format!("service {name} has a selector"));
            }
        }
        if copies.len() != originals.len() {
            return Err(format!("{} services instead of {}", copies.len(), originals.len()));
        }
        let has_service = |slice: &&Arc<Value>| {
            let of = label(slice, SERVICE_NAME);
            originals.iter().any(|service| text(service, "/metadata/name") == of)
        };
        let slices = self.virt.server.list("endpointslices", Some("web"));
        let slices: Vec<_> = slices.iter().filter(has_service).collect();
        let copies = by_name(self.ours_in_p("endpointslices"));
        for slice in &slices {
            let name = text(slice, "/metadata/name");
            let addresses = |one: &Value| one["endpoints"][0]["addresses"].clone();
            let copy = copies.get(name).map(|copy| addresses(copy));
            if copy.as_ref() != Some(&addresses(slice)) {
                return Err(format!("slice {name} is {copy:?}"));
            }
        }
        if copies.len() != slices.len() {
            return Err(format!("{} slices instead of {}", copies.len(), slices.len()));
        }
        Ok(())
    }

    fn variables(&self, pod: &str) -> BTreeMap<String, String> {
        let twins = self.ours_in_p("pods");
        let twin = twins.iter().find(|twin| virtual_name(twin) == pod).unwrap();
        let env = twin["spec"]["containers"][0]["env"].as_array().cloned().unwrap_or_default();
        env.iter().map(|one| (text(one, "/name").to_owned(), text(one, "/value").to_owned())).collect()
    }

    fn hosts(&self, pod: &str) -> String {
        let twins = self.ours_in_p("pods");
        let twin = twins.iter().find(|twin| virtual_name(twin) == pod).unwrap();
        twin["spec"]["hostAliases"].to_string()
    }

    fn reasons(&self, about: &str) -> Vec<String> {
        let all = self.virt.server.list("events", None);
        let mine = all.iter().filter(|event| text(event, "/involvedObject/name") == about);
        mine.map(|event| text(event, "/reason").to_owned()).collect()
    }
}

#[test]
fn a_service_is_reached_in_the_worker_at_the_address_that_it_has_there() {
    leased(async |scene| {
        scene.service("db", json!({}));
        scene.slice("db-1", "db", "10.1.0.1");
        scene.pod("a", "vnode-c1-n1", json!({}));
        scene.until_phase("a", "Running").await;
        wait(scene, "mirrored", 10, || scene.services_at_rest()).await;
        let [copy] = scene.ours_in_p("services").try_into().unwrap();
        let address = text(&copy, "/spec/clusterIP");
        assert_eq!(scene.variables("a")["DB_SERVICE_HOST"], address);
        assert!(scene.hosts("a").contains(address) && scene.hosts("a").contains("db.web.svc"));
        let [slice] = scene.ours_in_p("endpointslices").try_into().unwrap();
        assert_eq!(label(&slice, SERVICE_NAME), text(&copy, "/metadata/name"));
        assert!(slice["endpoints"][0]["nodeName"].is_null(), "V's nodes mean nothing there");
        // Endpoints come and go.
        scene.slice("db-1", "db", "10.1.0.2");
        wait(scene, "followed", 2, || scene.services_at_rest()).await;
        scene.remove(&scene.phys, "services", MOUNT, text(&copy, "/metadata/name"));
        wait(scene, "made again", 5, || scene.services_at_rest()).await;
        scene.remove(&scene.virt, "services", "web", "db");
        wait(scene, "gone", 5, || scene.services_at_rest()).await;
        assert!(scene.ours_in_p("endpointslices").is_empty());
    });
}

#[test]
fn a_service_that_comes_after_its_pods_says_that_they_have_to_be_restarted() {
    leased(async |scene| {
        scene.pod("a", "vnode-c1-n1", json!({}));
        scene.until_phase("a", "Running").await;
        scene.service("late", json!({}));
        scene.service("elsewhere", json!({"type": "ExternalName", "externalName": "example.com"}));
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(scene.reasons("late"), ["ServiceAfterPods"]);
        assert_eq!(scene.reasons("elsewhere"), ["ServiceSkipped"]);
    });
}

#[test]
fn pods_start_where_services_may_not_be_made() {
    leased(async |scene| {
        scene.phys.server.forbid(SYNCER, "create", "", "services");
        scene.service("db", json!({}));
        scene.pod("a", "vnode-c1-n1", json!({}));
        scene.until_phase("a", "Running").await;
    });
}

#[test]
fn namespaces_that_are_not_listed_any_more_take_their_services_along() {
    leased(async |scene| {
        scene.service("db", json!({}));
        scene.slice("db-1", "db", "10.1.0.1");
        wait(scene, "mirrored", 10, || scene.services_at_rest()).await;
        assert_eq!(scene.ours_in_p("services").len(), 1);
        for listed in [json!([]), json!(["web"])] {
            let body = json!({"spec": {"serviceNamespaces": listed}});
            scene.patch(&scene.virt, "clusterbindings", "", BINDING, body);
            wait(scene, "followed", 10, || scene.services_at_rest()).await;
        }
        scene.pod("a", "vnode-c1-n1", json!({}));
        scene.until_phase("a", "Running").await;
        scene.remove(&scene.virt, "clusterbindings", "", BINDING);
        wait(scene, "unbound", 900, || scene.at_rest()).await;
        let left = ["services", "endpointslices"].map(|plural| scene.ours_in_p(plural).len());
        assert_eq!(left, [0; 2]);
    });
}

#[test]
fn pods_are_told_where_the_computing_cluster_is_and_people_if_nobody_knows() {
    leased(async |scene| {
        scene.pod("before", "vnode-c1-n1", json!({}));
        scene.pod("too", "vnode-c1-n1", json!({}));
        scene.until_phase("before", "Running").await;
        scene.until_phase("too", "Running").await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let unknown = |reason: &&String| *reason == "ComputingClusterUnknown";
        assert_eq!(scene.reasons(BINDING).iter().filter(unknown).count(), 1, "said once");
        assert!(!scene.variables("before").contains_key("KUBERNETES_SERVICE_HOST"));
        for (namespace, name, port, address) in [
            ("default", "kubernetes-intranet", 6443, "10.9.0.1"),
            ("kube-system", "kube-dns-intranet", 53, "10.9.0.53"),
        ] {
            let spec = json!({"type": "LoadBalancer", "ports": [{"name": "p", "port": port}]});
            scene.make(&scene.virt, "services", namespace, json!({"metadata": {"name": name}, "spec": spec}));
            let body = json!({"status": {"loadBalancer": {"ingress": [{"ip": address}]}}});
            let place = format!("{}/{name}/status", collection("services", namespace));
            scene.virt.server.call("user", "PATCH", &place, MERGE, Some(body));
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        scene.pod("after", "vnode-c1-n1", json!({}));
        scene.until_phase("after", "Running").await;
        let variables = scene.variables("after");
        assert_eq!(variables["KUBERNETES_SERVICE_HOST"], "10.9.0.1");
        assert_eq!(variables["KUBERNETES_SERVICE_PORT"], "6443");
        let twins = scene.ours_in_p("pods");
        let twin = twins.iter().find(|twin| virtual_name(twin) == "after").unwrap();
        assert_eq!(twin["spec"]["dnsConfig"]["nameservers"], json!(["10.9.0.53"]));
        assert_eq!(scene.reasons(BINDING).iter().filter(unknown).count(), 1);
    });
}

#[test]
fn a_syncer_that_is_kept_to_some_namespaces_runs_and_reads_nothing_of_others() {
    calm_in(
        Setting { namespaces: &["web", "shop"], ..Setting::default() },
        |scene| {
            scene.policy(&scene.phys, "all", json!({}));
            for namespace in ["shop", "other"] {
                scene.make(&scene.virt, "namespaces", "", json!({"metadata": {"name": namespace}}));
                let settings = json!({"metadata": {"name": "settings"}, "data": {"a": namespace}});
                scene.make(&scene.virt, "configmaps", namespace, settings);
            }
            // Neither there nor everywhere.
            for resource in ["configmaps", "secrets", "persistentvolumeclaims", "services", "endpointslices"]
            {
                scene.virt.server.deny(SYNCER, Right::to("*", resource).within("other"));
            }
        },
        async |scene| {
            wait(scene, "leased", 20, || scene.at_rest()).await;
            for namespace in ["shop", "other"] {
                let spec = json!({
                    "nodeName": "vnode-c1-n1", "automountServiceAccountToken": false,
                    "containers": [{"name": "c", "image": "i"}],
                    "volumes": [{"name": "s", "configMap": {"name": "settings"}}],
                });
                let name = format!("in-{namespace}");
                let pod = json!({"metadata": {"name": name}, "spec": spec});
                assert_eq!(scene.make(&scene.virt, "pods", namespace, pod), 201);
            }
            scene.service("db", json!({}));
            scene.pod("a", "vnode-c1-n1", json!({}));
            scene.until_phase("a", "Running").await;
            let phase = |namespace: &str| {
                let pod = scene.virt.server.get("pods", namespace, &format!("in-{namespace}"));
                pod.map(|pod| text(&pod, "/status/phase").to_owned())
            };
            wait(scene, "runs", 20, || match phase("shop").as_deref() {
                Some("Running") => Ok(()),
                other => Err(format!("{other:?}")),
            })
            .await;
            assert_eq!(phase("other").as_deref(), Some("Pending"));
            assert_eq!(scene.reasons("in-other"), ["NotMapped"]);
            assert_eq!(scene.ours_in_p("services").len(), 1);
            assert_eq!(scene.ours_in_p("configmaps").len(), 1);
        },
    );
}

#[test]
fn a_worker_that_hides_what_pods_need_is_told_which_right_is_missing() {
    leased(async |scene| {
        scene.phys.server.forbid(SYNCER, "*", "", "configmaps");
        scene.phys.server.drop_watches();
        wait(scene, "told", 60, || {
            let all = scene.virt.server.list("events", None);
            let told = all.iter().find(|event| text(event, "/reason") == "NotReadable");
            let message = told.map(|event| text(event, "/message").to_owned()).unwrap_or_default();
            let says = ["configmaps", "bring along what pods refer to", "get, list, watch"];
            if says.iter().all(|word| message.contains(word)) { Ok(()) } else { Err(message) }
        })
        .await;
        // What is stale is not acted upon, and what needs none of it waits.
        scene.phys.server.allow_all();
        scene.pod("a", "vnode-c1-n1", json!({}));
        scene.until_phase("a", "Running").await;
    });
}
