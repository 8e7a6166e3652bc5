//! Which pods of a namespace run, by a watch: asking again and again would be load beside what is measured.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt as _};
use tokio::task::JoinHandle;

use super::bound::calls::until;

#[derive(Default)]
struct Seen {
    there: BTreeSet<String>,
    running: BTreeSet<String>,
}

impl Seen {
    fn note(&mut self, pod: &Pod) {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        self.there.insert(pod.name_any());
        if phase == Some("Running") {
            self.running.insert(pod.name_any());
        }
    }

    fn forget(&mut self, pod: &Pod) {
        self.there.remove(&pod.name_any());
        self.running.remove(&pod.name_any());
    }
}

pub(super) struct Followed {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

impl Followed {
    pub(super) fn new(client: Client, namespace: &str) -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let task = tokio::spawn(follow(Api::namespaced(client, namespace), Arc::clone(&seen)));
        Self { seen, task }
    }

    /// Waits until so many run.
    pub(super) async fn run(&self, count: usize) {
        until(async || (self.seen.lock().unwrap().running.len() == count).then_some(())).await;
    }

    /// Waits until no more than so many are left.
    pub(super) async fn left(&self, count: usize) {
        until(async || (self.seen.lock().unwrap().there.len() <= count).then_some(())).await;
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(api: Api<Pod>, seen: Arc<Mutex<Seen>>) {
    loop {
        let Ok(list) = api.list(&ListParams::default()).await else {
            // Its server has gone, or is about to answer.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let version = list.metadata.resource_version.clone().unwrap_or_default();
        let mut now = Seen::default();
        list.items.iter().for_each(|pod| now.note(pod));
        *seen.lock().unwrap() = now;
        // A watch ends now and then; then everything is listed anew.
        let Ok(events) = api.watch(&WatchParams::default(), &version).await else { continue };
        let mut events = std::pin::pin!(events);
        while let Some(Ok(event)) = events.next().await {
            match event {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) => seen.lock().unwrap().note(&pod),
                WatchEvent::Deleted(pod) => seen.lock().unwrap().forget(&pod),
                WatchEvent::Bookmark(_) | WatchEvent::Error(_) => {}
            }
        }
    }
}
