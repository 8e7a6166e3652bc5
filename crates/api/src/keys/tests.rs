use std::collections::BTreeSet;

use super::*;

/// A qualified name: an optional DNS subdomain and `/`, then at most 63 characters.
fn is_qualified_name(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    prefix.is_none_or(is_dns_subdomain) && !name.is_empty() && is_label_value(name)
}

fn is_dns_subdomain(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    name.len() <= 253
        && name.split('.').all(|part| {
            !part.is_empty() && part.chars().all(inner) && !part.starts_with('-') && !part.ends_with('-')
        })
}

fn is_label_value(value: &str) -> bool {
    let edge = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    value.len() <= 63
        && value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && edge(value.chars().next())
        && edge(value.chars().last())
}

fn assert_distinct<'a>(what: &str, all: impl IntoIterator<Item = &'a str>) {
    let mut seen = BTreeSet::new();
    for one in all {
        assert!(seen.insert(one), "{what}: {one} is there twice");
    }
}

#[test]
fn every_key_of_ours_is_a_valid_key_under_our_prefix() {
    for (what, keys) in [
        ("labels", labels::ALL),
        ("annotations", annotations::ALL),
        ("taints", taints::ALL),
        ("finalizers", finalizers::ALL),
    ] {
        assert_distinct(what, keys.iter().copied());
        for key in keys {
            assert!(is_ours(key) && is_qualified_name(key), "{what}: {key}");
        }
    }
}

#[test]
fn keys_of_others_are_valid_and_not_taken_for_ours() {
    let others = [
        labels::TYPE,
        labels::INSTANCE_TYPE,
        labels::HOSTNAME,
        labels::EXCLUDE_FROM_LOAD_BALANCERS,
        labels::EXCLUDE_DISRUPTION,
    ];
    assert_distinct("keys of others", others.into_iter().chain(taints::NODE_CONTROLLER_KEYS.iter().copied()));
    for key in others.iter().chain(taints::NODE_CONTROLLER_KEYS) {
        assert!(!is_ours(key) && is_qualified_name(key), "{key}");
    }
    assert!(!is_ours("kubeocean.io"), "a prefix ends in a slash");
    assert!(!is_ours("notkubeocean.io/x"));
}

#[test]
fn fixed_label_values_are_valid() {
    let values = [TRUE, labels::MANAGED_BY_VALUE, labels::NODE_TYPE_VIRTUAL, labels::TYPE_VIRTUAL_KUBELET];
    for value in values.iter().chain(labels::EXCLUDED_INSTANCE_TYPES) {
        assert!(!value.is_empty() && is_label_value(value), "{value}");
    }
}

#[test]
fn taints_are_spelled_as_the_contract_spells_them() {
    let spelled: Vec<_> = taints::MARKS
        .iter()
        .map(|mark| {
            let taint = mark.taint();
            let value = taint.value.map(|value| format!("={value}")).unwrap_or_default();
            format!("{}{value}:{}", taint.key, taint.effect)
        })
        .collect();
    assert_eq!(
        spelled,
        [
            "kubeocean.io/vnode:NoSchedule",
            "kubeocean.io/physical-node-unschedulable:NoSchedule",
            "kubeocean.io/out-of-time-windows=true:NoSchedule",
            "kubeocean.io/out-of-time-windows=true:NoExecute",
            "kubeocean.io/closing:NoSchedule",
            "kubeocean.io/vnode-deleting=true:NoSchedule",
            "kubeocean.io/worker-unreachable:NoSchedule",
        ]
    );
    let keys: BTreeSet<_> = taints::MARKS.iter().map(|mark| mark.key).collect();
    assert_eq!(keys, taints::ALL.iter().copied().collect(), "every key has a taint");
}

#[test]
fn reasons_and_condition_types_are_words_that_conditions_accept() {
    fn check(what: &str, words: &[&str]) {
        assert_distinct(what, words.iter().copied());
        for word in words {
            let name = word.strip_prefix(PREFIX).unwrap_or(word);
            let camel = name.starts_with(|c: char| c.is_ascii_uppercase())
                && name.chars().all(|c| c.is_ascii_alphanumeric());
            assert!(camel, "{what}: {word}");
        }
    }
    macro_rules! spelled {
        ($type:ty) => {
            check(stringify!($type), &<$type>::ALL.iter().map(|word| word.as_str()).collect::<Vec<_>>())
        };
    }
    spelled!(conditions::Binding);
    spelled!(conditions::Policy);
    spelled!(conditions::Pod);
    spelled!(conditions::Node);
    spelled!(reasons::Binding);
    spelled!(reasons::Node);
    spelled!(reasons::Pod);
    spelled!(reasons::Event);

    assert_eq!(reasons::Binding::DuplicateClusterId.to_string(), "DuplicateClusterID");
    assert_eq!(conditions::Pod::Mapped.to_string(), "kubeocean.io/Mapped");
    assert_eq!(reasons::out_of("nvidia.com/gpu"), "OutOfnvidia.com/gpu");
}

#[test]
fn fixed_names_can_be_names_of_objects() {
    assert_distinct("system namespaces", names::SYSTEM_NAMESPACES.iter().copied());
    let fixed = [
        names::INSTALL_NAMESPACE,
        names::FAKE_NAMESPACE,
        names::EVENT_NAMESPACE,
        names::MANAGER,
        names::MANAGER_LEADER,
        names::SYNCER_ROLE,
        names::PROXIER_ROLE,
        names::WORKER_NAMESPACE,
        names::IDENTITY_NAMESPACE,
        names::BORROWER,
        names::DEFAULT_PRIORITY_CLASS,
        names::WORKLOAD_SERVICE_ACCOUNT,
        names::INTRANET_API_SERVER.1,
        names::INTRANET_DNS.1,
        names::CLIENT_CA_CONFIG_MAP.1,
    ];
    for name in fixed.iter().chain(names::SYSTEM_NAMESPACES) {
        assert!(is_dns_subdomain(name), "{name}");
    }
    // The longest clusterID still leaves a Service name, which is a DNS label.
    let service = format!("{}{}{}", names::PROXIER_PREFIX, "a".repeat(24), names::PROXIER_SERVICE_SUFFIX);
    assert!(service.len() <= 63 && is_dns_subdomain(&service));
}
