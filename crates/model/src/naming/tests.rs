use super::*;

fn cluster(text: &str) -> ClusterId {
    ClusterId::parse(text).unwrap()
}

#[test]
fn a_cluster_id_is_checked_once() {
    assert_eq!(cluster("gpu-berlin").proxier_service(), "kubeocean-proxier-gpu-berlin-svc");
    assert_eq!(cluster("w1").syncer(), "kubeocean-syncer-w1");
    assert_eq!(cluster("w1").proxier(), "kubeocean-proxier-w1");
    assert_eq!(cluster("w1").provider_id("n.1"), "kubeocean://w1/n.1");
    for bad in ["", "-a", "a-", "A", "a.b", "a_b", &"a".repeat(25), "ä"] {
        assert_eq!(ClusterId::parse(bad), Err(BadClusterId(bad.to_owned())));
    }
    let longest = cluster(&"a".repeat(24));
    assert!(is_dns_label(&longest.proxier_service()));
}

#[test]
fn two_clusters_that_agree_in_a_name_have_another_one() {
    let (one, other) = (cluster("a"), cluster("a-b"));
    assert_eq!(VnodeName::of(&one, "b-c"), VnodeName::of(&other, "c"));
    let (one, other) = (VnodeName::disambiguated(&one, "b-c"), VnodeName::disambiguated(&other, "c"));
    assert_ne!(one, other);
    assert!(one.as_str().starts_with("vnode-a-b-c-") && other.as_str().starts_with("vnode-a-b-c-"));
    assert_eq!(one.as_str(), format!("vnode-a-b-c-{}", md5("a/b-c")));
}

#[test]
fn tokens_and_fallbacks_have_names_of_their_own() {
    let pod = Origin::Object { namespace: "web", name: "a" };
    let tokens = Origin::Tokens { pod: "a", uid: "u-1" };
    assert_eq!(pod.physical_name().as_str(), format!("a-{}", md5("web/a")));
    assert_eq!(tokens.physical_name().as_str(), format!("a-{}", md5("token/u-1")));
    assert_eq!(pod.fallback_name("b-1").as_str(), format!("a-{}", md5("b-1/web/a")));
    assert_eq!(tokens.fallback_name("b-1").as_str(), format!("a-{}", md5("b-1/token/u-1")));
}

#[test]
fn a_name_of_which_nothing_is_usable_still_gives_a_valid_one() {
    for name in [
        "",
        "-",
        "...",
        "-.-",
        "Ä",
        "日本語日本語日本語日本語日本語日本語日本語日本語日本語日本語日本語",
        "UPPER",
        "_x",
        "a..b",
    ] {
        let physical = Origin::Object { namespace: "ns", name }.physical_name();
        assert_eq!(physical.as_str(), format!("x-{}", md5(&format!("ns/{name}"))));
        assert!(is_dns_label(physical.as_str()));
    }
    assert!(is_dns_subdomain(VnodeName::of(&cluster("a"), "Ä").as_str()));
    assert!(is_dns_subdomain(VnodeName::of(&cluster("a"), "").as_str()));
}

#[test]
fn a_label_value_is_one_or_is_not() {
    for good in ["", "a", "A-b_c.d", &"x".repeat(63), "0"] {
        assert_eq!(label_value(good).map(LabelValue::as_str), Some(good));
    }
    for bad in ["-a", "a-", "a/b", &"x".repeat(64), "ä", " ", "."] {
        assert_eq!(label_value(bad), None, "{bad}");
    }
    assert!(is_label_key("kubernetes.io/hostname") && is_label_key("type"));
    for bad in ["", "/a", "a/", "a/b/c", "A.b/c", &"x".repeat(64)] {
        assert!(!is_label_key(bad), "{bad}");
    }
}

#[test]
fn probing_goes_round_and_ends() {
    let last = Port::new(u16::MAX).unwrap();
    assert_eq!(free_port(last, |port| port == last), Port::new(Port::FIRST));
    assert_eq!(free_port(last, |_| true), None);
    assert_eq!(free_port(last, |_| false), Some(last));
    assert_eq!(u32::from(Port::COUNT), 50_536);
    assert_eq!(Port::from_label("14999"), None);
    assert_eq!(Port::from_label("65536"), None);
    assert_eq!(Port::from_label("15000").map(Port::number), Some(15_000));
}
