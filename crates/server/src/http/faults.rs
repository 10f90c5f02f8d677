//! What is let happen to a simulated fleet, to see what follows.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use wharf_api::file::lever::parse_fault;
use wharf_api::v1::{Code, FaultReply, Problem, schema_of};
use wharf_controller::world::{Happening, Impossible};
use wharf_engine::device::catalogue::{Recovery, xid};

use super::jobs::utf8;
use super::{Refused, Shared};
use crate::rejection::{bad_file, closed};
use crate::text;

pub(super) async fn fault(State(shared): State<Shared>, body: Bytes) -> Result<Json<FaultReply>, Refused> {
    let what = parse_fault("request body", utf8(&body)?).map_err(|error| bad_file(&error))?;
    let told = told(&what);
    let happened = shared.desk.happen(what).await.map_err(closed)?;
    let happened = happened.map_err(|why| impossible(&why))?;
    Ok(Json(FaultReply { schema: schema_of::<FaultReply>(), text: told, jobs: happened.jobs }))
}

fn told(what: &Happening) -> String {
    match what {
        Happening::GpuError { node, gpu, xid: number } => match xid(*number) {
            Some(error) if error.recovery == Recovery::Nothing => {
                format!("gpu/{node}:{gpu} reported {}; such an error is only recorded", text::error(error))
            }
            Some(error) if error.recovery == Recovery::Job => {
                format!(
                    "gpu/{node}:{gpu} reported {}; what ran on it fails, the GPU is not lost",
                    text::error(error)
                )
            }
            Some(error) => format!("gpu/{node}:{gpu} has failed by {}", text::failure(error)),
            None => format!("gpu/{node}:{gpu} reported XID {number}"),
        },
        Happening::GpuHealed { node, gpu } => format!("gpu/{node}:{gpu} can be used again"),
        Happening::NodeDown(node) => format!("node/{node} is down, with everything on it"),
        Happening::StartsRefused { node, span: None } => {
            format!("node/{node} refuses to start anything until it is healed")
        }
        Happening::StartsRefused { node, span: Some(span) } => {
            format!("node/{node} refuses to start anything for {}", text::span(*span))
        }
        Happening::NodeHealed(node) => format!("node/{node} is up"),
        Happening::Fleet(_) => "the fleet is another one".to_owned(),
    }
}

fn impossible(why: &Impossible) -> Problem {
    let (code, hint) = match why {
        Impossible::NotSimulated => {
            (Code::NotSimulated, "try it on a control plane with a simulated fleet: wharf up")
        }
        Impossible::NoSuchNode(_) => (Code::NoSuchNode, "list them with: wharf get nodes"),
        Impossible::NoSuchGpu { .. } => (Code::NoSuchGpu, "list them with: wharf get gpus"),
        Impossible::NoSuchXid(_) => (
            Code::BadRequest,
            "79 costs a GPU until its node restarts, 95 until it is reset, 13 fails the job only",
        ),
        Impossible::Fault(_) => (Code::Unavailable, "it may have happened; look with: wharf get gpus"),
    };
    Problem::new(code, why.to_string()).hint(hint)
}
