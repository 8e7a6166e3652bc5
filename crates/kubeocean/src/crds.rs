//! `kubeocean crds`.

use std::io::Write as _;

use kube::ResourceExt as _;
use kubeocean_api::crd::{self, Group};

use crate::cli::Output;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  kubeocean crds | kubectl apply --server-side -f -")]
pub(crate) struct Args {
    /// Only the definitions of this group: ocean (pooling)
    #[arg(long, value_parser = |name: &str| name.parse::<Group>())]
    group: Option<Group>,
    /// How to print them
    #[arg(short, long, default_value = "yaml")]
    output: Output,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let Args { group, output } = args;
    let crds = group.map_or_else(crd::crds, Group::crds);
    let mut out = std::io::stdout().lock();
    match output {
        Output::Yaml => {
            for (index, definition) in crds.iter().enumerate() {
                if index > 0 {
                    out.write_all(b"---\n")?;
                }
                out.write_all(&crd::render(definition)?)?;
            }
        }
        Output::Json => {
            let list = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": crds });
            writeln!(out, "{}", serde_json::to_string_pretty(&list)?)?;
        }
        Output::Name => {
            for definition in &crds {
                writeln!(out, "customresourcedefinition.apiextensions.k8s.io/{}", definition.name_any())?;
            }
        }
    }
    Ok(())
}
