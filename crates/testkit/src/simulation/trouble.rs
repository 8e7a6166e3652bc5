//! What goes wrong in clusters, rather than between them: compaction, restores, clocks, foreign hands.

use std::fmt;
use std::time::Duration;

use jiff::SignedDuration;
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Deeds, Site, World};
use crate::chaos::Partition;
use crate::story::Story;

/// Who does what nobody expects.
const SOMEONE: &str = "someone";

const MERGE_PATCH: Option<&str> = Some("application/merge-patch+json");

/// What someone does to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mischief {
    /// Deletes it.
    Delete,
    /// Takes all its labels away.
    StripLabels,
    /// Takes all its annotations away.
    StripAnnotations,
    /// Writes into one of its annotations.
    Scribble,
    /// Replaces what is in its `data`.
    ChangeData,
    /// Deletes it, and makes it again as it was, with another uid.
    Recreate,
    /// Deletes it, and puts another object of that name in its place.
    Usurp,
}

type Deed = (&'static str, Box<dyn Fn(&mut ChaCha8Rng) + Send>);

/// Troubles to come, drawn by seed.
pub struct Trouble {
    random: ChaCha8Rng,
    story: Story,
    deeds: Vec<Deed>,
    done: Deeds,
    every: Duration,
}

impl Trouble {
    /// None yet.
    pub fn new(world: &World) -> Self {
        Self {
            random: world.random("trouble"),
            story: world.story.clone(),
            deeds: Vec::new(),
            done: Deeds::clone(&world.deeds),
            every: Duration::from_secs(10),
        }
    }

    /// On average once in so much time.
    #[must_use]
    pub fn every(mut self, time: Duration) -> Self {
        self.every = time;
        self
    }

    /// Something that the scenario knows how to do.
    #[must_use]
    pub fn deed(mut self, name: &'static str, deed: impl Fn(&mut ChaCha8Rng) + Send + 'static) -> Self {
        self.deeds.push((name, Box::new(deed)));
        self
    }

    /// Old versions are forgotten.
    #[must_use]
    pub fn compaction(self, site: &Site) -> Self {
        let server = site.server.clone();
        self.deed("compaction", move |_| server.compact(server.revision()))
    }

    /// All watches break at once.
    #[must_use]
    pub fn broken_watches(self, site: &Site) -> Self {
        let server = site.server.clone();
        self.deed("watches break", move |_| server.drop_watches())
    }

    /// The cluster cannot be reached; some time later it can.
    #[must_use]
    pub fn partitions(self, site: &Site) -> Self {
        let chaos = site.chaos.clone();
        self.deed("partition or heal", move |random| match random.random_range(0..4) {
            0 => chaos.partition(Partition::Silent),
            1 => chaos.partition(Partition::Resets),
            _ => chaos.heal(),
        })
    }

    /// etcd comes back from a backup, a few versions older; never older than `oldest`.
    #[must_use]
    pub fn restore(self, site: &Site, oldest: u64, told: impl Fn() + Send + 'static) -> Self {
        let server = site.server.clone();
        self.deed("etcd is restored", move |random| {
            let back = random.random_range(1..15);
            server.restore(server.revision().saturating_sub(back).max(oldest));
            told();
        })
    }

    /// The server's clock jumps; `follow` is told, for clocks of others that jump with it.
    #[must_use]
    pub fn clock_jumps(self, site: &Site, follow: impl Fn(SignedDuration) + Send + 'static) -> Self {
        let server = site.server.clone();
        self.deed("the clock jumps", move |random| {
            let by = SignedDuration::from_secs(random.random_range(-7_200..7_200));
            server.jump_clock(by);
            follow(by);
        })
    }

    /// Someone does mischief to an object of this kind, picked by seed.
    #[must_use]
    pub fn foreign_hands(
        self,
        site: &Site,
        kind: &'static str,
        path: &'static str,
        what: &'static [Mischief],
    ) -> Self {
        let server = site.server.clone();
        self.deed("foreign hands", move |random| {
            let objects = server.list(kind, None);
            if objects.is_empty() || what.is_empty() {
                return;
            }
            let object = &objects[random.random_range(0..objects.len())];
            let mischief = what[random.random_range(0..what.len())];
            mischief.happens(path, object, random.random(), |method, path, content_type, body| {
                server.call(SOMEONE, method, path, content_type, body).0
            });
        })
    }

    /// Does so for a time, and leaves nothing partitioned on purpose: healing is the caller's, by
    /// [`Chaos::calm`](crate::chaos::Chaos::calm).
    pub async fn rage(mut self, time: Duration) {
        let end = Instant::now() + time;
        loop {
            let pause = self.every.mul_f64(self.random.random_range(0.0..2.0));
            if Instant::now() + pause >= end || self.deeds.is_empty() {
                tokio::time::sleep_until(end).await;
                return;
            }
            tokio::time::sleep(pause).await;
            let (name, deed) = &self.deeds[self.random.random_range(0..self.deeds.len())];
            let name = *name;
            self.story.tell(move || format!("! {name}"));
            *self.done.lock().entry(name).or_default() += 1;
            deed(&mut self.random);
        }
    }
}

impl Mischief {
    /// Does it, by calls like those of [`ApiServer::call`](crate::ApiServer::call). `path` is the collection's,
    /// with `{namespace}` in it.
    fn happens(
        self,
        path: &str,
        object: &Value,
        draw: u64,
        call: impl Fn(&str, &str, Option<&str>, Option<Value>) -> u16,
    ) {
        let meta = &object["metadata"];
        let text = |field: &str| meta[field].as_str().unwrap_or_default();
        let collection = path.replace("{namespace}", text("namespace"));
        let place = format!("{collection}/{}", text("name"));
        let change = |body: Value| {
            call("PATCH", &place, MERGE_PATCH, Some(body));
        };
        let again = |labels: &Value, annotations: &Value| {
            call("DELETE", &place, None, None);
            let mut copy = object.clone();
            copy["metadata"] = json!({
                "name": text("name"), "namespace": text("namespace"), "labels": labels, "annotations": annotations,
            });
            call("POST", &collection, None, Some(copy));
        };
        match self {
            Self::Delete => {
                call("DELETE", &place, None, None);
            }
            Self::StripLabels => change(json!({"metadata": {"labels": null}})),
            Self::StripAnnotations => change(json!({"metadata": {"annotations": null}})),
            Self::Scribble => change(json!({"metadata": {"annotations": {"scribble": draw.to_string()}}})),
            Self::ChangeData => change(json!({"data": {"a": draw.to_string(), "more": "of it"}})),
            Self::Recreate => again(&meta["labels"], &meta["annotations"]),
            Self::Usurp => again(&json!({"usurper": "yes"}), &Value::Null),
        }
    }
}

impl fmt::Debug for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.deeds.iter().map(|(name, _)| *name).collect();
        f.debug_struct("Trouble").field("deeds", &names).finish_non_exhaustive()
    }
}
