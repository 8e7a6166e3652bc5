//! A bare client: requests as anyone could send them, and answers as JSON.

use std::time::Duration;

use kube::Client;
use serde_json::Value;
use tokio::time::Instant;

pub(crate) const JSON: &str = "application/json";
pub(crate) const MERGE: &str = "application/merge-patch+json";

/// Nothing here takes so long: ten thousand pods at twelve in a second are a quarter of an hour.
const LIMIT: Duration = Duration::from_secs(1200);

pub(crate) async fn send(client: &Client, method: &str, path: &str, content: &str, body: &Value) -> Value {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = http::Request::builder().method(method).uri(path).header("content-type", content);
    let answer = client.request(request.body(body).unwrap()).await;
    answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
}

pub(crate) async fn get(client: &Client, path: &str) -> Result<Value, kube::Error> {
    client.request(http::Request::get(path).body(Vec::new()).unwrap()).await
}

pub(crate) async fn until<T>(mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "it did not come true");
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}

/// How many there are. Counting them costs the server little, reading all of them much.
pub(crate) async fn count(client: &Client, collection: &str) -> usize {
    let page = get(client, &format!("{collection}?limit=1")).await.unwrap();
    let more = page["metadata"]["remainingItemCount"].as_u64().unwrap_or_default();
    items(&page).len() + usize::try_from(more).unwrap()
}

pub(crate) fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Without what a server puts, and without what would keep it from going.
pub(crate) fn plain(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "finalizers"]
    {
        metadata.remove(field);
    }
    object
}
