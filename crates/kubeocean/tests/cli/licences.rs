//! What is linked in may be linked in: the licences that deny.toml allows, where cargo-deny is not at hand.

use std::process::Command;

use serde_json::Value;

#[test]
fn every_dependency_has_a_licence_that_is_allowed() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let allowed = allowed(&std::fs::read_to_string(format!("{root}/deny.toml")).unwrap());
    assert!(allowed.iter().any(|licence| licence == "Apache-2.0"));
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--format-version=1",
            "--locked",
            "--offline",
            "--filter-platform=x86_64-unknown-linux-gnu",
        ])
        .current_dir(root)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let used: Vec<_> =
        metadata["resolve"]["nodes"].as_array().unwrap().iter().map(|node| &node["id"]).collect();
    let packages = metadata["packages"].as_array().unwrap();
    let mut refused = Vec::new();
    for package in packages.iter().filter(|package| used.contains(&&package["id"])) {
        let expression = package["license"].as_str().unwrap_or("none");
        let parsed = spdx::Expression::parse_mode(expression, spdx::ParseMode::LAX);
        let fits = parsed.is_ok_and(|parsed| parsed.evaluate(|needed| allowed.contains(&needed.to_string())));
        if !fits {
            refused.push(format!("{}: {expression}", package["name"]));
        }
    }
    assert!(packages.len() > 100, "cargo metadata named {} packages only", packages.len());
    assert_eq!(refused, Vec::<String>::new(), "not allowed by deny.toml");
}

/// The list `allow` of deny.toml.
fn allowed(text: &str) -> Vec<String> {
    let list = text.split_once("allow = [").unwrap().1.split_once(']').unwrap().0;
    list.split(',')
        .map(|entry| entry.trim().trim_matches('"').to_owned())
        .filter(|entry| !entry.is_empty())
        .collect()
}
