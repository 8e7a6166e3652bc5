//! The loops of a syncer.

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures::future::BoxFuture;
use kubeocean_cluster::apply::Applier;
use kubeocean_cluster::client::Cluster;
use kubeocean_cluster::clock::Clock;
use kubeocean_cluster::events::{self, Recorder, Reporter};
use kubeocean_cluster::leader::Leadership;
use kubeocean_cluster::metrics::{Metrics, MetricsError, Observation};
use kubeocean_cluster::progress::Step;
use kubeocean_cluster::queue::{Queue, Retry, Verdict};
use kubeocean_cluster::reconcile::Reconciler;
use kubeocean_cluster::store::Entry;
use kubeocean_cluster::together;
use kubeocean_model::action::{Kind, kinds};
use kubeocean_model::bind::Telling;
use kubeocean_model::binding::Binding;
use kubeocean_model::key::{Key, Physical, Side, Virtual};
use kubeocean_model::leasing::{SYNCER, has_begun};
use kubeocean_model::vnode::Settings;
use kubeocean_model::window::Zone;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::claims::Ending;
use crate::copies::Compared;
pub use crate::endpoints::Ports;
use crate::endpoints::Proxiers;
use crate::observe::{self, Timekeeping};
use crate::placements::Placements;
use crate::policies::Policies;
use crate::pulse::Pulse;
use crate::references::References;
use crate::renewals::Renewals;
use crate::seen::SeenBinding;
use crate::standing::Standings;
pub use crate::surroundings::ComputingEndpoints;
use crate::term::Term;
use crate::vain::Makings;
use crate::world::{Duty, Subject, Watching, World};

/// Duties at a time: each waits for its own writes, mostly. A cold start of a thousand nodes is a thousand writes of some ten milliseconds.
const AT_A_TIME: usize = 32;

/// What was said of so many is remembered; then people hear it once more.
pub(crate) const REMEMBERED: usize = 16_384;

/// Many nodes change together; one word about all of them is enough.
pub(crate) const WORDS_AFTER: Duration = Duration::from_secs(1);

/// What a set of loops is made of.
pub struct Parts {
    /// For whom.
    pub subject: Subject,
    /// The computing cluster.
    pub virt: Cluster<Virtual>,
    /// The worker cluster.
    pub phys: Cluster<Physical>,
    /// Whether this process writes.
    pub leadership: Leadership,
    /// What time it is.
    pub clock: Clock,
    /// Where things are counted.
    pub metrics: Metrics,
    /// What virtual nodes are like.
    pub settings: Settings,
    /// The zone of windows that name none.
    pub zone: Zone,
    /// How often Leases are renewed.
    pub renew_every: Duration,
    /// Who renews them.
    pub holder: Arc<str>,
    /// The ports that are taken.
    pub ports: Ports,
    /// The address of proxiers in this process; `None`: they are found by their Service.
    pub proxier_here: Option<Option<Arc<str>>>,
    /// Where pods in the worker cluster reach the computing cluster.
    pub endpoints: ComputingEndpoints,
    /// For simulations: what delays are jittered by.
    pub seed: Option<u64>,
}

/// Several syncers may run in one process.
fn queue_name(queue: &str, subject: &Subject) -> String {
    format!("{}/{queue}", subject.binding)
}

/// Ends what is shown of the queues of a syncer that ended.
pub(crate) fn forget_queues(metrics: &Metrics, subject: &Subject) {
    for queue in ["duties", "leases"] {
        metrics.cluster().forget_queue(&queue_name(queue, subject));
    }
}

/// Plans are made on all of these stores.
fn reconciler(queue: Queue<Duty>, applier: Applier, clock: &Clock, world: &World) -> Reconciler<Duty> {
    Reconciler::new(queue, applier, clock)
        .following(kinds::BINDING, &world.bindings)
        .following(kinds::NODE, &world.vnodes)
        .following(kinds::CSI_NODE, &world.virtual_csi)
        .following(kinds::POD, &world.pods)
        .following(kinds::POLICY, &world.virtual_policies)
        .following(kinds::POLICY, &world.physical_policies)
        .following(kinds::POD, &world.physical_pods)
        .following(kinds::CONFIG_MAP, &world.belongings.config_maps)
        .following(kinds::SECRET, &world.belongings.secrets)
        .following(kinds::CLAIM, &world.belongings.claims)
        .following(kinds::VOLUME, &world.belongings.volumes)
        .following(kinds::SERVICE, &world.belongings.services)
        .following(kinds::ENDPOINT_SLICE, &world.belongings.slices)
}

/// What was compared counts until something is listed anew.
fn compared(world: &World) -> Compared {
    let compared = Compared::default();
    let belongings = world.belongings.progress();
    for progress in world.config_maps.progress().chain(world.secrets.progress()).chain(belongings) {
        let compared = compared.clone();
        progress.listen(move |step| {
            if matches!(step, Step::List) {
                compared.forget_all();
            }
            true
        });
    }
    compared
}

/// The loops of a syncer. Clones are the same.
#[derive(Clone)]
pub struct Syncer {
    /// What it knows.
    pub world: World,
    /// How the worker cluster is.
    pub pulse: Pulse,
    pub(crate) subject: Subject,
    pub(crate) virt: Cluster<Virtual>,
    pub(crate) phys: Cluster<Physical>,
    pub(crate) policies: Policies,
    pub(crate) standings: Standings,
    pub(crate) reconciler: Reconciler<Duty>,
    pub(crate) proxiers: Proxiers,
    pub(crate) ports: Ports,
    /// Names that others have.
    pub(crate) taken: Arc<Mutex<BTreeSet<String>>>,
    /// What is known only as long as this process leads.
    pub(crate) term: Arc<Term>,
    /// What may not be read in the worker cluster, as far as people were told.
    pub(crate) unreadable: Arc<Mutex<BTreeSet<Kind>>>,
    /// Policies of which nobody lets us take our entry away.
    pub(crate) refusing: Arc<Mutex<BTreeSet<(Side, String)>>>,
    pub(crate) settings: Arc<Mutex<Settings>>,
    pub(crate) timekeeping: Timekeeping,
    pub(crate) placements: Placements,
    /// Which pods use what.
    pub(crate) references: References,
    /// Originals and copies that say the same.
    pub(crate) compared: Compared,
    /// Claims that are about to go.
    pub(crate) ending: Ending,
    /// Services that the worker cluster does not let us make.
    pub(crate) unmirrored: Arc<Mutex<BTreeSet<Key<Virtual>>>>,
    /// What was said last, by the uid of what it was said of and the reason.
    pub(crate) told_once: Arc<Mutex<HashMap<(String, &'static str), String>>>,
    /// When the company of virtual nodes was made.
    pub(crate) makings: Makings,
    /// Whether the class of borrowed pods is known to be there.
    pub(crate) has_priority_class: Arc<AtomicBool>,
    /// Where pods reach the computing cluster.
    pub(crate) endpoints: Arc<ComputingEndpoints>,
    /// What people were told of not knowing that.
    pub(crate) told_of_intranet: Arc<Mutex<Option<String>>>,
    pub(crate) renewals: Renewals,
    recorder: Recorder,
    leadership: Leadership,
    /// Ends with the last clone.
    _shown: Arc<Vec<Observation>>,
}

/// What runs whether this process leads or not.
pub struct Background {
    /// Keeps the stores current.
    pub watching: Vec<Watching>,
    /// Sends Events.
    pub reporter: Reporter<Virtual>,
}

impl Syncer {
    /// Everything, not running yet.
    pub fn new(parts: Parts) -> Result<(Self, Background), MetricsError> {
        let Parts {
            subject,
            virt,
            phys,
            leadership,
            clock,
            metrics,
            settings,
            zone,
            renew_every,
            holder,
            ports,
            proxier_here,
            endpoints,
            seed,
        } = parts;
        let retry = Retry { seed: seed.unwrap_or(Retry::default().seed), ..Retry::default() };
        let queue = Queue::new(queue_name("duties", &subject), retry, &metrics);
        let leases = Queue::new(queue_name("leases", &subject), retry, &metrics);
        // Until this process leads.
        queue.rest();
        leases.rest();
        let references = References::default();
        let (world, watching) = World::watch(&virt, &phys, &subject, &queue, &leases, &references);
        let policies = Policies::new(&world, zone);
        let standings = Standings::default();
        let (told, of, renewed, stood) = (queue.clone(), world.clone(), leases.clone(), standings.clone());
        let term: Arc<Term> = Arc::default();
        let (used, heard) = (references.clone(), Arc::clone(&term));
        let changed = move |is_back: bool| {
            of.look_at_everything(&told);
            // What pods wait for may be had now, and those that went meanwhile are in no store.
            used.duties().into_iter().for_each(|duty| told.add(duty));
            heard.unheard.all().into_iter().for_each(|duty| told.add(duty));
            // Those that went while nobody knew whose list that was, and never had a virtual node, are in no store.
            stood.nodes().into_iter().for_each(|node| told.add(Duty::Node(node)));
            told.reset_all();
            // Who is back should not wait for its turn.
            for (key, _) in of.vnodes.all().into_iter().filter(|_| is_back) {
                renewed.add(key.name.to_string());
            }
        };
        let settings = Arc::new(Mutex::new(settings));
        let pulse = Pulse::new(&phys, &world, &policies, &subject, &clock, &settings, Arc::new(changed));
        let applier = Applier::new(SYNCER).virtually(&virt).physically(&phys).while_leading(&leadership);
        let (recorder, reporter) = Recorder::new(SYNCER, applier.clone(), &clock, &metrics);
        let timekeeping = Timekeeping::new(&metrics, &subject.binding)?;
        let placements = Placements::new(&metrics, &subject.binding)?;
        let shown = observe::nodes(&metrics, &subject.binding, &world, &pulse)?;
        let renewals = Renewals {
            timekeeping: timekeeping.clone(),
            turn: Arc::new(Mutex::new(Instant::now())),
            last: Arc::default(),
            known: Arc::default(),
            ending: Arc::default(),
            queue: leases,
            applier: applier.clone(),
            world: world.clone(),
            pulse: pulse.clone(),
            subject: subject.clone(),
            clock: clock.clone(),
            every: renew_every,
            holder,
        };
        let reconciler = reconciler(queue, applier, &clock, &world);
        let compared = compared(&world);
        let proxiers = match proxier_here {
            Some(address) => Proxiers::Here(address),
            None => Proxiers::Published(world.endpoints.clone()),
        };
        let syncer = Self {
            world,
            pulse,
            subject,
            virt,
            phys,
            policies,
            standings,
            reconciler,
            proxiers,
            ports,
            taken: Arc::default(),
            term,
            unreadable: Arc::default(),
            refusing: Arc::default(),
            settings,
            timekeeping,
            placements,
            references,
            compared,
            ending: Ending::default(),
            unmirrored: Arc::default(),
            told_once: Arc::default(),
            makings: Makings::default(),
            has_priority_class: Arc::default(),
            endpoints: Arc::new(endpoints),
            told_of_intranet: Arc::default(),
            renewals,
            recorder,
            leadership,
            _shown: Arc::new(shown),
        };
        Ok((syncer, Background { watching, reporter }))
    }

    /// Everything in one future, for who supervises nothing: until told to stop. Each part is looked after only when something has
    /// happened to it: two dozen watches, each asked at every event of the others, would be most of the work.
    pub async fn run_until(&self, background: Background, stop: CancellationToken) {
        let Background { watching, reporter } = background;
        let mut parts: Vec<BoxFuture<'_, ()>> = watching.into_iter().map(|(_, watching)| watching).collect();
        parts.push(Box::pin(reporter.run()));
        parts.push(Box::pin(self.pulse.run_until(stop.clone())));
        parts.push(Box::pin(self.terms(&stop)));
        stop.run_until_cancelled(together::all(parts)).await;
    }

    /// One term after the other.
    async fn terms(&self, stop: &CancellationToken) {
        let mut changes = self.leadership.changes();
        while changes.wait_for(|leads| *leads).await.is_ok() {
            let term = stop.child_token();
            let end = async {
                drop(changes.wait_for(|leads| !*leads).await);
                term.cancel();
            };
            let duties: [BoxFuture<'_, ()>; 3] = [
                Box::pin(self.lead_duties(term.clone())),
                Box::pin(self.lead_renewals(term.clone())),
                Box::pin(end),
            ];
            together::all(duties).await;
        }
    }

    /// How full the queues are, for `/debug/state`.
    pub(crate) fn queue_sizes(&self) -> serde_json::Value {
        serde_json::json!({"duties": self.reconciler.queue.sizes(), "leases": self.renewals.queue.sizes()})
    }

    /// Keeps virtual nodes alive while this process leads.
    pub async fn lead_renewals(&self, stop: CancellationToken) {
        stop.run_until_cancelled(self.renewals.run_until(stop.clone())).await;
    }

    /// Does everything else while this process leads.
    pub async fn lead_duties(&self, stop: CancellationToken) {
        self.reconciler.queue.attend();
        self.lead_through(stop).await;
        self.reconciler.queue.rest();
    }

    async fn lead_through(&self, stop: CancellationToken) {
        if stop.run_until_cancelled(self.world.virtually_synced()).await.is_none() {
            return;
        }
        if stop.run_until_cancelled(self.learn_ports()).await.is_none() {
            return;
        }
        self.world.hidden.suspect();
        self.term.begin(self.world.pods.all().into_iter().map(|(key, _)| Duty::Pod(key)));
        self.world.look_at_everything(&self.reconciler.queue);
        // Also what was there in an earlier term of ours: nobody has told us of its end.
        let before = self.standings.nodes().into_iter().map(Duty::Node).chain(self.references.duties());
        before.for_each(|duty| self.reconciler.queue.add(duty));
        let look = |duty: Duty| async move { self.look_and_hear(&duty).await };
        let work = self.reconciler.queue.run_until(stop, AT_A_TIME, look);
        tokio::select! {
            biased;
            () = work => {}
            never = self.catch_up() => match never {},
        }
    }

    /// The lease clock goes by the wall. Whenever that is moved, or the machine has slept, all that waits for a time is looked at. V did not
    /// sleep: the Leases of all virtual nodes may be old by now.
    async fn catch_up(&self) -> Infallible {
        loop {
            let by = self.reconciler.clock.jumped().await;
            tracing::warn!(binding = %self.subject.binding, %by, "the clock has jumped; everything is looked at again");
            self.renewals.renew_all();
            self.world.look_at_everything(&self.reconciler.queue);
        }
    }

    /// Looks, and lets go on who waited for that.
    async fn look_and_hear(&self, duty: &Duty) -> Verdict {
        // As long as P's side is not known, a pod says nothing of what it uses; one that is gone uses nothing.
        let says = || self.is_gone(duty) || self.knows_belongings();
        let counts = self.term.unheard.awaits(duty) && says();
        let verdict = self.look(duty).await;
        let counts = counts && says();
        if counts && verdict != Verdict::Blocked {
            self.term.unheard.heard(duty).into_iter().for_each(|waiting| self.reconciler.queue.add(waiting));
        }
        verdict
    }

    fn is_gone(&self, duty: &Duty) -> bool {
        matches!(duty, Duty::Pod(key) if self.world.pods.get(key).is_none())
    }

    async fn look(&self, duty: &Duty) -> Verdict {
        match duty {
            Duty::Binding => self.look_at_binding().await,
            Duty::Policy(side, name) => self.look_at_policy(*side, name).await,
            Duty::Node(name) => self.look_at_node(name).await,
            Duty::Pod(key) => self.look_at_pod(key).await,
            Duty::Copy(what, key) => self.look_at_copy(*what, key).await,
            Duty::Claim(key) => self.look_at_claim(key).await,
            Duty::Service(key) => self.look_at_service(key).await,
            Duty::Slice(key) => self.look_at_slice(key).await,
            Duty::Leftovers => self.look_for_leftovers().await,
        }
    }

    /// The binding's object, if it is still the one.
    pub(crate) fn binding_object(&self) -> Option<Arc<Entry<SeenBinding>>> {
        let key = Key::cluster_scoped(&*self.subject.binding);
        self.world.bindings.get(&key).filter(|seen| *seen.0.meta.uid == *self.subject.uid)
    }

    /// The binding, once something may be written for it. One that someone has misspelt is followed as it was before: what is borrowed
    /// is given back in time, whoever writes what.
    pub(crate) fn binding(&self) -> Option<Binding> {
        let seen = self.binding_object().filter(|seen| has_begun(&seen.0))?;
        self.world.good.follow(&seen.0)
    }

    /// Whether the binding cannot be read now: nobody knows what more it would lease.
    pub(crate) fn is_misspelt(&self) -> bool {
        self.binding_object().is_some_and(|seen| seen.0.parsed.is_err())
    }

    /// Whether it cannot be read, and this process does not know what it said before.
    pub(crate) fn is_stood_in_for(&self) -> bool {
        self.binding_object().is_some_and(|seen| seen.0.parsed.is_err() && !self.world.good.knows(&seen.0))
    }

    pub(crate) fn vnode_settings(&self) -> Settings {
        self.settings.lock().clone()
    }

    pub(crate) fn binding_subject(&self) -> Option<events::Subject> {
        let seen = self.binding_object()?;
        Some(events::Subject::of(kinds::BINDING, &seen.0.meta))
    }

    pub(crate) fn tell(&self, subject: &events::Subject, told: &[Telling]) {
        self.recorder.tell_all(subject, told);
    }

    /// Tells, unless it was the last that was told of this subject for this reason.
    pub(crate) fn tell_once(&self, subject: &events::Subject, telling: &Telling) {
        let mut told = self.told_once.lock();
        if told.len() >= REMEMBERED {
            told.clear();
        }
        let before = told.insert((subject.uid.clone(), telling.reason), telling.message.clone());
        if before.as_ref() != Some(&telling.message) {
            self.recorder.tell_all(subject, std::slice::from_ref(telling));
        }
    }
}
