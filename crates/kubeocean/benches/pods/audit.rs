//! What API servers say that was asked of them: their audit logs.
//!
//! Both servers run on this machine, by one clock, so that times of both can be compared.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// By its user agent.
const SYNCER: &str = "kubeocean-syncer/";

/// Verbs that change nothing.
const READS: [&str; 3] = ["get", "list", "watch"];

/// One request that was answered.
#[derive(Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request {
    stage: String,
    pub(super) verb: String,
    #[serde(default)]
    pub(super) user_agent: String,
    #[serde(rename = "requestReceivedTimestamp")]
    pub(super) received: Timestamp,
    #[serde(rename = "stageTimestamp")]
    pub(super) answered: Timestamp,
    #[serde(default, rename = "objectRef")]
    pub(super) object: Object,
    #[serde(default, rename = "responseStatus")]
    status: Status,
}

#[derive(Clone, Default, Deserialize, Serialize)]
pub(super) struct Object {
    #[serde(default)]
    pub(super) resource: String,
    #[serde(default)]
    pub(super) subresource: String,
    #[serde(default)]
    pub(super) name: String,
}

#[derive(Clone, Default, Deserialize, Serialize)]
struct Status {
    #[serde(default)]
    code: u16,
}

impl Request {
    pub(super) fn is_syncers(&self) -> bool {
        self.user_agent.starts_with(SYNCER)
    }

    pub(super) fn is_write(&self) -> bool {
        !READS.contains(&&*self.verb)
    }

    pub(super) fn went_well(&self) -> bool {
        self.status.code < 300
    }

    /// Whether it is this, of pods.
    pub(super) fn is(&self, verb: &str, subresource: &str) -> bool {
        self.verb == verb && self.object.resource == "pods" && self.object.subresource == subresource
    }

    /// What it is, without the object's name.
    pub(super) fn what(&self) -> String {
        let Object { resource, subresource, .. } = &self.object;
        let slash = if subresource.is_empty() { "" } else { "/" };
        let refused = if self.went_well() { String::new() } else { format!(" ({})", self.status.code) };
        format!("{} {resource}{slash}{subresource}{refused}", self.verb)
    }
}

/// Everything that was answered, in a directory with the logs of a cluster. Servers begin a new file now and then.
pub(super) fn read(logs: &Path) -> Vec<Request> {
    let files = std::fs::read_dir(logs).unwrap().map(|entry| entry.unwrap().path());
    let is_audit = |path: &std::path::PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("audit"))
    };
    let mut all = Vec::new();
    for file in files.filter(is_audit) {
        for line in BufReader::new(File::open(file).unwrap()).lines() {
            let Ok(request) = serde_json::from_str::<Request>(&line.unwrap()) else { continue };
            if request.stage == "ResponseComplete" {
                all.push(request);
            }
        }
    }
    all.sort_by_key(|request| request.received);
    all
}

/// When something began and ended.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Span {
    pub(super) began: Timestamp,
    pub(super) ended: Timestamp,
}

impl Span {
    pub(super) fn since(began: Timestamp) -> Self {
        Self { began, ended: Timestamp::now() }
    }

    /// What a syncer asked for meanwhile, but for what it does all the time: Leases, and watches and lists to keep up.
    pub(super) fn asked(self, all: &[Request]) -> impl Iterator<Item = &Request> {
        all.iter().filter(move |one| {
            (self.began..self.ended).contains(&one.received)
                && one.is_syncers()
                && one.object.resource != "leases"
                && !["watch", "list"].contains(&&*one.verb)
        })
    }
}

/// How often each was asked for.
pub(super) fn counted<'a>(requests: impl Iterator<Item = &'a Request>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for request in requests {
        *counts.entry(request.what()).or_default() += 1;
    }
    counts
}
