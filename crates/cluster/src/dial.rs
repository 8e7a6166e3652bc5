//! How connections to servers are opened, and how it is found out that nobody is at the other end any more.
//!
//! Deliberately absent: who the servers are, and what is asked of them.

use std::io;
use std::time::Duration;

use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use kube::Config;
use kube::client::ConfigExt as _;
use tower::{BoxError, ServiceExt as _};

/// As long as any other call may take: a server that is busy shakes hands late. What is asked then may take for ever, as a log that is followed.
const CONNECTED_WITHIN: Duration = Duration::from_secs(30);

/// A stream may be silent for hours. Whether the machine at the other end still is there is asked after half a minute of silence, and then every
/// quarter of one: it is known to be gone after a minute and a half, before those in between forget a connection that they see nothing of.
pub const ASKED_AFTER: Duration = Duration::from_secs(30);

/// See [`ASKED_AFTER`].
pub const ASKED_EVERY: Duration = Duration::from_secs(15);

/// See [`ASKED_AFTER`].
pub const ASKED_AT_MOST: u32 = 4;

/// Opens connections as a configuration wants them.
pub(crate) fn connector(
    config: &Config,
) -> Result<impl Connect + Clone + Send + Sync + 'static, kube::Error> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    // What is typed should arrive as it is typed.
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(ASKED_AFTER));
    tcp.set_keepalive_interval(Some(ASKED_EVERY));
    tcp.set_keepalive_retries(Some(ASKED_AT_MOST));
    let tls = config.rustls_https_connector_with_connector(tcp)?;
    Ok(tls.map_future(|connecting| {
        Box::pin(async {
            let connected = tokio::time::timeout(CONNECTED_WITHIN, connecting).await;
            connected.unwrap_or_else(|_| {
                let seconds = CONNECTED_WITHIN.as_secs();
                let cause = format!("no connection within {seconds} s");
                Err(BoxError::from(io::Error::new(io::ErrorKind::TimedOut, cause)))
            })
        })
    }))
}
