use std::path::{Path, PathBuf};

use super::*;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/crd")
}

/// What the committed files have to be, by name.
fn expected() -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = crds().iter().map(|crd| (file_name(crd), render(crd).unwrap())).collect();
    let mut kustomization =
        String::from("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n");
    for (name, _) in &files {
        kustomization.push_str("- ");
        kustomization.push_str(name);
        kustomization.push('\n');
    }
    files.push(("kustomization.yaml".into(), kustomization.into_bytes()));
    files
}

#[test]
fn the_committed_files_are_what_the_types_say() {
    let directory = directory();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(&directory).unwrap();
        for (name, bytes) in expected() {
            std::fs::write(directory.join(name), bytes).unwrap();
        }
    }
    let differing: Vec<_> = expected()
        .into_iter()
        .filter(|(name, bytes)| std::fs::read(directory.join(name)).ok().as_ref() != Some(bytes))
        .map(|(name, _)| format!("config/crd/{name}"))
        .collect();
    assert!(
        differing.is_empty(),
        "{differing:?} differ from the types; write them with `UPDATE_GOLDEN=1 cargo test -p kubeocean-api`, \
         and review the difference"
    );
}

#[test]
fn no_file_is_left_over_from_a_resource_that_is_gone() {
    let expected: Vec<_> = expected().into_iter().map(|(name, _)| name).collect();
    let unknown: Vec<_> = std::fs::read_dir(directory())
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !expected.contains(name))
        .collect();
    assert!(unknown.is_empty(), "config/crd has files that nothing generates: {unknown:?}");
}

#[test]
fn names_and_scope_are_those_of_existing_installations() {
    let seen: Vec<_> = crds()
        .into_iter()
        .map(|crd| (crd.metadata.name.unwrap(), crd.spec.scope, crd.spec.names.short_names.unwrap().concat()))
        .collect();
    assert_eq!(
        seen,
        [
            ("clusterbindings.cloud.tencent.com".into(), "Cluster".into(), "cb".into()),
            ("resourceleasingpolicies.cloud.tencent.com".into(), "Cluster".into(), "rlp".into()),
        ]
    );
    for crd in crds() {
        assert_eq!(crd.spec.group, crate::GROUP);
        assert_eq!(crd.spec.names.categories.as_deref(), Some(&["kubeocean".to_owned()][..]));
        let [version] = crd.spec.versions.as_slice() else { panic!("one version is served") };
        assert_eq!(version.name, crate::VERSION);
        assert!(version.subresources.as_ref().unwrap().status.is_some());
    }
}

#[test]
fn every_field_explains_itself() {
    fn walk(path: &str, schema: &serde_json::Value, silent: &mut Vec<String>) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            if property["description"].as_str().is_none_or(|text| text.is_empty() || text.contains("  ")) {
                silent.push(path.clone());
            }
            walk(&path, property, silent);
            walk(&format!("{path}[]"), &property["items"], silent);
        }
    }
    let mut silent = Vec::new();
    for crd in crds() {
        let crd = serde_json::to_value(crd).unwrap();
        let root = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        for part in ["spec", "status"] {
            walk(part, &root[part], &mut silent);
        }
    }
    assert!(silent.is_empty(), "without a description: {silent:?}");
}

#[test]
fn every_rule_has_a_message() {
    fn walk(schema: &serde_json::Value, mute: &mut Vec<String>) {
        match schema {
            serde_json::Value::Object(fields) => {
                for rule in fields
                    .get("x-kubernetes-validations")
                    .and_then(|all| all.as_array())
                    .into_iter()
                    .flatten()
                {
                    if rule["message"].as_str().is_none_or(|text| text.len() < 20) {
                        mute.push(rule.to_string());
                    }
                }
                fields.values().for_each(|field| walk(field, mute));
            }
            serde_json::Value::Array(items) => items.iter().for_each(|item| walk(item, mute)),
            _ => {}
        }
    }
    let mut mute = Vec::new();
    for crd in crds() {
        walk(&serde_json::to_value(crd).unwrap(), &mut mute);
    }
    assert!(mute.is_empty(), "without a message: {mute:?}");
}

#[test]
fn a_group_is_chosen_by_its_name() {
    assert_eq!("ocean".parse(), Ok(Group::Ocean));
    let error = "sea".parse::<Group>().unwrap_err().to_string();
    assert_eq!(error, "there is no group `sea`: choose one of ocean");
}
