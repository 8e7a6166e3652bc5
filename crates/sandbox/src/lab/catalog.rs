//! The table of programs: what there is, at which version, from which module.
//!
//! A second Kubernetes minor is one line in [`KUBERNETES`] and one directory `lab/kubernetes-<minor>`
//! with its `go.mod` and `go.sum` (`lab/README.md` says how they are made).

use std::fmt;

use super::LabError;

/// A program that the sandbox runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the variants are the programs' own names")]
pub enum Program {
    Etcd,
    KubeApiserver,
    KubeControllerManager,
    KubeScheduler,
    Kubectl,
    Kwok,
    Kubelet,
    KubeProxy,
    Coredns,
    MetricsServer,
}

impl Program {
    /// All of them, in the order in which they are built: a control plane first.
    pub const ALL: [Self; 10] = [
        Self::Etcd,
        Self::KubeApiserver,
        Self::KubeControllerManager,
        Self::KubeScheduler,
        Self::Kubectl,
        Self::Kwok,
        Self::Kubelet,
        Self::KubeProxy,
        Self::Coredns,
        Self::MetricsServer,
    ];

    /// The program's file name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kubectl => "kubectl",
            Self::Kwok => "kwok",
            Self::Kubelet => "kubelet",
            Self::KubeProxy => "kube-proxy",
            Self::Coredns => "coredns",
            Self::MetricsServer => "metrics-server",
        }
    }

    /// The program of that file name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|program| program.name() == name)
    }

    /// What to call it with to learn its version.
    pub(super) fn version_args(self) -> &'static [&'static str] {
        match self {
            Self::Kubectl => &["version", "--client"],
            Self::Coredns => &["-version"],
            _ => &["--version"],
        }
    }

    pub(super) fn recipe(self, release: &'static Release) -> Recipe {
        match self {
            Self::Etcd => Recipe { module: &ETCD, package: "go.etcd.io/etcd/server/v3" },
            Self::Kwok => Recipe { module: &KWOK, package: "sigs.k8s.io/kwok/cmd/kwok" },
            Self::Coredns => Recipe { module: &COREDNS, package: "github.com/coredns/coredns" },
            Self::MetricsServer => {
                Recipe { module: &METRICS_SERVER, package: "sigs.k8s.io/metrics-server/cmd/metrics-server" }
            }
            Self::KubeApiserver => Recipe::kubernetes(release, "k8s.io/kubernetes/cmd/kube-apiserver"),
            Self::KubeControllerManager => {
                Recipe::kubernetes(release, "k8s.io/kubernetes/cmd/kube-controller-manager")
            }
            Self::KubeScheduler => Recipe::kubernetes(release, "k8s.io/kubernetes/cmd/kube-scheduler"),
            Self::Kubectl => Recipe::kubernetes(release, "k8s.io/kubernetes/cmd/kubectl"),
            Self::Kubelet => Recipe::kubernetes(release, "k8s.io/kubernetes/cmd/kubelet"),
            Self::KubeProxy => Recipe::kubernetes(release, "k8s.io/kubernetes/cmd/kube-proxy"),
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A Go module of ours that pins programs.
#[derive(Debug)]
pub(super) struct Module {
    /// Name of its cache directory, before the version.
    pub(super) family: &'static str,
    pub(super) version: &'static str,
    pub(super) go_mod: &'static str,
    pub(super) go_sum: &'static str,
    /// The variable path that carries the version into the binary, where there is one.
    pub(super) stamp: Stamp,
}

/// How a program learns its own version at link time.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stamp {
    /// It knows by itself.
    Built,
    /// `k8s.io/component-base/version`: clients negotiate by it.
    ComponentBase,
    /// `k8s.io/client-go/pkg/version`: what it prints when it is asked.
    ClientGo,
}

impl Module {
    /// `kubernetes-v1.36.4`.
    pub(super) fn directory(&self) -> String {
        format!("{}-{}", self.family, self.version)
    }

    /// The linker flags: no symbol tables, and the version where the program wants to be told.
    pub(super) fn ldflags(&self) -> String {
        match self.stamp {
            Stamp::Built => "-s -w".to_owned(),
            Stamp::ClientGo => {
                format!("-s -w -X k8s.io/client-go/pkg/version.gitVersion={}", self.version)
            }
            Stamp::ComponentBase => {
                let version = self.version;
                let mut parts = version.trim_start_matches('v').split('.');
                let (major, minor) = (parts.next().unwrap_or("1"), parts.next().unwrap_or("0"));
                let package = "k8s.io/component-base/version";
                format!(
                    "-s -w -X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
                )
            }
        }
    }
}

/// How one program is built.
#[derive(Debug)]
pub(super) struct Recipe {
    pub(super) module: &'static Module,
    pub(super) package: &'static str,
}

impl Recipe {
    fn kubernetes(release: &'static Release, package: &'static str) -> Self {
        Self { module: &release.module, package }
    }
}

/// One minor of Kubernetes.
#[derive(Debug)]
pub struct Release {
    /// As in `1.36`.
    pub minor: &'static str,
    module: Module,
}

impl Release {
    /// As in `v1.36.4`.
    pub fn version(&self) -> &'static str {
        self.module.version
    }
}

macro_rules! module {
    ($family:literal, [$($directory:literal),+], $version:literal, $stamp:expr) => {
        Module {
            family: $family,
            version: $version,
            go_mod: include_str!(concat!("../../../../lab/", $($directory,)+ "/go.mod")),
            go_sum: include_str!(concat!("../../../../lab/", $($directory,)+ "/go.sum")),
            stamp: $stamp,
        }
    };
}

macro_rules! kubernetes {
    ($minor:literal, $version:literal) => {
        Release {
            minor: $minor,
            module: module!("kubernetes", ["kubernetes-", $minor], $version, Stamp::ComponentBase),
        }
    };
}

/// The Kubernetes minors that the lab can build; the first is the default.
pub static KUBERNETES: &[Release] = &[kubernetes!("1.36", "v1.36.4")];

static ETCD: Module = module!("etcd", ["etcd-3.6"], "v3.6.16", Stamp::Built);
static KWOK: Module = module!("kwok", ["kwok-0.8"], "v0.8.0", Stamp::Built);
static COREDNS: Module = module!("coredns", ["coredns-1.12"], "v1.12.4", Stamp::Built);
static METRICS_SERVER: Module = module!("metrics-server", ["metrics-server-0.9"], "v0.9.0", Stamp::ClientGo);

/// The release of `minor` (`1.36`), or the default one.
pub fn release(minor: Option<&str>) -> Result<&'static Release, LabError> {
    let known = || KUBERNETES.iter().map(|release| release.minor).collect::<Vec<_>>().join(", ");
    let found = match minor {
        None => KUBERNETES.first(),
        Some(minor) => KUBERNETES.iter().find(|release| release.minor == minor.trim_start_matches('v')),
    };
    found.ok_or_else(|| LabError::UnknownRelease {
        asked: minor.unwrap_or("(default)").to_owned(),
        known: known(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_is_a_tool_of_its_module_at_the_version_of_the_table() {
        for release in KUBERNETES {
            for program in Program::ALL {
                let recipe = program.recipe(release);
                let go_mod = recipe.module.go_mod;
                assert!(go_mod.contains(recipe.package), "{program} is not in its go.mod");
                assert!(
                    go_mod.contains(&format!(" {}", recipe.module.version)),
                    "{program} at another version"
                );
                assert!(!recipe.module.go_sum.is_empty());
            }
        }
    }

    #[test]
    fn an_unknown_minor_names_the_known_ones() {
        let error = release(Some("1.12")).expect_err("1.12 is not in the table");
        assert!(error.to_string().contains("it has 1.36"), "{error}");
    }
}
