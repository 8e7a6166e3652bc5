//! The lists of an informer: all there is, page by page, and the question where a server stands.

use bytes::Bytes;
use kubeocean_model::key::{Key, OnSide};
use tokio::time::Instant;

use super::{Informer, Next, Scope};
use crate::client::{Call, JSON, METADATA_LIST, Page, PageMeta, Query, collection_path};
use crate::error::CallError;
use crate::store::Shape;

/// Objects per page: 3 MB of pods, which costs a server less memory than a list in one piece, and a round trip
/// per page that is small against making it.
const PAGE: &str = "500";

impl<S: OnSide, T: Shape> Informer<S, T> {
    /// What comes now is the truth as this connection tells it.
    pub(super) fn begin_list(&mut self) -> u64 {
        self.listed_over = self.connection.number;
        self.store.begin_list();
        self.store.progress().begin_list()
    }

    /// While one page is taken in, the server makes the next: a list costs what the slower of the two needs, not their sum.
    pub(super) async fn list_in_pages(&mut self) -> Result<Box<str>, CallError> {
        let list = self.begin_list();
        let mut answer = self.page("").await?;
        let version = loop {
            let more = Page::more_after(&answer);
            let next = async {
                match &more {
                    Some(more) => Some(self.page(more).await),
                    None => None,
                }
            };
            let taken = async {
                // The question leaves first.
                tokio::task::yield_now().await;
                self.take_page(&answer)
            };
            let (next, taken) = tokio::join!(biased; next, taken);
            let PageMeta { more, resource_version, .. } = taken?;
            answer = match next {
                Some(next) => next?,
                None if more.is_empty() => break resource_version,
                None => self.page(&more).await?,
            };
        };
        self.end_list(list, &version);
        Ok(version.into_boxed_str())
    }

    async fn page(&self, more: &str) -> Result<Bytes, CallError> {
        let mut query = self.scope.query();
        query.add("limit", Some(PAGE));
        query.add("continue", Some(more));
        let path = format!("{}{query}", self.collection());
        let accept = if self.scope.metadata_only { METADATA_LIST } else { JSON };
        self.cluster.ask(Call { accept, ..Call::read("list", &self.kind, path) }).await
    }

    fn take_page(&self, answer: &[u8]) -> Result<PageMeta, CallError> {
        let page = Page::read(answer)?;
        self.store.progress().take_in_list();
        for object in page.items {
            self.take_in(object);
        }
        for (namespace, name) in page.unreadable {
            self.store.leave(&Key::new(namespace, name));
        }
        Ok(page.metadata)
    }

    pub(super) fn end_list(&mut self, list: u64, version: &str) {
        self.listed_at = Instant::now();
        self.store.end_list(&|change| self.tell(change));
        self.store.progress().end_list(list, version.parse().ok());
        self.show_size();
    }

    /// After a break: goes on, unless the server counts lower than what we have seen.
    pub(super) async fn where_the_server_stands(&self, version: Option<Box<str>>) -> Next {
        let Some(version) = version else { return Next::List };
        // With the same selectors: rights may be given for one name only.
        let mut query = self.scope.query();
        query.add("limit", Some("1"));
        let path = format!("{}{query}", self.collection());
        let call = Call { accept: METADATA_LIST, ..Call::read("list", &self.kind, path) };
        let answer = tokio::select! {
            biased;
            // A server that is left need not be waited for.
            () = self.connection.left.cancelled() => return Next::List,
            answer = self.cluster.ask(call) => answer.and_then(|bytes| Page::read(&bytes)),
        };
        match answer.map(|page| page.metadata.resource_version.parse::<u64>()) {
            Ok(Ok(stands)) if version.parse().is_ok_and(|seen: u64| seen > stands) => Next::List,
            // If it cannot be asked, the watch will fail too, and we come back here.
            _ => Next::Watch(version),
        }
    }

    pub(super) fn collection(&self) -> String {
        collection_path(&self.kind, self.scope.namespace.as_deref().unwrap_or_default())
    }
}

impl Scope {
    pub(super) fn query(&self) -> Query {
        let mut query = Query::default();
        query.add("labelSelector", self.labels.as_deref());
        query.add("fieldSelector", self.fields.as_deref());
        query
    }
}
