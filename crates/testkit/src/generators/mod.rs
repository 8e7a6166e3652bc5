//! Objects as nobody wants them: valid, and at every limit at once.
//!
//! [`Nasty`] draws from a seed. What it makes is taken by an API server (the simulated one says so in its tests),
//! unless it says otherwise: [`Nasty::stored`] adds what only a server writes, [`Nasty::maimed`] takes away
//! what every parser thinks is there.
//!
//! Deliberately absent: objects that a test means something by. Those are written out where they are meant.

mod ocean;
mod pods;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value, json};

/// Names of objects: DNS subdomains.
const LONGEST_NAME: usize = 253;
/// Names that end up in labels or host names.
const LONGEST_LABEL: usize = 63;

/// Quantities that are spelled in every way there is.
const MEMORY: &[&str] = &[
    "0",
    "1",
    "1k",
    "1Ki",
    "1e3",
    "128974848",
    "129M",
    "123Mi",
    "0.5Gi",
    "1.5G",
    "1E",
    "1Pi",
    "1000m",
    "12e6",
    "7Ei",
];
const CPU: &[&str] = &["0", "1m", "0.1", "100m", "1", "1.5", "1500m", "1e1", "2k", "0.001"];

/// Draws objects. The same seed draws the same.
#[derive(Clone, Debug)]
pub struct Nasty {
    rng: ChaCha8Rng,
}

impl Nasty {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self { rng: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// From random numbers that someone else draws from, too.
    pub fn from_rng(rng: &mut ChaCha8Rng) -> Self {
        Self::new(rng.random())
    }

    /// A name of an object: short, of a usual length, or as long as it may be, with dots and dashes.
    pub fn name(&mut self) -> String {
        let length = match self.below(4) {
            0 => 1,
            1 => LONGEST_NAME,
            2 => LONGEST_LABEL + 1,
            _ => 5 + self.below(40),
        };
        let mut name = self.label_name(length.min(LONGEST_LABEL));
        while name.len() < length {
            let room = length - name.len() - 1;
            if room == 0 {
                name.push('z');
                break;
            }
            let part = self.label_name(room.min(LONGEST_LABEL));
            name.push('.');
            name.push_str(&part);
        }
        name
    }

    /// A name without dots, of so many characters: `a--9--b` is one.
    pub fn label_name(&mut self, length: usize) -> String {
        let inner = b"abcdefghijklmnopqrstuvwxyz0123456789----";
        let edge = b"abcdefghijklmnopqrstuvwxyz";
        (0..length.max(1))
            .map(|at| {
                let from: &[u8] = if at == 0 || at + 1 >= length { edge } else { inner };
                char::from(from[self.below(from.len())])
            })
            .collect()
    }

    /// A name of at most 63 characters.
    pub fn short_name(&mut self) -> String {
        let length = self.one_of(&[1, 2, 20, LONGEST_LABEL]);
        self.label_name(length)
    }

    /// Labels: none, a few, or long ones under long prefixes.
    pub fn labels(&mut self) -> Value {
        let count = self.one_of(&[0, 1, 3, 12]);
        let mut labels = Map::new();
        for _ in 0..count {
            let length = 1 + self.below(LONGEST_LABEL);
            let mut key = self.label_name(length);
            if self.coin() {
                key = format!("{}/{key}", self.name());
            }
            let length = self.below(LONGEST_LABEL + 1);
            let value = if length == 0 { String::new() } else { self.label_name(length).replace("--", "_.") };
            labels.insert(key, value.into());
        }
        labels.into()
    }

    /// Annotations: with line breaks, quotes, JSON, and one of some kilobytes.
    pub fn annotations(&mut self) -> Value {
        let mut annotations = Map::new();
        let values = ["", "true", "{\"a\": [1, null]}", "line\nline\ttab \"quoted\" \\", "%2F../..", "  "];
        for at in 0..self.below(5) {
            annotations.insert(format!("note.example/{at}"), self.one_of(&values).into());
        }
        if self.below(8) == 0 {
            annotations.insert("big.example/text".to_owned(), "x".repeat(1 << (8 + self.below(7))).into());
        }
        annotations.into()
    }

    /// Finalizers and owners, now and then.
    pub fn metadata(&mut self, name: &str, namespace: Option<&str>) -> Value {
        let mut meta = json!({"name": name, "labels": self.labels(), "annotations": self.annotations()});
        if let Some(namespace) = namespace {
            meta["namespace"] = namespace.into();
        }
        if self.below(6) == 0 {
            meta["finalizers"] = json!(["example.com/hold", format!("{}.example/f", self.label_name(20))]);
        }
        if self.below(4) == 0 {
            let (name, uid) = (self.short_name(), self.uid());
            let kind = self.one_of(&["ReplicaSet", "DaemonSet", "Job", "StatefulSet"]);
            let group = if kind == "Job" { "batch/v1" } else { "apps/v1" };
            meta["ownerReferences"] = json!([{
                "apiVersion": group, "kind": kind, "name": name, "uid": uid, "controller": true,
                "blockOwnerDeletion": self.coin(),
            }]);
        }
        meta
    }

    /// What a server adds to an object when it stores it; a third of them are being deleted.
    #[must_use]
    pub fn stored(&mut self, mut object: Value) -> Value {
        let (uid, version) = (self.uid(), self.rng.random_range(1..u64::MAX / 2));
        let meta = &mut object["metadata"];
        meta["uid"] = uid.into();
        meta["resourceVersion"] = version.to_string().into();
        meta["generation"] = self.rng.random_range(0..100).into();
        meta["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
        if self.below(3) == 0 {
            meta["deletionTimestamp"] = "2026-01-02T03:04:05Z".into();
            meta["deletionGracePeriodSeconds"] = self.one_of(&[0, 1, 30, 86_400]).into();
        }
        object
    }

    /// The same with some fields gone, `null`, or of another type, anywhere in it. No server would take it; a parser
    /// has to live with it.
    #[must_use]
    pub fn maimed(&mut self, mut object: Value) -> Value {
        for _ in 0..=self.below(3) {
            self.maim(&mut object);
        }
        object
    }

    fn maim(&mut self, value: &mut Value) {
        let deeper = !self.coin();
        match value {
            Value::Object(map) if !map.is_empty() => {
                let at = self.below(map.len());
                let Some(key) = map.keys().nth(at).cloned() else { return };
                if deeper {
                    self.maim(&mut map[&key]);
                } else if self.coin() {
                    map.remove(&key);
                } else {
                    map.insert(key, self.nonsense());
                }
            }
            Value::Array(items) if !items.is_empty() && deeper => {
                let at = self.below(items.len());
                self.maim(&mut items[at]);
            }
            other => *other = self.nonsense(),
        }
    }

    fn nonsense(&mut self) -> Value {
        let all = [json!(null), json!(""), json!(-1), json!([]), json!({}), json!(true), json!(1e300)];
        all[self.below(all.len())].clone()
    }

    /// A node with capacities in odd spellings, taints, addresses and conditions.
    pub fn node(&mut self) -> Value {
        let name = self.name();
        let mut meta = self.metadata(&name, None);
        meta["labels"]["kubernetes.io/hostname"] =
            name.chars().take(LONGEST_LABEL).collect::<String>().trim_end_matches(['-', '.']).into();
        let capacity = json!({
            "cpu": self.cpu(), "memory": self.memory(), "ephemeral-storage": self.memory(),
            "pods": self.one_of(&["0", "1", "110", "1k"]), "hugepages-2Mi": "0",
            "nvidia.com/gpu": self.below(9).to_string(),
        });
        let mut node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {"unschedulable": self.coin()},
            "status": {
                "capacity": capacity, "allocatable": capacity,
                "addresses": [{"type": "InternalIP", "address": "10.0.0.7"}, {"type": "InternalIP", "address": "fd00::7"}],
                "conditions": [{"type": "Ready", "status": self.one_of(&["True", "False", "Unknown"])}],
                "nodeInfo": {
                    "architecture": self.one_of(&["amd64", "arm64"]), "operatingSystem": "linux", "bootID": "", "machineID": "",
                    "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "v1.36.0",
                    "osImage": "", "systemUUID": "",
                },
            },
        });
        if self.coin() {
            let effect = self.one_of(&["NoSchedule", "PreferNoSchedule", "NoExecute"]);
            node["spec"]["taints"] =
                json!([{"key": "example.com/taint", "value": self.short_name(), "effect": effect}]);
        }
        if self.below(5) == 0 {
            drop(node.as_object_mut().and_then(|node| node.remove("status")));
        }
        node
    }

    fn memory(&mut self) -> &'static str {
        self.one_of(MEMORY)
    }

    fn cpu(&mut self) -> &'static str {
        self.one_of(CPU)
    }

    fn uid(&mut self) -> String {
        let (high, low): (u64, u64) = (self.rng.random(), self.rng.random());
        format!(
            "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
            high >> 32,
            high & 0xffff,
            low & 0xfff,
            low >> 52,
            low >> 16
        )
    }

    fn coin(&mut self) -> bool {
        self.rng.random()
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn below(&mut self, bound: usize) -> usize {
        self.rng.random_range(0..bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ApiServer, Options};

    fn ours(plural: &str) -> String {
        format!("/apis/{}/{}/{plural}", kubeocean_api::GROUP, kubeocean_api::VERSION)
    }

    fn is_taken(server: &ApiServer, path: &str, object: &Value) {
        let (code, answer) = server.call("generator", "POST", path, None, Some(object.clone()));
        assert!(matches!(code, 201 | 409), "{code} {}\n{object:#}", answer["message"]);
    }

    #[test]
    fn a_server_takes_every_nasty_object() {
        let server = ApiServer::new(Options::default());
        let pods = "/api/v1/namespaces/default/pods";
        for seed in 0..300 {
            let mut nasty = Nasty::new(seed);
            is_taken(&server, "/api/v1/nodes", &nasty.node());
            is_taken(&server, pods, &nasty.pod("default"));
            is_taken(&server, &ours("clusterbindings"), &nasty.binding());
            is_taken(&server, &ours("resourceleasingpolicies"), &nasty.policy("some-binding"));
        }
        assert!(server.list("pods", None).len() > 250);
    }

    #[test]
    fn the_same_seed_draws_the_same() {
        let draw = |seed| {
            let mut nasty = Nasty::new(seed);
            let pod = nasty.pod("web");
            let stored = nasty.stored(pod);
            nasty.maimed(stored)
        };
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
    }

    #[test]
    fn names_keep_to_their_limits_and_reach_them() {
        let mut nasty = Nasty::new(1);
        let names: Vec<String> = (0..500).map(|_| nasty.name()).collect();
        assert!(names.iter().any(|name| name.len() == 253) && names.iter().any(|name| name.len() == 1));
        for name in names {
            // A part may be longer than 63: subdomains are limited as a whole.
            assert!(name.len() <= 253 && name.split('.').all(|part| !part.is_empty()), "{name}");
        }
    }
}
