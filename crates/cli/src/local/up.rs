//! All in one: control plane, world and API in this process.

mod declared;

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing::warn;
use wharf_api::file::fleet::describe;
use wharf_api::file::policy::default_policy_for;
use wharf_api::file::policy::lint::Inventory;
use wharf_controller::sqlite::{Mode, SqliteDisk};
use wharf_controller::turn::{Recovered, Settings};
use wharf_controller::world::{Happening, Impossible, World, WorldFault};
use wharf_engine::decide::input::{Input, Request};
use wharf_engine::model::actor::{Actor, Source};
use wharf_engine::model::policy::Policy;
use wharf_engine::model::rejection::Rejection;
use wharf_engine::state::State;
use wharf_server::Hosts;
use wharf_server::desk::{Desk, Patience, Running};
use wharf_server::fleet_file::{self, FleetStatus};
use wharf_server::policy::{PolicyStatus, Reviewed, inventory, review, watch};
use wharf_server::replica::Replica;
use wharf_sim::world::file::{FileFault, FileWorld, Founding};

use crate::args::UpArgs;
use crate::local::{demo, process};
use crate::render::problem::cannot_listen;

use declared::Declared;

/// How often the world is tried before a start is given up.
const MEET_TRIES: u32 = 5;
/// The pause between two tries.
const MEET_PAUSE: Duration = Duration::from_secs(1);

/// Runs until somebody stops it.
pub(crate) fn run(args: UpArgs) -> anyhow::Result<ExitCode> {
    tracing_subscriber::fmt()
        .with_env_filter(log_filter())
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    process::allow_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(up(args))
}

fn log_filter() -> tracing_subscriber::EnvFilter {
    tracing_subscriber::EnvFilter::try_from_env("WHARF_LOG").unwrap_or_else(|_| "info".into())
}

async fn up(args: UpArgs) -> anyhow::Result<ExitCode> {
    // The lock on the data directory comes first: nothing of another process's is touched, and the same command
    // twice is told the reason and not only that the address is taken.
    let mode = if args.restore { Mode::Restore } else { Mode::Own };
    let journal = Recovered::read(SqliteDisk::open(&args.data, mode)?)?;
    let listener = TcpListener::bind(&args.listen).await;
    let listener = listener.map_err(|error| cannot_listen(&args.listen, &error))?;
    // A start that failed half way has left a journal without an event: that is still a first start.
    let first_start = journal.state().index() == 0;
    let may_pass = |error: &anyhow::Error| error.downcast_ref().is_some_and(FileFault::may_pass);
    let (mut world, fleet) = persistently(|| open_world(&args, first_start), may_pass)?;
    let policy_dir = args.policy.clone().unwrap_or_else(|| args.data.join("policy"));
    let in_force = journal.state().tenants.version() > 0;
    let writes_examples = args.policy.is_none() && !in_force && !policy_dir.exists();
    if !in_force && !writes_examples {
        let nodes = fleet.nodes.as_deref().unwrap_or_default();
        applicable(review(&policy_dir, &Inventory::of_nodes(&fleet.name, nodes), ""))?;
    }
    let restores = args.restore && journal.is_behind(&world);
    if !restores {
        journal.check(&world)?;
    }
    // Everything was read and nothing was written. A start that fails up to here leaves everything as it was.
    if let Some(nodes) = &fleet.nodes {
        let edited = Happening::Fleet(nodes.clone());
        let is_fault = |why: &Impossible| matches!(why, Impossible::Fault(_));
        fleet_file::tell(&persistently(|| world.happen(&edited), is_fault)?);
    }
    let (desk, running) = Desk::open(Patience::default(), move || {
        let (world, settings) = (answering(world)?, Settings::default());
        if restores { journal.restore(world, settings) } else { journal.open(world, settings) }
    })?;
    let status = PolicyStatus::default();
    let outcome = match first_policy(&desk, &policy_dir, writes_examples).await {
        Ok(()) => {
            tell_restored(&desk, &args, restores).await?;
            serve(args, listener, &desk, status, policy_dir, fleet).await
        }
        Err(error) => Err(error),
    };
    close(&desk, running).await?;
    outcome?;
    Ok(ExitCode::SUCCESS)
}

/// Says what a restore came to, or that there was nothing to restore.
async fn tell_restored(desk: &Desk, args: &UpArgs, restores: bool) -> anyhow::Result<()> {
    if args.restore && !restores {
        tracing::info!(
            "--restore: the journal has everything that was acknowledged, nothing was to be restored"
        );
    }
    if !restores {
        return Ok(());
    }
    let (running, held) = desk
        .read(|replica| {
            let held = replica.state.jobs.iter().filter(|(_, job)| job.held.is_some()).count();
            (replica.state.ledger.holdings().count(), held)
        })
        .await?;
    tracing::warn!(
        "the journal was behind what was acknowledged and is restored: {running} jobs run as the fleet has them, {held} \
         jobs are held because nobody knows what became of them; see wharf get jobs, then wharf release JOB or wharf cancel JOB"
    );
    Ok(())
}

async fn serve(
    args: UpArgs,
    listener: TcpListener,
    desk: &Desk,
    status: PolicyStatus,
    policy_dir: PathBuf,
    fleet: Declared,
) -> anyhow::Result<()> {
    watch(policy_dir.clone(), desk.clone(), status.clone());
    let fleet_status = FleetStatus::default();
    fleet.write_example()?;
    fleet_file::watch(fleet.file.clone(), fleet.nodes.clone(), desk.clone(), fleet_status.clone());
    let hosts = Hosts::new(args.allow_host.clone());
    let serving = wharf_server::serve(listener, desk.clone(), status, fleet_status, hosts)?;
    if !serving.address.ip().is_loopback() {
        warn!(
            "listening on {}: there is no authentication yet, so whoever reaches this address can submit, cancel, evict and cordon; \
             put something in front of it that authenticates, or listen on 127.0.0.1",
            serving.address
        );
    }
    let standing = Standing::of(&desk.latest());
    greet(&args, &address_for_clients(serving.address), &fleet, &policy_dir, &standing);
    if args.demo {
        demo::start(desk.clone(), standing.index);
    }
    wait_for_the_end(desk).await?;
    serving.stop().await;
    Ok(())
}

/// Lets the desk finish. A fault that stopped it is why we end.
async fn close(desk: &Desk, running: Running) -> anyhow::Result<()> {
    desk.stop();
    let joined = tokio::task::spawn_blocking(move || running.join()).await?;
    joined.context("the control plane stopped; running jobs go on")
}

/// The fleet that is asked for, or the one that the data directory holds, or a small one; as its file says by now.
fn open_world(args: &UpArgs, first_start: bool) -> anyhow::Result<(FileWorld, Declared)> {
    let file = args.data.join("fleet.sqlite");
    let held = FileWorld::held(&file)?;
    if args.fleet.is_none() && held.is_none() && !first_start {
        bail!(
            "{} has a journal and no fleet (fleet.sqlite is missing); put it back, or say which fleet it is with --fleet",
            args.data.display()
        );
    }
    let declared = Declared::read(args.fleet.as_deref(), held.as_deref(), &args.data)?;
    let founding =
        Founding { name: declared.name.clone(), nodes: declared.nodes.clone().unwrap_or_default() };
    Ok((FileWorld::open(&file, founding, args.speed)?, declared))
}

/// A world that answers.
fn answering<W: World>(mut world: W) -> Result<W, WorldFault> {
    persistently(|| world.list(), |_| true)?;
    Ok(world)
}

/// Tries a few times what may pass by itself. Nothing is served before the world was met, so there is nobody to keep
/// waiting; a world that does not answer for longer needs somebody to look at it.
fn persistently<T, E: Display>(
    mut attempt: impl FnMut() -> Result<T, E>,
    may_pass: impl Fn(&E) -> bool,
) -> Result<T, E> {
    for tried in 1..MEET_TRIES {
        match attempt() {
            Err(fault) if may_pass(&fault) => {
                tracing::warn!("the fleet does not answer: {fault}; tried {tried} of {MEET_TRIES} times");
                std::thread::sleep(MEET_PAUSE);
            }
            done => return done,
        }
    }
    attempt()
}

/// Example files for the operator to edit, where no policy is in force and none was written.
fn write_examples(dir: &Path, fleet: &Inventory) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    for (name, text) in default_policy_for(fleet) {
        let file = dir.join(name);
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// A policy in error, or that promises more than the fleet has, is fatal only when there is none in force.
async fn first_policy(desk: &Desk, dir: &Path, writes_examples: bool) -> anyhow::Result<()> {
    let asked = desk.read(|replica| {
        let tenants = &replica.state.tenants;
        (tenants.version() > 0, inventory(&replica.state), tenants.policy().digest.clone())
    });
    let (in_force, inventory, digest) = asked.await?;
    if writes_examples {
        write_examples(dir, &inventory)?;
    }
    let policy = match applicable(review(dir, &inventory, &digest)) {
        Ok(policy) => policy,
        // The watcher says so, and goes on saying it where it can be seen.
        Err(_) if in_force => return Ok(()),
        Err(error) => return Err(error),
    };
    let request = Request { actor: Actor::of(Source::PolicyFile), input: Input::ApplyPolicy(policy) };
    match desk.decide(request).await?.reply {
        Ok(_) | Err(Rejection::NothingToDo) => Ok(()),
        Err(rejection) => bail!("the policy was refused: {rejection:?}"),
    }
}

fn applicable(reviewed: Reviewed) -> anyhow::Result<Policy> {
    let Reviewed { policy, remarks } = reviewed;
    policy.ok_or_else(|| {
        anyhow!("{}", remarks.error.unwrap_or_else(|| "the policy cannot be applied".to_owned()))
    })
}

/// How things stand when it is up.
struct Standing {
    index: u64,
    term: u64,
    jobs: usize,
    /// The fleet that is really there.
    fleet: String,
    /// A tenant that takes jobs, for the first command that a newcomer types.
    tenant: String,
}

impl Standing {
    fn of(replica: &Replica) -> Self {
        let state = &*replica.state;
        let nodes = state.fleet.nodes();
        let sizes = nodes.map(|(_, node)| (state.fleet.model(node.facts.pool), node.facts.gpus.len()));
        let (index, term, jobs) = (state.index(), replica.vitals.term, state.jobs.len());
        Self { index, term, jobs, fleet: describe(sizes), tenant: a_tenant(state) }
    }
}

/// An address at which a client on this machine finds us.
fn address_for_clients(listening: SocketAddr) -> String {
    let loopback = match listening.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(loopback, listening.port()).to_string()
}

fn a_tenant(state: &State) -> String {
    let mut paths = state.tenants.policy().tenants.iter().map(|tenant| tenant.path.as_str());
    paths.find(|path| state.tenants.children(path).is_empty()).unwrap_or("PATH").to_owned()
}

fn greet(args: &UpArgs, address: &str, fleet: &Declared, policy: &Path, standing: &Standing) {
    let Standing { index, term, jobs, fleet: description, tenant } = standing;
    let (fleet, file) = (&fleet.name, fleet.file.display());
    let wharf = std::env::args().next().unwrap_or_else(|| "wharf".to_owned());
    let server =
        if address == "127.0.0.1:8470" { String::new() } else { format!(" --server http://{address}") };
    let speed = match args.speed {
        1 => "as fast as the clock".to_owned(),
        speed => format!("{speed} times as fast as the clock"),
    };
    let data = args.data.display();
    let policy = policy.display();
    let greeting = format!(
        "wharf is up at http://{address}
  fleet    {fleet}: {description}, simulated, {speed}
           {file} (edit it: nodes join and leave when it changes)
  data     {data} (journal index {index}, term {term}, {jobs} live jobs)
  policy   {policy} (edit it: it is read again when it changes)

next, in another terminal:
  {wharf} submit --tenant {tenant} --gpus 2 --name hello{server}
  {wharf} top{server}
stop with Ctrl-C; what runs goes on and is found again at the next start
"
    );
    // Nobody need be listening: a service manager may have closed our output.
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(greeting.as_bytes()).and_then(|()| out.flush());
}

/// Ctrl-C, SIGTERM, or the end of the control plane.
async fn wait_for_the_end(desk: &Desk) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let ended = async {
        while !desk.has_stopped() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        () = ended => {}
    }
    Ok(())
}
