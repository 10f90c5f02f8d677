//! Errors of GPUs against the vendor's catalogue.

use wharf_engine::device::catalogue::xid::{Recovery, XIDS, xid};

use super::cells::Rows;
use super::collected;

/// What the vendor recommends, in our kinds.
fn recovery(number: u16, action: &str) -> Recovery {
    match (number, action) {
        // The vendor ends the channel of the application and leaves the device alone.
        (43, "IGNORE") | (_, "RESTART_APP" | "WORKFLOW_XID_45") => Recovery::Job,
        // The details of 48 are treated like it.
        (171 | 172, "") | (_, "RESET_GPU" | "WORKFLOW_XID_48" | "WORKFLOW_NVLINK_ERR") => Recovery::Reset,
        (_, "RESTART_BM" | "RESTART_VM") => Recovery::RestartNode,
        (_, "CHECK_MECHANICALS" | "WORKFLOW_NVLINK5_ERR") => Recovery::Service,
        // Other actions are for people who look into causes; no device is lost by them.
        (_, "" | "IGNORE" | "CONTACT_SUPPORT" | "UPDATE_SWFW" | "CHECK_UVM" | "XID_154") => Recovery::Nothing,
        (_, other) => panic!("XID {number} asks for {other}, which we do not know"),
    }
}

#[test]
fn every_error_asks_for_what_the_vendor_recommends() {
    let Some(table) = collected("xid.csv") else { return };
    let mut in_use = 0;
    for row in Rows::of(&table).all() {
        let number: u16 = row["xid"].parse().unwrap();
        if row["description"] == "Unused" {
            assert_eq!(xid(number), None, "XID {number} is not in use");
            continue;
        }
        in_use += 1;
        let known = xid(number).unwrap_or_else(|| panic!("XID {number} is missing"));
        assert_eq!(known.recovery, recovery(number, &row["nvidia_immediate_action"]), "XID {number}");
    }
    assert_eq!(in_use, XIDS.len());
    assert!(XIDS.is_sorted_by_key(|known| known.number), "they are in order");
}
