//! One call, from the caller's certificate to the answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use kubeocean_cluster::client::Cluster;
use kubeocean_cluster::metrics::{Metrics, PROMETHEUS_TEXT};
use kubeocean_model::action::kinds;
use kubeocean_model::key::{Physical, Virtual};
use kubeocean_model::kubelet::{Errand, NOT_NOW, Needs, PodRoute, Refusal, Route, Telling};
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::callers::Callers;
use crate::headers::{self, Protocol};
use crate::house::Stranger;
use crate::metering::{self, Metering};
use crate::patience::Patience;
use crate::pulse::Pulse;
use crate::rights::Rights;
use crate::stream::{Body, IDLE, whole, whole_with};
use crate::tell::Line;
use crate::tunnel::Tunnel;
use crate::world::World;

pub use crate::house::{Caps, House};

/// A list of the pods of one virtual node, which has some hundred of them: at 20 KB each, some megabytes.
pub const LONGEST_LIST: usize = 64 << 20;

/// How long the reader of an answer that is held in memory may take nothing of it.
pub(crate) const ANSWER_TAKEN_WITHIN: Duration = Duration::from_secs(60);

/// Plain words.
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

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
    /// What is told of this proxier, and of no other.
    pub(crate) metrics: Metrics,
    /// Its connections and its streams.
    pub(crate) tasks: TaskTracker,
    /// It ends soon: others should be asked, and who asks here is still answered.
    pub(crate) leaves: CancellationToken,
    /// Nothing new is begun from then on.
    pub(crate) closes: CancellationToken,
    /// All streams end.
    pub(crate) ends: CancellationToken,
    /// Nobody asks any more, and nothing has to be kept current.
    pub(crate) over: CancellationToken,
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
    /// Nobody has said yet who he is.
    pub(crate) stranger: Arc<Mutex<Option<Stranger>>>,
    /// How long it may take nothing of what is answered.
    pub(crate) patience: Patience,
    /// The port that it came through is another's from then on, or nobody's.
    pub(crate) until: CancellationToken,
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
            protocol: headers::protocol(request.headers()).ok().map(Protocol::as_str),
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
        peer.patience.set(ANSWER_TAKEN_WITHIN);
        if peer.is_too_much {
            return Err(Refusal::new(503, "there are too many connections: try again in a while"));
        }
        // Whoever was still in the handshake, or in the middle of a call, when the port became another's.
        if peer.until.is_cancelled() {
            return Err(Refusal::new(503, "nobody is answered for here any more: connect again"));
        }
        let caller = self.callers.who(&peer.chain, request.headers()).await?;
        drop(peer.stranger.lock().take());
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
        line.binding = desk.world.subject.binding.name.as_str().into();
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
            (Route::Pod(route), Some(vnode)) => {
                let response = desk.connect(route, vnode, request).await?;
                peer.patience.set(IDLE);
                Ok(response)
            }
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
            place: self.house.streams.take(vnode, &self.tasks)?,
            ends: self.pulse.ends(),
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
                let lists = Arc::clone(&self.house.lists);
                let turn = lists.acquire_owned().await.map_err(|_| Refusal::new(503, "this proxier ends"))?;
                let fields = format!("spec.nodeName={vnode}");
                let virt = self.virt.with_longest_answer(LONGEST_LIST);
                let pods = virt.list_as_it_is(&kinds::POD, &fields).await.map_err(|error| {
                    Refusal::new(
                        503,
                        format!("the computing cluster cannot be asked for the pods of {vnode}: {error}"),
                    )
                })?;
                let mut response = Response::new(whole_with(pods, turn));
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                Ok(response)
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
        // Whoever guesses pays for a handshake each time.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
