//! What V hears of a twin, step by step, as people read it: `tests/scripts/reflect.txt`. The file is written by
//! `UPDATE_GOLDEN=1 cargo test -p kubeocean-model`, and reviewed as a diff. After each step the same look again says nothing, and
//! what is not ours is as it was.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use kubeocean_model::object::Object;
use kubeocean_model::reflect::{failed, has_run, last_word, mapped, reflect};
use serde_json::{Value, json};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripts/reflect.txt");
const START: &str = "2026-11-20T12:00:00Z";

pub(crate) fn object(value: &Value) -> Object {
    Object::from_value(value.clone()).unwrap()
}

/// As an API server merges strategically, as far as pod statuses need it.
pub(crate) fn merge(into: &mut Value, patch: &Value) {
    for (key, value) in patch.as_object().unwrap() {
        let by = match key.as_str() {
            "conditions" => Some("type"),
            "podIPs" | "hostIPs" => Some("ip"),
            _ => None,
        };
        match (value, into.get_mut(key)) {
            (Value::Null, _) => drop(into.as_object_mut().unwrap().remove(key)),
            (Value::Object(_), Some(known @ Value::Object(_))) => merge(known, value),
            (Value::Object(_), _) => {
                into[key] = json!({});
                merge(&mut into[key], value);
            }
            (Value::Array(items), _) if by.is_some() => {
                let by = by.unwrap();
                let mut all = into[key].as_array().cloned().unwrap_or_default();
                if items.iter().any(|item| item["$patch"] == "replace") {
                    all.clear();
                }
                for item in items.iter().filter(|item| item["$patch"] != "replace") {
                    assert!(item[by].is_string(), "{item} has no {by}");
                    if item["$patch"] == "delete" {
                        all.retain(|one| one[by] != item[by]);
                    } else if let Some(known) = all.iter_mut().find(|one| one[by] == item[by]) {
                        merge(known, item);
                    } else {
                        let mut fresh = json!({});
                        merge(&mut fresh, item);
                        all.push(fresh);
                    }
                }
                into[key] = all.into();
            }
            _ => into[key] = value.clone(),
        }
    }
}

/// A pod on both sides.
struct Pair {
    text: String,
    pod: Value,
    twin: Value,
    generation: Option<i64>,
    now: Timestamp,
}

fn condition(about: &str, status: &str) -> Value {
    json!({"type": about, "status": status, "lastProbeTime": null, "lastTransitionTime": START})
}

fn because(about: &str, status: &str, reason: &str, message: &str) -> Value {
    let mut condition = condition(about, status);
    condition["reason"] = reason.into();
    condition["message"] = message.into();
    condition
}

fn unready(names: &str) -> Vec<Value> {
    let message = format!("containers with unready status: [{names}]");
    ["Ready", "ContainersReady"]
        .iter()
        .map(|about| because(about, "False", "ContainersNotReady", &message))
        .collect()
}

fn container(name: &str, state: &Value) -> Value {
    let is_running = state.get("running").is_some();
    json!({
        "name": name, "image": "busybox:1", "imageID": if is_running { "sha256:ab" } else { "" }, "ready": is_running,
        "started": is_running, "restartCount": 0, "state": state, "lastState": {},
    })
}

fn running() -> Value {
    json!({"running": {"startedAt": START}})
}

fn waiting(reason: &str, message: &str) -> Value {
    json!({"waiting": {"reason": reason, "message": message}})
}

fn ended(code: i64, reason: &str) -> Value {
    json!({"terminated": {
        "exitCode": code, "reason": reason, "startedAt": START, "finishedAt": "2026-11-20T12:00:07Z", "containerID": "containerd://1",
    }})
}

impl Pair {
    fn new(title: &str, spec: &Value) -> Self {
        let mut pod = json!({
            "metadata": {"namespace": "web", "name": "a", "uid": "u-1", "resourceVersion": "1", "generation": 1},
            "spec": {"nodeName": "vnode-w1-n1", "restartPolicy": "Always", "containers": [{"name": "c", "image": "busybox:1"}]},
            "status": {"phase": "Pending", "qosClass": "Burstable", "conditions": [condition("PodScheduled", "True")]},
        });
        merge(&mut pod, &json!({"spec": spec}));
        let twin = json!({
            "metadata": {"namespace": "mount", "name": "web-a-3f2c", "uid": "p-1"}, "spec": {},
            "status": {"phase": "Pending", "qosClass": "BestEffort", "conditions": [condition("PodScheduled", "True")]},
        });
        let text = format!("# {title}\n");
        Self { text, pod, twin, generation: Some(1), now: START.parse().unwrap() }
    }

    /// The worker says something more.
    fn says(&mut self, status: &Value) -> &mut Self {
        merge(&mut self.twin, &json!({"status": status}));
        self
    }

    fn starts(&mut self) -> &mut Self {
        self.says(&json!({
            "phase": "Running", "startTime": START, "hostIP": "10.1.0.1", "hostIPs": [{"ip": "10.1.0.1"}],
            "podIP": "10.2.0.1", "podIPs": [{"ip": "10.2.0.1"}], "containerStatuses": [container("c", &running())],
            "conditions": [
                condition("PodReadyToStartContainers", "True"), condition("Initialized", "True"), condition("Ready", "True"),
                condition("ContainersReady", "True"),
            ],
        }))
    }

    /// Looks, writes down what V is told, and tells it.
    fn look(&mut self, title: &str) -> &mut Self {
        self.now = self.now.checked_add(SignedDuration::from_secs(1)).unwrap();
        writeln!(self.text, "{title}").unwrap();
        let told = reflect(&object(&self.pod), &object(&self.twin), self.generation, self.now);
        match &told.patch {
            None => self.text.push_str("    nothing\n"),
            Some(patch) => self.write(patch),
        }
        for event in &told.events {
            writeln!(self.text, "    event {}: {}", event.reason, event.message).unwrap();
        }
        let is_terminal = matches!(self.pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        assert_eq!(told.is_terminal, is_terminal, "{title}");
        let again = reflect(&object(&self.pod), &object(&self.twin), self.generation, self.now);
        assert!(again.patch.is_none() && again.events.is_empty(), "{title}: {:?}", again.patch);
        self
    }

    /// It runs, and V knows. What is said then is shown once.
    fn runs(&mut self) -> &mut Self {
        let length = self.text.len();
        self.starts().look("");
        self.text.truncate(length);
        self
    }

    fn write(&mut self, patch: &Value) {
        show(&mut self.text, patch);
        let before = self.pod["status"].clone();
        merge(&mut self.pod, patch);
        let after = &self.pod["status"];
        assert_eq!(before["qosClass"], after["qosClass"]);
        let find = |status: &Value, about: &str| {
            status["conditions"].as_array().unwrap().iter().find(|one| one["type"] == about).cloned()
        };
        for theirs in ["PodScheduled", "example.com/gate", "kubeocean.io/Mapped"] {
            assert_eq!(find(&before, theirs), find(after, theirs));
        }
    }
}

/// A patch, one thing in a line.
fn show(text: &mut String, patch: &Value) {
    let mut line = |field: &str, value: &Value| writeln!(text, "    {field}: {value}").unwrap();
    for (field, value) in patch["status"].as_object().unwrap() {
        let items = value.as_array().filter(|_| field == "conditions" || field.ends_with("Statuses"));
        match items {
            Some(items) => items.iter().for_each(|item| line(field, item)),
            None => line(field, value),
        }
    }
    for (key, value) in patch["metadata"]["annotations"].as_object().into_iter().flatten() {
        if key != "kubeocean.io/last-sync-time" {
            line(key, value);
        }
    }
}

fn plain() -> String {
    let mut pair = Pair::new("a plain pod", &json!({}));
    pair.look("the twin was created");
    let creating = waiting("ContainerCreating", "");
    let mut conditions = unready("c");
    conditions.extend([condition("PodReadyToStartContainers", "False"), condition("Initialized", "True")]);
    pair.says(&json!({
        "startTime": START, "hostIP": "10.1.0.1", "hostIPs": [{"ip": "10.1.0.1"}], "conditions": conditions,
        "containerStatuses": [container("c", &creating)],
    }));
    pair.look("the kubelet has it");
    let pair = pair.starts();
    for gone in pair.twin["status"]["conditions"].as_array_mut().unwrap() {
        gone.as_object_mut().unwrap().retain(|key, _| key != "reason" && key != "message");
    }
    pair.look("it runs, and is ready: reasons and messages go");
    for one in pair.twin["status"]["conditions"].as_array_mut().unwrap() {
        one["lastProbeTime"] = "2026-11-20T12:00:09Z".into();
    }
    pair.look("a probe has a newer time: no write for nothing");
    merge(&mut pair.pod, &json!({"metadata": {"annotations": {"kubeocean.io/physical-pod-uid": "forged"}}}));
    pair.look("a tenant forges the mapping: it is output, and repaired with the next change");
    pair.generation = Some(2);
    pair.look("the twin runs V's second generation");
    pair.says(&json!({"conditions": unready("c"), "containerStatuses": [container("c", &running())]}));
    pair.twin["status"]["containerStatuses"][0]["ready"] = false.into();
    pair.look("a probe fails");
    let ending =
        json!({"metadata": {"deletionTimestamp": "2026-11-20T12:01:00Z", "deletionGracePeriodSeconds": 30}});
    merge(&mut pair.pod, &ending);
    merge(&mut pair.twin, &ending);
    pair.says(&json!({"containerStatuses": [container("c", &ended(143, "Error"))]}));
    pair.look("it is being deleted: statuses still flow");
    let said = last_word(&object(&pair.pod), Some(&object(&pair.twin)), pair.generation, pair.now).unwrap();
    pair.text.push_str("the twin is gone, and was not seen to end: the last word\n");
    pair.write(&said);
    assert_eq!(last_word(&object(&pair.pod), None, None, pair.now), None);
    pair.look("nothing is said after that");
    std::mem::take(&mut pair.text)
}

fn troubles() -> String {
    let mut pair = Pair::new("a container that crashes", &json!({}));
    pair.runs();
    let mut crashed =
        container("c", &waiting("CrashLoopBackOff", "back-off 10s restarting failed container=c"));
    crashed["restartCount"] = 1.into();
    crashed["lastState"] = ended(137, "OOMKilled");
    pair.says(&json!({"containerStatuses": [crashed.clone()], "conditions": unready("c")}));
    pair.look("out of memory, and waiting to be started again");
    crashed["restartCount"] = 2.into();
    crashed["state"] = running();
    pair.says(&json!({"containerStatuses": [crashed], "conditions": [
        {"type": "Ready", "status": "True", "reason": null, "message": null, "lastTransitionTime": "2026-11-20T12:00:20Z"},
        {"type": "ContainersReady", "status": "True", "reason": null, "message": null, "lastTransitionTime": "2026-11-20T12:00:20Z"},
    ]}));
    let mut text = std::mem::take(&mut pair.look("it runs again").text);

    let mut pair = Pair::new("an image that is not there", &json!({}));
    let why = waiting("ErrImagePull", "pull access denied for busybox:1");
    pair.says(
        &json!({"startTime": START, "containerStatuses": [container("c", &why)], "conditions": unready("c")}),
    );
    text += &std::mem::take(&mut pair.look("the worker's words").text);

    let mut pair = Pair::new("a pod that the worker's kubelet refuses", &json!({}));
    let why = "Pod was rejected: Node didn't have enough resource: cpu";
    pair.says(&json!({"phase": "Failed", "reason": "OutOfcpu", "message": why, "startTime": START}));
    text += &std::mem::take(&mut pair.look("the worker's words").text);

    let mut pair = Pair::new("a pod that the worker evicts", &json!({}));
    pair.runs();
    pair.says(&json!({
        "phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory.",
        "containerStatuses": [container("c", &ended(137, "Error"))],
        "conditions": [because("DisruptionTarget", "True", "TerminationByKubelet", "The node was low on resource: memory.")],
    }));
    pair.look("Failed, not to blame, and not ready though the worker has not said that yet");
    pair.starts().look("the worker says that it runs: what has ended has ended");
    text += &std::mem::take(&mut pair.text);

    let mut pair = Pair::new("a node of the worker that falls silent", &json!({}));
    pair.runs();
    pair.says(&json!({"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-11-20T12:05:00Z"}]}));
    pair.look("the worker's node controller says that it is not ready: its containers' word is old");
    text + &std::mem::take(&mut pair.text)
}

fn kinds_of_containers() -> String {
    let spec = json!({
        "initContainers": [{"name": "i", "image": "x"}, {"name": "side", "image": "x", "restartPolicy": "Always"}],
    });
    let mut pair =
        Pair::new("init containers, a sidecar, and a container that was added to look inside", &spec);
    let (todo, initialising) =
        (waiting("PodInitializing", ""), because("Initialized", "False", "ContainersNotInitialized", "m"));
    pair.says(&json!({
        "startTime": START, "conditions": [initialising], "containerStatuses": [container("c", &todo)],
        "initContainerStatuses": [container("i", &running()), container("side", &todo)],
    }));
    pair.look("the first one runs");
    let done = json!({"type": "Initialized", "status": "True", "reason": null, "message": null, "lastTransitionTime": START});
    pair.starts().says(&json!({
        "conditions": [done], "initContainerStatuses": [container("i", &ended(0, "Completed")), container("side", &running())],
    }));
    pair.look("it is done, and the others run");
    pair.twin["spec"] = json!({"containers": [{"name": "c"}, {"name": "injected"}]});
    pair.says(&json!({"containerStatuses": [container("c", &running()), container("injected", &running())]}));
    pair.look("the lender adds a container of its own: V does not know it");
    pair.pod["spec"]["ephemeralContainers"] = json!([{"name": "debug", "image": "x"}]);
    pair.generation = Some(2);
    pair.says(&json!({"ephemeralContainerStatuses": [container("debug", &ended(0, "Completed"))]}));
    pair.look("someone has looked inside");
    pair.says(&json!({"ephemeralContainerStatuses": [container("debug", &running())]}));
    pair.look("that one never comes back: an API server would refuse it");
    std::mem::take(&mut pair.text)
}

fn jobs() -> String {
    let mut text = String::new();
    for (title, code, reason, phase, why) in [
        ("a Job that succeeds", 0, "Completed", "Succeeded", "PodCompleted"),
        ("a Job that fails", 3, "Error", "Failed", "PodFailed"),
    ] {
        let mut pair = Pair::new(title, &json!({"restartPolicy": "Never"}));
        pair.text.push_str("before the twin is created\n");
        let patch = mapped(&object(&pair.pod), pair.now).unwrap();
        show(&mut pair.text, &patch);
        assert!(!has_run(&object(&pair.pod)));
        merge(&mut pair.pod, &patch);
        assert!(has_run(&object(&pair.pod)));
        assert_eq!(mapped(&object(&pair.pod), pair.now), None);
        pair.runs();
        let conditions = [
            because("Ready", "False", why, ""),
            because("ContainersReady", "False", why, ""),
            condition("Initialized", "True"),
        ];
        pair.says(&json!({"containerStatuses": [container("c", &ended(code, reason))], "phase": phase, "conditions": conditions}));
        pair.look("it has ended");
        text += &pair.text;
    }
    let mut pair = Pair::new("a Job whose twin is gone", &json!({"restartPolicy": "Never"}));
    pair.runs();
    let why = "the pod was deleted in the worker cluster while it was running";
    let patch = failed(&object(&pair.pod), "PhysicalPodLost", why, true, pair.now);
    pair.text.push_str("it is lost\n");
    pair.write(&patch);
    text + &pair.text
}

fn gates() -> String {
    let mut pair =
        Pair::new("readiness gates", &json!({"readinessGates": [{"conditionType": "example.com/gate"}]}));
    pair.starts().look("it runs, and nobody has said anything about the gate");
    merge(&mut pair.pod, &json!({"status": {"conditions": [condition("example.com/gate", "False")]}}));
    pair.look("the gate is shut");
    pair.says(&json!({"conditions": [condition("example.com/gate", "True")]}));
    pair.look("a condition of that name in the worker opens nothing");
    merge(&mut pair.pod, &json!({"status": {"conditions": [condition("example.com/gate", "True")]}}));
    pair.look("it opens");
    pair.says(&json!({"conditions": unready("c")}));
    pair.look("the containers are not ready any more");
    std::mem::take(&mut pair.text)
}

fn addresses() -> String {
    let mut pair = Pair::new("addresses", &json!({}));
    pair.runs();
    let both = json!([{"$patch": "replace"}, {"ip": "10.2.0.1"}, {"ip": "fd00::1"}]);
    pair.says(&json!({"podIPs": both})).look("two families");
    let other = json!([{"$patch": "replace"}, {"ip": "fd00::2"}, {"ip": "10.2.0.2"}]);
    pair.says(&json!({"podIP": "fd00::2", "podIPs": other})).look("others, in another order");
    let bad = json!([{"$patch": "replace"}, {"ip": "127.0.0.1"}, {"ip": "fd00::2"}]);
    let host = json!([{"$patch": "replace"}, {"ip": "fe80::1"}]);
    pair.says(&json!({"podIP": "127.0.0.1", "podIPs": bad, "hostIP": "fe80::1", "hostIPs": host}));
    pair.look("some that no pod can have");
    std::mem::take(&mut pair.text)
}

fn resizes() -> String {
    let mut pair = Pair::new("a resize in place", &json!({}));
    let with = |cpu: &str| {
        let mut status = container("c", &running());
        status["resources"] = json!({"requests": {"cpu": cpu}});
        status["allocatedResources"] = json!({"cpu": cpu});
        status
    };
    pair.starts().says(&json!({"containerStatuses": [with("1")]})).look("it runs");
    pair.generation = Some(2);
    let pending = because("PodResizePending", "True", "Deferred", "Node didn't have enough resource: cpu");
    pair.says(&json!({"conditions": [pending]})).look("it waits");
    let under_way =
        [json!({"type": "PodResizePending", "$patch": "delete"}), condition("PodResizeInProgress", "True")];
    pair.says(&json!({"conditions": under_way, "resize": "InProgress"})).look("it is under way");
    let done = [json!({"type": "PodResizeInProgress", "$patch": "delete"})];
    pair.says(&json!({"conditions": done, "resize": null, "containerStatuses": [with("2")]}))
        .look("it is done");
    std::mem::take(&mut pair.text)
}

#[test]
fn what_v_hears_of_a_twin_is_what_people_have_read() {
    let text =
        [plain(), troubles(), kinds_of_containers(), jobs(), gates(), addresses(), resizes()].join("\n");
    crate::is_golden(GOLDEN, &text);
}
