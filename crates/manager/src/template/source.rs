//! Where templates come from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kubeocean_model::bind::Role;
use serde::{Deserialize, Serialize};
use serde_json::Value;

const VALUES: &str = "values.yaml";

macro_rules! built_in {
    ($role:literal: $($file:literal),+) => {
        &[$(($file, include_str!(concat!("../../templates/", $role, "/", $file)))),+]
    };
}

const SYNCER: &[(&str, &str)] =
    built_in!("syncer": "service-account.yaml", "roles.yaml", "deployment.yaml", "disruption-budget.yaml");
const PROXIER: &[(&str, &str)] = built_in!(
    "proxier": "service-account.yaml", "roles.yaml", "service.yaml", "deployment.yaml", "autoscaler.yaml", "disruption-budget.yaml"
);

/// The templates of both roles.
#[derive(Clone, Debug, PartialEq)]
pub struct Templates {
    syncer: Source,
    proxier: Source,
}

/// The templates of one role.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// Name and content, in the order of the names.
    pub files: BTreeMap<String, String>,
    /// What `values.yaml` says.
    pub values: Values,
    directory: Option<PathBuf>,
}

/// What can be set without writing a template. All of it is optional.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Values {
    /// The image; else `--worker-image`, else that of the manager's own pod.
    pub image: Option<String>,
    /// `IfNotPresent` by default.
    pub image_pull_policy: Option<String>,
    /// 2 by default.
    pub replicas: Option<u32>,
    /// `requests` and `limits` of the container; by size otherwise.
    pub resources: Option<Value>,
    /// Of the pods.
    pub tolerations: Option<Vec<Value>>,
    /// Of the pods.
    #[serde(rename = "priorityClassName")]
    pub priority_class: Option<String>,
    /// For the proxier: as many as the load needs.
    pub autoscaling: Option<Autoscaling>,
}

/// Between which numbers of replicas a proxier is scaled.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Autoscaling {
    /// At least.
    #[serde(rename(deserialize = "minReplicas"))]
    pub min_replicas: u32,
    /// At most.
    #[serde(rename(deserialize = "maxReplicas"))]
    pub max_replicas: u32,
    /// Of the requested CPU.
    #[serde(rename(deserialize = "cpuPercent"), default = "eighty")]
    pub cpu_percent: u32,
}

const fn eighty() -> u32 {
    80
}

/// Why templates cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// No directory, no right, no text.
    #[error("{path} cannot be read: {cause}; unset {variable} to use the built-in templates")]
    Unreadable {
        /// Which file or directory.
        path: String,
        /// The system's words.
        cause: String,
        /// Who names it.
        variable: &'static str,
    },
    /// Files, and none of them is a template.
    #[error(
        "{path} has no template, only {names}: name templates *.yaml, or empty the directory to use the built-in ones"
    )]
    NoTemplate {
        /// Which directory.
        path: String,
        /// What is there.
        names: String,
    },
    /// Values that nobody knows, or of the wrong type.
    #[error("{path}: {cause}; docs/templates.md lists what can be set")]
    Values {
        /// Which file.
        path: String,
        /// What is wrong.
        cause: String,
    },
}

/// The variable that names the directory of a role's templates.
pub(super) const fn variable(role: Role) -> &'static str {
    match role {
        Role::Syncer => "KUBEOCEAN_SYNCER_TEMPLATE_DIR",
        Role::Proxier => "KUBEOCEAN_PROXIER_TEMPLATE_DIR",
    }
}

fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

impl Source {
    fn built_in(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        Self { files, values: Values::default(), directory: None }
    }

    fn load(role: Role, directory: &Path) -> Result<Self, SourceError> {
        let variable = variable(role);
        let unreadable = |path: &Path, cause: std::io::Error| SourceError::Unreadable {
            path: path.display().to_string(),
            cause: cause.to_string(),
            variable,
        };
        let (mut files, mut others) = (BTreeMap::new(), Vec::new());
        for entry in std::fs::read_dir(directory).map_err(|cause| unreadable(directory, cause))? {
            let path = entry.map_err(|cause| unreadable(directory, cause))?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            // Those with two dots are how a mounted ConfigMap keeps its versions.
            if name.starts_with("..") {
                continue;
            }
            if !is_yaml(&path) || !path.is_file() {
                others.push(name.to_owned());
                continue;
            }
            let text = std::fs::read_to_string(&path).map_err(|cause| unreadable(&path, cause))?;
            files.insert(name.to_owned(), text);
        }
        if files.is_empty() && !others.is_empty() {
            others.sort_unstable();
            return Err(SourceError::NoTemplate {
                path: directory.display().to_string(),
                names: others.join(", "),
            });
        }
        let values: Values = match files.remove(VALUES) {
            None => Values::default(),
            Some(text) if text.trim().is_empty() => Values::default(),
            Some(text) => Self::values(role, &text).map_err(|cause| SourceError::Values {
                path: directory.join(VALUES).display().to_string(),
                cause,
            })?,
        };
        if files.is_empty() {
            // As a ConfigMap that is not there is mounted. Values alone are for the built-in templates.
            files = Self::built_in(if role == Role::Syncer { SYNCER } else { PROXIER }).files;
        }
        Ok(Self { files, values, directory: Some(directory.to_owned()) })
    }

    fn values(role: Role, text: &str) -> Result<Values, String> {
        let values: Values = serde_saphyr::from_str(text).map_err(|error| {
            let line = error.location().map_or_else(String::new, |at| format!("line {}: ", at.line()));
            format!("{line}{}", super::one_line(&error.to_string()))
        })?;
        let at = |key: &str| {
            let line = text.lines().position(|line| line.trim_start().starts_with(key));
            line.map_or_else(String::new, |index| format!("line {}: ", index + 1))
        };
        if values.replicas == Some(0) {
            return Err(format!("{}replicas is 0, and nothing would run: at least 1", at("replicas")));
        }
        if values.autoscaling.is_some() && role == Role::Syncer {
            return Err(format!(
                "{}autoscaling is for the proxier: of several syncers one works, and more of them are no faster; remove it, or set \
                 replicas",
                at("autoscaling")
            ));
        }
        Ok(values)
    }

    /// How a file is named in a message.
    pub(super) fn place(&self, file: &str) -> String {
        match &self.directory {
            Some(directory) => directory.join(file).display().to_string(),
            None => format!("built-in {file}"),
        }
    }
}

impl Templates {
    /// Those that come with the program.
    pub fn built_in() -> Self {
        Self { syncer: Source::built_in(SYNCER), proxier: Source::built_in(PROXIER) }
    }

    /// Those of the directories that are given, and the built-in ones for the rest.
    pub fn load(syncer: Option<&Path>, proxier: Option<&Path>) -> Result<Self, (Role, SourceError)> {
        let read = |role, directory: Option<&Path>, files| match directory {
            Some(directory) => Source::load(role, directory).map_err(|error| (role, error)),
            None => Ok(Source::built_in(files)),
        };
        Ok(Self {
            syncer: read(Role::Syncer, syncer, SYNCER)?,
            proxier: read(Role::Proxier, proxier, PROXIER)?,
        })
    }

    pub(super) fn of(&self, role: Role) -> &Source {
        match role {
            Role::Syncer => &self.syncer,
            Role::Proxier => &self.proxier,
        }
    }
}
