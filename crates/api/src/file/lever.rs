//! Bodies of requests that change a live job or a simulated fleet: small documents, read by the same rules as files.

use wharf_controller::world::Happening;
use wharf_engine::input::{Extension, Replacement};
use wharf_engine::job::TASKS_MAX;
use wharf_engine::units::Millis;

use super::field::Map;
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

/// Reads what is to happen to a simulated fleet: `target: gpu/n1:3, xid: 79`, `target: node/n1, down: true`, or
/// `heal: true` of either.
pub fn parse_fault(file: &str, text: &str) -> Result<Happening, FileError> {
    const EXAMPLE: &str = "{target: gpu/n1:3, xid: 79}";
    document(file, text, |root| {
        let keys = Map::root(root, &["target", "xid", "down", "heal"])?;
        let target = keys.need("target", EXAMPLE)?;
        let is_set = |key: &str| keys.get(key)?.map_or(Ok(false), |field| field.truth());
        let xid = keys.get("xid")?.map(|field| field.whole(0..=u16::MAX.into())).transpose()?;
        let xid = xid.and_then(|number| u16::try_from(number).ok());
        let (kind, name) = target.text()?.split_once('/').unwrap_or_default();
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
            ("node", ..) => {
                Err(target.fault("is a node: it fails or is healed").allowed("down: true or heal: true"))
            }
            ("gpu", Some(_), ..) => Err(target
                .fault("is a GPU: it reports an error or is healed")
                .allowed("xid: 79 or heal: true")),
            _ => Err(target.wrong("gpu/NODE:INDEX or node/NODE")),
        }
    })
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
