//! What cannot run in a worker cluster, and what to do instead.

use kubeocean_api::keys::annotations::ALLOWED_VOLUME_SOURCES;
use kubeocean_api::keys::reasons::Event as Reason;
use serde_json::{Map, Value};

use super::{items, text};
use crate::object::Object;

/// Why a pod has no twin. The message names the field and the fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Not a pod at all.
    #[error(
        "{field} cannot be read: {problem}; make the pod again with a `spec` that the API server has checked"
    )]
    Unreadable {
        /// Where.
        field: &'static str,
        /// Why.
        problem: String,
    },
    /// Devices are claimed.
    #[error(
        "spec.resourceClaims: devices cannot be claimed in worker clusters yet; ask for them as a resource of the container \
         (`resources.limits`), or keep the pod off virtual nodes"
    )]
    ResourceClaims,
    /// A certificate is wanted of V's signers.
    #[error(
        "{field}.podCertificate: no certificate can be issued to a pod in a worker cluster; put one into a Secret, or keep the pod off \
         virtual nodes"
    )]
    PodCertificate {
        /// Which source.
        field: String,
    },
    /// Certificates of V are wanted.
    #[error(
        "{field}.clusterTrustBundle: trust bundles of the computing cluster are not known in worker clusters; put the certificates into \
         a ConfigMap, or keep the pod off virtual nodes"
    )]
    ClusterTrustBundle {
        /// Which source.
        field: String,
    },
    /// The lender does not allow this driver's volumes.
    #[error(
        "{field}.csi: the worker cluster does not allow volumes of CSI drivers in pods (driver `{driver}`); use a PersistentVolumeClaim, \
         or ask the lender to add `csi` to the annotation {ALLOWED_VOLUME_SOURCES} of the mount namespace"
    )]
    InlineCsi {
        /// Which volume.
        field: String,
        /// Its driver.
        driver: String,
    },
    /// An Endpoints object of V would be needed.
    #[error(
        "{field}.glusterfs: it names an Endpoints object, which worker clusters do not have; use a PersistentVolumeClaim"
    )]
    Glusterfs {
        /// Which volume.
        field: String,
    },
    /// The twin carries some annotations more than the pod, and there is a limit.
    #[error(
        "metadata.annotations: with our own they are {bytes} bytes, and API servers take at most {limit}; make them smaller"
    )]
    TooManyAnnotations {
        /// How large they would be.
        bytes: usize,
        /// How large they may be.
        limit: usize,
    },
}

impl Refusal {
    /// The reason of the Event that says so.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Unreadable { .. } | Self::TooManyAnnotations { .. } => Reason::PodUnreadable,
            Self::ResourceClaims
            | Self::PodCertificate { .. }
            | Self::ClusterTrustBundle { .. }
            | Self::InlineCsi { .. }
            | Self::Glusterfs { .. } => Reason::NotSupported,
        }
    }
}

/// The spec, parsed.
pub(super) fn readable(pod: &Object) -> Result<Map<String, Value>, Refusal> {
    let unreadable = |problem: String| Refusal::Unreadable { field: "spec", problem };
    match pod.field::<Value>("spec") {
        Ok(Some(Value::Object(spec))) => Ok(spec),
        Ok(_) => Err(unreadable("it is not an object".to_owned())),
        Err(error) => Err(unreadable(error.to_string())),
    }
}

/// Whether any worker cluster could run it.
pub(super) fn check(spec: &Map<String, Value>) -> Result<(), Refusal> {
    let claims = spec.get("resourceClaims");
    if claims.is_some_and(|claims| !claims.is_null() && claims.as_array().is_none_or(|list| !list.is_empty()))
    {
        return Err(Refusal::ResourceClaims);
    }
    let is_there =
        |object: &Map<String, Value>, field: &str| object.get(field).is_some_and(|one| !one.is_null());
    for (index, volume) in items(spec, "volumes").enumerate() {
        let field = || format!("spec.volumes[{index}]");
        if is_there(volume, "glusterfs") {
            return Err(Refusal::Glusterfs { field: field() });
        }
        let projected = volume.get("projected").and_then(Value::as_object);
        let sources = projected.into_iter().flat_map(|projected| items(projected, "sources"));
        for (source_index, source) in sources.enumerate() {
            let field = || format!("{}.projected.sources[{source_index}]", field());
            if is_there(source, "podCertificate") {
                return Err(Refusal::PodCertificate { field: field() });
            }
            if is_there(source, "clusterTrustBundle") {
                return Err(Refusal::ClusterTrustBundle { field: field() });
            }
        }
    }
    Ok(())
}

/// Whether a worker cluster could run it whose lender allows no volumes of CSI drivers.
pub(super) fn check_csi(spec: &Map<String, Value>) -> Result<(), Refusal> {
    let named = |(index, volume): (usize, &Map<String, Value>)| {
        let csi = volume.get("csi")?.as_object()?;
        let driver = text(csi, "driver").unwrap_or_default().to_owned();
        Some(Refusal::InlineCsi { field: format!("spec.volumes[{index}]"), driver })
    };
    items(spec, "volumes").enumerate().find_map(named).map_or(Ok(()), Err)
}
