//! Who an actor is, and what it may: as a test sets it up, and as the actor finds out.

use kubeocean_testkit::{ApiServer, Options, Right};
use serde_json::{Value, json};

const ACCESS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

fn may(server: &ApiServer, actor: &str, attributes: &Value) -> bool {
    let review = json!({"spec": {"resourceAttributes": attributes}});
    let (code, answer) = server.call(actor, "POST", ACCESS, None, Some(review));
    assert_eq!(code, 201, "{answer}");
    answer["status"]["allowed"].as_bool().unwrap()
}

fn user(server: &ApiServer, actor: &str) -> Value {
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let (code, answer) = server.call(actor, "POST", path, None, Some(json!({})));
    assert_eq!(code, 201, "{answer}");
    answer["status"]["userInfo"].clone()
}

#[test]
fn what_is_denied_is_refused_and_reviews_say_so() {
    let server = ApiServer::new(Options::default());
    let right = Right::to("list", "secrets").within("default");
    server.deny("worker", right.clone());
    let list = |actor: &str, path: &str| server.call(actor, "GET", path, None, None).0;
    let asked = json!({"verb": "list", "resource": "secrets", "namespace": "default"});
    assert!(!may(&server, "worker", &asked));
    assert_eq!(list("worker", "/api/v1/namespaces/default/secrets"), 403);
    assert!(!may(&server, "worker", &json!({"verb": "list", "resource": "secrets"})));
    assert_eq!(list("worker", "/api/v1/secrets"), 403);
    assert!(may(
        &server,
        "worker",
        &json!({"verb": "list", "resource": "secrets", "namespace": "kube-system"})
    ));
    assert_eq!(list("worker", "/api/v1/namespaces/kube-system/secrets"), 200);
    assert!(may(&server, "other", &asked));
    assert_eq!(list("other", "/api/v1/secrets"), 200);
    server.grant("worker", &right);
    assert!(may(&server, "worker", &asked));
    assert_eq!(list("worker", "/api/v1/secrets"), 200);
}

#[test]
fn subresources_and_groups_are_denied_by_name() {
    let denied = vec![
        ("*".to_owned(), Right::to("create", "pods/eviction")),
        ("*".to_owned(), Right::to("patch", "deployments.apps/scale")),
    ];
    let server = ApiServer::new(Options { denied, ..Options::default() });
    assert!(!may(&server, "me", &json!({"verb": "create", "resource": "pods", "subresource": "eviction"})));
    assert!(may(&server, "me", &json!({"verb": "create", "resource": "pods"})));
    let scale = |group: &str| json!({"verb": "patch", "group": group, "resource": "deployments", "subresource": "scale"});
    assert!(!may(&server, "me", &scale("apps")));
    assert!(may(&server, "me", &scale("example.com")));
    server.allow_all();
    assert!(may(&server, "me", &scale("apps")));
}

#[test]
fn an_actor_is_the_user_that_it_is_said_to_be() {
    let server = ApiServer::new(Options::default());
    assert_eq!(user(&server, "worker")["username"], "system:serviceaccount:kubeocean-worker:kubeocean");
    assert_eq!(
        user(&server, "system:admin"),
        json!({"username": "system:admin", "groups": ["system:authenticated"]})
    );
    server.identify("worker", "system:serviceaccount:kubeocean-system:proxier");
    let found = user(&server, "worker");
    assert_eq!(found["username"], "system:serviceaccount:kubeocean-system:proxier");
    assert_eq!(
        found["groups"],
        json!(["system:serviceaccounts", "system:serviceaccounts:kubeocean-system", "system:authenticated"])
    );
    // A signing request carries its maker's name, too.
    let request = json!({"metadata": {"name": "r"}, "spec": {
        "signerName": "kubernetes.io/kubelet-serving", "usages": ["server auth"], "request": include_str!("parity/serving.b64"),
        "username": "someone else",
    }});
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let (code, made) = server.call("worker", "POST", path, None, Some(request));
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["spec"]["username"], "system:serviceaccount:kubeocean-system:proxier");
}
