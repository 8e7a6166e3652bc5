//! Against servers that play a kubelet and an API server, over real TLS.

mod stage;

use std::time::Duration;

use http::StatusCode;
use kubeocean_cluster::kubelet::{Bounds, Trust};

use super::Limits;
use stage::{Authority, Behaviour, Scene, Server, User};

/// A kubelet that does this, and a worker cluster that has or has not a metrics-server.
async fn scene(kubelet: Behaviour, api_server: Behaviour, limits: Limits) -> Scene {
    let authority = Authority::new();
    let kubelet = Server::start(&authority, kubelet).await;
    let api_server = Server::start(&authority, api_server).await;
    Scene::new(&authority, kubelet, api_server, User::Token, Trust::Kubeconfig, limits).await
}

#[tokio::test]
async fn a_kubelet_is_asked_with_our_token_and_only_our_pods_leave() {
    let scene = scene(Behaviour::Good, Behaviour::Good, Limits::default()).await;
    let text = scene.resource().await.unwrap();
    assert!(
        text.contains(
            r#"container_cpu_usage_seconds_total{container="main",namespace="shop",pod="web"} 12.5 "#
        ),
        "{text}"
    );
    assert!(!text.contains("mount") && !text.contains("lender"), "{text}");
    assert!(text.contains("node_cpu_usage_seconds_total 13"), "not what the machine used: {text}");
    let text = scene.cadvisor().await.unwrap();
    assert!(text.contains(r#"namespace="shop",pod="web""#), "{text}");
    assert!(!text.contains("mount") && !text.contains("lender") && !text.contains("machine_"), "{text}");
    let heard = scene.kubelet.heard();
    assert_eq!(
        heard.iter().map(|one| (one.path.as_str(), one.authorization.as_deref())).collect::<Vec<_>>(),
        [("/metrics/resource", Some("Bearer hunter2")), ("/metrics/cadvisor", Some("Bearer hunter2"))]
    );
    assert!(scene.api_server.heard().is_empty(), "the API server is not asked for metrics");
}

#[tokio::test]
async fn many_who_ask_at_the_same_time_and_a_moment_later_cost_one_question() {
    let scene = scene(Behaviour::Good, Behaviour::Good, Limits::default()).await;
    let all = futures::future::join_all((0..50).map(|_| scene.resource())).await;
    let first = all[0].as_ref().unwrap();
    assert!(all.iter().all(|answer| answer.as_ref().unwrap() == first));
    scene.resource().await.unwrap();
    futures::future::join_all((0..50).map(|_| scene.cadvisor())).await;
    assert_eq!(scene.kubelet.heard().len(), 2, "one for each page");
}

#[tokio::test]
async fn what_was_said_a_moment_ago_is_not_repeated_later() {
    let limits = Limits { kept: Duration::ZERO, ..Limits::default() };
    let scene = scene(Behaviour::Good, Behaviour::Good, limits).await;
    scene.resource().await.unwrap();
    scene.resource().await.unwrap();
    assert_eq!(scene.kubelet.heard().len(), 2);
    scene.kubelet.behave(Behaviour::Refuses(500));
    scene.api_server.behave(Behaviour::Refuses(503));
    let refused = scene.resource().await.unwrap_err();
    assert_eq!(refused.code, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn a_kubelet_of_another_authority_sees_no_token_and_the_worker_is_asked_instead() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let kubelet = Server::start(&theirs, Behaviour::Good).await;
    let api_server = Server::start(&ours, Behaviour::Good).await;
    let scene =
        Scene::new(&ours, kubelet, api_server, User::Token, Trust::Kubeconfig, Limits::default()).await;
    let text = scene.resource().await.unwrap();
    assert!(
        text.contains(
            r#"container_memory_working_set_bytes{container="main",namespace="shop",pod="web"} 2097152 "#
        ),
        "{text}"
    );
    let refused = scene.cadvisor().await.unwrap_err();
    assert_eq!(refused.code, StatusCode::SERVICE_UNAVAILABLE);
    for words in ["worker node n1 at 127.0.0.1:", "invalid peer certificate", "--physical-kubelet-ca"] {
        assert!(refused.message.contains(words), "{}", refused.message);
    }
    assert!(scene.kubelet.heard().is_empty(), "nothing was sent");
}

#[tokio::test]
async fn a_kubelet_with_the_certificate_of_another_machine_sees_no_token() {
    let authority = Authority::new();
    let kubelet = Server::start_as([10, 0, 0, 9], &authority, Behaviour::Good).await;
    let api_server = Server::start(&authority, Behaviour::Good).await;
    let scene =
        Scene::new(&authority, kubelet, api_server, User::Token, Trust::Kubeconfig, Limits::default()).await;
    let refused = scene.cadvisor().await.unwrap_err();
    assert!(refused.message.contains("certificate not valid for name"), "{}", refused.message);
    assert!(scene.kubelet.heard().is_empty(), "nothing was sent");
}

#[tokio::test]
async fn the_authority_of_kubelets_can_be_another_one() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let kubelet = Server::start(&theirs, Behaviour::Good).await;
    let api_server = Server::start(&ours, Behaviour::Good).await;
    let trust = Trust::authorities(theirs.pem().as_bytes()).unwrap();
    let scene = Scene::new(&ours, kubelet, api_server, User::Token, trust, Limits::default()).await;
    assert!(scene.cadvisor().await.is_ok());
    assert_eq!(scene.kubelet.heard()[0].authorization.as_deref(), Some("Bearer hunter2"));
    assert!(Trust::authorities(b"not a certificate").is_err());
}

#[tokio::test]
async fn a_kubelet_that_need_not_prove_itself_is_shown_a_certificate_and_never_a_token() {
    for (user, answers) in [(User::Token, false), (User::Certificate, true), (User::Both, true)] {
        let (ours, theirs) = (Authority::new(), Authority::new());
        let kubelet = Server::start(&theirs, Behaviour::Good).await;
        let api_server = Server::start(&ours, Behaviour::Good).await;
        let scene = Scene::new(&ours, kubelet, api_server, user, Trust::Anybody, Limits::default()).await;
        let answer = scene.cadvisor().await;
        assert_eq!(answer.is_ok(), answers, "{user:?}: {answer:?}");
        let heard = scene.kubelet.heard();
        assert!(heard.iter().all(|one| one.authorization.is_none()), "{user:?}: a token was shown");
        assert_eq!(heard.iter().filter(|one| one.certificate).count(), usize::from(answers), "{user:?}");
        if let Err(refused) = answer {
            assert!(refused.message.contains("a token is not shown to a server"), "{}", refused.message);
        }
    }
}

#[tokio::test]
async fn a_refusal_names_the_right_that_is_missing() {
    for code in [401, 403] {
        let scene = scene(Behaviour::Refuses(code), Behaviour::Good, Limits::default()).await;
        let refused = scene.cadvisor().await.unwrap_err();
        assert_eq!(refused.code, StatusCode::SERVICE_UNAVAILABLE);
        assert!(refused.message.contains(&code.to_string()), "{}", refused.message);
        assert!(refused.message.contains("`get` of `nodes/metrics`"), "{}", refused.message);
        assert!(scene.resource().await.is_ok(), "the worker cluster says it instead");
    }
}

#[tokio::test]
async fn a_kubelet_that_is_slow_endless_broken_or_gone_costs_itself_and_not_us() {
    let slow = [
        (Behaviour::Silent, "no answer within 1 s"),
        (Behaviour::Endless, "more than"),
        (Behaviour::BreaksOff, "not reachable"),
        (Behaviour::Gone, "not reachable"),
    ];
    for (behaviour, words) in slow {
        // Only who says nothing at all is waited for to the end; a busy machine takes its time with the others.
        let seconds = if matches!(behaviour, Behaviour::Silent) { 1 } else { 30 };
        let small = Bounds { within: Duration::from_secs(seconds), longest: 1 << 20 };
        let limits = Limits { resource: small, cadvisor: small, ..Limits::default() };
        let scene = scene(behaviour, Behaviour::Good, limits).await;
        let text = scene.resource().await.unwrap();
        assert!(text.contains(" 2097152 "), "{behaviour:?}: from the worker's metrics.k8s.io: {text}");
        assert!(!text.contains("12.5"), "{behaviour:?}: half of an answer is none: {text}");
        let refused = scene.cadvisor().await.unwrap_err();
        assert!(refused.message.contains(words), "{behaviour:?}: {}", refused.message);
    }
}

#[tokio::test]
async fn a_kubelet_in_trouble_is_left_alone_for_a_while_and_the_cause_is_still_told() {
    let limits = Limits { kept: Duration::ZERO, ..Limits::default() };
    let scene = scene(Behaviour::Refuses(403), Behaviour::Good, limits).await;
    for _ in 0..5 {
        let refused = scene.cadvisor().await.unwrap_err();
        assert!(refused.message.contains("403"), "{}", refused.message);
    }
    assert_eq!(scene.kubelet.heard().len(), 1);
    // Someone gave us other credentials.
    scene.kubelet.behave(Behaviour::Good);
    scene.give_credentials(User::Certificate).await;
    assert!(scene.cadvisor().await.is_ok());
    let heard = scene.kubelet.heard();
    assert!(heard[1].certificate && heard[1].authorization.is_none(), "the new ones, and not the old ones");
}

#[tokio::test]
async fn a_connection_that_has_not_proved_where_it_leads_is_not_used_and_then_is_at_once() {
    let limits = Limits { kept: Duration::ZERO, ..Limits::default() };
    let scene = scene(Behaviour::Good, Behaviour::Good, limits).await;
    scene.phys.wants_proof();
    assert!(scene.cadvisor().await.unwrap_err().message.contains("leads to the right cluster"));
    assert!(scene.kubelet.heard().is_empty());
    scene.phys.proven(scene.phys.connection_number());
    assert!(scene.cadvisor().await.is_ok());
}

#[tokio::test]
async fn the_worker_is_asked_once_for_all_of_its_nodes() {
    let scene = scene(Behaviour::Gone, Behaviour::Good, Limits::default()).await;
    let nodes: Vec<_> = (0..20).map(|number| format!("vnode-{number}")).collect();
    futures::future::join_all(nodes.iter().map(|node| scene.metering.resource(node))).await;
    assert_eq!(scene.api_server.heard().len(), 1);
}

#[tokio::test]
async fn where_nobody_says_anything_both_causes_are_told() {
    for (code, words) in [
        (404, "install metrics-server"),
        (403, "`list` of `pods.metrics.k8s.io`"),
        (503, "v1beta1.metrics.k8s.io"),
    ] {
        let scene = scene(Behaviour::Refuses(403), Behaviour::Refuses(code), Limits::default()).await;
        let refused = scene.resource().await.unwrap_err();
        assert_eq!(refused.code, StatusCode::SERVICE_UNAVAILABLE);
        assert!(refused.message.contains("`get` of `nodes/metrics`"), "{}", refused.message);
        assert!(refused.message.contains(words), "{code}: {}", refused.message);
    }
}

#[tokio::test]
async fn numbers_of_long_ago_are_dropped() {
    let scene = scene(Behaviour::Old, Behaviour::Good, Limits::default()).await;
    let text = scene.resource().await.unwrap();
    assert!(!text.contains("container_") && !text.contains("node_"), "{text}");
    assert!(text.contains("\nresource_scrape_error 1\n"), "as if there were nothing to say: {text}");
    let text = scene.cadvisor().await.unwrap();
    assert!(!text.contains("container_cpu"), "{text}");
}

#[tokio::test]
async fn a_node_that_is_not_ours_is_not_found_and_one_that_goes_is_forgotten() {
    let scene = scene(Behaviour::Good, Behaviour::Good, Limits::default()).await;
    let refused = scene.metering.resource("stranger").await.unwrap_err();
    assert_eq!(refused.code, StatusCode::NOT_FOUND);
    assert!(scene.kubelet.heard().is_empty());
    scene.metering.resource("vnode-1").await.unwrap();
    scene.stop_serving("vnode-1");
    scene.metering.resource("vnode-2").await.unwrap();
    let known: Vec<_> = scene.metering.0.nodes.lock().keys().cloned().collect();
    assert_eq!(known, ["vnode-2".into()]);
    assert_eq!(scene.metering.resource("vnode-1").await.unwrap_err().code, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn who_gives_up_leaves_the_question_to_others() {
    let scene = scene(Behaviour::Silent, Behaviour::Good, Limits::default()).await;
    let given_up = tokio::time::timeout(Duration::from_millis(300), scene.cadvisor()).await;
    assert!(given_up.is_err());
    scene.kubelet.behave(Behaviour::Good);
    assert!(scene.cadvisor().await.is_ok());
}
