//! Kubeconfigs that someone hands over.

use std::path::Path;

use kubeocean_cluster::credentials::{CredentialError, Credentials};

fn kubeconfig(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
         contexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
         clusters: [{{name: a, cluster: {{{cluster}}}}}]\nusers: [{{name: a, user: {{{user}}}}}]\n"
    )
}

const SERVER: &str = "server: 'https://10.0.0.1:6443'";

#[tokio::test]
async fn a_kubeconfig_that_reaches_out_is_refused_with_the_fix() {
    let cases = [
        (
            SERVER,
            "exec: {command: sh, apiVersion: client.authentication.k8s.io/v1}",
            "use a token or a client certificate",
        ),
        (SERVER, "auth-provider: {name: gcp}", "use a token or a client certificate"),
        (SERVER, "tokenFile: /etc/passwd", "users[].user.tokenFile"),
        (SERVER, "client-certificate: /a, client-key-data: YQ==", "users[].user.client-certificate"),
        (SERVER, "client-certificate-data: YQ==, client-key: /a", "users[].user.client-key"),
        (SERVER, "username: a, password: b", "user name and password"),
        (SERVER, "", "no token and no client certificate"),
        ("server: 'https://a', certificate-authority: /a", "token: t", "kubectl config view --flatten"),
        ("server: 'https://a', proxy-url: 'http://evil:1'", "token: t", "proxy-url"),
        ("server: 'https://a', insecure-skip-tls-verify: true", "token: t", "certificate-authority-data"),
        ("server: 'http://a'", "token: t", "must be an https:// address"),
        ("server: 'a:6443'", "token: t", "must be an https:// address"),
        ("", "token: t", "incomplete"),
        ("server: 'https://bob:hunter2@a'", "token: t", "a user or a query in its address"),
        ("server: 'https://a/?token=hunter2'", "token: t", "a user or a query in its address"),
        ("server: 'http://bob:hunter2@a'", "token: t", "must be an https:// address"),
        (SERVER, "token: \"hunter2\\n\"", "write it in one line"),
        (SERVER, "token: ''", "no token and no client certificate"),
        ("server: 'https://a', certificate-authority-data: ''", "token: t", "is not a certificate"),
        ("server: 'https://a', certificate-authority-data: '%%'", "token: t", "is not a certificate"),
        ("server: 'https://a', certificate-authority-data: aHVudGVyMgo=", "token: t", "is not a certificate"),
        (SERVER, "token: &t hunter2", "anchors or aliases"),
        (SERVER, "token: *t", "anchors or aliases"),
        (SERVER, "token: t, as: 'system:admin'", "acts as someone else"),
        (SERVER, "token: t, as-groups: ['system:masters']", "acts as someone else"),
        (SERVER, "client-certificate-data: '', client-key-data: ''", "no token and no client certificate"),
    ];
    for (cluster, user, expected) in cases {
        let error = Credentials::from_kubeconfig(kubeconfig(cluster, user).as_bytes()).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{cluster} {user}: {error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
    for broken in
        ["users: [{name: a, user: {token: hunter2}}]\n]", "users: hunter2", "contexts: {hunter2: 1}"]
    {
        let error = Credentials::from_kubeconfig(broken.as_bytes()).await.unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}

#[tokio::test]
async fn an_operator_hears_which_line_of_which_file_is_wrong_and_reads_no_secret() {
    let file = std::env::temp_dir().join(format!("kubeocean-broken-{}", std::process::id()));
    for (broken, line) in [
        ("apiVersion: v1\nusers: [{name: a, user: {token: hunter2}}]\n]", 3),
        ("users: hunter2", 1),
        ("kind: Config\ncontexts: {hunter2: 1}", 2),
        ("kind: Config\nusers:\n- name: a\n  user: {token: [hunter2]}\n", 4),
    ] {
        std::fs::write(&file, broken).unwrap();
        let error = Credentials::from_file(&file).await.unwrap_err().to_string();
        std::fs::remove_file(&file).unwrap();
        assert!(!error.contains("hunter2"), "{error}");
        assert!(error.contains(&format!("{}: line {line}: ", file.display())), "{error}");
    }
}

#[tokio::test]
async fn a_quote_over_several_lines_hides_no_anchor() {
    let hidden = kubeconfig(SERVER, "token: t")
        .replace("users: [{name: a,", "users: [{name: \"a\n  \", user: &u {}}, {name: a,");
    for text in [hidden.clone(), hidden.replace('"', "'"), kubeconfig(SERVER, "token: a 'b, x: &u c")] {
        let error = Credentials::from_kubeconfig(text.as_bytes()).await.unwrap_err();
        assert!(matches!(error, CredentialError::Aliases), "{text}: {error}");
    }
    for fine in ["token: 'a\n   & b *c'", "token: \"a \\\" &b\""] {
        Credentials::from_kubeconfig(
            kubeconfig(SERVER, fine).replace("users", "# it's & *\nusers").as_bytes(),
        )
        .await
        .unwrap();
    }
}

#[tokio::test]
async fn an_operators_context_is_chosen_by_name() {
    let file = std::env::temp_dir().join(format!("kubeocean-contexts-{}", std::process::id()));
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
                contexts: [{name: a, context: {cluster: a, user: u}}, {name: b, context: {cluster: b, user: u}}]\n\
                clusters: [{name: a, cluster: {server: 'https://a'}}, \
                {name: b, cluster: {server: 'https://b', insecure-skip-tls-verify: true}}]\n\
                users: [{name: u, user: {token: t}}]\n";
    std::fs::write(&file, text).unwrap();
    let current = Credentials::of_operator(Some(&file), None).await.unwrap();
    let other = Credentials::of_operator(Some(&file), Some("b")).await.unwrap();
    let missing = Credentials::of_operator(Some(&file), Some("c")).await.unwrap_err();
    std::fs::remove_file(&file).unwrap();
    assert_eq!((current.server().as_str(), current.verifies_server()), ("https://a/", true));
    assert_eq!((other.server().as_str(), other.verifies_server()), ("https://b/", false));
    assert_eq!(current.authority(), None, "the machine's own");
    assert!(missing.to_string().contains('c'), "{missing}");
}

#[tokio::test]
async fn several_files_count_as_one_as_kubectl_reads_them() {
    let directory = std::env::temp_dir().join(format!("kubeocean-files-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (a, b) = (directory.join("a"), directory.join("b"));
    let text = |name: &str| {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {name}\n\
             contexts: [{{name: {name}, context: {{cluster: {name}, user: {name}}}}}]\n\
             clusters: [{{name: {name}, cluster: {{server: 'https://{name}'}}}}]\n\
             users: [{{name: {name}, user: {{token: t}}}}]\n"
        )
    };
    std::fs::write(&a, text("a")).unwrap();
    std::fs::write(&b, text("b")).unwrap();
    let list = std::env::join_paths([&directory.join("none"), &a, &b]).unwrap();
    let first = Credentials::from_file(list.as_ref()).await.unwrap();
    let other = Credentials::of_operator(Some(list.as_ref()), Some("b")).await.unwrap();
    let none = Credentials::from_file(&directory.join("none")).await.unwrap_err();
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!((first.server().as_str(), other.server().as_str()), ("https://a/", "https://b/"));
    assert!(none.to_string().contains("none"), "{none}");
}

#[tokio::test]
async fn what_another_context_carries_is_refused_too() {
    let text = kubeconfig(SERVER, "token: t") + "---\n# dev & test, * of R & D\n";
    Credentials::from_kubeconfig(text.as_bytes()).await.unwrap();
    let text = kubeconfig(SERVER, "token: t")
        .replace("users: [", "users: [{name: b, user: {exec: {command: sh, apiVersion: v1}}}, ");
    let error = Credentials::from_kubeconfig(text.as_bytes()).await.unwrap_err();
    assert!(error.to_string().contains("runs a command"), "{error}");
}

#[tokio::test]
async fn a_kubeconfig_that_would_keep_a_parser_busy_is_not_parsed() {
    let long = format!("# {}\n{}", "x".repeat(300 << 10), kubeconfig(SERVER, "token: t"));
    let error = Credentials::from_kubeconfig(long.as_bytes()).await.unwrap_err();
    assert!(error.to_string().contains("bytes, which no kubeconfig has"), "{error}");
    let second = kubeconfig(SERVER, "token: t")
        + "---\nusers: [{name: b, user: {exec: {command: sh, apiVersion: v1}}}]\n";
    let error = Credentials::from_kubeconfig(second.as_bytes()).await.unwrap_err();
    assert!(error.to_string().contains("runs a command"), "{error}");
}

#[tokio::test]
async fn nonsense_is_refused_and_secrets_are_not_printed() {
    for bytes in [&b"\xff\xfe"[..], b"", b"]", b"a: b", b"- 1", b"YXBpVmVyc2lvbjogdjEK"] {
        let error = Credentials::from_kubeconfig(bytes).await.unwrap_err();
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    let credentials =
        Credentials::from_kubeconfig(kubeconfig(SERVER, "token: hunter2").as_bytes()).await.unwrap();
    assert!(!format!("{credentials:?}").contains("hunter2"));
    assert_eq!(credentials.server(), "https://10.0.0.1:6443/");
}

#[tokio::test]
async fn a_process_outside_of_a_cluster_is_told_to_name_a_kubeconfig() {
    // What a pod has, and a machine that runs tests has not.
    assert!(!Path::new("/var/run/secrets/kubernetes.io/serviceaccount/token").exists());
    for error in [Credentials::in_cluster().unwrap_err(), Credentials::infer(None).await.unwrap_err()] {
        assert!(matches!(error, CredentialError::NotInCluster(_)), "{error:?}");
        let text = error.to_string();
        assert!(
            text.starts_with("not running in a cluster") && text.contains("name a file with --kubeconfig"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}
