//! The status of a pod: which addresses agree, and which containers may come back.
//!
//! Deliberately absent: phases. The server takes any, in any order; who cares brings an oracle.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};

use super::metadata;
use crate::status::Cause;

/// The older field names the first address, and wins where the two differ.
pub(crate) fn settle_addresses(status: &mut Value) {
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let first = status["podIPs"].get(0).map(|first| text(&first["ip"]));
    match (text(&status["podIP"]), first) {
        (Some(single), first) if first != Some(Some(single.clone())) => {
            status["podIPs"] = json!([{"ip": single}]);
        }
        (None, Some(Some(first))) => status["podIP"] = first.into(),
        _ => {}
    }
}

/// The status endpoint takes the status, labels and annotations.
pub(crate) fn prepare(old: &Value, object: &mut Value) {
    metadata::set(object, "deletionTimestamp", None);
    metadata::set(object, "ownerReferences", old["metadata"].get("ownerReferences").cloned());
    let status = &mut object["status"];
    if status["qosClass"].as_str().is_none_or(str::is_empty) {
        status["qosClass"] = old["status"]["qosClass"].clone();
    }
    if status["observedGeneration"].as_i64().unwrap_or(0) == 0
        && let Some(generation) = old["status"].get("observedGeneration")
    {
        status["observedGeneration"] = generation.clone();
    }
    for condition in super::defaults::each(status, "conditions") {
        let before = items(&old["status"]["conditions"]).find(|one| one["type"] == condition["type"]);
        if condition.get("observedGeneration").is_none()
            && let Some(generation) = before.and_then(|before| before.get("observedGeneration"))
        {
            condition["observedGeneration"] = generation.clone();
        }
    }
    if let Some(map) = status.as_object_mut() {
        map.retain(|_, value| !value.is_null());
    }
}

/// What is wrong with a new status.
pub(crate) fn causes(old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (before, after) = (&old["status"], &new["status"]);
    for (index, condition) in items(&after["conditions"]).enumerate() {
        let at = format!("status.conditions[{index}]");
        generation(condition, &at, &mut causes);
        let type_ = &condition["type"];
        if !matches!(type_.as_str(), Some("PodScheduled" | "Ready" | "Initialized")) {
            let problems = metadata::key_problems(type_.as_str().unwrap_or_default());
            causes
                .extend(problems.iter().map(|problem| Cause::invalid(format!("{at}.Type"), type_, problem)));
        }
    }
    generation(after, "status", &mut causes);
    nominated(old, new, &mut causes);
    if before["qosClass"] != after["qosClass"] {
        causes.push(Cause::invalid("status.qosClass", &after["qosClass"], "field is immutable"));
    }
    comebacks(&old["spec"], before, after, &mut causes);
    addresses("podIPs", before, after, &mut causes);
    let first = after["hostIPs"].get(0).map(|first| &first["ip"]);
    if let Some(first) = first
        && first.as_str().unwrap_or_default() != after["hostIP"].as_str().unwrap_or_default()
    {
        causes.push(Cause::invalid("status.hostIPs[0].ip", first, "must be equal to `hostIP`"));
    }
    addresses("hostIPs", before, after, &mut causes);
    causes
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn generation(object: &Value, at: &str, causes: &mut Vec<Cause>) {
    let generation = &object["observedGeneration"];
    if generation.as_i64().is_some_and(|generation| generation < 0) {
        let at = format!("{at}.observedGeneration");
        causes.push(Cause::invalid(at, generation, "must be a non-negative integer"));
    }
}

/// A node that the scheduler makes room on; nobody needs one who has a node.
fn nominated(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let name = |pod: &Value| pod["status"]["nominatedNodeName"].as_str().unwrap_or_default().to_owned();
    let wanted = name(new);
    if wanted.is_empty() || wanted == name(old) {
        return;
    }
    let at = "status.nominatedNodeName";
    let problems = metadata::subdomain_problems(&wanted);
    causes.extend(problems.iter().map(|problem| Cause::invalid(at, &wanted.as_str().into(), problem)));
    if old["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty()) {
        causes.push(Cause::forbidden(at, "may not be set on pods that are already bound to a node"));
    }
}

/// Containers that ended and are said to live again, though nobody may start them.
fn comebacks(spec: &Value, before: &Value, after: &Value, causes: &mut Vec<Cause>) {
    let all_may = ["containers", "initContainers"].iter().any(|list| {
        items(&spec[*list])
            .flat_map(|container| items(&container["restartPolicyRules"]))
            .any(|rule| rule["action"] == "RestartAllContainers")
    });
    for (list, declared) in [
        ("containerStatuses", Some("containers")),
        ("initContainerStatuses", Some("initContainers")),
        ("ephemeralContainerStatuses", None),
    ] {
        if all_may && declared.is_some() {
            continue;
        }
        for (index, status) in items(&before[list]).enumerate() {
            let Some(ended) = status["state"].get("terminated").filter(|ended| !ended.is_null()) else {
                continue;
            };
            let lives = items(&after[list])
                .filter(|one| one["name"] == status["name"])
                .any(|one| one["state"].get("terminated").is_none_or(Value::is_null));
            let code = ended["exitCode"].as_i64().unwrap_or(0);
            let container = declared
                .and_then(|declared| items(&spec[declared]).find(|one| one["name"] == status["name"]));
            if lives && !container.is_some_and(|container| restarts(spec, container, code)) {
                causes.push(Cause::forbidden(
                    format!("status.{list}[{index}].state"),
                    "may not be transitioned to non-terminated state",
                ));
            }
        }
    }
}

/// Whether a container that ended with a code is started again.
fn restarts(spec: &Value, container: &Value, code: i64) -> bool {
    let by = |policy: &Value| match policy.as_str() {
        Some("OnFailure") => code != 0,
        Some("Never") => false,
        _ => true,
    };
    let own = &container["restartPolicy"];
    if own.is_null() {
        return by(&spec["restartPolicy"]);
    }
    let applies = |rule: &Value| {
        let listed = items(&rule["exitCodes"]["values"]).any(|value| value.as_i64() == Some(code));
        match rule["exitCodes"]["operator"].as_str() {
            Some("In") => listed,
            Some("NotIn") => !listed,
            _ => false,
        }
    };
    items(&container["restartPolicyRules"])
        .find(|rule| applies(rule))
        .is_some_and(|rule| rule["action"] == "Restart")
        || by(own)
}

/// At most one address of each family, all of them addresses; what was there before may stay.
fn addresses(list: &str, before: &Value, after: &Value, causes: &mut Vec<Cause>) {
    let of = |status: &Value| {
        items(&status[list]).map(|one| one["ip"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let (known, given) = (of(before), of(after));
    for (index, address) in given.iter().enumerate().filter(|(_, address)| !known.contains(address)) {
        let at = format!("status.{list}[{index}]");
        causes.extend(
            address_problem(address).map(|problem| Cause::invalid(at, &address.as_str().into(), problem)),
        );
    }
    if given.len() < 2 {
        return;
    }
    let at = format!("status.{list}");
    let parsed: Vec<_> = given.iter().map(|address| lenient(address)).collect();
    if let Some(index) = parsed.iter().position(Option::is_none) {
        let why = format!("failed to check for dual stack with error:invalid IP[{index}]: {}", given[index]);
        causes.push(Cause::internal(at.clone(), &why));
    }
    let both = parsed.iter().all(Option::is_some)
        && parsed.iter().flatten().any(IpAddr::is_ipv4)
        && parsed.iter().flatten().any(IpAddr::is_ipv6);
    if !both || given.len() > 2 {
        let why = "may specify no more than one IP for each IP family";
        causes.push(Cause::invalid(at, &after[list], why));
    }
}

/// What is wrong with an address.
pub(crate) fn address_problem(address: &str) -> Option<&'static str> {
    match (lenient(address), address.parse::<IpAddr>()) {
        (None, _) => Some("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
        (Some(_), Err(_)) => Some("must not have leading 0s"),
        (_, Ok(IpAddr::V6(address))) if address.to_ipv4_mapped().is_some() => {
            Some("must not be an IPv4-mapped IPv6 address")
        }
        _ => None,
    }
}

/// As servers read addresses for years: zeros in front do not matter.
fn lenient(address: &str) -> Option<IpAddr> {
    let octets = || -> Option<Ipv4Addr> {
        let octets: Vec<&str> = address.split('.').collect();
        let digits = |octet: &&&str| !octet.is_empty() && octet.bytes().all(|byte| byte.is_ascii_digit());
        let octets: Vec<u8> =
            octets.iter().filter(digits).map(|octet| octet.parse().ok()).collect::<Option<_>>()?;
        (address.split('.').count() == 4).then_some(())?;
        <[u8; 4]>::try_from(octets).ok().map(Ipv4Addr::from)
    };
    address.parse().ok().or_else(|| octets().map(IpAddr::V4))
}

#[cfg(test)]
mod tests {
    use super::address_problem;

    #[test]
    fn addresses_are_told_from_other_words() {
        for good in ["10.0.0.1", "fd00::1", "FD00:0:0::1", "255.255.255.255"] {
            assert_eq!(address_problem(good), None, "{good}");
        }
        for bad in [
            "",
            "x",
            "10.0.0",
            "10.0.0.1.1",
            "10.0.0.256",
            " 10.0.0.1",
            "fe80::1%eth0",
            "10.0.0.1/8",
            "::ffff:10.0.0.1",
            "010.0.0.1",
            "10..0.1",
        ] {
            assert!(address_problem(bad).is_some(), "{bad}");
        }
    }
}
