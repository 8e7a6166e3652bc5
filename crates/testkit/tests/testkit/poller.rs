//! The mirror as one writes it in an afternoon: lists both sides now and then, and sets right what differs.
//!
//! Slow, but right, if its parts are; [`toys`](crate::toys) put other parts in.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::mirror::{ACTOR, BY, NAMESPACE, OF, Running, UID, Wiring, copy_name_of, is_wanted, place, stamp};

/// Often enough to meet faults, rarely enough to be no loop.
const PAUSE: Duration = Duration::from_secs(20);
const DEADLINE: Duration = Duration::from_secs(10);

pub(crate) const COPIES: &str = "/api/v1/namespaces/mirrored/configmaps";
pub(crate) const ORIGINALS: &str = "/api/v1/configmaps?labelSelector=mirror%3Dyes";

/// One write: method, path, body.
pub(crate) type Write = (&'static str, String, Value);

/// The parts that can be wrong.
#[derive(Clone, Copy)]
pub(crate) struct Poller {
    pub(crate) originals: &'static str,
    pub(crate) pause: Duration,
    pub(crate) attempts: u32,
    pub(crate) create: fn(&Value) -> Write,
    pub(crate) remove: fn(&Value) -> Write,
    pub(crate) is_ours: fn(&Value) -> bool,
    /// Follows V by a watch, and lists it only once.
    pub(crate) watches: bool,
}

impl Default for Poller {
    fn default() -> Self {
        Self {
            originals: ORIGINALS,
            pause: PAUSE,
            attempts: 1,
            create,
            remove,
            is_ours: |object| stamp(object).is_some(),
            watches: false,
        }
    }
}

impl Poller {
    pub(crate) fn run(self, wiring: Wiring) -> Running {
        let [virt, phys] = wiring.raw;
        Box::pin(async move {
            let known = Arc::new(Mutex::new(BTreeMap::new()));
            let follow = async {
                if self.watches {
                    watch(&virt, &known).await;
                } else {
                    std::future::pending::<()>().await;
                }
            };
            let poll = async {
                loop {
                    self.look(&virt, &phys, &known).await;
                    tokio::time::sleep(self.pause).await;
                }
            };
            tokio::select! {
                biased;
                () = follow => {}
                () = poll => {}
            }
        })
    }

    async fn look(
        &self,
        virt: &kube::Client,
        phys: &kube::Client,
        known: &Mutex<BTreeMap<String, Value>>,
    ) -> Option<()> {
        let originals: Vec<Value> = if self.watches {
            known.lock().values().cloned().collect()
        } else {
            items(&ask(virt, "GET", self.originals, None).await?)
        };
        let there = items(&ask(phys, "GET", COPIES, None).await?);
        let there: Vec<Value> = there.into_iter().filter(|object| (self.is_ours)(object)).collect();
        let originals: Vec<&Value> = originals.iter().filter(|original| is_wanted(original)).collect();
        let serves = |copy: &Value, original: &Value| {
            stamp(copy).is_some_and(|(of, uid)| of == place(original) && original["metadata"]["uid"] == uid)
        };
        for copy in &there {
            if !originals.iter().any(|original| serves(copy, original)) {
                self.write(phys, &(self.remove)(copy)).await;
            }
        }
        for original in originals {
            match there.iter().find(|copy| serves(copy, original)) {
                None => self.write(phys, &(self.create)(original)).await,
                Some(copy) if copy["data"] != original["data"] => {
                    self.write(phys, &repair(original, copy)).await;
                }
                Some(_) => {}
            }
        }
        Some(())
    }

    async fn write(&self, phys: &kube::Client, (method, path, body): &Write) {
        for _ in 0..self.attempts {
            if ask(phys, method, path, Some(body)).await.is_some() {
                return;
            }
        }
    }
}

pub(crate) fn create(original: &Value) -> Write {
    let stamp = json!({OF: place(original), UID: original["metadata"]["uid"]});
    let meta = json!({"name": copy_name_of(&place(original)), "labels": {BY: ACTOR}, "annotations": stamp});
    ("POST", COPIES.to_owned(), json!({"metadata": meta, "data": original["data"]}))
}

fn remove(copy: &Value) -> Write {
    let meta = &copy["metadata"];
    let preconditions = json!({"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]});
    ("DELETE", path(copy), json!({"preconditions": preconditions}))
}

fn repair(original: &Value, copy: &Value) -> Write {
    let mut whole = copy.clone();
    whole["data"] = original["data"].clone();
    ("PUT", path(copy), whole)
}

pub(crate) fn path(copy: &Value) -> String {
    format!(
        "/api/v1/namespaces/{NAMESPACE}/configmaps/{}",
        copy["metadata"]["name"].as_str().unwrap_or_default()
    )
}

fn items(list: &Value) -> Vec<Value> {
    list["items"].as_array().cloned().unwrap_or_default()
}

async fn ask(client: &kube::Client, method: &str, path: &str, body: Option<&Value>) -> Option<Value> {
    let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string().into_bytes()));
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(body)
        .unwrap();
    let answer = async {
        let response = client.send(request).await.ok()?;
        let is_good = response.status().is_success();
        let bytes = response.into_body().collect().await.ok()?.to_bytes();
        is_good.then(|| serde_json::from_slice(&bytes).ok()).flatten()
    };
    tokio::time::timeout(DEADLINE, answer).await.ok().flatten()
}

/// Lists once, and then watches from where it was, whatever the server says.
async fn watch(virt: &kube::Client, known: &Mutex<BTreeMap<String, Value>>) {
    let mut version = loop {
        if let Some(list) = ask(virt, "GET", ORIGINALS, None).await {
            let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
            *known.lock() = items(&list).into_iter().map(|object| (place(&object), object)).collect();
            break version;
        }
        tokio::time::sleep(PAUSE).await;
    };
    loop {
        let path = format!("{ORIGINALS}&watch=true&timeoutSeconds=60&resourceVersion={version}");
        let lines = async {
            let request = Request::get(path).body(Body::empty()).unwrap();
            let Ok(response) = virt.send(request).await else { return };
            let mut body = response.into_body();
            let mut buffer = Vec::new();
            while let Some(Ok(frame)) = body.frame().await {
                buffer.extend_from_slice(frame.data_ref().unwrap());
                while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = buffer.drain(..=end).collect();
                    let Ok(event) = serde_json::from_slice::<Value>(&line) else { continue };
                    let object = &event["object"];
                    match event["type"].as_str().unwrap_or_default() {
                        "ADDED" | "MODIFIED" => drop(known.lock().insert(place(object), object.clone())),
                        "DELETED" => drop(known.lock().remove(&place(object))),
                        _ => continue,
                    }
                    object["metadata"]["resourceVersion"]
                        .as_str()
                        .unwrap_or_default()
                        .clone_into(&mut version);
                }
            }
        };
        drop(tokio::time::timeout(Duration::from_secs(75), lines).await);
        tokio::time::sleep(PAUSE).await;
    }
}
