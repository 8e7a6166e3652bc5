//! `kubeocean worker-kubeconfig`: the borrower's identity in a worker cluster, as a kubeconfig.
//!
//! The token is asked for anew each time, and ends: a kubeconfig that got lost is worthless some day. Where nobody
//! can renew it, `--long-lived` makes one that ends only with its Secret.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kubeocean_api::keys::names::{BORROWER, IDENTITY_NAMESPACE, WORKER_NAMESPACE};
use kubeocean_api::yaml;
use kubeocean_cluster::apply::{Applier, Outcome};
use kubeocean_cluster::client::{Cluster, Settings};
use kubeocean_cluster::credentials::Credentials;
use kubeocean_cluster::metrics::Metrics;
use kubeocean_model::action::{Action, Mark, Verb, kinds};
use kubeocean_model::key::{Key, Physical};
use serde_json::{Value, json};

use crate::exit::Missing;
use crate::terminal::note;
use crate::worker_manifest;

/// A controller fills a token Secret within a second; a busy one takes longer.
const FILLED_WITHIN: Duration = Duration::from_secs(30);

/// Between two looks at it.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The shortest token that API servers make.
const SHORTEST: Duration = Duration::from_secs(600);

/// What the one cluster, user and context are called.
const NAME: &str = "worker";

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  kubeocean worker-kubeconfig > berlin.kubeconfig
  kubectl --context computing -n kubeocean-system create secret generic berlin-kubeconfig --from-file=kubeconfig=berlin.kubeconfig")]
pub(crate) struct Args {
    /// The lender's kubeconfig; found as kubectl finds it where none is given
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Its context; the current one where none is given
    #[arg(long)]
    context: Option<String>,
    /// The namespace that borrowed pods run in
    #[arg(long, default_value = WORKER_NAMESPACE, value_parser = worker_manifest::namespace)]
    namespace: String,
    /// The namespace of the borrower's identity
    #[arg(long, default_value = IDENTITY_NAMESPACE, value_parser = worker_manifest::namespace)]
    identity_namespace: String,
    /// How long the token is to live, as in 24h or 720h. An API server may allow less
    #[arg(long, default_value = "720h", value_parser = lifetime)]
    duration: Duration,
    /// A token that ends only when its Secret is deleted
    #[arg(long, conflicts_with = "duration")]
    long_lived: bool,
    /// The address by which the borrower reaches the API server, if it is not the lender's own
    #[arg(long, value_name = "URL", value_parser = https)]
    server: Option<String>,
}

/// A token, and what is to be said about its end.
struct Token {
    token: String,
    end: String,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let Args { kubeconfig, context, namespace, identity_namespace, duration, long_lived, server } = args;
    let lender = Credentials::of_operator(kubeconfig.as_deref(), context.as_deref()).await?;
    anyhow::ensure!(
        lender.verifies_server(),
        "this kubeconfig skips the verification of the server (insecure-skip-tls-verify), so nobody could tell the borrower \
         whom to trust: use one with certificate-authority-data"
    );
    // By another address the server may have another certificate.
    let tls_server_name = lender.tls_server_name().filter(|_| server.is_none()).map(str::to_owned);
    let server = server.unwrap_or_else(|| lender.server());
    let authority = lender.authority();
    let settings = Settings::new(NAME, "kubeocean-cli", &Metrics::new("cli"));
    let worker = Cluster::<Physical>::connect(lender, settings)?;
    expect_identity(&worker, &identity_namespace, &namespace).await?;

    let token = if long_lived {
        lasting_token(&worker, &identity_namespace).await?
    } else {
        passing_token(&worker, &identity_namespace, duration).await?
    };
    let text = yaml::document(&render(
        &server,
        tls_server_name.as_deref(),
        authority.as_deref(),
        &namespace,
        &token.token,
    ))?;
    // The manager reads it by the same rules.
    Credentials::from_kubeconfig(text.as_bytes()).await.context("no kubeconfig can be made of this")?;
    std::io::stdout().lock().write_all(text.as_bytes())?;
    note(&token.end);
    if is_this_machine(&server) {
        note(&format!(
            "{server} is an address of this machine only: give the one that the borrower reaches with --server"
        ));
    }
    Ok(())
}

/// Says what to apply, where it is not there.
async fn expect_identity(
    worker: &Cluster<Physical>,
    identity_namespace: &str,
    namespace: &str,
) -> anyhow::Result<()> {
    let fix = format!(
        "`kubeocean worker-manifest --namespace {namespace} --identity-namespace {identity_namespace} | kubectl apply \
         --server-side -f -` makes it"
    );
    let account = worker.get(&kinds::SERVICE_ACCOUNT, &borrower(identity_namespace)).await;
    if account.context("looking for the borrower's identity")?.is_none() {
        let what = format!("there is no ServiceAccount {BORROWER} in namespace {identity_namespace}: {fix}");
        return Err(Missing(what).into());
    }
    let mount = worker.get(&kinds::NAMESPACE, &Key::cluster_scoped(namespace)).await;
    if mount.context("looking for the namespace of borrowed pods")?.is_none() {
        return Err(Missing(format!("there is no namespace {namespace}: {fix}")).into());
    }
    Ok(())
}

fn borrower(identity_namespace: &str) -> Key<Physical> {
    Key::new(identity_namespace, BORROWER)
}

async fn passing_token(
    worker: &Cluster<Physical>,
    identity_namespace: &str,
    duration: Duration,
) -> anyhow::Result<Token> {
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": { "expirationSeconds": duration.as_secs() },
    });
    let verb = Verb::Post { subresource: "token", body };
    let answer =
        write(worker, kinds::SERVICE_ACCOUNT, &borrower(identity_namespace), verb, "a kubeconfig").await?;
    let text = |field: &str| answer["status"][field].as_str().unwrap_or_default().to_owned();
    let (token, end) = (text("token"), text("expirationTimestamp"));
    let granted = answer["spec"]["expirationSeconds"].as_u64().unwrap_or(duration.as_secs());
    let less = if granted < duration.as_secs() {
        format!(" The API server allows {} h at most.", granted / 3600)
    } else {
        String::new()
    };
    Ok(Token {
        token,
        end: format!("The token ends {end}.{less} Before that, make another one with the same command."),
    })
}

async fn lasting_token(worker: &Cluster<Physical>, identity_namespace: &str) -> anyhow::Result<Token> {
    let key: Key<Physical> = Key::new(identity_namespace, format!("{BORROWER}-token"));
    let body = json!({
        "type": "kubernetes.io/service-account-token",
        "metadata": { "annotations": { "kubernetes.io/service-account.name": BORROWER } },
    });
    let mark = Mark { labels: &[], annotations: &["kubernetes.io/service-account.name"] };
    write(worker, kinds::SECRET, &key, Verb::Create { body, mark }, "a kubeconfig that does not end").await?;
    let token = tokio::time::timeout(FILLED_WITHIN, filled(worker, &key)).await.with_context(|| {
        format!("nobody wrote a token into Secret {key}: is this cluster's controller manager running?")
    })??;
    let end = format!(
        "This token does not end. Whoever has it is the borrower until you delete Secret {} in namespace {}.",
        key.name, key.namespace
    );
    Ok(Token { token, end })
}

/// Waits until the controller has written the token.
async fn filled(worker: &Cluster<Physical>, key: &Key<Physical>) -> anyhow::Result<String> {
    loop {
        let secret = worker.get(&kinds::SECRET, key).await.context("reading the token")?;
        if let Some(encoded) = secret.and_then(|secret| secret.text("data", &["token"])) {
            return Ok(String::from_utf8(STANDARD.decode(encoded)?)?);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn write(
    worker: &Cluster<Physical>,
    kind: kubeocean_model::action::Kind,
    key: &Key<Physical>,
    verb: Verb,
    why: &'static str,
) -> anyhow::Result<Value> {
    let action = Action::new(kind, key, verb, why);
    match Applier::new("kubeocean-cli").physically(worker).apply(&action).await {
        Outcome::Done(written) => Ok(written.answer),
        Outcome::Unchanged { .. } | Outcome::ExistsOurs(_) => Ok(Value::Null),
        Outcome::ExistsForeign => {
            anyhow::bail!(
                "{key} exists and is not the borrower's: delete it, or choose another --identity-namespace"
            )
        }
        Outcome::Forbidden(status) => {
            anyhow::bail!(
                "you may not do this: use a kubeconfig that may (--kubeconfig, --context): {status}"
            )
        }
        other => anyhow::bail!("the token could not be made: {other}"),
    }
}

fn render(
    server: &str,
    tls_server_name: Option<&str>,
    authority: Option<&str>,
    namespace: &str,
    token: &str,
) -> Value {
    let mut cluster = json!({ "server": server });
    if let Some(name) = tls_server_name {
        cluster["tls-server-name"] = name.into();
    }
    if let Some(pem) = authority {
        cluster["certificate-authority-data"] = STANDARD.encode(pem).into();
    }
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": NAME, "cluster": cluster }],
        "users": [{ "name": BORROWER, "user": { "token": token } }],
        "contexts": [{ "name": NAME, "context": { "cluster": NAME, "user": BORROWER, "namespace": namespace } }],
        "current-context": NAME,
    })
}

pub(crate) fn is_this_machine(server: &str) -> bool {
    let host =
        server.parse::<http::Uri>().ok().and_then(|uri| uri.host().map(str::to_owned)).unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback() || address.is_unspecified())
}

fn lifetime(text: &str) -> Result<Duration, String> {
    match crate::cli::duration(text)? {
        short if short < SHORTEST => {
            Err("API servers make no token for less than ten minutes: use 10m or more".to_owned())
        }
        duration => Ok(duration),
    }
}

fn https(text: &str) -> Result<String, String> {
    let uri = text.parse::<http::Uri>().ok();
    let is_https = |uri: &http::Uri| {
        uri.scheme_str() == Some("https") && uri.host().is_some_and(|host| !host.is_empty())
    };
    if uri.as_ref().is_some_and(is_https) {
        Ok(text.to_owned())
    } else {
        Err("use an https:// address, such as https://api.example.com:6443".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_this_machine_is_told_apart() {
        for ours in [
            "https://127.0.0.1:6443/",
            "https://localhost:6443",
            "https://[::1]:6443",
            "https://0.0.0.0:6443",
        ] {
            assert!(is_this_machine(ours), "{ours}");
        }
        for other in ["https://10.0.0.1:6443/", "https://api.example.com", "https://[2001:db8::1]:6443"] {
            assert!(!is_this_machine(other), "{other}");
        }
    }

    #[tokio::test]
    async fn the_name_in_the_servers_certificate_is_handed_on() {
        let text = |name| yaml::document(&render("https://10.0.0.1:6443", name, None, "n", "t")).unwrap();
        let read = Credentials::from_kubeconfig(text(Some("api.internal")).as_bytes()).await.unwrap();
        assert_eq!(read.tls_server_name(), Some("api.internal"));
        let read = Credentials::from_kubeconfig(text(None).as_bytes()).await.unwrap();
        assert_eq!(read.tls_server_name(), None);
    }

    #[test]
    fn addresses_and_lifetimes_that_cannot_be_are_refused() {
        assert!(https("https://api.example.com:6443").is_ok());
        for bad in ["http://api.example.com", "api.example.com", "https://", ""] {
            assert!(https(bad).is_err(), "{bad}");
        }
        assert!(lifetime("10m").is_ok() && lifetime("9m").is_err() && lifetime("720").is_err());
    }
}
