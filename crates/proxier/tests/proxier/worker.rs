//! The worker cluster's API server: its API is simulated, its pods echo what they are told, or do what a test wants them to.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kubeocean_testkit::ApiServer;
use parking_lot::Mutex;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tower::ServiceExt as _;

type Body = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// What becomes of the next call to a pod; by default, logs are short and streams echo.
pub(crate) enum Behaviour {
    /// It is refused, as API servers do it.
    Refuses(u16, &'static str),
    /// A log of these lines. As from a kubelet, nothing comes before the first one, not even the head.
    Tells(mpsc::UnboundedReceiver<&'static str>),
    /// Bytes without end.
    Floods,
}

/// Clones are the same.
#[derive(Clone)]
pub(crate) struct Worker(Arc<Shared>);

struct Shared {
    at: SocketAddr,
    phys: ApiServer,
    /// What it was asked beside its API: the request line and the headers.
    asked: Mutex<Vec<String>>,
    next: Mutex<VecDeque<Behaviour>>,
    /// Calls to pods that are under way.
    open: AtomicUsize,
    /// Bytes of floods.
    flooded: AtomicUsize,
    /// Another cluster answers in its place.
    is_another: AtomicBool,
}

/// A call that is under way.
struct Open(Worker);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Worker {
    pub(crate) async fn start(phys: &ApiServer, tasks: &mut JoinSet<()>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let worker = Self(Arc::new(Shared {
            at,
            phys: phys.clone(),
            asked: Mutex::default(),
            next: Mutex::default(),
            open: AtomicUsize::new(0),
            flooded: AtomicUsize::new(0),
            is_another: AtomicBool::new(false),
        }));
        let serving = worker.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let worker = serving.clone();
                let service = service_fn(move |request| {
                    let worker = worker.clone();
                    async move { Ok::<_, Infallible>(worker.answer(request).await) }
                });
                connections.spawn(async move {
                    let connection = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .with_upgrades();
                    drop(connection.await);
                });
            }
        });
        worker
    }

    /// A client of it. It speaks plainly, on this machine.
    pub(crate) fn client(&self) -> kube::Client {
        let at = self.0.at;
        let client = legacy::Client::builder(TokioExecutor::new()).build_http::<kube::client::Body>();
        let service = client.map_request(move |mut request: Request<kube::client::Body>| {
            let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
            *request.uri_mut() = format!("http://{at}{path}").parse().unwrap();
            request
        });
        kube::Client::new(service, "default")
    }

    pub(crate) fn behave(&self, behaviour: Behaviour) {
        self.0.next.lock().push_back(behaviour);
    }

    /// The next log is what is sent here.
    pub(crate) fn tells(&self) -> mpsc::UnboundedSender<&'static str> {
        let (sender, lines) = mpsc::unbounded_channel();
        self.behave(Behaviour::Tells(lines));
        sender
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.0.asked.lock().clone()
    }

    pub(crate) fn last_asked(&self) -> String {
        self.0.asked.lock().pop().unwrap()
    }

    pub(crate) fn open(&self) -> usize {
        self.0.open.load(Ordering::Relaxed)
    }

    pub(crate) fn flooded(&self) -> usize {
        self.0.flooded.load(Ordering::Relaxed)
    }

    pub(crate) fn is_another(&self, is_another: bool) {
        self.0.is_another.store(is_another, Ordering::Relaxed);
    }

    async fn answer(self, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        let subresource = path.split('/').nth(7).unwrap_or_default();
        if !["log", "exec", "attach", "portforward"].contains(&subresource) {
            return self.simulated(request, &path).await;
        }
        let headers: Vec<String> = request
            .headers()
            .iter()
            .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes())))
            .collect();
        let said = format!("{} {}\n{}", request.method(), request.uri(), headers.join("\n"));
        self.0.asked.lock().push(said);
        self.0.open.fetch_add(1, Ordering::Relaxed);
        let open = Open(self.clone());
        let behaviour = self.0.next.lock().pop_front();
        if let Some(Behaviour::Refuses(code, message)) = behaviour {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code});
            let mut response = Response::new(whole(status.to_string()));
            *response.status_mut() = StatusCode::from_u16(code).unwrap();
            response.headers_mut().insert("www-authenticate", "Bearer".parse().unwrap());
            return response;
        }
        let mut response = match behaviour {
            Some(Behaviour::Tells(lines)) if subresource == "log" => Response::new(told(lines, open).await),
            Some(Behaviour::Floods) if subresource == "log" => Response::new(flood(open)),
            behaviour if subresource != "log" => {
                return upgrade(request, matches!(behaviour, Some(Behaviour::Floods)), open);
            }
            _ => Response::new(whole(format!("log of {path}\n"))),
        };
        response.headers_mut().insert("set-cookie", "a=b".parse().unwrap());
        response
    }

    async fn simulated(&self, request: Request<Incoming>, path: &str) -> Response<Body> {
        if self.0.is_another.load(Ordering::Relaxed) && path.starts_with("/api/v1/namespaces/") {
            let namespace = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {
                "name": "mount", "uid": "another", "resourceVersion": "1",
            }});
            return Response::new(whole(namespace.to_string()));
        }
        let (parts, body) = request.into_parts();
        let body = kube::client::Body::from(body.collect().await.unwrap().to_bytes().to_vec());
        let answer = self.0.phys.service("proxier").oneshot(Request::from_parts(parts, body)).await.unwrap();
        answer.map(|body| body.map_err(Into::into).boxed_unsync())
    }
}

fn whole(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).map_err(|never| match never {}).boxed_unsync()
}

async fn told(mut lines: mpsc::UnboundedReceiver<&'static str>, open: Open) -> Body {
    let first = lines.recv().await;
    let frames = futures::stream::unfold((first, lines, open), |(next, mut lines, open)| async move {
        let line = match next {
            Some(line) => line,
            None => lines.recv().await?,
        };
        Some((Ok(Frame::data(Bytes::from_static(line.as_bytes()))), (None, lines, open)))
    });
    StreamBody::new(frames).boxed_unsync()
}

static PIECE: [u8; 64 << 10] = [b'x'; 64 << 10];

fn flood(open: Open) -> Body {
    let frames = futures::stream::unfold(open, |open| async move {
        open.0.0.flooded.fetch_add(PIECE.len(), Ordering::Relaxed);
        Some((Ok(Frame::data(Bytes::from_static(&PIECE))), open))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// The connection becomes another one, which echoes, or floods.
fn upgrade(mut request: Request<Incoming>, floods: bool, open: Open) -> Response<Body> {
    let mut response = Response::new(whole(""));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let asked = request.headers().clone();
    let headers = response.headers_mut();
    headers.insert("set-cookie", "a=b".parse().unwrap());
    headers.insert("connection", "Upgrade".parse().unwrap());
    headers.insert("upgrade", asked["upgrade"].clone());
    if let Some(offered) = asked.get("sec-websocket-protocol") {
        let first = offered.to_str().unwrap().split(',').next().unwrap().trim();
        headers.insert("sec-websocket-protocol", first.parse().unwrap());
        headers.insert("sec-websocket-accept", "accepted".parse().unwrap());
    } else {
        headers.insert("x-stream-protocol-version", "v4.channel.k8s.io".parse().unwrap());
    }
    tokio::spawn(async move {
        let Ok(upgraded) = hyper::upgrade::on(&mut request).await else { return };
        let mut stream = TokioIo::new(upgraded);
        if floods {
            while stream.write_all(&PIECE).await.is_ok() {
                open.0.0.flooded.fetch_add(PIECE.len(), Ordering::Relaxed);
            }
            return;
        }
        let mut buffer = [0; 1024];
        while let Ok(count) = stream.read(&mut buffer).await {
            if count == 0 {
                break;
            }
            drop(stream.write_all(&buffer[..count]).await);
        }
        // Whoever has said all still hears this.
        drop(stream.write_all(b"bye").await);
        drop(stream.shutdown().await);
        drop(open);
    });
    response
}
