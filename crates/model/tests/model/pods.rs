//! What becomes of pods, as people read it: `tests/pods/*.txt`. The half under `becomes` is written by
//! `UPDATE_GOLDEN=1 cargo test -p kubeocean-model pods`, and reviewed as a diff.
//!
//! A pod is written down as YAML: `metadata`, `spec`, and `around`, which is what it finds in the worker cluster. What every pod gets
//! is shown once, for the first one, and left out of the others. `then` is the same pod later, `foreign` what others did to its twin.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use kubeocean_api::keys::annotations;
use kubeocean_model::object::Object;
use kubeocean_model::project::{
    Change, Computing, Needs, Refusal, ServiceEntry, Surroundings, changes, needs, project, to_create,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pods");

/// What a pod finds in the worker cluster.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is one word in a file that people write")]
pub(crate) struct Around {
    direct: bool,
    priority_class: Option<String>,
    api_server: Option<(String, u16)>,
    dns: Vec<String>,
    services: Vec<Service>,
    no_csi: bool,
    has_runtime_class: bool,
    allowed: Vec<String>,
    missing: Vec<String>,
    whole: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Service {
    name: String,
    ip: Option<String>,
    ports: Vec<(Option<String>, u16, String)>,
}

impl Around {
    pub(crate) fn with<T>(&self, act: impl FnOnce(&Surroundings<'_>) -> T) -> T {
        let mut binding = crate::binding();
        binding.schedules_directly = self.direct;
        binding.priority_class.clone_from(&self.priority_class);
        let service = |service: &Service| {
            let (name, namespace) = service.name.split_once('.').unwrap_or((&service.name, "web"));
            ServiceEntry {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                cluster_ip: service.ip.clone(),
                ports: service.ports.clone(),
            }
        };
        let computing = Computing {
            api_server: self.api_server.clone(),
            dns: self.dns.clone(),
            cluster_domain: "cluster.local".to_owned(),
            services: self.services.iter().map(service).collect(),
        };
        act(&Surroundings {
            binding: &binding,
            virtual_cluster: "v-1",
            vnode: "vnode-w1-n1",
            physical_node: "n1",
            name: "a-twin",
            names: &|_, name| (!self.missing.iter().any(|one| one == name)).then(|| format!("{name}-copy")),
            tokens: Some("a-tokens"),
            keeps_runtime_class: self.has_runtime_class,
            allows_inline_csi: !self.no_csi,
            computing: &computing,
            allowed_annotations: &self.allowed,
        })
    }

    pub(crate) fn project(&self, pod: &Object) -> Result<Value, Refusal> {
        self.with(|around| project(pod, around))
    }
}

pub(crate) fn object(value: &Value) -> Object {
    Object::from_value(value.clone()).unwrap()
}

/// A pod of the corpus.
pub(crate) struct Case {
    pub(crate) title: String,
    pub(crate) pod: Value,
    pub(crate) around: Around,
    then: Option<Value>,
    foreign: Option<Value>,
    given: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    #[serde(default)]
    metadata: Map<String, Value>,
    spec: Value,
    #[serde(default)]
    around: Around,
    then: Option<Value>,
    foreign: Option<Value>,
}

fn files() -> Vec<PathBuf> {
    let mut files: Vec<_> =
        std::fs::read_dir(DIRECTORY).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn cases(file: &PathBuf) -> Vec<Case> {
    let text = std::fs::read_to_string(file).unwrap();
    let mut cases = Vec::new();
    for block in text.split("\n# ").map(|block| block.trim_start_matches("# ")) {
        let (title, rest) = block.split_once('\n').unwrap_or((block, ""));
        let given = rest.split("\nbecomes\n").next().unwrap_or_default().trim_end();
        let read = serde_saphyr::from_str::<Given>(given);
        assert!(read.is_ok(), "{}: {title}: {}", file.display(), read.err().unwrap());
        let read = read.unwrap();
        let mut metadata = json!({"name": "a", "namespace": "web", "uid": "u-1", "generation": 1});
        metadata.as_object_mut().unwrap().extend(read.metadata);
        cases.push(Case {
            title: title.to_owned(),
            pod: json!({"metadata": metadata, "spec": read.spec}),
            around: read.around,
            then: read.then,
            foreign: read.foreign,
            given: given.to_owned(),
        });
    }
    cases
}

pub(crate) fn corpus() -> Vec<Case> {
    files().iter().flat_map(cases).collect()
}

#[test]
fn pods_become_what_people_have_read() {
    let first = Around::default().project(&object(&json!({
        "metadata": {"name": "a", "namespace": "web", "uid": "u-1", "generation": 1}, "spec": {"containers": []},
    })));
    let mut usual = BTreeSet::new();
    let before = json!({"metadata": {"name": "a", "namespace": "web"}, "spec": {"containers": []}});
    difference("", &before, &first.unwrap(), &mut |line| {
        usual.insert(line);
    });
    let mut count = 0;
    for file in files() {
        let mut text = String::new();
        for case in cases(&file) {
            count += 1;
            write!(text, "# {}\n{}\n\nbecomes\n{}\n", case.title, case.given, outcome(&case, &usual))
                .unwrap();
        }
        crate::is_golden(file.to_str().unwrap(), &text);
    }
    assert!(count >= 60, "{count} pods");
}

fn outcome(case: &Case, usual: &BTreeSet<String>) -> String {
    let pod = object(&case.pod);
    let mut text = String::new();
    let needs = needs(&pod);
    if let Ok(needs) = &needs {
        tell_needs(needs, &mut text);
    }
    let projected = match case.around.project(&pod) {
        Ok(projected) => projected,
        Err(refusal) => {
            writeln!(text, "  refused: {}: {refusal}", refusal.reason()).unwrap();
            return text;
        }
    };
    assert!(needs.is_ok(), "{}", case.title);
    let Some(then) = &case.then else {
        let mut before = case.pod.clone();
        for field in ["uid", "generation", "ownerReferences", "finalizers", "generateName"] {
            before["metadata"].as_object_mut().unwrap().remove(field);
        }
        difference("", &before, &projected, &mut |line| {
            if case.around.whole || !usual.contains(&line) && !line.contains(annotations::EXPECTED_METADATA) {
                writeln!(text, "  {line}").unwrap();
            }
        });
        if text.is_empty() {
            text.push_str("  nothing but the usual\n");
        }
        return text;
    };
    let mut twin = to_create(projected.clone());
    assert!(twin["spec"].get("ephemeralContainers").is_none());
    merge(&mut twin, case.foreign.as_ref().unwrap_or(&json!({})));
    let mut later = case.pod.clone();
    merge(&mut later, then);
    let wanted = case.around.project(&object(&later)).unwrap();
    let wanted_changes = changes(&wanted, &object(&twin));
    for Change { subresource, body, .. } in &wanted_changes {
        let place = subresource.map(|name| format!("/{name}")).unwrap_or_default();
        let mut shown = body.clone();
        let notes = shown.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
        if let Some(keys) = notes.and_then(|notes| notes.get_mut(annotations::EXPECTED_METADATA)) {
            *keys = "our keys".into();
        }
        writeln!(text, "  patch pods{place} {shown}").unwrap();
        merge(&mut twin, body);
    }
    if wanted_changes.is_empty() {
        text.push_str("  rest\n");
    }
    assert_eq!(changes(&wanted, &object(&twin)), [], "{}: once is enough", case.title);
    text
}

fn tell_needs(needs: &Needs, text: &mut String) {
    for ((referent, name), required) in &needs.references {
        let how = if *required { "" } else { ", if it is there" };
        writeln!(text, "  needs {referent:?} {name}{how}").unwrap();
    }
    for token in &needs.tokens {
        let audience = token.audience.as_deref().unwrap_or("the API server");
        writeln!(
            text,
            "  needs token {} of {} for {audience}, {} s",
            token.key, needs.service_account, token.seconds
        )
        .unwrap();
    }
    if let Some(class) = &needs.runtime_class {
        writeln!(text, "  needs RuntimeClass {class}, if it is there").unwrap();
    }
}

/// What differs, a line each. Items of lists are told by their names, where they have some.
fn difference(path: &str, before: &Value, after: &Value, tell: &mut dyn FnMut(String)) {
    let join = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match (before, after) {
        _ if before == after => {}
        (Value::Object(old), Value::Object(new)) => {
            let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for key in keys {
                match (old.get(key), new.get(key)) {
                    (Some(old), Some(new)) => difference(&join(key), old, new, tell),
                    (Some(old), None) => tell(format!("- {}: {old}", join(key))),
                    (None, Some(new @ Value::Object(_)))
                        if key == "metadata" || key == "labels" || key == "annotations" =>
                    {
                        difference(&join(key), &json!({}), new, tell);
                    }
                    (None, Some(new)) if key == "env" => difference(&join(key), &json!([]), new, tell),
                    (None, Some(new)) => tell(format!("+ {}: {new}", join(key))),
                    (None, None) => {}
                }
            }
        }
        (Value::Array(old), Value::Array(new)) if old.iter().chain(new).all(Value::is_object) => {
            let (old, new) = (named(old), named(new));
            for (name, item) in &old {
                match new.iter().find(|(other, _)| other == name) {
                    Some((_, other)) => difference(&format!("{path}[{name}]"), item, other, tell),
                    None => tell(format!("- {path}[{name}]: {item}")),
                }
            }
            for (name, item) in new.iter().filter(|(name, _)| old.iter().all(|(other, _)| other != name)) {
                match (&item["value"], item.as_object().map(Map::len)) {
                    (Value::String(value), Some(2)) => tell(format!("+ {path}[{name}]: {value:?}")),
                    _ => tell(format!("+ {path}[{name}]: {item}")),
                }
            }
        }
        _ => tell(format!("~ {path}: {before} -> {after}")),
    }
}

fn named(items: &[Value]) -> Vec<(String, &Value)> {
    let names: BTreeSet<&str> = items.iter().filter_map(|item| item["name"].as_str()).collect();
    let by_name = names.len() == items.len();
    let name = |(index, item): (usize, &Value)| {
        item["name"].as_str().filter(|_| by_name).map_or_else(|| index.to_string(), str::to_owned)
    };
    items.iter().enumerate().map(|(index, item)| (name((index, item)), item)).collect()
}

/// As an API server merges a pod: containers by name, other lists whole.
fn merge(into: &mut Value, patch: &Value) {
    for (key, value) in patch.as_object().into_iter().flatten() {
        match (value, into.get_mut(key)) {
            (Value::Null, _) => drop(into.as_object_mut().unwrap().remove(key)),
            (Value::Object(_), Some(known @ Value::Object(_))) => merge(known, value),
            (Value::Array(items), Some(Value::Array(known)))
                if key.to_lowercase().ends_with("containers") =>
            {
                for item in items {
                    match known.iter_mut().find(|one| one["name"] == item["name"]) {
                        Some(one) => merge(one, item),
                        None => known.push(item.clone()),
                    }
                }
            }
            _ => into[key] = value.clone(),
        }
    }
}
