//! One life of a pod with all that it needs; the syncer dies at every write of it.

use std::time::Duration;

use futures::FutureExt as _;
use kubeocean_cluster::together::until_one_ends;
use kubeocean_model::leasing::SYNCER;
use kubeocean_testkit::chaos::Profile;
use kubeocean_testkit::crash::{self, Crash, Ending};
use kubeocean_testkit::simulation::{World, run};
use kubeocean_testkit::test;
use serde_json::json;

use crate::scene::{BINDING, MOUNT, REST_WITHIN, Scene, Setting, text};

async fn life(world: World, crash: Crash) -> Scene {
    // Time passes between the end of one life and the first write of the next.
    let profile = Profile { slow: Duration::from_millis(2), ..Profile::calm() };
    let setting = Setting { nodes: &["n1"], ..Setting::default() };
    let mut scene = Scene::set(&world, |_| profile.clone(), setting);
    scene.renew_every = Duration::from_secs(3600);
    let scene = scene;
    let rest = || async {
        scene.world.oracle.rest(REST_WITHIN, || scene.at_rest()).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
    };
    let course = async {
        scene.policy(&scene.phys, "all", json!({}));
        rest().await;
        let secret = json!({"metadata": {"name": "key"}, "data": {"k": "cw=="}});
        scene.make(&scene.virt, "secrets", "web", secret);
        let settings = json!({"metadata": {"name": "settings"}, "data": {"a": "1"}});
        scene.make(&scene.virt, "configmaps", "web", settings);
        scene.claim("disk");
        let reference = json!({"name": "key", "namespace": "web"});
        let csi =
            json!({"csi": {"driver": "d.example", "volumeHandle": "1", "nodeStageSecretRef": reference}});
        scene.bind_claim("disk", csi);
        scene.service("db", json!({}));
        scene.slice("db-1", "db", "10.1.0.1");
        rest().await;
        let volumes = json!([
            {"name": "d", "persistentVolumeClaim": {"claimName": "disk"}},
            {"name": "s", "configMap": {"name": "settings"}},
        ]);
        let spec = json!({"volumes": volumes, "automountServiceAccountToken": true});
        scene.pod("a", "vnode-c1-n1", spec.clone());
        scene.pod("job", "vnode-c1-n1", json!({"restartPolicy": "Never", "volumes": volumes}));
        rest().await;
        scene.patch(&scene.virt, "configmaps", "web", "settings", json!({"data": {"a": "2"}}));
        scene.patch(&scene.virt, "pods", "web", "a", json!({"metadata": {"labels": {"new": "yes"}}}));
        scene.slice("db-1", "db", "10.1.0.2");
        rest().await;
        scene.remove(&scene.virt, "pods", "web", "job");
        scene.remove(&scene.virt, "services", "web", "db");
        rest().await;
        scene.remove(&scene.virt, "pods", "web", "a");
        rest().await;
        scene.service("db", json!({}));
        scene.pod("a", "vnode-c1-n1", spec);
        rest().await;
        for twin in scene.ours_in_p("pods") {
            scene.remove(&scene.phys, "pods", MOUNT, text(&twin, "/metadata/name"));
        }
        rest().await;
        scene.remove(&scene.virt, "clusterbindings", "", BINDING);
        scene.comes_to_rest().await;
    };
    let living = crash.survive(|| {
        let layer = crash.layer();
        let scene = &scene;
        async move { scene.sync(Some(&layer)).await }
    });
    until_one_ends([living.boxed_local(), scene.others().boxed_local(), course.boxed_local()]).await;
    scene
}

#[test]
fn a_pod_and_what_it_needs_end_as_they_should_wherever_the_syncer_dies() {
    let enumerated = crash::hunt(test!(), |crash| {
        let (ending, violations) = run(7, |world| async move {
            let scene = life(world, crash).await;
            let kinds = [
                "clusterbindings",
                "pods",
                "configmaps",
                "secrets",
                "persistentvolumeclaims",
                "services",
                "endpointslices",
            ];
            let servers = [("V", &scene.virt.server), ("P", &scene.phys.server)];
            let mut ending = Ending::of(&servers, &kinds, SYNCER);
            // What was told twice was told. Tokens are named by the uid of their pod. A pod that runs once may have been about to: then it does not.
            let told = |line: &str| line.contains(" events ") || line.contains("P secrets mount/a-");
            ending.summary.retain(|line, _| !told(line) && !line.contains("/job-"));
            ending
        });
        violations.first().map_or(Ok(ending), |violation| Err(violation.to_string()))
    });
    println!("crash points of a pod's life: {} of {} writes", enumerated.points, enumerated.writes);
    assert!(enumerated.writes >= 40, "{enumerated:?}");
}
