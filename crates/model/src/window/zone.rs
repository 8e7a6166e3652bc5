//! Time zones by name, from the database that is built in.

use std::fmt;
use std::sync::LazyLock;

use jiff::tz::{TimeZone, TimeZoneDatabase};

static DATABASE: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// A time zone that the database knows.
#[derive(Clone, Debug, PartialEq)]
pub struct Zone {
    pub(super) rules: TimeZone,
}

/// A name that is not in the database of time zones.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a time zone: write an IANA name such as Europe/Berlin or UTC")]
pub struct UnknownZone(pub String);

impl Zone {
    /// Looks a name up.
    pub fn parse(name: &str) -> Result<Self, UnknownZone> {
        // The database has a name for "not known" too.
        let rules = DATABASE.get(name).ok().filter(|rules| !rules.is_unknown());
        rules.map(|rules| Self { rules }).ok_or_else(|| UnknownZone(name.to_owned()))
    }

    /// Coordinated universal time.
    pub const fn utc() -> Self {
        Self { rules: TimeZone::UTC }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.rules.iana_name().unwrap_or("UTC")
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
