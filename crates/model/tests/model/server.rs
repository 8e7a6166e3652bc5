//! Quantities, as a real API server reads and prints them.
//!
//! A `LimitRange` takes any number of resources and any quantity of each, negative ones too, and gives them back
//! as lists of resources have them. The sizes of the volumes of a `PodTemplate` are quantities outside of such
//! a list, and not negative. What a server cannot read takes the whole object with it, so bad texts are asked
//! one by one. Everything is a dry run.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{LimitRange, LimitRangeItem, LimitRangeSpec, PodTemplate, Volume};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use kube::api::PostParams;
use kube::{Api, Client};
use kubeocean_model::quantity::{ParseQuantityError, Quantity};
use kubeocean_sandbox::{COMPUTING, Sandbox, Spec};
use serde_json::json;

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
    let is_negative = |text: &String| text.parse::<Quantity>().unwrap().is_negative();
    let not_negative: Vec<_> = good.iter().filter(|text| !is_negative(text)).cloned().collect();
    let mut failures = differences(good, listed(&client, good).await, Quantity::as_listed);
    failures.extend(differences(&not_negative, stored(&client, &not_negative).await, Quantity::as_stored));
    for text in bad {
        match listed(&client, std::slice::from_ref(text)).await {
            Err(kube::Error::Api(status)) if status.code == 400 => {}
            Err(error) => failures.push(format!("`{text}`: not refused as unreadable: {error}")),
            Ok(theirs) => failures.push(format!("`{text}`: they print `{}`, we refuse it", theirs.join(""))),
        }
    }
    failures
}

fn differences(
    texts: &[String],
    answer: kube::Result<Vec<String>>,
    ours: impl Fn(&str) -> Result<Cow<'_, str>, ParseQuantityError>,
) -> Vec<String> {
    let theirs = match answer {
        Ok(theirs) => theirs,
        Err(error) => return vec![format!("the server refuses what we accept: {error}")],
    };
    texts
        .iter()
        .zip(theirs)
        .map(|(text, theirs)| (text, ours(text).unwrap(), theirs))
        .filter(|(text, ours, theirs)| DROP_THEIR_SUFFIX.contains(&text.as_str()) == (ours == theirs))
        .map(|(text, ours, theirs)| format!("`{text}`: they print `{theirs}`, we `{ours}`"))
        .collect()
}

/// An API server drops suffixes that it has no letter for, and says 1 for `1000E`. We do not.
const DROP_THEIR_SUFFIX: [&str; 4] = ["1000E", "1500000E", "2000000E", "1000000000000000000000"];

const DRY_RUN: PostParams = PostParams { dry_run: true, field_manager: None };

async fn listed(client: &Client, texts: &[String]) -> kube::Result<Vec<String>> {
    let key = |index| format!("example.com/r{index:04}");
    let max: BTreeMap<_, _> =
        texts.iter().enumerate().map(|(index, text)| (key(index), Written(text.clone()))).collect();
    let item = LimitRangeItem { type_: "Pod".into(), max: Some(max), ..LimitRangeItem::default() };
    let mut range = LimitRange { spec: Some(LimitRangeSpec { limits: vec![item] }), ..LimitRange::default() };
    range.metadata.name = Some("quantities".into());
    let answer = Api::<LimitRange>::namespaced(client.clone(), "default").create(&DRY_RUN, &range).await?;
    let max = answer.spec.and_then(|spec| spec.limits.into_iter().next()).and_then(|item| item.max).unwrap();
    Ok((0..texts.len()).map(|index| max[&key(index)].0.clone()).collect())
}

async fn stored(client: &Client, texts: &[String]) -> kube::Result<Vec<String>> {
    let volume = |(index, text): (usize, &String)| {
        let volume = json!({"name": format!("v{index}"), "emptyDir": {"sizeLimit": text}});
        serde_json::from_value::<Volume>(volume).unwrap()
    };
    let mut template: PodTemplate = serde_json::from_value(json!({
        "metadata": {"name": "quantities"},
        "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
    }))
    .unwrap();
    let spec = template.template.as_mut().and_then(|template| template.spec.as_mut()).unwrap();
    spec.volumes = Some(texts.iter().enumerate().map(volume).collect());
    let answer =
        Api::<PodTemplate>::namespaced(client.clone(), "default").create(&DRY_RUN, &template).await?;
    let volumes = answer.template.and_then(|template| template.spec?.volumes).unwrap();
    Ok(volumes.into_iter().map(|volume| volume.empty_dir.unwrap().size_limit.unwrap().0).collect())
}

#[rustfmt::skip] // a table
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
        ".", "+", "-", "k", "Ki", "Mi", "Ti", "Pi", "Ei", "e3", "e-9", "e-10", ".e-10", "5.", ".5", "1.G",
        "1.Ki", "-.5", "+.", ".Ki", "00", "-0", "0.0", "0.000", "0Ei", "0e-100",
        // Fine, and finer than nano.
        "0.0000000001", "0.1n", "1.1n", "-0.1n", "1e-20", "1.0000000001", "0.000000001", "999999999n",
        "1000000000n",
        // Binary: fractions, the cap, below one, below 1024.
        "1.1Ki", "0.5Ki", "0.0001Ki", "0.1Ei", "7Ei", "8Ei", "-8Ei", "9.9Ei", "16Ei", "1023Mi", "1025Ki",
        "1048576Ki", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
        "9007199254740993Ki", "1.5Mi", "0.3Mi", "123456789.123456789123456789Ki", "99999999999999999999Ki",
        // Long.
        "123456789012345678", "1234567890123456789", "12345678901234567890123", "0.123456789012345678",
        "000000000000000000000000001", "1000000000000000000000", "1500E", "1000E", "2000000E", "1500000E",
        // Nearly canonical.
        "1.500", "1.000", "1.500k", "100.000", "1000m", "1001m", "1e3", "1E3", "10e2", "100e1",
        "1e4294967299", " 1 ", "1 ", "12e-1", "-12.5e2", "1.23e1",
        // Not quantities.
        "", " ", "x", "1x", "1 k", "1K", "1KB", "1kb", "1Gb", "1GiB", "1ki", "1KI", "1mi", "1i", "1e",
        "1e-", "1e+", "1ee3", "1e3Ki", "1Ki3", "1m3", "1-3", "1+3", "--1", "+-1", "1..2", "1.2.3", "1,5",
        "0x10", "1e1.5", "NaN", "inf", "1e99999999999999999999", "٣", "1\u{a0}k", "½", "1_000", "1 000",
        "$1", "1%", "1E3E", "10e2E", "uu", "1um", "1nn",
    ];
    texts.extend(alone.map(str::to_owned));
    texts
}
