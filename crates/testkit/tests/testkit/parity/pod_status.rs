//! What the status endpoint of a pod takes: containers that may not come back, and addresses that agree.

use serde_json::Value;

use super::script::{Script, Step, get, merge, pod, post, put, script, strategic};

fn container(name: &str, state: Value) -> Value {
    json!({"name": name, "image": "x:1", "imageID": "", "ready": false, "restartCount": 0, "state": state})
}

fn running() -> Value {
    json!({"running": {"startedAt": "2001-01-01T00:00:00Z"}})
}

fn exited(code: i32) -> Value {
    json!({"terminated": {"exitCode": code, "reason": "Done"}})
}

/// One container's state, in the list of that name.
fn state(list: &str, name: &str, state: Value) -> Step {
    strategic("pods/p/status", json!({"status": {list: [container(name, state)]}}))
}

fn with_init(policy: &str) -> Value {
    pod("p", json!({"nodeName": "n1", "restartPolicy": policy, "initContainers": [{"name": "i", "image": "x:1"}, {"name": "side", "image": "x:1", "restartPolicy": "Always"}]}))
}

/// Out of a state and back, for containers of every kind.
fn comings_and_goings() -> Vec<Step> {
    let mut steps = Vec::new();
    for (list, name) in [("containerStatuses", "c"), ("initContainerStatuses", "i"), ("initContainerStatuses", "side")] {
        steps.push(state(list, name, running()));
        steps.push(state(list, name, exited(1)));
        steps.push(state(list, name, json!({"running": {"startedAt": "2001-01-01T00:00:00Z"}, "terminated": null})));
        steps.push(state(list, name, json!({"running": null, "terminated": {"exitCode": 0}})));
        steps.push(state(list, name, json!({"waiting": {"reason": "CrashLoopBackOff"}, "terminated": null})));
        steps.push(state(list, name, json!({"running": {"startedAt": "2001-01-01T00:00:00Z"}, "terminated": null, "waiting": null})));
    }
    steps.push(get("pods/p"));
    steps
}

fn ips(value: Value) -> Step {
    strategic("pods/p/status", json!({"status": value}))
}

fn put_ips(value: Value) -> Step {
    let mut object = pod("p", json!({"nodeName": "n1"}));
    object["status"] = value;
    put("pods/p/status", object)
}

fn merged(value: Value) -> Step {
    merge("pods/p/status", json!({"status": value}))
}

fn after(first: Value, mut steps: Vec<Step>) -> Vec<Step> {
    steps.insert(0, post("pods", first));
    steps
}

pub(crate) fn scripts() -> Vec<Script> {
    vec![
        script("containers that never come back", after(with_init("Never"), comings_and_goings())),
        script("containers that come back after a failure", after(with_init("OnFailure"), comings_and_goings())),
        script("containers that always come back", after(with_init("Always"), comings_and_goings())),
        script("a container that disappears from the status", after(with_init("Never"), vec![
            state("containerStatuses", "c", exited(0)),
            merged(json!({"containerStatuses": []})),
            state("containerStatuses", "c", running()),
            state("containerStatuses", "stranger", exited(0)),
            merged(json!({"containerStatuses": [container("stranger", running()), container("c", running())]})),
            merged(json!({"containerStatuses": [container("c", exited(3))]})),
            merged(json!({"containerStatuses": [container("x", running()), container("c", running()), container("c", running())]})),
            merged(json!({"phase": "Failed", "containerStatuses": [container("c", running())], "initContainerStatuses": [container("i", exited(0))]})),
            put("pods/p/status", with_init("Never")),
            get("pods/p"),
        ])),
        script("rules of restart of one container", after(
            pod("p", json!({"restartPolicy": "Never", "containers": [
                {"name": "c", "image": "x:1", "restartPolicy": "OnFailure"},
                {"name": "r", "image": "x:1", "restartPolicy": "Never", "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]}]})),
            vec![
                merged(json!({"containerStatuses": [container("c", exited(1)), container("r", exited(42))]})),
                merged(json!({"containerStatuses": [container("c", running()), container("r", running())]})),
                merged(json!({"containerStatuses": [container("c", exited(0)), container("r", exited(1))]})),
                merged(json!({"containerStatuses": [container("c", running()), container("r", running())]})),
            ],
        )),
        script("an ephemeral container never comes back", after(with_init("Always"), vec![
            strategic("pods/p/ephemeralcontainers", json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "busybox:1"}]}})),
            merged(json!({"ephemeralContainerStatuses": [container("debug", exited(1))]})),
            merged(json!({"ephemeralContainerStatuses": [container("debug", running())]})),
        ])),
        script("addresses of a pod", after(pod("p", json!({"nodeName": "n1"})), vec![
            ips(json!({"podIP": "10.0.0.1"})),
            ips(json!({"podIP": "10.0.0.2"})),
            ips(json!({"podIPs": [{"ip": "10.0.0.3"}]})),
            ips(json!({"podIP": "10.0.0.4", "podIPs": [{"ip": "10.0.0.4"}, {"ip": "fd00::1"}]})),
            put_ips(json!({"podIP": "10.0.0.5", "podIPs": [{"ip": "10.0.0.6"}, {"ip": "fd00::1"}]})),
            put_ips(json!({"podIPs": [{"ip": "10.0.0.7"}]})),
            put_ips(json!({"podIP": "10.0.0.8"})),
            put_ips(json!({})),
            merged(json!({"podIP": "10.0.0.9"})),
            merged(json!({"podIP": "10.0.0.9", "podIPs": []})),
            merged(json!({"podIPs": null})),
            merged(json!({"podIP": null, "podIPs": null})),
            merged(json!({"podIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]})),
            merged(json!({"podIPs": [{"ip": "fd00::1"}, {"ip": "fd00::2"}]})),
            merged(json!({"podIPs": [{"ip": "fd00::1"}, {"ip": "10.0.0.1"}]})),
            merged(json!({"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}, {"ip": "10.0.0.2"}]})),
            get("pods/p"),
        ])),
        script("addresses that are none", after(pod("p", json!({"nodeName": "n1"})), vec![
            merged(json!({"podIP": "somewhere"})),
            merged(json!({"podIPs": [{"ip": "10.0.0.256"}]})),
            merged(json!({"podIPs": [{"ip": ""}]})),
            merged(json!({"podIPs": [{}]})),
            merged(json!({"podIPs": [{"ip": "10.0.0.1"}, {"ip": "nonsense"}]})),
            merged(json!({"podIPs": [{"ip": "10.0.0.01"}]})),
            merged(json!({"podIPs": [{"ip": "::ffff:10.0.0.1"}]})),
            merged(json!({"podIP": " 10.0.0.1"})),
            merged(json!({"podIP": "fd00:0:0::1"})),
            merged(json!({"podIP": "fe80::1%eth0"})),
            merged(json!({"podIP": "10.0.0.1/24"})),
            get("pods/p"),
        ])),
        script("addresses of a host", after(pod("p", json!({"nodeName": "n1"})), vec![
            merged(json!({"hostIP": "10.1.0.1"})),
            merged(json!({"hostIPs": [{"ip": "10.1.0.1"}]})),
            merged(json!({"hostIPs": [{"ip": "10.1.0.2"}]})),
            merged(json!({"hostIP": "10.1.0.2"})),
            merged(json!({"hostIP": "10.1.0.2", "hostIPs": [{"ip": "10.1.0.2"}, {"ip": "fd00::1"}]})),
            merged(json!({"hostIPs": [{"ip": "10.1.0.2"}, {"ip": "10.1.0.3"}]})),
            merged(json!({"hostIP": "x", "hostIPs": [{"ip": "x"}]})),
            merged(json!({"hostIP": "x", "hostIPs": null})),
            merged(json!({"hostIPs": [{"ip": "x"}]})),
            merged(json!({"hostIPs": [{"ip": "x"}, {"ip": "y"}, {"ip": "fd00::1"}]})),
            merged(json!({"hostIP": null, "hostIPs": null})),
            merged(json!({"hostIPs": [{"ip": "10.1.0.2"}]})),
        ])),
        script("what else a pod's status may not be", after(pod("p", json!({"nodeName": "n1"})), vec![
            merged(json!({"qosClass": "Guaranteed"})),
            merged(json!({"nominatedNodeName": "n2"})),
            merged(json!({"nominatedNodeName": "Bad_Name"})),
            merged(json!({"observedGeneration": -1})),
            merged(json!({"observedGeneration": 1})),
            merged(json!({"observedGeneration": 0})),
            merged(json!({"conditions": [{"type": "kubeocean.io/Mapped", "status": "True"}, {"type": "bad type", "status": "True"}]})),
            merged(json!({"conditions": [{"type": "kubeocean.io/Mapped", "status": "True", "observedGeneration": -1}]})),
            merged(json!({"conditions": [{"type": "kubeocean.io/Mapped", "status": "True", "observedGeneration": 3}]})),
            merged(json!({"conditions": [{"type": "kubeocean.io/Mapped", "status": "True"}]})),
            merged(json!({"phase": "Sometimes"})),
            merged(json!({"phase": "Succeeded"})),
            merged(json!({"phase": "Running"})),
            post("pods", pod("free", json!({}))),
            merge("pods/free/status", json!({"status": {"nominatedNodeName": "n2"}})),
            merge("pods/free/status", json!({"status": {"nominatedNodeName": "Bad_Name"}})),
        ])),
    ]
}
