//! Kubeconfigs as nobody would write them: none is taken that reaches out, and none ends the process.

use kubeocean_cluster::credentials::Credentials;
use proptest::prelude::*;
use serde_json::Value;
use serde_saphyr::budget::{Budget, EnforcingPolicy, check_yaml_budget};

const GOOD: &str = "apiVersion: v1
kind: Config
current-context: a
contexts:
- name: a
  context: {cluster: a, user: a}
clusters:
- name: a
  cluster:
    server: 'https://10.0.0.1:6443'
users:
- name: a
  user:
    token: \"a token\"
";

const PIECES: [&str; 26] = [
    "exec: {command: sh, apiVersion: v1}",
    "exec:\n      command: sh\n      apiVersion: v1\n    ",
    "tokenFile: /etc/passwd",
    "client-key: /a",
    "client-certificate: /a",
    "certificate-authority: /a",
    "auth-provider: {name: a}",
    "user: {exec: {command: sh, apiVersion: v1}}",
    "&a ",
    "*a",
    "<<: *a",
    "!!str ",
    "'",
    "\"",
    "\\",
    "\n",
    "\n---\n",
    "\n- ",
    "# ",
    "|\n",
    "{",
    "}",
    "[",
    ", ",
    ": ",
    "\u{feff}",
];

/// What must not be in one that is taken: of users, and of clusters.
const OF_USERS: [&str; 5] = ["exec", "auth-provider", "tokenFile", "client-key", "client-certificate"];
const OF_CLUSTERS: [&str; 1] = ["certificate-authority"];

#[derive(Clone, Debug)]
enum Edit {
    Insert(usize, usize),
    /// Behind the indentation of a line, as a line of its own.
    Line(usize, usize),
    Remove(usize, usize),
    Repeat(usize, usize),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let at = || 0..2_000_usize;
    let edit = prop_oneof![
        (at(), 0..PIECES.len()).prop_map(|(at, piece)| Edit::Insert(at, piece)),
        (at(), 0..PIECES.len()).prop_map(|(at, piece)| Edit::Line(at, piece)),
        (at(), 1..20_usize).prop_map(|(at, length)| Edit::Remove(at, length)),
        (at(), 1..60_usize).prop_map(|(at, length)| Edit::Repeat(at, length)),
    ];
    prop::collection::vec(edit, 0..5)
}

fn edited(edits: &[Edit]) -> String {
    let mut text: Vec<char> = GOOD.chars().collect();
    for edit in edits {
        let length = text.len().max(1);
        match *edit {
            Edit::Insert(at, piece) => drop(text.splice(at % length..at % length, PIECES[piece].chars())),
            Edit::Line(at, piece) => {
                let begin =
                    text[..at % length].iter().rposition(|sign| *sign == '\n').map_or(0, |end| end + 1);
                let indent = text[begin..].iter().take_while(|sign| **sign == ' ').count();
                let line = format!("{}{}\n", " ".repeat(indent), PIECES[piece]);
                text.splice(begin..begin, line.chars());
            }
            Edit::Remove(at, count) => drop(text.drain(at % length..(at % length + count).min(text.len()))),
            Edit::Repeat(at, count) => {
                let part = text[at % length..(at % length + count).min(text.len())].to_vec();
                text.splice(at % length..at % length, part);
            }
        }
    }
    text.into_iter().collect()
}

/// The fields of a kubeconfig that reach out, wherever kube looks for them.
fn reaches_out(document: &Value) -> bool {
    let any = |list: &str, one: &str, fields: &[&str]| {
        let list = document[list].as_array().cloned().unwrap_or_default();
        let says = |entry: &Value, field: &str| {
            !matches!(entry[one][field].as_str(), Some("")) && !entry[one][field].is_null()
        };
        list.iter().any(|entry| fields.iter().any(|field| says(entry, field)))
    };
    any("users", "user", &OF_USERS) || any("clusters", "cluster", &OF_CLUSTERS)
}

fn taken(bytes: &[u8]) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(Credentials::from_kubeconfig(bytes)).is_ok()
}

#[test]
fn a_good_one_is_taken() {
    assert!(taken(GOOD.as_bytes()));
    let exec = edited(&[Edit::Line(GOOD.find("token").unwrap(), 0)]);
    let documents: Vec<Value> = serde_saphyr::from_multiple(&exec).unwrap();
    assert!(reaches_out(&documents[0]) && !taken(exec.as_bytes()), "{exec}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_mutilated_kubeconfig_that_reaches_out_is_taken(edits in edits()) {
        let text = edited(&edits);
        if taken(text.as_bytes()) {
            let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
            prop_assert!(!documents.iter().any(reaches_out), "{text}");
            let report = check_yaml_budget(&text, Budget::default(), EnforcingPolicy::AllContent).unwrap();
            prop_assert_eq!((report.anchors, report.aliases), (0, 0), "{}", text);
        }
    }

    #[test]
    fn whatever_the_bytes_are_they_are_only_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(!taken(&bytes));
    }
}
