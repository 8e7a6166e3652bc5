//! One cluster: every call to it goes through here.
//!
//! A [`Cluster`] outlives its connection. When credentials change, [`Cluster::replace`] puts another
//! connection beneath it; informers keep what they know, and calls that are under way end on the old one.
//!
//! Each call has a deadline, counts against the limit of its cluster, and is measured. None is repeated
//! here: who asked knows whether asking again is right.
//!
//! Deliberately absent: kinds as types, caches, and writing (which is [`apply`](crate::apply)'s).

mod page;
mod path;

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use kubeocean_model::action::Kind;
use kubeocean_model::key::{Key, OnSide};
use kubeocean_model::object::Object;
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::BoxError;

use crate::backoff::process_seed;
use crate::credentials::{CredentialError, Credentials};
use crate::error::{CallError, Status};
use crate::guard::WhileLeading;
use crate::leader::Leadership;
use crate::limit::{Limiter, Permit};
use crate::metrics::{ClusterLabels, Metrics, RequestDuration, RequestLabels};
pub(crate) use page::{Page, PageMeta, name_of, parse, readable};
pub(crate) use path::{Query, collection_path, object_path};

/// Between a slow write on a loaded server (seconds) and the minute after which it gives up itself.
const DEADLINE: Duration = Duration::from_secs(30);

/// One API server takes 600 calls at a time by default (400 reading, 200 writing) for everybody. We take
/// a sixth of the writing ones.
const CALLS_AT_A_TIME: usize = 32;

/// A page of 500 objects of half a megabyte each. A worker's server is not ours: it must not fill our memory.
pub const LONGEST_PAGE: usize = 256 << 20;

/// Objects that are counted at a time: of each its metadata, which is some kilobytes.
const COUNTED_AT_A_TIME: &str = "50";

/// A status, or a page of a proxy.
const LONGEST_REFUSAL: usize = 1 << 20;

/// Watches of many informers end at different times. A silent drop is noticed after two minutes at most;
/// renewing costs one small call a minute.
const WATCH_FOR: Duration = Duration::from_secs(60);

/// A cluster on side `S`. Clones are the same cluster.
pub struct Cluster<S> {
    inner: Arc<Inner>,
    longest_answer: usize,
    side: PhantomData<fn() -> S>,
}

struct Inner {
    name: Arc<str>,
    upstream: ArcSwap<Upstream>,
    proof: Mutex<Proof>,
    limiter: Limiter,
    deadline: Duration,
    agent: HeaderValue,
    watch_for: Duration,
    seed: u64,
    metrics: Metrics,
    limit_shown: Gauge,
    in_flight_shown: Gauge,
}

struct Upstream {
    client: kube::Client,
    /// What it was made of, where that is known: those who ask others of the same cluster need it.
    credentials: Option<Arc<Credentials>>,
    connection: Connection,
}

/// Which connection has shown that it leads where it should.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Proof {
    /// Nobody asks.
    #[default]
    NotWanted,
    /// None yet.
    None,
    /// The one of this number.
    Of(u64),
}

/// One of the connections that a cluster has over time; whoever holds a stream of an older one opens another.
///
/// Those who wait for its end hear of it in the order in which they began to wait, so that a simulated run is the same
/// each time. A `watch` channel wakes in random order.
#[derive(Clone, Default)]
pub(crate) struct Connection {
    pub(crate) number: u64,
    pub(crate) left: CancellationToken,
}

/// How a cluster is spoken to.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its name in metrics and logs: `virtual`, or the name of the binding.
    pub name: String,
    /// Who is asking: `kubeocean-syncer`. The version is added.
    pub component: String,
    /// The longest that one call may take from when it is sent, but for watches.
    pub deadline: Duration,
    /// The most calls at a time, but for watches and vital ones.
    pub calls_at_a_time: usize,
    /// The most calls per second, on the average, after a first burst of `calls_at_a_time`; `None`: as many as the
    /// server takes.
    pub calls_per_second: Option<f32>,
    /// How long a watch lives before it is renewed, and up to twice as long: that is when a silent drop is
    /// noticed.
    pub watch_for: Duration,
    /// The longest answer in bytes, but for watches. Who asks small questions to servers of others has a small one.
    pub longest_answer: usize,
    /// What delays are jittered by: another number in every process, a fixed one in simulations.
    pub seed: u64,
    /// Where it is counted.
    pub metrics: Metrics,
}

impl Settings {
    /// With the usual limits.
    pub fn new(name: impl Into<String>, component: impl Into<String>, metrics: &Metrics) -> Self {
        Self {
            name: name.into(),
            component: component.into(),
            deadline: DEADLINE,
            calls_at_a_time: CALLS_AT_A_TIME,
            calls_per_second: None,
            watch_for: WATCH_FOR,
            longest_answer: LONGEST_PAGE,
            seed: process_seed(),
            metrics: metrics.clone(),
        }
    }

    /// With the limits of flags: no rate is as many as the server takes.
    #[must_use]
    pub fn limited(mut self, qps: f32, burst: u32) -> Self {
        self.calls_at_a_time = usize::try_from(burst).unwrap_or(usize::MAX).max(1);
        self.calls_per_second = (qps > 0.0).then_some(qps);
        self
    }
}

/// Whether a call waits for its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lane {
    /// Within the limit.
    #[default]
    Normal,
    /// Beside the limit: a hold, a node's lease.
    Vital,
}

/// A question to an API server, before it is sent.
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) content_type: &'static str,
    pub(crate) accept: &'static str,
    pub(crate) lane: Lane,
    /// Asked last of all, after every wait: that for a turn, and that for a connection.
    pub(crate) leadership: Option<Leadership>,
    /// Only over a connection that was found right, where that is asked for.
    pub(crate) proven: bool,
    /// Set in the moment of sending.
    pub(crate) sent: Option<Arc<AtomicBool>>,
    /// For metrics.
    pub(crate) verb: &'static str,
    pub(crate) resource: Arc<str>,
    /// Beside our own, and instead of them.
    pub(crate) headers: HeaderMap,
}

/// Something that lasts, before it is begun.
#[derive(Debug)]
pub struct Stream {
    /// GET or POST.
    pub method: Method,
    /// The whole of it, with its query.
    pub path: String,
    /// Those that go along: the caller's choice, and no others but our own.
    pub headers: HeaderMap,
    /// Of what, for metrics: `pods/exec`.
    pub resource: &'static str,
    /// How long nothing may be heard at the beginning; `None`: as of any call. Of a log that is followed, not even the head comes before its first
    /// line does.
    pub begins_within: Option<Duration>,
}

impl Call {
    pub(crate) fn read(verb: &'static str, kind: &Kind, path: String) -> Self {
        Self::read_of(verb, Arc::from(&*kind.plural), path)
    }

    fn read_of(verb: &'static str, resource: Arc<str>, path: String) -> Self {
        Self {
            method: Method::GET,
            path,
            body: None,
            content_type: JSON,
            accept: JSON,
            lane: Lane::Normal,
            leadership: None,
            proven: false,
            sent: None,
            verb,
            resource,
            headers: HeaderMap::new(),
        }
    }
}

pub(crate) const JSON: &str = "application/json";
pub(crate) const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

impl<S: OnSide> Cluster<S> {
    /// A cluster behind these credentials. Nothing is dialled yet.
    pub fn connect(credentials: Credentials, settings: Settings) -> Result<Self, CredentialError> {
        let cluster = Self::over(credentials.clone().client()?, settings);
        cluster.begin_with(&Arc::new(credentials));
        Ok(cluster)
    }

    /// A cluster behind a client that someone else made: a simulated API server, for example.
    pub fn over(client: kube::Client, settings: Settings) -> Self {
        let Settings {
            name,
            component,
            deadline,
            calls_at_a_time,
            calls_per_second,
            watch_for,
            longest_answer,
            seed,
            metrics,
        } = settings;
        let agent = HeaderValue::from_str(&format!("{component}/{}", env!("CARGO_PKG_VERSION")))
            .unwrap_or(HeaderValue::from_static("kubeocean"));
        let name: Arc<str> = name.into();
        let labels = ClusterLabels { cluster: Arc::clone(&name) };
        let inner = Inner {
            limit_shown: metrics.cluster().request_limit.of(&labels),
            in_flight_shown: metrics.cluster().requests_in_flight.of(&labels),
            name,
            upstream: ArcSwap::from_pointee(Upstream {
                client,
                credentials: None,
                connection: Connection::default(),
            }),
            proof: Mutex::default(),
            limiter: Limiter::new(calls_at_a_time, calls_per_second),
            deadline,
            agent,
            watch_for,
            seed,
            metrics,
        };
        let cluster = Self { inner: Arc::new(inner), longest_answer, side: PhantomData };
        cluster.show_load();
        cluster
    }

    /// From now on every call goes to these credentials. Calls under way end on the old connection;
    /// watches move over and go on where they were.
    pub fn replace(&self, credentials: Credentials) -> Result<(), CredentialError> {
        self.replace_by(&credentials.clone().client()?, Some(&Arc::new(credentials)));
        Ok(())
    }

    /// As [`Cluster::replace`], with a client that someone else made. Without its credentials the kubelets of the cluster cannot be asked: who we are to
    /// them is not known.
    pub fn replace_over(&self, client: &kube::Client) {
        self.replace_by(client, None);
    }

    /// As [`Cluster::replace`], with a client that was made of these credentials.
    pub fn replace_by(&self, client: &kube::Client, credentials: Option<&Arc<Credentials>>) {
        let before = self.inner.upstream.rcu(|before| Upstream {
            client: client.clone(),
            credentials: credentials.cloned(),
            connection: Connection { number: before.connection.number + 1, left: CancellationToken::new() },
        });
        self.inner.limiter.start_anew();
        before.connection.left.cancel();
    }

    /// The client that it was made with was made of these credentials.
    pub fn begin_with(&self, credentials: &Arc<Credentials>) {
        self.inner.upstream.rcu(|made| Upstream {
            client: made.client.clone(),
            credentials: Some(Arc::clone(credentials)),
            connection: made.connection.clone(),
        });
    }

    /// Who we are to it by the present connection, if that was found right, and its number.
    pub(crate) fn credentials(&self) -> Result<(Option<Arc<Credentials>>, u64), CallError> {
        let upstream = self.inner.upstream.load();
        let number = upstream.connection.number;
        self.is_proven(number)?;
        Ok((upstream.credentials.clone(), number))
    }

    fn is_proven(&self, connection: u64) -> Result<(), CallError> {
        match *self.inner.proof.lock() {
            Proof::NotWanted => Ok(()),
            Proof::Of(number) if number == connection => Ok(()),
            Proof::None | Proof::Of(_) => Err(CallError::Unproven),
        }
    }

    /// From now on nothing is written, and no single object read, over a connection that nobody has [found right](Cluster::proven): another cluster
    /// may answer in this one's place.
    pub fn wants_proof(&self) {
        let mut proof = self.inner.proof.lock();
        if *proof == Proof::NotWanted {
            *proof = Proof::None;
        }
    }

    /// The number of the present connection.
    pub fn connection_number(&self) -> u64 {
        self.inner.upstream.load().connection.number
    }

    /// The connection of this number leads where it should.
    pub fn proven(&self, connection: u64) {
        let mut proof = self.inner.proof.lock();
        if *proof != Proof::NotWanted {
            *proof = Proof::Of(connection);
        }
    }

    /// Another cluster answers over the connection of this number: nothing more goes over it, until it is found right again.
    pub fn disproven(&self, connection: u64) {
        let mut proof = self.inner.proof.lock();
        if *proof == Proof::Of(connection) {
            *proof = Proof::None;
        }
    }

    /// The same cluster, to ask for more at a time, or for less.
    #[must_use]
    pub fn with_longest_answer(&self, longest_answer: usize) -> Self {
        Self { longest_answer, ..self.clone() }
    }

    /// Its name in metrics and logs.
    pub fn name(&self) -> &Arc<str> {
        &self.inner.name
    }

    /// One object, or `None` if there is none. Asks the API server: for what no informer watches.
    pub async fn get(&self, kind: &Kind, key: &Key<S>) -> Result<Option<Object>, CallError> {
        self.get_in(Lane::Normal, kind, key).await
    }

    /// As [`Cluster::get`], over whatever connection there is, and beside the limit: to find out where that leads, and whether anybody
    /// answers. Who waits behind his own crowd would take that for silence.
    pub async fn get_unproven(&self, kind: &Kind, key: &Key<S>) -> Result<Option<Object>, CallError> {
        self.get_over(false, Lane::Vital, kind, key).await
    }

    /// As [`Cluster::get`], beside the limit.
    pub(crate) async fn get_vital(&self, kind: &Kind, key: &Key<S>) -> Result<Option<Object>, CallError> {
        self.get_in(Lane::Vital, kind, key).await
    }

    pub(crate) async fn get_in(
        &self,
        lane: Lane,
        kind: &Kind,
        key: &Key<S>,
    ) -> Result<Option<Object>, CallError> {
        self.get_over(true, lane, kind, key).await
    }

    async fn get_over(
        &self,
        proven: bool,
        lane: Lane,
        kind: &Kind,
        key: &Key<S>,
    ) -> Result<Option<Object>, CallError> {
        // Without a name, a path means all objects there are.
        if key.name.is_empty() {
            return Ok(None);
        }
        let path = object_path(kind, &key.namespace, &key.name, None);
        match self.ask(Call { lane, proven, ..Call::read("get", kind, path) }).await {
            Ok(bytes) => parse(&bytes).map(Some),
            Err(CallError::Refused(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All objects of a kind in a namespace (or everywhere), with a label selector. Asks the API server.
    pub async fn list(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        labels: Option<&str>,
    ) -> Result<Vec<Object>, CallError> {
        let mut query = Query::default();
        query.add("labelSelector", labels);
        self.list_where(kind, namespace, &query).await
    }

    /// As [`Cluster::list`], with a field selector.
    pub async fn list_by_fields(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        fields: &str,
    ) -> Result<Vec<Object>, CallError> {
        let mut query = Query::default();
        query.add("fieldSelector", Some(fields));
        self.list_where(kind, namespace, &query).await
    }

    async fn list_where(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        query: &Query,
    ) -> Result<Vec<Object>, CallError> {
        let path = format!("{}{query}", collection_path(kind, namespace.unwrap_or_default()));
        let page = Page::read(&self.ask(Call::read("list", kind, path)).await?)?;
        match page.unreadable.first() {
            None => Ok(page.items),
            Some((namespace, name)) => {
                Err(CallError::Malformed { cause: format!("{} {namespace}/{name}", kind.plural) })
            }
        }
    }

    /// All that is said of a namespace, as the server says it: for kinds that are made when they are asked for, and so have no version.
    pub async fn list_made(&self, kind: &Kind, namespace: &str) -> Result<Bytes, CallError> {
        let path = collection_path(kind, namespace);
        self.ask(Call { proven: true, ..Call::read("list", kind, path) }).await
    }

    /// As [`Cluster::list_by_fields`], as the server wrote it: with everything that we do not know.
    pub async fn list_as_it_is(&self, kind: &Kind, fields: &str) -> Result<Bytes, CallError> {
        let mut query = Query::default();
        query.add("fieldSelector", Some(fields));
        self.ask(Call::read("list", kind, format!("{}{query}", collection_path(kind, "")))).await
    }

    /// How many objects of a kind there are, without having them sent.
    pub async fn how_many(&self, kind: &Kind) -> Result<usize, CallError> {
        let mut query = Query::default();
        query.add("limit", Some("1"));
        let path = format!("{}{query}", collection_path(kind, ""));
        let page = Page::read(&self.ask(Call::read("list", kind, path)).await?)?;
        // What remains is any number that the server likes to say.
        Ok(page.len().saturating_add(page.metadata.remaining))
    }

    /// How many objects of a kind there are in a namespace (or everywhere), with a label selector. They are asked for page by page, and of
    /// each only who it is.
    pub async fn how_many_labelled(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        labels: &str,
    ) -> Result<usize, CallError> {
        let (mut count, mut more) = (0_usize, String::new());
        loop {
            let mut query = Query::default();
            query.add("labelSelector", Some(labels));
            query.add("limit", Some(COUNTED_AT_A_TIME));
            query.add("continue", Some(&more));
            let path = format!("{}{query}", collection_path(kind, namespace.unwrap_or_default()));
            let call = Call { accept: METADATA_LIST, ..Call::read("list", kind, path) };
            let page = Page::read(&self.ask(call).await?)?;
            count = count.saturating_add(page.len());
            more = page.metadata.more;
            if more.is_empty() {
                return Ok(count);
            }
        }
    }

    /// Whether the API server serves a kind.
    pub async fn serves(&self, kind: &Kind) -> Result<bool, CallError> {
        match self.ask(Call::read("get", kind, kind.version_path())).await {
            Ok(bytes) => {
                let answer: Value = parse(&bytes)?;
                let served = answer["resources"].as_array().map_or(&[][..], Vec::as_slice);
                Ok(served.iter().any(|resource| resource["name"] == *kind.plural))
            }
            Err(CallError::Refused(status)) if status.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Asks for a review (access, token, self): nothing is stored by it.
    pub async fn review(&self, kind: &Kind, body: &Value) -> Result<Value, CallError> {
        let call = Call {
            method: Method::POST,
            body: Some(body.to_string().into_bytes()),
            ..Call::read("create", kind, kind.collection_path(None))
        };
        parse(&self.ask(call).await?)
    }

    /// Whether the API server answers, and as which version.
    pub async fn version(&self) -> Result<String, CallError> {
        let kind = Kind::cluster_scoped("", "v1", "Version", "version");
        let call = Call { lane: Lane::Vital, ..Call::read("get", &kind, "/version".to_owned()) };
        let answer: Value = parse(&self.ask(call).await?)?;
        Ok(answer["gitVersion"].as_str().unwrap_or_default().to_owned())
    }

    /// Sends a call and reads its whole answer, within the deadline.
    pub(crate) async fn ask(&self, call: Call) -> Result<Bytes, CallError> {
        let inner = &self.inner;
        let permit = match call.lane {
            Lane::Normal => Some(inner.limiter.acquire().await),
            Lane::Vital => None,
        };
        if call.leadership.as_ref().is_some_and(|leadership| !leadership.holds()) {
            return Err(CallError::NotLeading);
        }
        if let Some(sent) = &call.sent {
            sent.store(true, Ordering::Relaxed);
        }
        self.show_load();
        let started = Instant::now();
        let (verb, resource) = (call.verb, Arc::clone(&call.resource));
        let answer = async {
            let response = self.send(call).await?;
            read(response, self.longest_answer).await
        };
        let result = tokio::time::timeout(inner.deadline, answer)
            .await
            .unwrap_or(Err(CallError::TimedOut { limit: inner.deadline }));
        self.learn_from(permit.as_ref(), &result);
        drop(permit);
        self.show_load();
        let metrics = inner.metrics.cluster();
        let labels =
            RequestDuration { cluster: Arc::clone(&inner.name), verb, resource: Arc::clone(&resource) };
        metrics.request_duration.of(&labels).observe(started.elapsed().as_secs_f64());
        self.count(verb, resource, result.as_ref().map(|(code, _)| *code));
        result.map(|(_, bytes)| bytes)
    }

    /// Sends a call whose answer is a stream; the deadline is for its beginning. Not limited: watches
    /// are few and live long.
    pub(crate) async fn open(&self, call: Call) -> Result<Response<Body>, CallError> {
        let (verb, resource) = (call.verb, Arc::clone(&call.resource));
        let answer = async {
            let response = self.send(call).await?;
            if response.status().is_success() { Ok(response) } else { Err(refusal(response).await) }
        };
        let result = tokio::time::timeout(self.inner.deadline, answer)
            .await
            .unwrap_or(Err(CallError::TimedOut { limit: self.inner.deadline }));
        self.learn_from(None, &result);
        self.count(verb, resource, result.as_ref().map(Response::status));
        result
    }

    /// Begins something that lasts for as long as both sides want: a log, or a connection that becomes another one. The deadline is for its
    /// beginning, and any answer is one; to connect has one of its own. Not limited, and only over a connection that was found right.
    pub async fn open_stream(&self, stream: Stream) -> Result<Response<Body>, CallError> {
        let Stream { method, path, headers, resource, begins_within } = stream;
        let limit = begins_within.unwrap_or(self.inner.deadline);
        // Passed on to kubelets, which have nothing else to offer where JSON is asked for.
        let accept = "*/*";
        let call = Call {
            method,
            proven: true,
            headers,
            accept,
            ..Call::read_of("connect", Arc::from(resource), path)
        };
        let (verb, resource) = (call.verb, Arc::clone(&call.resource));
        let result =
            tokio::time::timeout(limit, self.send(call)).await.unwrap_or(Err(CallError::TimedOut { limit }));
        self.learn_from(None, &result);
        self.count(verb, resource, result.as_ref().map(Response::status));
        result
    }

    /// The present one.
    pub(crate) fn connection(&self) -> Connection {
        self.inner.upstream.load().connection.clone()
    }

    pub(crate) fn watch_for(&self) -> Duration {
        self.inner.watch_for
    }

    pub(crate) fn seed(&self) -> u64 {
        self.inner.seed
    }

    /// Where it is counted.
    pub fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    async fn send(&self, call: Call) -> Result<Response<Body>, CallError> {
        let mut request = Request::builder()
            .method(call.method)
            .uri(call.path)
            .header(USER_AGENT, &self.inner.agent)
            .header(ACCEPT, call.accept)
            // Watches that are compressed event by event are not read by the client beneath.
            .header(ACCEPT_ENCODING, "identity");
        if call.body.is_some() {
            request = request.header(CONTENT_TYPE, call.content_type);
        }
        let only = call.leadership.map(WhileLeading::new);
        if let Some(only) = &only {
            request = request.extension(only.clone());
        }
        let mut request = request
            .body(Body::from(call.body.unwrap_or_default()))
            .map_err(|error| CallError::Malformed { cause: error.to_string() })?;
        // Those of one name replace ours, all of them.
        request.headers_mut().extend(call.headers);
        let upstream = self.inner.upstream.load_full();
        if call.proven {
            self.is_proven(upstream.connection.number)?;
        }
        upstream.client.send(request).await.map_err(|error| match only {
            Some(only) if only.held_back() => CallError::NotLeading,
            _ => CallError::unreachable(&error),
        })
    }

    fn learn_from<T>(&self, permit: Option<&Permit>, result: &Result<T, CallError>) {
        match result {
            Err(CallError::Refused(status)) if status.is_throttled() => {
                self.inner.limiter.throttled(permit, status.retry_after());
            }
            // A server in trouble says nothing about how much it would take.
            Err(CallError::Refused(status)) if status.code >= 500 => {}
            Ok(_) | Err(CallError::Refused(_)) => self.inner.limiter.answered(),
            Err(_) => {}
        }
    }

    fn show_load(&self) {
        let (limit, in_flight) = self.inner.limiter.load();
        let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.inner.limit_shown.set(number(limit));
        self.inner.in_flight_shown.set(number(in_flight));
    }

    pub(crate) fn agent(&self) -> &HeaderValue {
        &self.inner.agent
    }

    pub(crate) fn count(
        &self,
        verb: &'static str,
        resource: Arc<str>,
        result: Result<StatusCode, &CallError>,
    ) {
        let code = match result {
            Ok(code) => Arc::from(code.as_str()),
            Err(error) => error.code(),
        };
        let labels = RequestLabels { cluster: Arc::clone(&self.inner.name), verb, resource, code };
        self.inner.metrics.cluster().requests.of(&labels).inc();
    }
}

impl<S> Clone for Cluster<S> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), longest_answer: self.longest_answer, side: PhantomData }
    }
}

impl<S> std::fmt::Debug for Cluster<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("name", &self.inner.name).finish_non_exhaustive()
    }
}

async fn read(response: Response<Body>, longest: usize) -> Result<(StatusCode, Bytes), CallError> {
    let code = response.status();
    if !code.is_success() {
        return Err(refusal(response).await);
    }
    match Limited::new(response.into_body(), longest).collect().await {
        Ok(body) => Ok((code, body.to_bytes())),
        Err(error) => Err(CallError::unreachable(&*error)),
    }
}

/// What the server said, as a status; made up where it did not send one (proxies, panics).
pub(crate) async fn refusal<B>(response: Response<B>) -> CallError
where
    B: http_body::Body,
    B::Error: Into<BoxError>,
{
    let code = response.status().as_u16();
    let retry_after = response
        .headers()
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok())
        .and_then(|seconds| seconds.parse().ok());
    match Limited::new(response.into_body(), LONGEST_REFUSAL).collect().await {
        Ok(body) => CallError::Refused(Box::new(Status::read(code, retry_after, &body.to_bytes()))),
        Err(error) => CallError::unreachable(&*error),
    }
}
