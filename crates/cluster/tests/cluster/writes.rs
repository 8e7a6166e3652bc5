//! What comes of a write, as a real API server decides it.

use std::time::Duration;

use base64::Engine as _;
use kubeocean_cluster::apply::{Applier, Outcome};
use kubeocean_cluster::informer::Informer;
use kubeocean_model::action::{Action, Dependents, Kind, Mark, PatchForm, Verb, kinds};
use kubeocean_model::key::{Key, Virtual};
use kubeocean_model::object::Object;
use kubeocean_sandbox::COMPUTING;
use serde_json::{Value, json};

use crate::support::{
    computing, config_map, connect, create, delete, done, eventually, key, namespace, settings, shared,
};

const OURS: Mark = Mark { labels: &["owner"], annotations: &["uid"] };

fn patch(kind: Kind, key: &Key<Virtual>, form: PatchForm, body: Value) -> Action {
    Action::new(kind, key, Verb::Patch { form, subresource: None, body }, "the test changes it")
}

async fn word(applier: &Applier, action: &Action) -> &'static str {
    applier.apply(action).await.word()
}

#[tokio::test]
async fn a_name_that_is_taken_is_ours_or_foreign() {
    let sandbox = shared().await;
    let (_, applier) = computing(&sandbox).await;
    namespace(&applier, "taken").await;
    let body = json!({"metadata": {"labels": {"owner": "us"}, "annotations": {"uid": "v-1"}}});
    let verb = Verb::Create { body, mark: OURS };
    let action = Action::new(kinds::CONFIG_MAP, &key("taken", "a"), verb, "the test wants it");
    assert_eq!(word(&applier, &action).await, "done");
    assert_eq!(word(&applier, &action).await, "exists-ours", "our own attempt, whose answer was lost");
    done(&applier, &config_map("taken", "b", &json!({"owner": "us"}))).await;
    let action = Action { name: "b".to_owned(), ..action };
    assert_eq!(word(&applier, &action).await, "exists-foreign", "half of our mark is not our mark");
    let action = Action { verb: Verb::Create { body: json!({}), mark: Mark::default() }, ..action };
    assert_eq!(word(&applier, &action).await, "exists-foreign", "without a mark nothing is ours");
    let action = Action { namespace: "no-such-namespace".to_owned(), ..action };
    assert_eq!(word(&applier, &action).await, "gone");
}

#[tokio::test]
async fn preconditions_hold_or_the_write_does_nothing() {
    let sandbox = shared().await;
    let (cluster, applier) = computing(&sandbox).await;
    namespace(&applier, "preconditions").await;
    let here = key("preconditions", "a");
    let made = done(&applier, &config_map("preconditions", "a", &json!({}))).await;
    let uid = made["metadata"]["uid"].as_str().unwrap();
    let version = made["metadata"]["resourceVersion"].as_str().unwrap();
    let apply = PatchForm::Apply { manager: "us".into(), force: true };
    for form in [PatchForm::Merge, PatchForm::Strategic, apply] {
        let change =
            patch(kinds::CONFIG_MAP, &here, form.clone(), json!({"data": {"a": format!("{form:?}")}}));
        for wrong in
            [change.clone().if_uid("0d6e6a4e-0000-4000-8000-000000000000"), change.clone().if_version("1")]
        {
            assert_eq!(word(&applier, &wrong).await, "conflict", "{form:?} {wrong}");
        }
        let gone = Action { name: "nobody".to_owned(), ..change.clone().if_uid(uid) };
        assert!(matches!(word(&applier, &gone).await, "gone" | "conflict"), "{form:?}");
        assert_eq!(word(&applier, &change.if_uid(uid)).await, "done", "{form:?}");
    }
    let removal = delete(kinds::CONFIG_MAP, &here);
    assert_eq!(word(&applier, &removal.clone().if_version(version)).await, "conflict");
    assert_eq!(word(&applier, &removal.clone().if_uid("another")).await, "conflict");
    assert!(cluster.get(&kinds::CONFIG_MAP, &here).await.unwrap().is_some());
    assert_eq!(word(&applier, &removal.clone().if_uid(uid)).await, "done");
    assert_eq!(word(&applier, &removal.if_uid(uid)).await, "gone");
}

#[tokio::test]
async fn what_a_server_never_takes_is_invalid() {
    let sandbox = shared().await;
    let (_, applier) = computing(&sandbox).await;
    assert_eq!(word(&applier, &config_map("default", "Not_A_Name", &json!({}))).await, "invalid");
    let pod = create(kinds::POD, &key("default", "empty"), json!({"spec": {"containers": []}}));
    let outcome = applier.apply(&pod).await;
    assert!(outcome.to_string().contains("spec.containers"), "the server's words are kept: {outcome}");
    for nameless in [config_map("default", "", &json!({})), delete(kinds::CONFIG_MAP, &key("default", ""))] {
        assert_eq!(word(&applier, &nameless).await, "invalid", "a path without a name means everything");
    }
    let smuggled = delete(kinds::CONFIG_MAP, &key("default", "a?dryRun=All"));
    assert_eq!(word(&applier, &smuggled).await, "gone", "it is a name, and nothing else");
    let unknown = Kind::namespaced("example.com", "v1", "Nothing", "nothings");
    assert_eq!(word(&applier, &create(unknown, &key("default", "a"), json!({}))).await, "gone");
}

#[tokio::test]
async fn nothing_is_written_that_changes_nothing() {
    let sandbox = shared().await;
    let (cluster, applier) = computing(&sandbox).await;
    namespace(&applier, "unchanged").await;
    let (informer, _switch) =
        Informer::<Virtual, Object>::of(&cluster, kinds::CONFIG_MAP).namespace("unchanged").build();
    let store = informer.store();
    let running = tokio::spawn(informer.run());
    // What was written before a list is forgotten with it: nobody writes before the stores are complete.
    store.progress().synced().await;
    let applier = applier.following(kinds::CONFIG_MAP, &store);
    let here = key("unchanged", "a");
    let apply = PatchForm::Apply { manager: "us".into(), force: false };
    let change = patch(kinds::CONFIG_MAP, &here, apply, json!({"data": {"a": "1"}}));
    let Outcome::Done(written) = applier.apply(&change).await else { panic!("it was new") };
    let version = written.resource_version.unwrap().parse().unwrap();
    eventually("the store sees it", async || store.progress().seen().filter(|seen| *seen >= version)).await;
    assert!(matches!(applier.apply(&change).await, Outcome::Unchanged { asked: false }), "it was not sent");
    // Someone changed the object: it has to be looked at again, and the server finds that our part is as it was.
    let foreign = patch(kinds::CONFIG_MAP, &here, PatchForm::Merge, json!({"data": {"theirs": "2"}}));
    let Outcome::Done(written) = applier.apply(&foreign).await else { panic!("it was new") };
    let version = written.resource_version.unwrap().parse().unwrap();
    eventually("the store sees it", async || store.progress().seen().filter(|seen| *seen >= version)).await;
    assert!(matches!(applier.apply(&change).await, Outcome::Unchanged { asked: true }));
    assert!(matches!(applier.apply(&change).await, Outcome::Unchanged { asked: false }), "once is enough");
    running.abort();
}

#[tokio::test]
async fn evictions_respect_budgets_and_say_so() {
    let sandbox = shared().await;
    let (_, applier) = computing(&sandbox).await;
    namespace(&applier, "evictions").await;
    let budget = json!({"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}});
    done(&applier, &create(kinds::DISRUPTION_BUDGET, &key("evictions", "a"), budget)).await;
    for (name, app) in [("kept", "a"), ("free", "b")] {
        let spec = json!({"containers": [{"name": "c", "image": "i"}], "nodeName": "nowhere"});
        let account = create(kinds::SERVICE_ACCOUNT, &key("evictions", "default"), json!({}));
        applier.apply(&account).await;
        done(
            &applier,
            &create(
                kinds::POD,
                &key("evictions", name),
                json!({"metadata": {"labels": {"app": app}}, "spec": spec}),
            ),
        )
        .await;
        let status =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        let running = Verb::Patch { form: PatchForm::Strategic, subresource: Some("status"), body: status };
        done(&applier, &Action::new(kinds::POD, &key("evictions", name), running, "it runs")).await;
    }
    let evict = |name: &str| {
        Action::new(kinds::POD, &key("evictions", name), Verb::Evict { grace: Some(0) }, "make room")
    };
    assert_eq!(word(&applier, &evict("kept")).await, "throttled");
    assert_eq!(word(&applier, &evict("free").if_uid("another")).await, "conflict");
    assert_eq!(word(&applier, &evict("free")).await, "done");
    assert_eq!(word(&applier, &evict("nobody")).await, "gone");
}

#[tokio::test]
async fn without_rights_a_write_is_forbidden_and_new_rights_need_no_restart() {
    let sandbox = shared().await;
    let (admin, applier) = computing(&sandbox).await;
    namespace(&applier, "rights").await;
    done(&applier, &create(kinds::SERVICE_ACCOUNT, &key("rights", "poor"), json!({}))).await;
    let request = Verb::Post { subresource: "token", body: json!({"spec": {"expirationSeconds": 3600}}) };
    let token =
        done(&applier, &Action::new(kinds::SERVICE_ACCOUNT, &key("rights", "poor"), request, "a token"))
            .await;
    let kubeconfig = sandbox.cluster(COMPUTING).unwrap().kubeconfig();
    let poor = with_token(&kubeconfig, token["status"]["token"].as_str().unwrap());
    let cluster = connect(&poor, settings()).await;
    let writer = Applier::new("kubeocean-test").virtually(&cluster);
    let outcome = writer.apply(&config_map("rights", "a", &json!({}))).await;
    assert_eq!(outcome.word(), "forbidden");
    assert!(outcome.to_string().contains("system:serviceaccount:rights:poor"), "{outcome}");
    let credentials =
        kubeocean_cluster::credentials::Credentials::from_kubeconfig(kubeconfig.as_bytes()).await.unwrap();
    cluster.replace(credentials).unwrap();
    assert_eq!(word(&writer, &config_map("rights", "a", &json!({}))).await, "done");
    assert!(admin.get(&kinds::CONFIG_MAP, &key("rights", "a")).await.unwrap().is_some());
}

/// The same server, another identity.
fn with_token(kubeconfig: &str, token: &str) -> String {
    let line =
        |name: &str| kubeconfig.lines().find(|line| line.trim_start().starts_with(name)).unwrap().trim();
    let server = line("server:").trim_start_matches("server:").trim().trim_matches('"');
    let authority = line("certificate-authority-data:")
        .trim_start_matches("certificate-authority-data:")
        .trim()
        .trim_matches('"');
    assert!(base64::engine::general_purpose::STANDARD.decode(authority).is_ok());
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
         clusters: [{{name: a, cluster: {{server: '{server}', certificate-authority-data: {authority}}}}}]\n\
         users: [{{name: a, user: {{token: '{token}'}}}}]\n"
    )
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_unreachable_within_the_deadline() {
    let sandbox = shared().await;
    let link = sandbox.cluster(COMPUTING).unwrap().link().await.unwrap();
    let mut settings = settings();
    settings.deadline = Duration::from_secs(1);
    let cluster = connect(link.kubeconfig(), settings).await;
    let applier = Applier::new("kubeocean-test").virtually(&cluster);
    cluster.version().await.unwrap();
    link.cut_silently();
    assert_eq!(word(&applier, &config_map("default", "silent", &json!({}))).await, "unreachable");
    link.cut_with_reset();
    assert_eq!(word(&applier, &config_map("default", "reset", &json!({}))).await, "unreachable");
    link.heal();
    eventually("the link heals", async || cluster.version().await.ok()).await;
    let orphan = Verb::Delete { grace: None, dependents: Dependents::Orphan };
    let gone = Action::new(kinds::CONFIG_MAP, &key("default", "nobody"), orphan, "the test");
    assert_eq!(word(&applier, &gone).await, "gone");
}
