//! Names that strangers have in the worker cluster: they keep them, what is made for V gets another one, and people hear of it once.

use kubeocean_api::keys::annotations;
use kubeocean_model::naming::Origin;
use serde_json::{Value, json};

use crate::pods::leased;
use crate::scene::{MOUNT, Scene, label, text};
use crate::simulated::wait;

fn first_name(name: &str) -> String {
    Origin::Object { namespace: "web", name }.physical_name().to_string()
}

impl Scene {
    /// What is told about names that are taken, of one object.
    fn told_of_taken_names(&self, about: &str) -> Vec<String> {
        let all = self.virt.server.list("events", None);
        let is_it = |one: &Value| one["reason"] == "NameTaken" && text(one, "/involvedObject/name") == about;
        all.iter().filter(|one| is_it(one)).map(|one| text(one, "/message").to_owned()).collect()
    }

    fn copy_of(&self, plural: &str, name: &str) -> Value {
        let of =
            |one: &&std::sync::Arc<Value>| one["metadata"]["annotations"][annotations::VIRTUAL_NAME] == name;
        self.ours_in_p(plural).iter().find(of).map(|one| Value::clone(one)).unwrap_or_default()
    }
}

#[test]
fn a_service_whose_name_is_taken_says_so_and_is_reached_under_another() {
    leased(async |scene| {
        let ports = json!([{"name": "http", "port": 80, "protocol": "TCP"}]);
        let theirs = json!({"metadata": {"name": first_name("db")}, "spec": {"ports": ports}});
        assert_eq!(scene.make(&scene.phys, "services", MOUNT, theirs), 201);
        let theirs = json!({
            "metadata": {"name": first_name("db-1")}, "addressType": "IPv4", "endpoints": [],
        });
        assert_eq!(scene.make(&scene.phys, "endpointslices", MOUNT, theirs), 201);
        scene.service("db", json!({}));
        scene.slice("db-1", "db", "10.1.0.1");
        wait(scene, "mirrored", 10, || scene.services_at_rest()).await;
        let (service, slice) = (scene.copy_of("services", "db"), scene.copy_of("endpointslices", "db-1"));
        assert_ne!(text(&service, "/metadata/name"), first_name("db"));
        assert_ne!(text(&slice, "/metadata/name"), first_name("db-1"));
        assert_eq!(label(&slice, "kubernetes.io/service-name"), text(&service, "/metadata/name"));
        let told = scene.told_of_taken_names("db");
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told.iter().any(|said| said.starts_with(&format!("Service {} ", first_name("db")))),
            "{told:?}"
        );
        assert!(
            told.iter().any(|said| said.starts_with(&format!("EndpointSlice {} ", first_name("db-1")))),
            "{told:?}"
        );
        scene.pod("a", "vnode-c1-n1", json!({}));
        scene.until_phase("a", "Running").await;
        scene.remove(&scene.virt, "services", "web", "db");
        wait(scene, "gone", 5, || scene.services_at_rest()).await;
        assert!(scene.phys.server.get("services", MOUNT, &first_name("db")).is_some());
        assert!(scene.phys.server.get("endpointslices", MOUNT, &first_name("db-1")).is_some());
    });
}

#[test]
fn a_pod_hears_that_the_worker_does_not_let_in_what_it_uses() {
    use kubeocean_model::leasing::SYNCER;
    use kubeocean_testkit::{Refusal, Right};
    for plural in ["configmaps", "secrets"] {
        leased(async |scene| {
            scene.phys.server.refuse(SYNCER, Right::to("create", plural).within(MOUNT), Refusal::Quota);
            scene.make(
                &scene.virt,
                "configmaps",
                "web",
                json!({"metadata": {"name": "settings"}, "data": {"a": "1"}}),
            );
            scene.make(
                &scene.virt,
                "secrets",
                "web",
                json!({"metadata": {"name": "key"}, "data": {"k": "cw=="}}),
            );
            let volumes = json!([
                {"name": "c", "configMap": {"name": "settings"}}, {"name": "s", "secret": {"secretName": "key"}},
            ]);
            scene.pod("a", "vnode-c1-n1", json!({"volumes": volumes}));
            wait(scene, "told", 10, || {
                let all = scene.virt.server.list("events", Some("web"));
                let of_pod = |one: &&std::sync::Arc<Value>| text(one, "/involvedObject/name") == "a";
                let told: Vec<&str> = all.iter().filter(of_pod).map(|one| text(one, "/message")).collect();
                if told.iter().any(|said| said.contains("exceeded quota")) {
                    Ok(())
                } else {
                    Err(format!("{told:?}"))
                }
            })
            .await;
            assert!(scene.twin("a").is_none());
            scene.phys.server.accept(SYNCER);
            wait(scene, "it runs", 330, || {
                let pod = scene.get_pod("a").unwrap();
                if text(&pod, "/status/phase") == "Running" { Ok(()) } else { Err(pod["status"].to_string()) }
            })
            .await;
        });
    }
}
