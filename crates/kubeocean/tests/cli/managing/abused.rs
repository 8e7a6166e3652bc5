//! Tenants who ask for too much, or for what is another's: they get what can be had and hear why they do not get the rest, and nobody else
//! notices.

use std::time::Instant;

use kubeocean_api::keys::names::{WORKER_NAMESPACE, WORKLOAD_SERVICE_ACCOUNT};
use kubeocean_api::keys::reasons::Event;
use kubeocean_api::keys::{annotations, labels};
use serde_json::{Value, json};

use super::place::{get, text};
use super::vnodes::syncer_as;
use super::workloads::{Pool, pod, settings};
use crate::access::until;

const W1: (&str, usize) = ("w1", 2);

const PODS: &str = "/api/v1/namespaces/{}/pods";
const CONFIG_MAPS: &str = "/api/v1/namespaces/{}/configmaps";
const SECRETS: &str = "/api/v1/namespaces/{}/secrets";
const CLAIMS: &str = "/api/v1/namespaces/{}/persistentvolumeclaims";

/// What API servers take of the data of one object.
const MIB: usize = 1024 * 1024;

#[tokio::test]
async fn whatever_tenants_write_the_worker_cluster_and_other_tenants_are_safe() {
    let pool = Pool::new(&[W1]).await;
    let mut syncer = syncer_as(&pool.place, &pool.accounts[W1.0], W1.0, "syncer");
    pool.usable(W1).await;
    let began = Instant::now();
    tokio::join!(
        a_claim_that_is_named_twice(&pool),
        many_annotations(&pool),
        a_hundred_containers(&pool),
        a_secret_that_names_our_service_account(&pool),
        forged_marks(&pool),
        as_large_as_can_be(&pool),
    );
    pool.nothing_left("").await;
    assert!(syncer.is_running(), "{}", syncer.said());
    println!("all stories took {:.1?}", began.elapsed());
    drop(syncer);
    println!("{} pods had one twin each", pool.stop().await);
}

/// One volume, known to the pod under two names.
async fn a_claim_that_is_named_twice(pool: &Pool) {
    let ns = "twice";
    pool.namespace(ns).await;
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "twice"},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": ns, "name": "disk"},
            "nfs": {"server": "192.0.2.1", "path": "/exports/1"},
        },
    });
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "disk"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}},
    });
    pool.apply("", &volume).await;
    pool.apply(ns, &claim).await;
    let by = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": "disk"}});
    let app = pod("app", &json!({"volumes": [by("one"), by("other")]}));
    pool.apply(ns, &app).await;
    let pairs = pool.agree(ns, 1, "Running").await;
    let claims = pool.copies(CLAIMS, ns).await.unwrap();
    assert_eq!(claims.len(), 1, "{claims:#?}");
    let volumes = pairs[0].1["spec"]["volumes"].as_array().unwrap();
    let named =
        |volume: &&Value| volume["persistentVolumeClaim"]["claimName"] == claims[0]["metadata"]["name"];
    assert_eq!(volumes.iter().filter(named).count(), 2, "{volumes:#?}");
    pool.delete(ns, &app).await;
    pool.delete(ns, &claim).await;
    pool.nothing_left(ns).await;
    pool.delete("", &volume).await;
}

/// Annotations that almost fill a pod come along; where there is no room for ours, that is said.
async fn many_annotations(pool: &Pool) {
    let ns = "talks";
    pool.namespace(ns).await;
    let with = |name: &str, bytes: usize| {
        let mut pod = pod(name, &json!({}));
        pod["metadata"]["annotations"] = json!({"example.com/long": "x".repeat(bytes)});
        pod
    };
    let (much, too_much) = (with("much", 200 * 1024), with("too-much", 256 * 1024 - 64));
    pool.apply(ns, &too_much).await;
    pool.apply(ns, &much).await;
    until("the one that has room runs", async || {
        let now = pool.read(ns, &much).await?;
        if now["status"]["phase"] == "Running" { Ok(()) } else { Err(now["status"].to_string()) }
    })
    .await;
    let twins = pool.twins_of(ns).await.unwrap();
    assert_eq!(twins.len(), 1);
    assert_eq!(
        twins[0]["metadata"]["annotations"]["example.com/long"],
        much["metadata"]["annotations"]["example.com/long"]
    );
    let said = pool.told(ns, "too-much", Event::PodUnreadable.as_str()).await;
    assert!(said.contains("metadata.annotations") && said.contains("262144"), "{said}");
    pool.delete(ns, &much).await;
    pool.delete(ns, &too_much).await;
    pool.nothing_left(ns).await;
}

async fn a_hundred_containers(pool: &Pool) {
    let ns = "crowd";
    pool.namespace(ns).await;
    let containers: Vec<Value> =
        (0..100).map(|number| json!({"name": format!("c{number}"), "image": "i"})).collect();
    let app = pod("app", &json!({"containers": containers}));
    pool.apply(ns, &app).await;
    let pairs = pool.agree(ns, 1, "Running").await;
    assert_eq!(pairs[0].0["status"]["containerStatuses"].as_array().unwrap().len(), 100);
    pool.delete(ns, &app).await;
    pool.nothing_left(ns).await;
}

/// A Secret of this type is filled by the cluster in which it is: the worker cluster must not fill one with a credential of its own.
async fn a_secret_that_names_our_service_account(pool: &Pool) {
    let ns = "greedy";
    pool.namespace(ns).await;
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": WORKLOAD_SERVICE_ACCOUNT}});
    pool.apply(ns, &account).await;
    let named = json!({"kubernetes.io/service-account.name": WORKLOAD_SERVICE_ACCOUNT});
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bait", "annotations": named},
        "type": "kubernetes.io/service-account-token", "data": {"mine": "eA=="},
    });
    pool.apply(ns, &secret).await;
    let filled = until("the computing cluster fills it", async || {
        let now = pool.read(ns, &secret).await?;
        if now["data"]["token"].is_string() { Ok(now) } else { Err(now.to_string()) }
    })
    .await;
    let volumes = json!([{"name": "bait", "secret": {"secretName": "bait"}}]);
    let app = pod("app", &json!({"volumes": volumes, "automountServiceAccountToken": false}));
    pool.apply(ns, &app).await;
    pool.agree(ns, 1, "Running").await;
    let copies = pool.copies(SECRETS, ns).await.unwrap();
    assert_eq!(copies.len(), 1);
    let path =
        format!("{}/{}", SECRETS.replace("{}", WORKER_NAMESPACE), text(&copies[0]["metadata"]["name"]));
    // Whoever would fill it has had its moment when this change has come through.
    let mut changed = secret.clone();
    changed["data"]["mine"] = "eQ==".into();
    pool.apply(ns, &changed).await;
    let copy = until("it is followed", async || {
        let copy = get(&pool.phys, &path).await?;
        if copy["data"]["mine"] == "eQ==" { Ok(copy) } else { Err(copy.to_string()) }
    })
    .await;
    assert_eq!(copy["type"], "Opaque");
    assert_eq!(copy["data"]["token"], filled["data"]["token"], "the borrower's own, and no other");
    let foreign = |key: &&String| key.starts_with("kubernetes.io/");
    let annotations = copy["metadata"]["annotations"].as_object().unwrap();
    assert!(!annotations.keys().any(|key| foreign(&key)), "{annotations:#?}");
    pool.delete(ns, &app).await;
    pool.nothing_left(ns).await;
}

/// Marks of ours that someone else writes are words: nobody's twin, `ConfigMap` or Secret is read, changed or removed for them.
async fn forged_marks(pool: &Pool) {
    let (ns, victims) = ("mallory", "victim");
    pool.namespace(ns).await;
    pool.namespace(victims).await;
    pool.apply(victims, &settings("ConfigMap", "config", "theirs")).await;
    pool.apply(victims, &settings("Secret", "secret", "hush")).await;
    let volumes = |map: &str, secret: &str| {
        json!({"volumes": [
            {"name": "c", "configMap": {"name": map}}, {"name": "s", "secret": {"secretName": secret}},
        ], "automountServiceAccountToken": false})
    };
    let victim = pod("app", &volumes("config", "secret"));
    pool.apply(victims, &victim).await;
    let pairs = pool.agree(victims, 1, "Running").await;
    let (theirs, twin) = &pairs[0];
    let everything = async || {
        let mut all = Vec::new();
        for kind in [PODS, CONFIG_MAPS, SECRETS] {
            let copies = pool.copies(kind, victims).await.unwrap();
            assert_eq!(copies.len(), 1, "{kind}");
            all.extend(copies);
        }
        all
    };
    let before = everything().await;

    let of = |object: &Value, key: &str| object["metadata"][key].clone();
    let forged = json!({
        annotations::PHYSICAL_POD_NAMESPACE: WORKER_NAMESPACE, annotations::PHYSICAL_POD_NAME: of(twin, "name"),
        annotations::PHYSICAL_POD_UID: of(twin, "uid"), annotations::VIRTUAL_POD_NAMESPACE: victims,
        annotations::VIRTUAL_POD_NAME: "app", annotations::VIRTUAL_POD_UID: of(theirs, "uid"),
        annotations::VIRTUAL_NAMESPACE: victims, annotations::VIRTUAL_NAME: "config",
    });
    let mut marks = twin["metadata"]["labels"].clone();
    marks[labels::SERVICE_ACCOUNT_TOKEN] = "true".into();
    let marked = |mut object: Value| {
        object["metadata"]["annotations"] = forged.clone();
        object["metadata"]["labels"] = marks.clone();
        object
    };
    pool.apply(ns, &marked(settings("ConfigMap", "config", "mine"))).await;
    pool.apply(ns, &marked(settings("Secret", "secret", "mine"))).await;
    let app = marked(pod("app", &volumes("config", "secret")));
    // Names of what there is in the worker cluster name nothing in the computing cluster.
    let nosy =
        pod("nosy", &volumes(&text(&before[1]["metadata"]["name"]), &text(&before[2]["metadata"]["name"])));
    pool.apply(ns, &app).await;
    pool.apply(ns, &nosy).await;
    until("it runs, by itself", async || {
        let now = pool.read(ns, &app).await?;
        let own = now["metadata"]["annotations"][annotations::PHYSICAL_POD_UID] != twin["metadata"]["uid"];
        if now["status"]["phase"] == "Running" && own { Ok(()) } else { Err(now.to_string()) }
    })
    .await;
    let said = pool.told(ns, "nosy", Event::DependencyMissing.as_str()).await;
    assert!(said.contains("not found"), "{said}");
    let copies = pool.copies(CONFIG_MAPS, ns).await.unwrap();
    assert_eq!(copies.len(), 1);
    assert_eq!(copies[0]["data"]["key"], "mine");
    let mine = pool.twins_of(ns).await.unwrap();
    assert_eq!(mine.len(), 1);
    assert_eq!(mine[0]["metadata"]["annotations"][annotations::VIRTUAL_POD_NAMESPACE], ns);
    assert!(
        mine[0]["metadata"]["annotations"][annotations::PHYSICAL_POD_UID].is_null(),
        "marks do not come along"
    );
    pool.apply(ns, &marked(settings("ConfigMap", "config", "mine too"))).await;
    pool.delete(ns, &app).await;
    pool.delete(ns, &nosy).await;
    pool.nothing_left(ns).await;
    assert_eq!(everything().await, before, "to the last byte");
    pool.delete(victims, &victim).await;
    pool.nothing_left(victims).await;
}

/// A mebibyte of text, of bytes, and of secrets; and what nobody may change any more, made anew.
async fn as_large_as_can_be(pool: &Pool) {
    let ns = "large";
    pool.namespace(ns).await;
    let full = MIB - "key".len();
    // Four letters for three bytes.
    let bytes = |letter: &str, length: usize| letter.repeat(length / 3 * 4);
    let map = settings("ConfigMap", "text", &"t".repeat(MIB));
    let binary = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bytes"}, "binaryData": {"key": bytes("/", full)},
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "secret"}, "data": {"key": bytes("A", full)},
    });
    let frozen = |value: &str| {
        let mut map = settings("ConfigMap", "frozen", value);
        map["immutable"] = true.into();
        map
    };
    for object in [&map, &binary, &secret, &frozen("one")] {
        pool.apply(ns, object).await;
    }
    let volume = |name: &str| json!({"name": name, "configMap": {"name": name}});
    let volumes = json!([volume("text"), volume("bytes"), volume("frozen"), {"name": "s", "secret": {"secretName": "secret"}}]);
    let app = pod("app", &json!({"volumes": volumes, "automountServiceAccountToken": false}));
    pool.apply(ns, &app).await;
    pool.agree(ns, 1, "Running").await;
    let copy = async |kind: &str, name: &str| {
        let all = pool.copies(kind, ns).await.unwrap();
        let of = |one: &Value| one["metadata"]["annotations"][annotations::VIRTUAL_NAME] == name;
        all.into_iter().find(of).unwrap_or_default()
    };
    assert!(copy(CONFIG_MAPS, "text").await["data"] == map["data"]);
    assert!(copy(CONFIG_MAPS, "bytes").await["binaryData"] == binary["binaryData"]);
    assert!(copy(SECRETS, "secret").await["data"] == secret["data"]);
    assert_eq!(copy(CONFIG_MAPS, "frozen").await["data"]["key"], "one");
    pool.delete(ns, &frozen("one")).await;
    pool.apply(ns, &frozen("two")).await;
    until("what was made anew is followed", async || {
        let copy = copy(CONFIG_MAPS, "frozen").await;
        if copy["data"]["key"] == "two" { Ok(()) } else { Err(copy.to_string()) }
    })
    .await;
    pool.delete(ns, &app).await;
    pool.nothing_left(ns).await;
}
