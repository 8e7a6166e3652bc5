//! Requests as proxiers make them, and as nobody should.

use proptest::prelude::*;
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, SanType,
};

use super::*;

const NAMESPACE: &str = "kubeocean-system";
const USER: &str = "system:serviceaccount:kubeocean-system:kubeocean-proxier-w1";
const ADDRESS: &str = "10.1.2.3";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn params(common_name: &str, organizations: &[&str], names: Vec<SanType>) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, common_name);
    for organization in organizations {
        subject.push(DnType::OrganizationName, *organization);
    }
    params.distinguished_name = subject;
    params.subject_alt_names = names;
    params
}

fn good() -> CertificateParams {
    params("system:node:kubeocean-proxier-w1", &["system:nodes"], vec![SanType::IpAddress(ip(ADDRESS))])
}

fn pem(params: &CertificateParams) -> String {
    let key = KeyPair::generate().unwrap();
    params.serialize_request(&key).unwrap().pem().unwrap()
}

/// What a proxier sends, and what an API server makes of it.
fn object(pem: &str) -> Value {
    let asker = Asker::Proxier { cluster_id: "w1".into(), binding_uid: "b-1".into() };
    let action = ask(&asker, "v-1", pem, 3600);
    let Verb::Create { body, .. } = action.verb else { unreachable!() };
    let mut object = body;
    object["metadata"]["name"] = action.name.into();
    object["metadata"]["uid"] = "c-1".into();
    object["metadata"]["resourceVersion"] = "7".into();
    object["spec"]["username"] = USER.into();
    object["spec"]["extra"] = json!({ POD_NAME: ["proxier-1"], POD_UID: ["p-1"] });
    object
}

fn pods() -> Vec<AskingPod> {
    let pod = |name: &str, uid: &str, account: &str, address: &str, lives| AskingPod {
        name: name.into(),
        uid: uid.into(),
        account: account.into(),
        addresses: vec![ip(address)],
        lives,
    };
    vec![
        pod("proxier-1", "p-1", "kubeocean-proxier-w1", ADDRESS, true),
        pod("proxier-2", "p-2", "kubeocean-proxier-w1", "10.1.2.4", true),
        pod("ended", "p-3", "kubeocean-proxier-w1", "10.1.2.5", false),
        pod("another", "p-4", "kubeocean-proxier-w2", "10.1.2.6", true),
    ]
}

fn judged_by(object: Value, own: Option<&Own>) -> Verdict {
    let grounds = Grounds {
        namespace: NAMESPACE,
        is_bound: &|id| matches!(id, "w1" | "w2"),
        pods_of: &|account| pods().into_iter().filter(|pod| pod.account == account).collect(),
        own,
    };
    judge(&Request::read(&Object::from_value(object).unwrap()), &grounds)
}

fn judged(object: Value) -> Verdict {
    judged_by(object, None)
}

fn with(pointer: &str, value: Value) -> Value {
    let mut object = object(&pem(&good()));
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[field] = value;
    object
}

fn of(params: &CertificateParams) -> Verdict {
    judged(object(&pem(params)))
}

#[test]
fn what_a_proxier_asks_for_itself_is_approved() {
    assert_eq!(judged(object(&pem(&good()))), Verdict::Approved);
    let usages = json!(["key encipherment", "digital signature", "server auth"]);
    assert_eq!(judged(with("/spec/usages", usages)), Verdict::Approved);
    let unsaid = with("/spec/extra", json!({ "authentication.kubernetes.io/credential-id": ["JTI=1"] }));
    assert_eq!(
        judged(unsaid),
        Verdict::Approved,
        "the token does not say which pod, and one of them is there"
    );
    let mut object = with("/spec/expirationSeconds", json!(366 * 24 * 3600));
    assert_eq!(judged(object.clone()), Verdict::Approved);
    object["spec"].as_object_mut().unwrap().remove("expirationSeconds");
    assert_eq!(judged(object), Verdict::Approved);
}

#[test]
fn an_approval_is_for_the_very_request_that_was_looked_at() {
    let request = Request::read(&Object::from_value(object(&pem(&good()))).unwrap());
    let action = decide(&request, &Verdict::Approved).unwrap();
    let name = &request.meta.name;
    assert_eq!(
        action.to_string(),
        format!(
            "patch virtual certificatesigningrequests/approval {name} if uid=c-1 if version=7 \
             (the proxier that asks is reached at the addresses that it asks for)"
        )
    );
    assert!(decide(&request, &Verdict::LeftAlone).is_none());
    assert!(decide(&request, &Verdict::Waits(Doubt::NotBound("w1".into()))).is_none());
    let denied = decide(&request, &Verdict::Denied(Flaw::Usages)).unwrap();
    let Verb::Patch { body, .. } = denied.verb else { unreachable!() };
    assert_eq!(body["status"]["conditions"][0]["type"], "Denied");
}

#[test]
fn what_is_not_ours_is_left_alone() {
    let users = [
        "system:node:n1",
        "system:serviceaccount:kubeocean-system:kubeocean-syncer-w1",
        "system:serviceaccount:kubeocean-system:kubeocean-proxier-",
        "system:serviceaccount:kubeocean-system:kubeocean-proxier",
        "system:serviceaccount:default:kubeocean-proxier-w1",
        "system:serviceaccount:kubeocean-system:x:kubeocean-proxier-w1",
        "kubeocean-proxier-w1",
        "kubernetes-admin",
        "",
    ];
    for user in users {
        assert_eq!(judged(with("/spec/username", user.into())), Verdict::LeftAlone, "{user}");
    }
    for signer in
        ["kubernetes.io/kube-apiserver-client", "kubernetes.io/kube-apiserver-client-kubelet", "x.io/y", ""]
    {
        assert_eq!(judged(with("/spec/signerName", signer.into())), Verdict::LeftAlone, "{signer}");
    }
    for word in ["Approved", "Denied", "Failed"] {
        let decided = with("/status", json!({"conditions": [{"type": word, "status": "True"}]}));
        assert_eq!(judged(decided), Verdict::LeftAlone, "{word}");
    }
    assert_eq!(judged(with("/status", json!({"certificate": "LS0="}))), Verdict::LeftAlone);
    assert_eq!(
        judged(with("/metadata/deletionTimestamp", "2026-11-20T08:00:00Z".into())),
        Verdict::LeftAlone
    );
    assert_eq!(judged(with("/spec", json!("nonsense"))), Verdict::LeftAlone);
}

#[test]
fn a_name_that_is_not_its_own_is_denied() {
    let names = vec![SanType::IpAddress(ip(ADDRESS))];
    for other in [
        "system:node:kubeocean-proxier-w2",
        "system:node:n1",
        "kubeocean-proxier-w1",
        "system:node:kubeocean-proxier-w1 ",
        "system:node:kubeocean-manager",
        "system:kube-controller-manager",
        "",
    ] {
        let verdict = of(&params(other, &["system:nodes"], names.clone()));
        assert_eq!(verdict, Verdict::Denied(Flaw::CommonName), "{other}");
    }
    let common_name = "system:node:kubeocean-proxier-w1";
    let organization = |all: &[&str]| of(&params(common_name, all, names.clone()));
    assert_eq!(organization(&["system:masters"]), Verdict::Denied(Flaw::Organization));
    assert_eq!(organization(&[]), Verdict::Denied(Flaw::Subject));
    let mut more = good();
    more.distinguished_name.push(DnType::OrganizationalUnitName, "more");
    assert_eq!(of(&more), Verdict::Denied(Flaw::Subject));
    let mut more = good();
    more.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 3, 1]), "near the common name");
    assert_eq!(of(&more), Verdict::Denied(Flaw::Subject));
}

#[test]
fn nothing_but_addresses_is_certified() {
    let text = |text: &str| Ia5String::try_from(text).unwrap();
    let address = SanType::IpAddress(ip(ADDRESS));
    for other in [
        SanType::DnsName(text("kubernetes.default.svc")),
        SanType::Rfc822Name(text("a@example.com")),
        SanType::URI(text("spiffe://cluster.local/ns/x")),
        SanType::OtherName((vec![1, 2, 3], "x".into())),
    ] {
        let mut both = good();
        both.subject_alt_names = vec![address.clone(), other.clone()];
        assert_eq!(of(&both), Verdict::Denied(Flaw::Names), "{other:?}");
        both.subject_alt_names = vec![other];
        assert_eq!(of(&both), Verdict::Denied(Flaw::Names));
    }
    let mut none = good();
    none.subject_alt_names = Vec::new();
    assert_eq!(of(&none), Verdict::Denied(Flaw::Extensions));
    // Length of no address.
    none.custom_extensions =
        vec![CustomExtension::from_oid_content(&[2, 5, 29, 17], vec![0x30, 5, 0x87, 3, 1, 2, 3])];
    assert!(matches!(of(&none), Verdict::Denied(Flaw::Names | Flaw::Unreadable)));
}

#[test]
fn nobody_becomes_an_authority_or_anything_else_by_an_extension() {
    let mut authority = good();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let mut signs = good();
    signs.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let mut client = good();
    client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let mut unknown = good();
    unknown.custom_extensions = vec![CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0])];
    let mut twice = good();
    twice.custom_extensions =
        vec![CustomExtension::from_oid_content(&[2, 5, 29, 17], vec![0x30, 6, 0x87, 4, 10, 1, 2, 9])];
    for (what, params) in [
        ("an authority", authority),
        ("a signer", signs),
        ("a client", client),
        ("unknown", unknown),
        ("two lists of names", twice),
    ] {
        assert!(matches!(of(&params), Verdict::Denied(Flaw::Extensions | Flaw::Unreadable)), "{what}");
    }
}

#[test]
fn other_usages_and_long_lives_are_denied() {
    for usages in [
        json!(["digital signature", "client auth"]),
        json!(["digital signature", "server auth", "client auth"]),
        json!(["server auth"]),
        json!(["digital signature"]),
        json!(["digital signature", "key encipherment"]),
        json!(["digital signature", "server auth", "cert sign"]),
        json!([]),
    ] {
        let verdict = judged(with("/spec/usages", usages.clone()));
        assert_eq!(verdict, Verdict::Denied(Flaw::Usages), "{usages}");
    }
    for seconds in [366 * 24 * 3600 + 1, i64::MAX, -1] {
        let verdict = judged(with("/spec/expirationSeconds", seconds.into()));
        assert_eq!(verdict, Verdict::Denied(Flaw::Life), "{seconds}");
    }
}

#[test]
fn weak_and_unknown_keys_are_denied() {
    let signed = |key: &KeyPair| {
        let pem = good().serialize_request(key).unwrap().pem().unwrap();
        judged(object(&pem))
    };
    assert_eq!(signed(&KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap()), Verdict::Denied(Flaw::WeakKey));
    assert_eq!(signed(&KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap()), Verdict::Approved);
    assert_eq!(signed(&KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap()), Verdict::Approved);
}

#[test]
fn an_address_of_another_pod_is_never_certified() {
    let at = |addresses: &[&str]| {
        let mut params = good();
        params.subject_alt_names = addresses.iter().map(|one| SanType::IpAddress(ip(one))).collect();
        of(&params)
    };
    for other in ["10.1.2.4", "10.1.2.5", "10.1.2.6", "10.0.0.1", "127.0.0.1", "::1"] {
        assert_eq!(at(&[other]), Verdict::Waits(Doubt::NotItsAddress(ip(other))), "{other}");
        assert_eq!(at(&[ADDRESS, other]), Verdict::Waits(Doubt::NotItsAddress(ip(other))), "{other}");
    }
    assert_eq!(at(&["::ffff:10.1.2.3"]), Verdict::Approved, "that is the same address");
}

#[test]
fn who_cannot_be_found_waits() {
    let nobody = Verdict::Waits(Doubt::NoSuchPod("kubeocean-proxier-w1".into()));
    let extra =
        |name: &str, uid: &str| judged(with("/spec/extra", json!({ POD_NAME: [name], POD_UID: [uid] })));
    assert_eq!(extra("proxier-1", "p-9"), nobody, "another one of that name");
    assert_eq!(extra("proxier-9", "p-1"), nobody);
    assert_eq!(extra("ended", "p-3"), nobody);
    assert_eq!(extra("another", "p-4"), nobody, "of another service account");
    assert_eq!(extra("proxier-2", "p-2"), Verdict::Waits(Doubt::NotItsAddress(ip(ADDRESS))));
    for half in [
        json!({ POD_NAME: ["proxier-1"] }),
        json!({ POD_UID: ["p-1"] }),
        json!({ POD_NAME: ["a", "b"], POD_UID: ["p-1"] }),
    ] {
        assert!(matches!(judged(with("/spec/extra", half)), Verdict::Denied(_)));
    }
    let user = "system:serviceaccount:kubeocean-system:kubeocean-proxier-w3";
    let mut unbound = object(&pem(&params(
        "system:node:kubeocean-proxier-w3",
        &["system:nodes"],
        vec![SanType::IpAddress(ip(ADDRESS))],
    )));
    unbound["spec"]["username"] = user.into();
    assert_eq!(judged(unbound), Verdict::Waits(Doubt::NotBound("w3".into())));
}

#[test]
fn a_manager_that_runs_proxiers_itself_is_certified_for_its_own_address_only() {
    let own = Own { user: "kubernetes-admin".into(), address: ip("10.9.9.9") };
    let asked = |user: &str, common_name: &str, address: &str| {
        let params = params(common_name, &["system:nodes"], vec![SanType::IpAddress(ip(address))]);
        let mut object = object(&pem(&params));
        object["spec"]["username"] = user.into();
        object["spec"]["extra"] = json!({});
        judged_by(object, Some(&own))
    };
    let (me, mine) = ("kubernetes-admin", "10.9.9.9");
    assert_eq!(asked(me, "system:node:kubeocean-manager", mine), Verdict::Approved);
    assert_eq!(asked(me, "system:node:kubeocean-proxier-w2", mine), Verdict::Approved);
    assert_eq!(asked(me, "system:node:kubeocean-proxier-w9", mine), Verdict::LeftAlone, "no such binding");
    assert_eq!(asked(me, "system:node:n1", mine), Verdict::LeftAlone, "an administrator's own business");
    let elsewhere = asked(me, "system:node:kubeocean-manager", "10.9.9.8");
    assert_eq!(elsewhere, Verdict::Waits(Doubt::NotItsAddress(ip("10.9.9.8"))));
    assert_eq!(asked("someone", "system:node:kubeocean-manager", mine), Verdict::LeftAlone);
    assert_eq!(asked(USER, "system:node:kubeocean-manager", mine), Verdict::Denied(Flaw::CommonName));
}

#[test]
fn a_second_block_or_anything_around_the_first_is_not_read() {
    let (first, second) = (pem(&good()), pem(&good()));
    let bare = first.trim_end();
    for text in [
        format!("{first}{second}"),
        format!("\n{first}"),
        format!("x{first}"),
        format!("{first}x"),
        bare.replace("REQUEST-----\n", "REQUEST-----\nA: b\n\n"),
        bare.replace("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"),
        bare.replace("-----END", "=\n-----END"),
        String::new(),
    ] {
        assert_eq!(judged(object(&text)), Verdict::Denied(Flaw::Unreadable), "{text}");
    }
    assert_eq!(judged(object(bare)), Verdict::Approved);
    assert_eq!(judged(object(&first.replace('\n', "\r\n"))), Verdict::Approved);
}

#[test]
fn a_pod_is_read_as_it_is() {
    let pod = |host: bool, phase: &str| {
        let object = json!({
            "metadata": {"name": "a", "uid": "p-1", "namespace": NAMESPACE},
            "spec": {"serviceAccountName": "kubeocean-proxier-w1", "hostNetwork": host},
            "status": {"phase": phase, "podIPs": [{"ip": "10.1.2.3"}, {"ip": "fd00::1"}], "hostIPs": [{"ip": "192.168.0.1"}]},
        });
        AskingPod::read(&Object::from_value(object).unwrap())
    };
    assert_eq!(pod(false, "Running").addresses, [ip("10.1.2.3"), ip("fd00::1")]);
    assert_eq!(pod(true, "Running").addresses, [ip("10.1.2.3"), ip("fd00::1"), ip("192.168.0.1")]);
    assert!(pod(false, "Running").lives && pod(false, "Pending").lives);
    assert!(!pod(false, "Succeeded").lives && !pod(false, "Failed").lives && !pod(false, "").lives);
}

#[test]
fn an_asker_hears_what_came_of_it() {
    let heard = |status: Value| {
        answer(&Object::from_value(json!({"metadata": {"name": "a"}, "status": status})).unwrap())
    };
    let said = |word: &str| json!([{"type": word, "status": "True", "reason": "R", "message": "m"}]);
    assert_eq!(heard(json!({})), Answer::Undecided);
    assert_eq!(heard(json!({"conditions": said("Approved")})), Answer::Unsigned);
    assert_eq!(heard(json!({"conditions": said("Denied")})), Answer::Refused("R: m".into()));
    assert_eq!(
        heard(json!({"conditions": said("Failed"), "certificate": "eA=="})),
        Answer::Refused("R: m".into())
    );
    assert_eq!(
        heard(json!({"conditions": said("Approved"), "certificate": "eA=="})),
        Answer::Signed("x".into())
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn garbage_is_never_approved(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        prop_assert_ne!(judged(with_request(&STANDARD.encode(&bytes))), Verdict::Approved);
        prop_assert_ne!(judged(with_request(&text)), Verdict::Approved);
        let wrapped = format!("-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n", STANDARD.encode(&bytes));
        prop_assert_ne!(judged(with_request(&STANDARD.encode(wrapped))), Verdict::Approved);
    }

    /// A byte of a good request is another one. Where that is still approved, what is asked for is the same: the byte was of the key, of
    /// the signature (which an API server checks) or of how a text is encoded.
    #[test]
    fn a_changed_byte_never_asks_for_more(at in any::<proptest::sample::Index>(), with in any::<u8>()) {
        let mut der = good_der().to_vec();
        let at = at.index(der.len());
        der[at] = with;
        let text = format!("-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n", STANDARD.encode(&der));
        let request = STANDARD.encode(text);
        if judged(with_request(&request)) == Verdict::Approved {
            let form = Form::read(&request).unwrap();
            prop_assert_eq!(form.addresses, [ip(ADDRESS)]);
            prop_assert_eq!(form.common_name, "system:node:kubeocean-proxier-w1");
            prop_assert_eq!(form.organization, "system:nodes");
        }
    }
}

fn good_der() -> &'static [u8] {
    static DER: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    DER.get_or_init(|| good().serialize_request(&KeyPair::generate().unwrap()).unwrap().der().to_vec())
}

fn with_request(request: &str) -> Value {
    static GOOD: std::sync::OnceLock<Value> = std::sync::OnceLock::new();
    let mut object = GOOD.get_or_init(|| object(&pem(&good()))).clone();
    object["spec"]["request"] = request.into();
    object
}
