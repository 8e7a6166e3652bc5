//! One call, from the caller's certificate to the answer.

use std::net::SocketAddr;
use std::sync::Arc;

use http::header::{CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use kubeocean_cluster::client::Cluster;
use kubeocean_cluster::metrics::{Metrics, PROMETHEUS_TEXT};
use kubeocean_model::action::kinds;
use kubeocean_model::key::{Physical, Virtual};
use kubeocean_model::kubelet::{Errand, NOT_NOW, Needs, PodRoute, Refusal, Route, Telling};
use parking_lot::RwLock;
use rustls::pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::callers::Callers;
use crate::headers;
use crate::metering::{self, Metering};
use crate::pulse::Pulse;
use crate::rights::Rights;
use crate::stream::{Body, Streams, whole};
use crate::tell::Line;
use crate::tunnel::Tunnel;
use crate::world::World;

/// A thousand people with `kubectl logs -f` on one node are a mistake.
const STREAMS_PER_NODE: usize = 1024;

/// At 64 KiB each, a quarter of a gigabyte.
const MOST_STREAMS: usize = 4096;

/// Plain words.
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Everything that answers in one process. Clones are the same.
#[derive(Clone)]
pub struct House {
    /// Who answers for which binding.
    desks: Arc<RwLock<Vec<Arc<Desk>>>>,
    pub(crate) streams: Streams,
    pub(crate) connections: Arc<tokio::sync::Semaphore>,
    /// Who listens on the port that all virtual nodes share.
    pub(crate) door: Arc<tokio::sync::Mutex<()>>,
}

/// Twice the streams: scrapers and those who come and go.
const MOST_CONNECTIONS: usize = 2 * MOST_STREAMS;

impl Default for House {
    fn default() -> Self {
        Self {
            desks: Arc::default(),
            streams: Streams::new(MOST_STREAMS, STREAMS_PER_NODE),
            connections: Arc::new(tokio::sync::Semaphore::new(MOST_CONNECTIONS)),
            door: Arc::default(),
        }
    }
}

impl House {
    pub(crate) fn join(&self, desk: &Arc<Desk>) {
        self.desks.write().push(Arc::clone(desk));
    }

    pub(crate) fn leave(&self, desk: &Arc<Desk>) {
        self.desks.write().retain(|one| !Arc::ptr_eq(one, desk));
    }

    /// Who answers for a pod, and as which virtual node.
    fn desk_of(&self, route: &PodRoute) -> Option<(Arc<Desk>, Arc<str>)> {
        let desks = self.desks.read().clone();
        desks.into_iter().find_map(|desk| desk.world.vnode_of(&route.pod).map(|vnode| (desk, vnode)))
    }
}

/// Answers for one binding.
pub(crate) struct Desk {
    pub(crate) house: House,
    pub(crate) world: World,
    pub(crate) virt: Cluster<Virtual>,
    pub(crate) phys: Cluster<Physical>,
    pub(crate) pulse: Pulse,
    pub(crate) callers: Callers,
    pub(crate) rights: Rights,
    /// `None`: nothing is measured.
    pub(crate) metering: Option<Metering>,
    pub(crate) metrics: Metrics,
    pub(crate) tasks: TaskTracker,
    /// Nothing new is begun from then on.
    pub(crate) closes: CancellationToken,
    /// All streams end.
    pub(crate) ends: CancellationToken,
}

/// Through which port a call came.
#[derive(Clone)]
pub(crate) enum Door {
    /// That of one virtual node.
    Node(Arc<str>),
    /// That of all of them: the pod says which.
    Shared,
}

/// Who is at the other end of a connection.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) chain: Arc<[CertificateDer<'static>]>,
    /// There are too many connections: this one is only told so.
    pub(crate) is_too_much: bool,
}

impl Desk {
    /// Answers, and writes down what came of it.
    pub(crate) async fn answer(
        self: Arc<Self>,
        door: Door,
        peer: Peer,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let path = request.uri().path();
        let mut line = Line {
            binding: self.world.subject.binding.name.as_str().into(),
            method: request.method().to_string(),
            path: path.to_owned(),
            peer: peer.address.to_string(),
            caller: None,
            vnode: match &door {
                Door::Node(vnode) => Some(Arc::clone(vnode)),
                Door::Shared => None,
            },
            route: Route::read(path),
        };
        match self.serve(&door, &peer, request, &mut line).await {
            Ok(response) => {
                line.tell(response.status().as_u16(), None);
                response
            }
            Err(refusal) => {
                line.tell(refusal.code, Some(&refusal.message));
                refused(&refusal)
            }
        }
    }

    async fn serve(
        &self,
        door: &Door,
        peer: &Peer,
        request: Request<Incoming>,
        line: &mut Line,
    ) -> Result<Response<Body>, Refusal> {
        if peer.is_too_much {
            return Err(Refusal::new(503, "there are too many connections: try again in a while"));
        }
        let caller = self.callers.who(&peer.chain, request.headers()).await?;
        line.caller = Some(Arc::clone(&caller));
        let (method, path) = (request.method().as_str(), request.uri().path());
        let is_upgrade = headers::asks_for_upgrade(request.headers());
        let not_allowed = || Refusal::new(405, "405: Method Not Allowed");
        let needs = Needs::of(method, path, is_upgrade).ok_or_else(not_allowed)?;
        let found = match (door, &line.route) {
            (Door::Shared, Some(Route::Pod(route))) => self.house.desk_of(route),
            _ => None,
        };
        let (desk, vnode) = match (&found, door) {
            (Some((desk, vnode)), _) => (&**desk, Some(Arc::clone(vnode))),
            (None, Door::Node(vnode)) => (self, Some(Arc::clone(vnode))),
            (None, Door::Shared) => (self, None),
        };
        line.vnode.clone_from(&vnode);
        // Without a node, whoever may ask all of them learns that there is none.
        self.rights.allow(&caller, needs, &vnode.clone().unwrap_or_default()).await?;
        let route = line.route.clone().ok_or_else(|| Refusal::new(404, "404: Page Not Found"))?;
        if !route.takes(method) {
            return Err(not_allowed());
        }
        // None of these has anything to say beside its headers; what would follow is not read by the same rules everywhere.
        if !request.body().is_end_stream() {
            return Err(Refusal::new(400, "this call takes no body"));
        }
        match (&route, &vnode) {
            (Route::Node(telling), Some(vnode)) => desk.tell(*telling, vnode).await,
            (Route::Node(_), None) => Err(Refusal::new(
                404,
                "404: Page Not Found: each virtual node has a port of its own for this",
            )),
            (Route::Pod(_), None) => Err(Refusal::new(404, "pod does not exist")),
            (Route::Pod(route), Some(vnode)) => desk.connect(route, vnode, request).await,
        }
    }

    /// Something is done with a pod.
    async fn connect(
        &self,
        route: &PodRoute,
        vnode: &Arc<str>,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Refusal> {
        let cluster_id = self.world.subject.binding.cluster_id.to_string();
        let twin = self.world.twin(route, vnode).await.map_err(|refusal| self.with_cause(refusal))?;
        let errand = Errand::read(route, request.uri().query().unwrap_or_default())?;
        let is_upgrade = route.service.is_upgrade();
        let protocol = is_upgrade.then(|| headers::protocol(request.headers())).transpose()?;
        if self.closes.is_cancelled() {
            return Err(Refusal::new(NOT_NOW, "this proxier is ending: try again, and another one answers"));
        }
        let tunnel = Tunnel {
            phys: &self.phys,
            cluster_id: &cluster_id,
            service: route.service,
            errand: &errand,
            twin: &twin,
            protocol,
            place: self.house.streams.take(vnode)?,
            ends: &self.ends,
            tasks: &self.tasks,
            vnode,
        };
        let answer = tunnel.open(request).await;
        // The twin's name means nothing to who asks for the pod.
        let named = |refusal: Refusal| {
            Refusal::new(refusal.code, refusal.message.replace(&*twin.name, &route.pod.name))
        };
        answer.map_err(|refusal| self.with_cause(named(refusal)))
    }

    /// What is wrong with the worker cluster, where that is why.
    fn with_cause(&self, refusal: Refusal) -> Refusal {
        match self.pulse.trouble().filter(|_| refusal.code == NOT_NOW) {
            Some(trouble) if !refusal.message.contains(&trouble) => {
                Refusal::new(NOT_NOW, format!("{} ({trouble})", refusal.message))
            }
            _ => refusal,
        }
    }

    /// A virtual node tells something of itself.
    async fn tell(&self, telling: Telling, vnode: &Arc<str>) -> Result<Response<Body>, Refusal> {
        match telling {
            Telling::Health => Ok(said(TEXT, "ok")),
            Telling::Metrics => Ok(said(HeaderValue::from_static(PROMETHEUS_TEXT), self.metrics.encode())),
            Telling::ResourceMetrics => figures(self.metering()?.resource(vnode).await),
            Telling::CadvisorMetrics => figures(self.metering()?.cadvisor(vnode).await),
            Telling::Pods => {
                let fields = format!("spec.nodeName={vnode}");
                let pods = self.virt.list_as_it_is(&kinds::POD, &fields).await.map_err(|error| {
                    Refusal::new(
                        503,
                        format!("the computing cluster cannot be asked for the pods of {vnode}: {error}"),
                    )
                })?;
                Ok(said(HeaderValue::from_static("application/json"), pods))
            }
        }
    }
}

impl Desk {
    fn metering(&self) -> Result<&Metering, Refusal> {
        let off =
            || Refusal::new(404, "404: Page Not Found: nothing is measured here (--metrics-enabled=false)");
        self.metering.as_ref().ok_or_else(off)
    }
}

fn figures(asked: Result<metering::Answer, metering::Refused>) -> Result<Response<Body>, Refusal> {
    match asked {
        Ok(answer) => Ok(said(HeaderValue::from_static(answer.content_type), answer.body)),
        Err(refused) => Err(Refusal::new(refused.code.as_u16(), refused.message)),
    }
}

fn said(content_type: HeaderValue, body: impl Into<bytes::Bytes>) -> Response<Body> {
    let mut response = Response::new(whole(body));
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// A refusal, in the words of a kubelet.
fn refused(refusal: &Refusal) -> Response<Body> {
    let mut response = said(TEXT, format!("{}\n", refusal.message));
    *response.status_mut() = StatusCode::from_u16(refusal.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if refusal.code == 401 {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}
