//! Tokens of service accounts: the right ones, where the pod looks for them, renewed in time and with one write.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use kubeocean_api::keys::{TRUE, annotations, labels};
use kubeocean_model::leasing::SYNCER;
use serde_json::{Value, json};

use crate::pods::leased;
use crate::scene::{MOUNT, Scene, label, text};

const MINUTE: Duration = Duration::from_secs(60);

impl Scene {
    /// The Secret with the tokens of a pod.
    pub(crate) fn tokens_of(&self, name: &str) -> Value {
        let of = |one: &Value| {
            label(one, labels::SERVICE_ACCOUNT_TOKEN) == TRUE
                && one["metadata"]["annotations"][annotations::VIRTUAL_POD_NAME] == name
        };
        let all = self.ours_in_p("secrets");
        let mut found = all.iter().filter(|one| of(one));
        let secret = found.next().map(|one| Value::clone(one)).unwrap_or_default();
        assert!(found.next().is_none(), "{name} has one Secret");
        secret
    }

    /// Writes of the syncer to Secrets of the worker cluster since.
    fn secret_writes(&self, since: u64) -> Vec<String> {
        let all = self.phys.server.history(since);
        let ours = all.into_iter().filter(|one| one.actor == SYNCER && one.plural == "secrets");
        ours.map(|one| format!("{:?} {}", one.verb, one.name)).collect()
    }
}

/// What a token says of itself.
fn claims(secret: &Value, key: &str) -> Value {
    let token = STANDARD.decode(secret["data"][key].as_str().expect(key)).unwrap();
    let token = String::from_utf8(token).unwrap();
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    serde_json::from_slice(&claims).unwrap()
}

fn vault() -> Value {
    let source = json!({"serviceAccountToken": {"audience": "vault", "expirationSeconds": 7200, "path": "sub/vault-token"}});
    json!({"volumes": [{"name": "vault", "projected": {"sources": [source]}}]})
}

#[test]
fn a_token_has_the_audience_the_path_and_the_pod_that_were_asked_for() {
    leased(async |scene| {
        scene.pod("a", "vnode-c1-n1", vault());
        scene.until_phase("a", "Running").await;
        let (pod, twin, secret) =
            (scene.get_pod("a").unwrap(), scene.twin("a").unwrap(), scene.tokens_of("a"));
        let source = &twin["spec"]["volumes"][0]["projected"]["sources"][0];
        assert!(source["serviceAccountToken"].is_null(), "the worker would fill it with a token of its own");
        assert_eq!(source["secret"]["name"], secret["metadata"]["name"]);
        let item = &source["secret"]["items"][0];
        assert_eq!(item["path"], "sub/vault-token");
        let said = claims(&secret, item["key"].as_str().unwrap());
        assert_eq!(said["aud"], json!(["vault"]));
        assert_eq!(said["kubernetes.io"]["pod"]["uid"], pod["metadata"]["uid"]);
        assert_eq!(said["sub"], "system:serviceaccount:web:default");
        let life = said["exp"].as_i64().unwrap() - said["iat"].as_i64().unwrap();
        assert_eq!(life, 3600, "an hour at most, whatever was asked for");
        assert_eq!(text(&secret, "/type"), "Opaque");
    });
}

#[test]
fn a_token_is_renewed_after_four_fifths_of_its_life_with_one_write_and_no_read() {
    leased(async |scene| {
        scene.pod("a", "vnode-c1-n1", json!({"automountServiceAccountToken": true}));
        scene.pod("b", "vnode-c1-n2", vault());
        scene.until_phase("a", "Running").await;
        scene.until_phase("b", "Running").await;
        tokio::time::sleep(MINUTE).await;
        for round in 0..3 {
            let (before, since) = (scene.tokens_of("b"), scene.phys.server.revision());
            scene.asked.lock().clear();
            tokio::time::sleep(MINUTE * if round == 0 { 46 } else { 47 }).await;
            assert_eq!(scene.secret_writes(since), Vec::<String>::new(), "it is not time yet");
            tokio::time::sleep(MINUTE).await;
            assert_eq!(
                scene.secret_writes(since).len(),
                2,
                "one for each pod: {:?}",
                scene.secret_writes(since)
            );
            let mut asked = scene.asked.lock().clone();
            // Copies of what pods refer to are compared with their originals now and then.
            asked.retain(|path| path.contains("/secrets/"));
            assert!(asked.is_empty(), "read for that: {asked:?}");
            let after = scene.tokens_of("b");
            assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
            let (old, new) = (claims(&before, "vault.0"), claims(&after, "vault.0"));
            assert!(new["exp"].as_i64() > old["exp"].as_i64());
            assert_eq!(new["aud"], old["aud"]);
        }
        assert_eq!(scene.ours_in_p("pods").len(), 2, "nobody was started again");
    });
}

#[test]
fn a_secret_of_tokens_that_someone_froze_is_made_anew() {
    leased(async |scene| {
        scene.pod("b", "vnode-c1-n2", vault());
        scene.until_phase("b", "Running").await;
        let before = scene.tokens_of("b");
        scene.patch(
            &scene.phys,
            "secrets",
            MOUNT,
            text(&before, "/metadata/name"),
            json!({"immutable": true}),
        );
        tokio::time::sleep(MINUTE * 50).await;
        let after = scene.tokens_of("b");
        assert_ne!(after["metadata"]["uid"], before["metadata"]["uid"]);
        assert_eq!(after["metadata"]["name"], before["metadata"]["name"], "it is mounted by that name");
        assert!(claims(&after, "vault.0")["exp"].as_i64() > claims(&before, "vault.0")["exp"].as_i64());
    });
}

#[test]
fn tokens_get_another_name_where_a_stranger_has_theirs_and_the_pod_hears_of_it() {
    leased(async |scene| {
        // The name is known only when there is a pod.
        scene.pod(
            "b",
            "vnode-c1-n2",
            json!({"volumes": [{"name": "c", "configMap": {"name": "later"}}, vault()["volumes"][0]]}),
        );
        let pod = scene.get_pod("b").unwrap();
        let origin = kubeocean_model::naming::Origin::Tokens { pod: "b", uid: text(&pod, "/metadata/uid") };
        let name = origin.physical_name().to_string();
        let theirs = json!({"metadata": {"name": name}, "data": {"mine": "eA=="}});
        assert_eq!(scene.make(&scene.phys, "secrets", MOUNT, theirs), 201);
        scene.make(&scene.virt, "configmaps", "web", json!({"metadata": {"name": "later"}}));
        scene.until_phase("b", "Running").await;
        let secret = scene.tokens_of("b");
        assert_ne!(text(&secret, "/metadata/name"), name);
        let twin = scene.twin("b").unwrap();
        let source = &twin["spec"]["volumes"][1]["projected"]["sources"][0];
        assert_eq!(source["secret"]["name"], secret["metadata"]["name"]);
        let events = scene.virt.server.list("events", Some("web"));
        let told = |one: &Value| one["reason"] == "NameTaken" && text(one, "/message").contains(&name);
        assert_eq!(events.iter().filter(|one| told(one)).count(), 1, "{events:#?}");
        let left = scene.phys.server.get("secrets", MOUNT, &name).unwrap();
        assert_eq!(left["data"], json!({"mine": "eA=="}));
    });
}
