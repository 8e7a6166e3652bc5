//! What one actor asks of a server, counted on both ends of the wire.
//!
//! On the actor's end every request counts, answered or not: that is where a hot loop shows. Whoever asks
//! without end while no time passes gets no more answers, or the simulation would never end. On the server's
//! end it shows which writes changed nothing.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service, ServiceExt as _};

use crate::ApiServer;
use crate::chaos::request::{Asked, Want};
use crate::oracle::{HOT_LOOP, NO_EMPTY_WRITE, Oracle};

/// A hundred keys that all fail at once with 50 ms between their attempts make 2,000.
const MOST_A_SECOND: u64 = 4_000;

/// Who waited so long for an answer has given up, and may have written the same once more before the first of the two arrived.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(10);

/// When a request was sent.
#[derive(Clone, Copy)]
struct SentAt(Instant);

/// The requests of one actor, to all servers. Clones are the same.
#[derive(Clone)]
pub struct Traffic {
    actor: Arc<str>,
    state: Arc<Mutex<State>>,
    oracle: Oracle,
    excused: Excuse,
}

/// Whether a request, as it is told, may change nothing.
type Excuse = Arc<dyn Fn(&str) -> bool + Send + Sync>;

struct State {
    counts: Counts,
    second: Instant,
    in_second: u64,
    /// Once seen, never answered again.
    too_many: bool,
}

/// How much was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All requests, watches too.
    pub requests: u64,
    /// Those that would change something.
    pub writes: u64,
    /// Writes that the server took, and that changed nothing.
    pub empty_writes: u64,
}

impl Traffic {
    /// Nothing was asked yet.
    pub fn of(actor: impl Into<Arc<str>>, oracle: &Oracle) -> Self {
        let state =
            State { counts: Counts::default(), second: Instant::now(), in_second: 0, too_many: false };
        let state = Arc::new(Mutex::new(state));
        Self { actor: actor.into(), state, oracle: oracle.clone(), excused: Arc::new(|_| false) }
    }

    /// The same, for an actor some of whose writes may change nothing through no fault of its own.
    #[must_use]
    pub fn excusing(mut self, excused: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.excused = Arc::new(excused);
        self
    }

    /// Who it is.
    pub fn actor(&self) -> &str {
        &self.actor
    }

    /// How much it was so far.
    pub fn counts(&self) -> Counts {
        self.state.lock().counts
    }

    /// To be put before everything else.
    pub fn sent(&self) -> SentLayer {
        SentLayer(self.clone())
    }

    /// To be put right before the server.
    pub fn heard_by(&self, server: &ApiServer) -> HeardLayer {
        HeardLayer(self.clone(), server.clone())
    }

    /// Counts a request, and says whether it may pass.
    fn count(&self, asked: &Asked) -> bool {
        let mut state = self.state.lock();
        state.counts.requests += 1;
        state.counts.writes += u64::from(asked.is_write());
        let now = Instant::now();
        if now.duration_since(state.second).as_secs() >= 1 {
            state.second = now;
            state.in_second = 0;
        }
        state.in_second += 1;
        state.too_many |= state.in_second > MOST_A_SECOND;
        let too_many = state.too_many;
        drop(state);
        let (actor, line) = (Arc::clone(&self.actor), asked.clone());
        self.oracle.story().tell(move || format!("> {actor}: {line}"));
        if too_many {
            self.oracle.report(HOT_LOOP, format!("{} asks without end: {asked}", self.actor));
        }
        !too_many
    }

    fn wrote_nothing(&self, asked: &Asked) {
        if (self.excused)(&asked.to_string()) {
            return;
        }
        self.state.lock().counts.empty_writes += 1;
        self.oracle.report(NO_EMPTY_WRITE, format!("{}: {asked}", self.actor));
    }
}

/// Counts on the actor's end.
#[derive(Clone)]
pub struct SentLayer(Traffic);

/// Counts on the server's end.
#[derive(Clone)]
pub struct HeardLayer(Traffic, ApiServer);

/// See [`Traffic::sent`].
#[derive(Clone)]
pub struct Sent<S> {
    traffic: Traffic,
    inner: S,
}

/// See [`Traffic::heard_by`].
#[derive(Clone)]
pub struct Heard<S> {
    traffic: Traffic,
    server: ApiServer,
    inner: S,
}

impl<S> Layer<S> for SentLayer {
    type Service = Sent<S>;

    fn layer(&self, inner: S) -> Sent<S> {
        Sent { traffic: self.0.clone(), inner }
    }
}

impl<S> Layer<S> for HeardLayer {
    type Service = Heard<S>;

    fn layer(&self, inner: S) -> Heard<S> {
        Heard { traffic: self.0.clone(), server: self.1.clone(), inner }
    }
}

type Answering<B, E> = Pin<Box<dyn Future<Output = Result<Response<B>, E>> + Send>>;

impl<S, B> Service<Request<Body>> for Sent<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    B: 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Answering<B, BoxError>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        request.extensions_mut().insert(SentAt(Instant::now()));
        if self.traffic.count(&Asked::of(&request)) {
            Box::pin(self.inner.call(request))
        } else {
            Box::pin(std::future::pending())
        }
    }
}

impl<S, B> Service<Request<Body>> for Heard<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Answering<B, BoxError>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let asked = Asked::of(&request);
        let sent = request.extensions().get::<SentAt>().copied();
        let is_late = sent.is_some_and(|sent| sent.0.elapsed() >= GIVEN_UP_AFTER);
        let Self { traffic, server, inner } = self.clone();
        Box::pin(async move {
            let before = server.revision();
            let answer = inner.oneshot(request).await?;
            // The simulated server answers in one step: nobody else wrote meanwhile.
            let is_empty =
                asked.want == Want::Change && answer.status().is_success() && server.revision() == before;
            // Who knows an object of a history that is no more may by chance want what it is already.
            if is_empty && !is_late && !server.was_restored() {
                traffic.wrote_nothing(&asked);
            }
            Ok(answer)
        })
    }
}

impl std::fmt::Debug for Traffic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Traffic")
            .field("actor", &self.actor)
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}
