//! What is so of every answer, whatever a worker's kubelet says.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

/// In every name, path and uid that must not leave.
const SECRET: &str = "hush";

/// A line of a kubelet, of ours or of others, right or wrong.
fn lines() -> impl Strategy<Value = String> {
    let families = vec![
        "container_cpu_usage_seconds_total",
        "container_memory_working_set_bytes",
        "container_start_time_seconds",
        "container_network_receive_bytes_total",
        "container_of_next_year_total",
        "container_scrape_error",
        "pod_cpu_usage_seconds_total",
        "pod_memory_working_set_bytes",
        "node_cpu_usage_seconds_total",
        "machine_cpu_cores",
        "resource_scrape_error",
        "kubelet_hush",
    ];
    let namespace = select(vec!["ocean", "hush-ns", "", "shop", "oceа\\n"]);
    let pod = select(vec![TWIN_0, TWIN_1, "hush-pod", "", "web-0", "web-0-\\\"hush"]);
    let container = select(vec!["app", "", "POD", "hush-sidecar"]);
    let name = select(vec!["", "0123abcd", "k8s_POD_hush_0"]);
    let more = select(vec![
        "",
        ",cpu=\"total\"",
        ",pod=\"hush\"",
        ",container_label_x=\"hush\"",
        ",state=\"running\"",
    ]);
    let number = select(vec!["0", "1.5", "-3", "NaN", "+Inf", "1e300", "x", "7e5"]);
    let time = select(vec!["", " 1795000000000", " 1795000050000", " 1", " 9223372036854775807", " hush"]);
    (select(families), namespace, pod, container, name, more, number, time).prop_map(
        |(family, namespace, pod, container, name, more, number, time)| {
            let id = format!("/kubepods/pod{SECRET}/{name}");
            let image = format!("{}pause", if container.is_empty() { SECRET } else { "" });
            format!(
                "{family}{{container=\"{container}\",id=\"{id}\",image=\"{image}\",name=\"{name}\",namespace=\"{namespace}\",pod=\"{pod}\"{more}}} {number}{time}\n\
                 {family}{{namespace=\"{namespace}\",pod=\"{pod}\"{more}}} {number}{time}\n\
                 {family} {number}{time}\n"
            )
        },
    )
}

/// A look at the node: what the pods have used so far, what they use, who is still there, and whether the kubelet is asked.
type Look = (Option<f64>, Option<f64>, bool, bool, i64);

fn looks() -> impl Strategy<Value = Vec<Look>> {
    let cpu = || {
        prop_oneof![
            4 => (0.0..1e6).prop_map(Some),
            1 => Just(None),
            1 => any::<f64>().prop_map(Some),
        ]
    };
    vec((cpu(), cpu(), any::<bool>(), any::<bool>(), -5_000_i64..20_000), 1..12)
}

fn said(look: &Look, at: i64, tenants: &Tenants, now: i64) -> Usage {
    let pods = [(TWIN_0, look.0), (TWIN_1, look.1)];
    if look.3 {
        let line = |(twin, cpu): &(&str, Option<f64>)| {
            let labels = format!("namespace=\"ocean\",pod=\"{twin}\"");
            cpu.map(|cpu| {
                format!(
                    "pod_cpu_usage_seconds_total{{{labels}}} {cpu} {at}\n\
                     container_cpu_usage_seconds_total{{container=\"app\",{labels}}} {cpu} {at}\n"
                )
            })
        };
        let text: String = pods.iter().filter_map(line).collect();
        return resource(&text, tenants, now).0;
    }
    let item = |(twin, cpu): &(&str, Option<f64>)| {
        let milli = cpu.filter(|cpu| (0.0..1e6).contains(cpu))?.floor();
        Some(serde_json::json!({
            "metadata": {"name": twin, "namespace": "ocean"},
            "timestamp": Timestamp::from_millisecond(at).unwrap().to_string(),
            "containers": [{"name": "app", "usage": {"cpu": format!("{milli}m"), "memory": "1Mi"}}],
        }))
    };
    let items: Vec<_> = pods.iter().filter_map(item).collect();
    let json = serde_json::json!({"items": items}).to_string();
    PodMetrics::parse(json.as_bytes()).unwrap().usage(tenants, fresh_at(now)).0
}

proptest! {
    #[test]
    fn nothing_of_others_leaves_whatever_is_said(text in vec(lines(), 0..30)) {
        let text = text.concat();
        let (usage, _) = resource(&text, &tenants(), THEN);
        for text in [Meters::new().answer(&usage, &tenants()), cadvisor(&text, &tenants(), THEN).0] {
            for secret in [SECRET, "ocean", TWIN_0, TWIN_1, "machine_"] {
                prop_assert!(!text.contains(secret), "{} in\n{}", secret, text);
            }
            each_sample(&text, |sample| {
                if let Some(pod) = sample.labels.get("pod") {
                    assert!(pod == "web-0" || pod == "web-1", "{text}");
                }
            });
        }
    }

    #[test]
    fn any_bytes_are_borne(bytes in vec(any::<u8>(), 0..300)) {
        let (tenants, mut text) = (tenants(), String::new());
        let mut reading = Resource::new(&tenants, fresh_at(THEN));
        let mut rewriting = Cadvisor::new(&tenants, fresh_at(THEN));
        reading.feed(&bytes);
        rewriting.feed(&bytes, &mut text);
        rewriting.finish(&mut text);
        prop_assert!(text.is_empty());
        Meters::new().answer(&reading.finish().0, &tenants);
        let _ = PodMetrics::parse(&bytes);
    }

    #[test]
    fn the_nodes_counter_never_goes_down(looks in looks()) {
        let (mut meters, mut now, mut last) = (Meters::new(), THEN, 0.0);
        for look in looks {
            now += look.4;
            let mut tenants = tenants();
            if !look.2 {
                tenants.by_twin.remove(TWIN_1);
            }
            let text = meters.answer(&said(&look, now, &tenants, now), &tenants);
            let node = meters.node_cpu_seconds();
            prop_assert!(node.is_finite() && node >= last, "{} after {}", node, last);
            if let Some(shown) = value(&text, "node_cpu_usage_seconds_total") {
                prop_assert!(shown.to_bits() == node.to_bits());
            }
            last = node;
        }
    }

    /// Or metrics-server would see a machine's worth of CPU used in a moment.
    #[test]
    fn a_replica_that_takes_over_starts_no_higher(looks in looks()) {
        let (mut meters, mut now, tenants) = (Meters::new(), THEN, tenants());
        for look in looks {
            now += look.4.abs() + 1;
            let usage = said(&(look.0, look.1, true, true, 0), now, &tenants, now);
            meters.answer(&usage, &tenants);
            let mut other = Meters::new();
            other.answer(&usage, &tenants);
            prop_assert!(other.node_cpu_seconds() <= meters.node_cpu_seconds() * (1.0 + 1e-9));
        }
    }
}
