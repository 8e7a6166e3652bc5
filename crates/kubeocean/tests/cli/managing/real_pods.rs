//! Pods on a virtual node behind which a real kubelet runs real containers: what they find there, and what is told of them.

use kubeocean_api::keys::annotations;
use kubeocean_api::keys::names::WORKER_NAMESPACE;
use kubeocean_sandbox::{BUSYBOX_IMAGE, COMPUTING, Spec};
use serde_json::{Value, json};

use super::place::{apply, condition, request, text};
use super::vnodes::syncer_with;
use super::workloads::{Pool, job, pod, settings, workload};
use crate::access::until;
use crate::support::{read, real_nodes};

const W1: (&str, usize) = ("w1", 1);
const NODE: &str = "vnode-w1-real-1";
const NS: &str = "real";

const MERGE: &str = "application/merge-patch+json";

#[tokio::test]
async fn a_real_container_finds_what_its_pod_was_promised_and_its_end_is_told_truly() {
    if !real_nodes() {
        return;
    }
    let spec = Spec::new().workers(1, 0, 1);
    let pool = Pool::of(spec, &[(W1.0, json!({"serviceNamespaces": [NS]}))]).await;
    let server = pool.place.worker(COMPUTING).kubeconfig();
    let server = server.lines().find_map(|line| line.trim().strip_prefix("server: https://")).unwrap();
    // CoreDNS of the computing cluster is where its API server is.
    let (dns, _) = server.split_once(':').unwrap();
    let flags =
        ["--leader-elect", &format!("--computing-apiserver={server}"), &format!("--computing-dns={dns}")];
    let mut syncer = syncer_with(&pool.place, &pool.accounts[W1.0], W1.0, "syncer", &flags);
    pool.usable(W1).await;
    pool.namespace(NS).await;
    tokio::join!(
        it_finds_everything(&pool),
        ends_are_told(&pool),
        an_end_for_want_of_memory_is_told(&pool),
        probes_are_told(&pool),
        a_deadline_ends_it(&pool),
        what_has_succeeded_stays_so(&pool),
    );
    pool.place.unbind(W1.0, "Background").await;
    pool.nothing_left("").await;
    assert!(syncer.is_running(), "{}", syncer.said());
    drop(syncer);
    println!("{} pods had one twin each", pool.stop().await);
}

/// A container that does this.
fn runs(script: &str, more: &Value) -> Value {
    let mut container = json!({
        "name": "c", "image": BUSYBOX_IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-c", script],
    });
    for (field, value) in more.as_object().unwrap() {
        container[field] = value.clone();
    }
    json!([container])
}

const WAITS: &str = "trap 'exit 0' TERM; sleep 2147483647 & wait";

/// A command in the container behind a pod, by the worker's own hands: what it prints.
async fn exec(pool: &Pool, name: &str, script: &str) -> Result<String, String> {
    let twins = pool.twins_of(NS).await?;
    let of = |twin: &&Value| twin["metadata"]["annotations"][annotations::VIRTUAL_POD_NAME] == name;
    let twin = text(&twins.iter().find(of).ok_or("no twin")?["metadata"]["name"]);
    let mut kubectl = pool.place.worker("worker-1").kubectl();
    kubectl.args(["-n", WORKER_NAMESPACE, "exec", &twin, "--", "sh", "-c", script]);
    let output = kubectl.output().await.map_err(|error| error.to_string())?;
    let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(words(&output.stdout)) } else { Err(words(&output.stderr)) }
}

/// Waits until a command in the container prints this.
async fn prints(pool: &Pool, name: &str, script: &str, expected: &str) {
    until(&format!("`{script}` prints {expected:?}"), async || match exec(pool, name, script).await? {
        said if said == expected => Ok(()),
        said => Err(said),
    })
    .await;
}

/// Waits until a pod is so.
async fn is(pool: &Pool, name: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let path = pod(name, &json!({}));
    until(&format!("{name} is {what}"), async || {
        let pod = pool.read(NS, &path).await?;
        if is_so(&pod) { Ok(pod) } else { Err(pod["status"].to_string()) }
    })
    .await
}

fn runs_ready(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running" && condition(pod, "Ready")["status"] == "True"
}

/// A volume of the node, which the lender lets in.
async fn volume(pool: &Pool) -> std::path::PathBuf {
    let directory = pool.place.sandbox.directory().join("lent");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("hello"), "from the volume").unwrap();
    let kubectl = pool.place.worker(COMPUTING).kubectl();
    std::fs::copy(kubectl.as_std().get_program(), directory.join("kubectl")).unwrap();
    let allow = json!({"metadata": {"annotations": {annotations::ALLOWED_VOLUME_SOURCES: "csi,nfs,local"}}});
    let path = format!("/api/v1/namespaces/{WORKER_NAMESPACE}");
    request(&pool.phys, "PATCH", &path, MERGE, &allow).await.unwrap();
    let here = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]});
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "lent"},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": NS, "name": "data"},
            "local": {"path": directory}, "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    });
    pool.apply("", &volume).await;
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}},
    });
    pool.apply(NS, &claim).await;
    directory
}

/// Everything that a pod may read, from the inside; and what it does last.
async fn it_finds_everything(pool: &Pool) {
    let directory = volume(pool).await;
    pool.apply(NS, &settings("ConfigMap", "config", "one")).await;
    pool.apply(NS, &settings("Secret", "secret", "hush")).await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
    });
    pool.apply(NS, &service).await;
    let serves = runs("echo served > /tmp/index.html; exec httpd -f -p 8080 -h /tmp", &json!({}));
    pool.apply(NS, &workload("Deployment", "web", 1, &json!({"containers": serves}))).await;
    // Its own service account may look at pods of its namespace.
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "looks"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": NS}],
    });
    apply(&pool.virt, &format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{NS}/rolebindings"), &binding)
        .await;

    let field =
        |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let more = json!({
        "env": [
            field("NAME", "metadata.name"), field("NS", "metadata.namespace"), field("UID", "metadata.uid"),
            field("NODE", "spec.nodeName"), field("IP", "status.podIP"),
            {"name": "WORD", "valueFrom": {"configMapKeyRef": {"name": "config", "key": "key"}}},
        ],
        "volumeMounts": [
            {"name": "config", "mountPath": "/config"}, {"name": "secret", "mountPath": "/secret"},
            {"name": "info", "mountPath": "/info"}, {"name": "data", "mountPath": "/data"},
        ],
        "lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", "echo bye > /data/bye"]}}},
    });
    let volumes = json!([
        {"name": "config", "configMap": {"name": "config"}},
        {"name": "secret", "secret": {"secretName": "secret"}},
        {"name": "info", "downwardAPI": {"items": [
            {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
            {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}},
        ]}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
    ]);
    let reader = pod("reader", &json!({"containers": runs(WAITS, &more), "volumes": volumes}));
    pool.apply(NS, &reader).await;
    let now = is(pool, "reader", "ready", runs_ready).await;
    let (uid, ip) = (text(&now["metadata"]["uid"]), text(&now["status"]["podIP"]));
    for (script, expected) in [
        ("hostname", "reader"),
        ("cat /config/key", "one"),
        ("echo $WORD", "one"),
        ("cat /secret/key", "hush"),
        ("echo $NAME $NS $NODE", &*format!("reader {NS} {NODE}")),
        ("echo $UID $IP", &format!("{uid} {ip}")),
        ("cat /info/name /info/namespace", &format!("reader{NS}")),
        ("cat /data/hello", "from the volume"),
        ("cat /var/run/secrets/kubernetes.io/serviceaccount/namespace", NS),
        ("timeout 5 wget -q -O- http://web/", "served"),
    ] {
        prints(pool, "reader", script, expected).await;
    }
    names_are_asked_of_the_computing_cluster(pool).await;
    // It finds the computing cluster, believes its certificate, and is known there by its token.
    let ask = "/data/kubectl get pod $NAME -o jsonpath='{.metadata.uid} {.spec.nodeName}'";
    prints(pool, "reader", ask, &format!("{uid} {NODE}")).await;
    let ask = "/data/kubectl auth whoami -o jsonpath='{.status.userInfo.username}'";
    prints(pool, "reader", ask, &format!("system:serviceaccount:{NS}:default")).await;
    pool.apply(NS, &settings("ConfigMap", "config", "two")).await;
    prints(pool, "reader", "cat /config/key", "two").await;
    pool.delete(NS, &reader).await;
    gone(pool, "reader").await;
    assert_eq!(read(&directory.join("bye")).trim(), "bye", "what it was to do last");
    pool.delete(NS, &workload("Deployment", "web", 0, &json!({}))).await;
    pool.delete(NS, &service).await;
}

/// Its DNS knows what the computing cluster knows, by the short names too: the address of a Service, and the pods behind one that has none.
async fn names_are_asked_of_the_computing_cluster(pool: &Pool) {
    let headless = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "each"},
        "spec": {"clusterIP": "None", "selector": {"app": "web"}, "ports": [{"port": 8080}]},
    });
    pool.apply(NS, &headless).await;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "kubernetes"}});
    let address = text(&pool.read("default", &service).await.unwrap()["spec"]["clusterIP"]);
    // The server's own address comes first.
    let found = |name: &str| format!("nslookup -type=a {name} | tail -n +3 | sed -n 's/^Address.*: *//p'");
    for name in ["kubernetes.default.svc.cluster.local", "kubernetes.default.svc.cluster.local."] {
        prints(pool, "reader", &found(name), &address).await;
    }
    let pods = pool.pods(NS).await.unwrap();
    let web = pods.iter().find(|pod| pod["metadata"]["labels"]["app"] == "web").unwrap();
    let name = format!("each.{NS}.svc.cluster.local");
    prints(pool, "reader", &found(&name), &text(&web["status"]["podIP"])).await;
    prints(pool, "reader", "timeout 5 wget -q -O- http://each:8080/", "served").await;
    pool.delete(NS, &headless).await;
}

async fn gone(pool: &Pool, name: &str) {
    until(&format!("{name} is gone"), async || {
        let all = pool.pods(NS).await?;
        let left = all.iter().find(|pod| pod["metadata"]["name"] == name);
        left.map_or(Ok(()), |pod| Err(pod["status"].to_string()))
    })
    .await;
}

/// How containers end, and how often, as the worker's kubelet says it.
async fn ends_are_told(pool: &Pool) {
    let fails = json!({"containers": runs("exit 7", &json!({})), "restartPolicy": "Never"});
    pool.apply(NS, &pod("fails", &fails)).await;
    let once = "[ -f /kept/seen ] && exec sleep 2147483647; touch /kept/seen; exit 3";
    let mounts = json!({"volumeMounts": [{"name": "kept", "mountPath": "/kept"}]});
    let stumbles = json!({
        "containers": runs(once, &mounts), "volumes": [{"name": "kept", "emptyDir": {}}], "terminationGracePeriodSeconds": 1,
    });
    pool.apply(NS, &pod("stumbles", &stumbles)).await;
    let failed = is(pool, "fails", "Failed", |pod| pod["status"]["phase"] == "Failed").await;
    let ended = &failed["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&ended["exitCode"], &ended["reason"]), (&json!(7), &json!("Error")), "{failed:#}");
    let again = is(pool, "stumbles", "running again", |pod| {
        let status = &pod["status"]["containerStatuses"][0];
        status["restartCount"] == 1 && status["state"]["running"].is_object()
    })
    .await;
    let before = &again["status"]["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!(before["exitCode"], 3, "{again:#}");
    for name in ["fails", "stumbles"] {
        pool.delete(NS, &pod(name, &json!({}))).await;
        gone(pool, name).await;
    }
}

/// A container that takes more memory than it may have is killed by the node, and its pod says just that: once and for all, or as what
/// was before.
async fn an_end_for_want_of_memory_is_told(pool: &Pool) {
    let grows = "exec awk 'BEGIN { for (word = \"x\";;) word = word word }'";
    let once = format!("[ -f /kept/seen ] && exec sleep 2147483647; touch /kept/seen; {grows}");
    let limits = json!({"resources": {"limits": {"memory": "24Mi"}}});
    let mut mounts = limits.clone();
    mounts["volumeMounts"] = json!([{"name": "kept", "mountPath": "/kept"}]);
    let never = json!({"containers": runs(grows, &limits), "restartPolicy": "Never"});
    let always = json!({
        "containers": runs(&once, &mounts), "volumes": [{"name": "kept", "emptyDir": {}}], "terminationGracePeriodSeconds": 1,
    });
    pool.apply(NS, &pod("starves", &never)).await;
    pool.apply(NS, &pod("recovers", &always)).await;
    // The node's own words, whatever they are: some runtimes do not hear from some kernels why a container was killed, and say `Error`.
    let told = async |name: &str, status: &Value, when: &str| {
        let twins = pool.twins_of(NS).await.unwrap();
        let of = |twin: &&Value| twin["metadata"]["annotations"][annotations::VIRTUAL_POD_NAME] == name;
        let said = &twins.iter().find(of).unwrap()["status"]["containerStatuses"][0];
        for field in ["restartCount", "state", "lastState"] {
            assert_eq!(status[field], said[field], "{status:#}\nbut\n{said:#}");
        }
        let ended = &status[when]["terminated"];
        assert_eq!(ended["exitCode"], 137, "{status:#}");
        assert!(["OOMKilled", "Error"].contains(&&*text(&ended["reason"])), "{status:#}");
    };
    let failed = is(pool, "starves", "Failed", |pod| pod["status"]["phase"] == "Failed").await;
    let status = &failed["status"]["containerStatuses"][0];
    assert_eq!(status["restartCount"], 0, "{failed:#}");
    told("starves", status, "state").await;
    let again = is(pool, "recovers", "running again", |pod| {
        let status = &pod["status"]["containerStatuses"][0];
        status["restartCount"] == 1 && status["state"]["running"].is_object()
    })
    .await;
    told("recovers", &again["status"]["containerStatuses"][0], "lastState").await;
    for name in ["starves", "recovers"] {
        pool.delete(NS, &pod(name, &json!({}))).await;
        gone(pool, name).await;
    }
}

/// A pod is ready when its probe says so, and no longer when it does not.
async fn probes_are_told(pool: &Pool) {
    let probe = json!({"readinessProbe": {"exec": {"command": ["cat", "/tmp/ready"]}, "periodSeconds": 1}});
    pool.apply(NS, &pod("probed", &json!({"containers": runs(WAITS, &probe)}))).await;
    is(pool, "probed", "running, and not ready", |pod| {
        pod["status"]["phase"] == "Running" && condition(pod, "Ready")["status"] == "False"
    })
    .await;
    prints(pool, "probed", "touch /tmp/ready", "").await;
    is(pool, "probed", "ready", runs_ready).await;
    prints(pool, "probed", "rm -f /tmp/ready", "").await;
    is(pool, "probed", "not ready any more", |pod| condition(pod, "Ready")["status"] == "False").await;
    pool.delete(NS, &pod("probed", &json!({}))).await;
    gone(pool, "probed").await;
}

/// A deadline that comes while it runs ends it. (A resize does too, of the whole kubelet: these have no control groups of pods. That is
/// looked at on simulated nodes.)
async fn a_deadline_ends_it(pool: &Pool) {
    pool.apply(NS, &pod("late", &json!({"containers": runs(WAITS, &json!({}))}))).await;
    is(pool, "late", "running", runs_ready).await;
    let path = format!("/api/v1/namespaces/{NS}/pods/late");
    let body = json!({"spec": {"activeDeadlineSeconds": 1}});
    request(&pool.virt, "PATCH", &path, "application/strategic-merge-patch+json", &body).await.unwrap();
    let ended = is(pool, "late", "Failed", |pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(ended["status"]["reason"], "DeadlineExceeded", "{ended:#}");
    pool.delete(NS, &pod("late", &json!({}))).await;
    gone(pool, "late").await;
}

/// Somebody tidies up in the worker cluster: what had succeeded there has succeeded all the same, and is not done again.
async fn what_has_succeeded_stays_so(pool: &Pool) {
    let mut job = job("sums", 1, 1);
    job["spec"]["template"]["spec"]["containers"] = runs("echo done", &json!({}));
    pool.apply(NS, &job).await;
    let complete = async || {
        until("the Job is complete", async || {
            let job = pool.read(NS, &job).await?;
            let done = condition(&job, "Complete")["status"] == "True" && job["status"]["succeeded"] == 1;
            if done { Ok(()) } else { Err(job["status"].to_string()) }
        })
        .await;
    };
    complete().await;
    let of_job = async || -> Result<Vec<Value>, String> {
        let mut twins = pool.twins_of(NS).await?;
        twins.retain(|twin| {
            text(&twin["metadata"]["annotations"][annotations::VIRTUAL_POD_NAME]).starts_with("sums-")
        });
        Ok(twins)
    };
    for twin in of_job().await.unwrap() {
        let path = format!("/api/v1/namespaces/{WORKER_NAMESPACE}/pods/{}", text(&twin["metadata"]["name"]));
        request(&pool.phys, "DELETE", &path, "application/json", &Value::Null).await.unwrap();
    }
    until("its twin is gone", async || match of_job().await?.len() {
        0 => Ok(()),
        left => Err(format!("{left} are left")),
    })
    .await;
    // Whoever would start it again has had its moment when this one has come and gone.
    let passing = json!({"containers": runs("exit 0", &json!({})), "restartPolicy": "Never"});
    pool.apply(NS, &pod("passing", &passing)).await;
    is(pool, "passing", "Succeeded", |pod| pod["status"]["phase"] == "Succeeded").await;
    pool.delete(NS, &pod("passing", &json!({}))).await;
    gone(pool, "passing").await;
    complete().await;
    assert!(of_job().await.unwrap().is_empty());
    let pods = pool.pods(NS).await.unwrap();
    let its: Vec<&Value> =
        pods.iter().filter(|pod| text(&pod["metadata"]["name"]).starts_with("sums-")).collect();
    assert_eq!(its.len(), 1);
    assert_eq!(its[0]["status"]["phase"], "Succeeded");
    pool.delete(NS, &job).await;
}
