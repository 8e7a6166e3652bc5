//! What an informer is to do, collected before it runs; and what it can be told while it does.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use kubeocean_model::action::Kind;
use kubeocean_model::key::OnSide;
use kubeocean_model::object::Object;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Filter, Handler, Informer, Scope};
use crate::client::Cluster;
use crate::metrics::ClusterResource;
use crate::store::{Change, Index, Shape, Store};

/// What others want of a running informer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Control {
    pub(super) paused: bool,
    pub(super) relists: u64,
}

/// Pauses a running informer, or makes it list anew.
#[derive(Clone, Debug)]
pub struct Switch(watch::Sender<Control>);

impl Switch {
    /// Ends the watch. The store stays as it is, and falls behind.
    pub fn pause(&self) {
        self.0.send_modify(|control| control.paused = true);
    }

    /// Catches up and goes on.
    pub fn resume(&self) {
        self.0.send_modify(|control| control.paused = false);
    }

    /// Lists everything anew, for a filter that changed its mind.
    pub fn relist(&self) {
        self.0.send_modify(|control| control.relists += 1);
    }
}

/// Collects what an informer is to do.
pub struct Builder<S, T: 'static> {
    pub(super) cluster: Cluster<S>,
    pub(super) kind: Kind,
    pub(super) scope: Scope,
    pub(super) indexes: Vec<&'static Index<T>>,
    pub(super) handlers: Vec<Handler<S, T>>,
    pub(super) keep: Option<Filter>,
    pub(super) streaming: bool,
}

impl<S: OnSide, T: Shape> Builder<S, T> {
    /// Only objects of this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.scope.namespace = Some(namespace.into());
        self
    }

    /// Only objects with these labels.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.scope.labels = Some(selector.into());
        self
    }

    /// Only objects with these fields.
    #[must_use]
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.scope.fields = Some(selector.into());
        self
    }

    /// Only the metadata of objects travels.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        self.scope.metadata_only = true;
        self
    }

    /// Objects can be looked up by this.
    #[must_use]
    pub fn indexed_by(mut self, index: &'static Index<T>) -> Self {
        self.indexes.push(index);
        self
    }

    /// What does not pass is not stored. A filter that changes its mind needs [`Switch::relist`].
    #[must_use]
    pub fn keep(mut self, filter: impl Fn(&Object) -> bool + Send + Sync + 'static) -> Self {
        self.keep = Some(Box::new(filter));
        self
    }

    /// Is told of every change, after the store has it. It must be quick: it says which keys to look at.
    #[must_use]
    pub fn on_change(mut self, handler: impl Fn(&Change<'_, S, T>) + Send + Sync + 'static) -> Self {
        self.handlers.push(Box::new(handler));
        self
    }

    /// Lists as a stream where the server can, instead of in pages. It spares a server memory, and takes it nearly
    /// twice the time (`make bench`): for kinds with few and large objects.
    #[must_use]
    pub fn streamed(mut self) -> Self {
        self.streaming = true;
        self
    }

    /// The informer, not running yet, and its switch.
    pub fn build(self) -> (Informer<S, T>, Switch) {
        let Self { cluster, kind, scope, indexes, handlers, keep, streaming } = self;
        let (switch, control) = watch::channel(Control::default());
        let store: Store<S, T> = Store::new(&indexes, scope.namespace.as_deref());
        let resource = match &scope.namespace {
            Some(namespace) => format!("{} in {namespace}", kind.plural),
            None => kind.plural.to_string(),
        };
        let labels = ClusterResource { cluster: Arc::clone(cluster.name()), resource: resource.into() };
        let progress = store.progress().clone();
        let age = cluster.metrics().cluster().watch_age.observe(labels.clone(), move || {
            progress.heard_at().map(|heard_at| heard_at.elapsed().as_secs_f64())
        });
        let mut hasher = DefaultHasher::new();
        (cluster.name(), &kind, &scope.namespace, &scope.labels, &scope.fields).hash(&mut hasher);
        let salt = hasher.finish() ^ cluster.seed();
        let informer = Informer {
            connection: cluster.connection(),
            cluster,
            kind,
            scope,
            store,
            handlers,
            keep,
            control,
            streaming,
            labels,
            watches: 0,
            failures: 0,
            complaint: None,
            listed_over: u64::MAX,
            listed_at: Instant::now(),
            relists: 0,
            salt,
            _age: age,
        };
        (informer, Switch(switch))
    }
}
