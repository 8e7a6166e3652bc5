//! A whole world in one thread, where time passes as fast as nothing happens.
//!
//! [`run`] makes a runtime with paused time and gives a [`World`]: servers ([`Site`]), each behind its own bad
//! network, an oracle, a story, and random numbers, all from one seed. [`hunt`] does so for many seeds on all
//! cores, and says in one line how to see a failed one again.
//!
//! ```text
//!   controller ──▶ Traffic::sent ──▶ Crash ──▶ Chaos ──▶ Traffic::heard ──▶ ApiServer ──▶ Oracle
//! ```
//!
//! Deliberately absent: threads inside a world, wall time, and the controllers themselves.

mod extent;
mod seeds;
mod telling;
mod trouble;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tower::Layer as _;

pub use extent::Extent;
pub use seeds::{Failure, Report, Seeds, Test, explore, hunt, on_all_cores, seeds};
pub(crate) use seeds::{is_replay, words_of};
pub use telling::Answered;
pub use trouble::{Mischief, Trouble};

use crate::chaos::{Chaos, Profile};
use crate::crash::CrashLayer;
use crate::oracle::{Oracle, Violation};
use crate::story::Story;
use crate::traffic::Traffic;
use crate::{ApiServer, Options};
use telling::Telling;

/// Everything that one seed makes. Clones are the same world.
#[derive(Clone, Debug)]
pub struct World {
    /// What it all comes from.
    pub seed: u64,
    /// What happened.
    pub story: Story,
    /// What must not happen.
    pub oracle: Oracle,
    servers: Arc<Mutex<Vec<ApiServer>>>,
    deeds: Deeds,
}

/// How often something went wrong in a cluster, by what it was.
pub(crate) type Deeds = Arc<Mutex<BTreeMap<&'static str, u64>>>;

/// One cluster and the network before it. Clones are the same.
#[derive(Clone, Debug)]
pub struct Site {
    /// For the story.
    pub name: &'static str,
    /// The cluster.
    pub server: ApiServer,
    /// The network.
    pub chaos: Chaos,
}

impl World {
    fn new(seed: u64) -> Self {
        let story = Story::new();
        Self { seed, oracle: Oracle::new(&story), story, servers: Arc::default(), deeds: Deeds::default() }
    }

    /// How often each trouble came.
    pub fn deeds(&self) -> BTreeMap<&'static str, u64> {
        self.deeds.lock().clone()
    }

    /// Random numbers for a purpose: what one purpose draws does not move those of another.
    pub fn random(&self, purpose: &str) -> ChaCha8Rng {
        // FNV-1a: the hasher of the standard library promises no result.
        let salt = purpose.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        ChaCha8Rng::seed_from_u64(self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ salt)
    }

    /// A cluster, without Kubeocean's definitions.
    pub fn site(&self, name: &'static str, profile: Profile) -> Site {
        self.site_with(name, profile, &Options { with_crds: false, ..Options::default() })
    }

    /// A cluster with these options; its seed is the world's.
    pub fn site_with(&self, name: &'static str, profile: Profile, options: &Options) -> Site {
        let mut random = self.random(name);
        let server = ApiServer::new(Options { seed: random.random(), ..options.clone() });
        let chaos = Chaos::new(name, random.random(), profile, &self.story);
        self.oracle.follow(name, &server);
        self.servers.lock().push(server.clone());
        Site { name, server, chaos }
    }
}

impl Site {
    /// A client that suffers everything. A controller that may die brings the layer of its life.
    pub fn client(&self, traffic: &Traffic, life: Option<&CrashLayer>) -> kube::Client {
        self.client_telling(traffic, life, |_| ())
    }

    /// The same, which tells of every answer as it reaches the controller.
    pub fn client_telling(
        &self,
        traffic: &Traffic,
        life: Option<&CrashLayer>,
        tell: impl Fn(&Answered<'_>) + Clone + Send + Sync + 'static,
    ) -> kube::Client {
        let service = traffic.heard_by(&self.server).layer(self.server.service(traffic.actor()));
        let service = self.chaos.layer(service);
        match life {
            Some(life) => {
                kube::Client::new(Telling::new(traffic.sent().layer(life.layer(service)), tell), "default")
            }
            None => kube::Client::new(Telling::new(traffic.sent().layer(service), tell), "default"),
        }
    }
}

/// Runs a scenario in a world of its own, under paused time.
///
/// Time goes on by itself to the next timer whenever nothing else is left to do.
///
/// # Panics
///
/// If inside a runtime already: a world is a whole thread's.
pub fn run<T, F: Future<Output = T>>(seed: u64, scenario: impl FnOnce(World) -> F) -> (T, Vec<Violation>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    #[expect(clippy::expect_used, reason = "without I/O there is nothing that could fail")]
    let runtime = runtime.expect("a runtime without I/O");
    runtime.block_on(async {
        let world = World::new(seed);
        let (oracle, servers) = (world.oracle.clone(), Arc::clone(&world.servers));
        let result = scenario(world).await;
        servers.lock().drain(..).for_each(|server| server.forget_hooks());
        (result, oracle.violations())
    })
}

/// The commits of some servers as one number: two runs of one seed must give the same.
pub fn fingerprint<'a>(servers: impl IntoIterator<Item = &'a ApiServer>) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for server in servers {
        for commit in server.history(0) {
            let new = commit.new.as_ref().map_or_else(String::new, |value: &Arc<_>| value.to_string());
            let line = format!("{} {} {} {new}", commit.revision, commit.actor, commit.at);
            for byte in line.bytes() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }
    hash
}
