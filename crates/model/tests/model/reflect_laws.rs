//! Laws of reflection: whatever a worker says, V comes to rest, keeps what is its own, and is asked for nothing that it refuses.

use jiff::Timestamp;
use kubeocean_model::reflect::{failed, has_run, is_terminal, last_word, mapped, not_mapped, reflect};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

use crate::reflect::{merge, object};

fn now() -> Timestamp {
    "2026-11-20T12:00:00Z".parse().unwrap()
}

const TYPES: [&str; 11] = [
    "Ready",
    "ContainersReady",
    "Initialized",
    "PodReadyToStartContainers",
    "PodScheduled",
    "DisruptionTarget",
    "PodResizePending",
    "PodResizeInProgress",
    "example.com/gate",
    "example.com/other",
    "kubeocean.io/Mapped",
];

fn condition(about: &'static str) -> impl Strategy<Value = Value> {
    let times = ["2026-11-20T11:00:00Z", "2026-11-20T11:30:00Z", "2026-11-20T13:00:00Z"];
    let reasons = [Value::Null, json!("R"), json!("ReadinessGatesNotReady")];
    (select(&["True", "False", "Unknown"][..]), select(reasons.to_vec()), select(times.to_vec())).prop_map(
        move |(status, reason, since)| {
            json!({"type": about, "status": status, "reason": reason, "lastTransitionTime": since, "lastProbeTime": null})
        },
    )
}

fn conditions() -> impl Strategy<Value = Vec<Value>> {
    subsequence(TYPES.to_vec(), 0..=TYPES.len())
        .prop_flat_map(|types| types.into_iter().map(condition).collect::<Vec<_>>())
        .prop_shuffle()
}

fn container(names: &'static [&'static str]) -> impl Strategy<Value = Value> {
    let states = [
        json!({"waiting": {"reason": "ContainerCreating"}}),
        json!({"running": {"startedAt": "2026-11-20T11:00:00Z"}}),
        json!({"terminated": {"exitCode": 0}}),
        json!({"terminated": {"exitCode": 137, "reason": "OOMKilled", "message": "m"}}),
    ];
    let devices =
        json!([{"name": "nvidia.com/gpu", "resources": [{"resourceID": "0", "health": "Healthy"}]}]);
    let more = [
        json!({}),
        json!({"resources": {"requests": {"cpu": "1"}}, "stopSignal": "SIGTERM"}),
        json!({"lastState": {"terminated": {"exitCode": 1}}, "allocatedResourcesStatus": devices}),
    ];
    (select(names), select(states.to_vec()), any::<bool>(), 0..3_u8, select(more.to_vec())).prop_map(
        |(name, state, ready, restarts, more)| {
            let mut one = json!({
                "name": name, "state": state, "lastState": {}, "ready": ready, "restartCount": restarts, "image": "x", "imageID": "",
            });
            merge(&mut one, &more);
            one
        },
    )
}

fn addresses() -> impl Strategy<Value = Vec<&'static str>> {
    let all =
        ["10.0.0.1", "10.0.0.2", "fd00::1", "127.0.0.1", "fe80::1", "nonsense", "::ffff:10.0.0.1", "0.0.0.0"];
    subsequence(all.to_vec(), 0..=3).prop_shuffle()
}

fn status() -> impl Strategy<Value = Value> {
    let phases = ["Pending", "Running", "Succeeded", "Failed", "Unknown", ""];
    let words = [Value::Null, json!("Evicted"), json!("")];
    (
        select(phases.to_vec()),
        conditions(),
        prop::collection::vec(container(&["a", "b", "stranger"]), 0..4),
        prop::collection::vec(container(&["i", "side"]), 0..3),
        prop::collection::vec(container(&["debug"]), 0..2),
        (addresses(), addresses()),
        select(words.to_vec()),
    )
        .prop_map(|(phase, conditions, containers, init, ephemeral, (pod, host), word)| {
            let list = |all: &[&str]| all.iter().map(|ip| json!({"ip": ip})).collect::<Vec<_>>();
            json!({
                "phase": phase, "conditions": conditions, "containerStatuses": containers, "initContainerStatuses": init,
                "ephemeralContainerStatuses": ephemeral, "podIP": pod.first(), "podIPs": list(&pod),
                "hostIP": host.first(), "hostIPs": list(&host), "reason": word, "message": word, "qosClass": "Guaranteed",
                "nominatedNodeName": "n", "resourceClaimStatuses": [{"name": "c"}],
            })
        })
}

fn spec() -> impl Strategy<Value = Value> {
    let policies = ["Always", "OnFailure", "Never"];
    let rules = [
        json!({}),
        json!({"restartPolicy": "Never", "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [137]}}]}),
    ];
    (select(policies.to_vec()), any::<bool>(), select(rules.to_vec())).prop_map(|(policy, gated, rules)| {
        let mut b = json!({"name": "b", "resources": {"requests": {"nvidia.com/gpu": "1"}}});
        merge(&mut b, &rules);
        json!({
            "restartPolicy": policy, "containers": [{"name": "a"}, b],
            "initContainers": [{"name": "i"}, {"name": "side", "restartPolicy": "Always"}],
            "ephemeralContainers": [{"name": "debug"}],
            "readinessGates": if gated { json!([{"conditionType": "example.com/gate"}]) } else { json!([]) },
        })
    })
}

fn pod(spec: &Value, status: &Value) -> Value {
    json!({"metadata": {"namespace": "web", "name": "a", "uid": "u"}, "spec": spec, "status": status})
}

fn twin(status: &Value) -> Value {
    json!({"metadata": {"namespace": "mount", "name": "t", "uid": "p"}, "status": status})
}

/// V's status as our own earlier writes would have left it: someone else's conditions, and what a worker said before.
fn known() -> impl Strategy<Value = (Value, Value)> {
    (spec(), status(), conditions()).prop_map(|(spec, before, own)| {
        let mut pod = pod(&spec, &json!({"phase": "Pending", "qosClass": "Burstable", "conditions": own}));
        if let Some(patch) = reflect(&object(&pod), &object(&twin(&before)), Some(1), now()).patch {
            merge(&mut pod, &patch);
        }
        (spec, pod)
    })
}

fn find<'a>(pod: &'a Value, about: &str) -> Option<&'a Value> {
    pod["status"]["conditions"].as_array().into_iter().flatten().find(|one| one["type"] == about)
}

/// What an API server would not take, by its own rules, in few words.
fn refusals(before: &Value, after: &Value) -> Vec<String> {
    let mut all = Vec::new();
    let (old, new) = (&before["status"], &after["status"]);
    for field in ["qosClass", "nominatedNodeName", "resourceClaimStatuses"] {
        if old[field] != new[field] {
            all.push(format!("{field} was changed"));
        }
    }
    for (single, list) in [("podIP", "podIPs"), ("hostIP", "hostIPs")] {
        let ips: Vec<&str> =
            new[list].as_array().into_iter().flatten().map(|one| one["ip"].as_str().unwrap()).collect();
        if ips.first().copied() != new[single].as_str() {
            all.push(format!("{single} is not the first of {list}"));
        }
        let v6 = ips.iter().filter(|ip| ip.contains(':')).count();
        if v6 > 1
            || ips.len() - v6 > 1
            || ips.iter().any(|ip| !["10.0.0.1", "10.0.0.2", "fd00::1"].contains(ip))
        {
            all.push(format!("{list} are {ips:?}"));
        }
    }
    for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        let ended = |one: &Value| one["state"].get("terminated").is_some();
        for one in old[list].as_array().into_iter().flatten().filter(|one| ended(one)) {
            let name = one["name"].as_str().unwrap();
            let lives =
                new[list].as_array().into_iter().flatten().any(|new| new["name"] == name && !ended(new));
            let failed = one["state"]["terminated"]["exitCode"] != 0;
            let spec = &before["spec"];
            let by_rule = name == "b" && spec["containers"][1].get("restartPolicyRules").is_some();
            let may = match spec["restartPolicy"].as_str().unwrap() {
                _ if name == "debug" => false,
                _ if name == "side" => true,
                _ if by_rule => failed,
                "Always" => true,
                "OnFailure" => failed,
                _ => false,
            };
            if lives && !may {
                all.push(format!("{name} came back"));
            }
        }
        for one in new[list].as_array().into_iter().flatten() {
            if one.get("allocatedResourcesStatus").is_some_and(|all| all != &json!([])) && one["name"] != "b"
            {
                all.push("health of a device that nobody asked for".to_owned());
            }
        }
    }
    all
}

proptest! {
    #[test]
    fn v_comes_to_rest_after_one_write(((_, pod), said) in (known(), status())) {
        let (mut pod, twin) = (pod, object(&twin(&said)));
        if let Some(patch) = reflect(&object(&pod), &twin, Some(2), now()).patch {
            prop_assert!(!is_terminal(&object(&pod)), "terminal is final");
            let before = pod.clone();
            merge(&mut pod, &patch);
            prop_assert_eq!(refusals(&before, &pod), Vec::<String>::new());
            for theirs in ["PodScheduled", "example.com/gate", "example.com/other"] {
                prop_assert_eq!(find(&before, theirs), find(&pod, theirs));
            }
        }
        let later = now().checked_add(jiff::SignedDuration::from_secs(60)).unwrap();
        let again = reflect(&object(&pod), &twin, Some(2), later);
        prop_assert!(again.patch.is_none() && again.events.is_empty(), "{:?}", again.patch);
    }

    /// Older API servers, or such with features switched off, drop what they do not know. They are not told for ever.
    #[test]
    fn a_server_that_drops_new_fields_is_not_told_again((spec, said) in (spec(), status())) {
        let mut pod = pod(&spec, &json!({"phase": "Pending"}));
        let twin = object(&twin(&said));
        if let Some(patch) = reflect(&object(&pod), &twin, Some(2), now()).patch {
            merge(&mut pod, &patch);
        }
        let status = pod["status"].as_object_mut().unwrap();
        status.remove("hostIPs");
        status.remove("observedGeneration");
        for list in ["conditions", "containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
            for one in status.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                let new = ["observedGeneration", "resources", "stopSignal", "allocatedResourcesStatus"];
                one.as_object_mut().unwrap().retain(|key, _| !new.contains(&key.as_str()));
            }
        }
        prop_assert_eq!(reflect(&object(&pod), &twin, Some(2), now()).patch, None);
    }

    #[test]
    fn the_order_of_the_workers_conditions_does_not_matter(((_, pod), said) in (known(), status())) {
        let mut turned = said.clone();
        turned["conditions"].as_array_mut().unwrap().reverse();
        let of = |said: &Value| reflect(&object(&pod), &object(&twin(said)), Some(2), now()).patch;
        prop_assert_eq!(of(&said), of(&turned));
    }

    #[test]
    fn the_last_word_is_terminal_and_the_last(((_, pod), said) in (known(), prop::option::of(status()))) {
        let mut pod = pod;
        let twin = said.as_ref().map(|said| object(&twin(said)));
        let was_terminal = is_terminal(&object(&pod));
        let word = last_word(&object(&pod), twin.as_ref(), Some(2), now());
        prop_assert_eq!(word.is_none(), was_terminal);
        if let Some(word) = word {
            let before = pod.clone();
            merge(&mut pod, &word);
            prop_assert_eq!(refusals(&before, &pod), Vec::<String>::new());
            let last = said.as_ref().and_then(|said| said["phase"].as_str());
            let phase = if last == Some("Succeeded") { "Succeeded" } else { "Failed" };
            prop_assert_eq!(pod["status"]["phase"].as_str(), Some(phase));
            for about in ["Ready", "ContainersReady"] {
                prop_assert!(find(&pod, about).is_none_or(|one| one["status"] != "True"));
            }
        }
        prop_assert_eq!(last_word(&object(&pod), twin.as_ref(), Some(2), now()), None);
        prop_assert!(has_run(&object(&pod)));
    }
}

/// A value of any shape.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z$/]{0,8}".prop_map(Value::from),
        select(vec!["Running", "Failed", "True", "Ready", "c"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        let keys = vec![
            "phase",
            "conditions",
            "containerStatuses",
            "podIPs",
            "podIP",
            "ip",
            "type",
            "status",
            "name",
            "state",
            "terminated",
            "containers",
            "readinessGates",
            "$patch",
            "lastTransitionTime",
            "resources",
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((select(keys), inner), 0..6)
                .prop_map(|pairs| pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

proptest! {
    #[test]
    fn nasty_shapes_never_panic((spec, known, said) in (anything(), anything(), anything())) {
        let mut said = said;
        if said.is_object() {
            said["phase"] = "Running".into();
        }
        let (pod, twin) = (object(&pod(&spec, &known)), object(&twin(&said)));
        reflect(&pod, &twin, Some(i64::MIN), now());
        let fresh = object(&json!({"metadata": {}, "spec": spec}));
        let said = reflect(&fresh, &twin, None, now()).patch.map(|patch| patch.to_string()).unwrap_or_default();
        let ours = r#"{"$patch":"replace"}"#;
        prop_assert!(!said.replace(ours, "").contains("\"$patch\":"), "a directive of the worker's: {}", said);
        last_word(&pod, Some(&twin), Some(0), now());
        failed(&pod, "", "", true, now());
        has_run(&pod);
        mapped(&pod, now());
    }
}

#[test]
fn a_pod_that_has_run_is_known_by_any_trace_of_it() {
    let is = |status: &Value| has_run(&object(&pod(&json!({}), status)));
    let one = |list: &str, status: Value| json!({"phase": "Pending", list: [status]});
    for traces in [
        json!({"phase": "Running"}),
        json!({"phase": "Unknown"}),
        json!({"phase": "Failed"}),
        one("initContainerStatuses", json!({"state": {"running": {}}})),
        one("containerStatuses", json!({"state": {"terminated": {"exitCode": 0}}})),
        one(
            "containerStatuses",
            json!({"state": {"waiting": {}}, "lastState": {"terminated": {"exitCode": 1}}}),
        ),
        one("containerStatuses", json!({"started": true})),
        one("ephemeralContainerStatuses", json!({"restartCount": 1})),
        one("conditions", json!({"type": "kubeocean.io/Mapped", "status": "True"})),
    ] {
        assert!(is(&traces), "{traces}");
    }
    for none in [
        json!({}),
        json!({"phase": ""}),
        json!({"phase": "Pending"}),
        one(
            "containerStatuses",
            json!({"state": {"waiting": {"reason": "ContainerCreating"}}, "lastState": {}, "restartCount": 0}),
        ),
        one("conditions", json!({"type": "kubeocean.io/Mapped", "status": "False"})),
    ] {
        assert!(!is(&none), "{none}");
    }
}

#[test]
fn only_a_pod_that_must_not_run_twice_is_marked() {
    let of = |spec: Value| mapped(&object(&pod(&spec, &json!({"phase": "Pending"}))), now()).is_some();
    assert!(of(json!({"restartPolicy": "Never"})) && of(json!({"restartPolicy": "OnFailure"})));
    assert!(!of(json!({"restartPolicy": "Always"})) && !of(json!({})));
}

#[test]
fn a_refusal_is_said_once_whatever_its_numbers_are_and_taken_back_when_the_twin_is_there() {
    for policy in ["Never", "Always"] {
        let mut pod = pod(&json!({"restartPolicy": policy}), &json!({"phase": "Pending"}));
        let refuse = |pod: &mut Value, is_mapped: bool, why: &str| {
            let word = not_mapped(&object(pod), is_mapped, "FailedCreate", why, now());
            word.inspect(|word| merge(pod, word)).is_some()
        };
        let mark = |pod: &mut Value| mapped(&object(pod), now()).inspect(|word| merge(pod, word)).is_some();
        let is_once = policy == "Never";
        assert_eq!(mark(&mut pod), is_once);
        assert!(refuse(&mut pod, is_once, "used: 3"));
        assert!(!has_run(&object(&pod)));
        assert!(!refuse(&mut pod, false, "used: 4"), "another number is no news");
        assert!(refuse(&mut pod, false, "denied"));
        // It is tried once more, and nobody has heard of that yet.
        let before = pod.clone();
        assert_eq!(mark(&mut pod), is_once);
        assert_eq!(has_run(&object(&pod)), is_once);
        let mut late = before;
        assert_eq!(refuse(&mut late, is_once, "denied"), is_once, "what was written is taken back");
        refuse(&mut pod, false, "denied");
        assert!(!has_run(&object(&pod)));
        let said = twin(&json!({"phase": "Pending"}));
        let word = reflect(&object(&pod), &object(&said), None, now()).patch.unwrap();
        merge(&mut pod, &word);
        let known = find(&pod, "kubeocean.io/Mapped");
        assert_eq!(known.map(|one| one["status"] == "True"), is_once.then_some(true), "{pod}");
        assert!(known.is_none_or(|one| one["message"].is_null() && one["reason"].is_null()), "{pod}");
    }
}

#[test]
fn v_keeps_its_own_word_about_a_disruption() {
    let with = |status: &str, reason: &str, at: &str| {
        json!({"phase": "Running", "conditions": [
            {"type": "DisruptionTarget", "status": status, "reason": reason, "lastTransitionTime": format!("2026-11-20T{at}:00Z")},
        ]})
    };
    let told = |known: &Value, said: &Value| {
        let patch = reflect(&object(&pod(&json!({}), known)), &object(&twin(said)), None, now()).patch;
        patch.is_some_and(|patch| patch["status"]["conditions"][0]["type"] == "DisruptionTarget")
    };
    let said = with("True", "PreemptionByScheduler", "11:00");
    assert!(told(&json!({"phase": "Running"}), &said));
    assert!(!told(&with("True", "LeaseEnds", "10:00"), &said));
    assert!(
        !told(&with("False", "", "11:02"), &said),
        "V's disruption controller saw that nothing came of it"
    );
    assert!(told(&with("False", "", "10:00"), &said), "this one is new");
    assert!(!told(&json!({"phase": "Running"}), &with("False", "", "11:00")));
    let lost = failed(&object(&pod(&json!({}), &said)), "PhysicalPodLost", "m", true, now());
    assert_eq!(lost["status"].get("conditions"), None, "the worker's reason stays");
}

#[test]
fn annotations_that_fill_the_pod_do_not_keep_its_status_away() {
    let mut pod = pod(&json!({}), &json!({"phase": "Pending"}));
    pod["metadata"]["annotations"] = json!({"big": "x".repeat(256 * 1024 - 10)});
    let patch =
        reflect(&object(&pod), &object(&twin(&json!({"phase": "Running"}))), None, now()).patch.unwrap();
    assert_eq!(patch, json!({"status": {"phase": "Running"}}));
}
