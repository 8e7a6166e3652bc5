//! Good and bad objects, and what an API server has to say about each.
//!
//! A case starts from a small valid object and changes what it is about, by merge patch: a null
//! takes a field away, a list replaces a list.

use serde_json::{Value, json};

/// One object, one step, one verdict.
pub(crate) struct Case {
    /// What it shows; unique.
    pub(crate) name: &'static str,
    /// The object. Without a name it gets one.
    pub(crate) object: Value,
    /// What is done with it.
    pub(crate) step: Step,
    /// What has to come of it.
    pub(crate) verdict: Verdict,
}

/// What is done with an object.
pub(crate) enum Step {
    /// It is created.
    Create,
    /// It exists, and is changed by this merge patch.
    Change(Value),
    /// It exists, and its status is changed by this merge patch.
    Status(Value),
}

/// What has to come of it.
pub(crate) enum Verdict {
    /// It is taken.
    Accepted,
    /// It is taken, and then says this at these places; null where nothing may be.
    AcceptedAs(Vec<(&'static str, Value)>),
    /// It is refused, with a message that contains this.
    Refused(&'static str),
}

use Verdict::{Accepted, AcceptedAs, Refused};

/// The whole table.
pub(crate) fn all() -> Vec<Case> {
    [documented(), bindings(), selectors(), policies(), windows(), limits(), changes(), statuses()].into_iter().flatten().collect()
}

/// What the reference shows must work as it stands.
fn documented() -> Vec<Case> {
    let example = |page: &str| {
        let yaml = page.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let object: Value = serde_saphyr::from_str(yaml).unwrap();
        // Named like any other case, so that it meets no object that is really there.
        with(object, json!({"metadata": {"name": null}}))
    };
    vec![
        create("the example of clusterbinding.md", example(include_str!("../../../../docs/reference/clusterbinding.md")),
            AcceptedAs(vec![("/spec/serviceNamespaces/0", json!("web"))])),
        create("the example of resourceleasingpolicy.md", example(include_str!("../../../../docs/reference/resourceleasingpolicy.md")),
            AcceptedAs(vec![("/spec/timeWindows/0/start", json!("22:00")), ("/spec/gracefulReclaimPeriodSeconds", json!(600))])),
    ]
}

fn bindings() -> Vec<Case> {
    let max = |name, count| (name, json!({"serviceNamespaces": vec!["a"; count]}));
    vec![
        create("a binding with only what is required", cb(json!({})), Accepted),
        create("a binding with everything", cb(json!({
            "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]}]},
            "serviceNamespaces": ["*", "web"], "disableNodeDefaultTaint": true, "podPriorityClassName": "low.prio",
            "runningDaemonsetByDefault": true, "directScheduling": true})), Accepted),
        create("booleans of a binding default to false", cb(json!({})), AcceptedAs(vec![
            ("/spec/disableNodeDefaultTaint", json!(false)),
            ("/spec/runningDaemonsetByDefault", json!(false)),
            ("/spec/directScheduling", json!(false)),
            ("/spec/podPriorityClassName", Value::Null),
            ("/spec/nodeSelector", Value::Null)])),
        create("an unknown field of a binding is dropped", cb(json!({"colour": "blue", "secretRef": {"key": "x"}})),
            AcceptedAs(vec![("/spec/colour", Value::Null), ("/spec/secretRef/key", Value::Null)])),
        create("null is the same as absent", {
            let mut object = cb(json!({}));
            for field in ["nodeSelector", "serviceNamespaces", "disableNodeDefaultTaint", "podPriorityClassName"] {
                object["spec"][field] = Value::Null;
            }
            object
        }, AcceptedAs(vec![("/spec/disableNodeDefaultTaint", json!(false)), ("/spec/nodeSelector", Value::Null)])),
        create("a status at creation is dropped", with(cb(json!({})), json!({"status": {"phase": "Ready"}})),
            AcceptedAs(vec![("/status", Value::Null)])),
        create("a binding without a spec", with(cb(json!({})), json!({"spec": null})), Refused("spec: Required value")),

        create("a name of 63 characters", named(cb(json!({})), &"n".repeat(63)), Accepted),
        create("a name of 64 characters", named(cb(json!({})), &"n".repeat(64)), Refused("metadata.name must be at most 63")),
        create("a policy's name of 63 characters", named(rlp(json!({})), &"n".repeat(63)), Accepted),
        create("a policy's name of 64 characters", named(rlp(json!({})), &"n".repeat(64)), Refused("metadata.name must be at most 63")),

        create("clusterID missing", cb(json!({"clusterID": null})), Refused("spec.clusterID: Required value")),
        create("clusterID empty", cb(json!({"clusterID": ""})), Refused("spec.clusterID in body should be at least 1")),
        create("clusterID of one character", cb(json!({"clusterID": "7"})), Accepted),
        create("clusterID of 24 characters", cb(json!({"clusterID": "a".repeat(24)})), Accepted),
        create("clusterID of 25 characters", cb(json!({"clusterID": "a".repeat(25)})), Refused("spec.clusterID: Too long")),
        create("clusterID with dashes inside", cb(json!({"clusterID": "a--b-1"})), Accepted),
        create("clusterID in upper case", cb(json!({"clusterID": "W1"})), Refused("clusterID must consist of lower-case")),
        create("clusterID that ends in a dash", cb(json!({"clusterID": "w-"})), Refused("clusterID must consist of lower-case")),
        create("clusterID that starts with a dash", cb(json!({"clusterID": "-w"})), Refused("clusterID must consist of lower-case")),
        create("clusterID with a dot", cb(json!({"clusterID": "a.b"})), Refused("clusterID must consist of lower-case")),
        create("clusterID that ends in a line break", cb(json!({"clusterID": "w1\n"})), Refused("clusterID must consist of lower-case")),
        create("clusterID that is a number", cb(json!({"clusterID": 7})), Refused("spec.clusterID in body must be of type string")),

        create("secretRef missing", cb(json!({"secretRef": null})), Refused("spec.secretRef: Required value")),
        create("secretRef.name missing", cb(json!({"secretRef": {"name": null}})), Refused("spec.secretRef.name: Required value")),
        create("secretRef.name empty", cb(json!({"secretRef": {"name": ""}})), Refused("spec.secretRef.name in body should be at least 1")),
        create("secretRef.name with dots", cb(json!({"secretRef": {"name": "a.b-c.d"}})), Accepted),
        create("secretRef.name of 253 characters", cb(json!({"secretRef": {"name": "a".repeat(253)}})), Accepted),
        create("secretRef.name of 254 characters", cb(json!({"secretRef": {"name": "a".repeat(254)}})), Refused("spec.secretRef.name: Too long")),
        create("secretRef.name with an underscore", cb(json!({"secretRef": {"name": "a_b"}})), Refused("secretRef.name must be the name of a Secret")),
        create("secretRef.name with two dots in a row", cb(json!({"secretRef": {"name": "a..b"}})), Refused("secretRef.name must be the name of a Secret")),
        create("secretRef.namespace missing", cb(json!({"secretRef": {"namespace": null}})), Refused("spec.secretRef.namespace: Required value")),
        create("secretRef.namespace empty", cb(json!({"secretRef": {"namespace": ""}})), Refused("spec.secretRef.namespace in body should be at least 1")),
        create("secretRef.namespace of 63 characters", cb(json!({"secretRef": {"namespace": "a".repeat(63)}})), Accepted),
        create("secretRef.namespace of 64 characters", cb(json!({"secretRef": {"namespace": "a".repeat(64)}})), Refused("spec.secretRef.namespace: Too long")),
        create("secretRef.namespace with a dot", cb(json!({"secretRef": {"namespace": "a.b"}})), Refused("secretRef.namespace must be a namespace name")),

        create("mountNamespace missing", cb(json!({"mountNamespace": null})), Refused("spec.mountNamespace: Required value")),
        create("mountNamespace empty", cb(json!({"mountNamespace": ""})), Refused("spec.mountNamespace in body should be at least 1")),
        create("mountNamespace of 63 characters", cb(json!({"mountNamespace": "m".repeat(63)})), Accepted),
        create("mountNamespace of 64 characters", cb(json!({"mountNamespace": "m".repeat(64)})), Refused("spec.mountNamespace: Too long")),
        create("mountNamespace in upper case", cb(json!({"mountNamespace": "Borrowed"})), Refused("mountNamespace must be a namespace name")),

        create("serviceNamespaces empty", cb(json!({"serviceNamespaces": []})), Accepted),
        create("serviceNamespaces by name, twice", cb(json!({"serviceNamespaces": ["web", "web"]})), Accepted),
        create("serviceNamespaces with an empty entry", cb(json!({"serviceNamespaces": ["web", ""]})), Refused("spec.serviceNamespaces[1] in body should be at least 1")),
        create("serviceNamespaces with a pattern", cb(json!({"serviceNamespaces": ["web-*"]})), Refused("serviceNamespaces entries must be '*' or a namespace name")),
        create("serviceNamespaces with an entry of 64 characters", cb(json!({"serviceNamespaces": ["a".repeat(64)]})), Refused("spec.serviceNamespaces[0]: Too long")),
        { let (name, spec) = max("serviceNamespaces with 1024 entries", 1024); create(name, cb(spec), Accepted) },
        { let (name, spec) = max("serviceNamespaces with 1025 entries", 1025); create(name, cb(spec), Refused("spec.serviceNamespaces: Too many")) },

        create("podPriorityClassName empty", cb(json!({"podPriorityClassName": ""})), Accepted),
        create("podPriorityClassName of 253 characters", cb(json!({"podPriorityClassName": "p".repeat(253)})), Accepted),
        create("podPriorityClassName of 254 characters", cb(json!({"podPriorityClassName": "p".repeat(254)})), Refused("spec.podPriorityClassName: Too long")),
        create("podPriorityClassName in upper case", cb(json!({"podPriorityClassName": "Low"})), Refused("podPriorityClassName must be empty or the name")),
        create("a boolean written as a string", cb(json!({"directScheduling": "true"})), Refused("spec.directScheduling in body must be of type boolean")),
    ]
}

fn selectors() -> Vec<Case> {
    const KEY: &str = "matchExpressions[0].key in body should match";
    let terms = |terms: Value| cb(json!({"nodeSelector": {"nodeSelectorTerms": terms}}));
    let labels = |requirement: Value| terms(json!([{"matchExpressions": [requirement]}]));
    let fields = |requirement: Value| terms(json!([{"matchFields": [requirement]}]));
    let operator = |operator: &str, values: Value| labels(json!({"key": "k", "operator": operator, "values": values}));
    let key = |key: &str| labels(json!({"key": key, "operator": "Exists"}));
    let label = "l".repeat(63);
    vec![
        create("an empty selector", cb(json!({"nodeSelector": {}})), Accepted),
        create("a selector without terms", terms(json!([])), Accepted),
        create("a term without requirements", terms(json!([{}])), Accepted),
        create("a policy's empty selector", rlp(json!({"nodeSelector": {}})), Accepted),
        create("a policy's selector has the same rules", rlp(json!({"nodeSelector": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "k", "operator": "In"}]}]}})), Refused("values must have at least one entry when operator is In")),
        create("In with a value", operator("In", json!(["a"])), Accepted),
        create("In with the empty value", operator("In", json!([""])), Accepted),
        create("In with no value", operator("In", json!([])), Refused("values must have at least one entry when operator is In or NotIn")),
        create("In without values", operator("In", Value::Null), Refused("values must have at least one entry when operator is In or NotIn")),
        create("In with 512 values", operator("In", json!(vec!["node"; 512])), Accepted),
        create("In with 513 values", operator("In", json!(vec!["node"; 513])), Refused("values: Too many")),
        create("NotIn with a value", operator("NotIn", json!(["a"])), Accepted),
        create("NotIn without values", operator("NotIn", Value::Null), Refused("values must have at least one entry when operator is In or NotIn")),
        create("Exists without values", operator("Exists", Value::Null), Accepted),
        create("Exists with no value", operator("Exists", json!([])), Accepted),
        create("Exists with a value", operator("Exists", json!(["a"])), Refused("values must be left out when operator is Exists or DoesNotExist")),
        create("DoesNotExist without values", operator("DoesNotExist", Value::Null), Accepted),
        create("DoesNotExist with a value", operator("DoesNotExist", json!(["a"])), Refused("values must be left out when operator is Exists or DoesNotExist")),
        create("Gt with an integer", operator("Gt", json!(["16"])), Accepted),
        create("Gt with a negative integer", operator("Gt", json!(["-1"])), Accepted),
        create("Gt with a word", operator("Gt", json!(["many"])), Refused("values must have exactly one entry, an integer, when operator is Gt or Lt")),
        create("Gt with two integers", operator("Gt", json!(["1", "2"])), Refused("values must have exactly one entry, an integer, when operator is Gt or Lt")),
        create("Lt with an integer", operator("Lt", json!(["16"])), Accepted),
        create("Lt without values", operator("Lt", Value::Null), Refused("values must have exactly one entry, an integer, when operator is Gt or Lt")),
        create("Lt with a fraction", operator("Lt", json!(["1.5"])), Refused("values must have exactly one entry, an integer, when operator is Gt or Lt")),
        create("an unknown operator", operator("Equals", json!(["a"])), Refused("matchExpressions[0].operator: Unsupported value")),
        create("an operator in lower case", operator("in", json!(["a"])), Refused("matchExpressions[0].operator: Unsupported value")),
        create("operator missing", labels(json!({"key": "k"})), Refused("matchExpressions[0].operator: Required value")),
        create("key missing", labels(json!({"operator": "Exists"})), Refused("matchExpressions[0].key: Required value")),
        create("key empty", key(""), Refused("matchExpressions[0].key in body should be at least 1")),
        create("key with a prefix", key("topology.kubernetes.io/zone"), Accepted),
        create("key of 63 characters", key(&label), Accepted),
        create("key of 64 characters", key(&format!("{label}l")), Refused(KEY)),
        create("key with an empty prefix", key("/zone"), Refused(KEY)),
        create("key with two prefixes", key("a/b/c"), Refused(KEY)),
        create("key with a space", key("a zone"), Refused(KEY)),
        create("a node by name", fields(json!({"key": "metadata.name", "operator": "In", "values": ["n1"]})), Accepted),
        create("all nodes but one", fields(json!({"key": "metadata.name", "operator": "NotIn", "values": ["n1"]})), Accepted),
        create("two nodes in one matchFields", fields(json!({"key": "metadata.name", "operator": "In", "values": ["n1", "n2"]})), Refused("matchFields[0].values: Too many")),
        create("no node in matchFields", fields(json!({"key": "metadata.name", "operator": "In", "values": []})), Refused("matchFields[0].values in body should have at least 1 items")),
        create("matchFields without values", fields(json!({"key": "metadata.name", "operator": "In"})), Refused("matchFields[0].values: Required value")),
        create("matchFields on another field", fields(json!({"key": "spec.unschedulable", "operator": "In", "values": ["true"]})), Refused("matchFields[0].key: Unsupported value")),
        create("matchFields with Exists", fields(json!({"key": "metadata.name", "operator": "Exists", "values": ["n1"]})), Refused("matchFields[0].operator: Unsupported value")),
        create("matchFields without key", fields(json!({"operator": "In", "values": ["n1"]})), Refused("matchFields[0].key: Required value")),
        create("matchFields without operator", fields(json!({"key": "metadata.name", "values": ["n1"]})), Refused("matchFields[0].operator: Required value")),
        create("matchFields with a name of 253 characters", fields(json!({"key": "metadata.name", "operator": "In", "values": ["n".repeat(253)]})), Accepted),
        create("matchFields with a name of 254 characters", fields(json!({"key": "metadata.name", "operator": "In", "values": ["n".repeat(254)]})), Refused("matchFields[0].values[0]: Too long")),
        create("256 matchFields in a term", terms(json!([{"matchFields": vec![json!({"key": "metadata.name", "operator": "NotIn", "values": ["n"]}); 256]}])), Accepted),
        create("257 matchFields in a term", terms(json!([{"matchFields": vec![json!({"key": "metadata.name", "operator": "NotIn", "values": ["n"]}); 257]}])), Refused("matchFields: Too many")),
        create("a value of 254 characters", operator("In", json!(["v".repeat(254)])), Refused("matchExpressions[0].values[0]: Too long")),
        create("key of 317 characters, all of them allowed", key(&format!("{}/{label}", "p".repeat(253))), Accepted),
        create("key of 318 characters", key(&format!("{}/{label}", "p".repeat(254))), Refused("matchExpressions[0].key: Too long")),
        create("256 terms", terms(json!(vec![json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}); 256])), Accepted),
        create("257 terms", terms(json!(vec![json!({}); 257])), Refused("spec.nodeSelector.nodeSelectorTerms: Too many")),
        create("33 expressions in a term", terms(json!([{"matchExpressions": vec![json!({"key": "k", "operator": "Exists"}); 33]}])), Refused("matchExpressions: Too many")),
    ]
}

fn policies() -> Vec<Case> {
    const SPELLING: &str = "timeZone must be an IANA time zone name in its usual spelling";
    let zone = |zone: &str| rlp(json!({"timeZone": zone}));
    let grace = |seconds: Value| rlp(json!({"gracefulReclaimPeriodSeconds": seconds}));
    vec![
        create("a policy with only what is required", rlp(json!({})), Accepted),
        create("a policy with everything", rlp(json!({
            "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "Exists"}]}]},
            "timeWindows": [{"start": "22:00", "end": "06:00", "days": ["Fri"]}, {"start": "00:00", "end": "24:00", "days": ["sat"]}],
            "timeZone": "Asia/Shanghai",
            "resourceLimits": [{"resource": "cpu", "quantity": "4"}, {"resource": "storage", "percent": 50}],
            "forceReclaim": true, "gracefulReclaimPeriodSeconds": 600})), Accepted),
        create("a policy's defaults", rlp(json!({})), AcceptedAs(vec![
            ("/spec/forceReclaim", json!(false)), ("/spec/gracefulReclaimPeriodSeconds", json!(0)), ("/spec/timeZone", Value::Null)])),
        create("an unknown field of a policy is dropped", rlp(json!({"priority": 1, "timeWindows": [{"start": "08:00", "end": "09:00", "zone": "UTC"}]})),
            AcceptedAs(vec![("/spec/priority", Value::Null), ("/spec/timeWindows/0/zone", Value::Null)])),
        create("a policy without a spec", with(rlp(json!({})), json!({"spec": null})), Refused("spec: Required value")),
        create("cluster missing", rlp(json!({"cluster": null})), Refused("spec.cluster: Required value")),
        create("cluster empty", rlp(json!({"cluster": ""})), Refused("spec.cluster in body should be at least 1")),
        create("cluster of 63 characters", rlp(json!({"cluster": "c".repeat(63)})), Accepted),
        create("cluster of 64 characters", rlp(json!({"cluster": "c".repeat(64)})), Refused("spec.cluster: Too long")),
        create("cluster with a dot", rlp(json!({"cluster": "berlin.gpu"})), Accepted),
        create("cluster with a slash", rlp(json!({"cluster": "ns/w1"})), Refused("cluster must be the name of a ClusterBinding")),
        create("zone with a continent", zone("Europe/Berlin"), Accepted),
        create("zone UTC", zone("UTC"), Accepted),
        create("zone with three parts and an underscore", zone("America/Argentina/Buenos_Aires"), Accepted),
        create("zone with a dash", zone("America/Port-au-Prince"), Accepted),
        create("zone with a sign", zone("Etc/GMT+5"), Accepted),
        create("zone of a city that has none", zone("Europe/Nowhere"), Refused("unknown time zone Europe/Nowhere evaluating rule: timeZone must be an IANA")),
        create("zone by abbreviation", zone("MEZ"), Refused("unknown time zone MEZ evaluating rule: timeZone must be an IANA")),
        create("zone Local", zone("Local"), Refused(SPELLING)),
        create("zone empty", zone(""), Refused(SPELLING)),
        create("zone as an offset", zone("+02:00"), Refused(SPELLING)),
        create("zone as an offset without sign", zone("02:00"), Refused(SPELLING)),
        create("zone in lower case", zone("europe/berlin"), Refused(SPELLING)),
        create("zone as a path", zone("../UTC"), Refused(SPELLING)),
        create("zone of a copy of the database", zone("posix/Europe/Berlin"), Refused(SPELLING)),
        create("zone of 65 characters", zone(&"Z".repeat(65)), Refused("spec.timeZone: Too long")),
        create("grace of zero", grace(json!(0)), Accepted),
        create("grace of a day", grace(json!(86_400)), Accepted),
        create("grace below zero", grace(json!(-1)), Refused("spec.gracefulReclaimPeriodSeconds in body should be greater than or equal to 0")),
        create("grace as a fraction", grace(json!(1.5)), Refused("spec.gracefulReclaimPeriodSeconds in body must be of type int64")),
        create("grace as a duration", grace(json!("10m")), Refused("spec.gracefulReclaimPeriodSeconds in body must be of type integer")),
        create("forceReclaim as a string", rlp(json!({"forceReclaim": "yes"})), Refused("spec.forceReclaim in body must be of type boolean")),
    ]
}

fn windows() -> Vec<Case> {
    const START: &str = "start must be a time of day HH:MM from 00:00 to 23:59";
    const END: &str = "end must be a time of day HH:MM from 00:00 to 24:00";
    const DAYS: &str = "days must be English names of days";
    let window = |start: &str, end: &str| rlp(json!({"timeWindows": [{"start": start, "end": end}]}));
    let days = |days: Value| rlp(json!({"timeWindows": [{"start": "08:00", "end": "18:00", "days": days}]}));
    let count = |count: usize| rlp(json!({"timeWindows": vec![json!({"start": "08:00", "end": "18:00"}); count]}));
    vec![
        create("no windows", rlp(json!({"timeWindows": []})), Accepted),
        create("a window within a day", window("08:00", "18:00"), Accepted),
        create("a window over midnight", window("22:00", "06:00"), Accepted),
        create("a whole day", window("00:00", "24:00"), Accepted),
        create("the last minute", window("23:59", "00:00"), Accepted),
        create("start at 24:00", window("24:00", "06:00"), Refused(START)),
        create("start at 23:60", window("23:60", "06:00"), Refused(START)),
        create("start with one digit", window("8:00", "18:00"), Refused(START)),
        create("start with seconds", window("08:00:00", "18:00"), Refused(START)),
        create("start empty", window("", "18:00"), Refused(START)),
        create("end at 24:01", window("08:00", "24:01"), Refused(END)),
        create("end at 25:00", window("08:00", "25:00"), Refused(END)),
        create("end on the clock of twelve hours", window("08:00", "6:00pm"), Refused(END)),
        create("start and end the same", window("08:00", "08:00"), Refused("start and end must differ")),
        create("start missing", rlp(json!({"timeWindows": [{"end": "18:00"}]})), Refused("spec.timeWindows[0].start: Required value")),
        create("end missing", rlp(json!({"timeWindows": [{"start": "18:00"}]})), Refused("spec.timeWindows[0].end: Required value")),
        create("days in full", days(json!(["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"])), Accepted),
        create("days by three letters", days(json!(["mon", "tue", "wed", "thu", "fri", "sat", "sun"])), Accepted),
        create("days in any case", days(json!(["Mon", "TUESDAY", "wEd"])), Accepted),
        create("a day twice", days(json!(["Mon", "monday"])), Accepted),
        create("no days", days(json!([])), Accepted),
        create("a day by four letters", days(json!(["Mon", "tues"])), Refused(DAYS)),
        create("a day by its place in the list", days(json!(["Mon", "tues"])), Refused("spec.timeWindows[0].days[1]")),
        create("a day in German", days(json!(["Montag"])), Refused(DAYS)),
        create("a day with a space", days(json!([" mon"])), Refused(DAYS)),
        create("a day empty", days(json!([""])), Refused(DAYS)),
        create("a day as a number", days(json!([1])), Refused("spec.timeWindows[0].days[0] in body must be of type string")),
        create("33 days", days(json!(vec!["mon"; 33])), Refused("spec.timeWindows[0].days: Too many")),
        create("128 windows", count(128), Accepted),
        create("129 windows", count(129), Refused("spec.timeWindows: Too many")),
    ]
}

fn limits() -> Vec<Case> {
    const QUANTITY: &str = "quantity must be a Kubernetes quantity of zero or more";
    const RESOURCE: &str = "resource must be a resource name";
    let limit = |limit: Value| rlp(json!({"resourceLimits": [limit]}));
    let quantity = |quantity: Value| limit(json!({"resource": "cpu", "quantity": quantity}));
    let percent = |percent: Value| limit(json!({"resource": "cpu", "percent": percent}));
    let resource = |resource: &str| limit(json!({"resource": resource, "percent": 50}));
    let count = |count: usize| {
        rlp(json!({"resourceLimits": (0..count).map(|i| json!({"resource": format!("r{i}"), "percent": 1})).collect::<Vec<_>>()}))
    };
    vec![
        create("no limits", rlp(json!({"resourceLimits": []})), Accepted),
        create("quantity as an integer", quantity(json!(4)), Accepted),
        create("quantity of zero", quantity(json!("0")), Accepted),
        create("quantity in milli", quantity(json!("500m")), Accepted),
        create("quantity in binary", quantity(json!("16Gi")), Accepted),
        create("quantity with an exponent", quantity(json!("1e3")), Accepted),
        create("quantity with a fraction", quantity(json!("1.5")), Accepted),
        create("quantity below zero", quantity(json!("-1")), Refused(QUANTITY)),
        create("quantity a little below zero", quantity(json!("-1m")), Refused(QUANTITY)),
        create("quantity as an integer below zero", quantity(json!(-1)), Refused(QUANTITY)),
        create("quantity in no unit", quantity(json!("4 cores")), Refused(QUANTITY)),
        create("quantity empty", quantity(json!("")), Refused(QUANTITY)),
        create("quantity in the wrong case", quantity(json!("16gi")), Refused(QUANTITY)),
        create("quantity as a boolean", quantity(json!(true)), Refused("spec.resourceLimits[0].quantity in body must be of type integer,string")),
        create("quantity of 65 characters", quantity(json!("1".repeat(65))), Refused("spec.resourceLimits[0].quantity: Too long")),
        create("percent of zero", percent(json!(0)), Accepted),
        create("percent of a hundred", percent(json!(100)), Accepted),
        create("percent above a hundred", percent(json!(101)), Refused("spec.resourceLimits[0].percent in body should be less than or equal to 100")),
        create("percent below zero", percent(json!(-1)), Refused("spec.resourceLimits[0].percent in body should be greater than or equal to 0")),
        create("percent as a string", percent(json!("50%")), Refused("spec.resourceLimits[0].percent in body must be of type integer")),
        create("quantity and percent", limit(json!({"resource": "cpu", "quantity": "4", "percent": 50})), Accepted),
        create("neither quantity nor percent", limit(json!({"resource": "cpu"})), Refused("resourceLimits entries need quantity or percent")),
        create("neither quantity nor percent but nulls", limit(json!({"resource": "cpu", "quantity": null, "percent": null})), Refused("resourceLimits entries need quantity or percent")),
        create("resource missing", limit(json!({"percent": 50})), Refused("spec.resourceLimits[0].resource: Required value")),
        create("resource empty", resource(""), Refused("spec.resourceLimits[0].resource in body should be at least 1")),
        create("resource storage, the alias", resource("storage"), Accepted),
        create("resource with a prefix", resource("nvidia.com/gpu"), Accepted),
        create("resource of 63 characters", resource(&"r".repeat(63)), Accepted),
        create("resource of 64 characters", resource(&"r".repeat(64)), Refused(RESOURCE)),
        create("resource with a space", resource("cpu cores"), Refused(RESOURCE)),
        create("resource with a prefix in upper case", resource("NVIDIA.com/gpu"), Refused(RESOURCE)),
        create("a resource twice", rlp(json!({"resourceLimits": [{"resource": "cpu", "percent": 1}, {"resource": "cpu", "percent": 2}]})), Refused("spec.resourceLimits[1]: Duplicate value")),
        create("64 limits", count(64), Accepted),
        create("65 limits", count(65), Refused("spec.resourceLimits: Too many")),
    ]
}

/// A server may leave a rule out where the value did not change. It must not where it did.
fn changes() -> Vec<Case> {
    let change = |name, object, patch, verdict| Case { name, object, step: Step::Change(json!({"spec": patch})), verdict };
    let window = json!([{"start": "08:00", "end": "18:00", "days": ["mon"]}]);
    let limits = json!([{"resource": "cpu", "percent": 1}, {"resource": "memory", "percent": 1}]);
    vec![
        change("clusterID changed", cb(json!({})), json!({"clusterID": "w2"}), Refused("clusterID cannot be changed")),
        change("clusterID removed", cb(json!({})), json!({"clusterID": null}), Refused("spec.clusterID: Required value")),
        change("mountNamespace changed", cb(json!({})), json!({"mountNamespace": "other"}), Refused("mountNamespace cannot be changed")),
        change("the same clusterID and mountNamespace again", cb(json!({})), json!({"clusterID": "w1", "mountNamespace": "borrowed"}), Accepted),
        change("the other fields of a binding changed", cb(json!({})), json!({
            "secretRef": {"name": "other", "namespace": "other"}, "nodeSelector": {}, "serviceNamespaces": ["web"],
            "disableNodeDefaultTaint": true, "podPriorityClassName": "low", "directScheduling": true}), Accepted),
        change("secretRef.name changed to a wrong one", cb(json!({})), json!({"secretRef": {"name": "A"}}), Refused("secretRef.name must be the name of a Secret")),
        change("serviceNamespaces extended by a wrong one", cb(json!({"serviceNamespaces": ["web"]})), json!({"serviceNamespaces": ["web", "A"]}), Refused("serviceNamespaces entries must be")),
        change("a requirement that loses its values", cb(json!({"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "k", "operator": "In", "values": ["a"]}]}]}})),
            json!({"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "In"}]}]}}), Refused("values must have at least one entry")),
        change("the cluster of a policy changed", rlp(json!({})), json!({"cluster": "w2"}), Accepted),
        change("a window changed to a wrong one", rlp(json!({"timeWindows": window})), json!({"timeWindows": [{"start": "08:00", "end": "08:00", "days": ["mon"]}]}), Refused("start and end must differ")),
        change("a day added that is none", rlp(json!({"timeWindows": window})), json!({"timeWindows": [{"start": "08:00", "end": "18:00", "days": ["mon", "noday"]}]}), Refused("days must be English names")),
        change("one of two limits changed to a wrong one", rlp(json!({"resourceLimits": limits})), json!({"resourceLimits": [{"resource": "cpu", "percent": 1}, {"resource": "memory"}]}), Refused("resourceLimits entries need quantity or percent")),
        change("the zone changed to an unknown one", rlp(json!({"timeZone": "UTC"})), json!({"timeZone": "Mars/Olympus"}), Refused("unknown time zone Mars/Olympus")),
        change("the zone removed", rlp(json!({"timeZone": "UTC"})), json!({"timeZone": null}), AcceptedAs(vec![("/spec/timeZone", Value::Null)])),
    ]
}

fn statuses() -> Vec<Case> {
    let status = |name, object, patch, verdict| Case { name, object, step: Step::Status(json!({"status": patch})), verdict };
    let condition = |type_: &str, status: &str| json!({
        "type": type_, "status": status, "reason": "Because", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"});
    let without = |field: &str| {
        let mut condition = condition("Ready", "True");
        condition[field] = Value::Null;
        condition
    };
    vec![
        status("binding Pending", cb(json!({})), json!({"phase": "Pending"}), Accepted),
        status("binding Ready, with everything", cb(json!({})), json!({
            "phase": "Ready", "lastSyncTime": "2026-01-02T03:04:05Z", "observedGeneration": 1, "nodes": 2, "pods": 0, "workerUID": "7d9f",
            "conditions": (["Ready", "Connected", "SyncerReady", "ProxierReady", "Leasing"].map(|one| condition(one, "True")))}), Accepted),
        status("binding Failed", cb(json!({})), json!({"phase": "Failed"}), Accepted),
        status("binding in a phase that only policies have", cb(json!({})), json!({"phase": "Active"}), Refused("status.phase: Unsupported value")),
        status("a status does not change the spec", cb(json!({})), json!({"phase": "Ready", "colour": "blue"}),
            AcceptedAs(vec![("/status/phase", json!("Ready")), ("/status/colour", Value::Null), ("/spec/clusterID", json!("w1"))])),
        status("conditions True, False and Unknown", cb(json!({})), json!({"conditions": [
            condition("Ready", "True"), condition("Connected", "False"), condition("Leasing", "Unknown")]}), Accepted),
        status("a condition that is maybe", cb(json!({})), json!({"conditions": [condition("Ready", "Maybe")]}), Refused("status.conditions[0].status: Unsupported value")),
        status("a condition twice", cb(json!({})), json!({"conditions": [condition("Ready", "True"), condition("Ready", "False")]}), Refused("status.conditions[1]: Duplicate value")),
        status("a condition without a reason", cb(json!({})), json!({"conditions": [without("reason")]}), Refused("status.conditions[0].reason: Required value")),
        status("a condition without a status", cb(json!({})), json!({"conditions": [without("status")]}), Refused("status.conditions[0].status: Required value")),
        status("a condition without a message", cb(json!({})), json!({"conditions": [without("message")]}), Refused("status.conditions[0].message: Required value")),
        status("a condition without a time", cb(json!({})), json!({"conditions": [without("lastTransitionTime")]}), Refused("status.conditions[0].lastTransitionTime: Required value")),
        status("a condition whose reason is a sentence", cb(json!({})), json!({"conditions": [with(condition("Ready", "True"), json!({"reason": "It is so"}))]}), Refused("status.conditions[0].reason: Invalid value")),
        status("a condition whose reason is empty", cb(json!({})), json!({"conditions": [with(condition("Ready", "True"), json!({"reason": ""}))]}), Refused("reason in body should be at least 1")),
        status("a condition type with a prefix", cb(json!({})), json!({"conditions": [condition("kubeocean.io/Mapped", "True")]}), Accepted),
        status("a condition type with a space", cb(json!({})), json!({"conditions": [condition("Is Ready", "True")]}), Refused("status.conditions[0].type: Invalid value")),
        status("a message of 32768 characters", cb(json!({})), json!({"conditions": [with(condition("Ready", "True"), json!({"message": "m".repeat(32_768)}))]}), Accepted),
        status("a message of 32769 characters", cb(json!({})), json!({"conditions": [with(condition("Ready", "True"), json!({"message": "m".repeat(32_769)}))]}), Refused("status.conditions[0].message: Too long")),
        status("33 conditions", cb(json!({})), json!({"conditions": ((0..33).map(|i| condition(&format!("C{i}"), "True")).collect::<Vec<_>>())}), Refused("status.conditions: Too many")),
        status("a condition of a generation below zero", cb(json!({})), json!({"conditions": [with(condition("Ready", "True"), json!({"observedGeneration": -1}))]}), Refused("status.conditions[0].observedGeneration: Invalid value")),
        status("a generation below zero", cb(json!({})), json!({"observedGeneration": -1}), Refused("observedGeneration in body should be greater than or equal to 0")),
        status("fewer than no pods", cb(json!({})), json!({"pods": -1}), Refused("pods in body should be greater than or equal to 0")),
        status("a worker's uid of 129 characters", cb(json!({})), json!({"workerUID": "u".repeat(129)}), Refused("status.workerUID: Too long")),
        status("fewer than no nodes", cb(json!({})), json!({"nodes": -1}), Refused("nodes in body should be greater than or equal to 0")),
        status("a time that is none", cb(json!({})), json!({"lastSyncTime": "yesterday"}), Refused("lastSyncTime in body must be of type date-time")),
        status("policy Pending", rlp(json!({})), json!({"phase": "Pending"}), Accepted),
        status("policy Active, with everything", rlp(json!({})), json!({
            "phase": "Active", "lastAppliedTime": "2026-01-02T03:04:05Z", "activeTimeWindow": true, "observedGeneration": 1,
            "nextTransitionTime": "2026-01-02T18:01:00Z", "conditions": (["Valid", "Active", "Shadowed"].map(|one| condition(one, "False"))),
            "bindings": [{"bindingUID": "a", "nodes": 1, "active": true}, {"bindingUID": "b", "nodes": 0, "active": false}]}), Accepted),
        status("policy Inactive", rlp(json!({})), json!({"phase": "Inactive"}), Accepted),
        status("policy Failed", rlp(json!({})), json!({"phase": "Failed"}), Accepted),
        status("policy in a phase that only bindings have", rlp(json!({})), json!({"phase": "Ready"}), Refused("status.phase: Unsupported value")),
        status("a borrower twice", rlp(json!({})), json!({"bindings": [{"bindingUID": "a"}, {"bindingUID": "a"}]}), Refused("status.bindings[1]: Duplicate value")),
        status("a borrower without uid", rlp(json!({})), json!({"bindings": [{"nodes": 1}]}), Refused("status.bindings[0].bindingUID: Required value")),
        status("a borrower with an empty uid", rlp(json!({})), json!({"bindings": [{"bindingUID": ""}]}), Refused("bindingUID in body should be at least 1")),
        status("a borrower with fewer than no nodes", rlp(json!({})), json!({"bindings": [{"bindingUID": "a", "nodes": -1}]}), Refused("nodes in body should be greater than or equal to 0")),
        status("a borrower that leases nothing yet", rlp(json!({})), json!({"bindings": [{"bindingUID": "a"}]}),
            AcceptedAs(vec![("/status/bindings/0/nodes", json!(0)), ("/status/bindings/0/active", json!(false))])),
        status("257 borrowers", rlp(json!({})), json!({"bindings": ((0..257).map(|i| json!({"bindingUID": i.to_string()})).collect::<Vec<_>>())}), Refused("status.bindings: Too many")),
        status("a policy's generation below zero", rlp(json!({})), json!({"observedGeneration": -1}), Refused("observedGeneration in body should be greater than or equal to 0")),
        status("activeTimeWindow is yes or no", rlp(json!({})), json!({"activeTimeWindow": "08:00"}), Refused("activeTimeWindow in body must be of type boolean")),
    ]
}

fn create(name: &'static str, object: Value, verdict: Verdict) -> Case {
    Case { name, object, step: Step::Create, verdict }
}

/// A valid binding, its spec changed by a merge patch.
fn cb(spec: Value) -> Value {
    with(
        json!({
            "apiVersion": "cloud.tencent.com/v1beta1", "kind": "ClusterBinding", "metadata": {},
            "spec": {"clusterID": "w1", "secretRef": {"name": "w1", "namespace": "kubeocean-system"}, "mountNamespace": "borrowed"},
        }),
        [("spec".to_owned(), spec)].into_iter().collect(),
    )
}

/// A valid policy, its spec changed by a merge patch.
fn rlp(spec: Value) -> Value {
    with(
        json!({
            "apiVersion": "cloud.tencent.com/v1beta1", "kind": "ResourceLeasingPolicy", "metadata": {},
            "spec": {"cluster": "w1"},
        }),
        [("spec".to_owned(), spec)].into_iter().collect(),
    )
}

fn named(object: Value, name: &str) -> Value {
    with(object, json!({"metadata": {"name": name}}))
}

/// RFC 7386.
fn with(mut object: Value, patch: Value) -> Value {
    merge(&mut object, patch);
    object
}

fn merge(object: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *object = patch;
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    let Some(fields) = object.as_object_mut() else { return };
    for (key, value) in patch {
        if value.is_null() {
            fields.remove(&key);
        } else {
            merge(fields.entry(key).or_insert(Value::Null), value);
        }
    }
}
