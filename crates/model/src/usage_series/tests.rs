use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::exposition::{Line, Lines, Sample};
use crate::object::Pairs;

mod laws;

const RESOURCE: &str = include_str!("../../tests/metrics/resource-1.36.txt");
const CADVISOR: &str = include_str!("../../tests/metrics/cadvisor-1.36.txt");
const POD_METRICS: &str = include_str!("../../tests/metrics/pod-metrics.json");

/// When the vectors were taken, in milliseconds.
const THEN: i64 = 1_795_000_000_000;
const TWIN_0: &str = "web-0-8d777f385d3dfec8815d20f7496026dc";
const TWIN_1: &str = "web-1-0cc175b9c0f1b6a831c399e269772661";

fn fresh_at(now: i64) -> Freshness {
    Freshness::new(Timestamp::from_millisecond(now).unwrap(), SignedDuration::from_secs(120))
}

fn tenant(name: &str, uid: &str) -> Tenant {
    Tenant {
        key: Key::new("shop", name),
        uid: uid.into(),
        containers: ["app".into()].into(),
        host_network: false,
    }
}

fn tenants() -> Tenants {
    let mut tenants = Tenants::new("ocean");
    tenants.insert(TWIN_0, tenant("web-0", "v-0"));
    tenants.insert(TWIN_1, tenant("web-1", "v-1"));
    tenants
}

fn resource(text: &str, tenants: &Tenants, now: i64) -> (Usage, Tally) {
    let mut reading = Resource::new(tenants, fresh_at(now));
    text.as_bytes().chunks(100).for_each(|chunk| reading.feed(chunk));
    reading.finish()
}

fn answer(meters: &mut Meters, text: &str, tenants: &Tenants, now: i64) -> String {
    meters.answer(&resource(text, tenants, now).0, tenants)
}

fn cadvisor(text: &str, tenants: &Tenants, now: i64) -> (String, Tally) {
    let (mut out, mut rewriting) = (String::new(), Cadvisor::new(tenants, fresh_at(now)));
    text.as_bytes().chunks(100).for_each(|chunk| rewriting.feed(chunk, &mut out));
    let tally = rewriting.finish(&mut out);
    (out, tally)
}

/// What metrics-server makes of an answer: CPU in nanoseconds, bytes, and when, of the node and of containers.
#[derive(Debug, Default, PartialEq)]
struct Decoded {
    node: Option<Stored>,
    containers: BTreeMap<(String, String, String), Stored>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Stored {
    cpu: u64,
    memory: u64,
    at: i64,
    start: f64,
}

/// By its rules: a zero is a missing number, which costs the node, or the whole pod.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it does so")]
fn decode(text: &str) -> Decoded {
    let mut decoded = Decoded::default();
    let mut node = Stored::default();
    each_sample(text, |sample| {
        let label = |name| sample.labels.get(name).unwrap_or_default().into_owned();
        let key = (label("namespace"), label("pod"), label("container"));
        let entry = match sample.name.split('_').next() {
            Some("node") => &mut node,
            Some("container") => decoded.containers.entry(key).or_default(),
            _ => return,
        };
        match sample.name.split_once('_').map(|(_, rest)| rest) {
            Some("cpu_usage_seconds_total") => entry.cpu = (sample.value * 1e9) as u64,
            Some("memory_working_set_bytes") => entry.memory = sample.value as u64,
            Some("start_time_seconds") => entry.start = sample.value,
            _ => return,
        }
        entry.at = sample.at.unwrap_or(entry.at);
    });
    let is_whole = |stored: &Stored| stored.cpu != 0 && stored.memory != 0 && stored.at != 0;
    let pods_with_gaps: Vec<_> = decoded
        .containers
        .iter()
        .filter(|(_, stored)| !is_whole(stored))
        .map(|((namespace, pod, _), _)| (namespace.clone(), pod.clone()))
        .collect();
    decoded
        .containers
        .retain(|(namespace, pod, _), _| !pods_with_gaps.contains(&(namespace.clone(), pod.clone())));
    decoded.node = Some(node).filter(is_whole);
    decoded
}

fn each_sample(text: &str, mut each: impl FnMut(&Sample<'_>)) {
    let mut take = |line: Result<Line<'_>, _>| {
        if let Line::Sample(sample) = line.expect("we write nothing but the format") {
            each(&sample);
        }
    };
    let mut lines = Lines::new();
    lines.feed(text.as_bytes(), &mut take);
    lines.finish(&mut take);
}

fn value(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.split_whitespace().next()?.parse().ok())
}

fn of_web_0() -> (String, String, String) {
    ("shop".into(), "web-0".into(), "app".into())
}

#[test]
fn metrics_server_finds_what_it_needs_under_virtual_names() {
    let text = answer(&mut Meters::new(), RESOURCE, &tenants(), THEN + 5000);
    let decoded = decode(&text);
    let app = Stored { cpu: 12_517_634_000, memory: 18_374_656, at: THEN + 123, start: 1_794_999_000.551_2 };
    assert_eq!(decoded.containers.len(), 2, "{text}");
    assert_eq!(decoded.containers[&of_web_0()], app);
    // The pods as wholes, and the later of the moments: 14.25 + 0.5 and the microsecond that we begin with.
    let node = Stored { cpu: 14_750_001_000, memory: 25_000_000, at: THEN + 2100, start: 0.0 };
    assert_eq!(decoded.node, Some(node));
    assert!(text.contains(
        "# HELP node_cpu_usage_seconds_total Cumulative cpu time consumed by the pods of this virtual node"
    ));
    assert!(
        text.contains(
            "\npod_cpu_usage_seconds_total{namespace=\"shop\",pod=\"web-0\"} 14.25 1795000000200\n"
        )
    );
    assert!(text.contains(
        "\ncontainer_start_time_seconds{container=\"app\",namespace=\"shop\",pod=\"web-1\"} 1794999990.12\n"
    ));
    assert!(text.ends_with("\nresource_scrape_error 0\n"));
}

#[test]
fn nothing_of_the_lender_leaves() {
    let (usage, tally) = resource(RESOURCE, &tenants(), THEN);
    let resource = Meters::new().answer(&usage, &tenants());
    let (cadvisor, _) = cadvisor(CADVISOR, &tenants(), THEN);
    assert_eq!((tally.stale, tally.nonsense), (0, 0));
    for text in [resource, cadvisor] {
        for secret in [
            "ocean",
            "lender",
            "orders",
            "coredns",
            "mesh",
            TWIN_0,
            TWIN_1,
            "5e0c0f1e",
            "0a27611d",
            "slice",
            "99021",
            "357120",
            "machine_",
            "cadvisor_version",
        ] {
            assert!(!text.contains(secret), "{secret} in\n{text}");
        }
    }
}

#[test]
fn cadvisor_keeps_what_dashboards_ask_for() {
    let (text, tally) = cadvisor(CADVISOR, &tenants(), THEN);
    let expected = r#"# HELP container_cpu_usage_seconds_total Cumulative cpu time consumed in seconds.
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="",cpu="total",id="/kubepods/podv-0",image="",name="",namespace="shop",pod="web-0"} 14.25 1795000000200
container_cpu_usage_seconds_total{container="",cpu="total",id="/kubepods/podv-0/aa11bb22cc33",image="pause",name="aa11bb22cc33",namespace="shop",pod="web-0"} 0.03 1795000000200
container_cpu_usage_seconds_total{container="app",cpu="total",id="/kubepods/podv-0/dd44ee55ff66",image="docker.io/library/nginx:1.29",name="dd44ee55ff66",namespace="shop",pod="web-0"} 12.517634 1795000000123
# HELP container_fs_writes_bytes_total Cumulative count of bytes written
# TYPE container_fs_writes_bytes_total counter
container_fs_writes_bytes_total{container="app",device="/dev/vda",id="/kubepods/podv-0/dd44ee55ff66",image="docker.io/library/nginx:1.29",name="dd44ee55ff66",namespace="shop",pod="web-0"} 8192 1795000000123
# HELP container_network_receive_bytes_total Cumulative count of bytes received
"#;
    assert!(text.starts_with(expected), "{text}");
    assert!(text.contains("\ncontainer_scrape_error 0\n"));
    assert_eq!(
        value(&text, "container_tasks_state{").map(f64::to_bits),
        None,
        "a label, not a number, follows"
    );
    assert!(text.contains("state=\"running\"} 1 1795000002000"));
    assert_eq!((tally.kept, tally.foreign, tally.stale, tally.nonsense), (8, 9, 0, 0), "{text}");
}

#[test]
fn the_network_of_a_pod_on_the_machines_network_is_the_machines() {
    let mut tenants = tenants();
    tenants.insert(TWIN_1, Tenant { host_network: true, ..tenant("web-1", "v-1") });
    let (text, _) = cadvisor(CADVISOR, &tenants, THEN);
    assert!(text.contains("container_network_receive_bytes_total") && !text.contains("cali"), "{text}");
    assert!(text.contains("container_tasks_state"), "the rest of it is its own");
}

#[test]
fn old_numbers_are_dropped_and_an_old_node_is_not_idle() {
    for now in [THEN + 200_000, THEN - 200_000] {
        let (usage, tally) = resource(RESOURCE, &tenants(), now);
        let text = Meters::new().answer(&usage, &tenants());
        assert_eq!(decode(&text), Decoded::default(), "{text}");
        assert!(tally.stale > 0 && text.contains("resource_scrape_error 1"), "{text}");
        let (text, tally) = cadvisor(CADVISOR, &tenants(), now);
        assert!(tally.stale > 0 && !text.contains("web-0"), "{text}");
    }
    // Only the pods' numbers are old: the node is not shown either, since nothing is known of what it uses.
    let looked = format!("node_cpu_usage_seconds_total 5 {}\n", THEN + 200_000);
    assert!(
        decode(&answer(&mut Meters::new(), &format!("{RESOURCE}{looked}"), &tenants(), THEN + 200_000))
            .node
            .is_none()
    );
}

#[test]
fn a_node_without_pods_is_idle_and_not_unknown() {
    let nobody = Tenants::new("ocean");
    let node = decode(&answer(&mut Meters::new(), RESOURCE, &nobody, THEN)).node.expect("it is shown");
    assert!(node.cpu <= 1000 && node.memory == 1 && node.at == THEN + 1000);
    let (usage, _) = PodMetrics::parse(POD_METRICS.as_bytes()).unwrap().usage(&nobody, fresh_at(THEN));
    assert!(decode(&Meters::new().answer(&usage, &nobody)).node.is_some());
}

#[test]
fn a_kubelet_without_groups_of_pods_says_zero_of_them_and_their_containers_count() {
    let said = |cpu: f64, at: i64| {
        format!(
            "container_cpu_usage_seconds_total{{container=\"app\",namespace=\"ocean\",pod=\"{TWIN_0}\"}} {cpu} {at}\n\
             container_memory_working_set_bytes{{container=\"app\",namespace=\"ocean\",pod=\"{TWIN_0}\"}} 307200 {at}\n\
             container_swap_usage_bytes{{container=\"app\",namespace=\"ocean\",pod=\"{TWIN_0}\"}} 0 {at}\n\
             node_cpu_usage_seconds_total 6.5 {at}\n\
             pod_cpu_usage_seconds_total{{namespace=\"ocean\",pod=\"{TWIN_0}\"}} 0 {at}\n\
             pod_memory_working_set_bytes{{namespace=\"ocean\",pod=\"{TWIN_0}\"}} 0 {at}\n\
             pod_swap_usage_bytes{{namespace=\"ocean\",pod=\"{TWIN_0}\"}} 0 {at}\n"
        )
    };
    let (mut meters, tenants) = (Meters::new(), tenants());
    let first = decode(&answer(&mut meters, &said(4.0, THEN), &tenants, THEN)).node.unwrap();
    let second =
        decode(&answer(&mut meters, &said(7.0, THEN + 10_000), &tenants, THEN + 10_000)).node.unwrap();
    assert_eq!((first.memory, second.memory), (307_200, 307_200));
    assert!((2_999_000_000..=3_001_000_000).contains(&(second.cpu - first.cpu)), "{first:?} {second:?}");
}

#[test]
fn a_kubelet_in_trouble_says_so_and_the_counter_waits() {
    let (mut meters, tenants) = (Meters::new(), tenants());
    answer(&mut meters, RESOURCE, &tenants, THEN);
    let before = meters.node_cpu_seconds();
    let text = answer(&mut meters, "scrape_error 1\nresource_scrape_error 1\n", &tenants, THEN + 15_000);
    assert_eq!(decode(&text), Decoded::default());
    assert!(text.contains("\nresource_scrape_error 1\n") && text.contains("\nscrape_error 1\n"));
    answer(&mut meters, RESOURCE, &tenants, THEN + 30_000);
    assert!((meters.node_cpu_seconds() - before).abs() < 1e-9, "nothing is counted twice");
}

#[test]
fn pods_come_restart_and_go_and_the_node_counts_on() {
    let pods = |zero: f64, one: Option<f64>, at: i64| {
        let line = |twin: &str, cpu: f64| {
            format!("pod_cpu_usage_seconds_total{{namespace=\"ocean\",pod=\"{twin}\"}} {cpu} {at}\n")
        };
        line(TWIN_0, zero) + &one.map(|cpu| line(TWIN_1, cpu)).unwrap_or_default()
    };
    let (mut meters, mut tenants) = (Meters::new(), tenants());
    let mut node_after = |text: &str, tenants: &Tenants, at: i64| {
        answer(&mut meters, text, tenants, at);
        (meters.node_cpu_seconds() * 1000.0).round() / 1000.0
    };
    let steps = [
        (pods(10.0, None, THEN), 10.0, "the first look"),
        (pods(12.0, Some(3.0), THEN + 1), 15.0, "one comes with what it has used"),
        (pods(12.5, None, THEN + 2), 15.5, "one is passed over"),
        (pods(13.0, Some(4.0), THEN + 3), 17.0, "and was not forgotten"),
        (pods(0.5, Some(4.0), THEN + 4), 17.5, "one began anew"),
        (pods(0.1, Some(3.0), THEN + 3), 17.5, "an older look says nothing"),
    ];
    for (text, expected, why) in steps {
        assert!((node_after(&text, &tenants, THEN) - expected).abs() < 1e-9, "{why}");
    }
    tenants.by_twin.remove(TWIN_1);
    assert!((node_after(&pods(1.0, Some(9.0), THEN + 5), &tenants, THEN) - 18.0).abs() < 1e-9, "one goes");
}

#[test]
fn rates_of_metrics_k8s_io_become_counters_of_that_rate() {
    let (mut meters, tenants) = (Meters::new(), tenants());
    let mut at = |json: &str, now: i64| {
        let (usage, tally) = PodMetrics::parse(json.as_bytes()).unwrap().usage(&tenants, fresh_at(now));
        assert_eq!((tally.kept, tally.foreign, tally.nonsense), (2, 2, 0));
        meters.answer(&usage, &tenants)
    };
    let first = decode(&at(POD_METRICS, THEN));
    let later = POD_METRICS.replace("11:06:40Z", "11:07:00Z").replace("11:06:38Z", "11:06:58Z");
    let text = at(&later, THEN + 20_000);
    let second = decode(&text);
    assert_eq!(first.containers.len(), 2, "one that uses nothing is there, too");
    let cores = |before: Stored, after: Stored| {
        assert_eq!(after.at - before.at, 20_000);
        (after.cpu - before.cpu).div_ceil(1_000_000) / 20
    };
    assert_eq!(cores(first.containers[&of_web_0()], second.containers[&of_web_0()]), 250, "milli-cores");
    let node = second.node.unwrap();
    assert_eq!(cores(first.node.unwrap(), node), 300, "with what the worker cluster added to the pod");
    assert_eq!(node.memory, 25 << 20);
    assert!(!text.contains("mesh"));
    assert_eq!(decode(&at(&later, THEN + 25_000)).node, Some(node), "the same again adds nothing");
    for wrong in ["", "{}", "[]", r#"{"items":[{"metadata":{"name":1}}]}"#] {
        assert!(PodMetrics::parse(wrong.as_bytes()).is_err());
    }
}

#[test]
fn a_change_of_source_is_no_jump() {
    let (mut meters, tenants) = (Meters::new(), tenants());
    let kubelet = |cpu: f64, at: i64| {
        format!(
            "container_cpu_usage_seconds_total{{container=\"app\",namespace=\"ocean\",pod=\"{TWIN_0}\"}} {cpu} {at}\n"
        )
    };
    let shown = |text: &str| {
        value(text, "container_cpu_usage_seconds_total{container=\"app\",namespace=\"shop\",pod=\"web-0\"}")
            .unwrap()
    };
    let by_rate = |meters: &mut Meters, json: &str| {
        let (usage, _) = PodMetrics::parse(json.as_bytes()).unwrap().usage(&tenants, fresh_at(THEN));
        shown(&meters.answer(&usage, &tenants))
    };
    let close = |one: f64, other: f64| assert!((one - other).abs() < 1e-3, "{one} is not {other}");
    // Rates first, then a kubelet that has counted for a week, then rates again.
    close(by_rate(&mut meters, POD_METRICS), 0.0);
    close(shown(&answer(&mut meters, &kubelet(50_000.0, THEN + 10_000), &tenants, THEN)), 0.0);
    close(shown(&answer(&mut meters, &kubelet(50_005.0, THEN + 20_000), &tenants, THEN)), 5.0);
    close(by_rate(&mut meters, &POD_METRICS.replace("11:06:40Z", "11:07:10Z")), 7.5);
    // The container began anew: from here on the kubelet's word is shown as it is.
    close(shown(&answer(&mut meters, &kubelet(60_000.0, THEN + 31_000), &tenants, THEN)), 7.5);
    close(shown(&answer(&mut meters, &kubelet(0.25, THEN + 40_000), &tenants, THEN)), 0.25);
}

#[test]
fn a_twin_is_whose_it_says_only_if_it_carries_our_stamp() {
    let binding = crate::pretend::binding("b-1");
    let stamp = Stamp { binding: &binding, virtual_cluster: "vc-1" };
    let twin = |labels: &[(&'static str, &str)]| Meta {
        labels: labels.iter().copied().collect(),
        annotations: [
            (annotations::VIRTUAL_POD_NAMESPACE, "shop"),
            (annotations::VIRTUAL_POD_NAME, "web-0"),
            (annotations::VIRTUAL_POD_UID, "v-0"),
        ]
        .into_iter()
        .collect(),
        ..Meta::default()
    };
    let containers = || ["app".into()];
    assert_eq!(
        Tenant::of_twin(&stamp, &twin(&stamp.labels()), containers(), false),
        Some(tenant("web-0", "v-0"))
    );
    assert_eq!(Tenant::of_twin(&stamp, &twin(&stamp.labels()[..2]), containers(), false), None);
    let nameless = Meta { annotations: Pairs::default(), ..twin(&stamp.labels()) };
    assert_eq!(Tenant::of_twin(&stamp, &nameless, containers(), false), None);
}
