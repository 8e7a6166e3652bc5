//! A bare client of streams: what kubectl does once it has started. A kubectl takes longer to start than an answer takes to come, on either way, and
//! would hide what is measured.

use std::time::Duration;

use http::Request;
use http_body_util::BodyExt as _;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use tokio::io::{AsyncRead as _, AsyncReadExt as _, BufReader};
use tokio::time::Instant;

/// As kubectl asks: SPDY to the kubelet is then the API server's own affair, on either way.
const SPEECH: &str = "v5.channel.k8s.io";

/// Nobody checks that it is another one each time.
const KEY: &str = "AAAAAAAAAAAAAAAAAAAAAA==";

const STDOUT: u8 = 1;
const STATUS: u8 = 3;
const BINARY: u8 = 2;

/// Where a pod is.
#[derive(Clone)]
pub(super) struct Spot {
    pub(super) client: Client,
    /// `/api/v1/namespaces/…/pods/…`
    pub(super) path: String,
}

/// A stream that lasts.
pub(super) struct Stream(BufReader<TokioIo<Upgraded>>);

impl Stream {
    async fn open(spot: &Spot, what: &str) -> Self {
        let path = format!("{}/{what}", spot.path);
        let request = Request::get(&path)
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", KEY)
            .header("sec-websocket-protocol", SPEECH)
            .body(Body::empty())
            .unwrap();
        let mut answer = spot.client.send(request).await.unwrap();
        assert_eq!(answer.status(), 101, "{path}");
        Self(BufReader::with_capacity(1 << 10, TokioIo::new(hyper::upgrade::on(&mut answer).await.unwrap())))
    }

    /// To a container's outputs.
    pub(super) async fn attach(spot: &Spot) -> Self {
        Self::open(spot, "attach?container=c&stdout=true&stderr=true").await
    }

    /// What comes next, and in which channel. Nothing where the stream has ended.
    async fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            let kind = self.0.read_u8().await.ok()? & 0x0f;
            let length = match self.0.read_u8().await.ok()? {
                126 => u64::from(self.0.read_u16().await.ok()?),
                127 => self.0.read_u64().await.ok()?,
                length => u64::from(length),
            };
            let mut bytes = vec![0; usize::try_from(length).unwrap()];
            self.0.read_exact(&mut bytes).await.ok()?;
            // Others are pings and good-byes; and each channel says at first, with nothing in it, that it is there.
            if kind == BINARY && bytes.len() > 1 {
                return Some((bytes[0], bytes.split_off(1)));
            }
        }
    }

    /// Waits for words on standard output.
    pub(super) async fn says(&mut self, words: &str) {
        let mut said = Vec::new();
        while !String::from_utf8_lossy(&said).contains(words) {
            let (channel, bytes) = self.next().await.unwrap();
            assert_eq!(channel, STDOUT);
            said.extend(bytes);
        }
    }

    /// Whether nobody has ended it. Nothing is expected to come.
    pub(super) async fn is_there(&mut self) -> bool {
        let mut byte = [0];
        let mut byte = tokio::io::ReadBuf::new(&mut byte);
        let poll = std::future::poll_fn(|context| {
            std::task::Poll::Ready(std::pin::Pin::new(&mut self.0).poll_read(context, &mut byte))
        });
        poll.await.is_pending()
    }
}

/// What a command prints, and whether it succeeds.
async fn run(spot: &Spot, words: &[&str]) -> Vec<u8> {
    let command = words.join("&command=");
    let mut stream =
        Stream::open(spot, &format!("exec?container=c&stdout=true&stderr=true&command={command}")).await;
    let mut said = Vec::new();
    let status: Value = loop {
        match stream.next().await.unwrap() {
            (STDOUT, bytes) => said.extend(bytes),
            (STATUS, bytes) => break serde_json::from_slice(&bytes).unwrap(),
            (channel, bytes) => panic!("channel {channel}: {}", String::from_utf8_lossy(&bytes)),
        }
    };
    assert_eq!(status["status"], "Success", "{status}");
    said
}

/// A command from the first byte of the question to the last of the answer.
pub(super) async fn exec(spot: &Spot) -> Duration {
    let began = Instant::now();
    let said = run(spot, &["echo", "here"]).await;
    let took = began.elapsed();
    assert_eq!(said, b"here\n");
    took
}

pub(super) async fn touch(spot: &Spot, file: &str) {
    run(spot, &["touch", file]).await;
}

/// All of a log: its bytes, and how long they took.
pub(super) async fn logs(spot: &Spot) -> (u64, Duration) {
    let began = Instant::now();
    let request = Request::get(format!("{}/log?container=c", spot.path)).body(Body::empty()).unwrap();
    let answer = spot.client.send(request).await.unwrap();
    assert_eq!(answer.status(), 200);
    let mut body = answer.into_body();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        bytes += frame.unwrap().data_ref().map_or(0, |data| u64::try_from(data.len()).unwrap());
    }
    (bytes, began.elapsed())
}
