//! A bad network and a bad server, by seed.
//!
//! [`Chaos`] is a tower layer: it stands in front of a simulated API server as well as in front of a real
//! one's client. Each request that passes draws its fate from one generator, so that the same seed under
//! paused time gives the same faults. A story is told of each.
//!
//! ```text
//!   request ──▶ partition? ──▶ late ──▶ refused, reset, stale ──▶ server
//!   answer  ◀── partition? ◀── late ◀── lost, refused after all ◀──┘
//!   watch   ◀── partition? ◀── twice, late, gap + 410, cut, silent ◀── lines
//! ```
//!
//! Deliberately absent: what goes wrong *in* a cluster (compaction, restores, foreign hands), which is
//! [`simulation`](crate::simulation)'s.

mod profile;
pub(crate) mod request;
mod watch;

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use kube::client::Body;
use parking_lot::Mutex;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;
use tower::{BoxError, Layer, Service, ServiceExt as _};

pub use profile::Profile;

use crate::news;
use crate::story::Story;
use request::{Asked, Want};
use watch::{Mistreated, Mood};

/// How many old answers are kept per question.
const OLD_ANSWERS: usize = 4;

/// What an answer's body is, faults or not.
pub type ChaosBody = UnsyncBoxBody<Bytes, BoxError>;

/// How a partition shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partition {
    /// Nothing comes through, and nobody says so.
    Silent,
    /// Connections are reset.
    Resets,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weather {
    Fair,
    Apart(Partition),
}

/// Waits for the end of a partition.
async fn fair(weather: &mut news::Receiver<Weather>) {
    while weather.look() != Weather::Fair {
        weather.changed().await;
    }
}

/// The faults between clients and one server. Clones are the same.
#[derive(Clone)]
pub struct Chaos {
    state: Arc<Mutex<State>>,
    weather: Arc<news::Sender<Weather>>,
    story: Story,
    name: Arc<str>,
}

struct State {
    rng: ChaCha8Rng,
    profile: Profile,
    calm: bool,
    old_answers: BTreeMap<String, VecDeque<OldAnswer>>,
    faults: BTreeMap<&'static str, u64>,
}

#[derive(Clone)]
struct OldAnswer {
    version: u64,
    body: Bytes,
}

/// What becomes of one request.
struct Fate {
    before: Duration,
    after: Duration,
    harm: Harm,
    /// Draws of its own, for what is decided later.
    rng: ChaCha8Rng,
}

enum Harm {
    None,
    Refused(u16),
    RefusedAfterAll(u16),
    Reset,
    AnswerLost,
    Stale(Bytes),
    Mood(Box<Mood>),
}

impl Harm {
    const fn word(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Refused(_) => "refused",
            Self::RefusedAfterAll(_) => "done, but refused",
            Self::Reset => "reset",
            Self::AnswerLost => "done, but the answer lost",
            Self::Stale(_) => "answered as it was before",
            Self::Mood(_) => "watched in a mood",
        }
    }
}

impl Chaos {
    /// Faults of this profile, drawn by this seed. `name` stands for the server in the story.
    pub fn new(name: impl Into<Arc<str>>, seed: u64, profile: Profile, story: &Story) -> Self {
        let state = State {
            rng: ChaCha8Rng::seed_from_u64(seed),
            profile,
            calm: false,
            old_answers: BTreeMap::new(),
            faults: BTreeMap::new(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            weather: Arc::new(news::Sender::new(Weather::Fair)),
            story: story.clone(),
            name: name.into(),
        }
    }

    /// From now on nothing passes.
    pub fn partition(&self, how: Partition) {
        self.say(move || format!("partition ({how:?})"));
        self.count("partition");
        self.weather.send(Weather::Apart(how));
    }

    /// The partition is over. Watches that lived through it go on, or stay dead.
    pub fn heal(&self) {
        if self.weather.send(Weather::Fair) != Weather::Fair {
            self.say(|| "healed".to_owned());
        }
    }

    /// No more faults, and no partition. Those that have begun take their course.
    pub fn calm(&self) {
        {
            let mut state = self.state.lock();
            state.calm = true;
            let no_streaming = state.profile.no_streaming;
            state.profile = Profile { no_streaming, ..Profile::calm() };
        }
        self.say(|| "calm".to_owned());
        self.heal();
    }

    /// Other faults from now on.
    pub fn set_profile(&self, profile: Profile) {
        let mut state = self.state.lock();
        state.profile = profile;
        state.calm = false;
    }

    /// What was done so far, by its name.
    pub fn faults(&self) -> BTreeMap<&'static str, u64> {
        self.state.lock().faults.clone()
    }

    fn is_calm(&self) -> bool {
        self.state.lock().calm
    }

    fn count(&self, fault: &'static str) {
        *self.state.lock().faults.entry(fault).or_default() += 1;
    }

    fn say(&self, what: impl Fn() -> String + Send + 'static) {
        let name = Arc::clone(&self.name);
        self.story.tell(move || format!("~ {name} network: {}", what()));
    }

    fn fate_of(&self, asked: &Asked) -> Fate {
        let mut state = self.state.lock();
        let State { rng, profile, old_answers, .. } = &mut *state;
        let mut own = ChaCha8Rng::seed_from_u64(rng.random());
        let late = |rng: &mut ChaCha8Rng| {
            if rng.random_bool(chance(profile.late)) {
                profile.latest.mul_f64(rng.random())
            } else {
                Duration::ZERO
            }
        };
        let (before, after) = (profile.slow + late(rng), late(rng));
        let harm = if asked.want == Want::Watch && asked.streams_a_list() && profile.no_streaming {
            Harm::Refused(422)
        } else if asked.want == Want::Watch && rng.random_bool(chance(profile.watch_expired)) {
            Harm::Refused(410)
        } else if rng.random_bool(chance(profile.reset)) {
            Harm::Reset
        } else if rng.random_bool(chance(profile.refused)) {
            match asked.some_refusal(&mut own) {
                code @ (500 | 504) if asked.is_write() && rng.random() => Harm::RefusedAfterAll(code),
                code => Harm::Refused(code),
            }
        } else if rng.random_bool(chance(profile.answer_lost)) {
            Harm::AnswerLost
        } else if asked.want == Want::Watch {
            Harm::Mood(Box::new(Mood::drawn(profile, &mut own)))
        } else {
            stale_answer(asked, old_answers, profile, &mut own).map_or(Harm::None, Harm::Stale)
        };
        if !matches!(harm, Harm::None | Harm::Mood(_)) {
            *state.faults.entry(harm.word()).or_default() += 1;
        }
        Fate { before, after, harm, rng: own }
    }

    /// Waits out a silent partition. Some of what was on its way arrives then, the rest never does.
    async fn pass(&self, rng: &mut ChaCha8Rng) -> Result<(), BoxError> {
        let mut weather = self.weather.subscribe();
        loop {
            match weather.look() {
                Weather::Fair => return Ok(()),
                Weather::Apart(Partition::Resets) => {
                    // A refusal takes a moment too; without it, who retries at once would stop the time.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    return Err(reset());
                }
                Weather::Apart(Partition::Silent) => {
                    fair(&mut weather).await;
                    if rng.random() {
                        std::future::pending::<()>().await;
                    }
                }
            }
        }
    }

    /// Keeps the answer of a list or a get, for who may be told old things.
    fn keep(&self, question: String, body: &Bytes) {
        let version = serde_json::from_slice::<Versioned>(body)
            .ok()
            .and_then(|answer| answer.metadata.resource_version.parse().ok());
        let Some(version) = version else { return };
        let mut state = self.state.lock();
        let kept = state.old_answers.entry(question).or_default();
        if kept.len() == OLD_ANSWERS {
            kept.pop_front();
        }
        kept.push_back(OldAnswer { version, body: body.clone() });
    }
}

fn stale_answer(
    asked: &Asked,
    old_answers: &BTreeMap<String, VecDeque<OldAnswer>>,
    profile: &Profile,
    rng: &mut ChaCha8Rng,
) -> Option<Bytes> {
    let oldest = asked.may_be_as_old_as()?;
    if !matches!(asked.want, Want::List | Want::Get) || !rng.random_bool(chance(profile.stale)) {
        return None;
    }
    let kept = old_answers.get(&asked.question())?.iter().filter(|old| old.version >= oldest);
    let kept: Vec<&OldAnswer> = kept.collect();
    (!kept.is_empty()).then(|| kept[rng.random_range(0..kept.len())].body.clone())
}

#[derive(Deserialize)]
struct Versioned {
    metadata: Version,
}

#[derive(Deserialize)]
struct Version {
    #[serde(rename = "resourceVersion")]
    resource_version: String,
}

fn chance(p: f64) -> f64 {
    p.clamp(0.0, 1.0)
}

fn reset() -> BoxError {
    io::Error::new(io::ErrorKind::ConnectionReset, "connection reset (by chaos)").into()
}

impl<S> Layer<S> for Chaos {
    type Service = ChaosService<S>;

    fn layer(&self, inner: S) -> ChaosService<S> {
        ChaosService { chaos: self.clone(), inner }
    }
}

/// A service behind a bad network.
#[derive(Clone)]
pub struct ChaosService<S> {
    chaos: Chaos,
    inner: S,
}

impl<S, B> Service<Request<Body>> for ChaosService<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError> + Send,
{
    type Response = Response<ChaosBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<ChaosBody>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let asked = Asked::of(&request);
        let fate = self.chaos.fate_of(&asked);
        let way = self.chaos.clone().carry(self.inner.clone(), request, asked.clone(), fate);
        if asked.is_write() {
            // What is on its way arrives, whether or not someone still waits for the answer.
            let way = tokio::spawn(way);
            Box::pin(async move { way.await.unwrap_or_else(|error| Err(error.into())) })
        } else {
            Box::pin(way)
        }
    }
}

impl Chaos {
    async fn carry<S, B>(
        self,
        inner: S,
        request: Request<Body>,
        asked: Asked,
        mut fate: Fate,
    ) -> Result<Response<ChaosBody>, BoxError>
    where
        S: Service<Request<Body>, Response = Response<B>> + Send,
        S::Error: Into<BoxError>,
        S::Future: Send,
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError> + Send,
    {
        if !matches!(fate.harm, Harm::None | Harm::Mood(_)) {
            let (word, asked) = (fate.harm.word(), asked.clone());
            let code = match fate.harm {
                Harm::Refused(code) | Harm::RefusedAfterAll(code) => format!(" ({code})"),
                _ => String::new(),
            };
            self.say(move || format!("{word}{code}: {asked}"));
        }
        self.pass(&mut fate.rng).await?;
        wait(fate.before).await;
        self.pass(&mut fate.rng).await?;
        let retry_after = fate.rng.random_range(1..=3);
        let refusal = |code: u16| {
            let response = asked.refusal(code, retry_after);
            response.map(|body| Full::new(body).map_err(|never| match never {}).boxed_unsync())
        };
        match &fate.harm {
            Harm::Refused(code) => {
                wait(Duration::from_millis(1)).await;
                return Ok(refusal(*code));
            }
            Harm::Reset => {
                wait(Duration::from_millis(1)).await;
                return Err(reset());
            }
            Harm::Stale(body) => {
                let body = Full::new(body.clone()).map_err(|never| match never {}).boxed_unsync();
                return Ok(Response::new(body));
            }
            _ => {}
        }
        let answer = inner.oneshot(request).await.map_err(Into::into)?;
        self.pass(&mut fate.rng).await?;
        wait(fate.after).await;
        self.pass(&mut fate.rng).await?;
        match fate.harm {
            Harm::AnswerLost => Err(reset()),
            Harm::RefusedAfterAll(code) => Ok(refusal(code)),
            Harm::Mood(mood) if answer.status().is_success() => {
                Ok(answer.map(|body| Mistreated::new(&self, body, *mood, &asked).into_body()))
            }
            _ => self.whole(answer, &asked).await,
        }
    }

    /// An answer as it is, kept where someone may be given it later.
    async fn whole<B>(&self, answer: Response<B>, asked: &Asked) -> Result<Response<ChaosBody>, BoxError>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError> + Send,
    {
        let worth_keeping = matches!(asked.want, Want::List | Want::Get)
            && answer.status().is_success()
            && asked.parameter("continue").is_none()
            && self.state.lock().profile.stale > 0.0;
        if !worth_keeping {
            return Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()));
        }
        let (head, body) = answer.into_parts();
        let bytes = body.collect().await.map_err(Into::into)?.to_bytes();
        self.keep(asked.question(), &bytes);
        let body = Full::new(bytes).map_err(|never| match never {}).boxed_unsync();
        Ok(Response::from_parts(head, body))
    }
}

async fn wait(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

impl std::fmt::Debug for Chaos {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chaos")
            .field("name", &self.name)
            .field("faults", &self.faults())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
