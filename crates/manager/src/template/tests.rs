use std::path::Path;

use kubeocean_model::binding::Binding;
use serde_json::json;

use super::*;

fn binding() -> Binding {
    let object = json!({
        "apiVersion": kinds::BINDING.api_version(), "kind": "ClusterBinding", "metadata": {"name": "w1", "uid": "b-1"},
        "spec": {"clusterID": "c1", "mountNamespace": "mount", "secretRef": {"name": "s", "namespace": "kubeocean-system"}},
    });
    Binding::parse(&serde_json::from_value(object).unwrap()).unwrap()
}

fn installation() -> Installation {
    Installation {
        namespace: "kubeocean-system".to_owned(),
        virtual_cluster_uid: "v-1".to_owned(),
        image: "kubeocean:test".to_owned(),
        cluster_domain: "cluster.local".to_owned(),
    }
}

fn render(templates: &Templates) -> Result<Vec<Child>, TemplateFault> {
    let binding = binding();
    templates.render(&installation(), &Wish { binding: &binding, size: SizeClass::Medium, owned: true })
}

fn with(files: &[(&str, &str)]) -> (tempfile::TempDir, Result<Templates, (Role, SourceError)>) {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    let templates = Templates::load(Some(directory.path()), None);
    (directory, templates)
}

#[test]
fn the_built_in_templates_make_what_a_binding_needs() {
    let children = render(&Templates::built_in()).unwrap();
    let made: Vec<String> =
        children.iter().map(|child| format!("{} {} {}", child.role, child.kind.kind, child.name)).collect();
    let expected = [
        "proxier ServiceAccount kubeocean-proxier-c1",
        "proxier Role kubeocean-proxier-c1",
        "proxier RoleBinding kubeocean-proxier-c1",
        "proxier ClusterRoleBinding kubeocean-proxier-c1",
        "proxier Service kubeocean-proxier-c1-svc",
        "proxier Deployment kubeocean-proxier-c1",
        "proxier PodDisruptionBudget kubeocean-proxier-c1",
        "syncer ServiceAccount kubeocean-syncer-c1",
        "syncer Role kubeocean-syncer-c1",
        "syncer RoleBinding kubeocean-syncer-c1",
        "syncer ClusterRoleBinding kubeocean-syncer-c1",
        "syncer Deployment kubeocean-syncer-c1",
        "syncer PodDisruptionBudget kubeocean-syncer-c1",
    ];
    assert_eq!(made, expected);
    for child in &children {
        let metadata = &child.body["metadata"];
        assert_eq!(metadata["labels"][labels::BINDING_UID], "b-1", "{}", child.name);
        assert_eq!(metadata["ownerReferences"][0]["uid"], "b-1", "{}", child.name);
        assert_eq!(metadata["annotations"][TEMPLATE_HASH].as_str().map(str::len), Some(16), "{}", child.name);
    }
    let container = &children[11].body["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "kubeocean:test");
    assert_eq!(container["resources"]["requests"], json!({"cpu": "200m", "memory": "256Mi"}));
    assert_eq!(container["resources"]["limits"], json!({"cpu": "1", "memory": "1Gi"}));
    assert_eq!(container["args"], json!(["syncer", "--cluster-binding-name=w1", "--leader-elect"]));
}

/// Its virtual nodes are to be answered for within ten seconds, of which three belong to those who move them.
#[test]
fn a_proxier_that_hangs_is_found_out_within_seven_seconds() {
    let children = render(&Templates::built_in()).unwrap();
    let is_it = |child: &&Child| child.role == Role::Proxier && child.kind == kinds::DEPLOYMENT;
    let deployment = children.iter().find(is_it).unwrap();
    let probe = &deployment.body["spec"]["template"]["spec"]["containers"][0]["readinessProbe"];
    let of = |field: &str| probe[field].as_u64().unwrap();
    assert!(of("failureThreshold") * of("periodSeconds") + of("timeoutSeconds") <= 7, "{probe}");
    assert!(of("failureThreshold") >= 3, "one slow answer moves nobody: {probe}");
}

#[test]
fn components_stay_off_virtual_nodes_whatever_the_template_says() {
    let required = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let terms = json!([{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}, {}]);
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
    for mut pod in [json!({}), json!({"affinity": null}), json!({"affinity": affinity})] {
        keep_off_virtual_nodes(&mut pod);
        let once = pod.clone();
        keep_off_virtual_nodes(&mut pod);
        assert_eq!(pod, once, "once is enough");
        let terms = pod.pointer(required).and_then(Value::as_array).unwrap();
        let is_off = |term: &Value| {
            let expressions = term["matchExpressions"].as_array().unwrap();
            expressions.iter().any(|one| one["operator"] == "NotIn" && one["key"] == labels::TYPE)
        };
        assert!(!terms.is_empty() && terms.iter().all(is_off), "{pod}");
    }
    let mut odd = json!({"affinity": "none"});
    keep_off_virtual_nodes(&mut odd);
    assert_eq!(odd, json!({"affinity": "none"}), "the API server has the word");
}

#[test]
fn names_that_look_like_something_else_stay_names() {
    for id in ["42", "true", "null", "1e3", "0x1f"] {
        let mut binding = binding();
        binding.cluster_id = kubeocean_model::naming::ClusterId::parse(id).unwrap();
        let wish = Wish { binding: &binding, size: SizeClass::Small, owned: true };
        for child in Templates::built_in().render(&installation(), &wish).unwrap() {
            let text = child.body.to_string();
            for wrong in [format!("\"app.kubernetes.io/instance\":{id}"), "instance\":null".to_owned()] {
                assert!(!text.contains(&wrong), "{id}: {text}");
            }
        }
    }
}

#[test]
fn values_set_what_most_people_want_to_set() {
    let values = "image: mine:1\nreplicas: 1\npriorityClassName: high\ntolerations: [{key: a, operator: Exists}]\n\
                  resources: {requests: {cpu: 1}}\n";
    let (_directory, templates) = with(&[("values.yaml", values)]);
    let children = render(&templates.unwrap()).unwrap();
    let syncer =
        children.iter().find(|child| child.role == Role::Syncer && child.kind == kinds::DEPLOYMENT).unwrap();
    let pod = &syncer.body["spec"]["template"]["spec"];
    assert_eq!((&pod["priorityClassName"], &syncer.body["spec"]["replicas"]), (&json!("high"), &json!(1)));
    assert_eq!(pod["containers"][0]["image"], "mine:1");
    assert_eq!(pod["containers"][0]["resources"], json!({"requests": {"cpu": 1}}));
    assert_eq!(pod["tolerations"], json!([{"key": "a", "operator": "Exists"}]));
    let (_directory, templates) = with(&[("values.yaml", "replica: 1\n")]);
    let error = templates.unwrap_err().1.to_string();
    assert!(error.contains("values.yaml") && error.contains("replica"), "{error}");
}

#[test]
fn what_is_wrong_with_a_template_is_said_with_file_and_line() {
    let good = "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {{ name }}\n";
    let fault = {
        let (_directory, templates) = with(&[("a.yaml", good)]);
        render(&templates.unwrap()).unwrap_err()
    };
    assert!(
        fault.message.contains("a.yaml: the templates of the syncer make no Deployment"),
        "{}",
        fault.message
    );
    let cases = [
        ("{{ clusterid }}", "a.yaml: line 1"),
        (
            "a: 1\nb: {{ .ClusterID }}",
            "line 2: `{{ .ClusterID }}` is a Go template: write the variables of docs/templates.md",
        ),
        ("a: 1\n{% if %}", "line 2"),
        ("a: [1", "of what it renders is not YAML"),
        ("a: 1\nb: c: d\n", "a.yaml: line 2 of what it renders is not YAML"),
        (
            "apiVersion: v1\nkind: Secret\nmetadata: {name: a}",
            "v1/Secret cannot be made by a template: only v1/ServiceAccount",
        ),
        ("apiVersion: v1\nkind: Service\nmetadata: {}", "without metadata.name"),
        (
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: text",
            "spec.template.metadata is missing",
        ),
        ("apiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: b}", "leave metadata.namespace out"),
        (
            "apiVersion: v1\nkind: Service\nmetadata: {name: a, ownerReferences: [{}]}",
            "leave metadata.ownerReferences out",
        ),
    ];
    for (text, expected) in cases {
        let (_directory, templates) = with(&[("a.yaml", text), ("b.yaml", good)]);
        let fault = render(&templates.unwrap()).unwrap_err();
        assert!(
            fault.message.contains(expected) && fault.message.contains("a.yaml"),
            "{text}: {}",
            fault.message
        );
        assert_eq!(fault.role, Role::Syncer);
    }
    let deployment =
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {template: {metadata: {}}}";
    let (directory, templates) = with(&[("a.yaml", good), ("b.yaml", good), ("c.yaml", deployment)]);
    let message = render(&templates.unwrap()).unwrap_err().message;
    let at = |file: &str| directory.path().join(file).display().to_string();
    let twice = format!(
        "{}: ServiceAccount kubeocean-syncer-c1 is made twice, also by {}",
        at("b.yaml"),
        at("a.yaml")
    );
    assert!(message.starts_with(&twice), "{message}");
    let (_directory, templates) = with(&[("values.yaml", "image: a\nreplicas: 0\n")]);
    let error = templates.unwrap_err().1.to_string();
    assert!(error.contains("values.yaml: line 2: replicas is 0"), "{error}");
    let (_directory, templates) = with(&[("values.yaml", "image: a\nreplicas: many\n")]);
    let error = templates.unwrap_err().1.to_string();
    assert!(error.contains("values.yaml: line 2: "), "{error}");
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let error = Templates::load(None, Some(Path::new("/nowhere/at/all"))).unwrap_err();
    assert_eq!(error.0, Role::Proxier);
    assert!(error.1.to_string().contains("unset KUBEOCEAN_PROXIER_TEMPLATE_DIR"), "{}", error.1);
}

#[test]
fn a_directory_without_a_template_is_a_mistake_unless_it_is_empty() {
    let directory = tempfile::tempdir().unwrap();
    assert!(
        Templates::load(None, Some(directory.path())).is_ok(),
        "as a ConfigMap that is not there is mounted"
    );
    std::fs::write(directory.path().join("deployment.yaml.j2"), "kind: Deployment").unwrap();
    let (_, error) = Templates::load(None, Some(directory.path())).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("only deployment.yaml.j2: name templates *.yaml"), "{message}");
    std::fs::write(directory.path().join("values.yaml"), "replicas: 3").unwrap();
    assert!(Templates::load(None, Some(directory.path())).is_ok(), "values are for the built-in templates");
}

#[test]
fn an_autoscaled_proxier_has_no_number_of_replicas() {
    let directory = tempfile::tempdir().unwrap();
    let values = "autoscaling: {minReplicas: 2, maxReplicas: 9}\n";
    std::fs::write(directory.path().join("values.yaml"), values).unwrap();
    let children = render(&Templates::load(None, Some(directory.path())).unwrap()).unwrap();
    let of = |kind: &str| {
        children.iter().find(|child| child.role == Role::Proxier && child.kind.kind == kind).unwrap()
    };
    assert!(of("Deployment").body["spec"]["replicas"].is_null());
    assert_eq!(of("HorizontalPodAutoscaler").body["spec"]["maxReplicas"], 9);
    let (role, error) = Templates::load(Some(directory.path()), None).unwrap_err();
    let message = error.to_string();
    assert_eq!(role, Role::Syncer);
    assert!(message.contains("values.yaml: line 1: autoscaling is for the proxier"), "{message}");
}
