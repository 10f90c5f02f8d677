//! Bodies of requests that change a live job, a node or a simulated fleet: small documents, read by the same rules as files.

use wharf_controller::world::Happening;
use wharf_engine::decide::input::{DowntimeRequest, DrainRequest, Extension, Replacement};
use wharf_engine::model::job::TASKS_MAX;
use wharf_engine::state::fleet::Whom;
use wharf_engine::units::{Millis, Timestamp};

use super::field::{Field, Map, NAME_MAX};
use super::moment::{Moment, moment_text};
use super::{Fault, FileError, document};

/// Reads how long a job is to run: `limit: 6h` in all, or `by: 2h` more than now.
pub fn parse_extension(file: &str, text: &str) -> Result<Extension, FileError> {
    document(file, text, |root| {
        let keys = Map::root(root, &["limit", "by"])?;
        let least = Millis::from_secs(1);
        match (keys.get("limit")?, keys.get("by")?) {
            (Some(limit), None) => limit.duration(least).map(Extension::To),
            (None, Some(by)) => by.duration(least).map(Extension::By),
            (Some(_), Some(_)) | (None, None) => {
                Err(Fault::new(None, "one of limit and by is needed").allowed("{limit: 6h} or {by: 2h}"))
            }
        }
    })
}

/// Reads how many replicas of a service are wanted: `replicas: 5`.
pub fn parse_scale(file: &str, text: &str) -> Result<u32, FileError> {
    document(file, text, |root| {
        Map::root(root, &["replicas"])?.need("replicas", "{replicas: 5}")?.whole(0..=TASKS_MAX)
    })
}

/// Reads how replicas of a service are replaced: `surge: 1, unavailable: 1`, or `stop: true` where they no longer are.
pub fn parse_replacement(file: &str, text: &str) -> Result<Option<Replacement>, FileError> {
    document(file, text, |root| {
        let keys = Map::root(root, &["surge", "unavailable", "stop"])?;
        if keys.get("stop")?.map_or(Ok(false), |field| field.truth())? {
            return Ok(None);
        }
        let number = |key: &str| keys.get(key)?.map_or(Ok(1), |field| field.whole(0..=TASKS_MAX));
        Ok(Some(Replacement { surge: number("surge")?, unavailable: number("unavailable")? }))
    })
}

/// Reads what is to happen to a simulated fleet: `target: gpu/n1:3, xid: 79`, `target: node/n1, down: true`, `target: node/n1,
/// refuse_starts: true, for: 5m`, or `heal: true` of either.
pub fn parse_fault(file: &str, text: &str) -> Result<Happening, FileError> {
    const EXAMPLE: &str = "{target: gpu/n1:3, xid: 79}";
    document(file, text, |root| {
        let keys = Map::root(root, &["target", "xid", "down", "refuse_starts", "for", "heal"])?;
        let target = keys.need("target", EXAMPLE)?;
        let is_set = |key: &str| keys.get(key)?.map_or(Ok(false), |field| field.truth());
        let xid = keys.get("xid")?.map(|field| field.whole(0..=u16::MAX.into())).transpose()?;
        let xid = xid.and_then(|number| u16::try_from(number).ok());
        let (kind, name) = target.text()?.split_once('/').unwrap_or_default();
        let span = keys.get("for")?.map(|field| field.duration(Millis::from_secs(1))).transpose()?;
        let refuses = is_set("refuse_starts")?;
        if refuses && (kind, xid, is_set("down")?, is_set("heal")?) == ("node", None, false, false) {
            return Ok(Happening::StartsRefused { node: name.to_owned(), span });
        }
        if refuses || span.is_some() {
            let allowed = "target: node/n1, refuse_starts: true, for: 5m";
            return Err(target.fault("cannot refuse starts like that").allowed(allowed));
        }
        match (kind, name.rsplit_once([':', '/']), xid, is_set("down")?, is_set("heal")?) {
            ("node", _, None, true, false) => Ok(Happening::NodeDown(name.to_owned())),
            ("node", _, None, false, true) => Ok(Happening::NodeHealed(name.to_owned())),
            ("gpu", Some((node, index)), xid, false, heal) if xid.is_some() != heal => {
                let node = node.to_owned();
                let gpu = index.parse().map_err(|_| target.wrong("gpu/NODE:INDEX, such as gpu/n1:3"))?;
                Ok(match xid {
                    Some(xid) => Happening::GpuError { node, gpu, xid },
                    None => Happening::GpuHealed { node, gpu },
                })
            }
            ("node", ..) => Err(target
                .fault("is a node: it fails or is healed")
                .allowed("down: true, refuse_starts: true or heal: true")),
            ("gpu", Some(_), ..) => Err(target
                .fault("is a GPU: it reports an error or is healed")
                .allowed("xid: 79 or heal: true")),
            _ => Err(target.wrong("gpu/NODE:INDEX or node/NODE")),
        }
    })
}

/// Reads why a node is cordoned: `reason: fan is loud`, or nothing.
pub fn parse_cordon(file: &str, text: &str) -> Result<String, FileError> {
    if text.trim().is_empty() {
        return Ok(String::new());
    }
    document(file, text, |root| reason(&Map::root(root, &["reason"])?))
}

/// Reads how a node is emptied: `within: 30m, reason: …, everything: true`, or nothing for at once.
pub fn parse_drain(file: &str, text: &str) -> Result<DrainRequest, FileError> {
    let text = if text.trim().is_empty() { "{}" } else { text };
    document(file, text, |root| drain(&Map::root(root, &["within", "reason", "everything"])?))
}

/// Reads the same of several nodes: `nodes: [n1, n2], within: 30m`.
pub fn parse_drain_of(file: &str, text: &str) -> Result<(Vec<String>, DrainRequest), FileError> {
    document(file, text, |root| {
        let keys = Map::root(root, &["nodes", "within", "reason", "everything"])?;
        let nodes = keys.need("nodes", "nodes: [n1, n2]")?.one_or_more()?;
        Ok((nodes.iter().map(Field::label).collect::<Result<_, _>>()?, drain(&keys)?))
    })
}

fn drain(keys: &Map<'_>) -> Result<DrainRequest, Fault> {
    let within = keys.get("within")?.map_or(Ok(Millis(0)), |field| field.duration(Millis(0)))?;
    Ok(DrainRequest { within, reason: reason(keys)?, whom: whom(keys)? })
}

/// A downtime as somebody wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DowntimeFile {
    /// Its name, where one was given.
    name: Option<String>,
    nodes: Vec<String>,
    from: Moment,
    span: Millis,
    reason: String,
    whom: Whom,
}

/// Reads when nodes are out of service: `nodes: [n1, n2], from: +2h, for: 4h, reason: …`.
pub fn parse_downtime(file: &str, text: &str) -> Result<DowntimeFile, FileError> {
    document(file, text, |root| {
        let keys = Map::root(root, &["name", "nodes", "from", "for", "reason", "everything"])?;
        let nodes = keys.need("nodes", "nodes: [n1, n2]")?.one_or_more()?;
        Ok(DowntimeFile {
            name: keys.get("name")?.map(|field| field.name(NAME_MAX)).transpose()?,
            nodes: nodes.iter().map(Field::label).collect::<Result<_, _>>()?,
            from: keys.need("from", "from: 2026-11-20T08:00Z")?.moment()?,
            span: keys.need("for", "for: 4h")?.duration(Millis::from_secs(1))?,
            reason: reason(&keys)?,
            whom: whom(&keys)?,
        })
    })
}

impl DowntimeFile {
    /// The downtime as the engine takes it. Without a name it is called after its begin.
    pub fn request(&self, now: Timestamp) -> DowntimeRequest {
        let Self { name, nodes, from, span, reason, whom } = self.clone();
        let from = from.on(now);
        let begin = || moment_text(from).chars().filter(char::is_ascii_digit).take(12).collect::<String>();
        let name = name.unwrap_or_else(|| format!("maintenance-{}", begin()));
        DowntimeRequest { name, nodes, from, span, reason, whom }
    }
}

fn reason(keys: &Map<'_>) -> Result<String, Fault> {
    keys.get("reason")?.map_or(Ok(String::new()), |field| field.label())
}

fn whom(keys: &Map<'_>) -> Result<Whom, Fault> {
    let everything = keys.get("everything")?.map_or(Ok(false), |field| field.truth())?;
    Ok(if everything { Whom::Everything } else { Whom::Preemptible })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_of_a_gpu_or_of_a_node() {
        let read = |text| parse_fault("request body", text).map_err(|error| error.to_string());
        let node = || "n1".to_owned();
        assert_eq!(
            read("{target: gpu/n1:3, xid: 79}"),
            Ok(Happening::GpuError { node: node(), gpu: 3, xid: 79 })
        );
        assert_eq!(read("{target: gpu/n1:3, heal: true}"), Ok(Happening::GpuHealed { node: node(), gpu: 3 }));
        assert_eq!(read("{target: node/n1, down: true}"), Ok(Happening::NodeDown(node())));
        let refused = |span| Ok(Happening::StartsRefused { node: node(), span });
        assert_eq!(read("{target: node/n1, refuse_starts: true}"), refused(None));
        let for_a_while = "{target: node/n1, refuse_starts: true, for: 5m}";
        assert_eq!(read(for_a_while), refused(Some(Millis::from_secs(300))));
        assert!(read("{target: gpu/n1:0, refuse_starts: true}").is_err());
        assert!(read("{target: node/n1, down: true, for: 5m}").is_err());
        assert_eq!(read("{target: node/n1, heal: true}"), Ok(Happening::NodeHealed(node())));
        for wrong in [
            "{}",
            "{target: n1, down: true}",
            "{target: job/a, heal: true}",
            "{target: gpu/n1, xid: 79}",
            "{target: gpu/n1:x, xid: 79}",
            "{target: gpu/n1:3}",
            "{target: gpu/n1:3, xid: 79, heal: true}",
            "{target: gpu/n1:3, xid: 70000}",
            "{target: gpu/n1:3, down: true}",
            "{target: node/n1}",
            "{target: node/n1, xid: 79}",
            "{target: node/n1, down: true, heal: true}",
            "{target: node/n1, dwon: true}",
        ] {
            assert!(read(wrong).is_err(), "{wrong}: {:?}", read(wrong));
        }
    }

    #[test]
    fn replicas_are_replaced_one_by_one_unless_it_says_otherwise() {
        let read = |text| parse_replacement("request body", text).map_err(|error| error.to_string());
        assert_eq!(read("{}"), Ok(Some(Replacement { surge: 1, unavailable: 1 })));
        let two = Replacement { surge: 0, unavailable: 2 };
        assert_eq!(read("{\"surge\": 0, \"unavailable\": 2}"), Ok(Some(two)));
        assert_eq!(read("stop: true"), Ok(None));
        assert!(read("surge: some").unwrap_err().contains("surge is \"some\""));
        assert!(read("max_surge: 1").unwrap_err().contains("surge"));
    }

    #[test]
    fn a_node_is_drained_at_once_unless_it_says_otherwise() {
        let read = |text| parse_drain("request body", text).map_err(|error| error.to_string());
        let now = DrainRequest { within: Millis(0), reason: String::new(), whom: Whom::Preemptible };
        assert_eq!(read(""), Ok(now.clone()));
        assert_eq!(read("{}"), Ok(now));
        let later = read("{within: 30m, reason: fan, everything: true}").unwrap();
        assert_eq!((later.within, later.whom), (Millis::from_secs(1800), Whom::Everything));
        assert!(read("within: soon").unwrap_err().contains("within is \"soon\""));
        assert!(read("withn: 3m").unwrap_err().contains("did you mean \"within\""));
        assert!(read("by: eve").unwrap_err().contains("by"), "who drains is not what the body says");
        assert_eq!(parse_cordon("request body", "reason: fan").unwrap(), "fan");
        assert_eq!(parse_cordon("request body", " ").unwrap(), "");
    }

    #[test]
    fn an_downtime_has_nodes_and_a_time() {
        let read = |text| parse_downtime("request body", text).map_err(|error| error.to_string());
        let downtime = read("{nodes: [n1, n2], from: +2h, for: 4h, reason: firmware}").unwrap();
        let request = downtime.request(Timestamp(1_763_251_200_000));
        assert_eq!(request.name, "maintenance-202511160200");
        assert_eq!((request.from, request.span), (Timestamp(1_763_258_400_000), Millis::from_secs(14_400)));
        assert!(read("{from: +2h, for: 4h}").unwrap_err().contains("nodes: [n1, n2]"));
        assert!(read("{nodes: n1, from: tomorrow, for: 4h}").unwrap_err().contains("+2h"));
        assert!(read("{nodes: n1, from: +2h}").unwrap_err().contains("for: 4h"));
    }

    #[test]
    fn a_service_is_scaled_to_a_number() {
        let read = |text| parse_scale("request body", text).map_err(|error| error.to_string());
        assert_eq!(read("{\"replicas\": 5}"), Ok(5));
        assert!(read("{}").unwrap_err().contains("replicas"));
        assert_eq!(read("replicas: 0"), Ok(0), "whether so few may be is the service's to say");
        assert!(read("replicas: -1").unwrap_err().contains("a whole number from 0"));
        assert!(read("replicas: many").unwrap_err().contains("replicas is \"many\""));
    }

    #[test]
    fn a_job_is_extended_to_or_by_a_span() {
        let read = |text| parse_extension("request body", text).map_err(|error| error.to_string());
        assert_eq!(read("{\"limit\": \"6h\"}"), Ok(Extension::To(Millis::from_secs(6 * 3600))));
        assert_eq!(read("by: 30m"), Ok(Extension::By(Millis::from_secs(1800))));
        let either =
            "request body: one of limit and by is needed; allowed here: {limit: 6h} or {by: 2h}".to_owned();
        assert_eq!(read("{}"), Err(either.clone()));
        assert_eq!(read("{limit: 1h, by: 1h}"), Err(either));
        assert!(read("limit: soon").unwrap_err().contains("limit is \"soon\""));
        assert!(read("by: 0s").unwrap_err().contains("from 1s"));
    }
}
