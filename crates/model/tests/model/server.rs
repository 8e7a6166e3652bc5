//! Quantities, as a real API server reads and prints them.
//!
//! A `LimitRange` takes any number of resources and any quantity of each, negative ones too, and gives them back
//! as it would store them. What it refuses takes the whole object with it, so bad texts are asked one by one.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{LimitRange, LimitRangeItem, LimitRangeSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use kube::api::PostParams;
use kube::{Api, Client};
use kubeocean_model::quantity::Quantity;
use kubeocean_sandbox::{COMPUTING, Sandbox, Spec};

#[tokio::test]
async fn an_api_server_reads_and_prints_quantities_as_we_do() {
    let (good, bad): (Vec<_>, Vec<_>) =
        texts().into_iter().partition(|text| Quantity::as_stored(text).is_ok());
    assert!(good.len() >= 300 && bad.len() >= 40, "{} good, {} bad", good.len(), bad.len());

    let sandbox = Sandbox::start(Spec::new()).await.unwrap();
    let client = sandbox.cluster(COMPUTING).unwrap().client().await.unwrap();
    let failures = compare(client, &good, &bad).await;
    sandbox.stop().await.unwrap();
    assert!(failures.is_empty(), "{} texts:\n{}", failures.len(), failures.join("\n"));
}

async fn compare(client: Client, good: &[String], bad: &[String]) -> Vec<String> {
    let mut failures = Vec::new();
    match stored(&client, good).await {
        Err(error) => failures.push(format!("the server refuses what we accept: {error}")),
        Ok(stored) => {
            for (text, theirs) in good.iter().zip(stored) {
                let ours = Quantity::as_stored(text).unwrap();
                let drops_suffix = drops_suffix(text);
                if drops_suffix == (ours == theirs) {
                    failures.push(format!("`{text}`: they print `{theirs}`, we `{ours}`"));
                }
            }
        }
    }
    for text in bad {
        if let Ok(stored) = stored(&client, std::slice::from_ref(text)).await {
            failures.push(format!("`{text}`: they print `{}`, we refuse it", stored.join("")));
        }
    }
    failures
}

async fn stored(client: &Client, texts: &[String]) -> kube::Result<Vec<String>> {
    let key = |index| format!("example.com/r{index:04}");
    let max: BTreeMap<_, _> =
        texts.iter().enumerate().map(|(index, text)| (key(index), Written(text.clone()))).collect();
    let item = LimitRangeItem { type_: "Pod".into(), max: Some(max), ..LimitRangeItem::default() };
    let mut range = LimitRange { spec: Some(LimitRangeSpec { limits: vec![item] }), ..LimitRange::default() };
    range.metadata.name = Some("quantities".into());
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let answer = Api::<LimitRange>::namespaced(client.clone(), "default").create(&dry_run, &range).await?;
    let max = answer.spec.and_then(|spec| spec.limits.into_iter().next()).and_then(|item| item.max).unwrap();
    Ok((0..texts.len()).map(|index| max[&key(index)].0.clone()).collect())
}

/// An API server drops suffixes that it has no letter for, and says 1 for `1000E`. We do not.
fn drops_suffix(text: &str) -> bool {
    ["1000E", "2000000E", "1000000000000000000000", "10e2E"].contains(&text)
}

fn texts() -> Vec<String> {
    let suffixes = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let exponents = ["e3", "E3", "e-2", "E-9", "e+6", "e0", "e1", "e12", "e21", "e25", "e03", "e-10"];
    let numbers = ["0", "1", "-1", "1.5", "0.1", "1024", "1000", "007", "+8", "12.345", "-2.50"];
    let mut texts: Vec<String> = numbers
        .iter()
        .flat_map(|number| suffixes.iter().chain(&exponents).map(move |suffix| format!("{number}{suffix}")))
        .collect();
    let alone = [
        // Without digits, or with a point and little else.
        ".",
        "+",
        "-",
        "k",
        "Ki",
        "Mi",
        "Ti",
        "Pi",
        "Ei",
        "e3",
        "e-9",
        "e-10",
        ".e-10",
        "5.",
        ".5",
        "1.G",
        "1.Ki",
        "-.5",
        "+.",
        ".Ki",
        "00",
        "-0",
        "0.0",
        "0.000",
        "0Ei",
        "0e-100",
        // Fine, and finer than nano.
        "0.0000000001",
        "0.1n",
        "1.1n",
        "-0.1n",
        "1e-20",
        "1.0000000001",
        "0.000000001",
        "999999999n",
        "1000000000n",
        // Binary: fractions, the cap, below one, below 1024.
        "1.1Ki",
        "0.5Ki",
        "0.0001Ki",
        "0.1Ei",
        "7Ei",
        "8Ei",
        "-8Ei",
        "9.9Ei",
        "16Ei",
        "1023Mi",
        "1025Ki",
        "1048576Ki",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "9007199254740993Ki",
        "1.5Mi",
        "0.3Mi",
        "123456789.123456789123456789Ki",
        "99999999999999999999Ki",
        // Long.
        "123456789012345678",
        "1234567890123456789",
        "12345678901234567890123",
        "0.123456789012345678",
        "000000000000000000000000001",
        "1000000000000000000000",
        "1500E",
        "1000E",
        "2000000E",
        "1500000E",
        // Nearly canonical.
        "1.500",
        "1.000",
        "1.500k",
        "100.000",
        "1000m",
        "1001m",
        "1e3",
        "1E3",
        "10e2",
        "100e1",
        "1e4294967299",
        " 1 ",
        "1 ",
        "12e-1",
        "-12.5e2",
        "1.23e1",
        // Not quantities.
        "",
        " ",
        "x",
        "1x",
        "1 k",
        "1K",
        "1KB",
        "1kb",
        "1Gb",
        "1GiB",
        "1ki",
        "1KI",
        "1mi",
        "1i",
        "1e",
        "1e-",
        "1e+",
        "1ee3",
        "1e3Ki",
        "1Ki3",
        "1m3",
        "1-3",
        "1+3",
        "--1",
        "+-1",
        "1..2",
        "1.2.3",
        "1,5",
        "0x10",
        "1e1.5",
        "NaN",
        "inf",
        "1e99999999999999999999",
        "٣",
        "1\u{a0}k",
        "½",
        "1_000",
        "1 000",
        "$1",
        "1%",
        "1E3E",
        "10e2E",
        "uu",
        "1um",
        "1nn",
    ];
    texts.extend(alone.map(str::to_owned));
    texts
}
