//! Serving certificates of proxiers: what they ask for, and which of it is approved.
//!
//! API servers believe who answers on a kubelet's port by a certificate of the signer `kubernetes.io/kubelet-serving`. A certificate
//! for an address is the right to answer as whatever is there, so one is approved only for the address of the pod that asks. Who asks is
//! said by the API server (`spec.username`, `spec.extra`), and nothing that the asker wrote itself is believed.
//!
//! Three answers: what is not ours is left alone; what can never be right is denied; what may yet become right, because a pod or
//! a binding is not known here yet, waits.
//!
//! Deliberately absent: keys, certificates, clocks, and the signer.

mod form;

use std::fmt;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kubeocean_api::keys::labels;
use kubeocean_api::keys::names::{
    MANAGER, PROXIER_PREFIX, SERVING_ORGANIZATION, SERVING_SIGNER, SERVING_USER_PREFIX,
};
use kubeocean_api::keys::reasons::Event as EventReason;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::action::{Action, Mark, PatchForm, Verb, kinds};
use crate::bind::Telling;
use crate::key::{Key, Virtual};
use crate::naming::{is_dns_label, md5};
use crate::object::{Meta, Object};
use form::Form;

/// Which pod a token was made for, as an API server says it of whoever shows one.
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";

/// Needed by every key exchange of today, and for what.
const NEEDED_USAGES: [&str; 2] = ["digital signature", "server auth"];
/// Only of use with RSA keys.
const OPTIONAL_USAGE: &str = "key encipherment";

/// Nobody needs one for longer: it is renewed while its proxier runs.
const LONGEST_LIFE: i64 = 366 * 24 * 3600;

const APPROVED: &str = "Approved";
const DENIED: &str = "Denied";
const FAILED: &str = "Failed";

/// A signing request, as much of it as is judged.
#[derive(Clone, Debug)]
pub struct Request {
    /// Who it is.
    pub meta: Meta,
    spec: Spec,
    conditions: Vec<Value>,
    has_certificate: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    signer_name: String,
    request: String,
    usages: Vec<String>,
    username: String,
    extra: std::collections::BTreeMap<String, Vec<String>>,
    expiration_seconds: Option<i64>,
}

impl Request {
    /// Reads one. What cannot be read is nobody's, and never approved.
    pub fn read(object: &Object) -> Self {
        let status: Value = object.field("status").ok().flatten().unwrap_or_default();
        Self {
            meta: object.meta.clone(),
            spec: object.field("spec").ok().flatten().unwrap_or_default(),
            conditions: status["conditions"].as_array().cloned().unwrap_or_default(),
            has_certificate: status["certificate"].as_str().is_some_and(|text| !text.is_empty()),
        }
    }

    /// Whether someone has already said yes or no, or it is on its way out.
    pub fn is_decided(&self) -> bool {
        let said = |word: &str| self.conditions.iter().any(|one| one["type"] == word);
        self.has_certificate || self.meta.is_deleting() || [APPROVED, DENIED, FAILED].into_iter().any(said)
    }

    /// Who asks, as the API server says.
    pub fn username(&self) -> &str {
        &self.spec.username
    }
}

/// A pod that may ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AskingPod {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The name of its service account.
    pub account: String,
    /// Where it is reached.
    pub addresses: Vec<IpAddr>,
    /// It is not on its way out, and has not ended.
    pub lives: bool,
}

impl AskingPod {
    /// Reads one. One that cannot be read does not live.
    pub fn read(object: &Object) -> Self {
        let text = |field, path: &[&str]| object.text(field, path).unwrap_or_default();
        let status: Value = object.field("status").ok().flatten().unwrap_or_default();
        let on_host = object
            .field::<Value>("spec")
            .ok()
            .flatten()
            .is_some_and(|spec| spec["hostNetwork"].as_bool().unwrap_or(false));
        let of = |list: &str| -> Vec<IpAddr> {
            let all = status[list].as_array().map(Vec::as_slice).unwrap_or_default();
            let parsed = all.iter().filter_map(|one| one["ip"].as_str()?.parse::<IpAddr>().ok());
            parsed.map(|address| address.to_canonical()).collect()
        };
        let mut addresses = of("podIPs");
        // Only there are they its own.
        if on_host {
            addresses.extend(of("hostIPs"));
        }
        let phase = status["phase"].as_str().unwrap_or_default();
        Self {
            name: object.meta.name.to_string(),
            uid: object.meta.uid.to_string(),
            account: text("spec", &["serviceAccountName"]),
            addresses,
            lives: !object.meta.is_deleting() && matches!(phase, "Pending" | "Running"),
        }
    }
}

/// The manager itself, where it runs proxiers in its own process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// Its user.
    pub user: String,
    /// Where it is reached.
    pub address: IpAddr,
}

/// What a judgement is made on.
pub struct Grounds<'a> {
    /// The namespace that we are installed in.
    pub namespace: &'a str,
    /// Whether a binding has this `clusterID`. One that is being taken apart has: its pods still have logs.
    pub is_bound: &'a dyn Fn(&str) -> bool,
    /// The pods of a service account of that namespace.
    pub pods_of: &'a dyn Fn(&str) -> Vec<AskingPod>,
    /// The manager itself.
    pub own: Option<&'a Own>,
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is not ours to judge, or already judged.
    LeftAlone,
    /// Everything about it is as it should be.
    Approved,
    /// It may become right.
    Waits(Doubt),
    /// It cannot become right.
    Denied(Flaw),
}

/// What is wrong with what is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Not one PEM block of PKCS#10.
    Unreadable,
    /// More than, or not, a common name and an organization.
    Subject,
    /// The common name is not its own.
    CommonName,
    /// The organization is another.
    Organization,
    /// Other names than addresses, or none.
    Names,
    /// It asks for more than addresses.
    Extensions,
    /// The key is weak, or of a kind that nobody knows.
    WeakKey,
    /// The usages are others.
    Usages,
    /// It would live for too long.
    Life,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreadable => "the request is not one plain PEM block of PKCS#10",
            Self::Subject => "the subject has to be one common name and one organization",
            Self::CommonName => "the common name is not that of the proxier who asks",
            Self::Organization => "the organization has to be system:nodes",
            Self::Names => "a proxier is certified for IP addresses only, at least one",
            Self::Extensions => "nothing but IP addresses may be asked for, no other extension or attribute",
            Self::WeakKey => "the key has to be ECDSA of 256 bits or more, or RSA of 2048 to 8192 bits",
            Self::Usages => {
                "the usages have to be digital signature and server auth, and may be key encipherment"
            }
            Self::Life => "it may not live for longer than a year",
        })
    }
}

/// What is not known of who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// No binding has its `clusterID`.
    NotBound(String),
    /// No such pod, or not of that service account, or it does not live.
    NoSuchPod(String),
    /// The pod is not reached there.
    NotItsAddress(IpAddr),
    /// It is our own, and wrong.
    Own(Flaw),
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBound(id) => write!(f, "no ClusterBinding has the clusterID {id}"),
            Self::NoSuchPod(account) => {
                write!(f, "no living pod of service account {account} is known to have asked")
            }
            Self::NotItsAddress(address) => write!(f, "{address} is not an address of the pod that asked"),
            Self::Own(flaw) => write!(f, "{flaw}"),
        }
    }
}

/// The common name of a proxier's certificate.
pub fn common_name(cluster_id: &str) -> String {
    format!("{SERVING_USER_PREFIX}{PROXIER_PREFIX}{cluster_id}")
}

/// The common name of the certificate of a manager that runs the proxiers of all bindings itself.
pub fn common_name_of_manager() -> String {
    format!("{SERVING_USER_PREFIX}{MANAGER}")
}

/// The `clusterID` of a proxier, by its user.
pub fn cluster_id_of<'a>(username: &'a str, namespace: &str) -> Option<&'a str> {
    let account = username.strip_prefix("system:serviceaccount:")?;
    let (found, name) = account.split_once(':')?;
    let id = name.strip_prefix(PROXIER_PREFIX)?;
    (found == namespace && is_dns_label(id)).then_some(id)
}

/// Whether a request is worth being kept: whose it is says the API server.
pub fn may_be_ours(username: &str, namespace: &str, own: Option<&str>) -> bool {
    cluster_id_of(username, namespace).is_some() || own.is_some_and(|own| own == username)
}

/// Judges a request.
pub fn judge(request: &Request, grounds: &Grounds<'_>) -> Verdict {
    let spec = &request.spec;
    if spec.signer_name != SERVING_SIGNER || request.is_decided() {
        return Verdict::LeftAlone;
    }
    if let Some(id) = cluster_id_of(&spec.username, grounds.namespace) {
        return judge_proxier(request, id, grounds);
    }
    match grounds.own {
        Some(own) if own.user == spec.username => judge_own(request, own, grounds),
        _ => Verdict::LeftAlone,
    }
}

fn judge_proxier(request: &Request, id: &str, grounds: &Grounds<'_>) -> Verdict {
    let form = match form_of(request) {
        Ok(form) => form,
        Err(flaw) => return Verdict::Denied(flaw),
    };
    if form.common_name != common_name(id) {
        return Verdict::Denied(Flaw::CommonName);
    }
    if !(grounds.is_bound)(id) {
        return Verdict::Waits(Doubt::NotBound(id.to_owned()));
    }
    let account = format!("{PROXIER_PREFIX}{id}");
    let living: Vec<_> =
        (grounds.pods_of)(&account).into_iter().filter(|pod| pod.lives && pod.account == account).collect();
    let asking = match asking_pod(&request.spec) {
        Asking::Nobody => return Verdict::Denied(Flaw::Unreadable),
        Asking::Unsaid => living,
        Asking::Pod { name, uid } => {
            living.into_iter().filter(|pod| pod.name == name && pod.uid == uid).collect()
        }
    };
    if asking.is_empty() {
        return Verdict::Waits(Doubt::NoSuchPod(account));
    }
    // All of them of one pod: two pods of one proxier do not answer for each other.
    let foreign =
        |pod: &AskingPod| form.addresses.iter().find(|address| !pod.addresses.contains(address)).copied();
    if asking.iter().any(|pod| foreign(pod).is_none()) {
        return Verdict::Approved;
    }
    let wrong = asking.iter().find_map(foreign);
    wrong.map_or(Verdict::LeftAlone, |address| Verdict::Waits(Doubt::NotItsAddress(address)))
}

/// Our own process asks for itself: one certificate for the listeners of all bindings.
///
/// That is safe. Whoever has the manager's identity may approve whatever it likes at this signer, so that an approval gives it nothing that it
/// could not take; the address is the one that this process was told to be reached at; and the common name, of a
/// binding that there is or of the manager, means nothing to an API server, which looks at addresses. Someone may be logged in as the same
/// user, an administrator on a laptop: what does not look like ours is left alone, and nothing of it is denied.
fn judge_own(request: &Request, own: &Own, grounds: &Grounds<'_>) -> Verdict {
    let form = match form_of(request) {
        Ok(form) => form,
        Err(flaw @ (Flaw::Usages | Flaw::Life)) => return Verdict::Waits(Doubt::Own(flaw)),
        Err(_) => return Verdict::LeftAlone,
    };
    let of_binding = form.common_name.strip_prefix(&common_name("")).is_some_and(grounds.is_bound);
    if !of_binding && form.common_name != common_name_of_manager() {
        return Verdict::LeftAlone;
    }
    match form.addresses.iter().find(|address| **address != own.address.to_canonical()) {
        Some(other) => Verdict::Waits(Doubt::NotItsAddress(*other)),
        None => Verdict::Approved,
    }
}

/// What is asked for, if that alone is right.
fn form_of(request: &Request) -> Result<Form, Flaw> {
    let spec = &request.spec;
    let form = Form::read(&spec.request)?;
    if form.organization != SERVING_ORGANIZATION {
        return Err(Flaw::Organization);
    }
    let known = |usage: &String| NEEDED_USAGES.contains(&usage.as_str()) || usage == OPTIONAL_USAGE;
    let needed = |usage: &&str| spec.usages.iter().any(|one| one == usage);
    if !NEEDED_USAGES.iter().all(needed) || !spec.usages.iter().all(known) {
        return Err(Flaw::Usages);
    }
    if spec.expiration_seconds.is_some_and(|seconds| !(0..=LONGEST_LIFE).contains(&seconds)) {
        return Err(Flaw::Life);
    }
    Ok(form)
}

/// Who showed the token.
enum Asking<'a> {
    /// The token does not say: it is an older one, or bound to nothing.
    Unsaid,
    /// This pod.
    Pod { name: &'a str, uid: &'a str },
    /// Half of a pod, or several.
    Nobody,
}

fn asking_pod(spec: &Spec) -> Asking<'_> {
    let said = |key| spec.extra.get(key).map(Vec::as_slice);
    match (said(POD_NAME), said(POD_UID)) {
        (None, None) => Asking::Unsaid,
        (Some([name]), Some([uid])) => Asking::Pod { name, uid },
        _ => Asking::Nobody,
    }
}

/// The write that a verdict is.
pub fn decide(request: &Request, verdict: &Verdict) -> Option<Action> {
    let (word, reason, message) = match verdict {
        Verdict::Approved => (APPROVED, EventReason::CertificateApproved, approval()),
        Verdict::Denied(flaw) => (DENIED, EventReason::CertificateDenied, flaw.to_string()),
        Verdict::LeftAlone | Verdict::Waits(_) => return None,
    };
    let mut conditions = request.conditions.clone();
    conditions.push(json!({
        "type": word, "status": "True", "reason": reason.as_str(), "message": message,
    }));
    let body = json!({ "status": { "conditions": conditions } });
    let verb = Verb::Patch { form: PatchForm::Merge, subresource: Some("approval"), body };
    let key = Key::<Virtual>::cluster_scoped(&*request.meta.name);
    let action = Action::new(kinds::SIGNING_REQUEST, &key, verb, message);
    Some(action.if_uid(&*request.meta.uid).if_version(&*request.meta.resource_version))
}

/// What people are told of a verdict.
pub fn tell(verdict: &Verdict) -> Option<Telling> {
    match verdict {
        Verdict::LeftAlone => None,
        Verdict::Approved => Some(Telling::event(false, EventReason::CertificateApproved, approval())),
        Verdict::Waits(doubt) => {
            Some(Telling::event(true, EventReason::CertificatePending, doubt.to_string()))
        }
        Verdict::Denied(flaw) => Some(Telling::event(true, EventReason::CertificateDenied, flaw.to_string())),
    }
}

fn approval() -> String {
    "the proxier that asks is reached at the addresses that it asks for".to_owned()
}

/// Who asks, on the side of the proxier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asker {
    /// The proxier of a binding.
    Proxier {
        /// The binding's `clusterID`.
        cluster_id: String,
        /// The binding's uid.
        binding_uid: String,
    },
    /// A manager that runs all proxiers itself.
    Manager,
}

impl Asker {
    /// The common name of its certificate.
    pub fn common_name(&self) -> String {
        match self {
            Self::Proxier { cluster_id, .. } => common_name(cluster_id),
            Self::Manager => common_name_of_manager(),
        }
    }
}

/// The write by which a certificate is asked for. `pem` is the request, `virtual_cluster_uid` stands for the computing cluster, `life` is how many seconds it should be good for.
///
/// The name of the object follows from what is asked with which key: a second attempt after an answer that got lost finds the first one.
pub fn ask(asker: &Asker, virtual_cluster_uid: &str, pem: &str, life: u64) -> Action {
    let name = asker.common_name();
    let name = name.strip_prefix(SERVING_USER_PREFIX).unwrap_or(&name);
    let name = format!("{name}-{}", md5(pem));
    let mut labels = json!({
        labels::MANAGED_BY: labels::MANAGED_BY_VALUE,
        labels::VIRTUAL_CLUSTER_UID: virtual_cluster_uid,
    });
    if let Asker::Proxier { cluster_id, binding_uid } = asker {
        labels[labels::BINDING_UID] = binding_uid.as_str().into();
        labels[labels::PHYSICAL_CLUSTER_ID] = cluster_id.as_str().into();
    }
    let body = json!({
        "metadata": { "labels": labels },
        "spec": {
            "signerName": SERVING_SIGNER,
            "request": STANDARD.encode(pem),
            "usages": NEEDED_USAGES,
            "expirationSeconds": life,
        },
    });
    let mark = Mark { labels: &[labels::MANAGED_BY, labels::VIRTUAL_CLUSTER_UID], annotations: &[] };
    let key = Key::<Virtual>::cluster_scoped(name);
    let why = "a serving certificate is needed";
    Action::new(kinds::SIGNING_REQUEST, &key, Verb::Create { body, mark }, why)
}

/// What came of a request, on the side of the proxier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nobody has decided yet.
    Undecided,
    /// It is approved, and the signer has not signed.
    Unsigned,
    /// Not granted; why.
    Refused(String),
    /// The chain, in PEM.
    Signed(String),
}

/// Reads what came of a request.
pub fn answer(object: &Object) -> Answer {
    let status: Value = object.field("status").ok().flatten().unwrap_or_default();
    let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let said = |word: &str| conditions.iter().find(|one| one["type"] == word);
    if let Some(no) = said(DENIED).or(said(FAILED)) {
        let text = |key: &str| no[key].as_str().unwrap_or_default().to_owned();
        return Answer::Refused(format!("{}: {}", text("reason"), text("message")));
    }
    let chain = status["certificate"].as_str().and_then(|text| STANDARD.decode(text).ok());
    match chain.and_then(|bytes| String::from_utf8(bytes).ok()).filter(|text| !text.is_empty()) {
        Some(chain) => Answer::Signed(chain),
        None if said(APPROVED).is_some() => Answer::Unsigned,
        None => Answer::Undecided,
    }
}

#[cfg(test)]
mod tests;
