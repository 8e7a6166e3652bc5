//! Pods on virtual nodes, as people use them: each story in a namespace of its own, all of them at once, on one worker cluster that two
//! bindings share.

use std::time::{Duration, Instant};

use kubeocean_api::keys::names::WORKER_NAMESPACE;
use kubeocean_api::keys::reasons::{Event, Pod as Reason};
use kubeocean_api::keys::{annotations, labels, taints};
use serde_json::{Value, json};

use super::changed::what_changes_of_a_pod_changes_of_its_twin;
use super::place::{apply, condition, get, request, text};
use super::vnodes::{all_are, policies, policy, syncer_as, taints as keys};
use super::workloads::{Pool, job, lent, pod, settings, wanted, workload};
use crate::access::until;

const W1: (&str, usize) = ("w1", 3);
const W2: (&str, usize) = ("w2", 1);

const CONFIG_MAPS: &str = "/api/v1/namespaces/{}/configmaps";
const SECRETS: &str = "/api/v1/namespaces/{}/secrets";
const CLAIMS: &str = "/api/v1/namespaces/{}/persistentvolumeclaims";

const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// From a change in the computing cluster to the copy: a second is the rule; a machine with other things to do gets more.
const FLOWS_WITHIN: Duration = Duration::from_secs(5);

/// The numbers are a thousand pods (`KUBEOCEAN_PODS`) and two hundred completions (`KUBEOCEAN_COMPLETIONS`).
const PODS: usize = 40;
const COMPLETIONS: usize = 20;

#[tokio::test]
async fn pods_on_virtual_nodes_run_in_the_worker_cluster_and_leave_nothing_behind() {
    let pool = Pool::new(&[W1, W2]).await;
    let syncers = [W1, W2].map(|(name, _)| syncer_as(&pool.place, &pool.accounts[name], name, name));
    tokio::join!(pool.usable(W1), pool.usable(W2));
    let began = Instant::now();
    let (rolled, flowed, worked, ..) = tokio::join!(
        a_deployment_rolls_and_shrinks_to_nothing(&pool),
        what_a_pod_uses_comes_with_it_and_stays_current(&pool),
        a_job_ends_and_no_pod_of_it_runs_twice(&pool),
        volumes_come_along_where_the_lender_lets_them(&pool),
        a_gate_of_the_computing_cluster_decides(&pool),
        a_kill_for_want_of_memory_is_told_as_it_is(&pool),
        a_daemon_runs_where_it_was_asked_for(&pool),
        nobody_gets_past_the_scheduler(&pool),
        two_bindings_share_a_config_map(&pool),
        a_namespace_goes_with_everything_in_it(&pool),
        what_changes_of_a_pod_changes_of_its_twin(&pool),
    );
    a_closed_node_takes_nobody(&pool).await;
    pool.nothing_left("").await;
    println!("{rolled}\n{flowed}\n{worked}\nall stories took {:.1?}", began.elapsed());
    for mut syncer in syncers {
        assert!(syncer.is_running(), "{}", syncer.said());
        // Namespaces that go take nothing new, whoever asks.
        let lacks = |write: &Value| {
            let outcome = text(&write["outcome"]);
            outcome.starts_with("forbidden") && !outcome.contains("is being terminated")
        };
        let refused: Vec<Value> = syncer.writes().into_iter().filter(lacks).collect();
        assert!(refused.is_empty(), "more rights were wanted than are shipped: {refused:#?}");
    }
    println!("{} pods had one twin each", pool.stop().await);
}

/// A kubelet says that a container was killed since it took too much memory, and how often: the pod says the same.
async fn a_kill_for_want_of_memory_is_told_as_it_is(pool: &Pool) {
    let ns = "starves";
    pool.namespace(ns).await;
    let app = pod("app", &json!({}));
    pool.apply(ns, &app).await;
    let pairs = pool.agree(ns, 1, "Running").await;
    let mut status = pairs[0].1["status"]["containerStatuses"][0].clone();
    let (began, ended) = ("2026-11-01T08:00:00Z", "2026-11-01T08:05:00Z");
    let killed = json!({
        "reason": "OOMKilled", "exitCode": 137, "startedAt": began, "finishedAt": ended, "containerID": "containerd://before",
    });
    status["restartCount"] = 3.into();
    status["lastState"] = json!({"terminated": killed});
    let twin = text(&pairs[0].1["metadata"]["name"]);
    let path = format!("/api/v1/namespaces/{WORKER_NAMESPACE}/pods/{twin}/status");
    let said = json!({"status": {"containerStatuses": [status]}});
    request(&pool.phys, "PATCH", &path, STRATEGIC, &said).await.unwrap();
    until("the pod says what its kubelet says", async || {
        let now = pool.read(ns, &app).await?;
        let told = &now["status"]["containerStatuses"][0];
        if told["lastState"]["terminated"] == killed && told["restartCount"] == 3 {
            Ok(())
        } else {
            Err(told.to_string())
        }
    })
    .await;
    pool.delete(ns, &app).await;
    pool.nothing_left(ns).await;
}

/// A Deployment is available, is rolled over to another image, and scaled to nothing.
async fn a_deployment_rolls_and_shrinks_to_nothing(pool: &Pool) -> String {
    let (ns, count) = ("rolls", wanted("KUBEOCEAN_PODS", PODS));
    pool.namespace(ns).await;
    let deployment = |replicas: usize, image: &str| {
        workload("Deployment", "web", replicas, &json!({"containers": [{"name": "c", "image": image}]}))
    };
    let available = async |image: &str| {
        pool.apply(ns, &deployment(count, image)).await;
        let began = Instant::now();
        until("the Deployment is available", async || {
            let now = pool.read(ns, &deployment(0, "")).await?;
            let status = &now["status"];
            let done = status["observedGeneration"] == now["metadata"]["generation"]
                && ["availableReplicas", "updatedReplicas", "replicas"]
                    .iter()
                    .all(|field| status[field] == count);
            if done { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
        began.elapsed()
    };
    let created = available("i:1").await;
    for (pod, twin) in pool.agree(ns, count, "Running").await {
        let meta = &twin["metadata"];
        assert_eq!(meta["namespace"], WORKER_NAMESPACE);
        assert_eq!(meta["labels"][labels::WORKLOAD_NAME], "web", "{meta:#}");
        assert_eq!(condition(&pod, "Ready")["status"], "True", "{pod:#}");
        let node = text(&pod["spec"]["nodeName"]);
        assert!(node.ends_with(&*text(&twin["spec"]["nodeName"])), "{node}: {twin:#}");
        // Nothing of the lender's own: neither its service account nor a token of it.
        assert_eq!(twin["spec"]["automountServiceAccountToken"], false, "{twin:#}");
    }
    let rolled = available("i:2").await;
    for (_, twin) in pool.agree(ns, count, "Running").await {
        assert_eq!(twin["spec"]["containers"][0]["image"], "i:2");
    }
    let began = Instant::now();
    pool.apply(ns, &deployment(0, "i:2")).await;
    pool.nothing_left(ns).await;
    let took = format!(
        "{count} pods: available after {created:.1?}, rolled over in {rolled:.1?}, gone in {:.1?}",
        began.elapsed()
    );
    pool.delete(ns, &deployment(0, "")).await;
    took
}

/// A pod waits for what it uses, has it, and sees what changes; copies go with it.
async fn what_a_pod_uses_comes_with_it_and_stays_current(pool: &Pool) -> String {
    let ns = "uses";
    pool.namespace(ns).await;
    let volumes = json!([
        {"name": "config", "configMap": {"name": "config"}},
        {"name": "secret", "secret": {"secretName": "secret"}},
        {"name": "perhaps", "configMap": {"name": "never-there", "optional": true}},
    ]);
    let app = pod("app", &json!({"volumes": volumes}));
    pool.apply(ns, &app).await;
    let said = pool.told(ns, "app", Event::DependencyMissing.as_str()).await;
    assert!(said.contains("config") || said.contains("secret"), "{said}");
    assert!(pool.twins_of(ns).await.unwrap().is_empty());
    let config = |value: &str| settings("ConfigMap", "config", value);
    let secret = |value: &str| settings("Secret", "secret", value);
    pool.apply(ns, &config("one")).await;
    pool.apply(ns, &secret("one")).await;
    pool.apply(ns, &settings("ConfigMap", "nobody-uses-this", "x")).await;
    let pairs = pool.agree(ns, 1, "Running").await;
    let twin = &pairs[0].1;
    let its = |volume: &str| {
        let all = twin["spec"]["volumes"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|one| one["name"] == volume).unwrap_or_default()
    };
    let named = [text(&its("config")["configMap"]["name"]), text(&its("secret")["secret"]["secretName"])];

    // What changes is there soon, and what others change in the copy is put right.
    let copied = async |kind: &str, name: &str, field: &str, value: &str| {
        let path = format!("{}/{name}", kind.replace("{}", WORKER_NAMESPACE));
        let began = Instant::now();
        until("the copy is as it should be", async || {
            let copy = get(&pool.phys, &path).await?;
            if copy[field]["key"] == value { Ok(()) } else { Err(copy.to_string()) }
        })
        .await;
        began.elapsed()
    };
    copied(CONFIG_MAPS, &named[0], "data", "one").await;
    let mut flowed = Vec::new();
    for (new, kind, name, value) in
        [(config("two"), CONFIG_MAPS, &named[0], "two"), (secret("two"), SECRETS, &named[1], "dHdv")]
    {
        pool.apply(ns, &new).await;
        flowed.push(copied(kind, name, "data", value).await);
    }
    assert!(flowed.iter().all(|took| *took <= FLOWS_WITHIN), "{flowed:?}");
    let path = format!("{}/{}", CONFIG_MAPS.replace("{}", WORKER_NAMESPACE), named[0]);
    let edit = json!({"data": {"key": "meddled"}, "metadata": {"annotations": {"mine": "yes"}}});
    request(&pool.phys, "PATCH", &path, MERGE, &edit).await.unwrap();
    copied(CONFIG_MAPS, &named[0], "data", "two").await;
    assert_eq!(get(&pool.phys, &path).await.unwrap()["metadata"]["annotations"]["mine"], "yes");
    // Those that are used, and no others. The certificates of the API server come with the token.
    let originals = async |kind: &str| {
        let all = pool.copies(kind, ns).await.unwrap();
        let original = |one: &Value| text(&one["metadata"]["annotations"][annotations::VIRTUAL_NAME]);
        let mut all: Vec<String> = all.iter().map(original).collect();
        all.retain(|name| !name.is_empty() && name != "app");
        all.sort();
        all
    };
    assert_eq!(originals(CONFIG_MAPS).await, ["config", "kube-root-ca.crt"]);
    assert_eq!(originals(SECRETS).await, ["secret"]);

    // Labels and images of a running pod are those of its twin.
    let change = json!({"metadata": {"labels": {"tier": "gold"}}, "spec": {"containers": [{"name": "c", "image": "i:9"}]}});
    let path = format!("/api/v1/namespaces/{ns}/pods/app");
    request(&pool.virt, "PATCH", &path, STRATEGIC, &change).await.unwrap();
    until("the twin has them, too", async || {
        let twin = pool.twins_of(ns).await?.pop().ok_or("no twin")?;
        let has =
            twin["metadata"]["labels"]["tier"] == "gold" && twin["spec"]["containers"][0]["image"] == "i:9";
        if has { Ok(()) } else { Err(twin.to_string()) }
    })
    .await;
    pool.delete(ns, &app).await;
    pool.nothing_left(ns).await;
    format!("a ConfigMap flowed in {:.1?}, a Secret in {:.1?}", flowed[0], flowed[1])
}

/// Every completion is one pod that ran once; what has ended stays so.
async fn a_job_ends_and_no_pod_of_it_runs_twice(pool: &Pool) -> String {
    let (ns, count) = ("works", wanted("KUBEOCEAN_COMPLETIONS", COMPLETIONS));
    pool.namespace(ns).await;
    let job = job("sums", count, count.div_ceil(4));
    pool.apply(ns, &job).await;
    let began = Instant::now();
    let done = until("the Job is complete", async || {
        let job = pool.read(ns, &job).await?;
        if condition(&job, "Complete")["status"] == "True" { Ok(job) } else { Err(job["status"].to_string()) }
    })
    .await;
    let took = format!("a Job with {count} completions took {:.1?}", began.elapsed());
    assert_eq!(done["status"]["succeeded"], count, "{:#}", done["status"]);
    assert!(done["status"]["failed"].is_null() || done["status"]["failed"] == 0, "{:#}", done["status"]);
    let pods = pool.pods(ns).await.unwrap();
    assert_eq!(pods.len(), count, "one pod per completion");
    assert!(pods.iter().all(|pod| pod["status"]["phase"] == "Succeeded"));
    pool.delete(ns, &job).await;
    pool.nothing_left(ns).await;
    took
}

/// A volume with room for a claim of this name, of this kind.
fn volume(ns: &str, claim: &str, source: &Value) -> Value {
    let mut volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("{ns}-{claim}")},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": ns, "name": claim},
        },
    });
    for (field, value) in source.as_object().unwrap() {
        volume["spec"][field] = value.clone();
    }
    volume
}

fn claim_spec() -> Value {
    json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}})
}

/// A `StatefulSet` has its volumes in the worker cluster; a directory of a node is not the borrower's to mount.
async fn volumes_come_along_where_the_lender_lets_them(pool: &Pool) {
    let ns = "keeps";
    pool.namespace(ns).await;
    let sources = [
        ("data-db-0", json!({"csi": {"driver": "disk.example.com", "volumeHandle": "d-0"}})),
        ("data-db-1", json!({"nfs": {"server": "192.0.2.1", "path": "/exports/1"}})),
        ("here", json!({"hostPath": {"path": "/etc"}})),
    ];
    let volumes: Vec<Value> = sources.iter().map(|(claim, source)| volume(ns, claim, source)).collect();
    for volume in &volumes {
        pool.apply("", volume).await;
    }
    let mount = json!({"containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]});
    let mut set = workload("StatefulSet", "db", 2, &mount);
    set["spec"]["serviceName"] = "db".into();
    set["spec"]["persistentVolumeClaimRetentionPolicy"] =
        json!({"whenDeleted": "Delete", "whenScaled": "Delete"});
    set["spec"]["volumeClaimTemplates"] = json!([{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": claim_spec()}]);
    pool.apply(ns, &set).await;
    let pairs = pool.agree(ns, 2, "Running").await;
    for (pod, twin) in &pairs {
        let all = twin["spec"]["volumes"].as_array().unwrap();
        let name = all.iter().find_map(|one| one["persistentVolumeClaim"]["claimName"].as_str()).unwrap();
        let path = format!("{}/{name}", CLAIMS.replace("{}", WORKER_NAMESPACE));
        let claim = get(&pool.phys, &path).await.unwrap();
        assert_eq!(claim["status"]["phase"], "Bound", "{claim:#}");
        let path = format!("/api/v1/persistentvolumes/{}", text(&claim["spec"]["volumeName"]));
        let volume = get(&pool.phys, &path).await.unwrap();
        let has = if pod["metadata"]["name"] == "db-0" { "csi" } else { "nfs" };
        assert!(volume["spec"][has].is_object(), "{volume:#}");
        assert_eq!(volume["spec"]["persistentVolumeReclaimPolicy"], "Retain");
    }

    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "here"}, "spec": claim_spec()});
    pool.apply(ns, &claim).await;
    let nosy =
        pod("nosy", &json!({"volumes": [{"name": "here", "persistentVolumeClaim": {"claimName": "here"}}]}));
    pool.apply(ns, &nosy).await;
    let said = pool.told(ns, "nosy", Event::VolumeRefused.as_str()).await;
    assert!(said.contains("hostPath") && said.contains(annotations::ALLOWED_VOLUME_SOURCES), "{said}");
    pool.told(ns, "here", Event::VolumeRefused.as_str()).await;
    assert_eq!(pool.twins_of(ns).await.unwrap().len(), 2);
    pool.delete(ns, &nosy).await;
    pool.delete(ns, &claim).await;
    pool.delete(ns, &set).await;
    pool.nothing_left(ns).await;
    for volume in &volumes {
        pool.delete("", volume).await;
    }
}

/// The worker cluster knows nothing of gates: they are the computing cluster's.
async fn a_gate_of_the_computing_cluster_decides(pool: &Pool) {
    let ns = "gates";
    pool.namespace(ns).await;
    let gated = pod("gated", &json!({"readinessGates": [{"conditionType": "example.com/open"}]}));
    pool.apply(ns, &gated).await;
    let pairs = pool.agree(ns, 1, "Running").await;
    assert!(pairs[0].1["spec"]["readinessGates"].is_null(), "{:#}", pairs[0].1);
    let is = async |ready: &str| {
        until(&format!("its Ready is {ready}"), async || {
            let pod = pool.read(ns, &gated).await?;
            let of = |about: &str| text(&condition(&pod, about)["status"]);
            if of("Ready") == ready && of("ContainersReady") == "True" {
                Ok(())
            } else {
                Err(pod["status"].to_string())
            }
        })
        .await;
    };
    is("False").await;
    for (open, ready) in [("True", "True"), ("False", "False")] {
        let body = json!({"status": {"conditions": [{"type": "example.com/open", "status": open}]}});
        let path = format!("/api/v1/namespaces/{ns}/pods/gated/status");
        request(&pool.virt, "PATCH", &path, STRATEGIC, &body).await.unwrap();
        is(ready).await;
    }
    pool.delete(ns, &gated).await;
    pool.nothing_left(ns).await;
}

/// Daemons of the computing cluster stay there, unless someone wants them on borrowed nodes.
async fn a_daemon_runs_where_it_was_asked_for(pool: &Pool) {
    let (ns, nodes) = ("daemons", W1.1 + W2.1);
    pool.namespace(ns).await;
    let everywhere = json!({"tolerations": [{"operator": "Exists"}]});
    let mut set = workload("DaemonSet", "agent", 0, &everywhere);
    set["spec"]["updateStrategy"] =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}});
    pool.apply(ns, &set).await;
    let said = pool.told(ns, "agent-", Event::NotMapped.as_str()).await;
    assert!(said.contains(annotations::RUNNING_DAEMONSET), "{said}");
    assert!(pool.twins_of(ns).await.unwrap().is_empty());
    set["spec"]["template"]["metadata"]["annotations"] = json!({annotations::RUNNING_DAEMONSET: "true"});
    pool.apply(ns, &set).await;
    pool.agree(ns, nodes, "Running").await;
    pool.delete(ns, &set).await;
    pool.nothing_left(ns).await;
}

/// Who writes the node's name by hand is asked as a kubelet asks.
async fn nobody_gets_past_the_scheduler(pool: &Pool) {
    let ns = "pushes";
    pool.namespace(ns).await;
    let big = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2000"}}}]);
    let fat = pod("fat", &json!({"nodeName": "vnode-w1-sim-1", "containers": big}));
    let thin = pod("thin", &json!({"nodeName": "vnode-w1-sim-1"}));
    pool.apply(ns, &fat).await;
    fails(pool, ns, &fat, "OutOfcpu").await;
    pool.delete(ns, &fat).await;
    pool.apply(ns, &thin).await;
    pool.agree(ns, 1, "Running").await;
    pool.delete(ns, &thin).await;
    pool.nothing_left(ns).await;
}

/// The pod has failed, for this reason, and nothing of it has left the computing cluster.
async fn fails(pool: &Pool, ns: &str, pod: &Value, reason: &str) {
    until(&format!("it fails with {reason}"), async || {
        let status = pool.read(ns, pod).await?["status"].clone();
        if status["phase"] == "Failed" && status["reason"] == reason {
            Ok(())
        } else {
            Err(status.to_string())
        }
    })
    .await;
    for kind in [SECRETS, CONFIG_MAPS, "/api/v1/namespaces/{}/pods"] {
        assert!(pool.copies(kind, ns).await.unwrap().is_empty());
    }
}

/// Each binding has its own copy, current and for as long as it needs it, although both would call it the same.
async fn two_bindings_share_a_config_map(pool: &Pool) {
    let ns = "shared";
    pool.namespace(ns).await;
    pool.apply(ns, &settings("ConfigMap", "both", "one")).await;
    let on = |binding: &str| {
        let selector = json!({labels::PHYSICAL_CLUSTER_ID: binding});
        let volumes = json!([{"name": "v", "configMap": {"name": "both"}}]);
        pod(
            binding,
            &json!({"nodeSelector": selector, "volumes": volumes, "automountServiceAccountToken": false}),
        )
    };
    pool.apply(ns, &on("w1")).await;
    pool.apply(ns, &on("w2")).await;
    pool.agree(ns, 2, "Running").await;
    let copies = async |count: usize, value: &str| {
        until(&format!("{count} copies say {value}"), async || {
            let copies = pool.copies(CONFIG_MAPS, ns).await?;
            let right = copies.iter().all(|copy| copy["data"]["key"] == value);
            if right && copies.len() == count { Ok(copies) } else { Err(format!("{copies:#?}")) }
        })
        .await
    };
    let both = copies(2, "one").await;
    let owner = |copy: &Value| text(&copy["metadata"]["labels"][labels::BINDING_UID]);
    assert_ne!(owner(&both[0]), owner(&both[1]));
    pool.apply(ns, &settings("ConfigMap", "both", "two")).await;
    copies(2, "two").await;
    pool.delete(ns, &on("w1")).await;
    copies(1, "two").await;
    pool.agree(ns, 1, "Running").await;
    pool.delete(ns, &on("w2")).await;
    pool.nothing_left(ns).await;
}

/// A namespace is deleted with all kinds of things in it: it goes, and so does everything in the worker cluster.
async fn a_namespace_goes_with_everything_in_it(pool: &Pool) {
    let ns = "doomed";
    pool.namespace(ns).await;
    let data = "data";
    let volume = volume(ns, data, &json!({"nfs": {"server": "192.0.2.1", "path": "/exports/2"}}));
    pool.apply("", &volume).await;
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": data}, "spec": claim_spec()});
    pool.apply(ns, &claim).await;
    pool.apply(ns, &settings("ConfigMap", "config", "x")).await;
    pool.apply(ns, &settings("Secret", "secret", "x")).await;
    let volumes = json!({"volumes": [
        {"name": "config", "configMap": {"name": "config"}},
        {"name": "secret", "secret": {"secretName": "secret"}},
        {"name": data, "persistentVolumeClaim": {"claimName": data}},
    ]});
    pool.apply(ns, &workload("Deployment", "web", 5, &volumes)).await;
    pool.apply(ns, &workload("StatefulSet", "db", 2, &json!({}))).await;
    pool.agree(ns, 7, "Running").await;
    // This one is still at work.
    pool.apply(ns, &job("sums", 50, 5)).await;
    pool.delete("", &super::place::namespace(ns)).await;
    until("the namespace is gone", async || {
        match get(&pool.virt, &format!("/api/v1/namespaces/{ns}")).await {
            Ok(namespace) => Err(namespace["status"].to_string()),
            Err(_) => Ok(()),
        }
    })
    .await;
    pool.nothing_left(ns).await;
    pool.delete("", &volume).await;
}

/// The window of a node is over: who wrote its name by hand, and bears everything, does not run there all the same.
async fn a_closed_node_takes_nobody(pool: &Pool) {
    let ns = "late";
    pool.namespace(ns).await;
    let hour = |hours: i64| {
        let at = jiff::Timestamp::now().checked_add(jiff::SignedDuration::from_hours(hours)).unwrap();
        at.strftime("%H:%M").to_string()
    };
    let later = json!({"timeZone": "UTC", "timeWindows": [{"start": hour(2), "end": hour(3)}]});
    apply(&pool.virt, &policies(), &policy(W2.0, &later)).await;
    let closed = |node: &Value| keys(node).iter().any(|key| key == taints::OUT_OF_TIME_WINDOWS_KEY);
    let nodes = all_are(&pool.place, W2, "the node is closed", closed).await;
    let bold = json!({"nodeName": nodes[0]["metadata"]["name"], "tolerations": [{"operator": "Exists"}]});
    let bold = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bold"}, "spec": lent(&bold)});
    pool.apply(ns, &bold).await;
    fails(pool, ns, &bold, Reason::NodeNotLeased.as_str()).await;
    pool.delete(ns, &bold).await;
    pool.nothing_left(ns).await;
}
