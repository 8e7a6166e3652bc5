//! A watch that is mistreated: its lines doubled, held back, swallowed, or ended too early.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::stream;
use http_body::{Body as HttpBody, Frame};
use http_body_util::{BodyExt as _, StreamBody};
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use tokio::time::Instant;
use tower::BoxError;

use super::request::Asked;
use super::{Chaos, ChaosBody, Partition, Profile, Weather, chance, fair, reset};
use crate::news;

/// Nearly all watches of ours live longer than this, so that what is drawn happens.
const SOON: Duration = Duration::from_secs(60);

const EXPIRED: &str = concat!(
    r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
    r#""message":"too old resource version (says chaos)","reason":"Expired","code":410}}"#,
    "\n"
);

/// What a watch will suffer.
pub(super) struct Mood {
    rng: ChaCha8Rng,
    twice: f64,
    late: f64,
    latest: Duration,
    end: Option<(Duration, Ending)>,
}

/// How a watch goes wrong.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ending {
    Closed,
    Reset,
    HalfALine,
    Silent,
    /// It says nothing for so long, and then that it expired.
    Gap(Duration),
}

impl Mood {
    pub(super) fn drawn(profile: &Profile, rng: &mut ChaCha8Rng) -> Self {
        let end = if rng.random_bool(chance(profile.watch_gap)) {
            Some(Ending::Gap(SOON.mul_f64(rng.random())))
        } else if rng.random_bool(chance(profile.watch_cut)) {
            Some([Ending::Closed, Ending::Reset, Ending::HalfALine][rng.random_range(0..3)])
        } else if rng.random_bool(chance(profile.watch_silent)) {
            Some(Ending::Silent)
        } else {
            None
        };
        // Half of them at once: while the first events are on their way.
        let when = if rng.random() {
            SOON.mul_f64(rng.random())
        } else {
            Duration::from_millis(rng.random_range(0..50))
        };
        Self {
            twice: profile.event_twice,
            late: profile.event_late,
            latest: profile.latest,
            end: end.map(|end| (when, end)),
            rng: rng.clone(),
        }
    }
}

pub(super) struct Mistreated<B> {
    chaos: Chaos,
    asked: Asked,
    body: std::pin::Pin<Box<B>>,
    buffer: BytesMut,
    lines: VecDeque<Bytes>,
    mood: Mood,
    end: Option<(Instant, Ending)>,
    weather: news::Receiver<Weather>,
    over: bool,
}

impl<B> Mistreated<B>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError> + Send,
{
    pub(super) fn new(chaos: &Chaos, body: B, mood: Mood, asked: &Asked) -> Self {
        Self {
            chaos: chaos.clone(),
            asked: asked.clone(),
            body: Box::pin(body),
            buffer: BytesMut::new(),
            lines: VecDeque::new(),
            end: mood.end.map(|(after, ending)| (Instant::now() + after, ending)),
            mood,
            weather: chaos.weather.subscribe(),
            over: false,
        }
    }

    pub(super) fn into_body(self) -> ChaosBody {
        let lines = stream::unfold(self, |mut watch| async move {
            let line = watch.next().await?;
            Some((line.map(Frame::data), watch))
        });
        StreamBody::new(lines).boxed_unsync()
    }

    async fn next(&mut self) -> Option<Result<Bytes, BoxError>> {
        loop {
            if self.over {
                return None;
            }
            if let Err(error) = self.weather_permits().await {
                self.over = true;
                return Some(Err(error));
            }
            if let Some(line) = self.lines.pop_front() {
                return Some(Ok(self.suffer(line).await));
            }
            let end_at = self.end.map(|(at, _)| at);
            tokio::select! {
                biased;
                () = self.weather.changed() => {}
                () = until(end_at) => {
                    let (_, ending) = self.end.take()?;
                    if !self.chaos.is_calm() {
                        return self.end(ending).await;
                    }
                }
                frame = self.body.frame() => match frame {
                    None => return None,
                    Some(Err(error)) => return Some(Err(error.into())),
                    Some(Ok(frame)) => self.take_in(frame),
                }
            }
        }
    }

    async fn weather_permits(&mut self) -> Result<(), BoxError> {
        loop {
            match self.weather.look() {
                Weather::Fair => return Ok(()),
                Weather::Apart(Partition::Resets) => return Err(reset()),
                Weather::Apart(Partition::Silent) => {
                    fair(&mut self.weather).await;
                    if self.mood.rng.random() {
                        std::future::pending::<()>().await;
                    }
                }
            }
        }
    }

    fn take_in(&mut self, frame: Frame<Bytes>) {
        if let Ok(data) = frame.into_data() {
            self.buffer.extend_from_slice(&data);
        }
        while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
            self.lines.push_back(self.buffer.split_to(end + 1).freeze());
        }
    }

    /// One event on its way.
    async fn suffer(&mut self, line: Bytes) -> Bytes {
        if self.chaos.is_calm() {
            return line;
        }
        if self.mood.rng.random_bool(chance(self.mood.late)) {
            tokio::time::sleep(self.mood.latest.mul_f64(self.mood.rng.random())).await;
        }
        if self.mood.rng.random_bool(chance(self.mood.twice)) {
            self.chaos.count("event twice");
            let mut twice = BytesMut::with_capacity(line.len() * 2);
            twice.extend_from_slice(&line);
            twice.extend_from_slice(&line);
            return twice.freeze();
        }
        line
    }

    async fn end(&mut self, ending: Ending) -> Option<Result<Bytes, BoxError>> {
        let asked = self.asked.clone();
        self.chaos.say(move || format!("{ending:?}: {asked}"));
        self.over = true;
        self.chaos.count(match ending {
            Ending::Closed => "watch closed",
            Ending::Reset => "watch reset",
            Ending::HalfALine => "watch cut in a line",
            Ending::Silent => "watch silent",
            Ending::Gap(_) => "watch gap",
        });
        match ending {
            Ending::Closed => None,
            Ending::Reset => Some(Err(reset())),
            Ending::HalfALine => {
                Some(Ok(Bytes::from_static(br#"{"type":"ADDED","object":{"metadata":{"na"#)))
            }
            Ending::Silent => std::future::pending().await,
            Ending::Gap(time) => {
                tokio::time::sleep(time).await;
                Some(Ok(Bytes::from_static(EXPIRED.as_bytes())))
            }
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
