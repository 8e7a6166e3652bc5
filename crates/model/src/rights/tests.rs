use std::collections::BTreeSet;

use kubeocean_api::keys::names;

use super::*;

const EVERYTHING: WorkerWishes = WorkerWishes { storage: true, policies: true };
const COMPONENTS: [Component; 3] = [Component::Manager, Component::Syncer, Component::Proxier];

/// All rights there are, with whose they are.
fn all() -> Vec<(&'static str, Vec<Right>)> {
    let mut all = vec![("worker", in_worker(&EVERYTHING))];
    all.extend(
        ["manager", "syncer", "proxier"]
            .into_iter()
            .zip(COMPONENTS)
            .map(|(who, one)| (who, in_computing(one))),
    );
    all
}

fn is_read(verb: &str) -> bool {
    READ.contains(&verb)
}

#[test]
fn nothing_is_written_on_the_lenders_nodes() {
    for right in in_worker(&EVERYTHING).iter().filter(|right| right.resource.starts_with("nodes")) {
        assert!(right.verbs.iter().all(|verb| is_read(verb)), "{right:?}");
        assert_ne!(right.resource, "nodes/proxy", "exec into every pod of the lender");
        assert_ne!(right.resource, "nodes/*");
    }
}

#[test]
fn no_secret_of_the_lender_can_be_read() {
    for right in in_worker(&EVERYTHING).iter().filter(|right| right.resource.starts_with("secrets")) {
        assert_eq!(right.scope, Scope::MountNamespace, "{right:?}");
    }
}

#[test]
fn in_the_whole_worker_cluster_little_is_written() {
    let written: Vec<_> = in_worker(&EVERYTHING)
        .into_iter()
        .filter(|right| right.scope == Scope::Cluster && !right.verbs.iter().all(|verb| is_read(verb)))
        .map(|right| right.resource)
        .collect();
    assert_eq!(written, ["priorityclasses", "persistentvolumes", "resourceleasingpolicies/status"]);
}

#[test]
fn volumes_and_policies_are_asked_for_only_where_they_are_wanted() {
    let has = |wishes: &WorkerWishes, resource: &str| {
        in_worker(wishes).iter().any(|right| right.resource == resource)
    };
    let none = WorkerWishes::default();
    assert!(!has(&none, "persistentvolumes") && !has(&none, "resourceleasingpolicies"));
    assert!(has(&WorkerWishes { storage: true, ..none }, "persistentvolumes"));
    assert!(has(&WorkerWishes { policies: true, ..none }, "resourceleasingpolicies/status"));
}

#[test]
fn nobody_gets_wildcards_or_verbs_that_give_more_than_they_say() {
    for (who, rights) in all() {
        for right in rights {
            assert!(
                !right.verbs.is_empty() && !right.resource.contains('*') && right.group != "*",
                "{who}: {right:?}"
            );
            for verb in right.verbs {
                assert!(
                    !["*", "deletecollection", "escalate", "impersonate"].contains(verb),
                    "{who}: {right:?}"
                );
                let narrow = right.resource.contains('/') || !right.names.is_empty();
                assert!(!["bind", "approve", "update"].contains(verb) || narrow, "{who}: {right:?}");
            }
            assert!(
                right.names.is_empty() || !right.verbs.contains(&"create"),
                "{who}: a name cannot be asked about before there is an object: {right:?}"
            );
        }
    }
}

#[test]
fn scopes_are_those_of_the_cluster_that_the_rights_are_for() {
    for (who, rights) in all() {
        for right in rights {
            let fits = match right.scope {
                Scope::Cluster => true,
                Scope::MountNamespace => who == "worker",
                Scope::InstallNamespace => who == "manager",
                Scope::Namespace(_) => who != "worker",
            };
            assert!(fits, "{who}: {right:?}");
        }
    }
}

#[test]
fn every_right_says_why_and_is_there_once() {
    for (who, rights) in all() {
        let mut seen = BTreeSet::new();
        for right in rights {
            assert!(
                right.why.len() > 10 && !right.why.ends_with('.') && !right.why.contains("  "),
                "{who}: {right:?}"
            );
            for question in right.questions("here") {
                assert!(seen.insert(question.clone()), "{who}: {question} is there twice");
            }
        }
    }
}

#[test]
fn an_upgrade_is_asked_for_both_ways() {
    for resource in ["pods/exec", "pods/attach", "pods/portforward"] {
        let right = in_worker(&WorkerWishes::default()).into_iter().find(|right| right.resource == resource);
        assert_eq!(right.unwrap().verbs, ["get", "create"], "{resource}");
    }
}

#[test]
fn a_question_reads_as_people_say_it() {
    let said = |right: &Right| {
        right.questions("kubeocean-worker").iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let rights = in_worker(&EVERYTHING);
    let of = |resource: &str| {
        rights.iter().filter(|right| right.resource == resource).flat_map(said).collect::<Vec<_>>()
    };
    assert_eq!(
        of("pods/exec"),
        ["get pods/exec in namespace kubeocean-worker", "create pods/exec in namespace kubeocean-worker"]
    );
    assert_eq!(
        of("nodes"),
        ["get nodes cluster-wide", "list nodes cluster-wide", "watch nodes cluster-wide"]
    );
    assert_eq!(
        of("priorityclasses"),
        [
            "create priorityclasses.scheduling.k8s.io cluster-wide",
            "get priorityclasses.scheduling.k8s.io kubeocean-default cluster-wide",
        ]
    );
    let status = "resourceleasingpolicies/status";
    assert_eq!(
        of(status),
        [format!("patch resourceleasingpolicies.{}/status cluster-wide", kubeocean_api::GROUP)]
    );
}

#[test]
fn a_question_is_one_review() {
    let question = Question {
        verb: "create",
        group: "",
        resource: "pods",
        subresource: Some("exec"),
        namespace: Some("kubeocean-worker".into()),
        name: None,
    };
    assert_eq!(
        question.review()["spec"]["resourceAttributes"],
        json!({ "verb": "create", "group": "", "resource": "pods", "subresource": "exec", "namespace": "kubeocean-worker" })
    );
    assert_eq!(question.review()["kind"], "SelfSubjectAccessReview");
}

#[test]
fn the_install_namespace_is_whatever_it_is_called() {
    let hold = in_computing(Component::Manager)
        .into_iter()
        .find(|right| right.resource == "leases" && right.scope == Scope::InstallNamespace)
        .unwrap();
    assert_eq!(
        hold.questions("elsewhere")[0].to_string(),
        "get leases.coordination.k8s.io in namespace elsewhere"
    );
}

#[test]
fn resources_that_may_be_treated_alike_share_a_rule() {
    let rights: Vec<_> = in_worker(&WorkerWishes::default())
        .into_iter()
        .filter(|right| right.scope == Scope::MountNamespace)
        .collect();
    let rules = rules(&rights);
    let upgrade = rules.iter().find(|rule| rule["verbs"] == json!(["get", "create"])).unwrap();
    assert_eq!(upgrade["resources"], json!(["pods/exec", "pods/attach", "pods/portforward"]));
    assert_eq!(rules, super::rules(&rights), "the same every time");
    let merged: usize = rules.iter().map(|rule| rule["resources"].as_array().unwrap().len()).sum();
    assert_eq!(merged, rights.len(), "nothing is lost");
}

#[test]
fn names_stay_with_their_rule() {
    let rules = rules(&in_computing(Component::Manager));
    let bind = rules.iter().find(|rule| rule["verbs"] == json!(["bind"])).unwrap();
    assert_eq!(bind["resourceNames"], json!([names::SYNCER_ROLE, names::PROXIER_ROLE]));
    assert_eq!(bind["resources"], json!(["clusterroles"]));
}

/// Whether someone with these rights may put this rule into a Role of the install namespace.
fn may_hand_out(rights: &[Right], rule: &Value) -> bool {
    let texts = |field: &str| -> Vec<String> {
        rule[field].as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    texts("apiGroups").iter().all(|group| {
        texts("resources").iter().all(|resource| {
            texts("verbs").iter().all(|verb| {
                rights.iter().any(|right| {
                    right.group == group
                        && right.resource == resource
                        && right.verbs.contains(&verb.as_str())
                        && right.names.is_empty()
                        && matches!(right.scope, Scope::Cluster | Scope::InstallNamespace)
                })
            })
        })
    })
}

#[test]
fn the_manager_has_itself_what_it_hands_out() {
    let manager = in_computing(Component::Manager);
    for component in [Component::Syncer, Component::Proxier] {
        let role = own_role(component, "berlin", &["berlin-kubeconfig"]);
        assert!(!role.is_empty());
        for rule in role {
            assert!(may_hand_out(&manager, &rule), "{component:?}: the manager may not: {rule}");
        }
    }
    let more = json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": ["delete"] });
    assert!(!may_hand_out(&manager, &more), "the check can fail");
}

#[test]
fn each_syncer_and_proxier_reads_its_own_secret_only() {
    for component in [Component::Syncer, Component::Proxier] {
        for rule in own_role(component, "berlin", &["berlin-kubeconfig"]) {
            if rule["resources"] == json!(["secrets"]) {
                assert_eq!(rule["resourceNames"], json!(["berlin-kubeconfig"]));
                assert_eq!(rule["verbs"], json!(["get", "list", "watch"]));
            }
        }
    }
}
