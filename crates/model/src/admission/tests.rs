//! Who is let in, as a table: one question after the other, each with its answer.

use jiff::Timestamp;
use kubeocean_api::keys::annotations::ALLOWED_CLUSTERS;
use serde_json::{Value, json};

use super::{Question, Rejection, admit};
use crate::object::Object;
use crate::reclaim::VirtualPod;
use crate::vnode::{Cause, Leaving, Tenure, Terms, VirtualNode};

fn object(value: &Value) -> Object {
    Object::from_value(value.clone()).unwrap()
}

fn pod(name: &str, spec: &Value) -> VirtualPod {
    let mut pod = json!({
        "metadata": {"namespace": "web", "name": name, "uid": name},
        "spec": {"nodeName": "vnode", "containers": [{"name": "c", "image": "i"}]},
    });
    for (field, value) in spec.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    VirtualPod::read(object(&pod))
}

fn asks(requests: &Value) -> Value {
    json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}]})
}

fn listens(port: u16, address: &str, protocol: &str) -> Value {
    let port = json!({"containerPort": port, "hostPort": port, "hostIP": address, "protocol": protocol});
    json!({"containers": [{"name": "c", "image": "i", "ports": [port]}]})
}

/// A node that offers two processors, some memory and four pods.
fn vnode(taints: &Value) -> VirtualNode {
    VirtualNode::read(&object(&json!({
        "metadata": {"name": "vnode"}, "spec": {"taints": taints},
        "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "4"}},
    })))
}

struct Asked<'a> {
    others: &'a [VirtualPod],
    tenure: Tenure,
    taints: Value,
    allowed: Option<&'a str>,
}

impl Default for Asked<'_> {
    fn default() -> Self {
        Self { others: &[], tenure: Tenure::default(), taints: json!([]), allowed: None }
    }
}

impl Asked<'_> {
    fn for_pod(&self, pod: &VirtualPod) -> Result<(), Rejection> {
        let others: Vec<&VirtualPod> = self.others.iter().collect();
        admit(&Question {
            pod,
            vnode: &vnode(&self.taints),
            tenure: &self.tenure,
            others: &others,
            binding: "w1",
            allowed: self.allowed,
        })
    }

    /// Why a pod with this spec is not let in; `fine` if it is.
    fn reason(&self, spec: &Value) -> String {
        self.for_pod(&pod("p", spec)).err().map_or_else(|| "fine".to_owned(), |rejection| rejection.reason)
    }
}

#[test]
fn a_pod_is_let_in_as_long_as_there_is_room() {
    let half = pod("half", &asks(&json!({"cpu": "1500m", "memory": "512Mi"})));
    let others = [half];
    let asked = Asked { others: &others, ..Asked::default() };
    for (requests, reason) in [
        (json!({}), "fine"),
        (json!({"cpu": "500m", "memory": "512Mi"}), "fine"),
        (json!({"cpu": "501m"}), "OutOfcpu"),
        (json!({"memory": "513Mi"}), "OutOfmemory"),
        (json!({"cpu": "0", "memory": "0"}), "fine"),
        // What nobody offers, nobody gets; but none of it may be asked for anywhere.
        (json!({"example.com/gpu": "1"}), "OutOfexample.com/gpu"),
        (json!({"example.com/gpu": "0"}), "fine"),
    ] {
        assert_eq!(asked.reason(&asks(&requests)), reason, "{requests}");
    }
    let said = asked.for_pod(&pod("p", &asks(&json!({"cpu": "1"})))).unwrap_err().message;
    assert_eq!(said, "node vnode has too little cpu: 1 requested, 1500m used, 2 offered");
}

#[test]
fn init_containers_and_overhead_count_as_a_scheduler_counts_them() {
    let asked = Asked::default();
    let with = |init: &str, always: bool| {
        let mut first = json!({"name": "i", "image": "i", "resources": {"requests": {"cpu": init}}});
        if always {
            first["restartPolicy"] = "Always".into();
        }
        let mut spec = asks(&json!({"cpu": "1"}));
        spec["initContainers"] = json!([first]);
        spec
    };
    assert_eq!(asked.reason(&with("2", false)), "fine", "it is over when the others begin");
    assert_eq!(asked.reason(&with("2100m", false)), "OutOfcpu");
    assert_eq!(asked.reason(&with("1", true)), "fine");
    assert_eq!(asked.reason(&with("1100m", true)), "OutOfcpu", "a sidecar stays");
    let mut heavy = asks(&json!({"cpu": "2"}));
    heavy["overhead"] = json!({"cpu": "1m"});
    assert_eq!(asked.reason(&heavy), "OutOfcpu");
}

#[test]
fn the_last_place_is_for_one() {
    let all: Vec<VirtualPod> = (0..4).map(|number| pod(&format!("p{number}"), &json!({}))).collect();
    assert_eq!(Asked { others: &all[..3], ..Asked::default() }.reason(&json!({})), "fine");
    assert_eq!(Asked { others: &all, ..Asked::default() }.reason(&json!({})), "OutOfpods");
}

#[test]
fn a_port_of_the_node_is_for_one() {
    let everywhere = [pod("web", &listens(80, "", "TCP"))];
    let somewhere = [pod("web", &listens(80, "10.0.0.1", "TCP"))];
    let any = [pod("web", &listens(80, "0.0.0.0", "TCP"))];
    for (others, port, address, protocol, reason) in [
        (&everywhere, 80, "", "TCP", "OutOfhostports"),
        (&everywhere, 80, "10.0.0.1", "TCP", "OutOfhostports"),
        (&everywhere, 80, "", "UDP", "fine"),
        (&everywhere, 81, "", "TCP", "fine"),
        (&somewhere, 80, "10.0.0.2", "TCP", "fine"),
        (&somewhere, 80, "10.0.0.1", "TCP", "OutOfhostports"),
        (&somewhere, 80, "", "TCP", "OutOfhostports"),
        (&any, 80, "10.0.0.1", "TCP", "OutOfhostports"),
    ] {
        let asked = Asked { others, ..Asked::default() };
        assert_eq!(asked.reason(&listens(port, address, protocol)), reason, "{port} {address:?} {protocol}");
    }
}

#[test]
fn a_node_that_goes_or_is_closed_takes_nobody_whatever_it_bears() {
    let now: Timestamp = "2026-11-20T12:00:00Z".parse().unwrap();
    let bold = json!({"tolerations": [{"operator": "Exists"}]});
    let closed = |closed_at| Terms { closed_at, force_reclaim: true, ..Terms::default() };
    let leaving = |cause| Tenure {
        leaving: Some(Leaving { since: now, cause, grace_seconds: 3600, cordoned: false }),
        ..Tenure::default()
    };
    let windows = |worker, computing| Tenure { worker, computing, leaving: None };
    let cases = [
        (windows(Some(closed(None)), Some(closed(None))), "fine"),
        (windows(Some(closed(Some(now))), None), "NodeNotLeased"),
        (windows(None, Some(closed(Some(now)))), "NodeNotLeased"),
        (windows(Some(closed(None)), Some(closed(Some(now)))), "NodeNotLeased"),
        (leaving(Cause::NodeGone), "NodeNotLeased"),
        (leaving(Cause::NotSelected), "NodeNotLeased"),
        (leaving(Cause::NoPolicy), "NodeNotLeased"),
        (leaving(Cause::Excluded), "NodeNotLeased"),
        (leaving(Cause::Unbinding), "NodeNotLeased"),
        (leaving(Cause::Deleted), "NodeNotLeased"),
    ];
    for (tenure, reason) in cases {
        let asked = Asked { tenure, ..Asked::default() };
        assert_eq!(asked.reason(&bold), reason, "{:?}", asked.tenure);
    }
}

#[test]
fn what_drives_pods_away_keeps_them_away_unless_they_bear_it() {
    let taint = |effect: &str| json!([{"key": "maintenance", "value": "now", "effect": effect}]);
    let with = |toleration: Value| json!({"tolerations": [toleration]});
    let away = taint("NoExecute");
    for (taints, spec, reason) in [
        (&away, json!({}), "NodeNotAllowed"),
        (&away, with(json!({"operator": "Exists"})), "fine"),
        (&away, with(json!({"key": "maintenance", "operator": "Exists"})), "fine"),
        (&away, with(json!({"key": "maintenance", "value": "now"})), "fine"),
        (&away, with(json!({"key": "maintenance", "value": "now", "effect": "NoExecute"})), "fine"),
        (&away, with(json!({"key": "maintenance", "value": "later"})), "NodeNotAllowed"),
        (
            &away,
            with(json!({"key": "maintenance", "operator": "Exists", "effect": "NoSchedule"})),
            "NodeNotAllowed",
        ),
        (&away, with(json!({"key": "other", "operator": "Exists"})), "NodeNotAllowed"),
        // Kubelets do not ask about these either: whoever names a node by hand gets past them.
        (&taint("NoSchedule"), json!({}), "fine"),
        (&taint("PreferNoSchedule"), json!({}), "fine"),
    ] {
        let asked = Asked { taints: taints.clone(), ..Asked::default() };
        assert_eq!(asked.reason(&spec), reason, "{taints} {spec}");
    }
}

#[test]
fn a_namespace_goes_where_its_administrators_let_it() {
    for (allowed, reason) in [
        (None, "fine"),
        (Some("w1"), "fine"),
        (Some("w2, w1"), "fine"),
        (Some(" w1 "), "fine"),
        (Some("w2"), "NodeNotAllowed"),
        (Some("w11,W1"), "NodeNotAllowed"),
        // Whoever writes nothing into it means nobody.
        (Some(""), "NodeNotAllowed"),
    ] {
        assert_eq!(Asked { allowed, ..Asked::default() }.reason(&json!({})), reason, "{allowed:?}");
    }
    let asked = Asked { allowed: Some("w2"), ..Asked::default() };
    let said = asked.for_pod(&pod("p", &json!({}))).unwrap_err().message;
    assert!(said.contains("web") && said.contains(ALLOWED_CLUSTERS), "{said}");
}

#[test]
fn what_counts_first_is_told_first() {
    let now: Timestamp = "2026-11-20T12:00:00Z".parse().unwrap();
    let closed = Some(Terms { closed_at: Some(now), ..Terms::default() });
    let taints = json!([{"key": "maintenance", "effect": "NoExecute"}]);
    let others = [pod("web", &listens(80, "", "TCP"))];
    let mut spec = listens(80, "", "TCP");
    spec["containers"][0]["resources"] = json!({"requests": {"cpu": "100"}});
    let mut asked = Asked {
        others: &others,
        tenure: Tenure { worker: closed, ..Tenure::default() },
        taints,
        allowed: Some("w2"),
    };
    let mut reasons = vec![asked.reason(&spec)];
    asked.allowed = None;
    reasons.push(asked.reason(&spec));
    asked.tenure = Tenure::default();
    reasons.push(asked.reason(&spec));
    asked.taints = json!([]);
    reasons.push(asked.reason(&spec));
    spec["containers"][0]["resources"] = json!({});
    reasons.push(asked.reason(&spec));
    assert_eq!(reasons, ["NodeNotAllowed", "NodeNotLeased", "NodeNotAllowed", "OutOfcpu", "OutOfhostports"]);
}
