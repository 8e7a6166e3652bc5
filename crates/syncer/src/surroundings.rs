//! What pods in the worker cluster are told of the computing cluster: where its API server and its DNS are, and which Services there are.

use std::sync::Arc;

use kubeocean_api::keys::names::{INTRANET_API_SERVER, INTRANET_DNS};
use kubeocean_model::binding::{Binding, ServiceNamespaces};
use kubeocean_model::intranet::Intranet;
use kubeocean_model::key::Key;
use kubeocean_model::project::{Computing, ServiceEntry};
use kubeocean_model::services;

use crate::seen::{SERVICES_IN, SeenService};
use crate::syncer::Syncer;

/// The endpoints of the computing cluster, as far as they were given by hand.
#[derive(Clone, Debug, Default)]
pub struct ComputingEndpoints {
    /// Its API server and its DNS.
    pub given: Intranet,
    /// Its DNS domain.
    pub domain: Arc<str>,
}

impl Syncer {
    /// What a pod of a namespace is told of the computing cluster now.
    pub(crate) fn computing_for(&self, namespace: &str, binding: &Binding) -> Computing {
        let Intranet { api_server, dns } = self.intranet();
        let listed = match &binding.service_namespaces {
            ServiceNamespaces::Listed(listed) => listed.as_slice(),
            // All of them are too many to name.
            ServiceNamespaces::All => &[],
        };
        let others = listed.iter().map(String::as_str).filter(|other| *other != namespace);
        let mut all = Vec::new();
        for namespace in std::iter::once(namespace).chain(others) {
            let seen = self.world.services.by(&SERVICES_IN, namespace);
            all.extend(seen.iter().map(|seen| self.as_reached(seen, binding)));
        }
        all.sort();
        Computing { api_server, dns, cluster_domain: self.endpoints.domain.to_string(), services: all }
    }

    /// Where the computing cluster is reached from elsewhere.
    pub(crate) fn intranet(&self) -> Intranet {
        let service = |(namespace, name): (&str, &str)| self.world.services.get(&Key::new(namespace, name));
        let (api_server, dns) = (service(INTRANET_API_SERVER), service(INTRANET_DNS));
        self.endpoints
            .given
            .or_found(api_server.as_ref().map(|seen| &seen.object), dns.as_ref().map(|seen| &seen.object))
    }

    /// One that is brought along is reached at the address that it has in P.
    fn as_reached(&self, seen: &SeenService, binding: &Binding) -> ServiceEntry {
        let mut entry = seen.entry.clone();
        if services::is_mirrored(binding, &entry.namespace, &self.subject.install_namespace) {
            let key = Key::new(entry.namespace.as_str(), entry.name.as_str());
            let copy = self.world.belongings.service_of(&key, &self.subject);
            entry.cluster_ip = copy.and_then(|copy| ServiceEntry::read(&copy).cluster_ip);
        }
        entry
    }

    /// People hear once that pods do not know where the computing cluster is.
    pub(crate) fn tell_of_the_unknown(&self) {
        let telling = self.intranet().telling();
        let is_news = {
            let mut told = self.told_of_intranet.lock();
            let news = telling.as_ref().map(|telling| telling.message.clone());
            let is_news = *told != news;
            *told = news;
            is_news
        };
        if let (Some(telling), Some(subject), true) = (telling, self.binding_subject(), is_news) {
            self.tell(&subject, &[telling]);
        }
    }
}
