//! Addresses: those that a pod or a node can have, one of each family.
//!
//! Endpoints are made of them. An address that means the reader's own machine, such as 127.0.0.1, would send V's traffic to
//! whoever reads it, so the worker's word is not enough.

use std::net::IpAddr;

use serde_json::{Map, Value, json};

/// Puts the twin's addresses into the wish. Returns a sentence about those that are none.
pub(super) fn wish(said: &Value, wish: &mut Map<String, Value>) -> Option<String> {
    let mut dropped = Vec::new();
    for (single, list) in [("podIP", "podIPs"), ("hostIP", "hostIPs")] {
        let mut good: Vec<(IpAddr, &str)> = Vec::new();
        for text in given(said, single, list) {
            match usable(text) {
                Ok(address) if good.iter().any(|(other, _)| other.is_ipv4() == address.is_ipv4()) => {}
                Ok(address) => good.push((address, text)),
                Err(why) => dropped.push(format!("{single} {} ({why})", shown(text))),
            }
        }
        wish.insert(single.to_owned(), good.first().map(|(_, text)| *text).into());
        wish.insert(list.to_owned(), good.iter().map(|(_, text)| json!({"ip": text})).collect());
    }
    if dropped.is_empty() {
        return None;
    }
    let dropped = dropped.join(", ");
    Some(format!("the worker cluster gives addresses that are not taken over: {dropped}"))
}

/// The addresses that were given. The older field wins where the two differ, as in API servers.
fn given<'a>(said: &'a Value, single: &str, list: &str) -> Vec<&'a str> {
    let first = said[single].as_str().filter(|text| !text.is_empty());
    let all: Vec<&str> =
        said[list].as_array().into_iter().flatten().filter_map(|one| one["ip"].as_str()).collect();
    match first {
        Some(first) if all.first() != Some(&first) => vec![first],
        _ => all,
    }
}

/// The address, if it is one that others can reach.
fn usable(text: &str) -> Result<IpAddr, &'static str> {
    let address: IpAddr = text.parse().map_err(|_| "not an address")?;
    let is_link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    match address {
        _ if address.is_unspecified() => Err("unspecified"),
        _ if address.is_loopback() => Err("loopback"),
        _ if address.is_multicast() => Err("multicast"),
        _ if is_link_local => Err("link-local"),
        IpAddr::V4(v4) if v4.is_broadcast() => Err("broadcast"),
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => Err("an IPv4 address in disguise"),
        _ => Ok(address),
    }
}

/// Not more of it than an address has.
fn shown(text: &str) -> String {
    text.chars().take(45).collect()
}
