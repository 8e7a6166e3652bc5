//! Puts every case before an API server and compares the verdicts.
//!
//! Creations are dry runs, which pass through all of admission and leave nothing behind. Changes and
//! statuses need an object to start from: it is really created under a name of its own, only the
//! change is a dry run, and the object goes afterwards.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind, Status};
use kube::{Api, Client, ResourceExt as _};
use kubeocean_api::crd;
use serde_json::Value;

use super::cases::{self, Case, Step, Verdict};

/// A new definition is served within a second; a loaded machine takes longer.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(30);

/// Installs the definitions, runs all cases, and returns what went wrong: one line for each case whose
/// verdict was another one.
pub(crate) async fn run(client: Client) -> Vec<String> {
    if let Err(failure) = tokio::time::timeout(ESTABLISHED_WITHIN, install(&client))
        .await
        .unwrap_or_else(|_| Err("the definitions were not established in time".to_owned()))
    {
        return vec![failure];
    }
    let mut failures = Vec::new();
    let cases = cases::all();
    for (index, case) in cases.iter().enumerate() {
        if let Err(failure) = check(&client, case, index).await {
            failures.push(format!("- {}: {failure}", case.name));
        }
    }
    failures
}

async fn install(client: &Client) -> Result<(), String> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in crd::crds() {
        let name = crd.name_any();
        let apply = PatchParams::apply("kubeocean-api-test").force();
        api.patch(&name, &apply, &Patch::Apply(&crd)).await.map_err(|error| format!("{name}: {error}"))?;
        loop {
            let conditions = api
                .get(&name)
                .await
                .map_err(|error| format!("{name}: {error}"))?
                .status
                .and_then(|status| status.conditions)
                .unwrap_or_default();
            let is_true =
                |type_: &str| conditions.iter().any(|one| one.type_ == type_ && one.status == "True");
            if let Some(problem) =
                conditions.iter().find(|one| one.type_ == "NonStructuralSchema" && one.status == "True")
            {
                return Err(format!("{name}: {}", problem.message.clone().unwrap_or_default()));
            }
            if is_true("Established") {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    // Established is said a moment before the new paths answer.
    for kind in ["ClusterBinding", "ResourceLeasingPolicy"] {
        while resource(client, kind).list(&kube::api::ListParams::default()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}

fn resource(client: &Client, kind: &str) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk(kubeocean_api::GROUP, kubeocean_api::VERSION, kind);
    let plural = if kind == "ClusterBinding" { "clusterbindings" } else { "resourceleasingpolicies" };
    Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&gvk, plural))
}

async fn check(client: &Client, case: &Case, index: usize) -> Result<(), String> {
    let mut object = case.object.clone();
    if object["metadata"]["name"].is_null() {
        object["metadata"]["name"] = format!("case-{}-{index}", std::process::id()).into();
    }
    let object: DynamicObject = serde_json::from_value(object).map_err(|error| error.to_string())?;
    let api = resource(client, &object.types.as_ref().map(|types| types.kind.clone()).unwrap_or_default());
    let answer = match &case.step {
        Step::Create => api.create(&PostParams { dry_run: true, ..PostParams::default() }, &object).await,
        Step::Change(patch) | Step::Status(patch) => {
            let name = object.name_any();
            api.create(&PostParams::default(), &object)
                .await
                .map_err(|error| format!("the object to start from was refused: {error}"))?;
            let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
            let answer = if matches!(case.step, Step::Status(_)) {
                api.patch_status(&name, &dry_run, &Patch::Merge(patch)).await
            } else {
                api.patch(&name, &dry_run, &Patch::Merge(patch)).await
            };
            api.delete(&name, &DeleteParams::default())
                .await
                .map_err(|error| format!("the object was not deleted: {error}"))?;
            answer
        }
    };
    compare(&case.verdict, answer)
}

fn compare(expected: &Verdict, answer: kube::Result<DynamicObject>) -> Result<(), String> {
    match (expected, answer) {
        (Verdict::Accepted, Ok(_)) => Ok(()),
        (Verdict::AcceptedAs(expected), Ok(object)) => {
            let object = serde_json::to_value(object).map_err(|error| error.to_string())?;
            let wrong: Vec<_> = expected
                .iter()
                .map(|(pointer, value)| (pointer, value, object.pointer(pointer).unwrap_or(&Value::Null)))
                .filter(|(_, expected, found)| expected != found)
                .map(|(pointer, expected, found)| format!("{pointer} is {found}, not {expected}"))
                .collect();
            if wrong.is_empty() { Ok(()) } else { Err(wrong.join(", ")) }
        }
        (Verdict::Refused(fragment), Err(kube::Error::Api(status))) => refused(fragment, &status),
        (Verdict::Refused(fragment), Ok(_)) => Err(format!("accepted, should say `{fragment}`")),
        (Verdict::Accepted | Verdict::AcceptedAs(_), Err(kube::Error::Api(status))) => {
            Err(format!("refused: {}", status.message))
        }
        (_, Err(error)) => Err(format!("no verdict: {error}")),
    }
}

fn refused(fragment: &str, status: &Status) -> Result<(), String> {
    if status.code != 422 {
        return Err(format!("not a verdict on the object: {} {}", status.code, status.message));
    }
    if status.message.contains(fragment) {
        Ok(())
    } else {
        Err(format!("refused with `{}`, should say `{fragment}`", status.message))
    }
}
