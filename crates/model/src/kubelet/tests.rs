use serde_json::json;

use super::*;
use crate::key::Physical;
use crate::object::Object;

fn route(path: &str) -> PodRoute {
    match Route::read(path) {
        Some(Route::Pod(route)) => route,
        other => panic!("{path}: {other:?}"),
    }
}

fn sent(path: &str, query: &str) -> Result<String, Refusal> {
    let twin = Key::<Physical>::new("mount", "a-1234");
    Errand::read(&route(path), query).map(|errand| errand.at(&twin))
}

#[test]
fn every_path_of_a_kubelet_that_we_serve_is_known() {
    for (path, pod, uid, container) in [
        ("/containerLogs/web/a/c1", "web/a", None, Some("c1")),
        ("/exec/web/a/c1", "web/a", None, Some("c1")),
        ("/exec/web/a/0a1b-2c/c1", "web/a", Some("0a1b-2c"), Some("c1")),
        ("/attach/web/a.b/c1", "web/a.b", None, Some("c1")),
        ("/attach/web/a/u-1/c1", "web/a", Some("u-1"), Some("c1")),
        ("/portForward/web/a", "web/a", None, None),
        ("/portForward/web/a/u-1", "web/a", Some("u-1"), None),
    ] {
        let route = route(path);
        assert_eq!(route.pod.to_string(), pod, "{path}");
        assert_eq!((route.uid.as_deref(), route.container.as_deref()), (uid, container), "{path}");
    }
    for (path, telling) in [
        ("/pods", Telling::Pods),
        ("/metrics", Telling::Metrics),
        ("/metrics/resource", Telling::ResourceMetrics),
        ("/metrics/cadvisor", Telling::CadvisorMetrics),
        ("/healthz", Telling::Health),
    ] {
        assert_eq!(Route::read(path), Some(Route::Node(telling)), "{path}");
    }
}

#[test]
fn other_paths_are_unknown() {
    let long = format!("/exec/web/a/{}/c1", "u".repeat(65));
    for path in [
        "",
        "/",
        "*",
        "pods",
        "//pods",
        "/pods/",
        "/Pods",
        "/run/web/a/c1",
        "/exec/web/a",
        "/exec/web/a/c1/",
        "/exec/web/a/u/c/d",
        "/exec//a/c1",
        "/exec/web//c1",
        "/exec/web/a//c1",
        "/containerLogs/web/a/u-1/c1",
        "/portForward/web/a/u-1/c1",
        "/exec/web/../c1",
        "/exec/web/..%2f..%2fkube-system/c1",
        "/exec/web/a%2fb/c1",
        "/exec/web/a/c1%00",
        "/exec/we%62/a/c1",
        "/exec/WEB/a/c1",
        "/exec/web/a/c1;v=1",
        "/metrics/probes",
        "/metrics/../pods",
        "/healthz/",
        "/stats/summary",
        "/configz",
        "/debug/pprof/heap",
        "/exec/web/a\\b/c1",
        "/exec/web/a\u{0}/c1",
        "/exec/web/a/u_1/c1",
        "/exec/web/.a/c1",
        long.as_str(),
    ] {
        assert_eq!(Route::read(path), None, "{path}");
    }
}

#[test]
fn only_the_methods_of_a_kubelet_are_taken() {
    for (path, taken) in [
        ("/containerLogs/web/a/c1", &["GET"][..]),
        ("/exec/web/a/c1", &["GET", "POST"]),
        ("/portForward/web/a", &["GET", "POST"]),
        ("/pods", &["GET"]),
    ] {
        let route = Route::read(path).unwrap();
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT", "get"] {
            assert_eq!(route.takes(method), taken.contains(&method), "{method} {path}");
        }
    }
}

#[test]
fn an_exec_is_sent_in_the_words_of_an_api_server() {
    assert_eq!(
        sent("/exec/web/a/c1", "command=sh&command=-c&command=echo+%26+%2F&input=1&output=1&tty=1&error=1")
            .unwrap(),
        "/api/v1/namespaces/mount/pods/a-1234/exec?container=c1&stdin=true&stdout=true&tty=true&command=sh&command=-c\
         &command=echo%20%26%20%2F"
    );
    assert_eq!(
        sent("/attach/web/a/c1", "output=1&error=1").unwrap(),
        "/api/v1/namespaces/mount/pods/a-1234/attach?container=c1&stdout=true&stderr=true"
    );
    assert_eq!(
        sent("/portForward/web/a", "port=80,81&port=82").unwrap(),
        "/api/v1/namespaces/mount/pods/a-1234/portforward?ports=80&ports=81&ports=82"
    );
    assert_eq!(sent("/portForward/web/a", "").unwrap(), "/api/v1/namespaces/mount/pods/a-1234/portforward");
}

#[test]
fn every_option_of_a_log_is_sent_on() {
    assert_eq!(
        sent(
            "/containerLogs/web/a/c1",
            "follow=true&previous=false&timestamps=true&sinceSeconds=5&tailLines=0&limitBytes=10&stream=Stdout&pretty=1"
        )
        .unwrap(),
        "/api/v1/namespaces/mount/pods/a-1234/log?container=c1&follow=true&timestamps=true&sinceSeconds=5&tailLines=0\
         &limitBytes=10&stream=Stdout"
    );
    assert_eq!(
        sent("/containerLogs/web/a/c1", "sinceTime=2026-11-20T08:00:00%2B01:00&previous=true&tail=3")
            .unwrap(),
        "/api/v1/namespaces/mount/pods/a-1234/log?container=c1&previous=true&tailLines=3&sinceTime=2026-11-20T07%3A00%3A00Z"
    );
    assert_eq!(
        sent("/containerLogs/web/a/c1", "").unwrap(),
        "/api/v1/namespaces/mount/pods/a-1234/log?container=c1"
    );
}

#[test]
fn bad_options_are_refused_as_a_kubelet_refuses_them() {
    for (path, query, code) in [
        ("/exec/web/a/c1", "command=ls", 400),
        ("/exec/web/a/c1", "output=1", 400),
        ("/exec/web/a/c1", "output=maybe&command=ls", 400),
        ("/exec/web/a/c1", "output=1&output=0&command=ls", 400),
        ("/exec/web/a/c1", "output=1&command=l%00s", 400),
        ("/exec/web/a/c1", "output=1&command=%ff", 400),
        ("/exec/web/a/c1", "output=1;command=ls", 400),
        ("/attach/web/a/c1", "tty=1&error=1", 400),
        ("/portForward/web/a", "port=0", 400),
        ("/portForward/web/a", "port=65536", 400),
        ("/portForward/web/a", "port=80,", 400),
        ("/portForward/web/a", "port=+80", 400),
        ("/containerLogs/web/a/c1", "follow=yes", 400),
        ("/containerLogs/web/a/c1", "tailLines=-1", 400),
        ("/containerLogs/web/a/c1", "tailLines=1&tailLines=2", 400),
        ("/containerLogs/web/a/c1", "tailLines=99999999999999999999", 400),
        ("/containerLogs/web/a/c1", "sinceTime=yesterday", 400),
        ("/containerLogs/web/a/c1", "sinceSeconds=0", 422),
        ("/containerLogs/web/a/c1", "limitBytes=0", 422),
        ("/containerLogs/web/a/c1", "stream=stdout", 422),
        ("/containerLogs/web/a/c1", "sinceSeconds=1&sinceTime=2026-11-20T08:00:00Z", 422),
    ] {
        assert_eq!(sent(path, query).map_err(|refusal| refusal.code), Err(code), "{path}?{query}");
    }
}

#[test]
fn calls_need_the_rights_that_kubelets_ask_for() {
    let needs = |method, path, is_upgrade| {
        let needs = Needs::of(method, path, is_upgrade)?;
        let rights: Vec<&str> = needs.subresources().map(Subresource::as_str).collect();
        Some(format!("{} {}", needs.verb, rights.join(" or ")))
    };
    for (method, path, is_upgrade, wanted) in [
        ("GET", "/containerLogs/web/a/c1", false, "get proxy"),
        ("GET", "/containerLogs/web/a/c1", true, "create proxy"),
        ("POST", "/exec/web/a/c1", true, "create proxy"),
        ("GET", "/exec/web/a/c1", false, "create proxy"),
        ("GET", "/attach/web/a/c1", true, "create proxy"),
        ("GET", "/portForward/web/a", true, "create proxy"),
        ("GET", "/pods", false, "get pods or proxy"),
        ("GET", "/metrics", false, "get metrics or proxy"),
        ("GET", "/metrics/resource", false, "get metrics or proxy"),
        ("GET", "/metrics/cadvisor", true, "create metrics or proxy"),
        ("GET", "/healthz", false, "get healthz or proxy"),
        ("GET", "/configz", false, "get configz or proxy"),
        ("GET", "/stats/summary", false, "get stats or proxy"),
        ("PUT", "/anything", false, "update proxy"),
        ("DELETE", "/pods", false, "delete pods or proxy"),
    ] {
        assert_eq!(needs(method, path, is_upgrade).as_deref(), Some(wanted), "{method} {path}");
    }
    assert_eq!(needs("BREW", "/pods", false), None);
}

fn bound(uid: &str, node: &str) -> BoundPod {
    let object = json!({
        "metadata": {"name": "a", "namespace": "web", "uid": uid},
        "spec": {"nodeName": node, "containers": [{"name": "c1"}], "initContainers": [{"name": "i1"}],
                 "ephemeralContainers": [{"name": "e1"}]},
    });
    BoundPod::read(&Object::from_value(object).unwrap())
}

#[test]
fn a_pod_is_answered_for_by_its_own_twin_and_by_nobody_else() {
    let twin = |name: &str, uid: &str| PhysicalTwin { key: Key::new("mount", name), virtual_uid: uid.into() };
    let twins = [twin("other", "u-2"), twin("a-1", "u-1"), twin("nobody", "")];
    let route = route("/exec/web/a/u-1/c1");
    let question = TwinQuestion { route: &route, vnode: "vnode-w-n1", cluster_id: "w" };
    let pod = bound("u-1", "vnode-w-n1");
    question.check(Some(&pod)).unwrap();
    assert_eq!(&*question.twin(&pod, &twins).unwrap().key.name, "a-1");
    assert_eq!(
        question.twin(&bound("u-3", "vnode-w-n1"), &twins).map_err(|refusal| refusal.code),
        Err(NOT_NOW)
    );
    assert_eq!(question.twin(&bound("", "vnode-w-n1"), &twins).map_err(|refusal| refusal.code), Err(NOT_NOW));
}

#[test]
fn a_pod_that_is_not_this_nodes_does_not_exist() {
    let pod = bound("u-1", "vnode-w-n1");
    for (path, vnode, pod, message) in [
        ("/containerLogs/web/a/c1", "vnode-w-n1", None, "pod \"a\" does not exist"),
        ("/containerLogs/web/a/c1", "vnode-w-n2", Some(&pod), "pod \"a\" does not exist"),
        ("/exec/web/a/c1", "vnode-w-n2", Some(&pod), "pod does not exist"),
        ("/exec/web/a/u-2/c1", "vnode-w-n1", Some(&pod), "pod does not exist"),
        ("/portForward/web/a/u-2", "vnode-w-n1", Some(&pod), "pod does not exist"),
        ("/exec/web/a/c2", "vnode-w-n1", Some(&pod), "container \"c2\" not found in pod \"a\""),
        ("/exec/web/a/c1", "", Some(&bound("u-1", "")), "pod does not exist"),
    ] {
        let route = route(path);
        let refused = TwinQuestion { route: &route, vnode, cluster_id: "w" }.check(pod);
        assert_eq!(refused, Err(Refusal::new(404, message)), "{path} on {vnode}");
    }
    for container in ["c1", "i1", "e1"] {
        let route = route(&format!("/exec/web/a/{container}"));
        let question = TwinQuestion { route: &route, vnode: "vnode-w-n1", cluster_id: "w" };
        question.check(Some(&pod)).unwrap();
    }
}
