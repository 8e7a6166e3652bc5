//! Whatever is asked for, nothing but the pod's own place in the worker cluster is ever written.

use proptest::prelude::*;

use super::*;
use crate::escape::unescaped;
use crate::key::Physical;

/// `PROPTEST_CASES` raises it.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(10_000)
}

const PREFIX: &str = "/api/v1/namespaces/mount/pods/a-1234/";

/// Pieces that paths of attackers are made of.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => prop::sample::select(vec![
            "exec", "attach", "portForward", "containerLogs", "pods", "metrics", "resource", "web", "a", "c1", "u-1", "..", ".", "",
            "%2e%2e", "%2F", "%00", "%0d%0a", "a%2fb", "..%2f..%2fsecrets", "kube-system", ";", "\\", "#", "?", "a?b", "\u{0}", "\r\n",
            "%", "a b", "ü", "//",
        ]).prop_map(str::to_owned),
        1 => "\\PC{0,12}",
        1 => any::<String>(),
        1 => "[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?",
    ]
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(piece(), 0..6).prop_map(|pieces| format!("/{}", pieces.join("/")))
}

fn query() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        4 => prop::sample::select(vec![
            "command", "input", "output", "error", "tty", "port", "ports", "follow", "previous", "sinceSeconds", "sinceTime",
            "timestamps", "tailLines", "limitBytes", "stream", "container", "stdin", "tail", "dryRun", "%63ommand", "",
        ]).prop_map(str::to_owned),
        1 => any::<String>(),
    ];
    let value = prop_oneof![
        3 => prop::sample::select(vec![
            "1", "true", "0", "", "80", "80,81", "99999", "-1", "ls", "..%2f..", "a%26container%3Db", "%0a", "%00", "x&container=y",
            "x#frag", "x?y", "Stdout", "2026-11-20T08:00:00Z", "%", "%zz", "+",
        ]).prop_map(str::to_owned),
        1 => any::<String>(),
    ];
    prop::collection::vec((name, value), 0..6).prop_map(|pairs| {
        pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
    })
}

/// The names that each errand may say, and those that it may say more than once.
fn may_say(service: Service) -> (&'static [&'static str], &'static [&'static str]) {
    match service {
        Service::Logs => (
            &[
                "container",
                "follow",
                "previous",
                "timestamps",
                "sinceSeconds",
                "sinceTime",
                "tailLines",
                "limitBytes",
                "stream",
            ],
            &[],
        ),
        Service::Exec => (&["container", "stdin", "stdout", "stderr", "tty", "command"], &["command"]),
        Service::Attach => (&["container", "stdin", "stdout", "stderr", "tty"], &[]),
        Service::PortForward => (&["ports"], &["ports"]),
    }
}

fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%=&?/".contains(&byte))
}

fn stays_in_its_place(route: &PodRoute, query: &str) -> Result<(), TestCaseError> {
    let Ok(errand) = Errand::read(route, query) else { return Ok(()) };
    let sent = errand.at(&Key::<Physical>::new("mount", "a-1234"));
    prop_assert!(is_plain(&sent), "{sent}");
    let rest = sent.strip_prefix(PREFIX);
    prop_assert!(rest.is_some(), "{sent}");
    let (subresource, said) =
        rest.unwrap_or_default().split_once('?').unwrap_or((rest.unwrap_or_default(), ""));
    prop_assert_eq!(subresource, route.service.subresource());
    prop_assert!(!said.contains(['?', '/', '#']), "{}", said);
    let (known, repeated) = may_say(route.service);
    let mut before: Vec<&str> = Vec::new();
    for pair in said.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        prop_assert!(known.contains(&name), "{} in {}", name, sent);
        prop_assert!(repeated.contains(&name) || !before.contains(&name), "{} twice in {}", name, sent);
        prop_assert!(!value.contains('='), "{}", sent);
        let value = unescaped(value);
        prop_assert!(value.as_ref().is_some_and(|value| !value.contains('\0')), "{}", sent);
        if name == "container" {
            prop_assert_eq!(value.as_deref(), route.container.as_deref());
        }
        before.push(name);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_path_means_more_than_names(path in path()) {
        if let Some(Route::Pod(route)) = Route::read(&path) {
            let names = [Some(&*route.pod.namespace), Some(&*route.pod.name), route.uid.as_deref(), route.container.as_deref()];
            for name in names.into_iter().flatten() {
                prop_assert!(!name.is_empty() && !name.contains(['/', '%', '\\', '?', '#', '\0']) && name != "..", "{name}");
                prop_assert!(name.is_ascii() && !name.contains(char::is_whitespace));
            }
            // What was read is all that was there.
            let mut parts = vec![route.service.as_str(), &*route.pod.namespace, &*route.pod.name];
            parts.extend(route.uid.as_deref());
            parts.extend(route.container.as_deref());
            prop_assert_eq!(format!("/{}", parts.join("/")), path);
        }
    }

    #[test]
    fn no_query_reaches_beyond_the_pod(
        service in prop::sample::select(vec!["exec/web/a/c1", "attach/web/a/u-1/c1", "portForward/web/a", "containerLogs/web/a/c1"]),
        query in query(),
    ) {
        if let Some(Route::Pod(route)) = Route::read(&format!("/{service}")) {
            stays_in_its_place(&route, &query)?;
        }
    }

    #[test]
    fn no_path_and_query_together_reach_beyond_the_pod(path in path(), query in query()) {
        if let Some(Route::Pod(route)) = Route::read(&path) {
            stays_in_its_place(&route, &query)?;
        }
    }

    #[test]
    fn every_command_arrives_as_it_was_meant(words in prop::collection::vec("[^\u{0}]{0,20}", 1..5)) {
        let words_said: Vec<String> = words.iter().map(|word| format!("command={}", crate::escape::escaped(word))).collect();
        let Some(Route::Pod(route)) = Route::read("/exec/web/a/c1") else {
            return Err(TestCaseError::fail("no route"));
        };
        let errand = Errand::read(&route, &format!("output=1&{}", words_said.join("&")));
        let streams = Streams { stdout: true, ..Streams::default() };
        prop_assert_eq!(errand, Ok(Errand::Exec { container: "c1".to_owned(), streams, command: words }));
    }
}
