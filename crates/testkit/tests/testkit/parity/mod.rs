//! The simulated server and a real one are asked the same things; every answer has to be the same.
//!
//! There are no expectations in the tables: the real server is the expectation. A difference is a mistake
//! of the simulation. What no two servers share (uids, times, revisions, generated names) is masked.

#![allow(
    clippy::needless_pass_by_value,
    clippy::too_many_lines,
    reason = "tables: short to write, long to read"
)]

/// A body, made in a function of its own: one function that makes them all would take minutes to optimise.
macro_rules! json {
    ($($tokens:tt)*) => { $crate::parity::script::made(|| serde_json::json!($($tokens)*)) };
}

#[rustfmt::skip] // tables: one request, one line
mod apply;
#[rustfmt::skip]
mod credentials;
#[rustfmt::skip]
mod custom;
#[rustfmt::skip]
mod deletion;
mod mask;
mod nasty;
#[rustfmt::skip]
mod objects;
#[rustfmt::skip]
mod manager;
#[rustfmt::skip]
mod pod_status;
#[rustfmt::skip]
mod pods;
#[rustfmt::skip]
mod reads;
mod run;
pub(crate) mod script;
#[rustfmt::skip]
mod subresources;
#[rustfmt::skip]
mod volumes;
#[rustfmt::skip]
mod watches;

use std::collections::BTreeMap;

use kubeocean_sandbox::lab::Program;
use kubeocean_sandbox::{COMPUTING, Sandbox, Spec};
use kubeocean_testkit::{ApiServer, Options};
use serde_json::Value;

use self::script::{How, Script};

/// Scripts that no controller may disturb.
fn quiet() -> Vec<Script> {
    [
        objects::scripts(),
        pods::scripts(),
        pod_status::scripts(),
        credentials::scripts(),
        manager::scripts(),
        deletion::scripts(),
        subresources::scripts(),
        apply::scripts(),
        reads::scripts(),
        watches::scripts(),
        custom::scripts(),
        nasty::scripts(),
        volumes::scripts(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Scripts that are about what controllers do.
fn settled() -> Vec<Script> {
    let mut scripts = deletion::settled();
    scripts.extend(volumes::settled());
    scripts
}

#[test]
fn the_simulated_server_answers_as_a_real_one() {
    let only = std::env::var("PARITY").ok();
    let wanted = |script: &Script| only.as_ref().is_none_or(|only| script.name.contains(only.as_str()));
    let [quiet, settled, expiring] = [quiet(), settled(), reads::expiring()]
        .map(|scripts| scripts.into_iter().filter(wanted).collect::<Vec<_>>());
    let simulated = simulate(&quiet, &settled, &expiring);
    let real = ask_a_real_one(&quiet, &settled, &expiring);
    let scripts: Vec<&Script> = quiet.iter().chain(&settled).chain(&expiring).collect();
    let operations: usize = scripts.iter().map(|script| script.steps.len()).sum();
    let mut differences = Vec::new();
    for (script, (simulated, real)) in scripts.iter().zip(simulated.iter().zip(&real)) {
        for (step, (simulated, real)) in script.steps.iter().zip(simulated.iter().zip(real)) {
            let real = if step.how == How::Among { &among(simulated, real) } else { real };
            let found = match step.how {
                // The messages are there to be read.
                How::Verdict if simulated["code"] == real["code"] => Vec::new(),
                _ => difference(simulated, real),
            };
            if !found.is_empty() {
                differences.push(format!(
                    "- {}: {}\n    {}",
                    script.name,
                    step.title(),
                    found.join("\n    ")
                ));
            }
        }
    }
    println!("{operations} operations in {} scripts", scripts.len());
    assert!(only.is_some() || operations >= 750, "only {operations} operations");
    assert!(
        differences.is_empty(),
        "{} of {operations} differ:\n{}",
        differences.len(),
        differences.join("\n")
    );
}

#[test]
fn scripts_are_found_by_their_names() {
    let mut names = BTreeMap::new();
    for script in quiet().iter().chain(&settled()).chain(&reads::expiring()) {
        *names.entry(script.name).or_insert(0) += 1;
    }
    assert!(names.values().all(|count| *count == 1), "{names:?}");
}

/// Under paused time, so that waiting costs nothing.
fn simulate(quiet: &[Script], settled: &[Script], expiring: &[Script]) -> Vec<Vec<Value>> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let server = ApiServer::new(Options { default_service_accounts: false, ..Options::default() });
        server.forbid("nobody", "*", "*", "*");
        let client = server.client("parity");
        let mut answers = Vec::new();
        for script in quiet {
            answers.push(run::script(&client, Some(&server), script).await);
        }
        for script in settled {
            tokio::select! {
                one = run::script(&client, Some(&server), script) => answers.push(one),
                () = server.controllers() => unreachable!("controllers run for ever"),
            }
        }
        for script in expiring {
            answers.push(run::script(&client, Some(&server), script).await);
        }
        answers
    })
}

fn ask_a_real_one(quiet: &[Script], settled: &[Script], expiring: &[Script]) -> Vec<Vec<Value>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let sandbox = Sandbox::start(Spec::new()).await.unwrap();
        let cluster = sandbox.cluster(COMPUTING).unwrap();
        let client = impatient(&cluster.kubeconfig()).await;
        run::install_definitions(&client).await;
        let controllers = cluster.program(Program::KubeControllerManager);
        controllers.stop().await.unwrap();
        cluster.program(Program::KubeScheduler).stop().await.unwrap();
        let mut answers = Vec::new();
        for script in quiet {
            answers.push(run::script(&client, None, script).await);
        }
        if !settled.is_empty() {
            controllers.start().await.unwrap();
        }
        for script in settled {
            answers.push(run::script(&client, None, script).await);
        }
        sandbox.stop().await.unwrap();
        if !expiring.is_empty() {
            let spec = Spec::new().extra_arg(
                COMPUTING,
                Program::KubeApiserver.name(),
                "--etcd-compaction-interval=1s",
            );
            let sandbox = Sandbox::start(spec).await.unwrap();
            let cluster = sandbox.cluster(COMPUTING).unwrap();
            cluster.program(Program::KubeControllerManager).stop().await.unwrap();
            // A new process remembers only what it finds: nothing of the first revisions.
            cluster.program(Program::KubeApiserver).stop().await.unwrap();
            cluster.program(Program::KubeApiserver).start().await.unwrap();
            let client = impatient(&cluster.kubeconfig()).await;
            run::ready(&client).await;
            for script in expiring {
                answers.push(run::script(&client, None, script).await);
            }
            sandbox.stop().await.unwrap();
        }
        answers
    })
}

/// A client that takes the first answer: kube's own would ask again after a 429 or 504.
async fn impatient(kubeconfig: &str) -> kube::Client {
    let parsed = kube::config::Kubeconfig::from_yaml(kubeconfig).unwrap();
    let mut config =
        kube::Config::from_custom_kubeconfig(parsed, &kube::config::KubeConfigOptions::default())
            .await
            .unwrap();
    config.proxy_url = None;
    config.default_retry = false;
    kube::Client::try_from(config).unwrap()
}

/// Of what a real server lists, that which the simulated one has, too.
fn among(simulated: &Value, real: &Value) -> Value {
    let mut real = real.clone();
    for list in ["/object/resources", "/object/groups"] {
        if let Some(Value::Object(items)) = real.pointer_mut(list) {
            items.retain(|name, _| simulated.pointer(list).is_some_and(|items| items.get(name).is_some()));
            for (name, item) in items {
                // One version of each is enough.
                if let Some(Value::Array(versions)) = item.get_mut("versions") {
                    let known = &simulated.pointer(list).unwrap()[name]["versions"];
                    versions.retain(|one| known.as_array().is_some_and(|known| known.contains(one)));
                }
            }
        }
    }
    real
}

/// Where two answers differ. If one is a refusal and the other none, why is all that matters.
fn difference(simulated: &Value, real: &Value) -> Vec<String> {
    let mut found = Vec::new();
    if simulated["code"] == real["code"] {
        compare("", simulated, real, &mut found);
    } else {
        let told = |answer: &Value| format!("{} {}", answer["code"], shown(answer["status"].get("message")));
        found.push(format!("simulated {}\n    real      {}", told(simulated), told(real)));
    }
    found
}

/// Collects where two answers differ.
fn compare(path: &str, simulated: &Value, real: &Value, found: &mut Vec<String>) {
    match (simulated, real) {
        (Value::Object(simulated), Value::Object(real)) => {
            let mut keys: Vec<_> = simulated.keys().chain(real.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                let path = format!("{path}/{key}");
                match (simulated.get(key), real.get(key)) {
                    (Some(simulated), Some(real)) => compare(&path, simulated, real, found),
                    (simulated, real) => {
                        found.push(format!("{path}: simulated {}, real {}", shown(simulated), shown(real)));
                    }
                }
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (simulated, real)) in one.iter().zip(other).enumerate() {
                compare(&format!("{path}/{index}"), simulated, real, found);
            }
        }
        _ if simulated == real => {}
        _ => found.push(format!(
            "{path}:\n      simulated {}\n      real      {}",
            shown(Some(simulated)),
            shown(Some(real))
        )),
    }
}

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "nothing".to_owned(), Value::to_string)
}
