//! A call to a pod, carried to the worker cluster: the beginning of it, and then bytes.
//!
//! Neither SPDY nor WebSocket is spoken here. Both are agreed upon in headers, and what follows is nobody's business but theirs.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Collected, Limited};
use hyper::body::Incoming;
use kubeocean_cluster::client::{Cluster, Stream};
use kubeocean_cluster::error::CallError;
use kubeocean_model::key::{Key, Physical};
use kubeocean_model::kubelet::{Errand, NOT_NOW, Refusal, Service};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::headers::{self, Protocol};
use crate::stream::{self, Body, Place, whole};

/// What a tunnel is made of.
pub(crate) struct Tunnel<'a> {
    pub(crate) phys: &'a Cluster<Physical>,
    pub(crate) cluster_id: &'a str,
    pub(crate) service: Service,
    pub(crate) errand: &'a Errand,
    pub(crate) twin: &'a Key<Physical>,
    /// What the connection is to become.
    pub(crate) protocol: Option<Protocol>,
    /// The stream counts from the first to the last byte.
    pub(crate) place: Place,
    /// Ends it.
    pub(crate) ends: CancellationToken,
    /// Where they run.
    pub(crate) tasks: &'a TaskTracker,
    /// For the log.
    pub(crate) vnode: &'a Arc<str>,
}

/// A refusal is a sentence or two.
const LONGEST_REFUSAL: usize = 64 << 10;
const TOLD_WITHIN: Duration = Duration::from_secs(10);

const fn resource(service: Service) -> &'static str {
    match service {
        Service::Logs => "pods/log",
        Service::Exec => "pods/exec",
        Service::Attach => "pods/attach",
        Service::PortForward => "pods/portforward",
    }
}

/// Why the worker cluster does not want to, in plain words as kubelets have them: API servers wrap them into an object.
///
/// That it does not know us, or does not let us, is nothing that the caller could mend: a kubelet that cannot reach its runtime says 500 as well.
async fn refusal(answer: Response<kube::client::Body>, cluster_id: &str, resource: &str) -> Refusal {
    let code = answer.status().as_u16();
    let read = Limited::new(answer.into_body(), LONGEST_REFUSAL).collect();
    let read = tokio::time::timeout(TOLD_WITHIN, read).await.ok().and_then(Result::ok);
    let told = read.map(Collected::to_bytes).unwrap_or_default();
    let status = serde_json::from_slice::<serde_json::Value>(&told).ok();
    let message = status.as_ref().and_then(|status| status["message"].as_str().map(str::to_owned));
    let message = message.unwrap_or_else(|| String::from_utf8_lossy(&told).trim().to_owned());
    match code {
        401 | 403 => Refusal::new(
            NOT_NOW,
            format!(
                "worker cluster {cluster_id} does not let this proxier use {resource} ({code}): {message}"
            ),
        ),
        _ => Refusal::new(code, message),
    }
}

impl Tunnel<'_> {
    /// Begins it. What the worker cluster answers is the answer.
    pub(crate) async fn open(self, mut request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
        let stream = Stream {
            method: request.method().clone(),
            path: self.errand.at(self.twin),
            headers: headers::to_worker(request.headers(), self.protocol),
            resource: resource(self.service),
            // A kubelet sends no head before the first line, and the API server before it neither.
            begins_within: self.is_followed().then_some(stream::IDLE),
        };
        let Some(answer) = self.ends.run_until_cancelled(self.phys.open_stream(stream)).await else {
            return Err(Refusal::new(
                NOT_NOW,
                format!("what was asked of worker cluster {} was ended here: try again", self.cluster_id),
            ));
        };
        let answer = answer.map_err(|error| self.unreachable(&error))?;
        let status = answer.status();
        match (status, self.protocol) {
            (StatusCode::SWITCHING_PROTOCOLS, Some(_)) => Ok(self.switch(&mut request, answer)),
            _ if status.is_informational() || status.is_redirection() => Err(Refusal::new(
                502,
                format!("worker cluster {} answered {status}, which is no answer to this", self.cluster_id),
            )),
            _ if status.is_client_error() || status.is_server_error() => {
                Err(refusal(answer, self.cluster_id, resource(self.service)).await)
            }
            _ => {
                let (parts, body) = answer.into_parts();
                let mut response = Response::new(stream::passed_on(body, self.place, self.ends));
                *response.status_mut() = status;
                *response.headers_mut() = headers::to_caller(&parts.headers, false);
                Ok(response)
            }
        }
    }

    /// Whether it may last without a word from the beginning.
    const fn is_followed(&self) -> bool {
        matches!(self.errand, Errand::Logs { options, .. } if options.follow)
    }

    fn unreachable(&self, error: &CallError) -> Refusal {
        Refusal::new(NOT_NOW, format!("worker cluster {} cannot be reached: {error}", self.cluster_id))
    }

    /// Both connections become what was agreed upon, and bytes go both ways from then on.
    fn switch(
        self,
        request: &mut Request<Incoming>,
        mut answer: Response<kube::client::Body>,
    ) -> Response<Body> {
        let mut response = Response::new(whole(""));
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *response.headers_mut() = headers::to_caller(answer.headers(), true);
        let (caller, worker) = (hyper::upgrade::on(request), hyper::upgrade::on(&mut answer));
        let (place, ends, vnode) = (self.place, self.ends, Arc::clone(self.vnode));
        let (twin, service) = (self.twin.clone(), self.service.as_str());
        self.tasks.spawn(async move {
            let _place = place;
            let both = async { tokio::try_join!(caller, worker) };
            let end = match ends.run_until_cancelled(both).await {
                None => stream::End::Stopped,
                Some(Err(_)) => stream::End::Broken,
                Some(Ok((caller, worker))) => stream::carry(caller, worker, &ends).await,
            };
            tracing::debug!(%vnode, %twin, service, ?end, "a stream ended");
        });
        response
    }
}
