//! The lists of an informer: all there is, page by page, and the question where a server stands.

use bytes::Bytes;
use kubeocean_model::key::{Key, OnSide};
use tokio::time::Instant;

use super::{Informer, Next, Scope};
use crate::client::{Call, JSON, METADATA_LIST, Page, PageMeta, Query, collection_path};
use crate::error::CallError;
use crate::progress::Listed;
use crate::store::Shape;

/// Objects on the first page: 3 MB of pods. Nobody knows yet how large they are.
const FIRST_PAGE: usize = 500;

/// What a page should have: some two thousand pods. Each page is a round trip, and costs a server some milliseconds; more would fill its
/// memory, and ours, which has two of them at a time.
const PAGE_BYTES: usize = 12 << 20;

/// Objects on a page, however small they are.
const LONGEST_PAGE: usize = 2000;

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
        let mut size = FIRST_PAGE;
        let mut answer = self.page("", size).await?;
        let version = loop {
            let more = Page::more_after(&answer);
            size = next_size(size, answer.len());
            let next = async {
                match &more {
                    Some(more) => Some(self.page(more, size).await),
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
                None => self.page(&more, size).await?,
            };
        };
        self.end_list(list, &version);
        Ok(version.into_boxed_str())
    }

    async fn page(&self, more: &str, size: usize) -> Result<Bytes, CallError> {
        let mut query = self.scope.query();
        query.add("limit", Some(&size.to_string()));
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
        let list = Listed { number: list, connection: self.listed_over };
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

/// How many objects to ask for, after a page of so many had so many bytes.
fn next_size(objects: usize, bytes: usize) -> usize {
    (objects.saturating_mul(PAGE_BYTES) / bytes.max(1)).clamp(1, LONGEST_PAGE)
}

impl Scope {
    pub(super) fn query(&self) -> Query {
        let mut query = Query::default();
        query.add("labelSelector", self.labels.as_deref());
        query.add("fieldSelector", self.fields.as_deref());
        query
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_as_long_as_their_objects_let_them_be() {
        assert_eq!(next_size(FIRST_PAGE, 3 << 20), 2000, "pods");
        assert_eq!(next_size(2000, 24 << 20), 1000, "larger ones");
        assert_eq!(next_size(FIRST_PAGE, 200 << 20), 30, "very large ones");
        assert_eq!(next_size(FIRST_PAGE, 10), LONGEST_PAGE);
        assert_eq!(next_size(1, usize::MAX), 1);
        assert_eq!(next_size(FIRST_PAGE, 0), LONGEST_PAGE);
    }
}
