use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::*;

fn request(cluster: &str, code: &str) -> RequestLabels {
    RequestLabels {
        cluster: cluster.into(),
        verb: "patch",
        resource: "pods/status".into(),
        code: code.into(),
    }
}

fn line<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    text.lines().find(|line| line.starts_with(start))
}

#[test]
fn a_request_is_counted_under_the_documented_name() {
    let metrics = Metrics::new("syncer");
    metrics.cluster().requests.of(&request("virtual", "200")).inc();
    metrics.cluster().requests.of(&request("virtual", "200")).inc();

    let text = metrics.encode();

    assert_eq!(line(&text, "# TYPE kubeocean_requests"), Some("# TYPE kubeocean_requests counter"));
    assert_eq!(
        line(&text, "kubeocean_requests_total"),
        Some(
            r#"kubeocean_requests_total{cluster="virtual",verb="patch",resource="pods/status",code="200"} 2"#
        )
    );
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn who_runs_is_told() {
    let text = Metrics::new("proxier").encode();
    assert!(
        line(&text, "kubeocean_build_info{")
            .unwrap()
            .starts_with(r#"kubeocean_build_info{component="proxier""#)
    );
}

#[test]
fn the_age_of_a_watch_is_that_of_the_scrape_and_ends_with_the_watch() {
    let metrics = Metrics::new("syncer");
    let age = Arc::new(AtomicU64::new(1));
    let labels = ClusterResource { cluster: "w1".into(), resource: "pods".into() };
    let read = age.clone();
    #[allow(clippy::cast_precision_loss)]
    let observation =
        metrics.cluster().watch_age.observe(labels, move || Some(read.load(Ordering::Relaxed) as f64));
    let series = r#"kubeocean_watch_age_seconds{cluster="w1",resource="pods"}"#;
    assert_eq!(line(&metrics.encode(), series), Some(format!("{series} 1.0").as_str()));

    age.store(30, Ordering::Relaxed);
    assert_eq!(line(&metrics.encode(), series), Some(format!("{series} 30.0").as_str()));

    drop(observation);
    assert_eq!(line(&metrics.encode(), series), None);
}

#[test]
fn an_old_observer_does_not_end_the_series_of_its_successor() {
    let metrics = Metrics::new("syncer");
    let labels = QueueLabels { queue: "pods".into() };
    let first = metrics.cluster().queue_oldest.observe(labels.clone(), || Some(1.0));
    let _second = metrics.cluster().queue_oldest.observe(labels, || Some(2.0));
    drop(first);
    assert_eq!(
        line(&metrics.encode(), "kubeocean_queue_oldest_seconds{"),
        Some(r#"kubeocean_queue_oldest_seconds{queue="pods"} 2.0"#)
    );
}

#[test]
fn a_value_that_is_not_known_yet_is_left_out() {
    let metrics = Metrics::new("syncer");
    let _observation = metrics.cluster().queue_oldest.observe(QueueLabels { queue: "pods".into() }, || None);
    assert_eq!(line(&metrics.encode(), "kubeocean_queue_oldest_seconds{"), None);
}

#[test]
fn an_unbound_cluster_leaves_no_series_behind() {
    let metrics = Metrics::new("manager");
    metrics.cluster().requests.of(&request("w1", "200")).inc();
    metrics.cluster().requests.of(&request("w2", "200")).inc();
    metrics.cluster().request_limit.of(&ClusterLabels { cluster: "w1".into() }).set(16);

    metrics.cluster().forget_cluster("w1");

    let text = metrics.encode();
    assert!(!text.contains("w1"), "{text}");
    assert!(text.contains("w2"), "{text}");
}

#[test]
fn a_name_is_given_once() {
    let metrics = Metrics::new("manager");
    let first = metrics.register("kubeocean_things_total", "Things", Counter::<u64>::default()).unwrap();
    first.inc();
    assert!(line(&metrics.encode(), "kubeocean_things_total 1").is_some());
    for name in
        ["kubeocean_things_total", "kubeocean_things", "kubeocean_requests_total", "kubeocean_queue_depth"]
    {
        let error = metrics.register(name, "Again", Gauge::<i64>::default()).unwrap_err();
        assert_eq!(error, MetricsError::Taken(name.to_owned()));
    }
}

#[test]
fn two_inline_syncers_count_into_one_family() {
    let part = Metrics::new("manager").part("syncer");
    let make = Series::<Vec<(&'static str, &'static str)>, Counter>::default;
    let first = part.shared("create_pod_total", "Pods created", make).unwrap();
    let second = part.shared("create_pod_total", "Pods created", make).unwrap();
    first.of(&vec![("binding", "a")]).inc();
    second.of(&vec![("binding", "a")]).inc();
    assert_eq!(first.of(&vec![("binding", "a")]).get(), 2);
    assert_eq!(
        part.shared("create_pod_total", "Pods created", Gauge::<i64>::default).unwrap_err(),
        MetricsError::OtherType("kubeocean_syncer_create_pod_total".to_owned())
    );
}

#[test]
fn a_wrong_name_is_refused() {
    let metrics = Metrics::new("manager");
    let error = metrics.register("kubeocean-things", "Things", Counter::<u64>::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        r#""kubeocean-things" cannot be the name of a metric: use letters, digits and underscores, no digit first"#
    );
}
